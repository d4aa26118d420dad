"""Covers of rows by balls: farthest-first traversal, and leaders in one pass.

Distances are those of z = sign (x, constant): rows of one sign are as far apart as their x; rows of different signs
|x + x'|^2 + 4 constant^2. Rows of different ``groups`` never cover each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import over_parts

_FAST = {"contract", "reassoc", "nsz"}
_INITIAL_CAPACITY = 64  # centres
_SCAN_SHARE = 0.03  # share of the rows from which a scan of all is faster than following lists (measured)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _apart_dense(X, i, sign, point, centre_sign, constant):
    """Squared distance of row i from a centre ``point`` (x of the centre, in float64) of sign ``centre_sign``."""
    same = 1.0 if sign == centre_sign else -1.0
    total = 0.0
    for j in range(X.shape[1]):
        step = X[i, j] - same * point[j]
        total += step * step
    return total if same > 0.0 else total + 4.0 * constant * constant


@njit(cache=True, nogil=True, fastmath=_FAST)
def _measure_dense(X, signs, chosen, point, centre_sign, constant, apart, first, last, rows):
    """Squared distances of the rows ``chosen`` from a centre."""
    for k in range(first * rows, min(chosen.shape[0], last * rows)):
        apart[k] = _apart_dense(X, chosen[k], signs[chosen[k]], point, centre_sign, constant)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _apart_csr(data, indices, indptr, i, sign, point, square, centre_sign, constant):
    same = 1.0 if sign == centre_sign else -1.0
    total, stored = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        c = point[indices[p]]
        step = data[p] - same * c
        total += step * step
        stored += c * c
    total += max(square - stored, 0.0)
    return total if same > 0.0 else total + 4.0 * constant * constant


@njit(cache=True, nogil=True, fastmath=_FAST)
def _measure_csr(data, indices, indptr, signs, chosen, point, square, centre_sign, constant, apart, first, last, rows):
    for k in range(first * rows, min(chosen.shape[0], last * rows)):
        i = chosen[k]
        apart[k] = _apart_csr(data, indices, indptr, i, signs[i], point, square, centre_sign, constant)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gaps_dense(points, same, point):
    gaps = np.empty(points.shape[0])
    for c in range(points.shape[0]):
        total = 0.0
        for j in range(points.shape[1]):
            step = points[c, j] - same[c] * point[j]
            total += step * step
        gaps[c] = total * (1.0 - 1e-9)
    return gaps


@njit(cache=True, nogil=True)
def _candidates(gaps, reach, head, next_row, best, chosen):
    """Rows that may be closer to a new centre: farther from their own centre than half its distance to the new one."""
    count = 0
    for c in range(gaps.shape[0]):
        if gaps[c] < 4.0 * reach[c]:
            i = head[c]
            while i >= 0:
                if gaps[c] < 4.0 * best[i]:
                    chosen[count] = i
                    count += 1
                i = next_row[i]
    return count


@njit(cache=True, nogil=True)
def _candidates_in_order(gaps, best, nearest, chosen):
    """The rows of `_candidates`, in the order of the rows: faster if they are many."""
    count = 0
    for i in range(best.shape[0]):
        if nearest[i] >= 0 and gaps[nearest[i]] < 4.0 * best[i]:
            chosen[count] = i
            count += 1
    return count


@njit(cache=True, nogil=True)
def _move_rows_in_order(chosen, reach, farthest, head, next_row, best, nearest, apart, number):
    """`_move_rows` for the rows of `_candidates_in_order`: all lists are built again, in the order of the rows."""
    for k in range(chosen.shape[0]):
        if apart[k] < best[chosen[k]]:
            best[chosen[k]], nearest[chosen[k]] = apart[k], number
    head[: number + 1], reach[: number + 1] = -1, -1.0
    for i in range(best.shape[0] - 1, -1, -1):
        c = nearest[i]
        if c >= 0:
            next_row[i], head[c] = head[c], i
            if best[i] >= reach[c]:
                reach[c], farthest[c] = best[i], i


@njit(cache=True, nogil=True)
def _move_rows(gaps, reach, farthest, head, next_row, best, nearest, apart, number):
    """Move rows to the new centre where it is closer; ``apart`` are the distances of the candidates, in order.

    Rows of a centre c are the list head[c], after[head[c]], ...; the farthest is far[c], reach[c] away (squared).
    """
    at = 0
    for c in range(gaps.shape[0]):
        if not gaps[c] < 4.0 * reach[c]:
            continue
        limit, i, previous = gaps[c], head[c], -1
        reach[c], farthest[c] = -1.0, -1
        while i >= 0:
            following, centre = next_row[i], c
            if limit < 4.0 * best[i]:
                if apart[at] < best[i]:
                    best[i], centre = apart[at], number
                at += 1
            if centre == number:
                if previous < 0:
                    head[c] = following
                else:
                    next_row[previous] = following
                next_row[i], head[number], nearest[i] = head[number], i, number
            else:
                previous = i
            if best[i] > reach[centre] or (best[i] == reach[centre] and i < farthest[centre]):
                reach[centre], farthest[centre] = best[i], i
            i = following


@njit(cache=True, nogil=True, fastmath=_FAST)
def _assign_leaders(X, signs, groups, weight, limit, constant, centres, centre_sign, group, mass, ids, count, start):
    """Rows from ``start`` on join the nearest leader within reach, or become leaders until the arrays are full."""
    for i in range(start, X.shape[0]):
        if weight[i] <= 0.0:
            continue
        best, at = np.inf, -1
        for c in range(count):
            if group[c] == groups[i]:
                apart = _apart_dense(X, i, signs[i], centres[c], centre_sign[c], constant)
                if apart < best:
                    best, at = apart, c
        if best <= limit:
            mass[at] += weight[i]
            continue
        if count == centres.shape[0]:
            return i, count
        for j in range(X.shape[1]):
            centres[count, j] = X[i, j]
        centre_sign[count], group[count], mass[count], ids[count] = signs[i], groups[i], weight[i], i
        count += 1
    return X.shape[0], count


class FarthestFirst:
    """Centres among the rows, each the one farthest from those before it; prefixes serve larger radii.

    After k centres every row is within ``radius`` of one of them, centres are at least that far apart, and no
    set of fewer than k rows covers all within half of it. k centres take at most k passes over the rows; rows of a
    centre that is twice as far from the new one as from all of its rows are skipped, which soon are most.

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
        The number of the nearest centre of each row, of the first found if several are; -1 for rows of no weight.
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
        positive = np.arange(n) if weight is None else np.flatnonzero(weight > 0.0)
        self._waiting = {int(g): positive[self._groups[positive] == g] for g in np.unique(self._groups[positive])}
        self._best = np.full(n, np.inf)
        self._next_row = np.full(n, -1, np.int64)
        self._chosen = np.empty(n, np.int64)
        self.nearest = np.full(n, -1, np.int32)
        self.centres: list[int] = []
        self.radii: list[float] = []
        self._scan_all = True  # whether the last centre had many candidates
        self._centre_arrays: dict[str, Array] = {
            "reach": np.empty(_INITIAL_CAPACITY),
            "farthest": np.empty(_INITIAL_CAPACITY, np.int64),
            "head": np.empty(_INITIAL_CAPACITY, np.int64),
            "squares": np.empty(_INITIAL_CAPACITY),
            "sign": np.empty(_INITIAL_CAPACITY),
            "group": np.empty(_INITIAL_CAPACITY, np.int32),
            "points": np.empty((0 if sparse.issparse(X) else _INITIAL_CAPACITY, X.shape[1])),
        }
        self._add(int(start))

    @property
    def radius(self) -> float:
        """The largest distance of a row from its centre."""
        return self.radii[-1]

    def grow(self, *, size: int | None = None, radius: float = 0.0) -> FarthestFirst:
        """More centres, until there are ``size`` of them or all rows are within ``radius``."""
        while self.radius > radius and (size is None or len(self.centres) < size):
            self._add(self._farthest)
        return self

    def weights(self) -> Array:
        """The weight of the rows nearest to each centre: (k,)."""
        covered = self.nearest >= 0
        weights = None if self._weight is None else self._weight[covered]
        mass: Array = np.bincount(self.nearest[covered], weights, len(self.centres)).astype(np.float64)
        return mass

    def _add(self, row: int) -> None:
        number = len(self.centres)
        arrays = self._centre_arrays
        if number == len(arrays["head"]):
            arrays.update({name: np.concatenate([array, np.empty_like(array)]) for name, array in arrays.items()})
        point = (self._X[[row]].toarray()[0] if sparse.issparse(self._X) else self._X[row]).astype(np.float64)
        if not sparse.issparse(self._X):
            arrays["points"][number] = point
        values = {"squares": point @ point, "sign": self._signs[row], "group": self._groups[row]}
        for name, value in {**values, "head": -1, "farthest": -1, "reach": -1.0}.items():
            arrays[name][number] = value
        waiting = self._waiting.pop(int(self._groups[row]), None)
        if waiting is not None:
            self._start_group(waiting, number, row, self._measured(waiting, row, point))
        else:
            gaps = self._gaps(point, row)
            lists = (arrays["head"], self._next_row, self._best)
            ends = (arrays["reach"], arrays["farthest"])
            if self._scan_all:
                chosen = self._chosen[: _candidates_in_order(gaps, self._best, self.nearest, self._chosen)]
                _move_rows_in_order(chosen, *ends, *lists, self.nearest, self._measured(chosen, row, point), number)
            else:
                chosen = self._chosen[: _candidates(gaps, arrays["reach"], *lists, self._chosen)]
                _move_rows(gaps, *ends, *lists, self.nearest, self._measured(chosen, row, point), number)
            self._scan_all = len(chosen) > _SCAN_SHARE * len(self._best)
        self.centres.append(row)
        self._farthest, reach = self._next()
        self.radii.append(float(np.sqrt(reach)))

    def _start_group(self, rows: Array, number: int, row: int, apart: Array) -> None:
        """The first centre of a group gets all of its rows."""
        arrays = self._centre_arrays
        self._best[rows], self.nearest[rows] = apart, number
        self._next_row[rows[:-1]] = rows[1:]
        arrays["head"][number] = rows[0]
        top = int(np.argmax(apart))
        arrays["reach"][number], arrays["farthest"][number] = apart[top], rows[top]

    def _next(self) -> tuple[int, float]:
        """The row farthest from its centre, and its squared distance; rows of a group without a centre come first."""
        if self._waiting:
            return min(int(rows[0]) for rows in self._waiting.values()), np.inf
        reach, farthest = (self._centre_arrays[name][: len(self.centres)] for name in ("reach", "farthest"))
        largest = float(reach.max())
        return int(farthest[reach == largest].min()), largest

    def _measured(self, rows: Array, row: int, point: Array) -> Array:
        """Squared distances of ``rows`` from a new centre."""
        X, apart, step = self._X, np.empty(len(rows)), 4096
        args = (self._signs[row], self._constant, apart)

        def run(a: int, b: int) -> None:
            if sparse.issparse(X):
                row_args = (X.data, X.indices, X.indptr, self._signs, rows, point, float(point @ point))
                _measure_csr(*row_args, *args, a, b, step)
            else:
                _measure_dense(X, self._signs, rows, point, *args, a, b, step)

        over_parts(run, -(-len(rows) // step), serial=len(rows) < 5 * step)
        apart[rows == row] = 0.0  # sparse products may round to another number
        return apart

    def _gaps(self, point: Array, row: int) -> Array:
        """Squared distances of the new centre from those before it, a little less; infinite in other groups: (k,)."""
        arrays = {name: array[: len(self.centres)] for name, array in self._centre_arrays.items()}
        same = arrays["sign"] * self._signs[row]
        if sparse.issparse(self._X):
            sizes = arrays["squares"] + point @ point
            gaps = sizes - 2.0 * same * (self._X[self.centres] @ point) - 1e-9 * sizes
        else:
            gaps = _gaps_dense(arrays["points"], same, point)
        gaps += np.where(same > 0.0, 0.0, 4.0 * self._constant**2)
        gaps[arrays["group"] != self._groups[row]] = np.inf
        return gaps


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

    A row joins the nearest leader within ``radius``, or becomes a leader. If there are more than ``most``, the radius
    is doubled and leaders join leaders; rows may then be twice the last radius away, which is the radius returned.
    Leaders are more than the last radius apart. Batches can be merged: leaders with their weights are rows.
    """
    n, d = X.shape
    row_arrays = (
        np.ones(n) if signs is None else signs,
        np.zeros(n, np.int32) if groups is None else groups,
        np.ones(n) if weight is None else weight,
    )
    table: dict[str, Array] = {
        "centres": np.empty((most, d)),
        "sign": np.empty(most),
        "group": np.empty(most, np.int32),
        "mass": np.empty(most),
        "ids": np.empty(most, np.int64),
    }
    count, start, reach, doubled = 0, 0, float(radius), False
    while True:
        if sparse.issparse(X):  # the kernel takes dense rows: a run at a time
            stop = min(n, start + 1024)
            rows, chunk = X[start:stop].toarray(), tuple(array[start:stop] for array in row_arrays)
        else:
            stop, rows, chunk = n, X[start:], tuple(array[start:] for array in row_arrays)
        state: Any = (rows, *chunk, reach * reach, float(constant), *table.values(), count, 0)
        done, new_count = _assign_leaders(*state)
        table["ids"][count:new_count] += start
        start, count = start + done, new_count
        if start == n:
            break
        if start < stop:
            if row_arrays[1][start] not in table["group"] and len(np.unique(table["group"])) == most:
                raise ValueError(f"There are more than {most} classes, and only {most} rows may be kept.")
            reach, doubled = (2.0 * reach if reach > 0.0 else _smallest_gap(table, count, constant)), True
            count = _merge_leaders(table, count, reach, constant)
    return table["ids"][:count], table["mass"][:count], 2.0 * reach if doubled else reach


def _merge_leaders(table: dict[str, Array], count: int, reach: float, constant: float) -> int:
    """Leaders join leaders at a larger radius, in place; returns how many are left."""
    previous = {name: array[:count].copy() for name, array in table.items()}
    rows = [previous[name] for name in ("centres", "sign", "group", "mass")]
    state: Any = (*rows, reach * reach, float(constant), *table.values(), 0, 0)
    n_left: int = _assign_leaders(*state)[1]
    table["ids"][:n_left] = previous["ids"][table["ids"][:n_left]]
    return n_left


def _smallest_gap(table: dict[str, Array], count: int, constant: float) -> float:
    """The smallest distance between two leaders that may join: the first radius above zero."""
    smallest = np.inf
    for c in range(1, count):
        same = np.where(table["sign"][:c] == table["sign"][c], 1.0, -1.0)
        steps = table["centres"][:c] - same[:, None] * table["centres"][c]
        gaps = np.einsum("ij,ij->i", steps, steps) + np.where(same > 0.0, 0.0, 4.0 * constant * constant)
        gaps = gaps[table["group"][:c] == table["group"][c]]
        smallest = min(smallest, float(gaps.min(initial=np.inf)))
    return float(np.sqrt(smallest)) * (1.0 + 1e-9)
