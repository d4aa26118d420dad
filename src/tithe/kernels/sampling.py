"""Weighted draws from blocked cumulative sums."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array, Block, Scores
from tithe.core.parallel import over_parts

BLOCK_ROWS = 4096


@njit(cache=True, nogil=True)
def _score(cost, labels, slope, base, weight, i):  # type: ignore[no-untyped-def]
    score = slope * cost[i] + base[labels[i] if labels.size > 0 else 0]
    return score * weight[i] if weight.size > 0 else score


@njit(cache=True, nogil=True)
def _block_sums(cost, labels, slope, base, weight, sums, first, last):  # type: ignore[no-untyped-def]
    n = cost.shape[0]
    for block in range(first, last):
        total = 0.0
        for i in range(block * BLOCK_ROWS, min(n, (block + 1) * BLOCK_ROWS)):
            total += _score(cost, labels, slope, base, weight, i)
        sums[block] = total


@njit(cache=True, nogil=True)
def _locate(cost, labels, slope, base, weight, starts, targets, positions):  # type: ignore[no-untyped-def]
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
    if not (np.isfinite(total) and total > 0.0):
        raise ValueError(
            f"The scores of the rows add up to {total}: their squares or weights overflow or vanish in double "
            "precision. Rescale the columns or the weights."
        )
    targets = (np.arange(size) + rng.random(size)) * (total / size)
    positions = np.empty(size, np.int64)
    _locate(cost, labels, slope, base, weight, starts, targets, positions)
    return positions, total


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
