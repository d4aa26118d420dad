"""The numbers of a report: full data, weighted uniform and coreset, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from tithe.core.data import Array
from tithe.learners.cluster import CoresetKMeans
from tithe.objectives.clustering import KMeansObjective
from tithe.reduce.distortion import distortion, random_queries
from tithe.sources.arrays import as_block


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the comparison: medians over the seeds.

    ``cost_ratio`` is the cost on all rows over the best of the full fits; ``passes`` is the time
    taken in units of one ``X @ v``; ``says`` is how far off the small set's own idea of its cost is.
    """

    name: str
    rows: int
    cost_ratio: float
    worst_ratio: float
    passes: float
    coreset_error: float
    distortion: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a run measured."""

    title: str
    n_rows: int
    n_features: int
    n_clusters: int
    seeds: int
    pass_ms: float
    certificate: str
    methods: list[Method]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


# to learn from few rows: names, and options of any learner on a coreset
WAYS: dict[str, dict[str, Any]] = {
    "weighted uniform": {"construction": "uniform", "calibrate": False, "polish": 0},
    "coreset, not polished": {"polish": 0},
    "coreset": {},
}


def pass_time(X: Any, repeats: int = 51) -> float:
    """Seconds of one ``X @ v`` on this array in this process: the unit of speed, the median of some."""
    v = np.ones(X.shape[1], X.dtype)
    X @ v
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        X @ v
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare_clusterings(
    X: Array,
    *,
    title: str,
    n_clusters: int,
    coreset_size: int,
    seeds: int = 3,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Comparison, CoresetKMeans]:
    """Full k-means, weighted uniform sampling and a coreset in one run, and the coreset model of the median seed."""
    unit = pass_time(X)
    block, objective = as_block(X), KMeansObjective(n_clusters=n_clusters)
    queries = {"random": random_queries(block, objective, n_bases=3, seed=99)}
    full: list[tuple[float, float]] = []
    for seed in range(seeds):
        progress("full")
        start = time.perf_counter()
        centers = KMeans(n_clusters, n_init=1, random_state=seed).fit(X).cluster_centers_
        seconds = time.perf_counter() - start
        full.append((float(objective.cost(block, centers).sum()), seconds / unit))
    best = min(cost for cost, _ in full)
    costs = [cost / best for cost, _ in full]
    methods = [
        Method(
            name="full data (scikit-learn KMeans)",
            rows=len(X),
            cost_ratio=float(np.median(costs)),
            worst_ratio=max(costs),
            passes=float(np.median([p for _, p in full])),
            coreset_error=0.0,
            distortion=0.0,
        )
    ]
    models: list[CoresetKMeans] = []
    for name, options in WAYS.items():
        models = []
        passes = []
        for seed in range(seeds):
            progress(name)
            start = time.perf_counter()
            models.append(CoresetKMeans(n_clusters, coreset_size=coreset_size, random_state=seed, **options).fit(X))
            passes.append((time.perf_counter() - start) / unit)
        ratios = [m.inertia_ / best for m in models]
        worst = [distortion(block, m.coreset_, objective, queries=queries).worst for m in models]
        methods.append(
            Method(
                name=name,
                rows=int(np.median([len(m.coreset_) for m in models])),
                cost_ratio=float(np.median(ratios)),
                worst_ratio=max(ratios),
                passes=float(np.median(passes)),
                coreset_error=float(np.median([m.certificate_.coreset_error for m in models if m.certificate_])),
                distortion=float(np.median(worst)),
            )
        )
    chosen = sorted(models, key=lambda m: m.inertia_)[len(models) // 2]
    comparison = Comparison(
        title=title,
        n_rows=len(X),
        n_features=X.shape[1],
        n_clusters=n_clusters,
        seeds=seeds,
        pass_ms=unit * 1e3,
        certificate=str(chosen.certificate_),
        methods=methods,
    )
    return comparison, chosen
