"""Two classes and a kernel: rows join and leave a solved machine, which stays exact.

The cost C of every row is fixed. A row that joins has a threshold of its own, which moves from the row's present margin
to the band; the multiplier of a row that leaves moves to zero. On the way the multipliers are piecewise linear, and
they are followed from one change of sides to the next (`tithe.odm.kernels.path`). The end is the machine of the
remaining rows, up to rounding, which is removed in the same way: by thresholds that move from where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.odm.kernels.path import (
    ABOVE,
    BELOW,
    DONE,
    FIXED,
    INSIDE,
    NOT_A_KERNEL,
    TERMS_FULL,
    TOO_MANY,
    add_terms,
    follow,
    release,
    symmetric_product,
)
from tithe.odm.kernels.two_classes import margin_gap
from tithe.odm.solvers.kernel_functions import GivenKernel
from tithe.odm.solvers.kernel_matrix import Band, Gram, kernel_not_psd_error
from tithe.odm.solvers.two_classes import Dual, newton_step, solve_two_classes

_PART_ROWS = 64  # rows of a matrix that a thread takes at a time
_TRIANGLE_PARTS = 8  # of equal area, that a product with a triangle is computed in
_SERIAL_SIZE = 4_000_000  # products in a loop up to which another thread does not pay
_FIRST_TERMS = 32  # changes of sides for which there is space at first
_MIN_EVENT_LIMIT = 1000  # changes of sides that any path may have
_EVENTS_PER_ROW = 20  # changes of sides, for each row, after which a path is given up
_ACCURACY = 1e-11  # of margins and thresholds: above it they are corrected
MAX_ERROR = 1e-8  # of margins before corrections: above it the matrix is factorised anew
_ROUNDING = 1e-15  # of sums, relative
_MAX_CORRECTIONS = 4
_NEAR_TOL = 1e-8  # relative gap from which the rest of the way is a path
_MAX_ROUNDS = 1000
_MAX_NEWTON_STEPS = 50


class PathError(Exception):
    """A path that did not come to its end. The machine is to be solved directly."""


@dataclass(kw_only=True)
class Rows(Band):
    """Rows, their multipliers gamma, margins and sides, (n,) each; ``sign`` is +1 or -1."""

    sign: Array
    gamma: Array
    margin: Array
    side: Array

    def __len__(self) -> int:
        return len(self.sign)

    @classmethod
    def empty(cls, mu: float, theta: float) -> Rows:
        floats: Any = {name: np.zeros(0) for name in ("sign", "cost", "gamma", "margin")}
        return cls(mu=mu, theta=theta, side=np.zeros(0, np.int64), **floats)

    def take(self, order: Array) -> Rows:
        names = ("sign", "cost", "gamma", "margin", "side")
        return Rows(mu=self.mu, theta=self.theta, **{name: getattr(self, name)[order] for name in names})

    def joined(self, sign: Array, cost: Array, margin: Array) -> Rows:
        """These rows, and new ones without multipliers."""
        new = {"sign": sign, "cost": cost, "margin": margin, "gamma": np.zeros(len(sign))}
        values = {name: np.concatenate([getattr(self, name), value]) for name, value in new.items()}
        side = np.concatenate([self.side, np.zeros(len(sign), np.int64)])
        return Rows(mu=self.mu, theta=self.theta, side=side, **values)

    def coefficients(self) -> Array:
        """y gamma: (n,)."""
        product: Array = self.sign * self.gamma
        return product

    def band(self) -> tuple[Array, Array]:
        """Lower and upper threshold of every row. Without an upper side, the upper ones are infinite."""
        high = self.high if self.mu > 0.0 else np.inf
        return np.full(len(self), self.low), np.full(len(self), high)

    def thresholds(self) -> tuple[Array, Array]:
        """Thresholds for which multipliers and margins are a solution: those of the band, moved where they must."""
        low, high = self.band()
        below, above, inside = self.side == BELOW, self.side == ABOVE, self.side == INSIDE
        low[below] = (self.margin + self.gamma * self.soft)[below]
        high[above] = self.margin[above] + self.gamma[above] / (self.mu * self.cost[above])
        low[inside] = np.minimum(low, self.margin)[inside]
        high[inside] = np.maximum(high, self.margin)[inside]
        return low, high

    def error(self) -> float:
        """How far the thresholds of the solution are from those of the band."""
        if len(self) == 0:
            return 0.0
        (low, high), (low_goal, high_goal) = self.thresholds(), self.band()
        upper = np.abs(high - high_goal).max() if self.mu > 0.0 else 0.0
        return max(float(np.abs(low - low_goal).max()), float(upper))

    def gap(self) -> tuple[float, float]:
        """The duality gap and the primal value."""
        gap, loss = margin_gap(self.gamma, self.margin, self.cost, self.mu, self.low, self.high)
        return gap, loss + 0.5 * float(self.gamma @ self.margin)


class Tableau:
    """The kernel matrix, pivoted on the rows outside the band, and changes that were not added to it yet.

    The lower triangle of the first n rows of ``matrix`` is used. It is a whole array, not a part of one, so that
    compiled loops know that its rows are contiguous. ``terms`` (k, n) and ``signs`` (k,) are earlier changes.
    """

    def __init__(self, matrix: Array, n: int, terms: Array | None = None, signs: Array | None = None) -> None:
        self.matrix = matrix
        self.diagonal, self.shift, self.stale = matrix.diagonal()[:n].copy(), np.zeros(n), np.zeros(n, np.bool_)
        self.terms, self.signs, self.n_terms = np.empty((_FIRST_TERMS, n)), np.empty(_FIRST_TERMS), 0
        if terms is not None and signs is not None:
            self.reserve(len(signs))
            self.n_terms = len(signs)
            self.terms[: self.n_terms], self.signs[: self.n_terms] = terms, signs
            self.diagonal += signs @ np.square(terms)

    def __len__(self) -> int:
        return len(self.diagonal)

    def reset(self) -> None:
        """Drop all changes."""
        self.diagonal[:] = self.matrix.diagonal()[: len(self)]
        self.shift[:] = 0.0
        self.stale[:] = False
        self.n_terms = 0

    def reserve(self, n_terms: int) -> None:
        """Make space for more changes."""
        missing = self.n_terms + n_terms - len(self.terms)
        if missing > 0:
            more = max(missing, len(self.terms))
            self.terms = np.concatenate([self.terms, np.empty((more, self.terms.shape[1]))])
            self.signs = np.concatenate([self.signs, np.empty(more)])

    def release(self, rows: Rows, at: Array) -> None:
        """Take rows out of those that are solved for: their multipliers are prescribed from now on."""
        self.reserve(len(at))
        n_terms = release(
            self.matrix, self.stale, self.diagonal, self.shift, self.terms, self.signs, self.n_terms,
            at, rows.side, rows.soft, rows.stiff_at(rows.mu),
        )  # fmt: skip
        if n_terms < 0:
            raise PathError("rounding")
        self.n_terms = n_terms

    def follow(self, rows: Rows, low: Array, high: Array) -> None:
        """Follow the solution from these thresholds to the band, and from the multipliers of fixed rows to zero."""
        low, high, (low_goal, high_goal) = low.copy(), high.copy(), rows.band()
        with np.errstate(invalid="ignore"):
            high_speed = np.where(np.isinf(high), 0.0, high_goal - high)
        low_speed = low_goal - low
        fixed = rows.side == FIXED
        low_speed[fixed] = high_speed[fixed] = 0.0
        soft, stiff, fixed_speed = rows.soft, rows.stiff_at(rows.mu), np.where(fixed, -rows.gamma, 0.0)
        remaining, events = 1.0, _MIN_EVENT_LIMIT + _EVENTS_PER_ROW * len(rows)
        status = TERMS_FULL
        while status == TERMS_FULL:
            self.reserve(1)
            status, self.n_terms, remaining, used = follow(
                self.matrix, self.stale, self.diagonal, self.shift, self.terms, self.signs, self.n_terms,
                rows.gamma, rows.margin, rows.side, rows.sign, soft, stiff,
                low, high, low_speed, high_speed, fixed_speed, remaining, events,
            )  # fmt: skip
            events -= used
        if status == NOT_A_KERNEL:
            raise PathError("rounding, or no kernel")
        if status == TOO_MANY:
            raise PathError("too many changes of sides")
        assert status == DONE
        rows.gamma[fixed] = 0.0
        below, above = rows.side == BELOW, rows.side == ABOVE
        rows.margin[below] = rows.low - (rows.gamma * soft)[below]
        rows.margin[above] = rows.high - rows.gamma[above] * stiff[above]

    def rest(self) -> tuple[Array, Array]:
        """The terms and signs that remain to be added to the matrix, after all else that differs was written to it."""
        n = len(self)
        for p in np.flatnonzero(self.stale):
            self.matrix[p, :p] = 0.0
            self.matrix[p:n, p] = 0.0
        terms, signs = self.terms[: self.n_terms].copy(), self.signs[: self.n_terms].copy()
        np.fill_diagonal(self.matrix[:n, :n], self.diagonal - signs @ np.square(terms))
        return terms, signs

    def settle(self) -> None:
        """Add all changes to the matrix, in place."""
        n, (terms, signs) = len(self), self.rest()

        def work(first: int, last: int) -> None:
            add_terms(self.matrix, terms, signs, first * _PART_ROWS, min(n, last * _PART_ROWS))

        if self.n_terms:
            over_parts(work, -(-n // _PART_ROWS), serial=n * n * self.n_terms < _SERIAL_SIZE)
        np.fill_diagonal(self.matrix[:n, :n], self.diagonal)
        self.reset()


def pivoted(kernel: Array, rows: Rows) -> Array:
    """The tableau of the rows that are outside the band by ``rows.side``, from the whole kernel matrix (n, n)."""
    outside, inside = np.flatnonzero(rows.side != INSIDE), np.flatnonzero(rows.side == INSIDE)
    matrix = np.empty(kernel.shape)
    ridge = np.where(rows.side[outside] == BELOW, rows.soft[outside], rows.stiff_at(rows.mu)[outside])
    square = kernel[np.ix_(outside, outside)]
    square[np.diag_indices_from(square)] += ridge
    cross = kernel[np.ix_(outside, inside)]
    rest = kernel[np.ix_(inside, inside)]
    if len(outside):
        try:
            factor = cho_factor(square, lower=True, check_finite=False, overwrite_a=True)
        except LinAlgError:
            raise kernel_not_psd_error() from None
        solved = cho_solve(factor, cross, check_finite=False)
        rest -= cross.T @ solved
        rest = mirrored(rest)
        inverse, _ = lapack.dpotri(factor[0], lower=1, overwrite_c=1)
        matrix[np.ix_(outside, outside)] = -mirrored(inverse)
        matrix[np.ix_(outside, inside)] = solved
        matrix[np.ix_(inside, outside)] = solved.T
    matrix[np.ix_(inside, inside)] = rest
    return matrix


def mirrored(matrix: Array) -> Array:
    """The symmetric matrix with this lower triangle."""
    lower = np.tril(matrix)
    lower += np.tril(matrix, -1).T
    return lower


def kernel_product(kernel: Array, x: Array) -> Array:
    """kernel[:n, :n] @ x with x (n,), from the lower triangle: the same bits for any number of threads.

    ``kernel`` is a whole array.
    """
    n = len(x)
    edges = (n * np.sqrt(np.arange(_TRIANGLE_PARTS + 1) / _TRIANGLE_PARTS)).round().astype(int).tolist()
    parts = np.zeros((_TRIANGLE_PARTS, n))  # each is the sum of fixed rows, whichever thread takes it

    def work(first: int, last: int) -> None:
        for part in range(first, last):
            symmetric_product(kernel, x, parts[part], edges[part], edges[part + 1])

    over_parts(work, _TRIANGLE_PARTS, serial=n * n < _SERIAL_SIZE)
    total: Array = parts.sum(axis=0)
    return total


def corrected(kernel: Array, tableau: Tableau, rows: Rows) -> float:
    """Remove rounding errors: margins are computed from the multipliers, and followed to the band.

    Returns the error before, by which a tableau is known that was changed too often.
    """
    error = first = np.inf
    for number in range(_MAX_CORRECTIONS):
        rows.margin = rows.sign * kernel_product(kernel, rows.coefficients())
        previous, error = error, rows.error()
        first = error if number == 0 else first
        floor = _ROUNDING * float(np.abs(rows.gamma).sum() * np.abs(kernel.diagonal()[: len(rows)]).max(initial=0.0))
        if error <= _ACCURACY + floor or error > 0.5 * previous:
            break
        tableau.follow(rows, *rows.thresholds())
    return first


def solved(kernel: Array, rows: Rows) -> tuple[Rows, Tableau]:
    """The machine of all rows, from any multipliers: by descent, then along a path.

    The kernel matrix (n, n) must be symmetric and whole; that of a constant feature is part of it.
    """
    n = len(rows)
    if n == 0:
        return rows, Tableau(np.zeros((0, 0)), 0)
    gram = Gram(GivenKernel(matrix=kernel), np.arange(n), cache_bytes=kernel.nbytes)
    dual = Dual(gram=gram, sign=rows.sign, cost=rows.cost, mu=rows.mu, theta=rows.theta)
    if rows.gamma.any():
        dual.gamma = rows.gamma.copy()
        dual.renew()
    with single_blas_thread():
        solve_two_classes(dual, tol=_NEAR_TOL, max_iter=_MAX_ROUNDS, rng=np.random.default_rng(0), free=False)
        try:
            return factorised(kernel, _near(dual, rows))
        except PathError:  # Newton's method alone
            for _ in range(_MAX_NEWTON_STEPS):
                if not newton_step(dual, None, free=False, accuracy=0.0):
                    break
            return factorised(kernel, _near(dual, rows))


def _near(dual: Dual, rows: Rows) -> Rows:
    """Rows with the multipliers of a dual problem, and the sides that these and the margins agree on."""
    margin = dual.margins()
    side = np.where(margin < rows.low, BELOW, np.where((margin > rows.high) & (rows.mu > 0.0), ABOVE, INSIDE))
    agreed = np.where(np.sign(dual.gamma) == side, side, INSIDE).astype(np.int64)
    return replace(rows, gamma=np.where(agreed == INSIDE, 0.0, dual.gamma), margin=margin, side=agreed)


def factorised(kernel: Array, rows: Rows) -> tuple[Rows, Tableau]:
    """The machine from multipliers that are nearly right, and a tableau computed from the kernel matrix."""
    with single_blas_thread():
        tableau = Tableau(pivoted(kernel, rows), len(rows))
    corrected(kernel, tableau, rows)
    tableau.settle()
    return rows, tableau
