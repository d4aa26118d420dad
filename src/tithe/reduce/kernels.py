"""Loops of constructions: draws of rows, and covers of rows by balls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array, Block, Scores
from tithe.core.parallel import over_parts

BLOCK_ROWS = 4096
_LEAST_KEPT = 0.25  # of the score of one draw: rows of smaller scores are never kept for certain


@njit(cache=True, nogil=True)
def _score(cost, labels, slope, base, weight, i):
    score = slope * cost[i] + base[labels[i] if labels.size > 0 else 0]
    return score * weight[i] if weight.size > 0 else score


@njit(cache=True, nogil=True)
def _block_sums(cost, labels, slope, base, weight, sums, first, last):
    n = cost.shape[0]
    for block in range(first, last):
        total = 0.0
        for i in range(block * BLOCK_ROWS, min(n, (block + 1) * BLOCK_ROWS)):
            total += _score(cost, labels, slope, base, weight, i)
        sums[block] = total


@njit(cache=True, nogil=True)
def _locate(cost, labels, slope, base, weight, starts, targets, positions):
    n, n_blocks = cost.shape[0], starts.shape[0] - 1
    block, at, end, reached = -1, -1, -1, 0.0
    for t in range(targets.shape[0]):
        target = targets[t]
        if block < 0 or target >= starts[block + 1]:
            block = max(block, 0)
            while block + 1 < n_blocks and target >= starts[block + 1]:
                block += 1
            at = block * BLOCK_ROWS - 1
            end = min(n, at + 1 + BLOCK_ROWS) - 1
            reached = starts[block]
        while at < end and (reached <= target or at < block * BLOCK_ROWS):
            at += 1
            reached += _score(cost, labels, slope, base, weight, at)
        # rounding at the end of a block must not pick a row of score 0
        while at > 0 and _score(cost, labels, slope, base, weight, at) <= 0.0:
            at -= 1
        positions[t] = at


@njit(cache=True, nogil=True)
def _large_scores(cost, labels, slope, base, weight, least, positions, values):
    """Positions and scores of the rows with a score of at least ``least``, ascending; their number."""
    n_large = 0
    for i in range(cost.shape[0]):
        score = _score(cost, labels, slope, base, weight, i)
        if score >= least and n_large < positions.shape[0]:
            positions[n_large], values[n_large] = i, score
            n_large += 1
    return n_large


def _kernel_arguments(scores: Scores) -> tuple[Array, Array, float, Array, Array]:
    labels = np.empty(0, np.int32) if scores.labels is None else scores.labels
    weight = np.empty(0) if scores.weight is None else scores.weight
    return scores.cost, labels, float(scores.slope), scores.base, weight


def _block_starts(scores: Scores) -> Array:
    """The sum of the scores before each block of rows, and that of all."""
    arguments = _kernel_arguments(scores)
    n_blocks = -(-len(scores.cost) // BLOCK_ROWS)
    sums = np.empty(n_blocks)
    over_parts(lambda first, last: _block_sums(*arguments, sums, first, last), n_blocks, serial=n_blocks < 64)
    return np.concatenate([[0.0], np.cumsum(sums)])


def _located(scores: Scores, starts: Array, size: int, rng: np.random.Generator) -> Array:
    """Positions of ``size`` draws in ascending order, one in each equal slice of the total score."""
    targets = (np.arange(size) + rng.random(size)) * (starts[-1] / size)
    positions = np.empty(size, np.int64)
    _locate(*_kernel_arguments(scores), starts, targets, positions)
    return positions


def locate_draws(scores: Scores | Array, size: int, rng: np.random.Generator) -> tuple[Array, float]:
    """``size`` draws with probability proportional to the scores, one in each equal slice of their total.

    A row is drawn ``size * score / total`` times on average, exactly as with independent draws,
    so weights ``count * total / (size * score)`` are unbiased; the variance is never larger.
    Returns the positions drawn, in ascending order, and the total score.
    """
    if not isinstance(scores, Scores):
        scores = Scores(cost=scores)
    starts = _block_starts(scores)
    total = float(starts[-1])
    _check_total(total)
    return _located(scores, starts, size, rng), total


def _check_total(total: float) -> None:
    # a share of a smaller total would have lost digits: weights would be wrong
    if not (np.isfinite(total) and total >= np.finfo(np.float64).tiny):
        raise ValueError(
            f"The scores of the rows add up to {total}: their squares or weights overflow or vanish in double "
            "precision. Rescale the columns or the weights."
        )


def sample_rows(block: Block, size: int, rng: np.random.Generator) -> Block:
    """A sample of about ``size`` rows: all if there are no more, else drawn uniformly, or by weight if weighted."""
    if len(block) <= size:
        return block
    if block.sample_weight is None:
        return block.take(np.sort(rng.choice(len(block), size, replace=False)))
    positions, inverse = draw(block.sample_weight, size, rng)
    return block.take(positions, inverse * block.sample_weight[positions])


def draw(scores: Scores | Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Distinct positions drawn, ascending, and their weights ``count * total / (size * score)``.

    ``sum(weights * f)`` over the drawn rows estimates ``sum(f)`` over all of them without bias. A row that would be
    drawn once or more on average is not drawn but kept, with a weight of 1, and the others share the remaining draws:
    otherwise the weights of the very rows that matter most, those of heavy tails, would be random.
    """
    if not isinstance(scores, Scores):
        scores = Scores(cost=scores)
    starts = _block_starts(scores)
    _check_total(float(starts[-1]))
    kept = _rows_to_keep(scores, float(starts[-1]), size)
    if len(kept):
        others = np.ones(len(scores.cost)) if scores.weight is None else scores.weight.copy()
        others[kept] = 0.0
        scores = replace(scores, weight=others)
        starts = _block_starts(scores)
        size -= len(kept)
    total = float(starts[-1])
    positions, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    if total > 0.0:
        positions, counts = np.unique(_located(scores, starts, size, rng), return_counts=True)
    weights = counts * (total / size) / scores.at(positions)
    if len(kept) == 0:
        return positions, weights
    positions, weights = np.concatenate([positions, kept]), np.concatenate([weights, np.ones(len(kept))])
    order = np.argsort(positions, kind="stable")
    return positions[order], weights[order]


def _rows_to_keep(scores: Scores, total: float, size: int) -> Array:
    """Positions of the rows whose score is at least that of one draw from them and all rows with smaller scores.

    Each row that is kept lowers the score of one draw. Scores below a quarter of the first one are not looked at.
    """
    least = _LEAST_KEPT * total / size
    positions, values = np.empty(int(size / _LEAST_KEPT) + 1, np.int64), np.empty(int(size / _LEAST_KEPT) + 1)
    n_large = _large_scores(*_kernel_arguments(scores), least, positions, values)
    order = np.argsort(-values[:n_large], kind="stable")[: size - 1]  # at least one draw is left for all others
    largest = values[order]
    without_larger = total - np.concatenate([[0.0], np.cumsum(largest)[:-1]]) if len(largest) else largest
    too_small = largest * (size - np.arange(len(largest))) < without_larger
    n_kept = int(np.argmax(too_small)) if too_small.any() else len(largest)
    return positions[order[:n_kept]]


@njit(cache=True, nogil=True)
def _class_sums(cost, slope, base, weight, codes, sums, counts, first, last):
    for block in range(first, last):
        for i in range(block * BLOCK_ROWS, min(cost.shape[0], (block + 1) * BLOCK_ROWS)):
            score = (slope * cost[i] + base) * (weight[i] if weight.size > 0 else 1.0)
            sums[block, codes[i]] += score
            counts[block, codes[i]] += 1 if score > 0.0 else 0


@njit(cache=True, nogil=True)
def _locate_in_classes(cost, slope, base, weight, codes, starts, targets, turns, draws, first, last):
    """Targets of class g are targets[turns[0, g] .. turns[-1, g]], those of block b from turns[b, g]."""
    n_classes = starts.shape[1]
    reached, turn, latest = np.empty(n_classes), np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    for block in range(first, last):
        n_targets = 0
        for g in range(n_classes):
            reached[g], turn[g], latest[g] = starts[block, g], turns[block, g], -1
            n_targets += turns[block + 1, g] - turns[block, g]
        if n_targets == 0:
            continue
        for i in range(block * BLOCK_ROWS, min(cost.shape[0], (block + 1) * BLOCK_ROWS)):
            score = (slope * cost[i] + base) * (weight[i] if weight.size > 0 else 1.0)
            if score > 0.0:
                g = codes[i]
                reached[g] += score
                latest[g] = i
                while turn[g] < turns[block + 1, g] and targets[turn[g]] < reached[g]:
                    draws[turn[g]] = i
                    turn[g] += 1
        for g in range(n_classes):
            # rounding at the end of a block must not lose a draw
            while turn[g] < turns[block + 1, g]:
                draws[turn[g]] = latest[g]
                turn[g] += 1


def draw_in_classes(
    scores: Scores | Array,
    codes: Array,
    n_classes: int,
    allocate: Callable[[Array, Array], Array],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draws within each class with probability proportional to the scores, one in each equal slice of their total.

    ``allocate(total score, rows of positive score)`` returns the number of draws of each class;
    a class with at least as many draws as rows is kept whole. Returns distinct positions,
    ascending, and weights ``count * total of the class / (draws of the class * score)``, which are
    unbiased for every class. ``scores`` may have a base, the same for all rows, but no labels.
    """
    if not isinstance(scores, Scores):
        scores = Scores(cost=scores)
    weight = np.empty(0) if scores.weight is None else scores.weight
    args = (scores.cost, float(scores.slope), float(scores.base[0]), weight, codes)
    n_blocks = -(-len(codes) // BLOCK_ROWS)
    sums, counts = np.zeros((n_blocks, n_classes)), np.zeros((n_blocks, n_classes), np.int64)
    serial = n_blocks < 16
    over_parts(lambda a, b: _class_sums(*args, sums, counts, a, b), n_blocks, serial=serial)
    starts = np.concatenate([np.zeros((1, n_classes)), np.cumsum(sums, axis=0)])
    totals, rows = starts[-1], counts.sum(axis=0)
    _check_total(totals.sum())
    sizes = allocate(totals, rows)
    keep_all = (sizes >= rows) & (rows > 0)
    drawn = np.where(keep_all, 0, sizes)
    first = np.concatenate([[0], np.cumsum(drawn)])
    targets = np.empty(first[-1])
    turns = np.empty((n_blocks + 1, n_classes), np.int64)
    for g, size in enumerate(drawn):
        class_targets = targets[first[g] : first[g + 1]]
        class_targets[:] = (np.arange(size) + rng.random(size)) * (totals[g] / max(size, 1))
        # a target belongs to the block that ends after it; rounding may put the last ones beyond all
        turns[:, g] = first[g] + np.searchsorted(class_targets, starts[:, g])
        turns[np.searchsorted(starts[:, g], totals[g]) :, g] = first[g + 1]
    draws = np.empty(len(targets), np.int64)
    over_parts(lambda a, b: _locate_in_classes(*args, starts, targets, turns, draws, a, b), n_blocks, serial=serial)
    positions, times = np.unique(draws, return_counts=True)
    classes = codes[positions]
    inverse = times * totals[classes] / (drawn[classes] * scores.at(positions))
    if not keep_all.any():
        return positions, inverse
    kept_rows = np.flatnonzero(keep_all[codes])
    kept_rows = kept_rows[scores.at(kept_rows) > 0.0]
    positions, inverse = np.concatenate([positions, kept_rows]), np.concatenate([inverse, np.ones(len(kept_rows))])
    order = np.argsort(positions, kind="stable")
    return positions[order], inverse[order]


_FAST = {"contract", "reassoc", "nsz"}


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
def _cover_dense(X, signs, groups, point, sign, group, constant, gaps, number, best, nearest, first, last):
    """Rows join the new centre ``number`` where it is closer; ``gaps`` are its squared distances from the others."""
    for i in range(first * BLOCK_ROWS, min(X.shape[0], last * BLOCK_ROWS)):
        c = nearest[i]
        # a row nearer to its centre than half the distance of the two centres stays; those of no weight have no centre
        if gaps[c] < 4.0 * best[i] if c >= 0 else best[i] > 0.0 and groups[i] == group:
            apart = _apart_dense(X, i, signs[i], point, sign, constant)
            if apart < best[i]:
                best[i], nearest[i] = apart, number


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
def _cover_csr(
    data, indices, indptr, signs, groups, point, square, sign, group, constant, gaps, number, best, nearest, first, last
):
    for i in range(first * BLOCK_ROWS, min(signs.shape[0], last * BLOCK_ROWS)):
        c = nearest[i]
        if gaps[c] < 4.0 * best[i] if c >= 0 else best[i] > 0.0 and groups[i] == group:
            apart = _apart_csr(data, indices, indptr, i, signs[i], point, square, sign, constant)
            if apart < best[i]:
                best[i], nearest[i] = apart, number


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
    set of fewer than k rows covers all within half of it. X is dense or CSR, ``signs`` are 1 and -1. Rows of different
    ``groups`` never share a centre; those of weight zero are neither covered nor chosen. The first centre is ``start``.
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
        self._best = np.full(n, np.inf)  # squared distances from the nearest centres
        if weight is not None:
            self._best[~(weight > 0.0)] = -1.0
        self._points, self._squares = np.empty((0, X.shape[1])), list[float]()  # of the centres, with room for more
        self.nearest = np.full(n, -1, np.int32)  # the nearest centre of each row, the first found if several are
        self.centres: list[int] = []  # positions, in the order in which they were found
        self.radii: list[float] = []  # radii[k]: how far a row is at most from the nearest of the first k + 1 centres
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
        X, number = self._X, len(self.centres)
        is_sparse = sparse.issparse(X)
        point = (X[[row]].toarray()[0] if is_sparse else X[row]).astype(np.float64)
        gaps = self._gaps(point, row)
        state = (self._signs[row], self._groups[row], self._constant, gaps, number, self._best, self.nearest)

        def run(first: int, last: int) -> None:
            if is_sparse:
                rows = (X.data, X.indices, X.indptr, self._signs, self._groups, point, float(point @ point))
                _cover_csr(*rows, *state, first, last)
            else:
                _cover_dense(X, self._signs, self._groups, point, *state, first, last)

        n_parts = -(-X.shape[0] // BLOCK_ROWS)
        over_parts(run, n_parts, serial=n_parts < 5)
        self._best[row], self.nearest[row] = 0.0, number  # sparse products may round to another number
        self.centres.append(row)
        self._squares.append(float(point @ point))
        if not is_sparse:
            if number == len(self._points):
                self._points = np.concatenate([self._points, np.empty((max(64, number), X.shape[1]))])
            self._points[number] = point
        self._farthest = int(np.argmax(self._best))
        self.radii.append(float(np.sqrt(self._best[self._farthest])))

    def _gaps(self, point: Array, row: int) -> Array:
        """Squared distances of the new centre from those before it, a little less; infinite in other groups: (k,)."""
        centres = np.array(self.centres, np.int64)
        same = self._signs[centres] * self._signs[row]
        if sparse.issparse(self._X):
            sizes = np.array(self._squares) + point @ point
            gaps = sizes - 2.0 * same * (self._X[centres] @ point) - 1e-9 * sizes
        else:
            gaps = _gaps_dense(self._points[: len(centres)], same, point)
        gaps += np.where(same > 0.0, 0.0, 4.0 * self._constant**2)
        gaps[self._groups[centres] != self._groups[row]] = np.inf
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
