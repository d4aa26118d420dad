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
from tithe.linear.kernels import Loss, ScoreSums, exp_of_negative, sweep

_FAST = {"contract", "reassoc", "nsz"}
_TILE_ROWS = 512
WIDE_COLUMNS = 64  # columns from which sums over many classes are products of matrices
_WIDE_TILE_ROWS = 256  # rows of these products
MAX_CLASSES_APART = 32  # classes up to which gradients are added up by class


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
        exp_of_negative(slopes[k], bits, r)
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
def sweep_dense(X, y, weight, theta, centre, cost, counts, gradient, diagonal, first, last, rows):
    n, size = X.shape[0], theta.shape[0]
    margins, slopes, curves = np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS))
    spare, bits = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop - start, _TILE_ROWS)
            margins_dense(X, start, r, theta, margins)
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
def sweep_csr(data, indices, indptr, y, weight, theta, cost, counts, gradient, diagonal, first, last, rows):
    n, size = indptr.shape[0] - 1, theta.shape[0]
    margins, slopes, curves = np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS)), np.empty((size, _TILE_ROWS))
    spare, bits = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop - start, _TILE_ROWS)
            margins_csr(data, indices, indptr, start, r, theta, margins)
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


def sums_of_two_classes(sums: ScoreSums) -> LogisticSums:
    """Sums by sign as those by class: rows of class 1 have a negative residual, and those of class 0 a positive one."""
    loss = sums.loss[::-1]
    return LogisticSums(
        count=sums.table[::-1, 0],
        loss=loss,
        entropy=np.maximum(loss - sums.product[::-1], 0.0),
        by_class=sums.by_sign[::-1, None],
        diagonal=sums.diagonal,
    )


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
    if size == 1:
        options: Any = {"cost": cost, "gradient": gradient, "diagonal": diagonal, "centre": centre}
        swept = sweep(X, y, theta[0], Loss(logistic=True), weight=weight, **options)
        return swept.cost, sums_of_two_classes(swept.sums)
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
    wide = d >= WIDE_COLUMNS
    if sparse.issparse(X):
        rows_of = (X.data, X.indices, X.indptr)

        def run(a: int, b: int) -> None:
            sweep_csr(*rows_of, y, u, theta, *sums, a, b, rows)

    else:
        origin = np.zeros(d) if centre is None else centre

        def run(a: int, b: int) -> None:
            if wide:
                sweep_wide(X, y, u, theta, origin, *sums, a, b, rows)
            else:
                sweep_dense(X, y, u, theta, origin, *sums, a, b, rows)

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
