"""A search over leaves, rounds and smallest leaf of LightGBM: on coresets beside all rows.

    python benchmarks/boosting_search.py --data DIR [--tasks electricity,covtype] [--candidates 30] [--rows N]

Candidates are the same for every method. Regret: the cross-validated log-loss on all rows of the candidate that a
method chose, above the smallest, as a share of that. Seconds are those of the processor, without the last fit.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, spearmanr
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold

from boosting import trees
from common import load_labelled, save, show
from tithe import CoresetSearchCV

GRID = {
    "num_leaves": [4, 8, 16, 32, 64, 128],
    "n_estimators": randint(30, 201),
    "min_child_samples": [5, 20, 80, 320],
    "learning_rate": loguniform(0.03, 0.3),
}
METHODS: dict[str, dict[str, Any]] = {
    "coreset of 25 %": {},
    "uniform 25 %": {"construction": "uniform"},
    "coreset of 25 %, leaves": {"leaves": True},
    "coreset of 25 %, halving": {"halving": 3, "leaves": False},
    "coreset of 25 %, halving, leaves": {"halving": 3, "leaves": True},
    "coreset of 5 %": {"coreset_size": 0.05},
}


def run(folder: Path, name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    X, y = load_labelled(folder, name)
    order = np.sort(np.random.default_rng(0).permutation(len(y))[: arguments.rows])
    X, y = X[order], y[order]
    options: dict[str, Any] = {
        "n_iter": arguments.candidates,
        "scoring": "neg_log_loss",
        "cv": StratifiedKFold(3, shuffle=True, random_state=0),
        "refit": False,
        "random_state": 0,
    }
    model = trees("lightgbm", True, 100)
    start = time.process_time()
    full = RandomizedSearchCV(model, GRID, **options).fit(X, y)
    seconds = time.process_time() - start
    losses = -full.cv_results_["mean_test_score"]
    found = [{"method": "all rows", "cpu": seconds, "share of cpu": 1.0, "regret": 0.0, "rank correlation": 1.0}]
    for method, special in METHODS.items():
        start = time.process_time()
        search = CoresetSearchCV(model, GRID, **options, **{"coreset_size": 0.25, **special}).fit(X, y)
        cpu = time.process_time() - start
        assert search.cv_results_["params"] == full.cv_results_["params"]
        best = int(np.argmin(search.cv_results_["rank_test_score"]))
        found.append(
            {
                "method": method,
                "cpu": cpu,
                "share of cpu": cpu / seconds,
                "regret": float(losses[best] / losses.min() - 1.0),
                "rank correlation": float(spearmanr(-search.cv_results_["rank_test_score"], -losses)[0]),
            }
        )
        print(name, found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default="electricity,covtype")
    parser.add_argument("--candidates", type=int, default=30)
    parser.add_argument("--rows", type=int, help="use only so many rows of each task")
    arguments = parser.parse_args()
    tasks = {}
    for name in arguments.tasks.split(","):
        tasks[name] = run(arguments.data, name, arguments)
        show(name, list(tasks[name][0]), [list(line.values()) for line in tasks[name]])
        save("boosting_search", {"tasks": tasks})


if __name__ == "__main__":
    main()
