"""Draws within every class at once: blocked, on both cores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from tithe.core.data import Array, Scores
from tithe.core.parallel import over_parts

BLOCK = 4096


@njit(cache=True, nogil=True, inline="always")
def _score(cost, slope, base, weight, i):  # type: ignore[no-untyped-def]
    score = slope * cost[i] + base
    return score * weight[i] if weight.size > 0 else score


@njit(cache=True, nogil=True)
def _block_sums(cost, slope, base, weight, codes, sums, counts, first, last):  # type: ignore[no-untyped-def]
    for block in range(first, last):
        for i in range(block * BLOCK, min(cost.shape[0], (block + 1) * BLOCK)):
            score = _score(cost, slope, base, weight, i)
            sums[block, codes[i]] += score
            counts[block, codes[i]] += 1 if score > 0.0 else 0


@njit(cache=True, nogil=True)
def _locate(cost, slope, base, weight, codes, starts, targets, turns, found, first, last):  # type: ignore[no-untyped-def]
    """Targets of class g are targets[turns[0, g] .. turns[-1, g]], those of block b from turns[b, g]."""
    n_classes = starts.shape[1]
    reached, turn, latest = np.empty(n_classes), np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    for block in range(first, last):
        wanted = 0
        for g in range(n_classes):
            reached[g], turn[g], latest[g] = starts[block, g], turns[block, g], -1
            wanted += turns[block + 1, g] - turns[block, g]
        if wanted == 0:
            continue
        for i in range(block * BLOCK, min(cost.shape[0], (block + 1) * BLOCK)):
            score = _score(cost, slope, base, weight, i)
            if score > 0.0:
                g = codes[i]
                reached[g] += score
                latest[g] = i
                while turn[g] < turns[block + 1, g] and targets[turn[g]] < reached[g]:
                    found[turn[g]] = i
                    turn[g] += 1
        for g in range(n_classes):
            # rounding at the end of a block must not lose a draw
            while turn[g] < turns[block + 1, g]:
                found[turn[g]] = latest[g]
                turn[g] += 1


def draw_in_classes(
    scores: Scores | Array,
    codes: Array,
    n_classes: int,
    allocate: Callable[[Array, Array], Array],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Draws within each class with probability proportional to the scores, one in each equal slice of their total.

    ``allocate(total score, rows of positive score)`` of the classes says how many draws each gets;
    a class that gets as many draws as it has rows is kept whole. Returns distinct positions,
    ascending, and weights ``count * total of the class / (draws of the class * score)``, which are
    unbiased for every class. ``scores`` may have a base, the same for all rows, but no labels.
    """
    if not isinstance(scores, Scores):
        scores = Scores(cost=scores)
    weight = np.empty(0) if scores.weight is None else scores.weight
    given = (scores.cost, float(scores.slope), float(scores.base[0]), weight, codes)
    n_blocks = -(-len(codes) // BLOCK)
    sums, counts = np.zeros((n_blocks, n_classes)), np.zeros((n_blocks, n_classes), np.int64)
    serial = n_blocks < 16
    over_parts(lambda a, b: _block_sums(*given, sums, counts, a, b), n_blocks, serial=serial)
    starts = np.concatenate([np.zeros((1, n_classes)), np.cumsum(sums, axis=0)])
    totals, rows = starts[-1], counts.sum(axis=0)
    if not (np.isfinite(totals).all() and totals.sum() > 0.0):
        raise ValueError(
            f"The scores of the rows add up to {totals.sum()}: their squares or weights overflow or vanish in double "
            "precision. Rescale the columns or the weights."
        )
    sizes = allocate(totals, rows)
    whole = (sizes >= rows) & (rows > 0)
    drawn = np.where(whole, 0, sizes)
    first = np.concatenate([[0], np.cumsum(drawn)])
    targets = np.empty(first[-1])
    turns = np.empty((n_blocks + 1, n_classes), np.int64)
    for g, size in enumerate(drawn):
        mine = targets[first[g] : first[g + 1]]
        mine[:] = (np.arange(size) + rng.random(size)) * (totals[g] / max(size, 1))
        # a target belongs to the block that ends after it; rounding may put the last ones beyond all
        turns[:, g] = first[g] + np.searchsorted(mine, starts[:, g])
        turns[np.searchsorted(starts[:, g], totals[g]) :, g] = first[g + 1]
    found = np.empty(len(targets), np.int64)
    over_parts(lambda a, b: _locate(*given, starts, targets, turns, found, a, b), n_blocks, serial=serial)
    positions, times = np.unique(found, return_counts=True)
    here = codes[positions]
    inverse = times * totals[here] / (drawn[here] * scores.at(positions))
    if not whole.any():
        return positions, inverse
    kept = np.flatnonzero(whole[codes])
    kept = kept[scores.at(kept) > 0.0]
    positions, inverse = np.concatenate([positions, kept]), np.concatenate([inverse, np.ones(len(kept))])
    order = np.argsort(positions, kind="stable")
    return positions[order], inverse[order]
