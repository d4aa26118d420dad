"""The posterior of logistic regression on coresets, beside that of all rows.

    python benchmarks/posterior.py --data DIR

Coefficients have a normal prior of variance 1, and columns are standardised. The posterior of all rows is sampled by
Hamiltonian Monte Carlo, and so is that of each reduced set of rows with its weights. "off" is how far its mean is from
that of all rows, in standard deviations of these (root mean square over coefficients, and the largest); "deviation" is
its standard deviation over that of all rows (median, and the most unlike one). Medians of seeds. Two runs of the
sampler on all rows say what its own noise is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from common import load_labelled, save, show
from tithe import Block, build_coreset
from tithe.linear.posterior import Posterior, sample_posterior
from tithe.objectives import LogisticObjective

OBJECTIVE = LogisticObjective(C=1.0, classes=(0, 1))
WAYS: dict[str, dict[str, Any]] = {
    "weighted uniform": {"construction": "uniform", "calibrate": False},
    "CABLR": {"construction": "cablr", "calibrate": False},
    "influence, calibrated (the default)": {},
}
COLUMNS = ("method", "off", "largest", "deviation", "most_unlike", "seconds")


def unlike(found: Posterior, full: Posterior) -> dict[str, float]:
    away = (found.mean - full.mean) / full.deviation
    ratio = found.deviation / full.deviation
    return {
        "off": float(np.sqrt(np.mean(away**2))),
        "largest": float(np.abs(away).max()),
        "deviation": float(np.median(ratio)),
        "most_unlike": float(np.exp(np.abs(np.log(ratio)).max())),
    }


def compared(block: Block, size: int, n_samples: int, seeds: int) -> list[dict[str, Any]]:
    start = process_time()
    full = sample_posterior(OBJECTIVE, block, n_samples, np.random.default_rng(0))
    seconds = process_time() - start
    again = sample_posterior(OBJECTIVE, block, n_samples, np.random.default_rng(1))
    rows = [{"method": "all rows, again", **unlike(again, full), "seconds": seconds}]
    for name, options in WAYS.items():
        found = []
        for seed in range(seeds):
            start = process_time()
            coreset = build_coreset(
                block.X, block.y, objective=OBJECTIVE, coreset_size=size, random_state=seed, **options
            )
            drawn = sample_posterior(OBJECTIVE, coreset, n_samples, np.random.default_rng(seed))
            found.append({**unlike(drawn, full), "seconds": process_time() - start})
        rows.append({"method": name, **{key: float(np.median([one[key] for one in found])) for key in found[0]}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--sets", nargs="+", default=["covtype", "ijcnn1", "higgs_subset"])
    parser.add_argument("--rows", type=int, default=50_000, help="rows of a set at the most")
    parser.add_argument("--size", type=int, default=2000, help="rows of a coreset")
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"size": arguments.size, "samples": arguments.samples, "sets": {}}
    for name in arguments.sets:
        X, y = load_labelled(arguments.data, name)
        chosen = np.random.default_rng(0).permutation(len(y))[: arguments.rows]
        rows = compared(Block(X=X[chosen], y=y[chosen]), arguments.size, arguments.samples, arguments.seeds)
        show(
            f"{name}: {len(chosen):,} x {X.shape[1]}, {arguments.size} rows kept, {arguments.samples} samples",
            ["method", "off, rms", "largest", "deviation", "most unlike", "seconds of CPU"],
            [[row[key] for key in COLUMNS] for row in rows],
        )
        results["sets"][name] = {"rows": len(chosen), "methods": rows}
    save("posterior", results)


if __name__ == "__main__":
    main()
