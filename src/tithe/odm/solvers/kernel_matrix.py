"""What the dual problems of kernel machines share: the kernel matrix, and the band in which margins cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.parallel import over_parts

SQUARE_ROWS = 256  # rows of the squares that the matrix is computed in
MAX_DOUBLE_ROWS = 4096  # rows up to which the matrix is in double precision


class Gram:
    """K = k(x_i, x_j) + constant, held as far as ``cache_bytes`` allow and computed again beyond.

    The first rows of the matrix are held, as many as fit into the memory. They are computed in squares, those below
    the diagonal as mirror images. The bits of all results depend on ``cache_bytes``, but not on the number of threads.

    Parameters
    ----------
    function : KernelFunction or GivenKernel
    X : array or CSR matrix of shape (n, d), or positions in a given matrix
        In random order.
    constant : float
        The square of a constant feature: a penalised intercept.
    cache_bytes : float
    """

    def __init__(self, function: Any, X: Any, *, constant: float = 0.0, cache_bytes: float) -> None:
        self.function = function
        self.X = X
        self.rows = rows = function.prepare(X)
        self.constant = constant
        self.cache_bytes = cache_bytes
        self._squares = [slice(k, min(len(rows), k + SQUARE_ROWS)) for k in range(0, len(rows), SQUARE_ROWS)]
        self._chunks = [rows.take(at) for at in self._squares]
        fitting = int(min(len(rows), cache_bytes // (len(rows) * np.dtype(function.dtype).itemsize)))
        self._n_held = fitting if fitting == len(rows) else fitting // SQUARE_ROWS * SQUARE_ROWS
        self._held: Array | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.rows)

    def diagonal(self) -> Array:
        """(n,), in double precision."""
        diagonal: Array = self.function.diagonal(self.rows) + self.constant
        return diagonal

    def visits(self, rng: np.random.Generator, n_sweeps: int, is_needed: Callable[[Array], Array]) -> Iterator[Visit]:
        """All rows in random order, and their rows of K: the order in which coordinate descent visits them.

        There are ``n_sweeps`` orders if the whole matrix is held, else one. A fixed order, and one in which the same
        rows always follow each other, is many times slower. Where the matrix is not held, rows are left out that
        ``is_needed`` (row numbers to a mask) says will not move: their part of the matrix need not be computed.
        """
        n, held = len(self), self._first_rows()
        if len(held) == n:
            orders = rng.permuted(np.broadcast_to(np.arange(n), (n_sweeps, n)), axis=1)
            yield Visit(matrix=held, places=orders, numbers=orders)
            return
        order = rng.permutation(n)
        for start in range(0, n, SQUARE_ROWS):
            numbers = order[start : start + SQUARE_ROWS]
            numbers = numbers[is_needed(numbers)]
            if len(numbers):
                yield Visit(matrix=self._panel(numbers), places=np.arange(len(numbers))[None], numbers=numbers[None])

    def product(self, coefficients: Array) -> Array:
        """K @ coefficients: (n, k)."""
        scores = np.zeros((len(self), coefficients.shape[1]))
        chunks = [coefficients[at].astype(self.function.dtype, copy=False) for at in self._squares]

        def add(at: slice, rows: Array) -> None:
            for columns, chunk in zip(self._squares, chunks, strict=True):
                scores[at] += rows[:, columns] @ chunk  # in single precision, sums of few numbers only

        self._over_rows(add)
        return scores

    def submatrix(self, rows: Array) -> Array:
        """K restricted to ``rows``, which ascend, in double precision."""
        matrix = np.empty((len(rows), len(rows)))

        def copy(at: slice, panel: Array) -> None:
            start, stop = np.searchsorted(rows, [at.start, at.stop])
            matrix[start:stop] = panel[np.ix_(rows[start:stop] - at.start, rows)]

        self._over_rows(copy)
        return matrix

    def columns(self, rows: Array) -> Array:
        """K[:, rows]: (n, len(rows)), computed without the cache."""
        matrix = np.empty((len(self), len(rows)), self.function.dtype)
        self._over_columns(rows, lambda at, columns: matrix.__setitem__(at, columns))
        return matrix

    def _over_columns(self, rows: Array, use: Callable[[slice, Array], None]) -> None:
        chosen = self.rows.take(rows)

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                use(self._squares[number], self._rectangle(self._chunks[number], chosen))

        over_parts(work, len(self._squares))

    def _over_rows(self, use: Callable[[slice, Array], None]) -> None:
        """Call ``use`` with each slice of rows and their part (b, n) of the matrix."""
        held = self._first_rows()

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                at = self._squares[number]
                if at.stop <= len(held):
                    use(at, held[at])
                else:
                    use(at, np.hstack([self._rectangle(self._chunks[number], chunk) for chunk in self._chunks]))

        over_parts(work, len(self._squares))

    def _panel(self, numbers: Array) -> Array:
        """K[numbers]: (b, n)."""
        held = self._first_rows()
        panel = np.empty((len(numbers), len(self)), self.function.dtype)
        is_held = numbers < len(held)
        panel[is_held] = held[numbers[is_held]]
        missing = np.flatnonzero(~is_held)
        if len(missing):
            rows = self.rows.take(numbers[missing])

            def work(first: int, last: int) -> None:
                for at, chunk in zip(self._squares[first:last], self._chunks[first:last], strict=True):
                    panel[missing, at] = self._rectangle(rows, chunk)

            over_parts(work, len(self._squares))
        return panel

    def upper_squares(self) -> tuple[list[slice], Callable[[int, int], Array]]:
        """Slices of the rows, and a function that gives the part of K of slices a and b, a <= b."""
        held = self._first_rows()

        def square(a: int, b: int) -> Array:
            if self._squares[a].stop <= len(held):
                return held[self._squares[a], self._squares[b]]
            return self._rectangle(self._chunks[a], self._chunks[b])

        return self._squares, square

    def in_double(self) -> Gram:
        """The same in double precision. The cache of this one is cleared."""
        self._held = None
        function = replace(self.function, dtype=np.float64)
        return Gram(function, self.X, constant=self.constant, cache_bytes=self.cache_bytes)

    def _first_rows(self) -> Array:
        """The rows of the matrix that are held, computed by the first call: not from within `over_parts`."""
        with self._lock:
            if self._held is None:
                self._held = self._computed(self._n_held)
            return self._held

    def _computed(self, n_rows: int) -> Array:
        held = np.empty((n_rows, len(self)), self.function.dtype)
        n_squares = -(-n_rows // SQUARE_ROWS)
        pairs = [(a, b) for a in range(n_squares) for b in range(a, len(self._squares))]

        def work(first: int, last: int) -> None:
            for a, b in pairs[first:last]:
                row, column = self._squares[a], self._squares[b]
                held[row, column] = square = self._rectangle(self._chunks[a], self._chunks[b])
                if a < b < n_squares:
                    held[column, row] = square.T

        over_parts(work, len(pairs))
        return held

    def _rectangle(self, rows: Any, columns: Any) -> Array:
        rectangle: Array = self.function.rectangle(rows, columns)
        if self.constant:
            rectangle += self.constant
        if not np.isfinite(rectangle).all():
            raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
        return rectangle


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Rows that coordinate descent visits: rows ``places`` of ``matrix`` (h, n) are those with these ``numbers``.

    places and numbers (sweeps, b): an order for each sweep over the rows.
    """

    matrix: Array
    places: Array
    numbers: Array


class NotAKernelError(ValueError):
    """A kernel matrix that is not positive semi-definite, or not after rounding."""


def kernel_not_psd_error() -> NotAKernelError:
    return NotAKernelError(
        "The kernel is not positive semi-definite: it gives vectors of negative length. Use another kernel, or add a "
        "constant to the diagonal of the matrix. If it should be, rounding is to blame: centre and scale the columns, "
        "or lower lam."
    )


@dataclass(kw_only=True)
class Band:
    """Margins from ``low`` = 1 - theta to ``high`` = 1 + theta; rows below cost C = ``cost`` (n,), rows above mu C."""

    cost: Array
    mu: float
    theta: float

    @property
    def low(self) -> float:
        return 1.0 - self.theta

    @property
    def high(self) -> float:
        return 1.0 + self.theta

    @cached_property
    def soft(self) -> Array:
        """1 / C: (n,)."""
        inverse: Array = 1.0 / self.cost
        return inverse

    def stiff_at(self, mu: float) -> Array:
        """1 / (mu C): (n,), infinite without an upper side."""
        with np.errstate(over="ignore"):  # a tiny mu
            return self.soft / mu if mu > 0.0 else np.full(len(self.cost), np.inf)
