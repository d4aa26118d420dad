"""Loops of the bounds on sensitivities in logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, part_rows, single_blas_thread

_SPAN_ROWS = 4096  # rows that are sorted by class at a time
_CANCELLED_SHARE = 1e-3  # share of the squares below which their difference is computed again from differences
_MIN_REMAINING_SHARE = 1e-12  # share of a cluster's mass below which nothing is left without the row itself
N_SUMS = 3  # columns of the cluster sums before the d columns of the rows
_FAST = {"contract", "reassoc", "nsz"}

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SHIFT = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer that stands in the lowest bits
_MIN_EXPONENT = -708.0  # exp() of less is not a normal number; it is lost against the row's own weight anyway


@extending.intrinsic
def _fetch(_typing: Any, rows: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of rows[row, column]; past the end this does nothing."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        matrix = context.make_array(signature.args[0])(context, builder, args[0])
        entry = cgutils.get_item_pointer(context, builder, signature.args[0], matrix, args[1:])
        address, number = builder.bitcast(entry, cgutils.voidptr_t), cgutils.int32_t
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [address, number(0), number(2), number(1)])  # to read, into the second level, data
        return context.get_dummy_value()

    return types.void(rows, types.intp, types.intp), build


@njit(cache=True, nogil=True, fastmath={"contract"})
def _decay(squares, n, radius, out):
    """exp(-radius * distance) of the first n squared distances.

    x = m ln 2 + t with |t| <= ln 2 / 2; the Taylor sum of exp(t) to degree 13 errs by 4e-18, and
    m goes into the exponent. One loop without branches, into another buffer: the compiler makes vectors of it.
    """
    for i in range(n):
        x = -radius * np.sqrt(squares[i])
        value = x if x > _MIN_EXPONENT else _MIN_EXPONENT
        whole = value * _LOG2E + _SHIFT
        m = whole - _SHIFT
        t = (value - m * _LN2_HIGH) - m * _LN2_LOW
        p = ((1.0 / 6227020800.0 * t + 1.0 / 479001600.0) * t + 1.0 / 39916800.0) * t + 1.0 / 3628800.0
        p = ((p * t + 1.0 / 362880.0) * t + 1.0 / 40320.0) * t + 1.0 / 5040.0
        p = ((p * t + 1.0 / 720.0) * t + 1.0 / 120.0) * t + 1.0 / 24.0
        p = (((p * t + 1.0 / 6.0) * t + 0.5) * t + 1.0) * t + 1.0
        out[i] = np.int64(np.float64(p).view(np.int64) + (np.float64(whole).view(np.int64) << 52)).view(np.float64)


@njit(cache=True, nogil=True)
def _by_class(codes, start, stop, bounds, order):
    """Positions of the rows of a span in the order of their classes; class g lies in bounds[g] .. bounds[g + 1]."""
    if bounds.shape[0] == 3:  # two classes: the next places stay in registers
        first, second = 0, stop - start
        for i in range(start, stop):
            second -= codes[i]
        bounds[0], bounds[1], bounds[2] = 0, second, stop - start
        for i in range(start, stop):
            order[second if codes[i] == 1 else first] = i
            first, second = first + 1 - codes[i], second + codes[i]
        return
    bounds[:] = 0
    for i in range(start, stop):
        bounds[codes[i] + 1] += 1
    for g in range(1, bounds.shape[0]):
        bounds[g] += bounds[g - 1]
    for i in range(start, stop):
        order[bounds[codes[i]]] = i
        bounds[codes[i]] += 1
    for g in range(bounds.shape[0] - 1, 0, -1):
        bounds[g] = bounds[g - 1]
    bounds[0] = 0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gather(X, origin, order, at, r, tile):
    """Rows order[at] .. order[at + r - 1] from the origin, each followed by its square and 1; the largest square."""
    d, largest = X.shape[1], 0.0
    for i in range(r):
        row = order[at + i]
        _fetch(X, row + _SPAN_ROWS, 0)  # prefetch the next span: two addresses reach
        _fetch(X, row + _SPAN_ROWS, d // 2)  # every line of narrow rows, and hardware prefetches wide ones
        square = 0.0
        for j in range(d):
            value = np.float64(X[row, j]) - origin[j]
            tile[i, j] = value
            square += value * value
        tile[i, d], tile[i, d + 1] = square, 1.0
        largest = max(largest, square)
    return largest


@njit(cache=True, nogil=True, fastmath=_FAST)
def _dense_distances(tile, r, largest, factors, centers, norms, extra, g, flat):
    """Squared distances (r, k) to the centres of class g: (x, |x|^2, 1) times (-2 c, 1, |c|^2 + extra)."""
    k, d = centers.shape[1], centers.shape[2]
    np.dot(tile[:r], factors[g], flat[: r * k].reshape(r, k))
    for c in range(k):
        largest = max(largest, norms[g, c] + extra[g, c])
    close = 0
    for i in range(r * k):
        close += 1 if flat[i] <= 2.0 * _CANCELLED_SHARE * largest else 0
    if close == 0:
        return
    for i in range(r):
        for c in range(k):
            if flat[i * k + c] <= _CANCELLED_SHARE * (tile[i, d] + norms[g, c] + extra[g, c]):
                total = extra[g, c]
                for j in range(d):
                    gap = tile[i, j] - centers[g, c, j]
                    total += gap * gap
                flat[i * k + c] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _csr_distances(data, indices, indptr, order, at, r, centers, norms, extra, g, flat):
    k, d = centers.shape[1], centers.shape[2]
    for i in range(r):
        row = order[at + i]
        for c in range(k):
            gap, square = norms[g, c], 0.0
            for p in range(indptr[row], indptr[row + 1]):
                value = np.float64(data[p])
                gap += value * (value - 2.0 * centers[g, c, indices[p]])
                square += value * value
            if gap <= _CANCELLED_SHARE * (square + norms[g, c]):
                gap, stored = 0.0, 0.0
                for p in range(indptr[row], indptr[row + 1]):
                    center = centers[g, c, indices[p]]
                    gap += (data[p] - center) * (data[p] - center)
                    stored += center * center
                elsewhere = norms[g, c] - stored
                if indptr[row + 1] - indptr[row] < d and elsewhere > 1e-14 * norms[g, c]:
                    gap += elsewhere
            flat[i * k + c] = gap + extra[g, c]


@njit(cache=True, nogil=True)
def _distances(rows, geometry, g, order, at, r, tile, flat):
    """Squared distances (r, k) of rows order[at] .. order[at + r - 1] to the centres that class g sees."""
    dense, data, indices, indptr, _codes, _weight = rows
    origin, factors, centers, norms, extra, _widths = geometry
    if indptr.shape[0] > 0:
        _csr_distances(data, indices, indptr, order, at, r, centers, norms, extra, g, flat)
    else:
        largest = _gather(dense, origin, order, at, r, tile)
        _dense_distances(tile, r, largest, factors, centers, norms, extra, g, flat)


@njit(cache=True, nogil=True)
def _nearest_centres(flat, wide, k, r, nearest, smallest):
    for i in range(r):
        best, at = flat[i * wide], 0
        for c in range(1, k):
            value = flat[i * wide + c]
            at = c if value < best else at
            best = value if value < best else best
        nearest[i] = at
        smallest[i] = best


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add(rows, order, at, r, nearest, smallest, names, g, sign, labels, sums, part):
    """Rows order[at] .. order[at + r - 1], all of class g, enter the sums of their clusters."""
    dense, data, indices, indptr, _codes, weight = rows
    for i in range(r):
        row, c = order[at + i], names[g, nearest[i]]
        u = weight[row] if weight.size > 0 else 1.0
        labels[row] = nearest[i]
        sums[part, c, 0] += u
        sums[part, c, 1] += u * smallest[i]
        sums[part, c, 2] += u * sign
        if sums.shape[2] > N_SUMS and indptr.shape[0] > 0:
            for p in range(indptr[row], indptr[row + 1]):
                sums[part, c, N_SUMS + indices[p]] += u * sign * data[p]
        elif sums.shape[2] > N_SUMS:
            for j in range(dense.shape[1]):
                sums[part, c, N_SUMS + j] += u * sign * dense[row, j]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _stretch(flat, wide, clusters, r, order, at, weight, g, mass):
    """Squared distances to the own mean without the row: (W / (W - u))^2 times those with it."""
    for i in range(r):
        row = order[at + i]
        u = weight[row] if weight.size > 0 else 1.0
        held = mass[g, clusters[row]]
        if held - u > _MIN_REMAINING_SHARE * held:
            ratio = held / (held - u)
            flat[i * wide + clusters[row]] *= ratio * ratio


@njit(cache=True, nogil=True, fastmath=_FAST)
def _finish(flat, wide, clusters, r, order, at, weight, g, k, mass, by_mass, scores):
    """u / (u + sum of mass * decay), the row's own share taken out: nothing overflows, no decay being above 1."""
    for i in range(r):
        row = order[at + i]
        u = weight[row] if weight.size > 0 else 1.0
        total = 0.0
        for c in range(k):
            total += mass[g, c] * flat[i * wide + c]
        if clusters.size > 0 and k > 0:
            decay, held = flat[i * wide + clusters[row]], mass[g, clusters[row]]
            removed = u * decay if by_mass else u
            total -= (removed if held - removed > _MIN_REMAINING_SHARE * held else held) * decay
        scores[row] = u / (u + (total if total > 0.0 else 0.0)) if u > 0.0 else 0.0


# The passes. ``rows`` is (dense, data, indices, indptr, codes, weight), empty where there are none, and
# ``place`` is (origin, factors, centers, norms, extra, widths), of which the last counts the centres of a class.


@njit(cache=True, nogil=True)
def assign(rows, geometry, targets, radius, labels, sums, first, last, per_part, tile_rows):
    """Nearest centres and cluster sums; where radius >= 0, column 1 adds up decays instead of squares."""
    codes, centers, widths, (names, sign) = rows[4], geometry[2], geometry[5], targets
    n, wide = codes.shape[0], centers.shape[1]
    tile = np.empty((tile_rows, centers.shape[2] + 2 if rows[3].shape[0] == 0 else 0))
    flat, nearest = np.empty(wide * tile_rows), np.empty(tile_rows, np.int32)
    smallest, decays = np.empty(tile_rows), np.empty(tile_rows)
    order, bounds = np.empty(_SPAN_ROWS, np.int64), np.empty(centers.shape[0] + 1, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * per_part)
        for start in range(part * per_part, stop, _SPAN_ROWS):
            _by_class(codes, start, min(stop, start + _SPAN_ROWS), bounds, order)
            for g in range(centers.shape[0]):
                for at in range(bounds[g], bounds[g + 1] if widths[g] > 0 else bounds[g], tile_rows):
                    r = min(bounds[g + 1] - at, tile_rows)
                    _distances(rows, geometry, g, order, at, r, tile, flat)
                    _nearest_centres(flat, wide, widths[g], r, nearest, smallest)
                    _decay(smallest, r if radius >= 0.0 else 0, radius, decays)
                    column = decays if radius >= 0.0 else smallest
                    _add(rows, order, at, r, nearest, column, names, g, sign[g], labels, sums, part)


@njit(cache=True, nogil=True, fastmath=_FAST)
def assign_mirrored(rows, mirrored, labels, sums, first, last, per_part, tile_rows):
    """As _assign for two classes that see the same clusters, by plain products in the rows' own precision.

    Column 1 is left out, and a row between two centres may go to either.
    """
    dense, codes, weight, (scaled, even, odd) = rows[0], rows[4], rows[5], mirrored
    (n, d), k = dense.shape, scaled.shape[1]
    buffer = np.empty(k * tile_rows, dense.dtype)
    for part in range(first, last):
        stop = min(n, (part + 1) * per_part)
        for start in range(part * per_part, stop, tile_rows):
            r = min(stop - start, tile_rows)
            np.dot(dense[start : start + r], scaled, buffer[: r * k].reshape(r, k))
            for i in range(r):
                row, sign = start + i, dense.dtype.type(1.0 if codes[start + i] == 1 else -1.0)
                c, best = 0, even[0] + sign * (buffer[i * k] + odd[0])
                for candidate in range(1, k):
                    score = even[candidate] + sign * (buffer[i * k + candidate] + odd[candidate])
                    c = candidate if score < best else c
                    best = score if score < best else best
                _fetch(dense, row + tile_rows, 0)  # as in _gather
                _fetch(dense, row + tile_rows, d // 2)
                u = weight[row] if weight.size > 0 else 1.0
                labels[row] = c
                sums[part, c, 0] += u
                sums[part, c, 2] += u * sign
                for j in range(d if sums.shape[2] > N_SUMS else 0):
                    sums[part, c, N_SUMS + j] += u * sign * dense[row, j]


@njit(cache=True, nogil=True)
def score(rows, geometry, radius, mass, by_mass, clusters, scores, first, last, per_part, tile_rows):
    codes, weight, centers, widths = rows[4], rows[5], geometry[2], geometry[5]
    n, wide = codes.shape[0], centers.shape[1]
    tile = np.empty((tile_rows, centers.shape[2] + 2 if rows[3].shape[0] == 0 else 0))
    flat, decays = np.empty(wide * tile_rows), np.empty(wide * tile_rows)
    order, bounds = np.empty(_SPAN_ROWS, np.int64), np.empty(centers.shape[0] + 1, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * per_part)
        for start in range(part * per_part, stop, _SPAN_ROWS):
            _by_class(codes, start, min(stop, start + _SPAN_ROWS), bounds, order)
            for g in range(centers.shape[0]):
                for at in range(bounds[g], bounds[g + 1], tile_rows):
                    r, k = min(bounds[g + 1] - at, tile_rows), widths[g]
                    if k > 0:
                        _distances(rows, geometry, g, order, at, r, tile, flat)
                        if clusters.size > 0 and not by_mass:
                            _stretch(flat, wide, clusters, r, order, at, weight, g, mass)
                        _decay(flat, r * wide, radius, decays)
                    _finish(decays, wide, clusters, r, order, at, weight, g, k, mass, by_mass, scores)


_TILE_ROWS = 512  # rows of one class whose distances are computed at a time: fewer if they are wide
_MAX_TILE_ENTRIES = 1 << 17  # entries that a tile may have
_MIN_ROUNDINGS = 1e4  # roundings that must fit between two centres for plain products to tell them apart


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Views:
    """The centres that each class compares its rows with.

    Parameters
    ----------
    centers : (classes, k, d) float64
    extra : (classes, k) float64
        What is added to a squared distance for a coordinate that is constant within a class.
    sign : (classes,) float64
        Rows of the class enter the cluster sums with this sign.
    cluster : (classes, k) int32
        The number of the cluster behind each centre; -1: no centre here.
    """

    centers: Array
    extra: Array
    sign: Array
    cluster: Array

    @property
    def n_clusters(self) -> int:
        return int(self.cluster.max(initial=-1)) + 1


class _Rows:
    """Rows and centres in the form that the kernels take."""

    def __init__(self, X: Any, codes: Array, weight: Array | None, views: Views) -> None:
        self.n, self.d = X.shape
        self.X, self.views, self.csr = X, views, sparse.issparse(X)
        # an origin among the rows, where squares are small
        origin = np.zeros(self.d) if self.csr else X[:: max(1, self.n // 256)].mean(axis=0, dtype=np.float64)
        centers = np.ascontiguousarray(views.centers - origin)
        norms = np.einsum("gkj,gkj->gk", centers, centers)
        columns = [-2.0 * centers, np.ones((*norms.shape, 1)), (norms + views.extra)[:, :, None]]
        empty, none = np.empty(0), np.empty(0, np.int32)
        form = (np.empty((0, 0)), X.data, X.indices, X.indptr) if self.csr else (X, empty, none, none)
        self.rows = (*form, codes, empty if weight is None else weight)
        widths = (views.cluster >= 0).sum(axis=1)
        factors = np.ascontiguousarray(np.concatenate(columns, axis=2).transpose(0, 2, 1))
        self.geometry = (origin, factors, centers, norms, views.extra, widths)
        self.tile_rows = max(16, min(_TILE_ROWS, _MAX_TILE_ENTRIES // self.d))
        self.serial = (X.nnz if self.csr else X.size) < 100_000

    def run(self, kernel: Any, rows: int) -> None:
        with single_blas_thread():
            over_parts(kernel, -(-self.n // rows), serial=self.serial)

    def mirrored(self) -> tuple[Array, Array, Array] | None:
        """The arguments of the pass over mirrored classes; None if it does not apply or would be too inexact."""
        views, dtype = self.views, self.X.dtype
        if self.csr or views.sign.tolist() != [-1.0, 1.0]:
            return None
        centers = views.centers[1]
        offsets = np.einsum("gkj,gkj->gk", views.centers, views.centers) + views.extra
        gaps = np.square(centers[:, None] - centers).sum(axis=2)
        if gaps[gaps > 0].min(initial=np.inf) < _MIN_ROUNDINGS * np.finfo(dtype).eps * offsets.max():
            return None
        even, odd = 0.5 * (offsets[1] + offsets[0]), 0.5 * (offsets[1] - offsets[0])
        return np.ascontiguousarray(-2.0 * centers.T, dtype), even.astype(dtype), odd.astype(dtype)


def cluster_sums(
    X: Any, codes: Array, views: Views, *, weight: Array | None = None, radius: float | None = None
) -> tuple[Array, Array]:
    """Nearest centre of each row among those of its class, and what the clusters add up to.

    Returns ``labels`` (n,) int32, places in the list of the class, and ``sums`` (clusters, 3)
    float64: ``u``, ``u * squared distance`` (``u * exp(-radius * distance)`` where a radius is
    given) and ``u * sign``.
    """
    return _sums(_Rows(X, codes, weight, views), N_SUMS, radius)


def cluster_members(
    X: Any, codes: Array, views: Views, *, weight: Array | None = None, with_rows: bool = True
) -> tuple[Array, Array]:
    """Like `cluster_sums`, but less exact: a row between two centres may go to either.

    The columns of ``sums`` are ``u``, nothing of use, ``u * sign`` and, if wanted, ``u * sign * row`` (d).
    """
    rows = _Rows(X, codes, weight, views)
    return _sums(rows, N_SUMS + (rows.d if with_rows else 0), None, fast=rows.mirrored())


def _sums(rows: _Rows, width: int, radius: float | None, fast: Any = None) -> tuple[Array, Array]:
    views = rows.views
    size, tile_rows = part_rows(rows.n, 8 * views.n_clusters * width), rows.tile_rows
    labels, sums = np.zeros(rows.n, np.int32), np.zeros((-(-rows.n // size), views.n_clusters, width))
    decay = -1.0 if radius is None else float(radius)

    def run(first: int, last: int) -> None:
        if fast is None:
            targets = (views.cluster, views.sign)
            assign(rows.rows, rows.geometry, targets, decay, labels, sums, first, last, size, tile_rows)
        else:
            assign_mirrored(rows.rows, fast, labels, sums, first, last, size, tile_rows)

    rows.run(run, size)
    return labels, add_parts(sums)


def decay_scores(
    X: Any,
    codes: Array,
    views: Views,
    *,
    mass: Array,
    radius: float,
    labels: Array | None,
    by_mass: bool = False,
    weight: Array | None = None,
) -> Array:
    """u / (u + sum_i mass_i exp(-radius * distance to centre i)) of every row: (n,) float64, 0 where u is 0.

    ``labels`` names the cluster that each row is part of and taken out of: centres are means and
    masses are weights, or, ``by_mass``, masses are sums of u exp(-radius * distance) around centres
    that stay where they are. None: the rows are part of no cluster.
    """
    rows = _Rows(X, codes, weight, views)
    scores = np.empty(rows.n)
    size, decay = part_rows(rows.n, 1), float(radius)
    clusters = np.empty(0, np.int32) if labels is None else labels
    held = np.where(views.cluster >= 0, mass[views.cluster], 0.0)
    args = (rows.rows, rows.geometry, decay, held, by_mass, clusters, scores)
    rows.run(lambda a, b: score(*args, a, b, size, rows.tile_rows), size)
    return scores
