"""A source whose leaves are changed as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from tithe.core.data import Block

Change = Callable[[Block], Block]


class MappedSource:
    """A source with every leaf changed as it is read.

    Parameters
    ----------
    source : Source
    change : callable
        Block to block. Picklable, so that leaves can be read elsewhere; its ``repr`` says what it does.
    n_rows : int or None
        Rows that are left; by default the source's. Where it is given, a reduction of these rows is one of
        several, and its state is not kept where that of the source would be.
    """

    def __init__(self, source: Any, change: Change, *, n_rows: int | None = None) -> None:
        self.source = source
        self.change = change
        self.n_rows = source.n_rows if n_rows is None else n_rows
        self.checkpoint = getattr(source, "checkpoint", None) if n_rows is None else None

    @property
    def n_features(self) -> int:
        return int(self.source.n_features)

    @property
    def replayable(self) -> bool:
        return bool(self.source.replayable)

    @property
    def resume(self) -> bool:
        return bool(self.source.resume)

    @property
    def every(self) -> float:
        return float(self.source.every)

    @property
    def identity(self) -> str:
        """What must be the same for a reduction to go on: the rows, and what is done to them."""
        change = getattr(self.change, "__qualname__", None) or repr(self.change)  # a function has no lasting repr
        return f"{getattr(self.source, 'identity', '?')} {change}"

    @property
    def leaf_rows(self) -> int:
        return int(getattr(self.source, "leaf_rows", 0))

    def with_leaf_rows(self, least: int) -> MappedSource:
        """The same with larger leaves, if the source can cut them anew."""
        other = copy(self)
        if callable(getattr(self.source, "with_leaf_rows", None)):
            other.source = self.source.with_leaf_rows(least)
        return other

    def tasks(self, first: int = 0) -> Iterator[Callable[[], Block]]:
        for task in self.source.tasks(first):
            yield partial(_changed, task, self.change)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return self.change(self.source.sample(size, rng=rng))


def _changed(task: Callable[[], Block], change: Change) -> Block:
    leaf = task()
    return change(leaf) if len(leaf) else leaf
