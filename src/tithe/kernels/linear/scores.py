"""Linear scores of rows, in blocks, on several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread

BLOCK_ROWS = 4096


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _dense_scores(X, codes, coef, bias, scale, norm_coef, low, high, scores, clipped, first, last):
    n = X.shape[0]
    buffer, norms = np.empty(min(n, BLOCK_ROWS), X.dtype), np.zeros(min(n, BLOCK_ROWS))
    for block in range(first, last):
        start = block * BLOCK_ROWS
        r = min(n - start, BLOCK_ROWS)
        products = buffer[:r]
        np.dot(X[start : start + r], coef, products)
        if norm_coef != 0.0:
            for i in range(r):
                square = 1.0
                for j in range(X.shape[1]):
                    square += np.float64(X[start + i, j]) * X[start + i, j]
                norms[i] = norm_coef * np.sqrt(square)
        outside = 0
        for i in range(r):  # nothing here but what can be done for several rows at a time
            c = codes[start + i]
            value = bias[c] + scale[c] * products[i] + norms[i]
            inside = min(max(value, low), high)
            scores[start + i] = inside
            outside += 1 if inside != value else 0
        clipped[block] = outside


@njit(cache=True, nogil=True)
def _csr_scores(data, indices, indptr, codes, coef, bias, scale, norm_coef, low, high, scores, clipped, first, last):
    for block in range(first, last):
        for i in range(block * BLOCK_ROWS, min(codes.shape[0], (block + 1) * BLOCK_ROWS)):
            total, square = 0.0, 1.0
            for p in range(indptr[i], indptr[i + 1]):
                value = np.float64(data[p])
                total += value * coef[indices[p]]
                square += value * value
            value = bias[codes[i]] + scale[codes[i]] * total + norm_coef * np.sqrt(square)
            inside = low <= value <= high
            scores[i] = value if inside else (high if value > high else low)
            clipped[block] += 0 if inside else 1


def linear_scores(
    X: Any,
    codes: Array,
    *,
    coef: Array,
    bias: Array,
    scale: Array,
    norm_coef: float,
    low: float,
    high: float,
) -> tuple[Array, float]:
    """``bias[c] + scale[c] * x . coef + norm_coef * |(x, 1)|``, clipped to [low, high]: (n,), and the share clipped.

    ``c`` is the class of the row. Products of dense rows are taken in their own precision: the scores are
    predictions, and any positive score is valid.
    """
    n = X.shape[0]
    n_blocks = -(-n // BLOCK_ROWS)
    scores, clipped = np.empty(n), np.zeros(n_blocks, np.int64)
    args = (bias, scale, float(norm_coef), float(low), float(high), scores, clipped)
    if sparse.issparse(X):
        rows = (X.data, X.indices, X.indptr, codes, np.asarray(coef, np.float64))
        over_parts(lambda a, b: _csr_scores(*rows, *args, a, b), n_blocks, serial=X.nnz < 100_000)
    else:
        coefficients = np.ascontiguousarray(coef, X.dtype)
        with single_blas_thread():
            over_parts(
                lambda a, b: _dense_scores(X, codes, coefficients, *args, a, b), n_blocks, serial=X.size < 100_000
            )
    return scores, float(clipped.sum() / max(n, 1))
