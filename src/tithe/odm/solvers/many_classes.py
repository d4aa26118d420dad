"""Many classes: block coordinate descent on the dual, within rounds in which the upper side is convex."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.data import Array
from tithe.odm.kernels.linear import row_arrays, row_squares
from tithe.odm.kernels.many_classes import best_rivals, classes_gap, descend_rows, descend_weights
from tithe.odm.solvers.kernel_matrix import Gram, MarginLoss, Solved, kernel_not_psd_error

_SWEEPS = 5  # over all rows in a round, if the kernel matrix is held


@dataclass(kw_only=True, eq=False)
class MulticlassDual(MarginLoss, ABC):
    """Coefficients v (n, K) of all classes, w_l = sum_i v_i^l phi(x_i), and what they give.

    The upper side of the loss is made convex by a rival q that stays for a round (``rival``: the convex function
    touches J from above, so J never rises, CCCP), or by the rival's score that stays (``level``; no such promise).
    """

    label: Array
    n_classes: int
    value: Array = field(init=False)
    beta: Array = field(init=False)
    rival: Array = field(init=False)
    level: Array = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.label)
        self.value = np.zeros((n, self.n_classes))
        self.beta, self.level = np.zeros(n), np.zeros(n)
        self.rival = np.full(n, -1, np.int64)
        self.mu_now = 0.0

    @property
    def inverse_upper(self) -> Array:
        return self.inverse_upper_cost(self.mu_now)

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> None:
        """Exact steps on the multipliers of every row, in random order."""

    @abstractmethod
    def scores(self) -> Array:
        """(n, K)."""

    @abstractmethod
    def renew(self) -> None:
        """Recompute scores or weights from the coefficients, which removes rounding errors."""

    @abstractmethod
    def low_rank_factor(self) -> Array | None:
        """B (n, r) with K = B B^T to rounding error; None if that is too large for interior points."""

    def measure(self) -> tuple[float, float, float]:
        """Gap and primal value of this round's convex problem, and the true objective J."""
        fixed = self.beta, self.label, self.rival, self.level
        band = self.cost, self.mu_now, self.low, self.high
        gap, loss, true_loss, norm = classes_gap(self.scores(), self.value, *fixed, *band)
        if not np.isfinite(norm):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        if norm < -1e-6 * loss:
            raise kernel_not_psd_error()
        return gap, loss + 0.5 * norm, true_loss + 0.5 * norm

    def choose_rivals(self, nonconvex: str) -> None:
        """Fix the present rivals or their scores; multipliers of the upper side move to the new rivals."""
        best, level = np.empty_like(self.rival), np.empty_like(self.level)
        best_rivals(self.scores(), self.label, best, level)
        if nonconvex == "fixed_score":
            self.level = level
            return
        moving = np.flatnonzero((self.beta > 0.0) & (best != self.rival))
        self.value[moving, self.rival[moving]] -= self.beta[moving]
        self.value[moving, best[moving]] += self.beta[moving]
        self.rival = best
        if len(moving):
            self.renew()


@dataclass(kw_only=True)
class KernelMulticlassDual(MulticlassDual):
    """With a kernel matrix: scores (n, K) are kept."""

    gram: Gram

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scores = np.zeros_like(self.value)

    def scores(self) -> Array:
        return self._scores

    def renew(self) -> None:
        self._scores = self.gram.product(self.value)

    def low_rank_factor(self) -> Array | None:
        return low_rank_factor(self.gram, self.n_classes)

    def sweep(self, rng: np.random.Generator) -> None:
        value, scores = np.ascontiguousarray(self.value.T), np.ascontiguousarray(self._scores.T)
        band = self.inverse_cost, self.inverse_upper, self.low, self.high
        for panel in self.gram.row_panels(rng, _SWEEPS, lambda numbers: np.ones(len(numbers), bool)):
            descend_rows(*panel, self.label, self.rival, self.level, scores, value, self.beta, *band)
        self.value, self._scores = np.ascontiguousarray(value.T), np.ascontiguousarray(scores.T)


@dataclass(kw_only=True)
class LinearMulticlassDual(MulticlassDual):
    """With rows and a constant feature: weights (K, d + 1) are kept, that of the constant last."""

    X: Any
    constant: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weights = np.zeros((self.n_classes, self.X.shape[1] + 1))
        self._square = row_squares(self.X) + self.constant**2
        with np.errstate(over="ignore"):
            if not np.isfinite(float(self.cost @ self._square)):
                raise ValueError("Squares of the rows overflow in double precision. Rescale the columns.")

    def scores(self) -> Array:
        return np.asarray(np.asarray(self.X @ self.weights[:, :-1].T) + self.constant * self.weights[:, -1])

    def squares(self) -> Array:
        """|x|^2 of every row, the constant feature included: (n,)."""
        return self._square

    def renew(self) -> None:
        weights = np.column_stack([np.asarray((self.X.T @ self.value).T), self.constant * self.value.sum(axis=0)])
        self.weights = np.ascontiguousarray(weights)  # by rows, as kernels were compiled for

    def low_rank_factor(self) -> Array | None:
        (n, d), k = self.X.shape, self.n_classes
        if (d + 1) * k > _MAX_UNKNOWNS or n * k**2 > _MAX_NUMBERS:
            return None
        rows = self.X.toarray() if sparse.issparse(self.X) else self.X
        return np.column_stack([rows, np.full(n, self.constant)]).astype(np.float64, copy=False)

    def sweep(self, rng: np.random.Generator) -> None:
        solution = self.weights, self.value, self.beta
        band = self.inverse_cost, self.inverse_upper, self.low, self.high
        order, fixed = rng.permutation(len(self.label)), (self.label, self.rival, self.level)
        descend_weights(row_arrays(self.X), self.constant, order, *fixed, *solution, *band, self._square)


class Multipliers:
    """a = -alpha >= 0 (n, K), zero at the own class, and beta >= 0 (n,): the x of the dual x H x / 2 - c x."""

    def __init__(self, dual: MulticlassDual) -> None:
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


def solve_by_pivots(dual: KernelMulticlassDual, tol: float, rng: np.random.Generator) -> bool:
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
            wrong_a, wrong_beta = (w & (rng.random(w.shape) < 0.5) for w in (wrong_a, wrong_beta))
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


_MAX_UNKNOWNS = 1000  # rank times classes, up to which systems are solved
_MAX_NUMBERS = 2**24  # rows times squared classes: of this size are three arrays
_NO_COST = 1e-30  # share of the largest cost: rows that cost less have multipliers of zero
_MIN_PIVOT = 1e-12  # share of the largest k(x, x) below which nothing is left of the kernel
_MAX_STEPS = 80
_MAX_IDLE_STEPS = 8  # steps in a row after which the gap is no smaller: the search ends
_STEP_SHARE = 0.995  # of the way to the boundary
_CENTRING_POWER = 3  # of the predicted decrease (Mehrotra)


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


def solve_by_interior_points(dual: MulticlassDual, basis: Array, tol: float, accepted_tol: float) -> bool:
    """Solve the convex problem of this round to a relative gap of ``tol``, or as far as rounding allows.

    False if the gap is not below ``accepted_tol``; then nothing has changed. With the kernel as B B^T, B = ``basis``,
    each step takes one system of rank times classes unknowns, and costs hardly enter their number.
    """
    system = _System(Multipliers(dual), basis)
    before, best = (dual.value, dual.beta), (np.inf, dual.value.copy(), dual.beta.copy())
    x, z = system.start()
    idle = 0
    for _ in range(_MAX_STEPS):
        try:
            x, z = system.stepped(x, z)
        except LinAlgError:
            break
        dual.value, dual.beta = system.at.values(*system.split(x)), x[:, -1].copy()
        dual.renew()
        gap, primal, _ = dual.measure()
        if gap / primal < best[0]:
            best, idle = (gap / primal, dual.value.copy(), dual.beta.copy()), 0
        else:
            idle += 1
        if best[0] <= tol or idle > _MAX_IDLE_STEPS:
            break
    solved = best[0] <= accepted_tol
    dual.value, dual.beta = best[1:] if solved else before
    dual.renew()
    return solved


@dataclass(eq=False)
class _System:
    """The multipliers of row i are x_i = (a_i, beta_i): x is (n, K + 1). Some are always zero (``may`` is False)."""

    at: Multipliers
    basis: Array

    def __post_init__(self) -> None:
        dual, rows = self.at.dual, self.at.rows
        n, k = self.at.a.shape
        self.may = np.ones((n, k + 1), bool)
        self.may[rows, dual.label] = False
        self.may[:, -1] = np.isfinite(dual.inverse_upper)
        self.may[dual.cost < _NO_COST * dual.cost.max()] = False
        low, goal = self.at.linear()
        self.linear = np.where(self.may, np.column_stack([np.full((n, k), low), goal]), 0.0)
        # what each multiplier adds to the coefficients of its row: e_y - e_l for a_l, e_q - e_y for beta
        self.directions = np.zeros((n, k, k + 1))
        self.directions[:, np.arange(k), np.arange(k)] = -1.0
        self.directions[rows, dual.label, :k] += 1.0
        self.directions[rows, dual.label, k] = -1.0
        if self.at.with_rival:
            self.directions[rows, dual.rival, k] += 1.0

    def split(self, x: Array) -> tuple[Array, Array]:
        return x[:, :-1], x[:, -1]

    def curved(self, x: Array) -> Array:
        """H x."""
        a, beta = self.split(x)
        values = self.at.values(a, beta)
        curved: Array = np.column_stack(self.at.curve(a, beta, self.basis @ (self.basis.T @ values)))
        return np.where(self.may, curved, 0.0)

    def start(self) -> tuple[Array, Array]:
        """Equal multipliers of the lower side at the best length, small ones of the upper side, and their slopes."""
        x = self.may.astype(np.float64)
        x[:, -1] *= 0.1
        x *= max(float(np.vdot(self.linear, x)), 1e-3 * float(x.sum())) / float(np.vdot(x, self.curved(x)))
        slope = self.curved(x) - self.linear
        z = np.where(self.may, np.maximum(slope, 0.1 * np.abs(slope).max()), 0.0)
        return x, z

    def stepped(self, x: Array, z: Array) -> tuple[Array, Array]:
        """A predictor step, and from what it would reach the step that is taken (Mehrotra)."""
        count, complementarity = float(self.may.sum()), float(np.vdot(x, z))
        lack = self.linear + z - self.curved(x)
        self._factorise(x, z)
        dx, dz = self._direction(x, z, lack, -x * z)
        length = _length(x, dx, z, dz, 1.0)
        predicted = float(np.vdot(x + length * dx, z + length * dz))
        target = (max(predicted, 0.0) / complementarity) ** _CENTRING_POWER * complementarity / count
        dx, dz = self._direction(x, z, lack, np.where(self.may, target - x * z - dx * dz, 0.0))
        length = _length(x, dx, z, dz, _STEP_SHARE)
        return x + length * dx, z + length * dz

    def _factorise(self, x: Array, z: Array) -> None:
        """Inverses of the blocks of rows, 1 1^T / C + diag(z / x), and the system of the scores."""
        dual, basis, n_classes = self.at.dual, self.basis, self.at.a.shape[1]
        self.inverse = np.divide(x, z, out=np.zeros_like(x), where=self.may)
        self.inverse[:, -1] /= 1.0 + self.at.inverse_upper * self.inverse[:, -1]
        lower = self.inverse[:, :-1]
        self.correction = dual.inverse_cost / (1.0 + dual.inverse_cost * lower.sum(axis=1))
        weighted = self.directions * self.inverse[:, None, :]
        blocks = weighted @ self.directions.transpose(0, 2, 1)
        pulled = weighted[:, :, :-1].sum(axis=2)
        blocks -= self.correction[:, None, None] * pulled[:, :, None] * pulled[:, None, :]
        rank = basis.shape[1]
        matrix = np.empty((n_classes, rank, n_classes, rank))
        for first in range(n_classes):
            for second in range(first + 1):
                matrix[first, :, second] = block = basis.T @ (blocks[:, first, second, None] * basis)
                matrix[second, :, first] = block.T
        matrix = matrix.reshape(n_classes * rank, n_classes * rank)
        matrix[np.diag_indices_from(matrix)] += 1.0
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=True)

    def _direction(self, x: Array, z: Array, lack: Array, product: Array) -> tuple[Array, Array]:
        """dx, dz with H dx - dz = lack and z dx + x dz = product."""
        right = lack + np.divide(product, x, out=np.zeros_like(x), where=self.may)
        step = self._solve(right)
        ratio = np.divide(z, x, out=np.zeros_like(x), where=self.may)
        step += self._solve(right - self.curved(step) - ratio * step)  # once more, with what rounding has left
        return step, np.divide(product - z * step, x, out=np.zeros_like(x), where=self.may)

    def _solve(self, right: Array) -> Array:
        """(H + diag(z / x))^-1 right, by the identity of Woodbury."""
        inner = self._block_solve(right)
        values = np.einsum("ikm,im->ik", self.directions, inner)
        scores = cho_solve(self.factor, (self.basis.T @ values).T.ravel(), check_finite=False)
        back = self.basis @ scores.reshape(values.shape[1], -1).T
        return np.asarray(inner - self._block_solve(np.einsum("ikm,ik->im", self.directions, back)))

    def _block_solve(self, right: Array) -> Array:
        solved: Array = self.inverse * right
        lower = self.inverse[:, :-1]
        solved[:, :-1] -= lower * (self.correction * solved[:, :-1].sum(axis=1))[:, None]
        return solved


def _length(x: Array, dx: Array, z: Array, dz: Array, share: float) -> float:
    """The longest step, at most 1, that goes no more than this share of the way to the boundary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = [np.min(-v[dv < 0.0] / dv[dv < 0.0], initial=np.inf) for v, dv in ((x, dx), (z, dz))]
    return float(min(1.0, share * min(ways)))


NONCONVEX = ("cccp", "fixed_score")
_RENEWAL_ROUNDS = 50  # rounds after which scores are recomputed from the coefficients
_START_TOL = 1e-2  # relative gap of the start, where only the lower side counts
_ROUNDING_GAP = 1e-13  # relative gap below which rounds with little progress are at rounding level
_MAX_STILL_ROUNDS = 5  # such rounds, after which the search ends
_SLOW_RATIO = 0.9  # a round is slow if the gap keeps more than this share
_MAX_SLOW_ROUNDS = 5  # slow rounds, after which a search without patience ends
_LOOK_BACK = 5  # sweeps that the rate of descent is taken from
_MIN_ROUNDS_LEFT, _ROUNDS_PER_ROW = 20, 0.15  # rounds of sweeps that take as long as pivots to the end: measured
_MAX_FAILURES = 2  # of pivots or interior points, after which sweeps are left alone
_MAX_SHARP_SWEEPS = 50  # sweeps after which a tolerance sharper than the requested one is given up
_MAX_RIVAL_ROUNDS = 20


def solve_many_classes(
    dual: MulticlassDual,
    *,
    nonconvex: str,
    tol: float,
    asked_tol: float,
    max_iter: int,
    rng: np.random.Generator,
    patient: bool = True,
) -> Solved:
    """Set the coefficients (n, K): first for the lower side alone, then with rivals chosen until J stops falling.

    Those with the smallest J are kept, which is the last of the curve. A ``tol`` sharper than ``asked_tol`` is given up
    after a number of sweeps. If ``patient`` is False, the search ends as soon as sweeps converge slowly.
    """
    final_tol, pace = max(tol, asked_tol), _Pace()
    rounds = _inner(dual, max(tol, _START_TOL) if dual.mu > 0.0 else tol, final_tol, max_iter, rng, pace, patient)
    dual.mu_now = dual.mu
    gap, primal, true = dual.measure()
    best, curve = (true, dual.value.copy()), [true]
    for _ in range(_MAX_RIVAL_ROUNDS if dual.mu > 0.0 else 0):
        dual.choose_rivals(nonconvex)
        tol = tol if rounds < _MAX_SHARP_SWEEPS else final_tol
        rounds += _inner(dual, tol, final_tol, max_iter - rounds, rng, pace, patient)
        gap, primal, true = dual.measure()
        curve.append(true)
        gained = best[0] - true
        if true < best[0]:
            best = (true, dual.value.copy())
        if gained <= tol * true or rounds >= max_iter:
            break
    true, dual.value = best
    dual.renew()
    if curve[-1] > true:  # an earlier round is kept
        curve.append(true)
    if true > 0.5 * float(dual.cost.sum()) * dual.low**2:  # worse than no machine at all
        curve.append(_shorten(dual))
    return Solved(gap=gap, primal=primal, curve=curve, n_iter=rounds)


def _shorten(dual: MulticlassDual) -> float:
    """Scale the coefficients by the share in [0, 1] with the smallest J; returns J. The gap does not grow."""
    scores, rivals, level = dual.scores(), np.empty_like(dual.rival), np.empty_like(dual.level)
    best_rivals(scores, dual.label, rivals, level)
    margin = scores[np.arange(len(level)), dual.label] - level
    norm = float(np.vdot(dual.value, scores))

    def objective(share: float) -> float:
        low, high = np.maximum(dual.low - share * margin, 0.0), np.maximum(share * margin - dual.high, 0.0)
        return 0.5 * share * share * norm + 0.5 * float(dual.cost @ (low * low + dual.mu * high * high))

    shares = np.append(0.0, 0.5 ** np.arange(40))
    best = float(shares[np.argmin([objective(share) for share in shares])])
    dual.value = best * dual.value
    dual.beta = best * dual.beta
    dual.renew()
    return objective(best)


@dataclass
class _Pace:
    """How fast sweeps were so far, and what helps them: kept for later rounds, which are much like the earlier ones."""

    n_slow: int = 0
    n_left: float = 0.0  # rounds of sweeps until the end, at the present rate
    n_failed: int = 0  # times that pivots or interior points did not lead to the solution
    used_interior_points: bool = False  # the last time that sweeps were left out
    _factors: list[Array | None] = field(default_factory=list)  # of the kernel matrix, computed once

    def look(self, gaps: list[float], small: float) -> None:
        """Decide by the gaps after each sweep of this round; ``small`` is the one to reach."""
        self.n_slow += len(gaps) > 1 and gaps[-1] > _SLOW_RATIO * gaps[-2]
        if len(gaps) <= _LOOK_BACK:
            return
        rate = min(0.999, (gaps[-1] / gaps[-1 - _LOOK_BACK]) ** (1.0 / _LOOK_BACK))
        self.n_left = float(np.log(small / gaps[-1]) / np.log(rate))

    def low_rank_factor(self, dual: MulticlassDual) -> Array | None:
        if not self._factors:
            self._factors.append(dual.low_rank_factor())
        return self._factors[0]


def _inner(
    dual: MulticlassDual,
    tol: float,
    final_tol: float,
    max_iter: int,
    rng: np.random.Generator,
    pace: _Pace,
    patient: bool,
) -> int:
    """Sweeps until the gap of the convex problem is small, or at rounding level; returns their number.

    Where many more would follow, pivots or interior points finish.
    """
    still, at_solution = 0, False
    gaps: list[float] = []
    for number in range(1, max_iter + 1):
        at_solution = patient and not at_solution and _solve_directly(dual, tol, final_tol, rng, pace)
        if not at_solution:
            dual.sweep(rng)
            if pace.n_slow >= _MAX_SLOW_ROUNDS and not patient:
                return number
        gap, primal, _ = dual.measure()
        is_sharpest = at_solution and pace.used_interior_points  # what is left is rounding
        small = tol if number <= _MAX_SHARP_SWEEPS and not is_sharpest else max(tol, final_tol)
        if gap <= small * primal or number % _RENEWAL_ROUNDS == 0:
            dual.renew()
            gap, primal, _ = dual.measure()
        if gap <= small * primal:
            return number
        still = still + 1 if gaps and _ROUNDING_GAP * primal > gap > 0.5 * gaps[-1] else 0
        if still >= _MAX_STILL_ROUNDS:
            return number
        gaps.append(gap)
        pace.look(gaps, final_tol * primal)
    return max_iter


def _solve_directly(dual: MulticlassDual, tol: float, final_tol: float, rng: np.random.Generator, pace: _Pace) -> bool:
    """Solve the convex problem of this round without sweeps, if many would follow; False if that is not done.

    Few columns or a kernel of low rank take interior points, as pivots end in singular systems; but where a solution
    to rounding error is wanted, a kernel has pivots tried once.
    """
    if pace.n_failed >= _MAX_FAILURES or pace.n_left <= _MIN_ROUNDS_LEFT:
        return False
    has_kernel = isinstance(dual, KernelMulticlassDual)
    factor = pace.low_rank_factor(dual) if tol >= final_tol or pace.n_failed or not has_kernel else None
    pace.used_interior_points = factor is not None
    if factor is not None:
        solved = solve_by_interior_points(dual, factor, tol, max(tol, final_tol))
    elif isinstance(dual, KernelMulticlassDual):
        if pace.n_left <= _ROUNDS_PER_ROW * len(dual.label) or n_free(dual) > MAX_FREE:
            return False
        solved = solve_by_pivots(dual, final_tol, rng)
    else:
        return False
    pace.n_failed += not solved
    pace.n_left = pace.n_left if solved else 0.0
    return solved
