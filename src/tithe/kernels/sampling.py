"""Weighted draws from blocked cumulative sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tithe.kernels.threads import over_parts

Array = np.ndarray[Any, Any]

BLOCK = 4096


@njit(cache=True, nogil=True)
def _block_sums(score, sums, first, last):  # type: ignore[no-untyped-def]
    n = score.shape[0]
    for block in range(first, last):
        total = 0.0
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            total += score[i]
        sums[block] = total


@njit(cache=True, nogil=True)
def _locate(score, starts, targets, found):  # type: ignore[no-untyped-def]
    n = score.shape[0]
    n_blocks = starts.shape[0] - 1
    block = 0
    at = -1
    reached = 0.0
    end = 0
    for t in range(targets.shape[0]):
        target = targets[t]
        if target >= starts[block + 1] or at < 0:
            while block + 1 < n_blocks and target >= starts[block + 1]:
                block += 1
            at = block * BLOCK
            end = min(n, at + BLOCK) - 1
            reached = starts[block] + score[at]
        while reached <= target and at < end:
            at += 1
            reached += score[at]
        while score[at] <= 0.0 and at > 0:  # rounding at a block's end must not pick a row of score 0
            at -= 1
        found[t] = at


def running_sums(score: Array) -> Array:
    """The running sum of the scores at the start of each block, and at the end."""
    n_blocks = -(-score.shape[0] // BLOCK)
    sums = np.empty(n_blocks)
    over_parts(lambda first, last: _block_sums(score, sums, first, last), n_blocks, serial=n_blocks < 64)
    return np.concatenate([[0.0], np.cumsum(sums)])


def locate_draws(score: Array, size: int, rng: np.random.Generator) -> tuple[Array, float]:
    """``size`` draws with probability proportional to ``score``, one in each equal slice of the total.

    A row is drawn ``size * score / total`` times on average, exactly as with independent draws,
    so weights ``count * total / (size * score)`` are unbiased; the variance is never larger.
    Returns the positions drawn, in ascending order, and the total score.
    """
    starts = running_sums(score)
    if not (np.isfinite(starts[-1]) and starts[-1] > 0.0):
        raise ValueError(f"Scores must add up to a positive finite number, got {starts[-1]}.")
    targets = (np.arange(size) + rng.random(size)) * (starts[-1] / size)
    found = np.empty(size, np.int64)
    _locate(score, starts, targets, found)
    return found, float(starts[-1])


def draw(score: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Distinct positions drawn, ascending, and their weights ``count * total / (size * score)``.

    ``sum(weights * f)`` over the drawn rows estimates ``sum(f)`` over all of them without bias.
    """
    found, total = locate_draws(score, size, rng)
    positions, counts = np.unique(found, return_counts=True)
    return positions, counts * (total / size) / score[positions]
