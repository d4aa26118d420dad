"""Loops over the scores of linear models."""

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
    X: Any, codes: Array, *, coef: Array, bias: Array, scale: Array, norm_coef: float, low: float, high: float
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


_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_dense(X, start, params, scores):
    d = X.shape[1]
    for i in range(scores.shape[0]):
        total = params[d]
        for j in range(d):
            total += X[start + i, j] * params[j]
        scores[i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_csr(data, indices, indptr, start, params, scores):
    d = params.shape[0] - 1
    for i in range(scores.shape[0]):
        total = params[d]
        for p in range(indptr[start + i], indptr[start + i + 1]):
            total += data[p] * params[indices[p]]
        scores[i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_table(weight, start, scores, first, second, loss, more, slopes, table):
    """Add to the table, and set the weighted first and second derivatives.

    Loops that add up write to no array. Otherwise the compiled code would ask where the arrays lie, and add in another
    order if they lie close together.
    """
    heavy = weight.size > 0
    count = low_count = product = low_product = total = low_total = 0.0
    for i in range(scores.shape[0]):
        u = weight[start + i] if heavy else 1.0
        low_u = u if first[i] <= 0.0 else 0.0
        count += u
        low_count += low_u
        product += u * first[i] * scores[i]
        low_product += low_u * first[i] * scores[i]
        total += u * loss[i]
        low_total += low_u * loss[i]
    table[0, 0] += low_count
    table[1, 0] += count - low_count
    table[0, 1] += low_product
    table[1, 1] += product - low_product
    table[0, 2] += low_total
    table[1, 2] += total - low_total
    for i in range(scores.shape[0]):
        u = weight[start + i] if heavy else 1.0
        slopes[0, i] = u * first[i]
        slopes[1, i] = u * second[i]
    for c in range(more.shape[0]):
        total = low_total = 0.0
        for i in range(scores.shape[0]):
            u = weight[start + i] if heavy else 1.0
            total += u * more[c, i]
            low_total += u * more[c, i] if first[i] <= 0.0 else 0.0
        table[0, 3 + c] += low_total
        table[1, 3 + c] += total - low_total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_dense(X, start, n_rows, slopes, centre, gradient, diagonal):
    d = X.shape[1]
    if gradient.shape[0] > 0:
        for i in range(n_rows):
            r = slopes[0, i]
            sign = 0 if r <= 0.0 else 1
            for j in range(d):
                gradient[sign, j] += r * X[start + i, j]
            gradient[sign, d] += r
    if diagonal.shape[0] > 0:
        for i in range(n_rows):
            b = slopes[1, i]
            for j in range(d):
                x = X[start + i, j] - centre[j]
                diagonal[j] += b * x * x
            diagonal[d] += b


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_csr(data, indices, indptr, start, n_rows, slopes, gradient, diagonal):
    d = gradient.shape[1] - 1 if gradient.shape[0] > 0 else diagonal.shape[0] - 1
    for i in range(n_rows):
        r, b = slopes[0, i], slopes[1, i]
        sign = 0 if r <= 0.0 else 1
        begin, end = indptr[start + i], indptr[start + i + 1]
        if gradient.shape[0] > 0:
            for p in range(begin, end):
                gradient[sign, indices[p]] += r * data[p]
            gradient[sign, d] += r
        if diagonal.shape[0] > 0:
            for p in range(begin, end):
                diagonal[indices[p]] += b * data[p] * data[p]
            diagonal[d] += b


def scores_of_run(X: Any, start: int, params: Array, scores: Array) -> None:
    """Set ``scores`` (r,) to x . w + b for the r rows from ``start``; params (d + 1,) float64, the intercept last."""
    if sparse.issparse(X):
        _scores_csr(X.data, X.indices, X.indptr, start, params, scores)
    else:
        _scores_dense(X, start, params, scores)


def add_run(
    X: Any,
    weight: Array,
    start: int,
    scores: Array,
    first: Array,
    second: Array,
    loss: Array,
    more: Array,
    centre: Array,
    slopes: Array,
    table: Array,
    gradient: Array,
    diagonal: Array,
) -> None:
    """Add the sums of the rows from ``start`` to those of their part.

    Parameters
    ----------
    weight : (n,), or (0,) where every row counts once
    scores, first, second, loss : (r,)
        Scores of the rows, first and second derivatives of their losses, and the losses.
    more : (m, r) or (0, 0)
        More columns to add up.
    centre : (d,)
        Columns are centred at this for the diagonal, if they are dense.
    slopes : (2, r)
        Overwritten.
    table : (2, 3 + m)
        By the sign of the first derivative r, not positive and positive: sums of the weight, of r times the score,
        of the loss, and of more columns.
    gradient : (2, d + 1) or (0, d + 1)
        By the sign of r: sums of r times (x, 1). Not added up if it is empty.
    diagonal : (d + 1,) or (0,)
        Sums of the second derivative times (x - centre, 1)^2. Not added up if it is empty.
    """
    # the two are called from here, and not one by the other: numba optimises a compiled function that another calls
    # once more for its caller, and runs one of the two versions in the process that compiles, the other from the cache
    _add_table(weight, start, scores, first, second, loss, more, slopes, table)
    if sparse.issparse(X):
        _add_csr(X.data, X.indices, X.indptr, start, len(scores), slopes, gradient, diagonal)
    else:
        _add_dense(X, start, len(scores), slopes, centre, gradient, diagonal)


_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # ln 2 = their sum, to 90 bits
_MIN_EXPONENT, _MAX_EXPONENT = -700.0, 709.0  # exp of anything smaller is negligible, of anything larger infinite
_TINY = float(np.finfo(np.float64).tiny)  # 0 ln 0 is 0
_BITS_OF_ROOT_HALF = 0x3FE6A09E667F3BCD  # sqrt(1/2) as an integer


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _terms(score, y, bits, as_number, loss, y_bits, first, mean):
    n = score.shape[0]  # as_number and y_bits are the memory of bits and loss
    for i in range(n):  # exp(score) = 2^k times a polynomial in what is left, |r| <= ln(2)/2
        v = min(max(score[i], _MIN_EXPONENT), _MAX_EXPONENT)
        k = np.floor(v * _LOG2E + 0.5)
        r = (v - k * _LN2_HIGH) - k * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        mean[i] = p * r + 1.0
        bits[i] = (np.int64(k) + 1023) << 52
    for i in range(n):
        mean[i] = mean[i] * as_number[i] if score[i] <= _MAX_EXPONENT else np.inf
        loss[i] = max(y[i], _TINY)
    for i in range(n):  # y = 2^k m with m between sqrt(1/2) and sqrt(2)
        k = (y_bits[i] - _BITS_OF_ROOT_HALF) >> 52
        bits[i] = y_bits[i] - (k << 52)
        first[i] = np.float64(k)
    for i in range(n):  # ln m is twice the area tangent of (m - 1) / (m + 1), whose square is at most 0.03
        w = (as_number[i] - 1.0) / (as_number[i] + 1.0)
        s = w * w
        p = 1.0 / 21.0
        p = p * s + 1.0 / 19.0
        p = p * s + 1.0 / 17.0
        p = p * s + 1.0 / 15.0
        p = p * s + 1.0 / 13.0
        p = p * s + 1.0 / 11.0
        p = p * s + 1.0 / 9.0
        p = p * s + 1.0 / 7.0
        p = p * s + 1.0 / 5.0
        p = p * s + 1.0 / 3.0
        p = p * s + 1.0
        log_y = 2.0 * w * p + first[i] * _LN2_LOW + first[i] * _LN2_HIGH
        loss[i] = max(mean[i] + y[i] * (log_y - 1.0 - score[i]), 0.0)
        first[i] = mean[i] - y[i]


def poisson_terms(score: Array, y: Array) -> tuple[Array, Array, Array]:
    """exp(z) - y z + y ln y - y for scores z (n,) and targets (n,), and its first and second derivatives in z."""
    loss, first, mean = np.empty(len(score)), np.empty(len(score)), np.empty(len(score))
    bits = np.empty(len(score), np.int64)  # a view that is made in compiled code takes longer to compile
    _terms(score, np.ascontiguousarray(y), bits, bits.view(np.float64), loss, loss.view(np.int64), first, mean)
    return loss, first, mean
