"""A search over C on coresets beside scikit-learn's GridSearchCV on all rows, on Covertype.

    python benchmarks/logistic_search.py --data DIR [--values 20] [--folds 5] [--rows N] [--share 0.01]

Class 2 against the rest, the same shuffled folds for both, one process. What each search takes,
which C it chooses, and the cross-validated loss of that C as the search on all rows measured it,
over the smallest there. The search on all rows takes many minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from common import load_labelled, save, show, timed
from tithe import CoresetLogisticRegression, CoresetSearchCV

SCORING = "neg_log_loss"


def searches(X: np.ndarray, y: np.ndarray, values: np.ndarray, folds: int, share: float, seeds: int) -> dict[str, Any]:
    """Times, choices and losses of both; the search on coresets once a seed, the other once."""
    grid = {"C": values.tolist()}
    cv = StratifiedKFold(folds, shuffle=True, random_state=0)

    def small(seed: int) -> CoresetSearchCV:
        model = CoresetLogisticRegression(coreset_size=share, random_state=seed)
        return CoresetSearchCV(model, grid, coreset_size=share, scoring=SCORING, cv=cv, random_state=seed).fit(X, y)

    few = np.random.default_rng(0).choice(len(X), min(len(X), 20_000), replace=False)
    warm = CoresetSearchCV(CoresetLogisticRegression(coreset_size=500), {"C": [1.0]}, coreset_size=500, scoring=SCORING)
    warm.fit(X[few], y[few])  # kernels are compiled, or read from their cache, outside the clock
    outcomes = [timed(lambda seed=seed: small(seed)) for seed in range(seeds)]
    full, seconds = timed(lambda: GridSearchCV(LogisticRegression(), grid, scoring=SCORING, cv=cv).fit(X, y))
    loss = -full.cv_results_["mean_test_score"]
    runs = []
    for seed, (search, taken) in enumerate(outcomes):
        own = -search.cv_results_["mean_test_score"]
        runs.append(
            {
                "seed": seed,
                "C": search.best_params_["C"],
                "seconds": taken,
                "times_faster": seconds / taken,
                "excess": float(loss[search.best_index_] / loss.min() - 1.0),
                "worst_score_error": float(np.max(np.abs(own / loss - 1.0))),
                "seconds_reducing": search.reduce_time_,
                "seconds_refitting": search.refit_time_,
                "certificate": str(search.certificate_),
                "loss": own.tolist(),
            }
        )
    return {
        "values": values.tolist(),
        "full": {"C": full.best_params_["C"], "seconds": seconds, "loss": loss.tolist()},
        "coreset": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with covtype.npz")
    parser.add_argument("--values", type=int, default=20, help="values of C, evenly spaced in log from 1e-4 to 1e2")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="use only so many rows, drawn uniformly")
    parser.add_argument("--share", type=float, default=0.01, help="of the rows that a coreset keeps")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    X, y = load_labelled(arguments.data, "covtype")
    if arguments.rows is not None:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), arguments.rows, replace=False))
        X, y = np.ascontiguousarray(X[chosen]), y[chosen]
    values = np.logspace(-4, 2, arguments.values)
    results = searches(X, y, values, arguments.folds, arguments.share, arguments.seeds)
    full = results["full"]
    table = [["GridSearchCV, all rows", full["seconds"], 1.0, full["C"], 0.0, 0.0]]
    for run in results["coreset"]:
        name = f"CoresetSearchCV, seed {run['seed']}"
        table.append(
            [name, run["seconds"], run["times_faster"], run["C"], 100 * run["excess"], 100 * run["worst_score_error"]]
        )
    show(
        f"covtype: {X.shape[0]:,} x {X.shape[1]}, {arguments.values} values of C x {arguments.folds} folds, "
        f"{arguments.share:.1%} of the rows\nexcess: full-data cross-validated loss of the chosen C over the smallest",
        ["search", "seconds", "times faster", "C", "excess %", "worst score error %"],
        table,
    )
    print(f"\n{results['coreset'][0]['certificate']}")
    shape = {"rows": X.shape[0], "columns": X.shape[1], "folds": arguments.folds, "share": arguments.share}
    save("logistic_search", {**shape, **results})


if __name__ == "__main__":
    main()
