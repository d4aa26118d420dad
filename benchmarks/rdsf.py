"""Regressed sensitivities (RDSF) beyond logistic regression: what they lose against the sensitivities themselves.

    python benchmarks/rdsf.py --data DIR [--sets covtype kddcup99_10pct] [--rows 100000] [--draws 20]

For k-means (k = 20), margins (lam = 1000) and dictionaries (32 atoms, 3 a row): rows are drawn uniformly, by the
sensitivities of all rows, and by sensitivities that were computed for 1 % of the rows and predicted for the others, by
least squares, least squares of ln m, and a tree of ln m. Weights are not calibrated. "error" is the root mean square of
the relative error of the cost, over solutions fitted on random parts of the rows and over draws; "r2" the share of
the variance of m, or of ln m, that the regression explains; "seconds", of the processor, are those of scoring and
drawing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from common import load_labelled, load_rows, save, show
from tithe import Block
from tithe.constructions import Regressed, Sensitivity, Uniform
from tithe.core.parallel import single_blas_thread
from tithe.core.seeding import rng_for
from tithe.objectives import DictionaryObjective, KMeansObjective, MarginObjective

OBJECTIVES: dict[str, Any] = {
    "kmeans": KMeansObjective(n_clusters=20),
    "margin": MarginObjective(classes=(0, 1)),
    "dictionary": DictionaryObjective(n_components=32, n_nonzero_coefs=3, max_iter=5),
}
WITH_CLASSES = ("covtype", "skin_nonskin", "higgs_subset", "electricity")
N_QUERIES, QUERY_ROWS = 5, 500
TREE = DecisionTreeRegressor(max_depth=8, min_samples_leaf=5)


def constructions() -> dict[str, Any]:
    return {
        "uniform": Uniform(),
        "sensitivity": Sensitivity(),
        "RDSF ols": Regressed(),
        "RDSF ols, |x|": Regressed(norm_feature=True),
        "RDSF ols, ln m, |x|": Regressed(log=True, norm_feature=True),
        "RDSF tree, ln m": Regressed(regressor=TREE, log=True),
    }


def rows_for(folder: Path, name: str, objective: str, n: int) -> Block | None:
    if objective == "margin":
        if name not in WITH_CLASSES:
            return None
        X, y = load_labelled(folder, name)
    else:
        X, y = load_rows(folder, name, "float64"), None
    some = np.random.default_rng(0).permutation(X.shape[0])[:n]
    return Block(X=np.ascontiguousarray(X[some]), y=None if y is None else y[some])


def measure(block: Block, objective: Any, construction: Any, size: int, draws: int, costs: np.ndarray) -> list[Any]:
    totals = costs.sum(axis=1)
    errors, explained = [], ""
    start = process_time()
    ready = construction.prepare(block, objective, rng=rng_for(0, "prepare"))
    pilot = survey = None
    if construction.needs_survey:
        pilot = construction.pilot(block, objective, rng=rng_for(0, "pilot"))
        survey = objective.survey(block, pilot)
    for draw in range(draws):
        rows = ready.reduce(block, objective, size, pilot=pilot, survey=survey, rng=rng_for(draw, "draw"))
        if draw == 0:
            seconds = process_time() - start
            explained = rows.notes.get("r2", "") if rows.notes else ""
        errors.append(costs[:, rows.row_ids()] @ rows.weights() / totals - 1.0)
    return [float(np.sqrt(np.mean(np.square(errors)))), explained, seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["covtype", "kddcup99_10pct", "skin_nonskin"])
    parser.add_argument("--objectives", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    results = []
    for objective_name in arguments.objectives:
        objective = OBJECTIVES[objective_name]
        for name in arguments.sets:
            block = rows_for(arguments.data, name, objective_name, arguments.rows)
            if block is None:
                continue
            rng = np.random.default_rng(1)
            parts = [block.take(np.sort(rng.choice(len(block), QUERY_ROWS, replace=False))) for _ in range(N_QUERIES)]
            with single_blas_thread():
                costs = np.array([objective.cost(block, objective.solve(part, rng=rng)) for part in parts])
                table = [
                    [kind, *measure(block, objective, construction, arguments.size, arguments.draws, costs)]
                    for kind, construction in constructions().items()
                ]
            columns = ["rows drawn by", "error", "r2", "seconds"]
            show(f"{objective_name}, {name}: {len(block):,} rows, {arguments.size} drawn", columns, table)
            results.append({"objective": objective_name, "set": name, "rows": len(block), "table": table})
    save("rdsf", {"size": arguments.size, "draws": arguments.draws, "results": results})


if __name__ == "__main__":
    main()
