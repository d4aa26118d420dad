"""How rows are cut into leaves, whatever the format, and sources whose leaves are changed as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from tithe.core.contracts import PartitionedRows, Placement, Source
from tithe.core.data import Array, Block
from tithe.core.seeding import Split
from tithe.rows.paths import DataFile, all_bad

U = TypeVar("U")
Task = Callable[[], Block]

LEAF_ROWS = 262_144
LEAF_BYTES = 2**25  # of X: small enough to hold several, large enough to be worth a task
SAMPLE_ROWS = 65_536


def usual_leaf_rows(row_bytes: int) -> int:
    """Rows at which a leaf is large enough: ``LEAF_ROWS`` or ``LEAF_BYTES``, whichever comes first."""
    return max(1, min(LEAF_ROWS, -(-LEAF_BYTES // max(1, row_bytes))))


def text_bytes(n_rows: int, row_bytes: int) -> int:
    """The most bytes of text that a leaf is made of: numbers are seldom longer than four times their bytes."""
    return 4 * max(LEAF_BYTES, n_rows * row_bytes)


def fair_shares(counts: Sequence[int], size: int, offset: float) -> Array:
    """``size`` things shared out in proportion to ``counts``, rounded fairly: ``offset`` in [0, 1) decides.

    >>> fair_shares([10, 20, 70], 10, 0.5)
    array([1, 2, 7])
    """
    held = np.cumsum(counts)
    shares: Array = np.diff(np.floor(held / held[-1] * size + offset).astype(np.int64), prepend=0)
    return shares


def spread_shares(
    counts: Sequence[int], size: int, n_chosen: int, rng: np.random.Generator
) -> tuple[list[int], list[int], Array]:
    """``n_chosen`` units spread evenly over all, the rows that each has, and the share of ``size`` rows that it gives.

    All units if there are no more.
    """
    chosen = list(range(len(counts)))
    if n_chosen < len(counts):
        chosen = [int(i) for i in (np.arange(n_chosen) + rng.random()) * len(counts) / n_chosen]
    held = [counts[i] for i in chosen]
    return chosen, held, fair_shares(held, min(size, sum(held)), rng.random())


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


def nonempty_sample(drawn: Block, source: Source, files: Sequence[DataFile], size: int) -> Block:
    """Rows drawn for a sample; where all of them were bad and left out, rows of the first leaf that has any."""
    if len(drawn):
        return drawn
    for task in source.tasks():
        leaf = task()
        if len(leaf):
            return leaf.cut(0, size)
    raise all_bad_files(files, source.count())


def check_any_row_good(tasks: Iterator[Task], source: Source, files: Sequence[DataFile]) -> Iterator[Task]:
    """The loaders of all leaves; an error follows if all their rows were bad and left out.

    The last loader that is called raises it, or the end of the loaders, whichever is later: loaders that were given
    out may be called at any time, by any thread.
    """
    n_given, has_ended = 0, False
    n_rows: list[int] = []  # of the leaves that were loaded: a list may be appended to by any thread

    def check() -> None:
        if has_ended and len(n_rows) >= n_given > 0 and not any(n_rows):
            raise all_bad_files(files, source.count())

    def load(task: Task) -> Block:
        block = task()
        n_rows.append(len(block))
        check()
        return block

    for task in tasks:
        n_given += 1
        yield partial(load, task)
    has_ended = True
    check()


def all_bad_files(files: Sequence[DataFile], n_rows: int | None) -> ValueError:
    """The error for files whose rows were all left out because they are bad."""
    return all_bad(f"{files[0].path!r}{' and the other files' * (len(files) > 1)}", n_rows)


class InMemoryTask:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block


Change = Callable[[Block], Block]


class MappedSource(Source):
    """A source with every leaf changed as it is read; ``n_rows`` are left, by default the source's.

    ``change`` keeps the columns and is picklable. Its ``repr``, or the name of a function, says what it does.
    """

    def __init__(self, source: Source, change: Change, *, n_rows: int | None = None) -> None:
        self.source = source
        self.change = change
        self.n_features, self.replayable, self.leaf_rows = source.n_features, source.replayable, source.leaf_rows
        self.n_rows = source.n_rows if n_rows is None else n_rows
        self.row_bytes = source.row_bytes
        self.feature_names, self.n_bytes, self.schema = source.feature_names, source.n_bytes, source.schema
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

    def classes(self) -> Array | None:
        return self.source.classes()


def _changed(task: Callable[[], Block], change: Change) -> Block:
    leaf = task()
    return change(leaf) if len(leaf) else leaf
