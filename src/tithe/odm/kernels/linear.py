"""The two-sided squared loss of a margin distribution over all rows in one sweep: losses, gradient, curvature.

Rows are taken in tiles: scores first, then losses, then the sums; rows inside the band add nothing to a
gradient and are passed over. Everything is added up in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.gram import gram_csr
from tithe.core.parallel import add_parts, over_parts, part_rows, single_blas_thread
from tithe.core.passes import AddsUp
from tithe.linear.logistic_kernels import MAX_CLASSES_APART, margins_csr, margins_dense

_FAST = {"contract", "reassoc", "nsz"}
_TILE_ROWS = 512
_WIDE_COLUMNS = 64  # columns from which the scores of many classes are a product of matrices


@njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_wide(X, start, r, params, tile, scores):
    d = X.shape[1]
    for i in range(r):
        for j in range(d):
            tile[i, j] = X[start + i, j]
        tile[i, d] = 1.0
    product = np.dot(params, tile[:r].T)
    for k in range(params.shape[0]):
        for i in range(r):
            scores[k, i] = product[k, i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _losses(codes, weight, start, r, scores, mu, theta, cost, slope, second, rival, counts, part):
    """Losses of a tile, their slopes (negative: below the band, positive: above) and second derivatives."""
    k = scores.shape[0]
    heavy, keep = weight.size > 0, cost.size > 0
    for i in range(r):
        c = codes[start + i]
        if k == 1:
            u = scores[0, i] if c == 1 else -scores[0, i]
        else:
            best = 1 if c == 0 else 0
            for a in range(best + 1, k):
                if a != c and scores[a, i] > scores[best, i]:
                    best = a
            rival[i] = best
            u = scores[c, i] - scores[best, i]
        below, above = (1.0 - theta) - u, u - (1.0 + theta)
        s = weight[start + i] if heavy else 1.0
        loss = 0.0
        counts[part, c, 0] += s
        slope[i] = second[i] = 0.0
        if below > 0.0:
            loss = below * below
            counts[part, c, 1] += s * loss
            slope[i], second[i] = -2.0 * s * below, 2.0 * s
        elif above > 0.0:
            loss = mu * above * above
            counts[part, c, 2] += s * loss
            slope[i], second[i] = 2.0 * mu * s * above, 2.0 * mu * s
        if keep:
            cost[start + i] = loss


@njit(cache=True, nogil=True, fastmath=_FAST)
def _slope_of(codes, i, start, k, rival, slope):
    """The scores in which a row has a slope, and the slope; for two classes there is one score (the second is -1)."""
    c = codes[start + i]
    if k == 1:
        return 0, -1, slope[i] if c == 1 else -slope[i]
    return c, rival[i], slope[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add(rows, start, r, codes, slope, second, rival, centre, sides, diagonal, part):
    k, d = sides.shape[3], sides.shape[4] - 1
    for i in range(r):
        if slope[i] == 0.0:
            continue
        side, group = 0 if slope[i] < 0.0 else 1, codes[start + i] if sides.shape[2] > 1 else 0
        true_class, rival_class, p = _slope_of(codes, i, start, k, rival, slope)
        for a in (true_class, rival_class):
            if a < 0:
                continue
            q = p if a == true_class else -p
            if len(rows) == 1:
                X = rows[0]
                for j in range(d):
                    sides[part, side, group, a, j] += q * X[start + i, j]
                if diagonal.shape[0] > 0:
                    for j in range(d):
                        x = np.float64(X[start + i, j]) - centre[j]
                        diagonal[part, a, j] += second[i] * x * x
            else:
                data, indices, indptr = rows
                for at in range(indptr[start + i], indptr[start + i + 1]):
                    x = np.float64(data[at])
                    sides[part, side, group, a, indices[at]] += q * x
                    if diagonal.shape[0] > 0:
                        diagonal[part, a, indices[at]] += second[i] * x * x
            sides[part, side, group, a, d] += q
            if diagonal.shape[0] > 0:
                diagonal[part, a, d] += second[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sweep(rows, codes, weight, params, mu, theta, centre, cost, counts, sides, diagonal, first, last, per_part):
    n, k, d = codes.shape[0], params.shape[0], params.shape[1] - 1
    scores, slope = np.empty((k, _TILE_ROWS)), np.empty(_TILE_ROWS)
    second, rival = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int32)
    wide = len(rows) == 1 and k > 1 and d >= _WIDE_COLUMNS
    tile = np.empty((_TILE_ROWS if wide else 0, d + 1))
    for part in range(first, last):
        stop = min(n, (part + 1) * per_part)
        for start in range(part * per_part, stop, _TILE_ROWS):
            r = min(stop - start, _TILE_ROWS)
            if len(rows) == 1:
                if wide:
                    _scores_wide(rows[0], start, r, params, tile, scores)
                else:
                    margins_dense(rows[0], start, r, params, scores)
            else:
                margins_csr(rows[0], rows[1], rows[2], start, r, params, scores)
            _losses(codes, weight, start, r, scores, mu, theta, cost, slope, second, rival, counts, part)
            if sides.shape[0] > 0:
                _add(rows, start, r, codes, slope, second, rival, centre, sides, diagonal, part)


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginSums(AddsUp):
    """The sums of one sweep; K classes, k = 1 score for two classes and K for more.

    ``sides`` (2, G, k, d + 1) are the gradient of the loss, below and above the band: slope times (x, 1), at the row's
    own score and, with the other sign, at that of its rival; for two classes at the one score, with the sign of the
    class. G = K if ``by_class``, else 1.
    """

    count: Array  # (K,), weight by the class of the row
    loss: Array  # (2, K), below and above the band, by the class of the row
    sides: Array
    diagonal: Array | None  # (k, d + 1) of the curvature: second derivative times (x - centre, 1)^2

    @property
    def gradient(self) -> Array:
        """The gradient of the loss: (k, d + 1)."""
        return np.asarray(self.sides.sum(axis=(0, 1)))


def row_arrays(X: Any) -> tuple[Array, ...]:
    """Rows as kernels take them: (X,), or (data, indices, indptr) of CSR form."""
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)


def margin_sweep(
    X: Any,
    codes: Array,
    params: Array,
    *,
    n_classes: int,
    mu: float,
    theta: float,
    weight: Array | None = None,
    cost: bool = True,
    gradient: bool = True,
    diagonal: bool = False,
    centre: Array | None = None,
    by_class: bool = False,
) -> tuple[Array | None, MarginSums]:
    """Losses (n,) of the rows at ``params`` (k, d + 1), intercepts last, and their sums: see `MarginObjective`.

    X (n, d) is dense or CSR, ``codes`` (n,) are int32. Of cost, gradient and diagonal, what is not requested is None,
    or zeros for sums. For the diagonal the columns of dense rows are taken from ``centre`` (d,).
    """
    n, d = X.shape
    params = np.ascontiguousarray(params, np.float64)
    k = len(params)
    groups = n_classes if by_class and n_classes <= MAX_CLASSES_APART else 1
    rows = part_rows(n, 8 * ((2 * groups + 1) * k * (d + 1) + 3 * n_classes) if gradient else 8)
    n_parts = -(-n // rows)
    counts = np.zeros((n_parts, n_classes, 3))
    sides = np.zeros((n_parts if gradient else 0, 2, groups, k, d + 1))
    diagonals = np.zeros((n_parts if gradient and diagonal else 0, k, d + 1))
    costs = np.empty(n if cost else 0)
    origin = np.zeros(d) if centre is None else centre
    args = (codes, np.empty(0) if weight is None else weight, params, float(mu), float(theta), origin)
    sums, arrays = (costs, counts, sides, diagonals), row_arrays(X)

    def run(first: int, last: int) -> None:
        _sweep(arrays, *args, *sums, first, last, rows)

    entries = X.nnz if sparse.issparse(X) else n * d
    with single_blas_thread():
        over_parts(run, n_parts, serial=entries * k < 200_000)
    total = add_parts(counts)
    return costs if cost else None, MarginSums(
        count=total[:, 0],
        loss=total[:, 1:].T,
        sides=add_parts(sides) if gradient else np.zeros(sides.shape[1:]),
        diagonal=add_parts(diagonals) if gradient and diagonal else None,
    )


_BLOCK_NUMBERS = 1 << 16  # numbers of a block of rows that is worked on at a time: it stays in the cache
_MAX_PARTS, _MAX_PARTIAL_BYTES = 8, 1 << 26  # sums that are kept side by side, and the bytes they may take


def block_rows(d: int) -> int:
    """Rows of a dense block that stays in the cache."""
    return max(64, _BLOCK_NUMBERS // max(d, 1))


def gram(X: Any, weight: Array) -> Array:
    """sum_i weight_i (x_i, 1)(x_i, 1)^T, in float64: (d + 1, d + 1), the lower half. Weights of any sign."""
    n, d = X.shape
    n_parts = max(1, min(_MAX_PARTS, n // 1024, _MAX_PARTIAL_BYTES // (8 * (d + 1) ** 2)))
    rows = -(-n // n_parts)
    n_parts = -(-n // rows)
    grams = np.zeros((n_parts, d + 1, d + 1))
    if sparse.issparse(X):

        def run(a: int, b: int) -> None:
            gram_csr(X.data, X.indices, X.indptr, weight, grams, a, b, rows)

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
def _squares(rows, squares, first, last):
    for i in range(first, last):
        total = 0.0
        if len(rows) == 1:
            X = rows[0]
            for j in range(X.shape[1]):
                total += np.float64(X[i, j]) * X[i, j]
        else:
            for p in range(rows[2][i], rows[2][i + 1]):
                total += np.float64(rows[0][p]) * rows[0][p]
        squares[i] = total


def row_squares(X: Any) -> Array:
    """|x_i|^2 of every row in float64: (n,)."""
    n, d = X.shape
    squares, rows, step = np.empty(n), row_arrays(X), part_rows(n, 8)
    over_parts(lambda a, b: _squares(rows, squares, a * step, min(n, b * step)), -(-n // step), serial=n * d < 100_000)
    return squares


def column_squares(X: Any, weight: Array) -> Array:
    """sum_i weight_i x_i^2 of every column: (d,)."""
    if sparse.issparse(X):
        return np.asarray(X.astype(np.float64).power(2).T @ weight)
    return np.asarray(np.einsum("i,ij,ij->j", weight, X, X, dtype=np.float64))
