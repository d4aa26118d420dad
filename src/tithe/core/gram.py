"""Weighted sums of products of columns, over many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts

_FAST = {"contract", "reassoc", "nsz"}
_TILE = 128  # rows whose products are added in single precision: more would lose digits, and leave the first cache
_STRIDE = _TILE + 16  # of a column of a tile: with a power of two all columns would share a few places of the cache
_MAX_PARTS = 8  # runs of rows that are added up apart
_MIN_PART_ROWS = 2048
_DENSE_SHARE = 0.1  # share of stored entries from which sparse rows are better multiplied as dense ones


@njit(cache=True, nogil=True, fastmath=_FAST)
def _fill_tile(X, start, r, weight, centre, top, rows, tile):
    """The columns of a tile, centred, times the roots of the weights, each divided by its largest value ``top``."""
    d = X.shape[1]
    heaviest = 0.0
    for j in range(d):
        top[j] = 0.0
    for i in range(r):
        heaviest = max(heaviest, weight[start + i])
        for j in range(d):
            top[j] = max(top[j], abs(X[start + i, j] - centre[j]))
    root = 1.0 / np.sqrt(heaviest) if heaviest > 0.0 else 0.0
    for j in range(d):
        top[d + 1 + j] = 1.0 / top[j] if top[j] > 0.0 else 0.0
    for i in range(_TILE):
        if i >= r:
            for j in range(d + 1):
                rows[i, j] = 0.0
            continue
        u = np.sqrt(weight[start + i]) * root
        for j in range(d):
            rows[i, j] = (X[start + i, j] - centre[j]) * top[d + 1 + j] * u
        rows[i, d] = u
    for i in range(0, _TILE, 8):
        for j in range(d + 1):
            tile[j, i] = rows[i, j]
            tile[j, i + 1] = rows[i + 1, j]
            tile[j, i + 2] = rows[i + 2, j]
            tile[j, i + 3] = rows[i + 3, j]
            tile[j, i + 4] = rows[i + 4, j]
            tile[j, i + 5] = rows[i + 5, j]
            tile[j, i + 6] = rows[i + 6, j]
            tile[j, i + 7] = rows[i + 7, j]
    top[d] = 1.0
    return heaviest


@njit(cache=True, nogil=True, fastmath=_FAST)
def _products(tile, a, b, sums):
    """The 16 products of four columns of a tile with four others."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = s12 = s13 = s14 = s15 = np.float32(0.0)
    for i in range(_TILE):
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
def _gram_dense(X, weight, centre, grams, first, last, rows_of_part):
    n, d = X.shape
    wide = (d + 4) // 4 * 4
    rows, tile = np.zeros((_TILE, d + 1), np.float32), np.zeros((wide, _STRIDE), np.float32)
    top, sums = np.zeros(2 * wide + 2), np.empty(16)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows_of_part)
        for start in range(part * rows_of_part, stop, _TILE):
            heaviest = _fill_tile(X, start, min(stop - start, _TILE), weight, centre, top, rows, tile)
            for a in range(0, d + 1, 4):
                for b in range(0, a + 1, 4):
                    _products(tile, a, b, sums)
                    for k in range(min(4, d + 1 - a)):
                        factor = heaviest * top[a + k]
                        for m in range(min(4, d + 1 - b)):
                            grams[part, a + k, b + m] += sums[4 * k + m] * factor * top[b + m]


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
    rows = max(_MIN_PART_ROWS, -(-n // _MAX_PARTS // _TILE) * _TILE)
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
