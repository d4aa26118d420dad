"""Many classes and a kernel: block coordinate descent on the dual; pivots or Newton's method where it is slow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.data import Array
from tithe.odm.kernels.many_classes import classes_gap, descend_rows
from tithe.odm.solvers.kernel_matrix import Gram, kernel_not_psd_error
from tithe.odm.solvers.linear_classes import LinearMulticlassDual
from tithe.odm.solvers.many_classes import MAX_SHARP_ROUNDS, MulticlassDual

_SWEEPS = 5  # over all rows in a round, if the kernel matrix is held
_RENEWAL_ROUNDS = 50  # rounds after which scores are recomputed from the coefficients
_ROUNDING_GAP = 1e-13  # relative gap below which rounds with little progress are at rounding level
_MAX_STILL_ROUNDS = 5  # such rounds, after which the search ends
_SLOW_RATIO = 0.9  # a round is slow if the gap keeps more than this share
_MAX_SLOW_ROUNDS = 5  # slow rounds, after which a search without patience ends
_LOOK_BACK = 5  # sweeps that the rate of descent is taken from
_MIN_ROUNDS_LEFT, _ROUNDS_PER_ROW = 20, 0.15  # rounds of sweeps that take as long as pivots to the end: measured
_MAX_STEPS = 300  # of Newton's method
_MAX_FAILURES = 2  # of pivots or Newton's method, after which sweeps are left alone


@dataclass(kw_only=True)
class KernelMulticlassDual(MulticlassDual):
    """With a kernel matrix: coefficients v (n, K) and scores (n, K) are kept.

    If not ``patient``, a round ends as soon as sweeps converge slowly.
    """

    gram: Gram
    rng: np.random.Generator
    patient: bool = True
    value: Array = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.value = np.zeros((len(self.label), self.n_classes))
        self._scores = np.zeros_like(self.value)
        self._pace = _Pace()

    @property
    def inverse_upper(self) -> Array:
        return self.inverse_upper_cost(self.mu_now)

    def scores(self) -> Array:
        return self._scores

    def renew(self) -> None:
        """Recompute scores from the coefficients, which removes rounding errors."""
        self._scores = self.gram.product(self.value)

    def kept(self) -> Any:
        return self.value.copy(), self.beta.copy()

    def restore(self, kept: Any) -> None:
        self.value, self.beta = kept
        self.renew()

    def shorten(self, share: float) -> None:
        self.restore((share * self.value, share * self.beta))

    def move_rivals(self, rival: Array) -> None:
        """Multipliers of the upper side move to the new rivals."""
        moving = np.flatnonzero((self.beta > 0.0) & (rival != self.rival))
        self.value[moving, self.rival[moving]] -= self.beta[moving]
        self.value[moving, rival[moving]] += self.beta[moving]
        self.rival = rival
        if len(moving):
            self.renew()

    def norm(self) -> float:
        return float(np.vdot(self.value, self._scores))

    def measure(self) -> tuple[float, float, float]:
        fixed = self.beta, self.label, self.rival, self.level
        band = self.cost, self.mu_now, self.low, self.high
        gap, loss, true_loss, norm = classes_gap(self._scores, self.value, *fixed, *band)
        if not np.isfinite(norm):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        if norm < -1e-6 * loss:
            raise kernel_not_psd_error()
        return gap, loss + 0.5 * norm, true_loss + 0.5 * norm

    def sweep(self) -> None:
        """Exact steps on the multipliers of every row, in random order."""
        value, scores = np.ascontiguousarray(self.value.T), np.ascontiguousarray(self._scores.T)
        band = self.inverse_cost, self.inverse_upper, self.low, self.high
        for panel in self.gram.row_panels(self.rng, _SWEEPS, lambda numbers: np.ones(len(numbers), bool)):
            descend_rows(*panel, self.label, self.rival, self.level, scores, value, self.beta, *band)
        self.value, self._scores = np.ascontiguousarray(value.T), np.ascontiguousarray(scores.T)

    def descend(self, tol: float, final_tol: float, max_iter: int) -> int:
        """Sweeps until the gap of the convex problem is small, or at rounding level; returns their number.

        Where many more would follow, pivots or Newton's method finish.
        """
        pace, still, at_solution = self._pace, 0, False
        gaps: list[float] = []
        for number in range(1, max_iter + 1):
            at_solution = self.patient and not at_solution and _solve_directly(self, tol, final_tol, pace)
            if not at_solution:
                self.sweep()
                if pace.n_slow >= _MAX_SLOW_ROUNDS and not self.patient:
                    return number
            gap, primal, _ = self.measure()
            is_sharpest = at_solution and pace.used_newton  # what is left is rounding
            small = tol if number <= MAX_SHARP_ROUNDS and not is_sharpest else max(tol, final_tol)
            if gap <= small * primal or number % _RENEWAL_ROUNDS == 0:
                self.renew()
                gap, primal, _ = self.measure()
            if gap <= small * primal:
                return number
            still = still + 1 if gaps and _ROUNDING_GAP * primal > gap > 0.5 * gaps[-1] else 0
            if still >= _MAX_STILL_ROUNDS:
                return number
            gaps.append(gap)
            pace.look(gaps, final_tol * primal)
        return max_iter


@dataclass
class _Pace:
    """How fast sweeps were so far, and what helps them: kept for later rounds, which are much like the earlier ones."""

    n_slow: int = 0
    n_left: float = 0.0  # rounds of sweeps until the end, at the present rate
    n_failed: int = 0  # times that pivots or Newton's method did not lead to the solution
    used_newton: bool = False  # the last time that sweeps were left out
    _factors: list[Array | None] = field(default_factory=list)  # of the kernel matrix, computed once

    def look(self, gaps: list[float], small: float) -> None:
        """Decide by the gaps after each sweep of this round; ``small`` is the one to reach."""
        self.n_slow += len(gaps) > 1 and gaps[-1] > _SLOW_RATIO * gaps[-2]
        if len(gaps) <= _LOOK_BACK:
            return
        rate = min(0.999, (gaps[-1] / gaps[-1 - _LOOK_BACK]) ** (1.0 / _LOOK_BACK))
        self.n_left = float(np.log(small / gaps[-1]) / np.log(rate))

    def low_rank_factor(self, dual: KernelMulticlassDual) -> Array | None:
        if not self._factors:
            self._factors.append(low_rank_factor(dual.gram, dual.n_classes))
        return self._factors[0]


def _solve_directly(dual: KernelMulticlassDual, tol: float, final_tol: float, pace: _Pace) -> bool:
    """Solve the convex problem of this round without sweeps, if many would follow; False if that is not done.

    A kernel of low rank takes Newton's method, as pivots end in singular systems; but where a solution to rounding
    error is wanted, pivots are tried once.
    """
    if pace.n_failed >= _MAX_FAILURES or pace.n_left <= _MIN_ROUNDS_LEFT:
        return False
    factor = pace.low_rank_factor(dual) if tol >= final_tol or pace.n_failed else None
    pace.used_newton = factor is not None
    if factor is not None:
        solved = solve_by_weights(dual, factor, 0.1 * tol, max(tol, final_tol))
    elif pace.n_left <= _ROUNDS_PER_ROW * len(dual.label) or n_free(dual) > MAX_FREE:
        return False
    else:
        solved = solve_by_pivots(dual, final_tol)
    pace.n_failed += not solved
    pace.n_left = pace.n_left if solved else 0.0
    return solved


class Multipliers:
    """a = -alpha >= 0 (n, K), zero at the own class, and beta >= 0 (n,): the x of the dual x H x / 2 - c x."""

    def __init__(self, dual: KernelMulticlassDual) -> None:
        self.dual = dual
        self.rows = np.arange(len(dual.label))
        self.with_rival = bool(dual.rival[0] >= 0)
        self.a = -dual.value
        if self.with_rival:
            self.a[self.rows, dual.rival] += dual.beta
        self.a[self.rows, dual.label] = 0.0
        np.maximum(self.a, 0.0, out=self.a)
        self.beta = dual.beta.copy()
        self.inverse_upper = np.where(
            np.isfinite(dual.inverse_upper), dual.inverse_upper, 0.0
        )  # beta is zero where it is not

    def values(self, a: Array, beta: Array) -> Array:
        """v (n, K) of the multipliers."""
        values: Array = -a
        values[self.rows, self.dual.label] = a.sum(axis=1) - beta
        if self.with_rival:
            values[self.rows, self.dual.rival] += beta
        return values

    def curve(self, a: Array, beta: Array, scores: Array) -> tuple[Array, Array]:
        """H x, from the scores of v."""
        true_scores = scores[self.rows, self.dual.label]
        lower = true_scores[:, None] - scores + (self.dual.inverse_cost * a.sum(axis=1))[:, None]
        upper = self.inverse_upper * beta - true_scores
        if self.with_rival:
            upper += scores[self.rows, self.dual.rival]
        return lower, upper

    def linear(self) -> tuple[float, Array]:
        """c: the same number for all of a, and one for each beta."""
        goal = -self.dual.high - (0.0 if self.with_rival else self.dual.level)
        return self.dual.low, np.broadcast_to(goal, self.beta.shape)


MAX_FREE = 4000  # multipliers up to which a linear system is solved directly
_MAX_PIVOTS = 60
_MAX_IDLE_PIVOTS = 12  # pivots in a row after which no fewer signs are wrong: the search ends
_MAX_WRONG_SHARE = 0.1  # share of wrong signs from which the gap is computed
_JITTER = 1e-10  # share of the mean diagonal: rows that occur twice make the system singular
_SIGN_TOLERANCE = 1e-10  # of the band: a slope above minus this is not negative


def solve_by_pivots(dual: KernelMulticlassDual, tol: float) -> bool:
    """Solve the convex problem of this round to a gap of ``tol``; False if that fails, and nothing has changed.

    Block principal pivoting, after Judice and Pires: the free multipliers solve H x = c; those that are negative
    become zero, those at zero with a negative slope free, all at once, until no sign is wrong.
    """
    at = Multipliers(dual)
    low, goal = at.linear()
    free_a, free_beta = at.a > 0.0, at.beta > 0.0
    may_a = np.ones_like(free_a)
    may_a[at.rows, dual.label] = False
    may_beta, tolerance = np.isfinite(dual.inverse_upper), _SIGN_TOLERANCE * dual.high
    fewest, idle = at.a.size + at.beta.size + 1, 0
    before = dual.value, dual.beta
    for _ in range(_MAX_PIVOTS):
        n_equations = int(free_a.sum() + free_beta.sum())
        if n_equations > MAX_FREE:
            break
        try:
            a, beta, curved = _solution(at, dual.gram, free_a, free_beta)
        except LinAlgError:
            break
        wrong_a = np.where(free_a, a < 0.0, may_a & (curved[0] - low < -tolerance))
        wrong_beta = np.where(free_beta, beta < 0.0, may_beta & (curved[1] - goal < -tolerance))
        n_wrong = int(wrong_a.sum() + wrong_beta.sum())
        if n_wrong <= _MAX_WRONG_SHARE * n_equations:
            dual.value, dual.beta = at.values(np.maximum(a, 0.0), np.maximum(beta, 0.0)), np.maximum(beta, 0.0)
            dual.renew()
            gap, primal, _ = dual.measure()
            if gap <= tol * primal:
                return True
            if n_wrong == 0:
                break  # the system is singular, and its solution is too inexact
        idle = 0 if n_wrong < fewest else idle + 1
        fewest = min(fewest, n_wrong)
        if idle > (_MAX_IDLE_PIVOTS if n_wrong <= _MAX_WRONG_SHARE * n_equations else _MAX_IDLE_PIVOTS // 3):
            break  # a kernel of low rank has no one solution, and signs change for ever
        if idle > 1:  # the same signs come again: a random half of them breaks the cycle
            wrong_a, wrong_beta = (w & (dual.rng.random(w.shape) < 0.5) for w in (wrong_a, wrong_beta))
        free_a, free_beta = free_a ^ wrong_a, free_beta ^ wrong_beta
    dual.value, dual.beta = before
    dual.renew()
    return False


def n_free(dual: KernelMulticlassDual) -> int:
    """The number of multipliers that are not zero, which is that of equations in the first pivot."""
    at = Multipliers(dual)
    return int((at.a > 0.0).sum() + (at.beta > 0.0).sum())


def _solution(at: Multipliers, gram: Gram, free_a: Array, free_beta: Array) -> tuple[Array, Array, tuple[Array, Array]]:
    """a and beta that solve H x = c among the free ones, all others zero, and H x."""
    low, goal = at.linear()
    row_a, class_a = np.nonzero(free_a)
    row_beta = np.flatnonzero(free_beta)
    order = np.argsort(np.concatenate([row_a, row_beta]), kind="stable")
    system = _system(at, gram, row_a, class_a, row_beta, order)
    factor = cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)  # by columns: not copied
    a, beta = np.zeros_like(at.a), np.zeros_like(at.beta)
    right = np.concatenate([np.full(len(row_a), low), goal[row_beta]])
    for _ in range(2):  # the second time with the residual, which takes away the jitter and most rounding errors
        x = np.empty(len(order))
        x[order] = cho_solve(factor, right[order], check_finite=False)
        a[row_a, class_a] += x[: len(row_a)]
        beta[row_beta] += x[len(row_a) :]
        curved = at.curve(a, beta, gram.product(at.values(a, beta)))
        right = np.concatenate([low - curved[0][row_a, class_a], (goal - curved[1])[row_beta]])
    return a, beta, curved


def _system(at: Multipliers, gram: Gram, row_a: Array, class_a: Array, row_beta: Array, order: Array) -> Array:
    """H among the free multipliers, in an ``order`` in which their rows ascend; only the lower half is complete."""
    dual, n_a = at.dual, len(row_a)
    rows, places = np.concatenate([row_a, row_beta]), np.arange(len(order))
    direction = np.zeros((len(rows), dual.n_classes))
    direction[places, dual.label[rows]] = np.where(places < n_a, 1.0, -1.0)
    direction[places[:n_a], class_a] = -1.0
    if at.with_rival:
        direction[places[n_a:], dual.rival[row_beta]] = 1.0
    rows, direction, is_a = rows[order], direction[order], (places < n_a)[order]
    system = gram.submatrix(rows)
    system *= direction @ direction.T
    system[places, places] += np.where(is_a, dual.inverse_cost[rows], at.inverse_upper[rows])
    for apart in range(1, dual.n_classes):  # multipliers of one row follow each other
        later = np.flatnonzero((rows[apart:] == rows[:-apart]) & is_a[apart:] & is_a[:-apart]) + apart
        system[later, later - apart] += dual.inverse_cost[rows[later]]
    system[places, places] += _JITTER * float(np.trace(system)) / max(1, len(rows))
    return system


_MAX_UNKNOWNS = 1000  # rank times classes, up to which weights are solved for
_MAX_NUMBERS = 2**24  # rows times squared classes
_MIN_PIVOT = 1e-12  # share of the largest k(x, x) below which nothing is left of the kernel


def low_rank_factor(gram: Gram, n_classes: int) -> Array | None:
    """B (n, r) with K = B B^T to rounding error, by a pivoted Cholesky factorisation; None if that is too large."""
    max_rank = min(len(gram) // 2, _MAX_UNKNOWNS // n_classes)
    if gram.function.dtype != np.float64 or len(gram) * n_classes**2 > _MAX_NUMBERS:
        return None
    residual = gram.diagonal()
    smallest = _MIN_PIVOT * float(residual.max())
    basis = np.empty((len(gram), max_rank))
    for rank in range(max_rank):
        pivot = int(residual.argmax())
        if residual[pivot] <= smallest:
            return np.ascontiguousarray(basis[:, :rank])
        column = gram.columns(np.array([pivot]))[:, 0] - basis[:, :rank] @ basis[pivot, :rank]
        basis[:, rank] = column / residual[pivot] ** 0.5
        residual -= basis[:, rank] ** 2
    return basis if residual.max() <= smallest else None


def solve_by_weights(dual: KernelMulticlassDual, basis: Array, tol: float, accepted_tol: float) -> bool:
    """Solve the convex problem of this round with the kernel as B B^T, B = ``basis`` (n, r): few weights, many rows.

    False if the relative gap is not below ``accepted_tol``; then nothing has changed.
    """
    rows = LinearMulticlassDual(
        X=basis,
        constant=0.0,
        from_rows=True,
        label=dual.label,
        cost=dual.cost,
        n_classes=dual.n_classes,
        mu=dual.mu,
        theta=dual.theta,
    )
    rows.mu_now, rows.rival, rows.level = dual.mu_now, dual.rival, dual.level
    before = dual.kept()
    rows.descend(tol, accepted_tol, _MAX_STEPS)
    dual.restore((rows.coefficients(), rows.beta))
    gap, primal, _ = dual.measure()
    if gap <= accepted_tol * primal:
        return True
    dual.restore(before)
    return False
