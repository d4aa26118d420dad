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

    Rows of a centre c are the list head[c], next_row[head[c]], ...; farthest[c] is reach[c] away (squared).
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
