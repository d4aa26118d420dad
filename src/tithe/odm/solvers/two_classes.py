"""Two classes and a kernel: dual coordinate descent, and Newton steps on rows outside the band."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients
from tithe.odm.kernels.two_classes import descend_rows, margin_gap
from tithe.odm.solvers.kernel_matrix import (
    Gram,
    MarginLoss,
    Solved,
    kernel_not_psd_error,
    landmark_features,
    step_length,
)

_SWEEPS = 3  # over all rows in a round, if the matrix is held
_SLOW_RATIO = 0.7  # a round is slow if the gap keeps more than this share
_MAX_SLOW_ROUNDS = 2  # slow rounds in a row, after which Newton's method takes over
_RENEWAL_ROUNDS = 50  # rounds after which scores are recomputed from the multipliers
_FIRST_ACCURACY, _LAST_ACCURACY = 1e-4, 1e-9  # of an iterative Newton step: raised while no step moves
MAX_DIRECT_ROWS = 5000  # rows up to which systems are solved directly
_MAX_LANDMARKS = 1000  # rows of the preconditioner of larger systems
_JITTERS = (1e-6, 1e-5, 1e-4, 1e-3)  # shares of the mean diagonal: single precision takes much from a low rank
_MAX_CG_STEPS = 200  # of conjugate gradients in one Newton step
_ROUNDING = 1e-14  # relative change of the value below which a step is not taken


@dataclass(kw_only=True, eq=False)
class Dual(MarginLoss):
    """Multipliers of two classes: min over gamma of gamma Q gamma / 2 + sum of D gamma^2 / 2 - band . gamma.

    gap = P(w) - D(gamma) is a sum of what each row lacks of gamma = C [low - u]+ - mu C [u - high]+ at its margin, and
    |w - w*|^2 <= 2 gap. ``intercept`` is that of a free intercept, else 0.
    """

    gram: Gram
    sign: Array
    gamma: Array = field(init=False)
    score: Array = field(init=False)
    intercept: float = 0.0

    def __post_init__(self) -> None:
        self.gamma = np.zeros(len(self.sign))
        self.score = np.zeros(len(self.sign))
        self.inverse_upper = self.inverse_upper_cost(self.mu)

    def margins(self) -> Array:
        return self.sign * (self.score + self.intercept)

    def renew(self) -> None:
        """Recompute scores from the multipliers, which removes the rounding errors of many small changes."""
        self.score = self.gram.product((self.sign * self.gamma)[:, None])[:, 0]

    def gap(self) -> tuple[float, float]:
        """The duality gap and the primal value."""
        gap, loss = margin_gap(self.gamma, self.margins(), self.cost, self.mu, self.low, self.high)
        norm = float((self.sign * self.gamma) @ self.score)
        if not np.isfinite(norm):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        if norm < -1e-6 * float(np.abs(self.gamma * self.score).sum()):
            raise kernel_not_psd_error()
        return gap, loss + 0.5 * norm

    def outside(self, margin: Array) -> Array:
        """A mask of the rows whose multipliers are not zero at these margins."""
        below: Array = margin < self.low
        return below | (margin > self.high) if self.mu > 0.0 else below

    def clipped(self) -> Dual:
        """A copy without negative multipliers, which a one-sided loss does not allow."""
        result = copy(self)
        result.gamma = np.maximum(self.gamma, 0.0)
        result.renew()
        return result


def solve_two_classes(dual: Dual, *, tol: float, max_iter: int, rng: np.random.Generator, free: bool) -> KernelSolution:
    """The machine to a relative gap of ``tol``; the multipliers in ``dual`` are changed in place.

    Newton's method takes over from coordinate descent that gets slow, and is used alone with a ``free`` intercept.
    """
    rounds = _newton(dual, tol, max_iter, free=True) if free else _rounds(dual, tol, max_iter, rng)
    gap, primal = dual.gap()
    if gap > tol * primal and rounds < max_iter and dual.gram.function.dtype != np.float64:
        dual.gram = dual.gram.in_double()
        dual.renew()
        rounds += _newton(dual, tol, max_iter - rounds, free=free)
        gap, primal = dual.gap()
    return KernelSolution(
        coefficients=(dual.sign * dual.gamma)[None],
        scores=(dual.score + dual.intercept)[:, None],
        intercept=dual.intercept,
        function=dual.gram.function,
        gap=gap,
        primal=primal,
        curve=[primal],
        n_iter=rounds,
    )


def _rounds(dual: Dual, tol: float, max_iter: int, rng: np.random.Generator) -> int:
    """Rounds of coordinate descent over all panels, then Newton steps if these get slow; returns their number."""
    slow, previous_gap = 0, np.inf
    for number in range(1, max_iter + 1):
        _round(dual, rng)
        gap, primal = dual.gap()
        if gap <= tol * primal or number % _RENEWAL_ROUNDS == 0:
            dual.renew()
            gap, primal = dual.gap()
        if gap <= tol * primal:
            return number
        slow = slow + 1 if gap > _SLOW_RATIO * previous_gap else 0
        if slow >= _MAX_SLOW_ROUNDS:
            dual.renew()
            return number + _newton(dual, tol, max_iter - number, free=False)
        previous_gap = gap
    return max_iter


def _round(dual: Dual, rng: np.random.Generator) -> None:
    """Exact coordinate steps over every row, in random order."""

    def moves(numbers: Array) -> Array:
        return np.asarray(dual.outside(dual.margins()[numbers]) | (dual.gamma[numbers] != 0.0))

    band = dual.inverse_cost, dual.inverse_upper, dual.low, dual.high
    for panel in dual.gram.row_panels(rng, _SWEEPS, moves):
        descend_rows(*panel, dual.sign, dual.score, dual.gamma, *band)


def _newton(dual: Dual, tol: float, max_iter: int, *, free: bool) -> int:
    """Active-set Newton steps until the gap is small or nothing moves; returns their number."""
    basis = None if len(dual.gram) <= MAX_DIRECT_ROWS else nystroem(dual.gram)
    number, accuracy = 0, _FIRST_ACCURACY
    while True:
        candidate = dual if dual.mu > 0.0 or dual.gamma.min() >= 0.0 else dual.clipped()
        gap, primal = candidate.gap()
        if gap <= tol * primal or accuracy < _LAST_ACCURACY or number == max_iter:
            dual.gamma, dual.score = candidate.gamma, candidate.score
            return number
        moved = newton_step(dual, basis, free=free, accuracy=accuracy)
        accuracy = _FIRST_ACCURACY if moved else accuracy * 0.01 if basis is not None else 0.0
        number += 1


def nystroem(gram: Gram) -> Array:
    """L (n, r) with L L^T close to the kernel matrix: Nystroem, from the first rows, which are random ones."""
    rows = np.arange(min(_MAX_LANDMARKS, len(gram) // 4))
    try:
        return landmark_features(gram.columns(rows).astype(np.float64), rows, _JITTERS)
    except LinAlgError:
        raise kernel_not_psd_error() from None


def newton_step(dual: Dual, basis: Array | None, *, free: bool, accuracy: float) -> bool:
    """One step towards the solution for the rows now outside the band, as long as is best; False if nothing moves.

    Rows outside solve (Q + D) gamma = 1 -+ theta; a free intercept b borders the system, and y . gamma = 0.
    """
    margin = dual.margins()
    rows = np.flatnonzero(dual.outside(margin))
    if len(rows) == 0:
        return False
    over = margin[rows] > dual.high
    system = _System(dual, rows, np.where(over, dual.inverse_upper[rows], dual.inverse_cost[rows]), basis, accuracy)
    sign, goal = dual.sign[rows], np.where(over, dual.high, dual.low)
    target, intercept = system.solve(goal, dual.gamma[rows]), 0.0
    if free:
        response = system.solve(sign, np.zeros(len(rows)))
        intercept = float(sign @ target) / float(sign @ response)
        target -= intercept * response
        target -= response * (float(sign @ target) / float(sign @ response))  # what rounding left of y . gamma
    step = -dual.gamma
    step[rows] += target
    lift = intercept - dual.intercept
    return _move(dual, step, lift)


def _move(dual: Dual, step: Array, lift: float) -> bool:
    """Move along the step as far as the primal value falls: it is convex and piecewise quadratic."""
    change = dual.gram.product((dual.sign * step)[:, None])[:, 0]
    margin, margin_change = dual.margins(), dual.sign * (change + lift)
    straight = float((dual.sign * step) @ dual.score)
    curved = float((dual.sign * step) @ change)
    upper = dual.mu * dual.cost

    def slope(t: float) -> float:
        u = margin + t * margin_change
        slopes = upper * np.maximum(u - dual.high, 0.0) - dual.cost * np.maximum(dual.low - u, 0.0)
        return straight + t * curved + float(slopes @ margin_change)

    scale = abs(straight) + abs(curved) + float(np.abs(dual.cost * margin_change * margin).sum())
    if not slope(0.0) < -_ROUNDING * scale:
        return False
    length = step_length(slope, xtol=1e-15, rtol=1e-3)
    dual.gamma = dual.gamma + length * step
    dual.score = dual.score + length * change
    dual.intercept += length * lift
    return True


class _System:
    """(Q + D) x = b for some rows: directly where they are few, else by preconditioned conjugate gradients."""

    def __init__(self, dual: Dual, rows: Array, ridge: Array, basis: Array | None, accuracy: float) -> None:
        self._dual, self._rows, self._ridge, self._accuracy = dual, rows, ridge, accuracy
        sign = dual.sign[rows]
        self._factor = self._basis = None
        if basis is None:
            matrix = dual.gram.submatrix(rows) * sign[:, None] * sign
            matrix[np.diag_indices_from(matrix)] += ridge
            try:
                self._factor = cho_factor(matrix, lower=True, check_finite=False, overwrite_a=True)
            except LinAlgError:
                raise kernel_not_psd_error() from None
        else:
            self._basis = basis[rows] * sign[:, None]
            scaled = self._basis / ridge[:, None]
            inner = self._basis.T @ scaled
            inner[np.diag_indices_from(inner)] += 1.0
            self._inner = cho_factor(inner, lower=True, check_finite=False, overwrite_a=True)

    def solve(self, right: Array, start: Array) -> Array:
        if self._factor is not None:
            return np.asarray(cho_solve(self._factor, right, check_finite=False))
        residual = right - self._times(start)
        small = self._accuracy**2 * float(residual @ self._precondition(residual))
        solution, definite = conjugate_gradients(
            self._times,
            right,
            precondition=self._precondition,
            is_small=lambda _, size: size <= small,
            max_steps=_MAX_CG_STEPS,
            start=start,
        )
        if not definite:
            raise kernel_not_psd_error()
        return solution

    def _times(self, x: Array) -> Array:
        full = np.zeros((len(self._dual.sign), 1))
        full[self._rows, 0] = self._dual.sign[self._rows] * x
        product: Array = self._dual.sign[self._rows] * self._dual.gram.product(full)[self._rows, 0]
        return np.asarray(product + self._ridge * x)

    def _precondition(self, x: Array) -> Array:
        """(B B^T + D)^-1 x by the identity of Woodbury, B the rows' part of the Nystroem basis."""
        assert self._basis is not None
        scaled = x / self._ridge
        inner = cho_solve(self._inner, self._basis.T @ scaled, check_finite=False)
        return np.asarray(scaled - (self._basis @ inner) / self._ridge)


@dataclass(frozen=True, kw_only=True)
class KernelSolution(Solved):
    """A machine f_k(x) = sum_i coefficients_ki k(x_i, x) + intercept, and what is proved of it.

    ``coefficients`` are (k, n), ``scores`` (n, k) those of the training rows, the intercept in them; k = 1 for two
    classes.
    """

    coefficients: Array
    scores: Array
    function: Any
    intercept: float = 0.0
