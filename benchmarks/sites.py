"""Coresets of sites that share no rows, merged, beside one build of all rows and weighted uniform sampling.

    python benchmarks/sites.py --data DIR

k-means. Rows are divided among 1 and 10 sites: evenly at random, or unevenly (each site has 1.5 times the rows of
the next) and by cluster, so that every site has clusters that others lack. Each method ends with the same number of
rows. The cost of a fit on them is that on all rows, over the least cost of all fits on that set. Distortion is over
random queries that were drawn beforehand. Rows and bytes sent are those of the Parquet files that leave the sites, and
of pilots that are sent to them; beside them all rows, as a Parquet file of each site.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import load_rows, save, show
from tithe import Block, Coreset, build_coreset, distortion, merge_coresets, save_coreset
from tithe.objectives import KMeansObjective
from tithe.reduce.distortion import random_queries
from tithe.theory import site_sizes

Sites = list[np.ndarray]
Sent = tuple[int, int]  # rows and bytes
COLUMNS = ("sites", "method", "cost", "worst", "distortion", "rows", "rows_sent", "bytes_sent")


def file_bytes(write: Callable[[Path], object]) -> int:
    """The length of a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sent.parquet"
        write(path)
        return path.stat().st_size


def sent_by(coresets: list[Coreset], pilot: np.ndarray | None) -> Sent:
    """What leaves the sites, and the pilot that goes to each of them but the first."""
    files = sum(file_bytes(lambda path, coreset=coreset: save_coreset(coreset, path)) for coreset in coresets)
    return sum(map(len, coresets)), files + (0 if pilot is None else (len(coresets) - 1) * pilot.nbytes)


def all_rows_sent(sites: Sites) -> Sent:
    tables = [pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])}) for X in sites]
    files = (file_bytes(lambda path, table=table: pq.write_table(table, path, compression="zstd")) for table in tables)
    return sum(map(len, sites)), sum(files)


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


def methods(
    sites: Sites, objective: KMeansObjective, size: int, seed: int
) -> dict[str, Callable[[], tuple[Coreset, Sent]]]:
    """Ways to a coreset of ``size`` rows of all sites, and what was sent for it."""

    def built(sizes: list[int], pilot: np.ndarray | None = None) -> list[Coreset]:
        return [
            build_coreset(X, objective=objective, coreset_size=m, random_state=1000 * seed + i, pilot=pilot)
            for i, (X, m) in enumerate(zip(sites, sizes, strict=True))
        ]

    n_sites = len(sites)
    equal = [size // n_sites] * n_sites
    small = built(equal)

    def union(sizes: list[int], pilot: np.ndarray | None = None) -> tuple[Coreset, Sent]:
        coresets = built(sizes, pilot)
        return merge_coresets(coresets, random_state=seed), sent_by(coresets, pilot)

    def merged(pilot: np.ndarray | None) -> tuple[Coreset, Sent]:
        coresets = built([size] * n_sites, pilot)
        return merge_coresets(coresets, coreset_size=size, random_state=seed), sent_by(coresets, pilot)

    return {
        "union, equal sizes": lambda: union(equal),
        "union, equal sizes, pilot of the first site": lambda: union(equal, small[0].pilot),
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

    def measured(coreset: Coreset, sent: Sent) -> tuple[float, float, int, int, int]:
        centers = objective.solve(coreset, rng=np.random.default_rng(0))
        errors = distortion(block, coreset, objective, queries=queries).summary()["random"]
        return float(objective.cost(block, centers).sum()), float(errors[0]), len(coreset), *sent

    options = {"objective": objective, "coreset_size": size}
    measurements: dict[tuple[str, str], list[tuple[float, float, int, int, int]]] = {}
    for seed in range(seeds):
        uniform = build_coreset(X, construction="uniform", calibrate=False, random_state=seed, **options)
        everything = all_rows_sent([X])
        measurements.setdefault(("1", "weighted uniform"), []).append(measured(uniform, everything))
        whole = build_coreset(X, random_state=seed, **options)
        measurements.setdefault(("1", "one build"), []).append(measured(whole, everything))
        for n_sites in numbers:
            for kind in ("even", "uneven"):
                sites = divided(X, n_sites, kind, np.random.default_rng(seed))
                for name, method in methods(sites, objective, size, seed).items():
                    measurements.setdefault((f"{n_sites} {kind}", name), []).append(measured(*method()))
    best = min(cost for results in measurements.values() for cost, *_ in results)
    rows = []
    for (division, method), results in measurements.items():
        costs, distortions, n_kept, n_sent, n_bytes = (np.array(column) for column in zip(*results, strict=True))
        rows.append(
            {
                "sites": division,
                "method": method,
                "cost": float(np.median(costs) / best),
                "worst": float(costs.max() / best),
                "distortion": float(np.median(distortions)),
                "rows": float(np.median(n_kept)),
                "rows_sent": float(np.median(n_sent)),
                "bytes_sent": float(np.median(n_bytes)),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files with an array X")
    parser.add_argument("--sets", nargs="+", default=["kddcup99_10pct", "covtype"])
    parser.add_argument("--rows", type=int, default=100_000, help="use at most this number of rows of a set")
    parser.add_argument("--sites", type=int, nargs="+", default=[10])
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
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
            ["sites", "method", "cost", "worst seed", "distortion", "rows kept", "rows sent", "bytes sent"],
            [[r[key] for key in COLUMNS] for r in rows],
        )
        results["sets"][name] = rows
    save("sites", results)


if __name__ == "__main__":
    main()
