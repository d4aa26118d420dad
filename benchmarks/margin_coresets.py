"""Coresets for linear margin distributions: excess loss on all rows, by construction and size.

    python benchmarks/margin_coresets.py --data DIR [--sets covtype ...] [--sizes 1000 4000] [--lam 100] [--seeds 5]

A machine is fitted on the coreset and its loss P, penalty included, taken on all rows: P / smallest P - 1, the
median over the seeds. "plain" are the weights of the draw, "calibrated" those that reproduce exact totals. What the
plain uniform draw loses, over what the others lose, is the gain.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import load_labelled, save, show
from tithe import Block, build_coreset
from tithe.objectives import MarginObjective

WAYS = [
    (construction, calibrate)
    for construction in ("uniform", "leverage", "sensitivity", "influence")
    for calibrate in (False, True)
]


def excesses(X: Any, y: np.ndarray, lam: float, sizes: list[int], seeds: int) -> list[dict[str, Any]]:
    objective = MarginObjective(classes=(0, 1), lam=lam, mu=0.5, theta=0.2)
    rows, rng = Block(X=X, y=y), np.random.default_rng(0)
    least = objective.evaluate(rows, objective.solve(rows, rng=rng)).value
    outcomes = []
    for size in sizes:
        for construction, calibrate in WAYS:
            runs = []
            for seed in range(seeds):
                coreset = build_coreset(
                    X,
                    y,
                    objective=objective,
                    coreset_size=size,
                    construction=construction,
                    calibrate=calibrate,
                    random_state=seed,
                )
                runs.append(objective.evaluate(rows, objective.solve(coreset, rng=rng)).value / least - 1.0)
            outcomes.append({"size": size, "construction": construction, "calibrated": calibrate, "runs": runs})
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["covtype", "higgs_subset", "a9a"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[1000, 4000])
    parser.add_argument("--lam", type=float, default=100.0)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    results = {}
    for name in arguments.sets:
        X, y = load_labelled(arguments.data, name)
        results[name] = excesses(X, y, arguments.lam, arguments.sizes, arguments.seeds)
        first = [r for r in results[name] if (r["construction"], r["calibrated"]) == WAYS[0]]
        plain = {r["size"]: float(np.median(r["runs"])) for r in first}
        show(
            f"{name}, {X.shape[0]:,} x {X.shape[1]}, lam = {arguments.lam:g}",
            ["construction", "rows", "excess loss", "worst", "gain"],
            [
                [
                    r["construction"] + (", calibrated" if r["calibrated"] else ", plain"),
                    r["size"],
                    float(np.median(r["runs"])),
                    max(r["runs"]),
                    plain[r["size"]] / float(np.median(r["runs"])),
                ]
                for r in results[name]
            ],
        )
    save("margin_coresets", {"lam": arguments.lam, "sets": results})


if __name__ == "__main__":
    main()
