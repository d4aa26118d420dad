"""How often fits of the size that `compare` advises lose more than it says.

    python benchmarks/advice.py --data DIR [--sets a9a ...] [--objectives kmeans ...] [--seeds 20] [--rows 20000]

For each set and objective `compare` runs with its defaults, for an excess loss of 1 %, and fresh draws of the method
and size that it recommends are fitted. "above" counts draws whose excess, over the best fit on all rows, is above what
was allowed: 1 % above the worst of the fits on all rows, which for clusters differ among themselves. Questions that are
in benchmarks/results/advice_questions.jsonl are not asked again, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path
from typing import Any

from common import RESULTS, load_labelled, save, show, timed, two_class_sets
from tithe import Block, compare
from tithe.core.seeding import as_seed
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.report.compare import USUAL_CONSTRUCTIONS, Runner, _methods
from tithe.report.compared_rows import compared_rows

OBJECTIVES: dict[str, Any] = {"kmeans": KMeansObjective(n_clusters=10), "logistic": LogisticObjective()}
TOL = 0.01
COLUMNS = ("set", "objective", "rows", "verdict", "method", "size", "share", "tried", "draws", "above", "largest", "s")


def question(folder: Path, name: str, objective_name: str, n_rows: int, n_seeds: int) -> dict[str, Any]:
    """What is advised, and what fresh draws of it lose."""
    X, y = load_labelled(folder, name)
    X, y = X[:: max(1, len(y) // n_rows)], y[:: max(1, len(y) // n_rows)]
    objective = OBJECTIVES[objective_name]
    y = None if objective_name == "kmeans" else y
    result, seconds = timed(lambda: compare(X, y, objective=objective, tol=TOL, random_state=0))
    advice, full = result.recommendation, result.table[0]
    row = {"set": name, "objective": objective_name, "rows": result.n_rows, "verdict": advice.verdict, "s": seconds}
    row |= {"method": advice.method, "size": advice.size, "share": advice.size / result.n_rows, "tried": advice.tried}
    excesses: list[float] = []
    if advice.size < result.n_rows:
        seed = as_seed(0)  # the rows that were held out, and the fits on all rows
        rows = compared_rows(Block(X=X, y=y), objective, holdout=0.1, memory=None, engine="auto", seed=seed)
        runner = Runner(rows, seed)
        method = next(m for m in _methods(objective, USUAL_CONSTRUCTIONS, calibrate=True) if m.name == advice.method)
        full_fits = [runner.full_fit(repeat, result.n_rows) for repeat in range(full["n_repeats"])]
        lowest = min(r["value"] for r in runner.measured(full_fits))
        runs = [run for repeat in range(n_seeds) for run in runner.run(method, advice.size, 1000 + repeat, 0)]
        excesses = [run["value"] / lowest - 1.0 for run in runner.measured(runs)]
    above = sum(excess > TOL + full["excess_high"] for excess in excesses)
    return row | {"draws": len(excesses), "above": above, "largest": max(excesses, default=0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--sets", nargs="+", help="by default all with two classes, and Covertype")
    parser.add_argument("--objectives", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    parser.add_argument("--seeds", type=int, default=20, help="fresh draws")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a set that are used, about")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    path = RESULTS / "advice_questions.jsonl"
    results: list[dict[str, Any]] = [json.loads(line) for line in path.open()] if path.exists() else []
    known = {(r["set"], r["objective"]) for r in results}
    sets = arguments.sets or ["covtype", *two_class_sets(arguments.data)]
    for name, objective in product(sets, arguments.objectives):
        if (name, objective) in known:
            continue
        results.append(question(arguments.data, name, objective, arguments.rows, arguments.seeds))
        print("  ", results[-1], flush=True)
        with path.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
    show("draws of the size that compare advises", COLUMNS, [[r[c] for c in COLUMNS] for r in results])
    tried = [r for r in results if r["tried"]]
    draws, above = (sum(r[name] for r in tried) for name in ("draws", "above"))
    whole = sum(r["draws"] == 0 for r in results)
    print(f"{above} of {draws} draws above what was allowed; all rows in {whole} of {len(results)} questions")
    save("advice", {"seeds": arguments.seeds, "questions": results})


if __name__ == "__main__":
    main()
