"""The numbers of a report on classifiers: full data, weighted uniform and coreset, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from tithe.core.data import Array
from tithe.learners.logistic import CoresetLogisticRegression
from tithe.objectives.logistic import LogisticObjective
from tithe.report.compare_clustering import WAYS, pass_time
from tithe.sources.arrays import as_block


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """One row of the comparison: medians over the seeds.

    ``excess`` is the loss on all rows above the smallest possible, as a share of it; ``passes`` is the
    time taken in units of one ``X @ v``.
    """

    name: str
    rows: int
    excess: float
    worst: float
    passes: float


@dataclass(frozen=True, kw_only=True)
class Classification:
    """The results of a run."""

    title: str
    n_rows: int
    n_features: int
    seeds: int
    pass_ms: float
    certificate: str
    methods: list[Classifier]


def compare_classifiers(
    X: Array,
    y: Array,
    *,
    title: str,
    coreset_size: int,
    seeds: int = 3,
    progress: Callable[[str], None] = lambda step: None,
) -> Classification:
    """Full logistic regression, weighted uniform sampling and a coreset in one run."""
    unit = pass_time(X)
    block = as_block(X, y)
    objective = LogisticObjective().for_rows(block)
    lowest = objective.evaluate(block, objective.solve(block, rng=np.random.default_rng(0))).value

    def excess(model: Any) -> float:
        params = np.column_stack([model.coef_, model.intercept_]).astype(np.float64)
        return objective.evaluate(block, params).value / lowest - 1.0

    def timed(model: Any) -> tuple[float, float]:
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        return excess(model), seconds / unit

    progress("full")
    full_excess, passes = timed(LogisticRegression())
    name = "full data (scikit-learn LogisticRegression)"
    methods = [Classifier(name=name, rows=len(X), excess=full_excess, worst=full_excess, passes=passes)]
    model = CoresetLogisticRegression()
    for name, options in WAYS.items():
        runs = []
        for seed in range(seeds):
            progress(name)
            model = CoresetLogisticRegression(coreset_size=coreset_size, random_state=seed, **options)
            runs.append(timed(model))
        losses, times = zip(*runs, strict=True)
        methods.append(
            Classifier(
                name=name,
                rows=len(model.coreset_),
                excess=float(np.median(losses)),
                worst=max(losses),
                passes=float(np.median(times)),
            )
        )
    return Classification(
        title=title,
        n_rows=len(X),
        n_features=X.shape[1],
        seeds=seeds,
        pass_ms=unit * 1e3,
        certificate=str(model.certificate_),
        methods=methods,
    )
