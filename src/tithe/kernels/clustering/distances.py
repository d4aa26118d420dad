"""Nearest centres and the sums of clusters: dense and CSR rows, in blocks, on several threads.

Scores ``|c|^2 - 2 x.c`` decide the nearest centre (BLAS, after moving the origin to the middle
of the centres so that a large common offset does not cancel). The distance to the chosen centre
is then computed from differences in float64: exact to rounding, never negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.parts import add_parts, part_rows

Array = np.ndarray[Any, Any]

_TILE_ROWS = 1024  # rows scored at a time: they and their scores stay in the second-level cache
_FLOAT32_SPREAD = (1e-12, 1e12)  # spread of the centres within which float32 scores can tell them apart
_CSR_SLACK = 1e-14  # relative difference of scores below which float64 cannot tell two centres apart
_OVERFLOW = 1e36  # a score beyond this is decided again in float64
_FAST = {"contract", "reassoc", "nsz"}
N_SUMS = 4  # columns of the cluster sums before the d columns of the direction


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _finish(points, nearest, centers, power, weight, cost, sums, part, start):  # type: ignore[no-untyped-def]
    """Costs and sums of a tile whose nearest centres are known.

    It indexes whole arrays: a view per row would cost two atomic counts.
    """
    for i in range(points.shape[0]):
        c = nearest[i]
        total = 0.0
        for j in range(points.shape[1]):
            gap = np.float64(points[i, j] - centers[c, j])
            total += gap * gap
        distance = total if power == 2 else np.sqrt(total)
        cost[start + i] = distance
        if sums.shape[0] > 0:
            u = weight[start + i] if weight.size > 0 else 1.0
            strength = u
            if power == 1:
                strength = u / distance if distance > 0.0 else 0.0
                sums[part, c, 3] += u if distance == 0.0 else 0.0
            sums[part, c, 0] += u
            sums[part, c, 1] += u * distance
            sums[part, c, 2] += strength
            for j in range(points.shape[1]):
                sums[part, c, 4 + j] += strength * np.float64(points[i, j] - centers[c, j])


@njit(cache=True, nogil=True, fastmath=_FAST)
def _assign_dense(X, weight, origin, scaled, norms, centers, slack, power, labels, cost, sums, first, last, rows):  # type: ignore[no-untyped-def]
    n, d = X.shape
    k = centers.shape[0]
    tile_rows = min(_TILE_ROWS, n)
    moved = origin.size > 0
    tile = np.empty((tile_rows if moved else 0, d), X.dtype)
    buffer = np.empty(k * tile_rows, X.dtype)
    best, second = np.empty(tile_rows, X.dtype), np.empty(tile_rows, X.dtype)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop, start + _TILE_ROWS) - start
            points = X[start : start + r]
            if moved:
                for i in range(r):
                    for j in range(d):
                        tile[i, j] = points[i, j] - origin[j]
                points = tile[:r]
            nearest = labels[start : start + r]
            for i in range(r):
                nearest[i] = 0
            if k > 1:
                scores = buffer[: k * r].reshape(k, r)
                np.dot(scaled, points.T, scores)
                for i in range(r):
                    best[i] = scores[0, i] + norms[0]
                    second[i] = np.inf
                for c in range(1, k):
                    for i in range(r):
                        score = scores[c, i] + norms[c]
                        closer = score < best[i]
                        larger = best[i] if closer else score
                        second[i] = larger if larger < second[i] else second[i]
                        best[i] = score if closer else best[i]
                        nearest[i] = c if closer else nearest[i]
                for i in range(r):
                    norm = norms[nearest[i]]
                    if second[i] - best[i] > slack * (norm + abs(best[i] - norm)) and abs(best[i]) < _OVERFLOW:
                        continue
                    # too close to call at this precision (or overflown): decided again from differences
                    smallest = np.inf
                    for c in range(k):
                        total = 0.0
                        for j in range(d):
                            gap = np.float64(points[i, j]) - centers[c, j]
                            total += gap * gap
                        if total < smallest:
                            smallest, nearest[i] = total, c
            _finish(points, nearest, centers, power, weight, cost, sums, part, start)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _point_costs(X, weight, point, cost, totals, first, last, rows):  # type: ignore[no-untyped-def]
    n, d = X.shape
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            square = 0.0
            for j in range(d):
                gap = X[i, j] - point[j]
                square += gap * gap
            cost[i] = square
            totals[part] += square * weight[i] if weight.size > 0 else square


@njit(cache=True, nogil=True, fastmath=_FAST)
def _csr_distance(data, indices, indptr, i, transposed, norms, c):  # type: ignore[no-untyped-def]
    """From differences where entries are stored, plus what the centre has elsewhere."""
    total, stored = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        center = transposed[indices[p], c]
        total += (data[p] - center) * (data[p] - center)
        stored += center * center
    elsewhere = norms[c] - stored
    if indptr[i + 1] - indptr[i] < transposed.shape[0] and elsewhere > 1e-14 * norms[c]:
        total += elsewhere
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _assign_csr(data, indices, indptr, weight, transposed, norms, power, labels, cost, sums, first, last, rows):  # type: ignore[no-untyped-def]
    n = indptr.shape[0] - 1
    k = transposed.shape[1]
    dots = np.empty(k, np.float64)
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            for c in range(k):
                dots[c] = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                for c in range(k):
                    dots[c] += data[p] * transposed[indices[p], c]
            nearest, best, second = np.int64(0), norms[0] - 2.0 * dots[0], np.inf
            for c in range(1, k):
                score = norms[c] - 2.0 * dots[c]
                if score < best:
                    nearest, best, second = c, score, best
                elif score < second:
                    second = score
            total = _csr_distance(data, indices, indptr, i, transposed, norms, nearest)
            if second - best <= _CSR_SLACK * (norms[nearest] + abs(best - norms[nearest])):
                for c in range(k):  # too close to call: decided again from differences
                    candidate = _csr_distance(data, indices, indptr, i, transposed, norms, c)
                    if candidate < total or (candidate == total and c < nearest):
                        nearest, total = c, candidate
            distance = total if power == 2 else np.sqrt(total)
            labels[i] = nearest
            cost[i] = distance
            if sums.shape[0] > 0:
                u = weight[i] if weight.size > 0 else 1.0
                cluster = sums[part, nearest]
                strength = u
                if power == 1:
                    strength = u / distance if distance > 0.0 else 0.0
                cluster[0] += u
                cluster[1] += u * distance
                cluster[2] += strength
                cluster[3] += u if distance == 0.0 else 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    cluster[4 + indices[p]] += strength * data[p]


def _dense_runner(X, centers, u, power, labels, cost, sums, rows):  # type: ignore[no-untyped-def]
    """The dense kernel over a range of parts, in the precision that the scale of the centres calls for."""
    origin = centers.mean(axis=0).astype(X.dtype)
    spread = float(np.abs(centers - origin).max(initial=0.0))
    if X.dtype == np.float32 and spread > 0.0 and not _FLOAT32_SPREAD[0] < spread < _FLOAT32_SPREAD[1]:

        def careful(first: int, last: int) -> None:
            for part in range(first, last):
                at = slice(part * rows, (part + 1) * rows)
                exact = X[at].astype(np.float64)
                run = _dense_runner(exact, centers, u[at], power, labels[at], cost[at], sums[part : part + 1], rows)
                run(0, 1)

        return careful
    # rows far from the origin of coordinates are moved there first; rows near it need no copy
    moved = np.abs(origin).max(initial=0.0) > 8.0 * spread
    local = (centers - origin if moved else centers).astype(X.dtype)
    scaled = (-2.0 * local).astype(X.dtype)
    norms = np.einsum("ij,ij->i", local.astype(np.float64), local).astype(X.dtype)
    origin = origin if moved else origin[:0]
    slack = X.dtype.type(16.0 * np.finfo(X.dtype).eps)

    def run(first: int, last: int) -> None:
        _assign_dense(X, u, origin, scaled, norms, local, slack, power, labels, cost, sums, first, last, rows)

    return run


def assign(
    X: Any, centers: Array, *, weight: Array | None = None, power: int = 2, with_sums: bool = False
) -> tuple[Array, Array, Array | None]:
    """Nearest centre of each row, its distance to the ``power``, and the sums of each cluster.

    Returns ``labels`` (n,) int32, ``cost`` (n,) float64 and ``sums`` (k, 4 + d) float64 or None.
    The columns of ``sums`` add up, over the rows of a cluster, ``u``, ``u * cost``, ``u * r``,
    ``u`` of the rows that sit on the centre, and ``u * r * (x - centre)``, where ``r`` is 1 for
    power 2 and 1 / distance for power 1 (0 for rows that sit on the centre).
    """
    n, d = X.shape
    k = centers.shape[0]
    labels, cost = np.empty(n, np.int32), np.empty(n, np.float64)
    rows = part_rows(n, 8 * k * (d + N_SUMS) if with_sums else 1)
    n_parts = -(-n // rows)
    sums = np.zeros((n_parts if with_sums else 0, k, d + N_SUMS))
    u = np.empty(0) if weight is None else weight
    serial = n * k * d < 8_000_000  # threads would not pay
    # centres are rounded to the precision of the rows: then every sum refers to the same point
    centers = np.ascontiguousarray(centers.astype(X.dtype), np.float64)
    if sparse.issparse(X):
        norms = np.einsum("ij,ij->i", centers, centers)
        transposed = np.ascontiguousarray(centers.T)
        rows_of = (X.data, X.indices, X.indptr)
        over_parts(
            lambda a, b: _assign_csr(*rows_of, u, transposed, norms, power, labels, cost, sums, a, b, rows),
            n_parts,
            serial=serial,
        )
    else:
        run = _dense_runner(X, centers, u, power, labels, cost, sums, rows)
        with single_blas_thread():
            over_parts(run, n_parts, serial=serial)
    if not with_sums:
        return labels, cost, None
    total = add_parts(sums)
    if sparse.issparse(X):
        total[:, N_SUMS:] -= total[:, 2:3] * centers
    return labels, cost, total


def point_costs(X: Any, point: Array, *, weight: Array | None = None) -> tuple[Array, float]:
    """Squared distances (n,) of the rows to one point, and their weighted sum."""
    n = X.shape[0]
    if sparse.issparse(X):
        cost = assign(X, point[None])[1]
        return cost, float(cost.sum() if weight is None else cost @ weight)
    cost = np.empty(n)
    u = np.empty(0) if weight is None else weight
    rows = part_rows(n, 8)
    n_parts = -(-n // rows)
    totals = np.zeros((n_parts, 1))
    over_parts(lambda a, b: _point_costs(X, u, point, cost, totals[:, 0], a, b, rows), n_parts, serial=X.size < 200_000)
    return cost, float(add_parts(totals)[0])
