"""Sums of decaying exponentials of distances to centres, row by row, on all threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.linear.sensitivity_tiles import N_SUMS as N_SUMS
from tithe.kernels.linear.sensitivity_tiles import assign, assign_mirrored, score
from tithe.kernels.parts import add_parts, part_rows

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
