"""Sums over rows that second derivatives of linear margins are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.parts import add_parts, part_rows

Array = np.ndarray[Any, Any]

_FAST = {"reassoc", "contract", "nsz"}
_BLOCK_NUMBERS = 1 << 16  # numbers of a block of rows that is worked on at a time: it stays in the cache
_MAX_PARTS, _MAX_PARTIAL_BYTES = 8, 1 << 26  # sums that are kept side by side, and the bytes they may take


@njit(cache=True, nogil=True)
def _gram_csr(data, indices, indptr, weight, grams, first, last, rows):  # type: ignore[no-untyped-def]
    d = grams.shape[1] - 1
    for part in range(first, last):
        for i in range(part * rows, min(weight.shape[0], (part + 1) * rows)):
            c = weight[i]
            if c == 0.0:
                continue
            grams[part, d, d] += c
            for p in range(indptr[i], indptr[i + 1]):
                a, scaled = indices[p], c * np.float64(data[p])
                grams[part, d, a] += scaled
                for q in range(indptr[i], p + 1):  # column numbers ascend in a row: the lower half
                    grams[part, a, indices[q]] += scaled * data[q]


def block_rows(d: int) -> int:
    """Rows of a dense block that stays in the cache."""
    return max(64, _BLOCK_NUMBERS // max(d, 1))


def gram(X: Any, weight: Array) -> Array:
    """sum_i weight_i (x_i, 1)(x_i, 1)^T, in float64: (d + 1, d + 1); only the lower half is valid.

    Weights may be negative; rows of weight zero are not read. The same bits for any number of threads.
    """
    n, d = X.shape
    n_parts = max(1, min(_MAX_PARTS, n // 1024, _MAX_PARTIAL_BYTES // (8 * (d + 1) ** 2)))
    rows = -(-n // n_parts)
    n_parts = -(-n // rows)
    grams = np.zeros((n_parts, d + 1, d + 1))
    if sparse.issparse(X):

        def run(a: int, b: int) -> None:
            _gram_csr(X.data, X.indices, X.indptr, weight, grams, a, b, rows)

    else:

        def run(a: int, b: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # checked where the sum is used
                for part in range(a, b):
                    for start in range(part * rows, min(n, (part + 1) * rows), step):
                        _add_gram(X, weight, start, min(n, (part + 1) * rows, start + step), grams[part])

        step = block_rows(d)
    with single_blas_thread():
        over_parts(run, n_parts, serial=n * d < 50_000)
    return add_parts(grams)


def _add_gram(X: Array, weight: Array, start: int, stop: int, total: Array) -> None:
    weights = weight[start:stop]
    nonzero = np.flatnonzero(weights)
    if not len(nonzero):
        return
    block = X[start:stop] if len(nonzero) == stop - start else X[start + nonzero]
    weights = weights[nonzero]
    block = block.astype(np.float64, copy=False)
    if weights.min() > 0.0:
        scaled = block * np.sqrt(weights)[:, None]
        total[:-1, :-1] += scaled.T @ scaled  # a product with itself takes half the work
    else:
        total[:-1, :-1] += (block * weights[:, None]).T @ block
    total[-1, :-1] += weights @ block
    total[-1, -1] += weights.sum()


@njit(cache=True, nogil=True, fastmath=_FAST)
def _squares_dense(X, squares, first, last, rows):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for i in range(first * rows, min(n, last * rows)):
        total = 0.0
        for j in range(d):
            total += np.float64(X[i, j]) * X[i, j]
        squares[i] = total


@njit(cache=True, nogil=True)
def _squares_csr(data, indptr, squares):  # type: ignore[no-untyped-def]
    for i in range(squares.shape[0]):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += np.float64(data[p]) * data[p]
        squares[i] = total


def row_squares(X: Any) -> Array:
    """|x_i|^2 of every row in float64: (n,)."""
    n, d = X.shape
    squares, rows = np.empty(n), part_rows(n, 8)
    if sparse.issparse(X):
        _squares_csr(X.data, X.indptr, squares)
    else:
        over_parts(lambda a, b: _squares_dense(X, squares, a, b, rows), -(-n // rows), serial=n * d < 100_000)
    return squares


@njit(cache=True, nogil=True, fastmath=_FAST)
def _columns_dense(X, weight, sums):  # type: ignore[no-untyped-def]
    for i in range(X.shape[0]):
        if weight[i] != 0.0:
            for j in range(X.shape[1]):
                sums[j] += weight[i] * np.float64(X[i, j]) * X[i, j]


@njit(cache=True, nogil=True)
def _columns_csr(data, indices, indptr, weight, sums):  # type: ignore[no-untyped-def]
    for i in range(weight.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            sums[indices[p]] += weight[i] * np.float64(data[p]) * data[p]


def column_squares(X: Any, weight: Array) -> Array:
    """sum_i weight_i x_i^2 of every column: (d,)."""
    sums = np.zeros(X.shape[1])
    if sparse.issparse(X):
        _columns_csr(X.data, X.indices, X.indptr, weight, sums)
    else:
        _columns_dense(X, weight, sums)
    return sums
