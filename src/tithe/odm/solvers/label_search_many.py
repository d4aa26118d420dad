"""More than two clusters: labels with a small value of the margin machine of many classes, by a local search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from sklearn.cluster import KMeans

from tithe.core.data import Array
from tithe.odm.solvers.assignments import Assignments
from tithe.odm.solvers.kernel_functions import GivenKernel
from tithe.odm.solvers.kernel_matrix import Gram
from tithe.odm.solvers.label_search import smooth_matrices
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.odm.solvers.many_classes_dual import KernelMulticlassDual
from tithe.odm.solvers.relaxation import margin_loss

_MAX_STEPS = 30
_N_PARTS = 5  # rows of a part are judged by the machine that is fitted to the other parts
_MAX_ROUNDS = 200  # of the solver, for one machine
_N_INIT = 5  # searches of k-means for each start


@dataclass(frozen=True, kw_only=True)
class ManyProblem:
    """Machines of k classes that differ in their labels only: see `MarginProblem`."""

    matrix: Array
    cost: Array
    n_classes: int
    mu: float
    theta: float
    tol: float

    def solve(self, labels: Array) -> tuple[float, Array]:
        """The value J of the machine with these labels, and the scores (n, k)."""
        dual = self._solved(np.arange(len(labels)), labels)
        return dual.measure()[2], dual.scores()

    def scores_by(self, rows: Array, labels: Array) -> Array:
        """Scores (n, k) of all rows by the machine of some."""
        scores: Array = self.matrix[:, rows] @ self._solved(rows, labels).value
        return scores

    def scores_without(self, labels: Array, parts: Array) -> Array:
        """Scores (n, k) of the rows of each part, by the machine of all other rows."""
        scores = np.zeros((len(labels), self.n_classes))
        for part in range(int(parts.max()) + 1):
            inside = parts == part
            scores[inside] = self.scores_by(np.flatnonzero(~inside), labels)[inside]
        return scores

    def _solved(self, rows: Array, labels: Array) -> KernelMulticlassDual:
        dual = KernelMulticlassDual(
            gram=Gram(GivenKernel(matrix=self.matrix), rows, cache_bytes=np.inf),
            label=labels[rows].astype(np.int64),
            cost=self.cost[rows],
            n_classes=self.n_classes,
            mu=self.mu,
            theta=self.theta,
        )
        rng = np.random.default_rng(0)  # the same labels must have the same value whenever they are tried
        solve_many_classes(
            dual, nonconvex="cccp", tol=self.tol, asked_tol=self.tol, max_iter=_MAX_ROUNDS, rng=rng, patient=False
        )
        return dual


def label_losses(scores: Array, cost: Array, mu: float, theta: float) -> Array:
    """C l(u) / 2 of each row for each label that it may get: (n, k)."""
    ordered = np.sort(scores, axis=1)
    rival = np.where(scores == ordered[:, -1:], ordered[:, -2:-1], ordered[:, -1:])
    return margin_loss(scores - rival, cost[:, None], mu, theta)


def search_assignment(
    problem: ManyProblem, assignments: Assignments, starts: list[Array], rng: np.random.Generator
) -> tuple[Array, float]:
    """The labels with the smallest value that a local search from each start finds, and that value."""
    parts = rng.permutation(len(problem.cost)) % _N_PARTS
    results, known = [], set()
    for labels in starts:
        if labels.tobytes() not in known:
            known.add(labels.tobytes())
            results.append(_refined(problem, assignments, labels, parts))
    return min(results, key=lambda result: result[1])


def _refined(problem: ManyProblem, assignments: Assignments, labels: Array, parts: Array) -> tuple[Array, float]:
    """Assign and fit in turn, as long as the value falls."""
    value, scores = problem.solve(labels)
    for _ in range(_MAX_STEPS):
        for judged in (problem.scores_without(labels, parts), scores):
            proposal = assignments.best(label_losses(judged, problem.cost, problem.mu, problem.theta))
            if np.array_equal(proposal, labels):
                continue
            trial, trial_scores = problem.solve(proposal)
            if trial < value * (1.0 - 1e-6):
                labels, value, scores = proposal, trial, trial_scores
                break
        else:
            break
    return labels, value


def clustering_starts(assignments: Assignments, K: Array, weight: Array, rng: np.random.Generator) -> list[Array]:
    """k-means on the leading eigenvectors of the kernel matrix, centred and normalised by its row sums."""
    k, n, root, starts = assignments.n_classes, len(K), np.sqrt(weight), []
    for matrix in smooth_matrices(K, weight):
        values, vectors = eigh(matrix * np.outer(root, root), subset_by_index=[max(0, n - k + 1), n - 1])
        points = vectors / root[:, None] * np.sqrt(np.maximum(values, 0.0))
        seed = int(rng.integers(2**31 - 1))
        model = KMeans(k, n_init=_N_INIT, random_state=seed).fit(points, sample_weight=weight)
        starts.append(assignments.best(weight[:, None] * model.transform(points) ** 2))
    return starts
