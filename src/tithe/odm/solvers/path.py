"""Two classes and a kernel: rows join and leave a solved machine, which stays exact.

The cost C of every row is fixed. A row that joins has a threshold of its own, which moves from the row's present margin
to the band; the multiplier of a row that leaves moves to zero. On the way the multipliers are piecewise linear, and
they are followed from one change of sides to the next (`tithe.odm.kernels.path`). The end is the machine of the
remaining rows, up to rounding, which is removed in the same way: by thresholds that move from where the rows are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, Self

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.state_checks import Check, Floats, Integer, Integers, Number, Storable, check_fields, expect
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
from tithe.odm.solvers.kernel_matrix import GivenKernel, Gram, MarginLoss, kernel_not_psd_error
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


@dataclass(kw_only=True, eq=False)
class Rows(MarginLoss):
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
        return np.asarray(self.sign * self.gamma)

    def band(self) -> tuple[Array, Array]:
        """Lower and upper threshold of every row. Without an upper side, the upper ones are infinite."""
        high = self.high if self.mu > 0.0 else np.inf
        return np.full(len(self), self.low), np.full(len(self), high)

    def thresholds(self) -> tuple[Array, Array]:
        """Thresholds for which multipliers and margins are a solution: those of the band, moved where they must."""
        low, high = self.band()
        below, above, inside = self.side == BELOW, self.side == ABOVE, self.side == INSIDE
        low[below] = (self.margin + self.gamma * self.inverse_cost)[below]
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
            at, rows.side, rows.inverse_cost, rows.inverse_upper_cost(rows.mu),
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
        lower, upper = rows.inverse_cost, rows.inverse_upper_cost(rows.mu)
        fixed_speed = np.where(fixed, -rows.gamma, 0.0)
        remaining, events = 1.0, _MIN_EVENT_LIMIT + _EVENTS_PER_ROW * len(rows)
        status = TERMS_FULL
        while status == TERMS_FULL:
            self.reserve(1)
            status, self.n_terms, remaining, used = follow(
                self.matrix, self.stale, self.diagonal, self.shift, self.terms, self.signs, self.n_terms,
                rows.gamma, rows.margin, rows.side, rows.sign, lower, upper,
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
        rows.margin[below] = rows.low - (rows.gamma * lower)[below]
        rows.margin[above] = rows.high - rows.gamma[above] * upper[above]

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
    ridge = np.where(rows.side[outside] == BELOW, rows.inverse_cost[outside], rows.inverse_upper_cost(rows.mu)[outside])
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
    """kernel[:n, :n] @ x with x (n,), from the lower triangle: the same bits for any number of threads."""
    n = len(x)
    edges = (n * np.sqrt(np.arange(_TRIANGLE_PARTS + 1) / _TRIANGLE_PARTS)).round().astype(int).tolist()
    parts = np.zeros((_TRIANGLE_PARTS, n))  # each is the sum of fixed rows, whichever thread takes it

    def work(first: int, last: int) -> None:
        for part in range(first, last):
            symmetric_product(kernel, x, parts[part], edges[part], edges[part + 1])

    over_parts(work, _TRIANGLE_PARTS, serial=n * n < _SERIAL_SIZE)
    return np.asarray(parts.sum(axis=0))


def corrected(kernel: Array, tableau: Tableau, rows: Rows) -> float:
    """Follow margins computed from the multipliers to the band: removes rounding errors. Returns the error before."""
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
    """The machine of all rows, from any multipliers: by descent, then along a path. The kernel is whole."""
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


_MIN_PATH_LIMIT = 64  # so many rows join or leave by a path, whatever the size of the machine
_MAX_PATH_SHARE = 0.3  # share of the rows above which the machine is solved directly, as a path takes longer
_GROWTH = 1.5  # of the matrices, when they are full
_VALUE_BYTES = 16  # for each pair of rows: a number of the kernel matrix, and one of the tableau
_MAX_WAITING = 16  # terms that wait to be added to a matrix
_CHECK_EVERY = 8  # changes, after which margins are computed from the kernel matrix, and corrected
_MAX_UNCHECKED_ERROR = 1e-10  # of some margins, above which all are computed anew at once
_CHECKED_ROWS = 64  # whose margins are computed after every change
_PANEL_ROWS = 256  # of a triangle that are made whole at a time
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change that is not made yet. ``order`` are the positions of its rows among old and new ones."""

    order: Array
    rows: Rows
    kernel: Array
    matrix: Array
    tableau: Tableau | None
    n_unchecked: int = 0


def _replacement(order: Array, rows: Rows, kernel: Array, tableau: Tableau) -> Change:
    """A change by new matrices, of which the lower triangles are kept."""
    return Change(order=order, rows=rows, kernel=np.tril(kernel), matrix=np.tril(tableau.matrix), tableau=None)


class ExactMachine(Storable):
    """Rows, the lower triangles of their kernel matrix and of its tableau, and the exact machine for them.

    Terms that rows have added to the tableau by joining wait in ``terms`` (k, n) with their ``signs`` (k,). When rows
    leave, all are added: no matrix is kept that depends on these rows.
    """

    def __init__(self, mu: float, theta: float) -> None:
        self.rows = Rows.empty(mu, theta)
        self.kernel, self.matrix = np.zeros((0, 0)), np.zeros((0, 0))
        self.terms, self.signs, self.n_unchecked = np.zeros((0, 0)), np.zeros(0), 0

    def __len__(self) -> int:
        return len(self.rows)

    def gap_bound(self) -> float:
        """An upper bound of the duality gap, rounding included; the margins are computed from the kernel matrix."""
        margin = self.rows.sign * kernel_product(self.kernel, self.rows.coefficients())
        return gap_bound(replace(self.rows, margin=margin), self.largest())

    def largest(self) -> float:
        """The largest k(x, x) of a row."""
        return float(np.abs(self.kernel.diagonal()[: len(self)]).max(initial=0.0))

    # -- changes -------------------------------------------------------------------------------

    def prepare(
        self, columns: Array, square: Array, sign: Array, cost: Array, removed: Array, *, max_bytes: float
    ) -> Change:
        """Rows join and others leave: kernels (n, k), (k, k) have the constant, ``removed`` are positions."""
        n, k = columns.shape
        check_memory(n + k, max_bytes)
        kernel, matrix = self._with_space(n + k, max_bytes)
        kernel[n : n + k, :n] = columns.T
        kernel[n : n + k, n : n + k] = np.tril(square)
        margin = sign * (columns.T @ self.rows.coefficients())
        rows = self.rows.joined(sign, cost, margin)
        order = _order_without(n + k, removed)
        if k + len(removed) <= max(_MIN_PATH_LIMIT, _MAX_PATH_SHARE * n):
            try:
                return self._by_path(kernel, matrix, rows, removed, order)
            except PathError:
                rows = self.rows.joined(sign, cost, margin)
        whole = mirrored(kernel[: n + k, : n + k])[np.ix_(order, order)]
        rows, tableau = solved(whole, rows.take(order))
        return _replacement(order, rows, whole, tableau)

    def rescaled(self, cost: Array) -> Change:
        """The same rows with other costs."""
        n = len(self)
        whole = mirrored(self.kernel[:n, :n])
        rows, tableau = solved(whole, replace(self.rows.take(np.arange(n)), cost=cost))
        return _replacement(np.arange(n), rows, whole, tableau)

    def apply(self, change: Change) -> None:
        """Make a change. This must not be interrupted."""
        n, tableau = len(change.rows), change.tableau
        self.kernel, self.matrix = change.kernel, change.matrix
        self.terms, self.signs = np.zeros((0, n)), np.zeros(0)
        if tableau is not None and n == len(tableau) and tableau.n_terms <= _MAX_WAITING:
            self.terms, self.signs = tableau.rest()
        elif tableau is not None:
            tableau.settle()
            for buffer in (self.kernel, self.matrix):
                _compact(buffer, change.order, len(tableau))
        self.rows, self.n_unchecked = change.rows, change.n_unchecked

    def _by_path(self, kernel: Array, matrix: Array, rows: Rows, removed: Array, order: Array) -> Change:
        n_old, n, n_unchecked = len(self), len(rows), self.n_unchecked + 1
        _extend(matrix, kernel, self.rows.side != INSIDE, n, self.terms, self.signs)
        waiting = np.concatenate([self.terms, np.zeros((len(self.signs), n - n_old))], axis=1)
        tableau = Tableau(matrix, n, waiting, self.signs)
        tableau.release(rows, removed)
        low, high = rows.band()
        low[n_old:] = np.minimum(low, rows.margin)[n_old:]
        high[n_old:] = np.maximum(high, rows.margin)[n_old:]
        tableau.follow(rows, low, high)
        if n_unchecked == _CHECK_EVERY or _error_of_some(kernel, rows) > _MAX_UNCHECKED_ERROR:
            n_unchecked = 0
            if corrected(kernel, tableau, rows) > MAX_ERROR:
                whole = mirrored(kernel[:n, :n])[np.ix_(order, order)]
                rows, tableau = factorised(whole, rows.take(order))
                return _replacement(order, rows, whole, tableau)
        return Change(
            order=order,
            rows=rows.take(order),
            kernel=kernel,
            matrix=matrix,
            tableau=tableau,
            n_unchecked=n_unchecked,
        )

    def _with_space(self, n_rows: int, max_bytes: float) -> tuple[Array, Array]:
        """The matrices, or larger copies if there is no space for so many rows."""
        n, size = len(self), len(self.kernel)
        if n_rows <= size:
            return self.kernel, self.matrix
        size = min(_max_rows(max_bytes), int(_GROWTH * n_rows))
        kernel, matrix = np.zeros((size, size)), np.zeros((size, size))
        kernel[:n, :n], matrix[:n, :n] = self.kernel[:n, :n], self.matrix[:n, :n]
        return kernel, matrix

    # -- on disk -------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """The state without unused memory: one half of each matrix, row by row."""
        n = len(self)
        lower = np.tril_indices(n)
        own = {name: getattr(self, name) for name in ("terms", "signs", "n_unchecked")}
        halves = {"kernel": self.kernel[:n, :n][lower], "matrix": self.matrix[:n, :n][lower]}
        return {**{name: getattr(self.rows, name) for name in _ROWS}, **own, **halves}

    @classmethod
    def stored_checks(cls) -> Mapping[str, Check]:
        return _STORED

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        check_fields(record, _STORED, who=cls.__name__)
        n, side = len(record["sign"]), record["side"]
        expect(len(record["kernel"]) == len(record["matrix"]) == n * (n + 1) // 2, "the matrices have another size")
        inside = np.isin(side, (BELOW, INSIDE, ABOVE)).all() and (np.abs(record["sign"]) == 1.0).all()
        expect(inside, "rows have no side or no sign")
        expect(not (side == ABOVE).any() or record["mu"] > 0.0, "rows are above a band without an upper side")
        machine = cls(record["mu"], record["theta"])
        machine.rows = Rows(**{name: record[name] for name in _ROWS})
        machine.terms, machine.signs, machine.n_unchecked = record["terms"], record["signs"], record["n_unchecked"]
        machine.kernel, machine.matrix, lower = np.zeros((n, n)), np.zeros((n, n)), np.tril_indices(n)
        machine.kernel[lower], machine.matrix[lower] = record["kernel"], record["matrix"]
        return machine


_STORED = {
    "sign": Floats("n"),
    "cost": Floats("n", least=float(np.finfo(np.float64).tiny)),
    "gamma": Floats("n"),
    "margin": Floats("n"),
    "side": Integers("n"),
    "mu": Number(least=0.0, most=1.0),
    "theta": Number(least=0.0, most=1.0),
    "terms": Floats("waiting", "n"),
    "signs": Floats("waiting", least=-1.0, most=1.0),
    "n_unchecked": Integer(most=_CHECK_EVERY - 1),
    "kernel": Floats("pairs"),
    "matrix": Floats("pairs"),
}
_ROWS = ("sign", "cost", "gamma", "margin", "side", "mu", "theta")  # of `Rows`


def _max_rows(max_bytes: float) -> int:
    return isqrt(int(min(max_bytes, 1e18)) // _VALUE_BYTES)


def check_memory(n_rows: int, max_bytes: float) -> None:
    """Refuse more rows than the memory allows."""
    if n_rows > _max_rows(max_bytes):
        raise ValueError(
            f"{n_rows} rows need {_VALUE_BYTES * n_rows**2 / 1e6:.0f} MB for their kernel matrix, more than "
            f"cache_size={max_bytes / 1e6:g} allows ({_max_rows(max_bytes)} rows). Raise cache_size, or forget rows "
            "first."
        )


def gap_bound(rows: Rows, largest: float) -> float:
    """An upper bound of the duality gap, rounding of the margins included; ``largest`` is that of k(x, x)."""
    gap, _ = rows.gap()
    rounding = (len(rows) + 2) * _EPSILON * largest * float(np.abs(rows.gamma).sum())
    return float((gap**0.5 + rounding * (0.5 * float(rows.cost.sum())) ** 0.5) ** 2)


def _error_of_some(kernel: Array, rows: Rows) -> float:
    """The largest error of the margins of the last rows. Errors of multipliers show in the margins of all rows."""
    n = len(rows)
    first = max(0, n - _CHECKED_ROWS)
    part = kernel[first:n, :n].copy()
    part[:, first:] = mirrored(part[:, first:])
    margin = rows.sign[first:] * (part @ rows.coefficients())
    return float(np.abs(margin - rows.margin[first:]).max(initial=0.0))


def _order_without(n_rows: int, removed: Array) -> Array:
    """Positions without those removed: the last rows move into the gaps, so that little of a matrix is copied."""
    n_kept = n_rows - len(removed)
    order, gone = np.arange(n_kept), np.zeros(n_rows, np.bool_)
    gone[removed] = True
    order[gone[:n_kept]] = np.flatnonzero(~gone[n_kept:]) + n_kept
    return order


def _compact(buffer: Array, order: Array, n_before: int) -> None:
    """Rows and columns of the triangle in this order, in place; nothing is left of others."""
    n = len(order)
    for gap in np.flatnonzero(order != np.arange(n)):
        source = order[gap]
        column = np.concatenate([buffer[source, :source], buffer[source:n_before, source]])
        buffer[gap, :gap], buffer[gap:n_before, gap] = column[:gap], column[gap:]
        buffer[gap, gap] = column[source]
    buffer[n:n_before, :n_before] = 0.0


def _extend(matrix: Array, kernel: Array, outside: Array, n: int, terms: Array, signs: Array) -> None:
    """Rows of the tableau for rows that join, in the memory after those that were there."""
    n_old, k = len(outside), n - len(outside)
    columns = kernel[n_old:n, :n_old].T
    seen = np.where(outside[:, None], columns, 0.0)
    new = np.where(outside[:, None], 0.0, columns) - terms.T @ (signs[:, None] * (terms @ seen))
    if k == 1:
        new[:, 0] -= kernel_product(matrix, np.ascontiguousarray(seen[:, 0]))
    elif k:
        for first in range(0, n_old, _PANEL_ROWS):
            at = slice(first, min(n_old, first + _PANEL_ROWS))
            panel = np.concatenate([matrix[at, : at.stop], matrix[at.stop : n_old, at].T], axis=1)
            panel[:, at] += np.tril(matrix[at, at], -1).T
            new[at] -= panel @ seen
    matrix[n_old:n, :n_old] = new.T
    matrix[n_old:n, n_old:n] = np.tril(kernel[n_old:n, n_old:n]) - np.tril(seen.T @ new)


def held_out(
    kernel: Array,
    sign: Array,
    cost: Array,
    gamma: Array,
    groups: Sequence[Array] | None = None,
    *,
    mu: float,
    theta: float,
) -> Array:
    """The decision value of each row for the machine without the rows of its group, None being itself alone: (n,).

    Values are exact, with the costs C of the other rows as they are. ``kernel`` (n, n) has the constant feature in it.
    The multipliers ``gamma`` (n,) need not be exact: the solver starts there.
    """
    groups = [np.array([i]) for i in range(len(sign))] if groups is None else groups
    side = np.zeros(len(sign), np.int64)
    start = Rows(sign=sign, cost=cost, gamma=gamma, margin=np.zeros(len(sign)), side=side, mu=mu, theta=theta)
    rows, tableau = solved(kernel, start)
    margins = np.empty(len(sign))

    def work(first: int, last: int) -> None:
        overlay = Tableau(tableau.matrix, len(rows))
        for group in groups[first:last]:
            margins[group] = _margins_without(kernel, overlay, rows, group)
            overlay.reset()

    over_parts(work, len(groups))
    return sign * margins


def _margins_without(kernel: Array, overlay: Tableau, rows: Rows, group: Array) -> Array:
    """Margins of the rows of a group for the machine without them: r - gamma / R_pp where no row changes sides."""
    if not (rows.side[group] != INSIDE).any():
        return np.asarray(rows.margin[group])
    moved = rows.take(np.arange(len(rows)))
    try:
        overlay.release(moved, group)
        overlay.follow(moved, *moved.band())
        margins = moved.margin[group]
    except PathError:
        kept = np.setdiff1d(np.arange(len(rows)), group)
        others, _ = solved(kernel[np.ix_(kept, kept)], rows.take(kept))
        margins = rows.sign[group] * (kernel[np.ix_(group, kept)] @ others.coefficients())
    return margins
