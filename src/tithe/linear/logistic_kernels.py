"""Loops of logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, part_rows, single_blas_thread
from tithe.core.passes import AddsUp

_FAST = {"contract", "reassoc", "nsz"}
_TILE_ROWS = 512
WIDE_COLUMNS = 64  # columns from which sums over many classes are products of matrices
_WIDE_TILE_ROWS = 256  # rows of these products
MAX_CLASSES_APART = 32  # classes up to which gradients are added up by class
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # ln 2 = their sum, to 90 bits
_MIN_EXPONENT = -700.0  # exp of anything smaller is negligible


@njit(cache=True, nogil=True, fastmath=_FAST)
def _exp(x, bits, n):
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


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath=_FAST)
def margins_dense(X, start, r, theta, margins):
    d = X.shape[1]
    for k in range(theta.shape[0]):
        for i in range(r):
            total = theta[k, d]
            for j in range(d):
                total += X[start + i, j] * theta[k, j]
            margins[k, i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def margins_csr(data, indices, indptr, start, r, theta, margins):
    d = theta.shape[1] - 1
    for k in range(theta.shape[0]):
        for i in range(r):
            total = theta[k, d]
            for p in range(indptr[start + i], indptr[start + i + 1]):
                total += data[p] * theta[k, indices[p]]
            margins[k, i] = total


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _two_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part):
    """Two classes, one margin: losses, residuals and curvatures of a tile."""
    label, margin, wrong, curve = y[start : start + r], margins[0], slopes[0], curves[0]
    for i in range(r):
        margin[i] = margin[i] if label[i] == 1 else -margin[i]
        spare[i] = -abs(margin[i])
    _exp(spare, bits, r)
    for i in range(r):
        t = margin[i]
        q = spare[i]
        inverse = 1.0 / (1.0 + q)
        wrong[i] = q * inverse if t > 0.0 else inverse  # the chance given to the other class
        curve[i] = wrong[i] * (1.0 - wrong[i])
        spare[i] = _log1p(q) - min(t, 0.0)  # the loss
    if cost.size > 0:
        for i in range(r):
            cost[start + i] = spare[i]
    u0 = u1 = l0 = l1 = h0 = h1 = 0.0
    if weight.size > 0:
        share = weight[start : start + r]
        for i in range(r):
            u, in_one = share[i], share[i] if label[i] == 1 else 0.0
            entropy = spare[i] + wrong[i] * margin[i]
            u0 += u
            l0 += u * spare[i]
            h0 += u * entropy
            u1 += in_one
            l1 += in_one * spare[i]
            h1 += in_one * entropy
            wrong[i] *= u
            curve[i] *= u
    else:
        u0 = float(r)
        for i in range(r):
            in_one = 1.0 if label[i] == 1 else 0.0
            entropy = spare[i] + wrong[i] * margin[i]
            l0 += spare[i]
            h0 += entropy
            u1 += in_one
            l1 += in_one * spare[i]
            h1 += in_one * entropy
    for i in range(r):
        wrong[i] = -wrong[i] if label[i] == 1 else wrong[i]
    counts[part, 0, 0] += u0 - u1
    counts[part, 0, 1] += l0 - l1
    counts[part, 0, 2] += h0 - h1
    counts[part, 1, 0] += u1
    counts[part, 1, 1] += l1
    counts[part, 1, 2] += h1


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _many_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part):
    """K classes, K margins: losses, residuals and curvatures of a tile."""
    n_classes = margins.shape[0]
    for i in range(r):
        top = margins[0, i]
        for k in range(1, n_classes):
            top = max(top, margins[k, i])
        spare[i] = top
    for k in range(n_classes):
        for i in range(r):
            slopes[k, i] = margins[k, i] - spare[i]
        _exp(slopes[k], bits, r)
    for i in range(r):
        total = 0.0
        for k in range(n_classes):
            total += slopes[k, i]
        c = y[start + i]
        u = weight[start + i] if weight.size > 0 else 1.0
        # the other classes alone: what is left of 1 would be lost to rounding where the loss is small
        others = total - slopes[c, i]
        if others < 0.5 * slopes[c, i]:
            others = 0.0
            for k in range(n_classes):
                others += slopes[k, i] if k != c else 0.0
        loss = spare[i] - margins[c, i]
        loss += np.log1p(others) if loss == 0.0 else np.log(total)
        entropy = loss
        for k in range(n_classes):
            p = slopes[k, i] / total
            residual = -others / total if k == c else p
            entropy -= residual * margins[k, i]
            slopes[k, i] = u * residual
            curves[k, i] = u * p * (others / total if k == c else 1.0 - p)
        if cost.size > 0:
            cost[start + i] = loss
        counts[part, c, 0] += u
        counts[part, c, 1] += u * loss
        counts[part, c, 2] += u * max(entropy, 0.0)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_dense(X, start, r, y, slopes, curves, centre, gradient, diagonal, part):
    d = X.shape[1]
    for i in range(r):
        c = y[start + i] if gradient.shape[1] > 1 else 0
        for k in range(slopes.shape[0]):
            p = slopes[k, i]
            gradient[part, c, k, d] += p
            if diagonal.shape[0] == 0:
                for j in range(d):
                    gradient[part, c, k, j] += p * X[start + i, j]
                continue
            b = curves[k, i]
            diagonal[part, k, d] += b
            for j in range(d):
                x = np.float64(X[start + i, j])
                gradient[part, c, k, j] += p * x
                x -= centre[j]
                diagonal[part, k, j] += b * x * x


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_csr(data, indices, indptr, start, r, y, slopes, curves, gradient, diagonal, part):
    d = gradient.shape[3] - 1
    for i in range(r):
        c = y[start + i] if gradient.shape[1] > 1 else 0
        for k in range(slopes.shape[0]):
            p, b = slopes[k, i], curves[k, i]
            for at in range(indptr[start + i], indptr[start + i + 1]):
                x = np.float64(data[at])
                gradient[part, c, k, indices[at]] += p * x
                if diagonal.shape[0] > 0:
                    diagonal[part, k, indices[at]] += b * x * x
            gradient[part, c, k, d] += p
            if diagonal.shape[0] > 0:
                diagonal[part, k, d] += b


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_dense(X, y, weight, theta, centre, cost, counts, gradient, diagonal, first, last, rows, many):
    """``many`` is None for two classes: then numba does not compile what is for more."""
    n, size = X.shape[0], theta.shape[0]
    margins, slopes, curves = np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS))
    spare, bits = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop - start, _TILE_ROWS)
            margins_dense(X, start, r, theta, margins)
            if many is None:
                _two_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part)
            else:
                _many_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part)
            if gradient.shape[0] > 0:
                _add_dense(X, start, r, y, slopes, curves, centre, gradient, diagonal, part)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sort_tile(X, y, start, r, n_classes, edges, position, tile):
    """Rows of a tile in float64, in the order of their classes; ``edges`` says where each class begins."""
    edges[:] = 0
    for i in range(r):
        edges[y[start + i] + 1] += 1
    for c in range(n_classes):
        edges[c + 1] += edges[c]
    for i in range(r):
        c = y[start + i]
        position[i] = edges[c]
        edges[c] += 1
        for j in range(X.shape[1]):
            tile[position[i], j] = X[start + i, j]
    for c in range(n_classes, 0, -1):
        edges[c] = edges[c - 1]
    edges[0] = 0


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_wide(X, y, weight, theta, centre, cost, counts, gradient, diagonal, first, last, rows):
    """Many classes and many columns: margins and sums are products of matrices, class by class."""
    n, d = X.shape
    size = theta.shape[0]
    coefficients = np.ascontiguousarray(theta[:, :d])
    tile, ordered = np.empty((_WIDE_TILE_ROWS, d)), np.empty((size, _WIDE_TILE_ROWS))
    margins, slopes, curves = np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS))
    spare, bits = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    edges, position = np.zeros(size + 1, np.int64), np.empty(_WIDE_TILE_ROWS, np.int64)
    sums, scratch = np.empty((size, d)), np.empty(size * _WIDE_TILE_ROWS)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _WIDE_TILE_ROWS):
            r = min(stop - start, _WIDE_TILE_ROWS)
            _sort_tile(X, y, start, r, size, edges, position, tile)
            products = np.dot(coefficients, tile[:r].T)
            for k in range(size):
                for i in range(r):
                    margins[k, i] = products[k, position[i]] + theta[k, d]
            _many_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part)
            if gradient.shape[0] == 0:
                continue
            for k in range(size):
                for i in range(r):
                    ordered[k, position[i]] = slopes[k, i]
            groups = gradient.shape[1]
            for c in range(groups):
                a, b = (edges[c], edges[c + 1]) if groups > 1 else (0, r)
                if a == b:
                    continue
                columns = scratch[: size * (b - a)].reshape(size, b - a)
                for k in range(size):
                    for i in range(b - a):
                        columns[k, i] = ordered[k, a + i]
                np.dot(columns, tile[a:b], sums)
                for k in range(size):
                    for j in range(d):
                        gradient[part, c, k, j] += sums[k, j]
                    for i in range(b - a):
                        gradient[part, c, k, d] += columns[k, i]
            if diagonal.shape[0] > 0:
                columns = scratch[: size * r].reshape(size, r)
                for k in range(size):
                    for i in range(r):
                        columns[k, position[i]] = curves[k, i]
                        diagonal[part, k, d] += curves[k, i]
                for i in range(r):
                    for j in range(d):
                        tile[i, j] = (tile[i, j] - centre[j]) ** 2
                np.dot(columns, tile[:r], sums)
                for k in range(size):
                    for j in range(d):
                        diagonal[part, k, j] += sums[k, j]


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_csr(data, indices, indptr, y, weight, theta, cost, counts, gradient, diagonal, first, last, rows, many):
    n, size = indptr.shape[0] - 1, theta.shape[0]
    margins, slopes, curves = np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS))
    spare, bits = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop - start, _TILE_ROWS)
            margins_csr(data, indices, indptr, start, r, theta, margins)
            if many is None:
                _two_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part)
            else:
                _many_classes(y, weight, start, r, margins, spare, bits, cost, slopes, curves, counts, part)
            if gradient.shape[0] > 0:
                _add_csr(data, indices, indptr, start, r, y, slopes, curves, gradient, diagonal, part)


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticSums(AddsUp):
    """The sums of one sweep; K classes, k = 1 margin for two classes and K for more.

    Parameters
    ----------
    count, loss, entropy : (K,)
        By the class of the row: weight, loss, and the entropy of the predicted probabilities.
    by_class : (K, k, d + 1)
        By the class of the row: residual (chance given minus class indicator) times (x, 1). With more
        than 32 classes (1, k, d + 1), all together: by class they would take K^2 (d + 1) numbers.
    diagonal : (k, d + 1) or None
        Diagonal of the curvature: chance (1 - chance) times (x - centre, 1)^2.
    """

    count: Array
    loss: Array
    entropy: Array
    by_class: Array
    diagonal: Array | None

    @property
    def gradient(self) -> Array:
        """The gradient of the losses: (k, d + 1)."""
        total: Array = self.by_class.sum(axis=0)
        return total


def logistic_sweep(
    X: Any,
    y: Array,
    theta: Array,
    *,
    n_classes: int,
    weight: Array | None = None,
    cost: bool = True,
    gradient: bool = True,
    diagonal: bool = False,
    centre: Array | None = None,
) -> tuple[Array, LogisticSums]:
    """Losses (n,) of the rows at ``theta`` (k, d + 1), intercepts last, and their sums; y (n,) int32 class numbers.

    Results that are not requested are empty or zero. ``centre`` (d,) is for dense rows; None is the origin.
    """
    n, d = X.shape
    size = theta.shape[0]
    theta = np.ascontiguousarray(theta, np.float64)
    groups = n_classes if n_classes <= MAX_CLASSES_APART else 1
    rows = part_rows(n, 8 * ((groups + 1) * size * (d + 1) + 3 * n_classes) if gradient else 8)
    n_parts = -(-n // rows)
    counts = np.zeros((n_parts, n_classes, 3))
    gradients = np.zeros((n_parts if gradient else 0, groups, size, d + 1))
    diagonals = np.zeros((n_parts if diagonal else 0, size, d + 1))
    costs = np.empty(n if cost else 0)
    u = np.empty(0) if weight is None else weight
    sums = (costs, counts, gradients, diagonals)
    many = None if size == 1 else True
    wide = size > 1 and d >= WIDE_COLUMNS
    if sparse.issparse(X):
        rows_of = (X.data, X.indices, X.indptr)

        def run(a: int, b: int) -> None:
            sweep_csr(*rows_of, y, u, theta, *sums, a, b, rows, many)

    else:
        origin = np.zeros(d) if centre is None else centre

        def run(a: int, b: int) -> None:
            if wide:
                sweep_wide(X, y, u, theta, origin, *sums, a, b, rows)
            else:
                sweep_dense(X, y, u, theta, origin, *sums, a, b, rows, many)

    entries = X.nnz if sparse.issparse(X) else n * d
    with single_blas_thread():
        over_parts(run, n_parts, serial=entries * size < 200_000)
    total = add_parts(counts)
    return costs, LogisticSums(
        count=total[:, 0],
        loss=total[:, 1],
        entropy=total[:, 2],
        by_class=add_parts(gradients) if gradient else np.zeros((groups, size, d + 1)),
        diagonal=add_parts(diagonals) if diagonal else None,
    )
