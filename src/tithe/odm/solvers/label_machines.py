"""Machines that differ in their labels only: with a kernel matrix, with few features, and of many classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from tithe.core.data import Array
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual
from tithe.odm.solvers.kernel_matrix import GivenKernel, Gram, MarginLoss, kernel_not_psd_error
from tithe.odm.solvers.linear_problem import LinearProblem
from tithe.odm.solvers.linear_solvers import newton
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.odm.solvers.two_classes import Dual, newton_step, solve_two_classes

_MAX_NEWTON_STEPS = 30  # after which coordinate descent is used too
_MAX_SOLVER_ROUNDS = 1000
_MAX_FEATURE_STEPS = 50
_MAX_CLASS_ROUNDS = 200  # of the solver, for one machine of many classes


def costs_without_row(y: Array, rest: Array, own: Array, cost: Array, mu: float, theta: float) -> Array:
    """What label -1 costs more than label 1, from margins without each row and the kernel left for it.

    A margin u costs [low - u]+^2 / (2 (s + 1/C)) or [u - high]+^2 / (2 (s + 1/(mu C))), s = ``own``.
    """
    lower = 1.0 / cost
    upper = lower / mu if mu > 0.0 else np.full(len(y), np.inf)

    def value(u: Array) -> Array:
        short, over = np.maximum(1.0 - theta - u, 0.0), np.maximum(u - 1.0 - theta, 0.0)
        return np.asarray(0.5 * (short * short / (own + lower) + over * over / (own + upper)))

    return np.asarray(y * (value(-rest) - value(rest)))


@dataclass(frozen=True, kw_only=True)
class LabelMachine:
    """A machine fitted to labels: its labels, scores and multipliers (n,), and its value."""

    sign: Array
    score: Array
    gamma: Array
    value: float

    def margins(self) -> Array:
        return self.sign * self.score


@dataclass(kw_only=True, eq=False)
class MarginProblem(MarginLoss):
    """Machines with the kernel ``matrix`` (n, n), solved to a relative duality gap of ``tol``."""

    matrix: Array
    tol: float = 1e-8

    @cached_property
    def _gram(self) -> Gram:
        return Gram(GivenKernel(matrix=self.matrix), np.arange(len(self.matrix)), cache_bytes=np.inf)

    def solve(self, y: Array, start: LabelMachine | None = None) -> LabelMachine:
        return self.solve_from(y, None if start is None else start.gamma)

    def solve_from(self, y: Array, start: Array | None) -> LabelMachine:
        """The machine with labels y, from multipliers on."""
        dual = self._solved_dual(self._gram, y, start)
        return LabelMachine(sign=y, score=dual.score, gamma=dual.gamma, value=dual.gap()[1])

    def solve_mixture(self, M: Array, start: Array | None = None) -> LabelMachine:
        """The machine with all labels 1 and the kernel K o M; ``start`` are multipliers to begin with."""
        return replace(self, matrix=self.matrix * M).solve_from(np.ones(len(M)), start)

    def _solved_dual(self, gram: Gram, sign: Array, start: Array | None) -> Dual:
        dual = Dual(gram=gram, sign=sign, cost=self.cost, mu=self.mu, theta=self.theta)
        if start is not None:
            dual.gamma = start.copy()
            dual.renew()
        for _ in range(_MAX_NEWTON_STEPS):
            clipped = dual if self.mu > 0.0 else dual.clipped()
            gap, primal = clipped.gap()
            if gap <= self.tol * primal:
                return clipped
            if not newton_step(dual, None, free=False, accuracy=0.0):
                break
        rng = np.random.default_rng(0)  # the same labels must have the same value whenever they are tried
        solve_two_classes(clipped, tol=self.tol, max_iter=_MAX_SOLVER_ROUNDS, rng=rng, free=False)
        return clipped

    def costs_without(self, machine: LabelMachine) -> Array:
        """What each row costs with label -1 minus what it costs with label 1, by the machine of all other rows.

        With R the inverse of Q + D among the rows outside the band, the margin without itself is r - gamma / R_ii.
        """
        y, margin, gamma = machine.sign, machine.margins(), machine.gamma
        Q = self.matrix * np.outer(y, y)
        low, high = 1.0 - self.theta, 1.0 + self.theta
        outside = np.where(gamma > 0.0, margin < low, (gamma < 0.0) & (margin > high))  # gamma may be off by rounding
        rows = np.flatnonzero(outside)
        rest, own = margin.copy(), np.diagonal(Q).copy()
        if len(rows):
            ridge = 1.0 / np.where(gamma[rows] > 0.0, self.cost[rows], self.mu * self.cost[rows])
            inner = Q[np.ix_(rows, rows)]
            inner[np.diag_indices_from(inner)] += ridge
            try:
                factor = cho_factor(inner, lower=True, check_finite=False)
            except LinAlgError:
                raise kernel_not_psd_error() from None
            inverse = np.diagonal(cho_solve(factor, np.eye(len(rows)), check_finite=False))
            own[rows] = 1.0 / inverse - ridge
            rest[rows] = margin[rows] - gamma[rows] * own[rows]
            others = np.flatnonzero(~outside)
            columns = Q[np.ix_(rows, others)]
            own[others] -= np.einsum("ij,ij->j", columns, cho_solve(factor, columns, check_finite=False))
        return costs_without_row(y, rest, np.maximum(own, 0.0), self.cost, self.mu, self.theta)


@dataclass(frozen=True, kw_only=True)
class FeatureMachine(LabelMachine):
    """f(x) = w . phi(x), with the weights w of the features."""

    weights: Array


@dataclass(kw_only=True, eq=False)
class FeatureProblem(MarginLoss):
    """As `MarginProblem`, with features (n, r) whose products are the kernel. A machine takes a time of order n r^2."""

    features: Array
    tol: float = 1e-6

    def solve(self, y: Array, start: LabelMachine | None = None) -> FeatureMachine:
        """The machine with labels y, by Newton's method on w."""
        problem = LinearProblem(X=self.features, signs=y, cost=self.cost, mu=self.mu, theta=self.theta, constant=0.0)
        weights = np.append(start.weights, 0.0) if isinstance(start, FeatureMachine) else np.zeros(problem.size)
        rng = np.random.default_rng(0)
        solution = newton(problem, tol=self.tol, max_iter=_MAX_FEATURE_STEPS, rng=rng, start=weights)
        point = solution.point
        return FeatureMachine(
            sign=y, weights=point.params[:-1], score=y * point.margins, gamma=solution.duals, value=point.value
        )

    def costs_without(self, machine: LabelMachine) -> Array:
        """See `MarginProblem.costs_without`: a = phi H^-1 phi is a / (1 - C a) without the row."""
        curved = self.curvatures(machine.margins())
        scaled = self.features * np.sqrt(curved)[:, None]
        low = cholesky(np.eye(scaled.shape[1]) + scaled.T @ scaled, lower=True, check_finite=False)
        solved = solve_triangular(low, self.features.T, lower=True, check_finite=False)
        own = np.einsum("ij,ij->j", solved, solved)
        own = own / np.maximum(1.0 - curved * own, 1e-12)
        rest = machine.margins() - machine.gamma * own
        return costs_without_row(machine.sign, rest, own, self.cost, self.mu, self.theta)


LabelProblem = MarginProblem | FeatureProblem  # machines of two classes that differ in their labels only


@dataclass(kw_only=True, eq=False)
class ManyProblem(MarginLoss):
    """Machines of k classes with a kernel."""

    matrix: Array
    n_classes: int
    tol: float

    def solve(self, labels: Array) -> tuple[float, Array]:
        """The value J of the machine with these labels, and the scores (n, k)."""
        dual = self._solved(np.arange(len(labels)), labels)
        return dual.measure()[2], dual.scores()

    def scores_by(self, rows: Array, labels: Array) -> Array:
        """Scores (n, k) of all rows by the machine of some."""
        return np.asarray(self.matrix[:, rows] @ self._solved(rows, labels).value)

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
            rng=np.random.default_rng(0),  # the same labels must have the same value whenever they are tried
            patient=False,
        )
        solve_many_classes(dual, nonconvex="cccp", tol=self.tol, asked_tol=self.tol, max_iter=_MAX_CLASS_ROUNDS)
        return dual
