"""A kernel machine of two classes that is kept exact while rows join and leave it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.state_checks import Floats, Integer, Integers, Number, Storable, check_fields, expect
from tithe.odm.kernels.path import ABOVE, BELOW, INSIDE
from tithe.odm.solvers.path import (
    MAX_ERROR,
    PathError,
    Rows,
    Tableau,
    corrected,
    factorised,
    kernel_product,
    mirrored,
    solved,
)

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
    """A change that was computed, and is not made yet: the machine is as it was until `ExactMachine.apply`.

    ``order`` are the positions of the rows afterwards, among the old rows followed by the new ones. Matrices are given
    where they are new; else the changes of ``tableau`` are added to those of the machine.
    """

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
    """Rows, their kernel matrix, and the exact machine for them.

    The tableau (see `tithe.odm.kernels.path`) is kept beside the kernel matrix, and of both the lower triangles are
    used alone: 16 bytes for each pair of rows, half of which are never touched. Terms that rows have added to the
    tableau by joining wait in ``terms`` (k, n) with their ``signs`` (k,), to be added to ``matrix`` together. When rows
    leave, all of them are: no matrix is kept that depends on these rows.
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
        """Rows join and the rows at the positions ``removed`` leave, together.

        Parameters
        ----------
        columns : (n, k) array
            The kernel of all rows here with those that join, a constant feature included.
        square : (k, k) array
            The kernel of those that join.
        sign, cost : (k,) arrays
        removed : array of positions
        max_bytes : float
            The memory that the matrices may take.
        """
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
        whole = _whole(kernel, n + k)[np.ix_(order, order)]
        rows, tableau = solved(whole, rows.take(order))
        return _replacement(order, rows, whole, tableau)

    def rescaled(self, cost: Array) -> Change:
        """The same rows with other costs."""
        n = len(self)
        whole = _whole(self.kernel, n)
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
                whole = _whole(kernel, n)[np.ix_(order, order)]
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

    def __getstate__(self) -> dict[str, Any]:
        """The state without unused memory: one half of each matrix, row by row."""
        n, rows = len(self), self.rows
        lower = np.tril_indices(n)
        return {
            "sign": rows.sign,
            "cost": rows.cost,
            "gamma": rows.gamma,
            "margin": rows.margin,
            "side": rows.side,
            "mu": rows.mu,
            "theta": rows.theta,
            "terms": self.terms,
            "signs": self.signs,
            "n_unchecked": self.n_unchecked,
            "kernel": self.kernel[:n, :n][lower],
            "matrix": self.matrix[:n, :n][lower],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_fields(state, _STATE, who="ExactMachine")
        n = len(state["sign"])
        expect(len(state["kernel"]) == len(state["matrix"]) == n * (n + 1) // 2, "the matrices have another size")
        inside = np.isin(state["side"], (BELOW, INSIDE, ABOVE)).all() and (np.abs(state["sign"]) == 1.0).all()
        expect(inside, "rows have no side or no sign")
        expect(not (state["side"] == ABOVE).any() or state["mu"] > 0.0, "rows are above a band without an upper side")
        names = ("sign", "cost", "gamma", "margin", "side", "mu", "theta")
        self.rows = Rows(**{name: state[name] for name in names})
        self.terms, self.signs, self.n_unchecked = state["terms"], state["signs"], state["n_unchecked"]
        self.kernel, self.matrix = (_unpacked(state[name], n) for name in ("kernel", "matrix"))

    def _check_state(self) -> None:
        pass  # all of it was checked before it was unpacked


_STATE = {
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


def _unpacked(lower: Array, n: int) -> Array:
    matrix = np.zeros((n, n))
    matrix[np.tril_indices(n)] = lower
    return matrix


def _whole(matrix: Array, n: int) -> Array:
    """The symmetric matrix (n, n) of which the lower triangle is stored."""
    return mirrored(matrix[:n, :n])


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
