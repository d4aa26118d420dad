"""The numbers of a report: full data, weighted uniform and coreset, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from tithe.core.data import Array, Block
from tithe.learners.cluster import CoresetKMeans
from tithe.objectives.clustering import KMeansObjective
from tithe.reduce.distortion import distortion, random_queries
from tithe.sources.arrays import as_block


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the comparison: medians over the seeds.

    ``cost_ratio`` is the cost on all rows over the best of the full fits; ``passes`` is the time
    taken in units of one ``X @ v``; ``coreset_error`` is how far off the cost on the coreset is.
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
    """The results of a run."""

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


# ways to learn from few rows: names, and options of a learner on a coreset
WAYS: dict[str, dict[str, Any]] = {
    "weighted uniform": {"construction": "uniform", "calibrate": False, "polish": 0},
    "coreset, not polished": {"polish": 0},
    "coreset": {},
}


def pass_time(X: Any, repeats: int = 51) -> float:
    """Seconds of one ``X @ v`` on this array in this process: the unit of speed, a median."""
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
    full_method, best_cost = _full_fits(X, block, objective, unit, seeds, progress)
    methods = [full_method]
    models: list[CoresetKMeans] = []
    for name, options in WAYS.items():
        models, passes = [], []
        for seed in range(seeds):
            progress(name)
            start = time.perf_counter()
            models.append(CoresetKMeans(n_clusters, coreset_size=coreset_size, random_state=seed, **options).fit(X))
            passes.append((time.perf_counter() - start) / unit)
        worst = [distortion(block, model.coreset_, objective, queries=queries).worst for model in models]
        methods.append(_method(name, models, best_cost, passes, worst))
    chosen = sorted(models, key=lambda model: model.inertia_)[len(models) // 2]
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


def _full_fits(
    X: Array, block: Block, objective: KMeansObjective, unit: float, seeds: int, progress: Callable[[str], None]
) -> tuple[Method, float]:
    """scikit-learn's k-means on all rows, and the lowest cost over the seeds."""
    costs, passes = [], []
    for seed in range(seeds):
        progress("full")
        start = time.perf_counter()
        centers = KMeans(objective.n_clusters, n_init=1, random_state=seed).fit(X).cluster_centers_
        passes.append((time.perf_counter() - start) / unit)
        costs.append(float(objective.cost(block, centers).sum()))
    best_cost = min(costs)
    ratios = [cost / best_cost for cost in costs]
    method = Method(
        name="full data (scikit-learn KMeans)",
        rows=len(X),
        cost_ratio=float(np.median(ratios)),
        worst_ratio=max(ratios),
        passes=float(np.median(passes)),
        coreset_error=0.0,
        distortion=0.0,
    )
    return method, best_cost


def _method(
    name: str, models: list[CoresetKMeans], best_cost: float, passes: list[float], distortions: list[float]
) -> Method:
    """The row of the comparison for models fitted with several seeds."""
    ratios = [model.inertia_ / best_cost for model in models]
    return Method(
        name=name,
        rows=int(np.median([len(model.coreset_) for model in models])),
        cost_ratio=float(np.median(ratios)),
        worst_ratio=max(ratios),
        passes=float(np.median(passes)),
        coreset_error=float(np.median([m.certificate_.coreset_error for m in models if m.certificate_])),
        distortion=float(np.median(distortions)),
    )
