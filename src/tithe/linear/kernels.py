"""Loops over the scores of linear models: one sweep has losses, gradients and curvatures of one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.gram import STRIDE, TILE, add_gram, load_tile
from tithe.core.parallel import add_parts, over_parts, part_rows, single_blas_thread, to_compiled
from tithe.core.passes import AddsUp

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
_EXACT = {"contract", "nsz"}  # of what a row gets: with "reassoc" that would depend on its place in a tile
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # ln 2 = their sum, to 90 bits
_MIN_EXPONENT, _MAX_EXPONENT = -700.0, 709.0  # exp of anything smaller is negligible, of anything larger infinite
_TINY = float(np.finfo(np.float64).tiny)  # 0 ln 0 is 0
_BITS_OF_ROOT_HALF = 0x3FE6A09E667F3BCD  # sqrt(1/2) as an integer
_SERIAL_NUMBERS = 400_000  # of X up to which one thread is quicker than two
_LONG_ROWS = 20  # columns from which rows are better read in their order
MAX_FUSED = 64  # columns up to which the curvature is taken in the sweep that has the rows in the cache


@njit(cache=True, nogil=True, fastmath=_EXACT)
def exp_of_negative(x, bits, n):
    """x <- exp(x) for x <= 0, to an ulp or two: 2^k times a polynomial in what is left, |r| <= ln(2)/2."""
    for i in range(n):
        v = max(x[i], _MIN_EXPONENT)
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
        x[i] = p * r + 1.0
        bits[i] = (np.int64(k) + 1023) << 52
    power = bits.view(np.float64)
    for i in range(n):
        x[i] *= power[i]


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _log1p(q):
    """ln(1 + q) for 0 <= q <= 1: twice the area tangent of q / (2 + q), whose square is at most 1/9."""
    w = q / (2.0 + q)
    s = w * w
    p = 1.0 / 33.0
    p = p * s + 1.0 / 31.0
    p = p * s + 1.0 / 29.0
    p = p * s + 1.0 / 27.0
    p = p * s + 1.0 / 25.0
    p = p * s + 1.0 / 23.0
    p = p * s + 1.0 / 21.0
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
    return 2.0 * w * p


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _logistic(score, y, start, r, bits, loss, first, second):
    """-ln P(y), and its derivatives in the score. The first one is never 0: its sign is the class."""
    for i in range(r):
        second[i] = -abs(score[i])
    exp_of_negative(second, bits, r)
    for i in range(r):
        one = y[start + i] == 1
        t = score[i] if one else -score[i]
        q = second[i]
        inverse = 1.0 / (1.0 + q)
        wrong = q * inverse if t > 0.0 else inverse  # the chance given to the other class
        first[i] = -wrong if one else wrong
        second[i] = q * inverse * inverse
        # less min(t, 0), without a branch: with one, the product before it is rounded in some loops and not in others
        loss[i] = _log1p(q) + (0.5 * abs(t) - 0.5 * t)


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _poisson(score, y, start, n, bits, loss, first, mean):
    """exp(z) - y z + y ln y - y, and its derivatives in the score z."""
    as_number, y_bits = bits.view(np.float64), loss.view(np.int64)
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
        loss[i] = max(y[start + i], _TINY)
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
        loss[i] = max(mean[i] + y[start + i] * (log_y - 1.0 - score[i]), 0.0)
        first[i] = mean[i] - y[start + i]


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _huber(score, y, start, r, huber, loss, first, second, more):
    """s + s H((y - z) / s) for huber = (s, epsilon, least), and what `HuberObjective.row_terms` says."""
    scale, epsilon, least = huber
    for i in range(r):
        t = (y[start + i] - score[i]) / scale
        clipped = min(max(t, -epsilon), epsilon)
        square = clipped * clipped
        second[i] = 2.0 / scale if abs(t) <= epsilon else 0.0
        loss[i] = scale * (1.0 + least + 2.0 * clipped * t - square)
        first[i] = -2.0 * clipped
        more[0, i] = 1.0 - least - square
        more[1, i] = -2.0 * clipped * y[start + i]
        more[2, i] = second[i] * square + 2.0 * least / scale


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _terms(score, y, start, r, bits, loss, first, second, more, logistic, poisson, huber):
    """Losses of the rows of a tile and their derivatives; what is None is not compiled. All None: least squares."""
    if logistic is not None:
        _logistic(score, y, start, r, bits, loss, first, second)
    elif poisson is not None:
        _poisson(score, y, start, r, bits, loss, first, second)
    elif huber is not None:
        _huber(score, y, start, r, huber, loss, first, second, more)
    else:
        for i in range(r):
            residual = score[i] - y[start + i]
            loss[i] = 0.5 * residual * residual
            first[i] = residual
            second[i] = 1.0


@njit(cache=True, nogil=True, fastmath=_EXACT)
def _scores_of_tile(tile, r, params, score):
    d = tile.shape[0]
    for i in range(r):
        score[i] = params[d]
    fourths = d // 4 * 4
    for j in range(0, fourths, 4):
        a, b, c, e = params[j], params[j + 1], params[j + 2], params[j + 3]
        for i in range(r):
            score[i] += a * tile[j, i] + b * tile[j + 1, i] + c * tile[j + 2, i] + e * tile[j + 3, i]
    for j in range(fourths, d):
        a = params[j]
        for i in range(r):
            score[i] += a * tile[j, i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_of_rows(X, start, r, params, score):
    d = X.shape[1]
    for i in range(r):
        total = params[d]
        for j in range(d):
            total += X[start + i, j] * params[j]
        score[i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_of_csr(data, indices, indptr, start, r, params, score):
    d = params.shape[0] - 1
    for i in range(r):
        total = params[d]
        for p in range(indptr[start + i], indptr[start + i + 1]):
            total += data[p] * params[indices[p]]
        score[i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_table(weight, start, r, score, loss, first, second, more, low, table):
    """Add to the table, and multiply the derivatives by the weights; ``low`` are the first ones that are not positive.

    Loops that add up write to no array. Otherwise the compiled code would ask where the arrays lie, and add in another
    order if they lie close together.
    """
    heavy = weight.size > 0
    count = low_count = product = low_product = total = low_total = 0.0
    for i in range(r):
        u = weight[start + i] if heavy else 1.0
        low_u = u if first[i] <= 0.0 else 0.0
        count += u
        low_count += low_u
        product += u * first[i] * score[i]
        low_product += low_u * first[i] * score[i]
        total += u * loss[i]
        low_total += low_u * loss[i]
    table[0, 0] += low_count
    table[1, 0] += count - low_count
    table[0, 1] += low_product
    table[1, 1] += product - low_product
    table[0, 2] += low_total
    table[1, 2] += total - low_total
    for c in range(more.shape[0]):
        total = low_total = 0.0
        for i in range(r):
            u = weight[start + i] if heavy else 1.0
            total += u * more[c, i]
            low_total += u * more[c, i] if first[i] <= 0.0 else 0.0
        table[0, 3 + c] += low_total
        table[1, 3 + c] += total - low_total
    for i in range(r):
        u = weight[start + i] if heavy else 1.0
        first[i] *= u
        second[i] *= u
        low[i] = first[i] if first[i] <= 0.0 else 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_tile(tile, r, first, second, low, centre, gradient, diagonal):
    d = tile.shape[0]
    for j in range(d + 1):
        total = low_total = 0.0
        if j == d:
            for i in range(r):
                total += first[i]
                low_total += low[i]
        else:
            for i in range(r):
                total += first[i] * tile[j, i]
                low_total += low[i] * tile[j, i]
        gradient[0, j] += low_total
        gradient[1, j] += total - low_total
    for j in range(diagonal.shape[0]):
        total = 0.0
        if j == d:
            for i in range(r):
                total += second[i]
        else:
            for i in range(r):
                x = tile[j, i] - centre[j]
                total += second[i] * x * x
        diagonal[j] += total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_rows(X, start, r, first, second, centre, gradient, diagonal):
    d = X.shape[1]
    for i in range(r):
        a = first[i]
        sign = 0 if a <= 0.0 else 1
        for j in range(d):
            gradient[sign, j] += a * X[start + i, j]
        gradient[sign, d] += a
    if diagonal.shape[0] > 0:
        for i in range(r):
            b = second[i]
            for j in range(d):
                x = X[start + i, j] - centre[j]
                diagonal[j] += b * x * x
            diagonal[d] += b


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_csr(data, indices, indptr, start, r, first, second, gradient, diagonal):
    d = gradient.shape[1] - 1
    for i in range(r):
        a, b = first[i], second[i]
        sign = 0 if a <= 0.0 else 1
        for p in range(indptr[start + i], indptr[start + i + 1]):
            gradient[sign, indices[p]] += a * data[p]
            if diagonal.shape[0] > 0:
                diagonal[indices[p]] += b * data[p] * data[p]
        gradient[sign, d] += a
        if diagonal.shape[0] > 0:
            diagonal[d] += b


@njit(cache=True, nogil=True, fastmath=_FAST)
def _touch(X, start, r):
    """Read rows in their order, which is quicker than column by column: then they are in the cache."""
    total = 0.0
    for i in range(r):
        for j in range(0, X.shape[1], 8):
            total += X[start + i, j]
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sweep_dense(X, y, weight, params, centre, sums_of, logistic, poisson, huber, first_part, last_part, rows):
    costs, bends, tables, gradients, diagonals, grams = sums_of
    n, d = X.shape
    by_columns = d < _LONG_ROWS or grams.shape[1] > 0
    tile, scaled = np.empty((d * by_columns, STRIDE), X.dtype), np.zeros(((d + 4) // 4 * 4, STRIDE), np.float32)
    score, loss, first, second, low = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    bits, more = np.empty(TILE, np.int64), np.empty((tables.shape[2] - 3, TILE))
    sums, scale = np.empty(16), np.empty(d + 4)
    for part in range(first_part, last_part):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, TILE):
            r = min(stop - start, TILE)
            if by_columns:
                if d >= _LONG_ROWS:
                    score[0] = _touch(X, start, r)
                load_tile(X, start, r, tile)
                _scores_of_tile(tile, r, params, score)
            else:
                _scores_of_rows(X, start, r, params, score)
            _terms(score, y, start, r, bits, loss, first, second, more, logistic, poisson, huber)
            if costs.size > 0:
                costs[start : start + r] = loss[:r]
            if bends.shape[0] > 1:
                bends[1, start : start + r] = first[:r]
            _add_table(weight, start, r, score, loss, first, second, more, low, tables[part])
            if bends.shape[0] > 0:
                bends[0, start : start + r] = second[:r]
            if gradients.shape[1] > 0 and by_columns:
                _add_tile(tile, r, first, second, low, centre, gradients[part], diagonals[part])
            elif gradients.shape[1] > 0:
                _add_rows(X, start, r, first, second, centre, gradients[part], diagonals[part])
            if grams.shape[1] > 0:
                add_gram(tile, r, second, centre, scaled, scale, sums, grams[part])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sweep_csr(
    data, indices, indptr, y, weight, params, sums_of, logistic, poisson, huber, first_part, last_part, rows
):
    costs, bends, tables, gradients, diagonals, _ = sums_of
    n = indptr.shape[0] - 1
    score, loss, first, second, low = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    bits, more = np.empty(TILE, np.int64), np.empty((tables.shape[2] - 3, TILE))
    for part in range(first_part, last_part):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, TILE):
            r = min(stop - start, TILE)
            _scores_of_csr(data, indices, indptr, start, r, params, score)
            _terms(score, y, start, r, bits, loss, first, second, more, logistic, poisson, huber)
            if costs.size > 0:
                costs[start : start + r] = loss[:r]
            if bends.shape[0] > 1:
                bends[1, start : start + r] = first[:r]
            _add_table(weight, start, r, score, loss, first, second, more, low, tables[part])
            if bends.shape[0] > 0:
                bends[0, start : start + r] = second[:r]
            if gradients.shape[1] > 0:
                _add_csr(data, indices, indptr, start, r, first, second, gradients[part], diagonals[part])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_drift(weight, start, r, slope, now, half, end, change, sums):
    """Add what `drift_sums` of an objective says. ``now``, ``half``, ``end``: curvatures of the rows along the step."""
    heavy = weight.size > 0
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = 0.0
    for i in range(r):
        u = weight[start + i] if heavy else 1.0
        part, mean = u * now[i], slope[i] * change[i]
        s0 += part
        s1 += part * abs(change[i])
        s2 += part * part
        s3 += u * half[i]
        s4 += u * abs(half[i] - now[i])
        s5 += u * end[i]
        s6 += u * abs(end[i] - now[i])
        s7 += u * mean
        s8 += u * abs(mean - now[i])
    sums[0] += s0
    sums[1] += s1
    sums[2] += s2
    sums[3] += s3
    sums[4] += s4
    sums[5] += s5
    sums[6] += s6
    sums[7] += s7
    sums[8] += s8


@njit(cache=True, nogil=True, fastmath=_FAST)
def _drift(rows_of, y, weight, params, step, sums, logistic, poisson, first_part, last_part, rows):
    n, d = y.shape[0], params.shape[0] - 1
    tile = np.empty((d, STRIDE), rows_of[0].dtype)
    score, change, there, loss = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    slope, first, second = np.empty(TILE), np.empty(TILE), np.empty((3, TILE))
    bits, more = np.empty(TILE, np.int64), np.empty((0, TILE))
    for part in range(first_part, last_part):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, TILE):
            r = min(stop - start, TILE)
            if len(rows_of) == 1 and d < _LONG_ROWS:
                load_tile(rows_of[0], start, r, tile)
                _scores_of_tile(tile, r, params, score)
                _scores_of_tile(tile, r, step, change)
            elif len(rows_of) == 1:
                _scores_of_rows(rows_of[0], start, r, params, score)
                _scores_of_rows(rows_of[0], start, r, step, change)
            else:
                _scores_of_csr(rows_of[0], rows_of[1], rows_of[2], start, r, params, score)
                _scores_of_csr(rows_of[0], rows_of[1], rows_of[2], start, r, step, change)
            for place in range(3):
                for i in range(r):
                    there[i] = score[i] - 0.5 * place * change[i]
                _terms(there, y, start, r, bits, loss, first, second[place], more, logistic, poisson, None)
                for i in range(r):
                    second[place, i] *= change[i] * change[i]
                    slope[i] = first[i] if place == 0 else (slope[i] - first[i] if place == 2 else slope[i])
            _add_drift(weight, start, r, slope, second[0], second[1], second[2], change, sums[part])


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss that the sweeps know: the one that is not None, else that of least squares.

    ``huber`` is (the scale, epsilon, what is added so that there is a smallest value).
    """

    logistic: bool | None = None
    poisson: bool | None = None
    huber: tuple[float, float, float] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreSums(AddsUp):
    """What one pass adds up. Sums "by sign" are over the rows with r <= 0 and over those with r > 0.

    Parameters
    ----------
    table : (2, 3 + m)
        By sign: sums of the weight, of r times the score, of the loss, and of what the objective adds.
    by_sign : (2, d + 1)
        Sums of r times (x, 1).
    diagonal : (1, d + 1) or None
        Sums of the second derivative times (x - centre, 1)^2.
    """

    table: Array
    by_sign: Array
    diagonal: Array | None

    @property
    def gradient(self) -> Array:
        """Sums of r times (x, 1): (1, d + 1)."""
        return np.add.reduce(self.by_sign, axis=0, keepdims=True)

    @property
    def count(self) -> Array:
        """Weight of the rows: (1,)."""
        return np.add.reduce(self.table[:, 0], keepdims=True)

    @property
    def loss(self) -> Array:
        return self.table[:, 2]

    @property
    def product(self) -> Array:
        return self.table[:, 1]

    @property
    def more(self) -> Array:
        return self.table[:, 3:]


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """The results of a sweep. What was not asked for is empty."""

    cost: Array  # (n,) losses of the rows, without their weights
    bends: Array  # (n,) their second derivatives, times the weights
    slopes: Array  # (n,) their first derivatives, of the Huber loss where bends were asked for
    sums: ScoreSums
    gram: Array | None  # (d + 1, d + 1): sum of the second derivatives times (x - centre, 1)(x - centre, 1)^T


def sweep(
    X: Any,
    y: Array,
    params: Array,
    loss: Loss,
    *,
    weight: Array | None = None,
    cost: bool = False,
    bends: bool = False,
    gradient: bool = True,
    diagonal: bool = False,
    gram: bool = False,
    centre: Array | None = None,
) -> Swept:
    """Sums over rows with one score x . w + b, params (d + 1,); y int32 classes 0 and 1 for the logistic loss.

    Parts begin at the same rows however many threads there are: no bit depends on their number. ``centre`` (d,) and
    ``gram`` are for dense rows; a gram is right to some 10^-8 of the roots of the diagonal entries beside each entry.
    """
    n, d = X.shape
    X, y, weight = to_compiled(X), to_compiled(y), to_compiled(weight)
    n_more = 0 if loss.huber is None else 3
    rows = part_rows(n, 16 * (3 + n_more + d + 1) + 8 * (d + 1) * diagonal + 8 * (d + 1) ** 2 * gram)
    n_parts = -(-n // rows)
    costs, bent = np.empty(n if cost else 0), np.empty(((1 if loss.huber is None else 2) * bends, n))
    tables, gradients = np.zeros((n_parts, 2, 3 + n_more)), np.zeros((n_parts, 2 if gradient else 0, d + 1))
    diagonals, grams = np.zeros((n_parts, d + 1 if diagonal else 0)), np.zeros((n_parts, *((d + 1) * gram,) * 2))
    sums_of = (costs, bent, tables, gradients, diagonals, grams)
    line, u = np.ascontiguousarray(params, np.float64), np.empty(0) if weight is None else weight
    kind = (loss.logistic, loss.poisson, loss.huber)
    origin = np.zeros(d) if centre is None else centre

    def run(first: int, last: int) -> None:
        if sparse.issparse(X):
            _sweep_csr(X.data, X.indices, X.indptr, y, u, line, sums_of, *kind, first, last, rows)
        else:
            _sweep_dense(X, y, u, line, origin, sums_of, *kind, first, last, rows)

    entries = (X.nnz if sparse.issparse(X) else n * d) * (1 + d // 8 * gram)
    over_parts(run, n_parts, serial=entries < _SERIAL_NUMBERS)
    sums = ScoreSums(
        table=add_parts(tables),
        by_sign=add_parts(gradients) if gradient else np.zeros((2, d + 1)),
        diagonal=add_parts(diagonals)[None] if diagonal else None,
    )
    total = None
    if gram:
        lower = add_parts(grams)
        total = np.tril(lower) + np.tril(lower, -1).T
    return Swept(cost=costs, bends=bent[:1].ravel(), slopes=bent[1:].ravel(), sums=sums, gram=total)


def drift_sums(X: Any, y: Array, params: Array, step: Array, loss: Loss, *, weight: Array | None = None) -> Array:
    """See `LinearModelObjective.drift_sums`: (9,), for rows with one score; params and step (d + 1,)."""
    n, d = X.shape
    X, y, weight = to_compiled(X), to_compiled(y), to_compiled(weight)
    rows = part_rows(n, 72)
    n_parts = -(-n // rows)
    sums = np.zeros((n_parts, 9))
    line, change = np.ascontiguousarray(params, np.float64), np.ascontiguousarray(step, np.float64)
    rows_of = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    u = np.empty(0) if weight is None else weight

    def run(first: int, last: int) -> None:
        _drift(rows_of, y, u, line, change, sums, loss.logistic, loss.poisson, first, last, rows)

    over_parts(run, n_parts, serial=(X.nnz if sparse.issparse(X) else n * d) < _SERIAL_NUMBERS)
    return add_parts(sums)


@njit(cache=True, nogil=True)
def _poisson_rows(score, y, bits, loss, first, mean):
    _poisson(score, y, 0, score.shape[0], bits, loss, first, mean)


def poisson_terms(score: Array, y: Array) -> tuple[Array, Array, Array]:
    """exp(z) - y z + y ln y - y for scores z (n,) and targets (n,), and its first and second derivatives in z."""
    loss, first, mean = np.empty(len(score)), np.empty(len(score)), np.empty(len(score))
    _poisson_rows(score, np.ascontiguousarray(y), np.empty(len(score), np.int64), loss, first, mean)
    return loss, first, mean
