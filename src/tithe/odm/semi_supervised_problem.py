"""The search for labels of unlabelled rows, and whether they help, by the parameters of an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.odm.base import row_costs
from tithe.odm.classifier import ODMClassifier
from tithe.odm.kernel_rows import kernel_matrix, search_features
from tithe.odm.solvers.assignments import Assignments
from tithe.odm.solvers.feature_problem import FeatureProblem
from tithe.odm.solvers.label_search import refine, search_labels, spread_labels, spreading_factors
from tithe.odm.solvers.label_search_many import ManyProblem, label_losses, search_assignment
from tithe.odm.solvers.labelings import Balance, Labelings, linked_groups
from tithe.odm.solvers.relaxation import LabelMachine, MarginProblem, margin_loss

_MAX_RELAXED_ROWS = 400  # rows up to which the relaxation is solved; beyond that labels are only refined
_MAX_SPREAD_ROWS = 2000  # rows up to which labels are spread to neighbours
_TOL = 1e-6  # relative gap of the machines in the search
_MANY_TOL = 1e-3  # the same with more than two classes
_MAX_LEFT_OUT, _N_PARTS = 20, 5  # labels up to which each is left out in turn, and in how many parts more are


@dataclass(frozen=True, kw_only=True)
class SearchedLabels:
    """Labels of all rows, the scores of their machine, the objective, and bounds on it where they were computed."""

    codes: Array
    scores: Array
    value: float
    bound: float | None = None


class SemiSupervisedProblem:
    """Rows of which some are labelled.

    Parameters
    ----------
    settings : SemiSupervisedODMClassifier
        Whose parameters count.
    K : (n, n) or None
        The kernel matrix. None for two classes and so many rows that their labels are not spread to neighbours.
    features : (n, r) or None
        If they are given, machines of two classes are fitted to them. Their products are close to the kernel, with
        the constant of the intercept.
    weight : (n,)
    n_classes : int
    must_link, cannot_link : (p, 2)
    """

    def __init__(
        self,
        settings: Any,
        K: Array | None,
        features: Array | None,
        weight: Array,
        n_classes: int,
        must_link: Array,
        cannot_link: Array,
    ) -> None:
        self.settings, self.K, self.features, self.weight = settings, K, features, weight
        if features is None:
            assert K is not None
            self.matrix = K + intercept_constant(settings)
        self.n_classes, self.links = n_classes, (must_link, cannot_link)
        self.mu, self.theta = float(settings.mu), float(settings.theta)

    def costs(self, codes: Array) -> Array:
        """C of each row: ``lam`` shared by the labelled rows, ``lam_unlabeled`` by the others."""
        return semi_supervised_costs(self.settings, self.weight, codes)

    def supervised(self, codes: Array) -> Array:
        """Scores of all rows by the machine of the labelled ones: (n,) for two classes, else (n, k)."""
        rows, cost = np.flatnonzero(codes >= 0), self.costs(codes)
        if self.n_classes > 2:
            return self._many(cost).scores_by(rows, codes)
        y = 2.0 * codes[rows] - 1.0
        if self.features is not None:
            weights = self._by_features(self.features[rows], cost[rows]).solve(y).weights
            return np.asarray(self.features @ weights)
        machine = self._two(self.matrix[np.ix_(rows, rows)], cost[rows]).solve(y)
        return np.asarray(self.matrix[:, rows] @ (y * machine.gamma))

    def search(self, codes: Array, supervised: Array, rng: np.random.Generator, *, thorough: bool) -> SearchedLabels:
        """Labels of the rows whose code is -1. Without ``thorough``, labels are refined only.

        ``supervised`` are the scores of all rows by the machine of the labelled ones.
        """
        cost = self.costs(codes)
        spread = self._spread(codes)
        if self.n_classes > 2:
            assignments = class_assignments(self.settings, self.weight, codes, self.n_classes, *self.links)
            starts = [assignments.best(label_losses(supervised, cost, self.mu, self.theta))]
            starts += [assignments.best(-F / F.sum(axis=0)) for F in spread]
            labels, value = search_assignment(self._many(cost), assignments, starts, rng)
            return SearchedLabels(codes=labels, scores=self._many(cost).solve(labels)[1], value=value)
        labelings = class_labelings(self.settings, self.weight, codes, *self.links)
        c = margin_loss(-supervised, cost, self.mu, self.theta) - margin_loss(supervised, cost, self.mu, self.theta)
        starts = [labelings.best(c), *(labelings.best(F[:, 1] - F[:, 0]) for F in spread)]
        if thorough and self.features is None:
            return self._relaxed(labelings, cost, starts, rng)
        machines: list[LabelMachine] = []
        for y in starts:
            if self.features is None:
                machines.append(refine(self._two(self.matrix, cost), labelings, y)[1])
            else:
                machines.append(refine(self._by_features(self.features, cost), labelings, y)[1])
        best = min(machines, key=lambda machine: machine.value)
        return SearchedLabels(codes=(best.sign > 0.0).astype(np.int64), scores=best.score, value=best.value)

    def _spread(self, codes: Array) -> list[Array]:
        """Labels spread to neighbours, as starts."""
        if not self._spreading_factors:
            return []
        targets = np.zeros((len(codes), self.n_classes))
        targets[codes >= 0, codes[codes >= 0]] = 1.0
        return spread_labels(self._spreading_factors, targets)

    @cached_property
    def _spreading_factors(self) -> list[tuple[Array, bool]]:
        return [] if self.K is None else spreading_factors(self.K, self.weight)

    def _relaxed(
        self, labelings: Labelings, cost: Array, starts: list[Array], rng: np.random.Generator
    ) -> SearchedLabels:
        settings = self.settings
        solution = search_labels(
            self._two(self.matrix, cost),
            labelings,
            np.array(starts),
            tol=settings.tol,
            max_cuts=settings.max_cuts,
            n_restarts=settings.n_restarts,
            rng=rng,
        )
        codes = (solution.y > 0.0).astype(np.int64)
        return SearchedLabels(codes=codes, scores=solution.dual.score, value=solution.value, bound=solution.bound)

    def errors_left_out(self, codes: Array, rng: np.random.Generator) -> tuple[float, float, float, float]:
        """How labels that are left out are predicted, without and with unlabelled rows: mean errors, then mean losses.

        A label is left out by making its row an unlabelled one. No class is left without a label.
        """
        labelled = np.flatnonzero(codes >= 0)
        counts = np.bincount(codes[labelled], minlength=self.n_classes)
        labelled = labelled[counts[codes[labelled]] > 1]
        if len(labelled) == 0:
            return 0.0, 0.0, 0.0, 0.0
        order = labelled[np.lexsort((rng.random(len(labelled)), codes[labelled]))]  # parts have labels of all classes
        parts = np.arange(len(order)) % (len(order) if len(order) <= _MAX_LEFT_OUT else _N_PARTS)
        results = []
        for part in range(int(parts.max()) + 1):
            left_out = order[parts == part]
            remaining = codes.copy()
            remaining[left_out] = -1
            supervised = self.supervised(remaining)
            scores = supervised, self.search(remaining, supervised, rng, thorough=False).scores
            results.append([self._judged(score[left_out], codes[left_out]) for score in scores])
        totals = np.sum(results, axis=0) / len(order)
        return float(totals[0, 0]), float(totals[1, 0]), float(totals[0, 1]), float(totals[1, 1])

    def _judged(self, scores: Array, codes: Array) -> tuple[float, float]:
        """The number of errors and the sum of the losses."""
        ones = np.ones(len(codes))
        if scores.ndim == 1:
            losses = margin_loss((2.0 * codes - 1.0) * scores, ones, 0.0, self.theta)
            return float(((scores > 0.0) != (codes == 1)).sum()), float(losses.sum())
        losses = label_losses(scores, ones, 0.0, self.theta)[np.arange(len(codes)), codes]
        return float((scores.argmax(axis=1) != codes).sum()), float(losses.sum())

    def _two(self, matrix: Array, cost: Array) -> MarginProblem:
        return MarginProblem(matrix=matrix, cost=cost, mu=self.mu, theta=self.theta, tol=_TOL)

    def _by_features(self, features: Array, cost: Array) -> FeatureProblem:
        return FeatureProblem(features=features, cost=cost, mu=self.mu, theta=self.theta, tol=_TOL)

    def _many(self, cost: Array) -> ManyProblem:
        return ManyProblem(
            matrix=self.matrix, cost=cost, n_classes=self.n_classes, mu=self.mu, theta=self.theta, tol=_MANY_TOL
        )


def label_problem(
    settings: Any,
    machine: ODMClassifier,
    block: Block,
    rows: Array,
    weight: Array,
    links: tuple[Array, Array],
    rng: np.random.Generator,
) -> SemiSupervisedProblem:
    """The search: with the kernel matrix of the rows or, for two classes and many rows, with features."""
    K = features = None
    n_classes = len(settings.classes_)
    linear = settings.kernel == "linear" and isinstance(block.X, np.ndarray)
    if n_classes == 2 and len(rows) > _MAX_RELAXED_ROWS:
        features = search_features(machine, block, rows, intercept_constant(settings), rng)
    if features is None or (len(rows) <= _MAX_SPREAD_ROWS and not linear):
        K = kernel_matrix(machine, block, rows)
    return SemiSupervisedProblem(settings, K, features, weight, n_classes, *links)


def transduced(
    settings: Any, scores: Array, weight: Array, codes: Array, must_link: Array, cannot_link: Array
) -> Array:
    """Class numbers of all rows that cost the machine with these scores least, and obey labels and constraints."""
    cost, mu, theta = np.maximum(weight, 1e-12), float(settings.mu), float(settings.theta)
    if scores.ndim > 1:
        assignments = class_assignments(settings, weight, codes, scores.shape[1], must_link, cannot_link)
        return assignments.best(label_losses(scores, cost, mu, theta))
    c = margin_loss(-scores, cost, mu, theta) - margin_loss(scores, cost, mu, theta)
    return (class_labelings(settings, weight, codes, must_link, cannot_link).best(c) > 0.0).astype(np.int64)


def intercept_constant(settings: Any) -> float:
    """What a penalised intercept adds to the kernel."""
    return float(settings.intercept_scaling) ** 2 if settings.fit_intercept else 0.0


def semi_supervised_costs(settings: Any, weight: Array, codes: Array) -> Array:
    """C of each row (n,): that of `ODMClassifier` among the labelled rows, and among the unlabelled ones."""
    costs = np.empty(len(codes))
    for mask, lam in ((codes >= 0, settings.lam), (codes < 0, settings.lam_unlabeled)):
        costs[mask] = row_costs(weight[mask], int(mask.sum()), lam, settings.theta) if mask.any() else 0.0
    return costs


def class_shares(settings: Any, weight: Array, codes: Array, n_classes: int) -> tuple[Array, Array, Array]:
    """The least and the largest weight of each class among the unlabelled rows, and what each row counts for there."""
    labelled = codes >= 0
    share = np.bincount(codes[labelled], weights=weight[labelled], minlength=n_classes) / weight[labelled].sum()
    slack = settings.balance
    if isinstance(slack, str):  # two standard errors of a share, with one row of each class more
        smooth = (share * labelled.sum() + 1.0) / (labelled.sum() + n_classes)
        slack = 2.0 * np.sqrt(smooth * (1.0 - smooth) / labelled.sum())
    count = np.where(labelled, 0.0, weight)
    total = float(count.sum())
    unit = float(count.max(initial=0.0))  # a row cannot be divided
    least = np.maximum(np.minimum(total * (share - slack), total * share - unit), 0.0)
    most = np.minimum(np.maximum(total * (share + slack), total * share + unit), total)
    return least, most, count


def class_labelings(settings: Any, weight: Array, codes: Array, must_link: Array, cannot_link: Array) -> Labelings:
    """Labels of two classes that obey the links, the labels, and the shares of the classes among unlabelled rows."""
    groups = linked_groups(must_link, cannot_link, np.where(codes < 0, 0.0, 2.0 * codes - 1.0))
    if settings.balance is None:
        return Labelings(groups, None)
    least, most, count = class_shares(settings, weight, codes, 2)
    total = float(count.sum())
    low, high = max(least[1], total - most[0]), min(most[1], total - least[0])
    return Labelings(groups, Balance(count=count, least=2.0 * low - total, most=2.0 * high - total))


def class_assignments(
    settings: Any, weight: Array, codes: Array, n_classes: int, must_link: Array, cannot_link: Array
) -> Assignments:
    """The same for more than two classes."""
    least, most, count = np.zeros(n_classes), np.full(n_classes, np.inf), np.zeros(len(codes))
    if settings.balance is not None:
        least, most, count = class_shares(settings, weight, codes, n_classes)
    return Assignments(
        n_classes, must_link=must_link, cannot_link=cannot_link, labels=codes, count=count, least=least, most=most
    )
