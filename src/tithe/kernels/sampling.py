"""Weighted draws from blocked cumulative sums, of all rows or within every class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from tithe.core.data import Array, Block, Scores
from tithe.core.parallel import over_parts

BLOCK_ROWS = 4096


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


def locate_draws(scores: Scores | Array, size: int, rng: np.random.Generator) -> tuple[Array, float]:
    """``size`` draws with probability proportional to the scores, one in each equal slice of their total.

    A row is drawn ``size * score / total`` times on average, exactly as with independent draws,
    so weights ``count * total / (size * score)`` are unbiased; the variance is never larger.
    Returns the positions drawn, in ascending order, and the total score.
    """
    if not isinstance(scores, Scores):
        scores = Scores(cost=scores)
    labels = np.empty(0, np.int32) if scores.labels is None else scores.labels
    weight = np.empty(0) if scores.weight is None else scores.weight
    cost, slope, base = scores.cost, float(scores.slope), scores.base
    n_blocks = -(-len(cost) // BLOCK_ROWS)
    sums = np.empty(n_blocks)
    over_parts(
        lambda first, last: _block_sums(cost, labels, slope, base, weight, sums, first, last),
        n_blocks,
        serial=n_blocks < 64,
    )
    starts = np.concatenate([[0.0], np.cumsum(sums)])
    total = float(starts[-1])
    _check_total(total)
    targets = (np.arange(size) + rng.random(size)) * (total / size)
    positions = np.empty(size, np.int64)
    _locate(cost, labels, slope, base, weight, starts, targets, positions)
    return positions, total


def _check_total(total: float) -> None:
    if not (np.isfinite(total) and total > 0.0):
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

    ``sum(weights * f)`` over the drawn rows estimates ``sum(f)`` over all of them without bias.
    """
    draws, total = locate_draws(scores, size, rng)
    positions, counts = np.unique(draws, return_counts=True)
    score = scores.at(positions) if isinstance(scores, Scores) else scores[positions]
    return positions, counts * (total / size) / score


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
