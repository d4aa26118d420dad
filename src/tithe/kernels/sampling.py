"""Weighted draws from blocked cumulative sums, of all rows or within every class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numba import njit

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
