"""Loops over rows and centres: nearest centres, sums of clusters, groups of rings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, part_rows, single_blas_thread
from tithe.reduce.kernels import locate_draws

_TILE_ROWS = 1024  # rows scored at a time: they and their scores stay in the second-level cache
_ROWS_AT_ONCE = 65_536  # rows that an operation of NumPy takes at a time where its temporary arrays would be large
_FLOAT32_SPREAD = (1e-12, 1e12)  # spread of the centres within which float32 scores can tell them apart
_CSR_SLACK = 1e-14  # relative difference of scores below which float64 cannot tell two centres apart
_OVERFLOW = 1e36  # a score beyond this is decided again in float64
_FAST = {"contract", "reassoc", "nsz"}
_MAX_COPIED_ENTRIES = 4_000_000  # up to which rows are moved to the origin before they are seeds
N_SUMS = 4  # columns of the cluster sums before the d columns of the direction


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _finish(points, nearest, centers, power, weight, cost, sums, part, start):
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
def _assign_dense(X, weight, origin, scaled, norms, centers, slack, power, labels, cost, sums, first, last, rows):
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
def _point_costs(X, weight, point, cost, totals, first, last, rows):
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
def _csr_distance(data, indices, indptr, i, transposed, norms, c):
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
def _assign_csr(data, indices, indptr, weight, transposed, norms, power, labels, cost, sums, first, last, rows):
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


def _dense_runner(X, centers, u, power, labels, cost, sums, rows):
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


# -- D^z seeding: each next centre is drawn with probability proportional to u * distance^z ----------


@njit(cache=True, nogil=True, fastmath=_FAST)
def _try_dense(X, squares, weight, points, norms, power, nearest, potential, first, last, rows):
    """The potential with each of the points added: by BLAS, exact enough to compare them."""
    n = X.shape[0]
    n_points = points.shape[0]
    buffer = np.empty(n_points * min(_TILE_ROWS, n), X.dtype)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop, start + _TILE_ROWS) - start
            dots = buffer[: n_points * r].reshape(n_points, r)
            np.dot(points, X[start : start + r].T, dots)
            for t in range(n_points):
                total = 0.0
                for i in range(r):
                    gap = squares[start + i] - 2.0 * dots[t, i] + norms[t]
                    gap = gap if gap > 0.0 else 0.0
                    gap = gap if power == 2 else np.sqrt(gap)
                    gap = gap if gap < nearest[start + i] else nearest[start + i]
                    total += gap * weight[start + i] if weight.size > 0 else gap
                potential[part, t] += total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _keep_dense(X, point, power, nearest, first, last, rows):
    """Add the point: from differences, so that a row equal to it is at distance 0 exactly."""
    n, d = X.shape
    for i in range(first * rows, min(n, last * rows)):
        total = 0.0
        for j in range(d):
            gap = np.float64(X[i, j] - point[j])
            total += gap * gap
        distance = total if power == 2 else np.sqrt(total)
        if distance < nearest[i]:
            nearest[i] = distance


@njit(cache=True, nogil=True, fastmath=_FAST)
def _trial_csr(data, indices, indptr, weight, transposed, norms, power, nearest, potential, keep, first, last, rows):
    n = indptr.shape[0] - 1
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            u = weight[i] if weight.size > 0 else 1.0
            for t in range(transposed.shape[1]):
                total = _csr_distance(data, indices, indptr, i, transposed, norms, t)
                distance = total if power == 2 else np.sqrt(total)
                if distance > nearest[i]:
                    distance = nearest[i]
                if keep:
                    nearest[i] = distance
                potential[part, t] += u * distance


def _rows(X: Any, positions: Array) -> Array:
    picked = X[positions]
    return np.ascontiguousarray(picked.toarray() if sparse.issparse(X) else picked, np.float64)


class _Search:
    """Distances to the nearest of the centres kept so far, for dense or CSR rows."""

    def __init__(self, X: Any, weight: Array | None, power: int) -> None:
        n = X.shape[0]
        self.power = power
        self.u = np.empty(0) if weight is None else weight
        self.nearest = np.full(n, np.inf)
        self.rows = part_rows(n, 1024)
        self.n_parts = -(-n // self.rows)
        self.csr = sparse.issparse(X)
        # few rows are moved to the origin first, where comparing squares loses no digits
        self.origin = np.zeros(X.shape[1]) if self.csr or X.size > _MAX_COPIED_ENTRIES else X[0].astype(np.float64)
        self.X = X - X[0] if self.origin.any() else X
        if not self.csr:
            self.squares = np.einsum("ij,ij->i", self.X, self.X, dtype=np.float64)

    def _run_csr(self, points: Array, keep: bool) -> Array:
        potential = np.zeros((self.n_parts, len(points)))
        norms = np.einsum("ij,ij->i", points, points)
        rows_of = (self.X.data, self.X.indices, self.X.indptr, self.u)
        args = (*rows_of, np.ascontiguousarray(points.T), norms, self.power, self.nearest, potential, keep)
        over_parts(lambda a, b: _trial_csr(*args, a, b, self.rows), self.n_parts, serial=self.X.nnz < 500_000)
        return potential.sum(axis=0)

    def keep(self, point: Array) -> None:
        """Add a centre."""
        if self.csr:
            self._run_csr(point[None], True)
            return
        args = (self.X, (point - self.origin).astype(self.X.dtype), self.power, self.nearest)
        over_parts(lambda a, b: _keep_dense(*args, a, b, self.rows), self.n_parts, serial=self.X.size < 2_000_000)

    def potentials(self, points: Array) -> Array:
        """The total cost with each of the points added."""
        if self.csr:
            return self._run_csr(points, False)
        local = (points - self.origin).astype(self.X.dtype)
        norms = np.einsum("ij,ij->i", local, local, dtype=np.float64)
        potential = np.zeros((self.n_parts, len(points)))
        args = (self.X, self.squares, self.u, local, norms, self.power, self.nearest, potential)
        with single_blas_thread():
            over_parts(lambda a, b: _try_dense(*args, a, b, self.rows), self.n_parts, serial=self.X.size < 2_000_000)
        return potential.sum(axis=0)


def dz_seeds(
    X: Any,
    n_seeds: int,
    *,
    weight: Array | None = None,
    power: int = 2,
    rng: np.random.Generator,
    n_trials: int = 1,
    given: Array | None = None,
) -> Array:
    """Up to ``n_seeds`` centres (k, d): ``given`` ones first, then D^z draws.

    With ``n_trials`` > 1 the best of that many candidates is taken at each step. Fewer centres
    are returned if there are fewer distinct points.
    """
    search = _Search(X, weight, power)
    if given is None:
        weights = np.ones(X.shape[0]) if weight is None else weight
        given = _rows(X, locate_draws(weights, 1, rng)[0])
    seeds = [np.ascontiguousarray(c, np.float64) for c in given]
    for c in seeds:
        search.keep(c)
    while len(seeds) < n_seeds:
        score = search.nearest if weight is None else search.nearest * weight
        if not score.any():
            break
        points = _rows(X, locate_draws(score, n_trials, rng)[0])
        best = int(search.potentials(points).argmin()) if n_trials > 1 else 0
        seeds.append(points[best])
        search.keep(points[best])
    return np.array(seeds)


def ring_codes(cost: Array, labels: Array | None, *, factor: float, power: int, last_layer: int) -> Array:
    """``label * (last_layer + 1) + layer`` of every row, with layer = ceil(log2(factor * cost) / power): (n,) int32."""
    codes = np.empty(len(cost), np.int32)
    for first in range(0, len(cost), _ROWS_AT_ONCE):  # a few rows at a time, for the temporary arrays are three of f64
        rows = slice(first, first + _ROWS_AT_ONCE)
        with np.errstate(divide="ignore"):
            layers = np.ceil(np.log2(factor * cost[rows]) / power - 1e-12)
        codes[rows] = np.clip(layers, 0.0, last_layer)
    return codes if labels is None else labels * np.int32(last_layer + 1) + codes


@njit(cache=True, nogil=True)
def _pick(codes, weight, keep_all, targets, draws, kept_rows):
    reached = np.zeros(keep_all.shape[0])
    n_drawn = np.zeros(keep_all.shape[0], np.int64)
    n_kept = 0
    for i in range(codes.shape[0]):
        u = weight[i] if weight.size > 0 else 1.0
        if u <= 0.0:
            continue
        g = codes[i]
        if keep_all[g]:
            kept_rows[n_kept] = i
            n_kept += 1
            continue
        reached[g] += u
        while n_drawn[g] < targets.shape[1] and targets[g, n_drawn[g]] < reached[g]:
            draws[g, n_drawn[g]] = i
            n_drawn[g] += 1
    return n_kept


def group_masses(codes: Array, n_groups: int, weight: Array | None) -> tuple[Array, Array]:
    """Rows of positive weight and weight of each group."""
    counts, masses = np.zeros(n_groups, np.int64), np.zeros(n_groups)
    for first in range(0, len(codes), _ROWS_AT_ONCE):  # bincount makes a copy of the codes in int64
        some = codes[first : first + _ROWS_AT_ONCE]
        if weight is None:
            counts += np.bincount(some, minlength=n_groups)
        else:
            u = weight[first : first + _ROWS_AT_ONCE]
            counts += np.bincount(some[u > 0.0], minlength=n_groups)
            masses += np.bincount(some, u, n_groups)
    return counts, counts.astype(np.float64) if weight is None else masses


def draw_in_groups(
    codes: Array, counts: Array, masses: Array, per_group: int, weight: Array | None, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Groups of at most ``per_group`` rows whole; ``per_group`` draws by weight from each of the others.

    Returns distinct positions, ascending, and weights whose sum in every group is the group's mass.
    """
    keep_all = counts <= per_group
    slices = masses[:, None] / per_group
    targets = (np.arange(per_group) + rng.random((len(counts), per_group))) * slices
    draws = np.full((len(counts), per_group), -1, np.int64)
    kept_rows = np.empty(int(counts[keep_all].sum()), np.int64)
    u = np.empty(0) if weight is None else weight
    _pick(codes, u, keep_all, targets, draws, kept_rows)
    drawn, times = np.unique(draws[~keep_all], return_counts=True)
    positions = np.concatenate([kept_rows, drawn])
    kept_weights = np.ones(len(kept_rows)) if weight is None else weight[kept_rows]
    weights = np.concatenate([kept_weights, times * masses[codes[drawn]] / per_group])
    order = np.argsort(positions, kind="stable")
    return positions[order], weights[order]


@njit(cache=True, nogil=True)
def cell_sums(X, weight, low, high, column, cut, child, unit, step, squares):
    """Of each leaf of a tree of boxes: sums of weight, coordinates within the box, and their squares, as whole numbers.

    ``low`` and ``high`` (cells, d) are the boxes, the first that of all rows, to which values beyond are moved. A cell
    with a ``child`` has its rows in that one if their ``column`` is below the ``cut``, else in the next. Weights
    (n,), of at most 1, count in units; a coordinate at the edge of a box counts ``step``.
    """
    n, d = X.shape
    sums = np.zeros((len(low), 1 + d * (2 if squares else 1)), np.int64)
    row = np.empty(d)
    for i in range(n):
        for j in range(d):
            row[j] = min(max(np.float64(X[i, j]), low[0, j]), high[0, j])
        cell = 0
        while child[cell] > 0:
            cell = child[cell] + (1 if row[column[cell]] >= cut[cell] else 0)
        sums[cell, 0] += np.int64(np.rint(unit * weight[i]))
        for j in range(d):
            half = (high[cell, j] - low[cell, j]) / 2.0
            place = 0.0
            if half > 0.0:
                place = min(max((row[j] - (low[cell, j] + high[cell, j]) / 2.0) / half, -1.0), 1.0)
            sums[cell, 1 + j] += np.int64(np.rint(step * weight[i] * place))
            if squares:
                sums[cell, 1 + d + j] += np.int64(np.rint(step * weight[i] * place * place))
    return sums
