"""k-means from a coreset beside scikit-learn, MiniBatchKMeans, faiss and weighted uniform sampling.

    python benchmarks/clustering.py --data DIR

For each data set, in one process: the cost on all rows over the best of three full fits, the time
in passes, and the distortion of every construction over queries drawn independently of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans

from common import load_rows, pass_seconds, save, show, timed
from tithe import Block, CoresetKMeans, build_coreset, distortion
from tithe.objectives import KMeansObjective
from tithe.reduce.distortion import random_queries

CONSTRUCTIONS = ("uniform", "lightweight", "rings", "sensitivity")


def fits(X: np.ndarray, k: int, size: int, seeds: int) -> list[dict[str, Any]]:
    """One row a method: cost ratios and passes over the seeds."""
    objective = KMeansObjective(n_clusters=k)
    block = Block(X=X)

    def cost(centers: np.ndarray) -> float:
        return float(objective.cost(block, np.asarray(centers, np.float64)).sum())

    def coreset(seed: int, **options: Any) -> np.ndarray:
        return CoresetKMeans(k, coreset_size=size, random_state=seed, **options).fit(X).cluster_centers_

    plain_uniform = {"construction": "uniform", "calibrate": False}
    methods: dict[str, tuple[int, Any]] = {
        "full KMeans": (3, lambda s: KMeans(k, n_init=1, random_state=s).fit(X).cluster_centers_),
        "MiniBatchKMeans": (seeds, lambda s: MiniBatchKMeans(k, n_init=1, random_state=s).fit(X).cluster_centers_),
        "weighted uniform": (seeds, lambda s: coreset(s, polish=0, **plain_uniform)),
        "weighted uniform, polished": (seeds, lambda s: coreset(s, **plain_uniform)),
        "coreset, not polished": (seeds, lambda s: coreset(s, polish=0)),
        "coreset": (seeds, lambda s: coreset(s)),
    }
    try:
        import faiss
    except ImportError:
        print("faiss is not installed: left out")
    else:

        def by_faiss(seed: int) -> np.ndarray:
            model = faiss.Kmeans(X.shape[1], k, niter=25, seed=seed + 1)
            model.train(X.astype(np.float32, copy=False))
            return model.centroids

        methods["faiss Kmeans"] = (seeds, by_faiss)
    coreset(0)  # kernels are compiled, or read from their cache, outside the clock
    rows = []
    for name, (n, fit) in methods.items():
        outcomes = []
        for seed in range(n):
            unit = pass_seconds(X)
            centers, seconds = timed(lambda fit=fit, seed=seed: fit(seed))
            outcomes.append((cost(centers), seconds / unit))
        rows.append({"method": name, "costs": [c for c, _ in outcomes], "passes": [p for _, p in outcomes]})
    best = min(rows[0]["costs"])
    for row in rows:
        ratios = np.array(row["costs"]) / best
        row |= {
            "median": float(np.median(ratios)),
            "worst": float(ratios.max()),
            "pass": float(np.median(row["passes"])),
        }
    return rows


def distortions(X: np.ndarray, k: int, size: int, seeds: int) -> list[dict[str, Any]]:
    """Median and largest distortion over random queries; medians over the seeds."""
    block, objective = Block(X=X), KMeansObjective(n_clusters=k)
    queries = {"random": random_queries(block, objective, n_bases=8, seed=99)}
    rows = []
    for construction in CONSTRUCTIONS:
        for calibrate in (False, True):
            outcomes = []
            for seed in range(seeds):
                small = build_coreset(
                    X,
                    objective=objective,
                    construction=construction,
                    coreset_size=size,
                    calibrate=calibrate,
                    random_state=seed,
                )
                outcomes.append(distortion(block, small, objective, queries=queries).summary()["random"])
            middle, most = np.median(outcomes, axis=0)
            name = construction + (", calibrated" if calibrate else "")
            rows.append(
                {"method": name, "median": float(middle), "max": float(most), "worst_seed": float(np.max(outcomes))}
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files with an array X")
    parser.add_argument("--sets", nargs="+", default=["kddcup99_10pct", "covtype", "mnist"])
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    arguments = parser.parse_args()
    k, size, seeds = arguments.clusters, arguments.size, arguments.seeds
    results: dict[str, Any] = {"clusters": k, "size": size, "seeds": seeds, "dtype": arguments.dtype, "sets": {}}
    for name in arguments.sets:
        X = load_rows(arguments.data, name, arguments.dtype)
        fitted = fits(X, k, size, seeds)
        shape = f"{name}: {X.shape[0]:,} x {X.shape[1]} {arguments.dtype}, k = {k}, {size} rows, {seeds} seeds"
        show(
            f"{shape}\ncost on all rows / best of three full fits",
            ["method", "median", "worst seed", "passes"],
            [[r["method"], r["median"], r["worst"], r["pass"]] for r in fitted],
        )
        bent = distortions(X, k, size, seeds)
        show(
            "distortion over queries independent of the coreset (a lower bound on the worst case)",
            ["construction", "median", "max", "max of all seeds"],
            [[r["method"], r["median"], r["max"], r["worst_seed"]] for r in bent],
        )
        results["sets"][name] = {"fits": fitted, "distortions": bent}
    save("clustering", results)


if __name__ == "__main__":
    main()
