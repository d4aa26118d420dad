"""A source whose leaves are changed as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from types import FunctionType
from typing import Any

import numpy as np

from tithe.core.contracts import PartitionedRows, Placement, Source
from tithe.core.data import Array, Block
from tithe.core.seeding import Split

Change = Callable[[Block], Block]


class MappedSource(Source):
    """A source with every leaf changed as it is read.

    Parameters
    ----------
    source : Source
    change : callable
        Block to block, columns kept. Picklable, so that leaves can be read elsewhere. Its ``repr``, or the name of
        a function, says what it does.
    n_rows : int or None
        Rows that are left; by default the source's.
    """

    def __init__(self, source: Source, change: Change, *, n_rows: int | None = None) -> None:
        self.source = source
        self.change = change
        self.n_features, self.replayable, self.leaf_rows = source.n_features, source.replayable, source.leaf_rows
        self.n_rows = source.n_rows if n_rows is None else n_rows
        self.row_bytes = source.row_bytes
        self.best_engine, self.determinism = source.best_engine, source.determinism

    @cached_property
    def identity(self) -> str:
        change = self.change
        return f"{self.source.identity} {change.__qualname__ if isinstance(change, FunctionType) else change!r}"

    def n_leaves(self, leaf_rows: int | None = None) -> int | None:
        return self.source.n_leaves(leaf_rows)

    def placement(self, first: int = 0, leaf_rows: int | None = None) -> Placement | None:
        return self.source.placement(first, leaf_rows)

    def with_parts(self, parts: Sequence[Any]) -> MappedSource:
        with_parts = copy(self)
        with_parts.source = self.source.with_parts(parts)
        return with_parts

    def partitioned(self, leaf_rows: int | None = None) -> PartitionedRows | None:
        rows = self.source.partitioned(leaf_rows)
        return None if rows is None else rows.changed(self.change)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        for task in self.source.tasks(first, leaf_rows):
            yield partial(_changed, task, self.change)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return self.change(self.source.sample(size, rng=rng))


class SplitSource(MappedSource):
    """The rows of a source that a hash of their ids holds out, or the others."""

    def __init__(self, source: Source, split: Split) -> None:
        super().__init__(source, split, n_rows=None if source.n_rows is None else split.count(source.n_rows))
        self.feature_names, self.n_bytes, self.schema = source.feature_names, source.n_bytes, source.schema

    def classes(self) -> Array | None:
        return self.source.classes()


def _changed(task: Callable[[], Block], change: Change) -> Block:
    leaf = task()
    return change(leaf) if len(leaf) else leaf
