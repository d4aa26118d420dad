"""What the dual problems of kernel machines share: the kernel matrix, and the band in which margins cost nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.parallel import over_parts

SQUARE_ROWS = 256  # rows of a square
MAX_SINGLE_SQUARE_ROWS = 4096  # rows up to which the matrix is one square: steps in any order converge fastest
SWEEPS, SWEEPS_OF_SINGLE = (
    2,
    5,
)  # over the rows of a square before the other scores are updated; of a single square before the gap is computed


class Gram:
    """K = k(x_i, x_j) + constant, held as far as ``cache_bytes`` allow and computed again beyond.

    The matrix is cut into squares of `SIDE` rows, or is one square where rows are few. Only those on and above the
    diagonal are computed: the others are their mirror images. Squares are cached until the memory is used up, and
    none is evicted: coordinate descent visits all of them in turn, and would need it again in the same round.
    A product has the same bits for every number of threads and any state of the cache.

    Parameters
    ----------
    function : KernelFunction or GivenKernel
    X : array or CSR matrix of shape (n, d), or positions in a given matrix
        In random order: each square is then a random sample of the matrix.
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
        side = len(rows) if len(rows) <= MAX_SINGLE_SQUARE_ROWS else SQUARE_ROWS
        self.slices = [slice(k, min(len(rows), k + side)) for k in range(0, len(rows), side)]
        self._chunks = [rows.take(at) for at in self.slices]
        self._cache: dict[tuple[int, int], Array] = {}
        self._free_bytes = cache_bytes
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.rows)

    def diagonal(self) -> Array:
        """(n,), in double precision."""
        diagonal: Array = self.function.diagonal(self.rows) + self.constant
        return diagonal

    def square(self, a: int, b: int) -> Array:
        """Rows of chunk a with rows of chunk b, a <= b."""
        square = self._cache.get((a, b))
        if square is not None:
            return square
        square = self.function.rectangle(self._chunks[a], self._chunks[b])
        if self.constant:
            square += self.constant
        if not np.isfinite(square).all():
            raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
        with self._lock:
            if square.nbytes <= self._free_bytes and (a, b) not in self._cache:
                self._free_bytes -= square.nbytes
                self._cache[a, b] = square
        return square

    def orders(self, chunk: int, rng: np.random.Generator) -> Array:
        """Random orders (sweeps, b) in which to visit the rows of a chunk before the other scores are updated."""
        size = self.slices[chunk].stop - self.slices[chunk].start
        n_sweeps = SWEEPS if len(self.slices) > 1 else SWEEPS_OF_SINGLE
        return rng.permuted(np.broadcast_to(np.arange(size), (n_sweeps, size)), axis=1)

    def add_product(self, chunk: int, change: Array, scores: Array) -> None:
        """scores (n, k) += K[:, chunk] @ change (b, k)."""
        change = change.astype(self.function.dtype, copy=False)

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                if number < chunk:
                    scores[self.slices[number]] += self.square(number, chunk) @ change
                else:
                    scores[self.slices[number]] += self.square(chunk, number).T @ change

        over_parts(work, len(self.slices))

    def product(self, coefficients: Array) -> Array:
        """K @ coefficients: (n, k)."""
        scores = np.zeros((len(self), coefficients.shape[1]))
        chunks = [coefficients[at].astype(self.function.dtype, copy=False) for at in self.slices]

        def work(first: int, last: int) -> None:
            for row in range(first, last):
                total = scores[self.slices[row]]
                for column, chunk in enumerate(chunks):
                    total += self.square(row, column) @ chunk if row <= column else self.square(column, row).T @ chunk

        over_parts(work, len(self.slices))
        return scores

    def submatrix(self, rows: Array) -> Array:
        """K restricted to ``rows``, in double precision."""
        matrix = np.empty((len(self), len(self)))
        for a, at in enumerate(self.slices):
            for b in range(a, len(self.slices)):
                matrix[at, self.slices[b]] = square = self.square(a, b)
                matrix[self.slices[b], at] = square.T
        return matrix if len(rows) == len(matrix) else matrix[np.ix_(rows, rows)]

    def columns(self, rows: Array) -> Array:
        """K[:, rows]: (n, len(rows)), computed without the cache."""
        matrix = np.empty((len(self), len(rows)), self.function.dtype)
        self._over_columns(rows, lambda at, columns: matrix.__setitem__(at, columns))
        return matrix

    def scores(self, rows: Array, coefficients: Array) -> Array:
        """K[:, rows] @ coefficients: (n, k), computed without the cache."""
        scores = np.empty((len(self), coefficients.shape[1]))
        coefficients = coefficients.astype(self.function.dtype, copy=False)
        self._over_columns(rows, lambda at, columns: scores.__setitem__(at, columns @ coefficients))
        return scores

    def _over_columns(self, rows: Array, use: Callable[[slice, Array], None]) -> None:
        chosen = self.rows.take(rows)

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                columns = self.function.rectangle(self._chunks[number], chosen)
                columns += self.constant
                use(self.slices[number], columns)

        over_parts(work, len(self.slices))

    def restricted(self, rows: Array) -> Gram:
        """The kernel matrix of ``rows``. The cache of this one is cleared: both might not fit into memory."""
        self._forget()
        return Gram(self.function, self.X[rows], constant=self.constant, cache_bytes=self.cache_bytes)

    def in_double(self) -> Gram:
        """The same in double precision. The cache of this one is cleared."""
        self._forget()
        function = replace(self.function, dtype=np.float64)
        return Gram(function, self.X, constant=self.constant, cache_bytes=self.cache_bytes)

    def _forget(self) -> None:
        self._cache.clear()
        self._free_bytes = self.cache_bytes


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
