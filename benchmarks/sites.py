"""Coresets of sites that share no rows, merged, beside one build of all rows and weighted uniform sampling.

    python benchmarks/sites.py --data DIR

k-means. Rows are divided among 1, 5 and 20 sites: evenly at random, or unevenly (each site has 1.5 times the rows of
the next) and by cluster, so that every site has clusters that others lack. Each method ends with the same number of
rows. The cost of a fit on them is that on all rows, over the least cost of all fits on that set. Distortion is over
random queries that were drawn beforehand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common import load_rows, save, show
from tithe import Block, Coreset, build_coreset, distortion, merge_coresets
from tithe.objectives import KMeansObjective
from tithe.reduce.distortion import random_queries
from tithe.reduce.merge import site_sizes

Sites = list[np.ndarray]


def divided(X: np.ndarray, n_sites: int, kind: str, rng: np.random.Generator) -> Sites:
    """The rows of each site."""
    if kind == "even":
        return [X[rows] for rows in np.array_split(rng.permutation(len(X)), n_sites)]
    sample = Block(X=X[np.sort(rng.choice(len(X), min(len(X), 20_000), replace=False))])
    objective = KMeansObjective(n_clusters=2 * n_sites)
    labels = objective.assign(Block(X=X), objective.solve(sample, rng=rng))
    order = np.argsort(rng.permutation(2 * n_sites)[labels], kind="stable")
    shares = 1.5 ** -np.arange(n_sites)
    edges = np.cumsum(shares / shares.sum() * len(X)).astype(int)[:-1]
    return [X[rows] for rows in np.split(order, edges)]


def by_sensitivity(small: list[Coreset], total: int) -> list[int]:
    """Sizes in proportion to the sum of the bounds of `KMeansObjective` over a site, with the cost of all sites."""
    objective = small[0].objective
    totals = [c.objective.survey(c, c.objective.pilot(c, rng=np.random.default_rng(0))).totals for c in small]
    totals = [known if c.totals is None else c.totals for c, known in zip(small, totals, strict=True)]
    cost = np.array([t[:, 1].sum() for t in totals])
    slope, of_clusters, base = objective.ratio
    alpha = 8.0 * (np.log(objective.n_clusters) + 2.0)
    share = (slope + of_clusters) * alpha * cost / cost.sum() + base * np.array([len(t) for t in totals])
    return np.maximum(1, np.floor(share / share.sum() * total)).astype(int).tolist()


def methods(sites: Sites, objective: KMeansObjective, size: int, seed: int) -> dict[str, Callable[[], Coreset]]:
    """Ways to a coreset of ``size`` rows of all sites."""

    def built(sizes: list[int], **options: Any) -> list[Coreset]:
        return [
            build_coreset(X, objective=objective, coreset_size=m, random_state=1000 * seed + i, **options)
            for i, (X, m) in enumerate(zip(sites, sizes, strict=True))
        ]

    n_sites = len(sites)
    equal = [size // n_sites] * n_sites
    small = built(equal)

    def union(sizes: list[int]) -> Coreset:
        return merge_coresets(built(sizes), random_state=seed)

    def merged(pilot: np.ndarray | None) -> Coreset:
        return merge_coresets(built([size] * n_sites, pilot=pilot), coreset_size=size, random_state=seed)

    return {
        "union, equal sizes": lambda: merge_coresets(small, random_state=seed),
        "union, equal sizes, pilot of the first site": lambda: merge_coresets(
            built(equal, pilot=small[0].pilot), random_state=seed
        ),
        "union, sizes by rows": lambda: union(site_sizes(small, size, by="weight")),
        "union, sizes by cost": lambda: union(site_sizes(small, size, random_state=0)),
        "union, sizes by sensitivity": lambda: union(by_sensitivity(small, size)),
        "merged to size": lambda: merged(None),
        "merged to size, pilot of the first site": lambda: merged(small[0].pilot),
        "merged to size, pilot of all": lambda: merged(merge_coresets(small, random_state=seed).pilot),
    }


def compared(X: np.ndarray, k: int, size: int, seeds: int, numbers: list[int]) -> list[dict[str, Any]]:
    """One row for each division and method."""
    objective, block = KMeansObjective(n_clusters=k), Block(X=X)
    queries = {"random": random_queries(block, objective, n_bases=4, seed=99)}

    def measured(coreset: Coreset) -> tuple[float, float, int]:
        centers = objective.solve(coreset, rng=np.random.default_rng(0))
        errors = distortion(block, coreset, objective, queries=queries).summary()["random"]
        return float(objective.cost(block, centers).sum()), float(errors[0]), len(coreset)

    options = {"objective": objective, "coreset_size": size}
    measurements: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for seed in range(seeds):
        uniform = build_coreset(X, construction="uniform", calibrate=False, random_state=seed, **options)
        measurements.setdefault(("1", "weighted uniform"), []).append(measured(uniform))
        measurements.setdefault(("1", "one build"), []).append(measured(build_coreset(X, random_state=seed, **options)))
        for n_sites in numbers:
            for kind in ("even", "uneven"):
                sites = divided(X, n_sites, kind, np.random.default_rng(seed))
                for name, method in methods(sites, objective, size, seed).items():
                    measurements.setdefault((f"{n_sites} {kind}", name), []).append(measured(method()))
    best = min(cost for results in measurements.values() for cost, _, _ in results)
    rows = []
    for (division, method), results in measurements.items():
        costs, distortions, n_kept = (np.array(column) for column in zip(*results, strict=True))
        rows.append(
            {
                "sites": division,
                "method": method,
                "cost": float(np.median(costs) / best),
                "worst": float(costs.max() / best),
                "distortion": float(np.median(distortions)),
                "rows": float(np.median(n_kept)),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files with an array X")
    parser.add_argument("--sets", nargs="+", default=["kddcup99_10pct", "covtype", "letter"])
    parser.add_argument("--rows", type=int, default=100_000, help="use at most this number of rows of a set")
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    k, size, seeds = arguments.clusters, arguments.size, arguments.seeds
    results: dict[str, Any] = {"clusters": k, "size": size, "seeds": seeds, "sets": {}}
    for name in arguments.sets:
        X = load_rows(arguments.data, name, "float64")
        if len(X) > arguments.rows:
            X = X[np.sort(np.random.default_rng(0).choice(len(X), arguments.rows, replace=False))]
        rows = compared(X, k, size, seeds, arguments.sites)
        show(
            f"{name}: {X.shape[0]:,} x {X.shape[1]}, k = {k}, {size} rows, {seeds} seeds\n"
            "cost on all rows of a fit / least cost; distortion over random queries; medians",
            ["sites", "method", "cost", "worst seed", "distortion", "rows kept"],
            [[r["sites"], r["method"], r["cost"], r["worst"], r["distortion"], r["rows"]] for r in rows],
        )
        results["sets"][name] = rows
    save("sites", results)


if __name__ == "__main__":
    main()
