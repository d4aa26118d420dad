"""How rows are cut into leaves, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tithe.core.data import Array, Block

U = TypeVar("U")

LEAF_ROWS = 262_144
LEAF_BYTES = 2**25  # of X: small enough to hold several, large enough to be worth a task
SAMPLE_ROWS = 65_536


def usual_leaf_rows(row_bytes: int, least: int = 0) -> int:
    """Rows at which a leaf is large enough: ``LEAF_ROWS`` or ``LEAF_BYTES``, whatever comes first, or ``least``."""
    return max(1, least, min(LEAF_ROWS, -(-LEAF_BYTES // max(1, row_bytes))))


def fair_shares(counts: Sequence[int], size: int, offset: float) -> Array:
    """``size`` things shared out in proportion to ``counts``, rounded fairly: ``offset`` in [0, 1) decides.

    >>> fair_shares([10, 20, 70], 10, 0.5)
    array([1, 2, 7])
    """
    held = np.cumsum(counts)
    shares: Array = np.diff(np.floor(held / held[-1] * size + offset).astype(np.int64), prepend=0)
    return shares


def joined(units: Sequence[U], n_rows: Callable[[U], int], enough: int) -> list[tuple[U, ...]]:
    """Units that follow one another, joined until each tuple has ``enough`` rows.

    >>> joined([3, 4, 5, 9, 1], int, 6)
    [(3, 4), (5, 9), (1,)]
    """
    leaves: list[tuple[U, ...]] = []
    held = enough
    for unit in units:
        if held >= enough:
            leaves.append(())
            held = 0
        leaves[-1] += (unit,)
        held += n_rows(unit)
    return leaves


class Loaded:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block
