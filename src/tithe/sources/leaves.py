"""How rows are cut into leaves, whatever the format."""

from __future__ import annotations

from tithe.core.data import Block

LEAF_ROWS = 262_144
LEAF_BYTES = 2**25  # of X: small enough to hold several, large enough to be worth a task
SAMPLE_ROWS = 65_536


def usual_leaf_rows(row_bytes: int, least: int = 0) -> int:
    """Rows at which a leaf is large enough: ``LEAF_ROWS`` or ``LEAF_BYTES``, whatever comes first, or ``least``."""
    return max(1, least, min(LEAF_ROWS, -(-LEAF_BYTES // max(1, row_bytes))))


class Loaded:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block
