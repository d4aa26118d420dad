"""What the problems of margin machines share: the loss of margins outside a band, and the kernel matrix."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, solve_triangular
from scipy.optimize import brentq
from sklearn.metrics.pairwise import pairwise_kernels

from tithe.core.data import Array, Block
from tithe.core.linear_algebra import jittered_cholesky
from tithe.core.parallel import column_means, over_parts, single_blas_thread
from tithe.odm.kernels.linear import row_squares
from tithe.odm.kernels.two_classes import negative_distances

SQUARE_ROWS = 256  # rows of the squares that the matrix is computed in
MAX_DOUBLE_ROWS = 4096  # rows up to which the matrix is in double precision


@dataclass(kw_only=True, eq=False)
class MarginLoss:
    """The losses C l(u) / 2 of margins u, l(u) = [1 - theta - u]_+^2 + mu [u - 1 - theta]_+^2.

    The base of every problem; the margins are those of its rows.
    """

    cost: Array  # (n,) float64: C, all positive, lam s_i / (sum s (1 - theta)^2) for weights s
    mu: float
    theta: float

    @property
    def low(self) -> float:
        """1 - theta, the lower end of the band in which margins cost nothing."""
        return 1.0 - self.theta

    @property
    def high(self) -> float:
        """1 + theta, the upper end."""
        return 1.0 + self.theta

    @cached_property
    def inverse_cost(self) -> Array:
        """1 / C: (n,)."""
        return np.asarray(1.0 / self.cost)

    def inverse_upper_cost(self, mu: float) -> Array:
        """1 / (mu C): (n,), infinite without an upper side."""
        with np.errstate(over="ignore"):  # a tiny mu
            return self.inverse_cost / mu if mu > 0.0 else np.full(len(self.cost), np.inf)

    def loss(self, margins: Array) -> Array:
        """C l(u) / 2: (n,)."""
        return margin_loss(margins, self.cost, self.mu, self.theta)

    def multipliers(self, margins: Array, at: slice = slice(None)) -> Array:
        """Minus the slopes: C [1 - theta - u]_+ - mu C [u - 1 - theta]_+ of all rows, or of those ``at`` a slice."""
        below, above = _outside(margins, self.theta)
        return np.asarray(self.cost[at] * (below - self.mu * above))

    def curvatures(self, margins: Array) -> Array:
        """Second derivatives, C below the band and mu C above it: (n,)."""
        return np.asarray(self.cost * ((margins < 1.0 - self.theta) + self.mu * (margins > 1.0 + self.theta)))


@dataclass(frozen=True, kw_only=True)
class Solved:
    """The duality gap and the value; with many classes the gap of the last convex problem, and J after each round."""

    gap: float
    primal: float
    curve: list[float]
    n_iter: int


def margin_loss(margins: Array, cost: Array, mu: float, theta: float) -> Array:
    """C l(u) / 2 of margins of any shape."""
    below, above = _outside(margins, theta)
    return np.asarray(0.5 * cost * (below * below + mu * above * above))


def label_losses(scores: Array, cost: Array, mu: float, theta: float) -> Array:
    """C l(u) / 2 of each row for each label that it may get: (n, k), from scores (n, k), or (n,) for two classes."""
    if scores.ndim == 1:
        return np.column_stack([margin_loss(-scores, cost, mu, theta), margin_loss(scores, cost, mu, theta)])
    ordered = np.sort(scores, axis=1)
    rival = np.where(scores == ordered[:, -1:], ordered[:, -2:-1], ordered[:, -1:])
    return margin_loss(scores - rival, cost[:, None], mu, theta)


def _outside(margins: Array, theta: float) -> tuple[Array, Array]:
    """How far margins lie below the band, and above it."""
    return np.maximum(1.0 - theta - margins, 0.0), np.maximum(margins - 1.0 - theta, 0.0)


def step_length(slope: Callable[[float], float], **accuracy: float) -> float:
    """Where an increasing slope is zero, at most 1, to a thousandth: the length of a Newton step."""
    if slope(1.0) <= 0.0:
        return 1.0
    return float(brentq(slope, 0.0, 1.0, **(accuracy or {"xtol": 1e-3}))) if slope(0.0) < 0.0 else 0.0


class Gram:
    """K = k(x_i, x_j) + constant; the first rows are held, as many as ``cache_bytes`` allow, others computed again.

    The bits of all results depend on ``cache_bytes``, but not on the number of threads. ``function`` is a
    `KernelFunction` and X (n, d) the rows, or a `GivenKernel` and X the positions (n,) in it, both in random order.
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
        return np.asarray(self.function.diagonal(self.rows) + self.constant)

    def row_panels(
        self, rng: np.random.Generator, n_sweeps: int, is_needed: Callable[[Array], Array]
    ) -> Iterator[RowPanel]:
        """All rows in random order, and their rows of K: the order in which coordinate descent visits them.

        There are ``n_sweeps`` orders if the whole matrix is held, else one, and rows are left out that are not needed.
        A fixed order is many times slower.
        """
        n, held = len(self), self._first_rows()
        if len(held) == n:
            orders = rng.permuted(np.broadcast_to(np.arange(n), (n_sweeps, n)), axis=1)
            yield RowPanel(matrix=held, places=orders, numbers=orders)
            return
        order = rng.permutation(n)
        for start in range(0, n, SQUARE_ROWS):
            numbers = order[start : start + SQUARE_ROWS]
            numbers = numbers[is_needed(numbers)]
            if len(numbers):
                yield RowPanel(matrix=self._panel(numbers), places=np.arange(len(numbers))[None], numbers=numbers[None])

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
        """K[:, rows]: (n, len(rows))."""
        return self._panel(rows).T

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


class RowPanel(NamedTuple):
    """Rows ``places`` of ``matrix`` (h, n) are those with these ``numbers``: (sweeps, b), an order for each sweep."""

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


KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed")
KERNELS_WITH_GAMMA = ("rbf", "poly", "sigmoid", "laplacian")
_MAX_CHECKED_ROWS = 2000  # rows up to which a given matrix is checked to be positive semi-definite beforehand
_MAX_DENSE_COLUMNS = 4096  # columns up to which sparse rows are multiplied as dense ones, a few hundred at a time
_SINGLE_TOL = 1e-5  # tolerance from which a kernel matrix of many rows is kept in single precision
_MAX_SINGLE_VALUE = 1e15  # larger kernel values need double precision
_CHUNK_VALUES = 1 << 22  # kernel values computed at a time for new rows
_MAX_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class Prepared:
    """Rows in the form that a kernel needs, and their squared lengths if it uses them."""

    X: Any
    squares: Array | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: Any) -> Prepared:
        return Prepared(self.X[rows], None if self.squares is None else self.squares[rows])


@dataclass(frozen=True, kw_only=True)
class KernelFunction:
    """k(x, x'), by scikit-learn's names and parameters, or a callable (A, B) -> (len(A), len(B)).

    For the Gaussian kernel rows are moved to ``centre``, so that distances do not cancel in single precision.
    """

    kernel: str | Callable[[Any, Any], Array]
    gamma: float = 1.0
    degree: float = 3
    coef0: float = 0.0
    centre: Array | None = None
    dtype: Any = np.float64

    @classmethod
    def of(cls, machine: Any, gamma: float, centre: Array | None) -> KernelFunction:
        """The kernel of a machine, by its parameters, in double precision."""
        return cls(kernel=machine.kernel, gamma=gamma, degree=machine.degree, coef0=machine.coef0, centre=centre)

    def restricted(self, X: Any) -> tuple[KernelFunction, Any]:
        """The kernel of these rows alone, and how it names them."""
        return self, X

    def prepare(self, X: Any) -> Prepared:
        if self.kernel == "rbf":
            root = self.gamma**0.5
            if sparse.issparse(X):
                X = (X * root).astype(self.dtype)
                return Prepared(X, np.asarray(X.multiply(X).sum(axis=1), dtype=self.dtype).ravel())
            X = X * root if self.centre is None else (X - self.centre) * root
            X = X.astype(self.dtype, copy=False)
            return Prepared(X, np.einsum("ij,ij->i", X, X))
        if self.kernel in ("linear", "poly", "sigmoid"):
            return Prepared(X.astype(self.dtype, copy=False))
        return Prepared(X)

    def rectangle(self, rows: Prepared, columns: Prepared) -> Array:
        """(len(rows), len(others)) in this function's dtype."""
        if self.kernel == "linear":
            return _product(rows.X, columns.X)
        if self.kernel == "rbf":
            assert rows.squares is not None and columns.squares is not None
            values = _product(rows.X, columns.X)
            if values.dtype == np.float32:  # many rows: worth the time that compilation takes
                negative_distances(values, rows.squares, columns.squares)
            else:
                values *= 2.0
                values -= rows.squares[:, None]
                values -= columns.squares
                np.minimum(values, 0.0, out=values)  # rounding must not make a kernel larger than one
            return np.exp(values, out=values)
        if callable(self.kernel):
            values = np.asarray(self.kernel(rows.X, columns.X), dtype=self.dtype)
            if values.shape != (len(rows), len(columns)):
                raise ValueError(
                    f"The kernel gave an array of shape {values.shape} for {len(rows)} and {len(columns)} rows."
                )
            return values
        options = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        values = pairwise_kernels(rows.X, columns.X, metric=self.kernel, filter_params=True, **options)
        return np.asarray(values, dtype=self.dtype)

    def diagonal(self, rows: Prepared) -> Array:
        """k(x, x) of every row, in double precision."""
        if self.kernel in ("rbf", "laplacian"):
            return np.ones(len(rows))
        if self.kernel in ("linear", "poly", "sigmoid"):
            X = rows.X
            square = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
            square = np.asarray(square, np.float64).ravel()
            if self.kernel == "linear":
                return square
            inner = self.gamma * square + self.coef0
            return inner**self.degree if self.kernel == "poly" else np.tanh(inner)
        blocks = [rows.take(slice(i, i + 64)) for i in range(0, len(rows), 64)]
        return np.concatenate([np.diagonal(self.rectangle(block, block)) for block in blocks]).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class GivenKernel:
    """A kernel matrix that is known beforehand; rows are positions in it."""

    matrix: Array
    dtype: Any = np.float64

    def restricted(self, positions: Array) -> tuple[GivenKernel, Array]:
        """The matrix of these rows alone, and their positions in it."""
        return replace(self, matrix=self.matrix[np.ix_(positions, positions)]), np.arange(len(positions))

    def prepare(self, positions: Array) -> Prepared:
        return Prepared(positions)

    def rectangle(self, rows: Prepared, columns: Prepared) -> Array:
        return self.matrix[np.ix_(rows.X, columns.X)].astype(self.dtype)

    def diagonal(self, rows: Prepared) -> Array:
        return np.asarray(self.matrix[rows.X, rows.X], np.float64)


def _product(A: Any, B: Any) -> Array:
    if sparse.issparse(B) and B.shape[1] <= _MAX_DENSE_COLUMNS:
        B = B.toarray()
    product = A @ B.T
    return np.asarray(product.toarray() if sparse.issparse(product) else product)


def entry_variance(block: Block) -> float:
    """The variance of all entries of X, rows weighted; inf where it overflows."""
    weight, X, centre = block.weights() / block.total_weight, block.X, column_means(block)
    middle = float(centre.mean())
    with np.errstate(over="ignore"):
        if isinstance(X, np.ndarray):
            slices = (slice(k, k + 8192) for k in range(0, len(block), 8192))
            return sum(float(weight[at] @ np.square(np.float64(X[at]) - middle).mean(axis=1)) for at in slices)
        square = float(weight @ row_squares(X)) / block.n_features
    return max(0.0, square - middle * middle)


def checked_matrix(K: Any) -> Array:
    """A precomputed kernel matrix, checked."""
    if not isinstance(K, np.ndarray):
        raise ValueError("A precomputed kernel must be a dense matrix: call its toarray().")
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"A precomputed kernel must be a square matrix (n, n), got one of shape {K.shape}.")
    scale = float(np.abs(K).max())
    if not np.allclose(K, K.T, rtol=0.0, atol=1e-6 * scale):
        raise ValueError("A precomputed kernel must be symmetric: K[i, j] = K[j, i].")
    if len(K) <= _MAX_CHECKED_ROWS:
        try:
            jittered_cholesky(K.astype(np.float64), [1e-8 * (scale or 1.0) * len(K) ** 0.5])
        except LinAlgError:
            raise kernel_not_psd_error() from None
    return K


def check_diagonal(diagonal: Array) -> None:
    """Refuse a kernel of rows with themselves that cannot be a squared length."""
    if not (np.isfinite(diagonal).all() and diagonal.min() >= 0.0):
        problem = "overflows" if not np.isfinite(diagonal).all() else "of a row with itself is negative"
        raise ValueError(f"The kernel {problem}. Rescale the columns, or use another kernel.")


def training_kernel(machine: Any, block: Block) -> Any:
    """The kernel for the training rows, in the precision that the tolerance needs."""
    if machine.kernel == "precomputed":
        return GivenKernel(matrix=checked_matrix(block.X))
    centre = column_means(block) if isinstance(block.X, np.ndarray) else None
    function = KernelFunction.of(machine, gamma_for(machine.kernel, machine.gamma, block), centre)
    if len(block) <= MAX_DOUBLE_ROWS or machine.tol < _SINGLE_TOL:
        return function
    if not callable(machine.kernel):
        diagonal = function.diagonal(function.prepare(block.X))
        if np.abs(diagonal).max() > _MAX_SINGLE_VALUE:
            return function
    return replace(function, dtype=np.float32)


def training_matrix(machine: Any, block: Block, fitted: KernelFunction | None = None) -> Array:
    """The kernel matrix (n, n) of the training rows, symmetric and finite, in double precision."""
    if machine.kernel == "precomputed":
        return np.asarray(checked_matrix(block.X).astype(np.float64))
    function = replace(fitted or training_kernel(machine, block), dtype=np.float64)
    rows = function.prepare(block.X)
    kernel = function.rectangle(rows, rows)
    if not np.isfinite(kernel).all():
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    return np.asarray(0.5 * (kernel + kernel.T))


def landmark_features(columns: Array, landmarks: Array, jitters: Sequence[float]) -> Array:
    """Features (n, r) whose products are the kernel projected on some rows (Nystroem), from its ``columns`` (n, r)."""
    square = columns[landmarks]
    scale = float(np.trace(square)) / len(square)
    low = jittered_cholesky(square, (share * scale for share in jitters))
    features: Array = solve_triangular(low, columns.T, lower=True, check_finite=False).T
    return np.ascontiguousarray(features)


def gamma_for(kernel: Any, gamma: float | str, block: Block) -> float:
    """The number that ``gamma`` stands for; 1 for kernels without a gamma."""
    if kernel not in KERNELS_WITH_GAMMA:
        return 1.0
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "auto":
        return 1.0 / block.n_features
    variance = entry_variance(block)
    if not np.isfinite(variance):
        raise ValueError("The variance of X overflows in double precision. Rescale the columns.")
    return 1.0 / (block.n_features * variance) if variance > 0.0 else 1.0


def kernel_scores(function: KernelFunction, X: Any, support_vectors: Any, coefficients: Array) -> Array:
    """Sums of ``coefficients`` (k, s) times the kernel of new rows with support vectors: (n, k)."""
    vectors = function.prepare(support_vectors)
    factors = coefficients.T.astype(function.dtype)
    scores = np.zeros((X.shape[0], len(coefficients)))
    n_rows = max(1, min(_MAX_CHUNK_ROWS, _CHUNK_VALUES // max(1, len(vectors))))

    def work(first: int, last: int) -> None:
        for chunk in range(first, last):
            at = slice(chunk * n_rows, (chunk + 1) * n_rows)
            scores[at] = function.rectangle(function.prepare(X[at]), vectors) @ factors

    if len(vectors):
        with single_blas_thread():
            over_parts(work, -(-len(scores) // n_rows))
    return scores
