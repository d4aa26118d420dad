"""What is taken out of signals before they are coded, for rows at hand and for rows of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.kernels.columns import column_means, column_sums

MEANS = ("none", "global", "per_column")


def offset(rows: Any, mean: str, engine: Any) -> Array | None:
    """What is to be taken out of every row (d,), None for its own mean or nothing. Costs a pass over a source."""
    if mean != "global":
        return None
    if isinstance(rows, Block):
        return column_means(rows)
    if not rows.replayable:
        raise ValueError(
            "mean='global' needs the mean of all rows before the first is drawn, and these can be read only once. "
            "Use mean='per_column' or 'none'."
        )
    every = DataPass(rows, engine)
    sums: Array = every.total(lambda leaf: np.append(column_sums(leaf.X, leaf.sample_weight), leaf.total_weight))
    return sums[:-1] / sums[-1]


def centred(block: Block, mean: str, taken: Array | None) -> Block:
    """The block without its means."""
    if mean == "none":
        return block
    X = block.X - (block.X.mean(axis=1, keepdims=True) if taken is None else taken.astype(block.X.dtype))
    return replace(block, X=X, mean=None)


class CentredSource:
    """The rows of a source without their means."""

    def __init__(self, source: Any, mean: str, taken: Array | None) -> None:
        self._source, self._mean, self._taken = source, mean, taken
        self.n_features, self.n_rows, self.replayable = source.n_features, source.n_rows, source.replayable

    def with_leaf_rows(self, n_rows: int) -> CentredSource:
        """In leaves of that many rows, where the source can cut them."""
        cut = getattr(self._source, "with_leaf_rows", lambda n_rows: self._source)
        return CentredSource(cut(n_rows), self._mean, self._taken)

    def tasks(self, first: int = 0) -> Iterator[Callable[[], Block]]:
        for task in self._source.tasks(first):
            yield partial(_loaded, task, self._mean, self._taken)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return centred(self._source.sample(size, rng=rng), self._mean, self._taken)


def _loaded(task: Callable[[], Block], mean: str, taken: Array | None) -> Block:
    return centred(task(), mean, taken)
