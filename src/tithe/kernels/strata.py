"""Draws within every class at once, in blocks, on several threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from tithe.core.data import Array, Scores
from tithe.core.parallel import over_parts

BLOCK_ROWS = 4096


@njit(cache=True, nogil=True)
def _block_sums(cost, slope, base, weight, codes, sums, counts, first, last):  # type: ignore[no-untyped-def]
    for block in range(first, last):
        for i in range(block * BLOCK_ROWS, min(cost.shape[0], (block + 1) * BLOCK_ROWS)):
            score = (slope * cost[i] + base) * (weight[i] if weight.size > 0 else 1.0)
            sums[block, codes[i]] += score
            counts[block, codes[i]] += 1 if score > 0.0 else 0


@njit(cache=True, nogil=True)
def _locate(cost, slope, base, weight, codes, starts, targets, turns, draws, first, last):  # type: ignore[no-untyped-def]
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
    over_parts(lambda a, b: _block_sums(*args, sums, counts, a, b), n_blocks, serial=serial)
    starts = np.concatenate([np.zeros((1, n_classes)), np.cumsum(sums, axis=0)])
    totals, rows = starts[-1], counts.sum(axis=0)
    if not (np.isfinite(totals).all() and totals.sum() > 0.0):
        raise ValueError(
            f"The scores of the rows add up to {totals.sum()}: their squares or weights overflow or vanish in double "
            "precision. Rescale the columns or the weights."
        )
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
    over_parts(lambda a, b: _locate(*args, starts, targets, turns, draws, a, b), n_blocks, serial=serial)
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
