"""Covers of rows by balls: farthest-first traversal, and leaders in one pass.

Distances are those of z = sign (x, constant): rows of one sign are as far apart as their x; rows of different signs
|x + x'|^2 + 4 constant^2. Rows of different ``groups`` cover each other never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.kernels.parts import part_rows
from tithe.kernels.threads import over_parts

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def _apart_dense(X, i, sign, point, toward, constant):  # type: ignore[no-untyped-def]
    """Squared distance of row i from a centre ``point`` (x of the centre, in float64) of sign ``toward``."""
    same = 1.0 if sign == toward else -1.0
    total = 0.0
    for j in range(X.shape[1]):
        step = X[i, j] - same * point[j]
        total += step * step
    return total if same > 0.0 else total + 4.0 * constant * constant


@njit(cache=True, nogil=True, fastmath=_FAST)
def _near_dense(X, signs, groups, point, toward, group, constant, gaps, number, best, near, far, first, last, rows):  # type: ignore[no-untyped-def]
    """Rows that are closer to the new centre than to their own go over to it; the farthest of each part is noted."""
    n = X.shape[0]
    for part in range(first, last):
        top, at = -1.0, -1
        for i in range(part * rows, min(n, (part + 1) * rows)):
            # a centre at least twice as far from mine as I am cannot be closer
            if groups[i] == group and gaps[near[i]] < 4.0 * best[i]:
                square = _apart_dense(X, i, signs[i], point, toward, constant)
                if square < best[i]:
                    best[i], near[i] = square, number
            if best[i] > top:
                top, at = best[i], i
        far[part] = at


@njit(cache=True, nogil=True, fastmath=_FAST)
def _apart_csr(data, indices, indptr, i, sign, point, square, toward, constant):  # type: ignore[no-untyped-def]
    same = 1.0 if sign == toward else -1.0
    total, seen = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        c = point[indices[p]]
        step = data[p] - same * c
        total += step * step
        seen += c * c
    total += max(square - seen, 0.0)
    return total if same > 0.0 else total + 4.0 * constant * constant


@njit(cache=True, nogil=True, fastmath=_FAST)
def _near_csr(
    data, indices, indptr, signs, groups, point, square, toward, group, constant, gaps, number, best, near, far, first,
    last, rows
):  # type: ignore[no-untyped-def]  # fmt: skip
    n = indptr.shape[0] - 1
    for part in range(first, last):
        top, at = -1.0, -1
        for i in range(part * rows, min(n, (part + 1) * rows)):
            if groups[i] == group and gaps[near[i]] < 4.0 * best[i]:
                apart = _apart_csr(data, indices, indptr, i, signs[i], point, square, toward, constant)
                if apart < best[i]:
                    best[i], near[i] = apart, number
            if best[i] > top:
                top, at = best[i], i
        far[part] = at


@njit(cache=True, nogil=True, fastmath=_FAST)
def _lead(X, signs, groups, weight, limit, constant, centres, toward, group, mass, ids, count, start):  # type: ignore[no-untyped-def]
    """Rows from ``start`` on join the nearest leader within reach or lead; where there is no room, stops there."""
    for i in range(start, X.shape[0]):
        if weight[i] <= 0.0:
            continue
        best, at = np.inf, -1
        for c in range(count):
            if group[c] == groups[i]:
                apart = _apart_dense(X, i, signs[i], centres[c], toward[c], constant)
                if apart < best:
                    best, at = apart, c
        if best <= limit:
            mass[at] += weight[i]
            continue
        if count == centres.shape[0]:
            return i, count
        for j in range(X.shape[1]):
            centres[count, j] = X[i, j]
        toward[count], group[count], mass[count], ids[count] = signs[i], groups[i], weight[i], i
        count += 1
    return X.shape[0], count


class FarthestFirst:
    """Centres among the rows, each the one farthest from those before it; prefixes serve larger radii.

    After k centres every row is within ``radius`` of one of them, centres are at least that far apart, and no
    set of fewer than k rows covers all within half of it. k centres take at most k passes over the rows; rows that a
    new centre cannot be closer to, by the triangle inequality, are not looked at.

    Parameters
    ----------
    X : (n, d), dense or CSR
    signs : (n,) float64 of 1 and -1, or None
    groups : (n,) int32 or None
        Rows of different groups never share a centre.
    constant : float
    weight : (n,) or None
        Rows of weight zero are neither covered nor chosen.
    start : int
        The first centre, a row of positive weight.

    Attributes
    ----------
    centres : list of int
        Positions, in the order in which they were found.
    radii : list of float
        ``radii[k]``: the largest distance of a row from the nearest of the first k + 1 centres.
    nearest : (n,) int32
        The number of the nearest centre of each row; of the first found, if several are.
    """

    def __init__(
        self,
        X: Any,
        *,
        signs: Array | None = None,
        groups: Array | None = None,
        constant: float = 0.0,
        weight: Array | None = None,
        start: int = 0,
    ) -> None:
        n = X.shape[0]
        self._X, self._constant, self._weight = X, float(constant), weight
        self._signs = np.ones(n) if signs is None else signs
        self._groups = np.zeros(n, np.int32) if groups is None else groups
        self._best = np.full(n, np.inf)
        if weight is not None:
            self._best[weight <= 0.0] = -1.0
        self.nearest = np.zeros(n, np.int32)
        self.centres: list[int] = []
        self.radii: list[float] = []
        self._rows = part_rows(n, 8)
        self._points = np.empty((16 if not sparse.issparse(X) else 0, X.shape[1]))
        self._squares: list[float] = []
        self._add(int(start))

    @property
    def radius(self) -> float:
        """What every row is within of its centre."""
        return self.radii[-1]

    def grow(self, *, size: int | None = None, radius: float = 0.0) -> FarthestFirst:
        """More centres, until there are ``size`` of them or all rows are within ``radius``."""
        while self.radius > radius and (size is None or len(self.centres) < size):
            self._add(self._farthest)
        return self

    def weights(self) -> Array:
        """The weight of the rows nearest to each centre: (k,)."""
        own = self._weight
        seen = self._best >= 0.0
        mass: Array = np.bincount(
            self.nearest[seen], weights=None if own is None else own[seen], minlength=len(self.centres)
        ).astype(np.float64)
        return mass

    def _add(self, row: int) -> None:
        X, number = self._X, len(self.centres)
        point = (X[[row]].toarray()[0] if sparse.issparse(X) else X[row]).astype(np.float64)
        toward, group = self._signs[row], self._groups[row]
        gaps = self._gaps(point, row)
        n_parts = -(-X.shape[0] // self._rows)
        far = np.empty(n_parts, np.int64)
        self.centres.append(row)
        self._squares.append(float(point @ point))
        rest = (toward, group, self._constant, gaps, number, self._best, self.nearest, far)

        def run(a: int, b: int) -> None:
            if sparse.issparse(X):
                given = (X.data, X.indices, X.indptr, self._signs, self._groups, point, self._squares[-1])
                _near_csr(*given, *rest, a, b, self._rows)
            else:
                _near_dense(X, self._signs, self._groups, point, *rest, a, b, self._rows)

        over_parts(run, n_parts, serial=X.shape[0] < 20_000)
        self._best[row] = 0.0  # whatever the rounding of sparse products says
        self._farthest = int(far[np.argmax(np.where(far >= 0, self._best[far], -1.0))])
        self.radii.append(float(np.sqrt(self._best[self._farthest])))

    def _gaps(self, point: Array, row: int) -> Array:
        """Squared distances of the new centre from those before it, a little less: (k,), or zero for the first."""
        number = len(self.centres)
        if number == 0:
            return np.zeros(1)
        before = np.asarray(self.centres)
        same = np.where(self._signs[before] == self._signs[row], 1.0, -1.0)
        if sparse.issparse(self._X):
            sizes = np.asarray(self._squares) + point @ point
            gaps = sizes - 2.0 * same * (self._X[before] @ point) - 1e-9 * sizes
        else:
            if number > len(self._points):
                self._points = np.concatenate([self._points, np.empty_like(self._points)])
            self._points[number - 1] = self._X[before[-1]]
            steps = self._points[:number] - same[:, None] * point
            gaps = np.einsum("ij,ij->i", steps, steps) * (1.0 - 1e-9)
        gaps = gaps + np.where(same > 0.0, 0.0, 4.0 * self._constant**2)
        return np.where(self._groups[before] == self._groups[row], gaps, 0.0)


def leaders(
    X: Any,
    *,
    radius: float,
    most: int,
    signs: Array | None = None,
    groups: Array | None = None,
    constant: float = 0.0,
    weight: Array | None = None,
) -> tuple[Array, Array, float]:
    """Positions and weights of at most ``most`` rows that cover all others, found in one pass; and the radius.

    A row joins the nearest leader within ``radius``, or leads. Where there would be more than ``most``, the radius
    is doubled and leaders join leaders; rows may then be twice the last radius away, which is what is given.
    Leaders are more than the last radius apart. Rows may come piece by piece: leaders with their weights are rows.
    """
    n, d = X.shape
    given = (
        np.ones(n) if signs is None else signs,
        np.zeros(n, np.int32) if groups is None else groups,
        np.ones(n) if weight is None else weight,
    )
    found: dict[str, Array] = {
        "centres": np.empty((most, d)),
        "toward": np.empty(most),
        "group": np.empty(most, np.int32),
        "mass": np.empty(most),
        "ids": np.empty(most, np.int64),
    }
    count, start, reach, doubled = 0, 0, float(radius), False
    while True:
        if sparse.issparse(X):  # the kernel takes dense rows: a run at a time
            stop = min(n, start + 1024)
            rows, own = X[start:stop].toarray(), tuple(part[start:stop] for part in given)
        else:
            stop, rows, own = n, X[start:], tuple(part[start:] for part in given)
        state: Any = (rows, *own, reach * reach, float(constant), *found.values(), count, 0)
        done, after = _lead(*state)
        found["ids"][count:after] += start
        start, count = start + done, after
        if start == n:
            break
        if start < stop:
            if given[1][start] not in found["group"] and len(np.unique(found["group"])) == most:
                raise ValueError(f"There are more than {most} classes, and only so many rows may be kept.")
            reach, doubled = (2.0 * reach if reach > 0.0 else _least_gap(found, count, constant)), True
            count = _joined(found, count, reach, constant)
    return found["ids"][:count], found["mass"][:count], 2.0 * reach if doubled else reach


def _joined(found: dict[str, Array], count: int, reach: float, constant: float) -> int:
    """Leaders that join leaders at a larger radius, in place: how many are left."""
    old = {name: part[:count].copy() for name, part in found.items()}
    given = (old["centres"], old["toward"], old["group"], old["mass"], reach * reach, float(constant))
    state: Any = (*given, *found.values(), 0, 0)
    left: int = _lead(*state)[1]
    found["ids"][:left] = old["ids"][found["ids"][:left]]
    return left


def _least_gap(found: dict[str, Array], count: int, constant: float) -> float:
    """The smallest distance between two leaders that may join: where a radius of zero starts to grow."""
    least = np.inf
    for c in range(1, count):
        same = np.where(found["toward"][:c] == found["toward"][c], 1.0, -1.0)
        steps = found["centres"][:c] - same[:, None] * found["centres"][c]
        gaps = np.einsum("ij,ij->i", steps, steps) + np.where(same > 0.0, 0.0, 4.0 * constant * constant)
        gaps = gaps[found["group"][:c] == found["group"][c]]
        least = min(least, float(gaps.min(initial=np.inf)))
    return float(np.sqrt(least)) * (1.0 + 1e-9)
