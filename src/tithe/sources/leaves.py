"""How rows are cut into leaves, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tithe.core.data import Array, Block
from tithe.sources.paths import DataFile, all_bad

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


def at_least_one(drawn: Block, source: Any, files: Sequence[DataFile], size: int) -> Block:
    """Rows drawn for a sample; where all of them were bad and left out, rows of the first leaf that has any.

    Nothing can be learned from no rows at all, and what says so must know why there are none.
    """
    if len(drawn):
        return drawn
    for task in source.tasks():
        leaf: Block = task()
        if len(leaf):
            return leaf.cut(0, size)
    n_rows = source.count() if source.n_rows is None else source.n_rows
    raise all_bad(f"{files[0].path!r}{' and the other files' * (len(files) > 1)}", n_rows)


class Loaded:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block
