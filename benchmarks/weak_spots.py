"""Where coresets were weak: streams that change, heavy tails, and few rows for many clusters.

    python benchmarks/weak_spots.py --data DIR [--cases NAME ...] [--beside EARLIER.json]

Each case has generated sets and, with --data, open ones. Weighted uniform sampling of the same size is always there.

- ``logistic streams``: rows that drift, or with a class that comes late; open sets in the order of their files. The
  excess of the loss on all rows of a fit on the coreset of the stream, beside one of all rows at once.
- ``k-means streams``: the last cluster comes late; open sets in the order of their files. The cost on all rows of a fit
  on the coreset above that of a fit on all rows, and the largest distortion of random queries.
- ``heavy tails``: Pareto, log-normal and t-distributed columns. Distortion of random queries.
- ``few rows``: 20 coresets of 100 rows for k = 20, and their union. The weight that they keep, and the distortion.

With --beside, the results of an earlier version (a file that this program wrote) are shown in a column of their own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import load_labelled, load_rows, save, show
from tithe import Block, Coreset, CoresetStream, build_coreset, merge_coresets
from tithe.core.contracts import Objective
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.reduce.distortion import random_queries, ratio_error, total_costs

Numbers = dict[str, list[float]]  # by the name of what was measured, one number for each seed
MAX_ROWS = 300_000
SMALL_LEAF = 8192  # rows of a leaf for sets that would fit into a few leaves of the default size


def thinned(X: np.ndarray, n_rows: int = MAX_ROWS) -> slice:
    """Every so many rows, so that at most ``n_rows`` are left, in their order."""
    return slice(None, None, -(-len(X) // n_rows))


def streamed(objective: Objective, X: np.ndarray, y: np.ndarray | None, size: int, seed: int) -> Coreset:
    """The coreset of a stream of the rows, in their order."""
    leaf_size = None if len(X) >= 200_000 else SMALL_LEAF
    stream = CoresetStream(objective, coreset_size=size, leaf_size=leaf_size, random_state=seed)
    for start in range(0, len(X), 10_000):
        at = slice(start, start + 10_000)
        stream = stream.push(X[at], None if y is None else y[at])
    return stream.coreset()


# -- logistic streams ----------------------------------------------------------------------------------------------


def drifting(n: int = 300_000, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """The column means and the line move along the stream."""
    rng = np.random.default_rng(1)
    time = np.linspace(0.0, 1.0, n)[:, None]
    X = rng.normal(size=(n, d)) + 2.0 * time * rng.normal(size=d)
    lines = (1.0 - time) * rng.normal(size=d) + time * rng.normal(size=d)
    chance = 1.0 / (1.0 + np.exp(-(X * lines).sum(axis=1)))
    return X, (rng.random(n) < chance).astype(np.int32)


def late_class(n: int = 300_000, d: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, the last one only among the last fifth of the rows."""
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=n)
    y[4 * n // 5 :] = rng.integers(3, size=n - 4 * n // 5)
    return rng.normal(size=(3, d))[y] * 0.7 + rng.normal(size=(n, d)), y.astype(np.int32)


def logistic_sets(data: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    yield "drift", *drifting()
    yield "late class", *late_class()
    for name in [] if data is None else ["electricity", "covtype", "skin_nonskin"]:
        X, y = load_labelled(data, name)
        at = thinned(X)
        yield name, np.ascontiguousarray(X[at]), y[at]


def logistic_streams(data: Path | None, seeds: int) -> dict[str, Numbers]:
    results: dict[str, Numbers] = {}
    for name, X, y in logistic_sets(data):
        objective = LogisticObjective(classes=tuple(np.unique(y).tolist()))
        block, size = Block(X=X, y=y), 2000

        def loss(rows: Block, block: Block = block, objective: LogisticObjective = objective) -> float:
            params = objective.solve(rows, rng=np.random.default_rng(0))
            return float(objective.evaluate(block, params).value)

        least = loss(block)
        options: dict[str, Any] = {"objective": objective, "coreset_size": size}
        numbers = results.setdefault(f"logistic streams: {name}", {})
        for seed in range(seeds):
            ways = {
                "uniform": build_coreset(X, y, construction="uniform", calibrate=False, random_state=seed, **options),
                "all rows at once": build_coreset(X, y, random_state=seed, **options),
                "stream": streamed(objective, X, y, size, seed),
            }
            for way, coreset in ways.items():
                numbers.setdefault(f"{way}, excess", []).append(loss(coreset) / least - 1.0)
    return results


# -- clusters ------------------------------------------------------------------------------------------------------


class Clusters:
    """Rows, queries that were drawn beforehand, and their costs on all rows."""

    def __init__(self, X: np.ndarray, k: int) -> None:
        self.block, self.objective = Block(X=X), KMeansObjective(n_clusters=k)
        self.queries = random_queries(self.block, self.objective, n_bases=6, seed=99)
        self.costs = total_costs(self.block, self.objective, self.queries)
        self.cost_of_all = self._cost(KMeansObjective(n_clusters=k, n_init=2), self.block)

    def _cost(self, objective: KMeansObjective, rows: Block) -> float:
        """The cost on all rows of a fit on some of them."""
        return float(objective.cost(self.block, objective.solve(rows, rng=np.random.default_rng(0))).sum())

    def distortions(self, coreset: Coreset) -> tuple[float, float]:
        """The median and the largest of all queries."""
        small = total_costs(coreset, self.objective, self.queries)
        errors = [ratio_error(a, b) for a, b in zip(small, self.costs, strict=True)]
        return float(np.median(errors)), max(errors)

    def excess(self, coreset: Coreset) -> float:
        """The cost of a fit on the coreset above that of a fit on all rows, as a share of it; often below zero."""
        return self._cost(self.objective, coreset) / self.cost_of_all - 1.0

    def built(self, size: int, seed: int, **options: Any) -> Coreset:
        return build_coreset(self.block.X, objective=self.objective, coreset_size=size, random_state=seed, **options)


def late_cluster(n: int = 300_000, k: int = 10, d: int = 10) -> np.ndarray:
    """The last cluster, a far one, has the last hundredth of the rows."""
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(k, d)) * 3.0
    centers[-1] += 12.0
    label = rng.integers(k - 1, size=n)
    label[-n // 100 :] = k - 1
    return centers[label] + rng.normal(size=(n, d))


def kmeans_streams(data: Path | None, seeds: int) -> dict[str, Numbers]:
    sets = {"late cluster": late_cluster()}
    for name in [] if data is None else ["kddcup99_10pct", "covtype", "shuttle"]:
        X = load_rows(data, name, "float64")
        sets[name] = np.ascontiguousarray(X[thinned(X, 100_000)])
    results: dict[str, Numbers] = {}
    for name, X in sets.items():
        clusters, size = Clusters(X, 10), 1000
        numbers = results.setdefault(f"k-means streams: {name}", {})
        for seed in range(seeds):
            ways = {
                "uniform": clusters.built(size, seed, construction="uniform", calibrate=False),
                "all rows at once": clusters.built(size, seed),
                "stream": streamed(clusters.objective, X, None, size, seed),
            }
            for way, coreset in ways.items():
                numbers.setdefault(f"{way}, excess of a fit", []).append(clusters.excess(coreset))
                numbers.setdefault(f"{way}, largest distortion", []).append(clusters.distortions(coreset)[1])
    return results


def heavy_tails(data: Path | None, seeds: int) -> dict[str, Numbers]:
    rng = np.random.default_rng(4)
    n = 50_000
    sets = {
        "Pareto 1.5": rng.pareto(1.5, size=(n, 5)),
        "Pareto 2.5": rng.pareto(2.5, size=(n, 5)),
        "log-normal 1": np.exp(rng.normal(size=(n, 8))),
        "log-normal 2": np.exp(2.0 * rng.normal(size=(n, 5))),
        "t, 2 degrees": rng.standard_t(2.0, size=(n, 5)),
    }
    names = ["kddcup99_10pct", "covtype", "shuttle", "spambase", "eeg_eye_state", "kdd_http", "letter"]
    for name in [] if data is None else names:
        X = load_rows(data, name, "float64")
        sets[name] = np.ascontiguousarray(X[thinned(X, n)])
    results: dict[str, Numbers] = {}
    for name, X in sets.items():
        clusters = Clusters(X, 20)
        numbers = results.setdefault(f"heavy tails: {name}", {})
        for seed in range(seeds):
            ways: dict[str, dict[str, Any]] = {
                "uniform": {"construction": "uniform", "calibrate": False},
                "default": {},
                "rings": {"construction": "rings"},
            }
            for way, options in ways.items():
                coreset = clusters.built(2000, seed, **options)
                median, largest = clusters.distortions(coreset)
                numbers.setdefault(f"{way}, median distortion", []).append(median)
                numbers.setdefault(f"{way}, largest distortion", []).append(largest)
                if way != "uniform":
                    numbers.setdefault(f"{way}, excess of a fit", []).append(clusters.excess(coreset))
    return results


def few_rows(data: Path | None, seeds: int) -> dict[str, Numbers]:
    rng = np.random.default_rng(5)
    k, n_sites = 20, 20
    sets = {"round clusters": (rng.normal(size=(k, 10)) * 4.0)[rng.integers(k, size=60_000)]}
    sets["round clusters"] = sets["round clusters"] + rng.normal(size=(60_000, 10))
    for name in [] if data is None else ["kddcup99_10pct", "covtype", "letter"]:
        X = load_rows(data, name, "float64")
        sets[name] = np.ascontiguousarray(X[thinned(X, 60_000)])
    results: dict[str, Numbers] = {}
    for name, X in sets.items():
        clusters = Clusters(X, k)
        sites = [X[rows] for rows in np.array_split(rng.permutation(len(X)), n_sites)]
        numbers = results.setdefault(f"few rows: {name}", {})
        ways: dict[str, dict[str, Any]] = {
            "uniform": {"construction": "uniform", "calibrate": False},
            "uncalibrated": {"calibrate": False},
            "default": {},
        }
        for seed in range(seeds):
            for way, options in ways.items():
                parts = [
                    build_coreset(
                        site, objective=clusters.objective, coreset_size=100, random_state=100 * seed + i, **options
                    )
                    for i, site in enumerate(sites)
                ]
                kept = min(part.weights().sum() / part.weight_seen for part in parts)
                union = merge_coresets(parts, random_state=seed)
                numbers.setdefault(f"{way}, least weight kept", []).append(float(kept))
                numbers.setdefault(f"{way}, median distortion of the union", []).append(clusters.distortions(union)[0])
                one = clusters.distortions(clusters.built(100, seed, **options))[0]
                numbers.setdefault(f"{way}, median distortion of one of 100 rows", []).append(one)
    return results


CASES: dict[str, Callable[[Path | None, int], dict[str, Numbers]]] = {
    "few-rows": few_rows,
    "heavy-tails": heavy_tails,
    "logistic-streams": logistic_streams,
    "kmeans-streams": kmeans_streams,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of .npz files with an array X")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="results of an earlier version, to be shown beside")
    parser.add_argument("--name", default="weak_spots", help="name of the file of results")
    arguments = parser.parse_args()
    earlier = {} if arguments.beside is None else json.loads(arguments.beside.read_text())["cases"]
    results: dict[str, Numbers] = {}
    for case in arguments.cases:
        for name, numbers in CASES[case](arguments.data, arguments.seeds).items():
            rows = []
            for what, values in numbers.items():
                before = earlier.get(name, {}).get(what)
                rows.append([what, "" if before is None else float(np.median(before)), float(np.median(values))])
            show(f"{name}, medians of {arguments.seeds} seeds", ["", "before", "now"], rows)
            results[name] = numbers
    save(arguments.name, {"seeds": arguments.seeds, "cases": results})


if __name__ == "__main__":
    main()
