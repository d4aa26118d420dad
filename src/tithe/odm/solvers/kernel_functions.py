"""Kernel functions, computed in rectangles of the kernel matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError
from sklearn.metrics.pairwise import pairwise_kernels

from tithe.core.data import Array, Block
from tithe.core.linear_algebra import jittered_cholesky
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.parts import column_means
from tithe.odm.kernels.distances import negative_distances
from tithe.odm.kernels.gram import row_squares
from tithe.odm.solvers.kernel_matrix import MAX_DOUBLE_ROWS, kernel_not_psd_error

KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed")
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

    Rows are prepared once (`prepare`), and kernels computed in rectangles. For the Gaussian kernel they are moved to
    ``centre`` and scaled by the root of gamma, so that distances neither overflow nor cancel in single precision.
    """

    kernel: str | Callable[[Any, Any], Array]
    gamma: float = 1.0
    degree: float = 3
    coef0: float = 0.0
    centre: Array | None = None
    dtype: Any = np.float64

    def in_single(self) -> KernelFunction:
        return replace(self, dtype=np.float32)

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
        values = pairwise_kernels(
            rows.X,
            columns.X,
            metric=self.kernel,
            filter_params=True,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
        )
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
    dense: Array = product.toarray() if sparse.issparse(product) else np.asarray(product)
    return dense


def entry_variance(block: Block) -> float:
    """The variance of all entries of X, rows weighted; inf where it overflows."""
    weight, X, centre = block.weights() / block.total_weight, block.X, column_means(block)
    middle = float(centre.mean())
    with np.errstate(over="ignore"):
        if isinstance(X, np.ndarray):
            slices = _slices(len(block))
            return sum(float(weight[at] @ np.square(np.float64(X[at]) - middle).mean(axis=1)) for at in slices)
        square = float(weight @ row_squares(X)) / block.n_features
    return max(0.0, square - middle * middle)


def _slices(n_rows: int) -> list[slice]:
    return [slice(k, k + 8192) for k in range(0, n_rows, 8192)]


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
    function = KernelFunction(
        kernel=machine.kernel,
        gamma=_gamma_for(machine.kernel, machine.gamma, block),
        degree=machine.degree,
        coef0=machine.coef0,
        centre=column_means(block) if isinstance(block.X, np.ndarray) else None,
    )
    if len(block) <= MAX_DOUBLE_ROWS or machine.tol < _SINGLE_TOL:
        return function
    if not callable(machine.kernel):
        diagonal = function.diagonal(function.prepare(block.X))
        if np.abs(diagonal).max() > _MAX_SINGLE_VALUE:
            return function
    return function.in_single()


def _gamma_for(kernel: Any, gamma: float | str, block: Block) -> float:
    if kernel == "linear" or callable(kernel):
        return 1.0  # these kernels have no gamma
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
