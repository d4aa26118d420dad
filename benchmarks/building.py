"""How long building alone takes, in passes, and what memory it needs beyond the input.

python benchmarks/building.py [--rows 5000000] [--features 20]
"""

from __future__ import annotations

import argparse
import tracemalloc
from typing import Any

import numpy as np

from common import pass_seconds, save, show, timed
from tithe import build_coreset
from tithe.objectives import KMeansObjective


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=4.0, size=(arguments.clusters, arguments.features)).astype(np.float32)
    X = rng.standard_normal((arguments.rows, arguments.features), dtype=np.float32)
    X += centers[rng.integers(0, arguments.clusters, arguments.rows)]
    objective = KMeansObjective(n_clusters=arguments.clusters)
    rows: list[dict[str, Any]] = []
    for construction in ("uniform", "lightweight", "sensitivity", "rings"):
        for calibrate in (False, True):

            def build(seed: int, construction: str = construction, calibrate: bool = calibrate) -> None:
                build_coreset(
                    X,
                    objective=objective,
                    construction=construction,
                    coreset_size=arguments.size,
                    calibrate=calibrate,
                    random_state=seed,
                )

            build(0)
            passes = []
            for seed in range(arguments.repeats):
                unit = pass_seconds(X, 7)
                passes.append(timed(lambda seed=seed: build(seed))[1] / unit)
            tracemalloc.start()
            build(0)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            rows.append(
                {
                    "construction": construction + (", calibrated" if calibrate else ""),
                    "passes": float(np.median(passes)),
                    "fastest": float(min(passes)),
                    "n_vectors": peak / (8 * arguments.rows),
                }
            )
    show(
        f"building {arguments.size} of {arguments.rows:,} x {arguments.features} float32, k = {arguments.clusters}",
        ["construction", "passes (median)", "passes (fastest)", "memory, float64 n-vectors"],
        [[r["construction"], r["passes"], r["fastest"], r["n_vectors"]] for r in rows],
    )
    save("building", {"rows": arguments.rows, "features": arguments.features, "constructions": rows})


if __name__ == "__main__":
    main()
