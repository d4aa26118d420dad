"""D^z seeding: each next centre is drawn with probability proportional to u * distance^z."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.parts import part_rows
from tithe.kernels.sampling import locate_draws

Array = np.ndarray[Any, Any]

_TILE_ROWS = 1024  # rows scored at a time
_MAX_COPIED_ENTRIES = 4_000_000  # entries that may be copied


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _try_dense(X, squares, weight, points, norms, power, nearest, potential, first, last, rows):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _keep_dense(X, point, power, nearest, first, last, rows):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _trial_csr(data, indices, indptr, weight, points, norms, power, nearest, potential, keep, first, last, rows):  # type: ignore[no-untyped-def]
    n, d = indptr.shape[0] - 1, points.shape[1]
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            u = weight[i] if weight.size > 0 else 1.0
            for t in range(points.shape[0]):
                total, stored = 0.0, 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    c = points[t, indices[p]]
                    total += (data[p] - c) * (data[p] - c)
                    stored += c * c
                elsewhere = norms[t] - stored
                if indptr[i + 1] - indptr[i] < d and elsewhere > 1e-14 * norms[t]:
                    total += elsewhere
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
        parts_of = (self.X.data, self.X.indices, self.X.indptr, self.u)
        args = (*parts_of, points, norms, self.power, self.nearest, potential, keep)
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
