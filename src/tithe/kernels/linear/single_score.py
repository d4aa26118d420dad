"""Compiled loops of losses of one linear score: the scores of a run of rows, and the sums of their derivatives.

The losses themselves come between the two, so that these loops serve every loss. Everything is added up in float64,
row by row in our own loops: the score of a row has the same bits wherever the row stands.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from scipy import sparse

from tithe.core.data import Array

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
