"""Weighted sums of products of columns, over many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, to_compiled

_FAST = {"contract", "reassoc", "nsz"}
TILE = 256  # rows whose products are added in single precision: more would lose digits, and leave the cache
STRIDE = TILE + 16  # of a column of a tile: with a power of two all columns would share a few places of the cache
_MAX_PARTS = 8  # runs of rows that are added up apart
_MIN_PART_ROWS = 2048
_DENSE_SHARE = 0.1  # share of stored entries from which sparse rows are better multiplied as dense ones


@njit(cache=True, nogil=True, fastmath=_FAST)
def load_tile(X, start, r, tile):
    """Copy rows into the columns of a tile (d, STRIDE). Eight at a time, since their values lie side by side there."""
    d = X.shape[1]
    eights = r // 8 * 8
    for i in range(0, eights, 8):
        for j in range(d):
            tile[j, i] = X[start + i, j]
            tile[j, i + 1] = X[start + i + 1, j]
            tile[j, i + 2] = X[start + i + 2, j]
            tile[j, i + 3] = X[start + i + 3, j]
            tile[j, i + 4] = X[start + i + 4, j]
            tile[j, i + 5] = X[start + i + 5, j]
            tile[j, i + 6] = X[start + i + 6, j]
            tile[j, i + 7] = X[start + i + 7, j]
    for i in range(eights, r):
        for j in range(d):
            tile[j, i] = X[start + i, j]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _scale_tile(tile, r, weight, centre, scaled, scale):
    """The columns of a tile, centred, in units of their size, times the roots of the weights. False: all are zero."""
    d = tile.shape[0]
    total = 0.0
    for i in range(r):
        total += weight[i]
    if total == 0.0:
        return False
    for i in range(r):
        scaled[d, i] = np.sqrt(weight[i] / total)
    scale[d] = np.sqrt(total)
    for j in range(d):
        square = 0.0
        for i in range(r):
            x = tile[j, i] - centre[j]
            square += x * x
        size = np.sqrt(square / r)
        inverse = 1.0 / size if size > 0.0 else 0.0
        for i in range(r):
            scaled[j, i] = np.float32((tile[j, i] - centre[j]) * inverse) * scaled[d, i]
        scale[j] = size * scale[d]
    if r < TILE:
        for j in range(d + 1):
            for i in range(r, TILE):
                scaled[j, i] = 0.0
    return True


@njit(cache=True, nogil=True, fastmath=_FAST)
def _products(tile, a, b, sums):
    """The 16 products of four columns of a tile with four others."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = s12 = s13 = s14 = s15 = np.float32(0.0)
    for i in range(TILE):
        a0, a1, a2, a3 = tile[a, i], tile[a + 1, i], tile[a + 2, i], tile[a + 3, i]
        b0, b1, b2, b3 = tile[b, i], tile[b + 1, i], tile[b + 2, i], tile[b + 3, i]
        s0 += a0 * b0
        s1 += a0 * b1
        s2 += a0 * b2
        s3 += a0 * b3
        s4 += a1 * b0
        s5 += a1 * b1
        s6 += a1 * b2
        s7 += a1 * b3
        s8 += a2 * b0
        s9 += a2 * b1
        s10 += a2 * b2
        s11 += a2 * b3
        s12 += a3 * b0
        s13 += a3 * b1
        s14 += a3 * b2
        s15 += a3 * b3
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7] = s0, s1, s2, s3, s4, s5, s6, s7
    sums[8], sums[9], sums[10], sums[11], sums[12], sums[13], sums[14], sums[15] = s8, s9, s10, s11, s12, s13, s14, s15


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_gram(tile, r, weight, centre, scaled, scale, sums, gram):
    """Add weight (x - centre, 1)(x - centre, 1)^T of the first r rows of a tile to the lower half of ``gram``.

    Parameters
    ----------
    tile : (d, STRIDE)
    weight : (r,), at least 0
    gram : (d + 1, d + 1)
    scaled, scale, sums : (d + 1 or more, a multiple of 4, STRIDE) float32, as many float64, (16,) float64
        Overwritten; ``scaled`` begins with zeros.
    """
    d = tile.shape[0]
    if not _scale_tile(tile, r, weight, centre, scaled, scale):
        return
    for a in range(0, d + 1, 4):
        for b in range(0, a + 1, 4):
            _products(scaled, a, b, sums)
            for k in range(min(4, d + 1 - a)):
                for m in range(min(4, d + 1 - b)):
                    gram[a + k, b + m] += sums[4 * k + m] * scale[a + k] * scale[b + m]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gram_dense(X, weight, centre, grams, first, last, rows_of_part):
    n, d = X.shape
    wide = (d + 4) // 4 * 4
    tile, scaled = np.empty((d, STRIDE), X.dtype), np.zeros((wide, STRIDE), np.float32)
    scale, sums = np.zeros(wide), np.empty(16)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows_of_part)
        for start in range(part * rows_of_part, stop, TILE):
            r = min(stop - start, TILE)
            load_tile(X, start, r, tile)
            add_gram(tile, r, weight[start : start + r], centre, scaled, scale, sums, grams[part])


@njit(cache=True, nogil=True, fastmath=_FAST)
def gram_csr(data, indices, indptr, weight, grams, first, last, rows_of_part):
    """The lower half of sum of weight (x, 1)(x, 1)^T for each part of CSR rows, weights of any sign."""
    n, d = indptr.shape[0] - 1, grams.shape[1] - 1
    for part in range(first, last):
        for i in range(part * rows_of_part, min(n, (part + 1) * rows_of_part)):
            if weight[i] == 0.0:
                continue
            for p in range(indptr[i], indptr[i + 1]):
                a, product = indices[p], weight[i] * data[p]
                grams[part, d, a] += product
                for q in range(indptr[i], p + 1):
                    b = indices[q]
                    if a >= b:
                        grams[part, a, b] += product * data[q]
                    else:
                        grams[part, b, a] += product * data[q]
            grams[part, d, d] += weight[i]


def weighted_gram(X: Any, weight: Array, centre: Array | None = None) -> Array:
    """sum of weight (x - centre, 1)(x - centre, 1)^T for weights of at least 0: (d + 1, d + 1) float64.

    Products of dense rows are taken in single precision and added up in double precision: entries are right to some
    10^-8 of the roots of the diagonal entries beside them, in whatever units the columns are. CSR rows are exact, and
    not centred. No bit depends on the number of threads.
    """
    n, d = X.shape
    X, weight = to_compiled(X), to_compiled(weight)
    rows = max(_MIN_PART_ROWS, -(-n // _MAX_PARTS // TILE) * TILE)
    n_parts = max(1, -(-n // rows))
    grams = np.zeros((n_parts, d + 1, d + 1))
    origin = np.zeros(d) if centre is None else centre

    def run(first: int, last: int) -> None:
        if not sparse.issparse(X):
            _gram_dense(X, weight, origin, grams, first, last, rows)
        elif X.nnz <= _DENSE_SHARE * n * d:
            gram_csr(X.data, X.indices, X.indptr, weight, grams, first, last, rows)
        else:
            for part in range(first, last):
                at = slice(part * rows, (part + 1) * rows)
                _gram_dense(X[at].toarray(), weight[at], origin, grams[part : part + 1], 0, 1, rows)

    over_parts(run, n_parts)
    total = add_parts(grams)
    return np.tril(total) + np.tril(total, -1).T


@njit(cache=True, nogil=True, fastmath=_FAST)
def _square_rows(X, centre, inverse, squares, reach, first, last, rows_of_part):
    """Squared deviations: added up by column, or with ``inverse``, times it, by row."""
    n, d = X.shape
    for part in range(first, last):
        for i in range(part * rows_of_part, min(n, (part + 1) * rows_of_part)):
            total = 0.0
            if inverse.size > 0:
                for j in range(d):
                    x = X[i, j] - centre[j]
                    total += x * x * inverse[j]
                reach[i] = total
            else:
                for j in range(d):
                    x = X[i, j] - centre[j]
                    squares[part, j] += x * x


def row_reach(X: Any, centre: Array | None = None) -> Array:
    """How far rows are out, in mean squared deviations of a column, on average over the columns: (n,)."""
    n, d = X.shape
    if sparse.issparse(X):
        entries = X.multiply(X)
        return np.asarray(entries @ _inverse(np.asarray(entries.mean(axis=0)).ravel())).ravel() / d
    rows = max(_MIN_PART_ROWS, -(-n // (2 * _MAX_PARTS)))
    n_parts = -(-n // rows)
    squares, reach, origin = np.zeros((n_parts, d)), np.empty(n), np.zeros(d) if centre is None else centre
    over_parts(lambda a, b: _square_rows(X, origin, np.empty(0), squares, reach, a, b, rows), n_parts)
    inverse = _inverse(add_parts(squares) / n) / d
    over_parts(lambda a, b: _square_rows(X, origin, inverse, squares, reach, a, b, rows), n_parts)
    return reach


def _inverse(squares: Array) -> Array:
    return np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0.0)
