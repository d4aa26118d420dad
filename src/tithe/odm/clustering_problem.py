"""The search for the labels of clusters, by the parameters of an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.odm.base import row_costs
from tithe.odm.solvers.assignments import Assignments
from tithe.odm.solvers.label_search import search_labels, spectral_starts
from tithe.odm.solvers.label_search_many import ManyProblem, clustering_starts, search_assignment
from tithe.odm.solvers.labelings import Balance, Labelings, linked_groups
from tithe.odm.solvers.relaxation import MarginProblem

_MACHINE_TOL, _EXACT_TOL = 1e-6, 1e-10  # relative gaps of the machines in the search, of many rows and of few
_MAX_EXACT_ROWS = 100
_ROUNDING = 1e-12  # share of the kernel that is added to the diagonal: centring leaves a tiny negative part
_MANY_TOL = 1e-3  # the same with more than two clusters


class ClusteringProblem:
    """The search for labels of some rows, and what it found.

    Parameters
    ----------
    settings : ODMClustering
        Whose parameters count.
    K : (n, n)
        The kernel matrix, not centred.
    weight : (n,)
    must_link, cannot_link : (p, 2)
        Positions among these rows.
    """

    def __init__(self, settings: Any, K: Array, weight: Array, must_link: Array, cannot_link: Array) -> None:
        self.settings, self.K, self.weight = settings, K, weight
        self.links = must_link, cannot_link
        self.share = weight / weight.sum()
        mean = K @ self.share
        constant = float(settings.intercept_scaling) ** 2 if settings.fit_intercept else 0.0
        self.centred = K - mean - mean[:, None] + (float(self.share @ mean) + constant)
        self.centred[np.diag_indices_from(K)] += _ROUNDING * float(np.abs(np.diagonal(K)).mean())
        self.cost = row_costs(weight, len(K), settings.lam, settings.theta)
        self.value: float = np.nan
        self.bound: float | None = None
        self.relaxed: float | None = None

    def solve(self, rng: np.random.Generator) -> Array:
        """Labels (n,) from 0 to n_clusters - 1."""
        if self.settings.n_clusters == 1:
            self.value = self.bound = self.relaxed = 0.0  # there is nothing to tell apart
            return np.zeros(len(self.K), np.int64)
        if self.settings.n_clusters == 2:
            return (self._solve_two(rng) > 0.0).astype(np.int64)
        labels: Array = self._solve_many(rng)
        return labels

    def _solve_two(self, rng: np.random.Generator) -> Array:
        settings = self.settings
        labelings = cluster_labelings(settings, self.weight, *self.links)
        problem = MarginProblem(
            matrix=self.centred,
            cost=self.cost,
            mu=float(settings.mu),
            theta=float(settings.theta),
            tol=_EXACT_TOL if len(self.K) <= _MAX_EXACT_ROWS else _MACHINE_TOL,
        )
        solution = search_labels(
            problem,
            labelings,
            spectral_starts(labelings, self.K, self.share),
            tol=settings.tol,
            max_cuts=settings.max_cuts,
            n_restarts=settings.n_restarts,
            rng=rng,
        )
        self.value, self.bound, self.relaxed = solution.value, solution.bound, solution.mixture.value
        return solution.y

    def _solve_many(self, rng: np.random.Generator) -> Array:
        settings = self.settings
        assignments = cluster_assignments(settings, self.weight, *self.links)
        problem = ManyProblem(
            matrix=self.centred,
            cost=self.cost,
            n_classes=settings.n_clusters,
            mu=float(settings.mu),
            theta=float(settings.theta),
            tol=_MANY_TOL,
        )
        starts = clustering_starts(assignments, self.K, self.share, rng)
        labels, self.value = search_assignment(problem, assignments, starts, rng)
        return labels


def cluster_labelings(settings: Any, weight: Array, must_link: Array, cannot_link: Array) -> Labelings:
    groups = linked_groups(must_link, cannot_link, np.zeros(len(weight)))
    return Labelings(groups, Balance.of_clusters(weight, len(weight), float(settings.balance)))


def cluster_assignments(settings: Any, weight: Array, must_link: Array, cannot_link: Array) -> Assignments:
    k, total = settings.n_clusters, float(weight.sum())
    least = (1.0 - settings.balance) * total / k
    if (weight == np.round(weight)).all():
        least = max(np.floor(least + 1e-9), 1.0)
    return Assignments(
        k,
        must_link=must_link,
        cannot_link=cannot_link,
        labels=np.full(len(weight), -1),
        count=weight,
        least=np.full(k, least),
        most=np.full(k, total - (k - 1) * least),
    )
