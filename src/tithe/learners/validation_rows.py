"""Rows that are set aside before a coreset is built, so that a model can be scored on rows it has not seen."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.hashing import uniform_of
from tithe.core.seeding import rng_for


def draw_validation_rows(n_rows: int, fraction: float, seed: int) -> Array:
    """Positions of a share of the rows, drawn uniformly, in ascending order."""
    return np.sort(rng_for(seed, "validation").choice(n_rows, round(fraction * n_rows), replace=False))


def without_rows(block: Block, positions: Array) -> Block:
    """The block with weight 0 at ``positions`` and the other weights scaled up to the same total."""
    if not len(positions):
        return block
    weight = block.weights().copy()
    total = weight.sum()
    weight[positions] = 0.0
    if not weight.any():
        raise ValueError("All rows that carry weight were set aside. Set validation_fraction=0.")
    return Block(X=block.X, y=block.y, sample_weight=weight * (total / weight.sum()))


def validation_rows(block: Block, positions: Array | None, by_hash: tuple[int, float] | None) -> Block:
    """The rows of a block of training data that were set aside.

    ``positions`` are those of rows in memory. ``by_hash`` are the key and the share for rows of a source, which are
    set aside by a hash of their ids.
    """
    if by_hash is not None:
        key, share = by_hash
        return block.take(np.flatnonzero(uniform_of(block.row_ids(), key) < share))
    ids = np.empty(0, np.int64) if positions is None else positions
    return block.take(np.flatnonzero(np.isin(block.row_ids(), ids)))
