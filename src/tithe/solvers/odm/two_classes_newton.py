"""Newton's method for two classes and a kernel, on the rows outside the band."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from tithe.core.data import Array
from tithe.solvers.odm.kernel_matrix import not_a_kernel

if TYPE_CHECKING:
    from tithe.solvers.odm.kernel_matrix import Gram
    from tithe.solvers.odm.two_classes import Dual

DIRECT = 5000  # rows up to which systems are solved directly
_LANDMARKS = 1000  # rows that precondition larger ones, at the most
_JITTERS = (1e-6, 1e-5, 1e-4, 1e-3)  # shares of the mean diagonal: single precision takes much from a low rank
_STEPS = 200  # of conjugate gradients in one Newton step, at the most
_STILL = 1e-14  # change of the value, as a share of it, below which nothing moves


def nystroem(gram: Gram) -> Array:
    """L (n, r) with L L^T close to the kernel matrix: Nystroem, from the first rows, which are random ones."""
    rows = np.arange(min(_LANDMARKS, len(gram) // 4))
    columns = gram.columns(rows).astype(np.float64)
    low = _rounded_factor(columns[rows])
    basis: Array = solve_triangular(low, columns.T, lower=True, check_finite=False).T
    return np.ascontiguousarray(basis)


def _rounded_factor(square: Array) -> Array:
    """The lower factor of a kernel matrix, and as much on its diagonal as rounding has taken from it."""
    scale = float(np.trace(square)) / len(square)
    for jitter in _JITTERS:
        try:
            lifted = square + jitter * scale * np.eye(len(square))
            low: Array = cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
            return low
        except LinAlgError:
            continue
    raise not_a_kernel()


def newton_step(dual: Dual, basis: Array | None, *, free: bool, accuracy: float) -> bool:
    """One step towards the solution for the rows now outside the band, as long as is best; False if nothing moves.

    Rows outside solve (Q + D) gamma = 1 -+ theta among themselves, all others are zero. A free intercept b
    borders the system: Q gamma + y b in place of Q gamma, and y . gamma = 0.
    """
    margin = dual.margins()
    rows = np.flatnonzero(dual.outside(margin))
    if len(rows) == 0:
        return False
    over = margin[rows] > dual.high
    system = _System(dual, rows, np.where(over, dual.stiff[rows], dual.soft[rows]), basis, accuracy)
    sign, goal = dual.sign[rows], np.where(over, dual.high, dual.low)
    found, intercept = system.solve(goal, dual.gamma[rows]), 0.0
    if free:
        along = system.solve(sign, np.zeros(len(rows)))
        intercept = float(sign @ found) / float(sign @ along)
        found -= intercept * along
        found -= along * (float(sign @ found) / float(sign @ along))  # what rounding left of y . gamma
    step = -dual.gamma
    step[rows] += found
    lift = intercept - dual.intercept
    return _move(dual, step, lift)


def _move(dual: Dual, step: Array, lift: float) -> bool:
    """Along the step as far as the primal value falls: it is convex, with pieces that are parabolas."""
    change = dual.gram.product((dual.sign * step)[:, None])[:, 0]
    margin, bend = dual.margins(), dual.sign * (change + lift)
    straight = float((dual.sign * step) @ dual.score)
    curved = float((dual.sign * step) @ change)
    upper = dual.mu * dual.cost

    def slope(t: float) -> float:
        u = margin + t * bend
        pull = upper * np.maximum(u - dual.high, 0.0) - dual.cost * np.maximum(dual.low - u, 0.0)
        return straight + t * curved + float(pull @ bend)

    first = slope(0.0)
    scale = abs(straight) + abs(curved) + float(np.abs(dual.cost * bend * margin).sum())
    if not first < -_STILL * scale:
        return False
    length = 1.0 if slope(1.0) <= 0.0 else _root(slope, 0.0, 1.0)
    dual.gamma = dual.gamma + length * step
    dual.score = dual.score + length * change
    dual.intercept += length * lift
    return True


def _root(slope, left: float, right: float) -> float:  # type: ignore[no-untyped-def]
    """Where a slope that rises from below zero to above crosses it, to a thousandth of the way: bisection."""
    while right - left > 1e-3 * right:
        middle = 0.5 * (left + right)
        left, right = (middle, right) if slope(middle) <= 0.0 else (left, middle)
    return right if left == 0.0 else left


class _System:
    """(Q + D) x = b for some rows: directly where they are few, else by preconditioned conjugate gradients."""

    def __init__(self, dual: Dual, rows: Array, ridge: Array, basis: Array | None, accuracy: float) -> None:
        self._dual, self._rows, self._ridge, self._accuracy = dual, rows, ridge, accuracy
        sign = dual.sign[rows]
        self._factor = self._basis = None
        if basis is None:
            matrix = dual.gram.whole(rows) * sign[:, None] * sign
            matrix[np.diag_indices_from(matrix)] += ridge
            try:
                self._factor = cho_factor(matrix, lower=True, check_finite=False, overwrite_a=True)
            except LinAlgError:
                raise not_a_kernel() from None
        else:
            self._basis = basis[rows] * sign[:, None]
            scaled = self._basis / ridge[:, None]
            inner = self._basis.T @ scaled
            inner[np.diag_indices_from(inner)] += 1.0
            self._inner = cho_factor(inner, lower=True, check_finite=False, overwrite_a=True)

    def solve(self, right: Array, start: Array) -> Array:
        if self._factor is not None:
            found: Array = cho_solve(self._factor, right, check_finite=False)
            return found
        x, rest = start.copy(), right - self._times(start)
        z = self._precondition(rest)
        direction, size = z, float(rest @ z)
        enough = self._accuracy**2 * size
        for _ in range(_STEPS):
            if size <= enough:
                break
            along = self._times(direction)
            bend = float(direction @ along)
            if not bend > 0.0:
                raise not_a_kernel()
            length = size / bend
            x += length * direction
            rest -= length * along
            z = self._precondition(rest)
            before, size = size, float(rest @ z)
            direction = z + (size / before) * direction
        return x

    def _times(self, x: Array) -> Array:
        full = np.zeros((len(self._dual.sign), 1))
        full[self._rows, 0] = self._dual.sign[self._rows] * x
        product: Array = self._dual.sign[self._rows] * self._dual.gram.product(full)[self._rows, 0]
        return product + self._ridge * x

    def _precondition(self, x: Array) -> Array:
        """(B B^T + D)^-1 x by the identity of Woodbury, B the rows' part of the Nystroem basis."""
        assert self._basis is not None
        scaled = x / self._ridge
        inner = cho_solve(self._inner, self._basis.T @ scaled, check_finite=False)
        result: Array = scaled - (self._basis @ inner) / self._ridge
        return result
