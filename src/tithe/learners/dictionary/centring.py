"""Means that are subtracted from rows before they are coded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.kernels.columns import column_means, column_sums

MEANS = ("none", "global", "row")


@dataclass(frozen=True, eq=False)
class Centring:
    """Subtracts ``offset`` (d,) from each row, or the mean of the row if there is no offset."""

    mean: str
    offset: Array | None = None

    def __call__(self, block: Block) -> Block:
        if self.mean == "none":
            return block
        mean = block.X.mean(axis=1, keepdims=True) if self.offset is None else self.offset.astype(block.X.dtype)
        return replace(block, X=block.X - mean, mean=None)


def offset(data: DataPass, mean: str) -> Array | None:
    """The mean row (d,) if ``mean`` is "global", else None. Takes one pass over a source."""
    if mean != "global":
        return None
    rows = data.rows
    if isinstance(rows, Block):
        return column_means(rows)
    if not rows.replayable:
        raise ValueError(
            "center='global' needs the mean of all rows before the first is drawn, and these can be read only once. "
            "Use center='row' or 'none'."
        )
    sums: Array = data.total(lambda leaf: np.append(column_sums(leaf.X, leaf.sample_weight), leaf.total_weight))
    mean_row: Array = sums[:-1] / sums[-1]
    return mean_row
