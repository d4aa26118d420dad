"""Iterables of batches as a sequence of leaves of one size, whatever the size of the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.errors import warn_caller
from tithe.core.state_checks import Integer, Storable, expect
from tithe.rows.arrays import as_block, check_weights, column_names, is_frame, plain_weights, with_columns
from tithe.rows.leaves import InMemoryTask

_MAX_ROW_ID = 2**62  # sums with it must not overflow


@dataclass(frozen=True, kw_only=True)
class LeafBuffer(Storable):
    """The rows of a leaf that is not full yet. A buffer is a value: `add` returns another one.

    Leaf number j holds the rows with ids j * leaf_size .. (j + 1) * leaf_size - 1, so neither the size
    of the batches nor rows that are missing have any influence on where another row belongs. Ids
    count on from the last one, or are given, ascending. Rows of weight zero are left out.
    """

    leaf_size: Annotated[int, Integer(least=1)]
    next_row: int = 0  # its id
    parts: tuple[Block, ...] = ()  # the rows of the open leaf, in order
    like: Block | None = None  # no rows, but the columns and types of all rows so far
    columns: tuple[str, ...] | None = None  # of the first frame; those of later ones are brought into their order

    def check_relations(self) -> None:
        last = -1
        for part in self.parts:
            expect(self.like is not None and is_like(part, self.like), "rows that wait are unlike those before")
            expect(len(part) > 0 and part.indices is not None, "rows that wait have no ids")
            ids = part.row_ids()
            expect(ids[0] > last and (np.diff(ids) > 0).all(), "ids of rows that wait do not ascend")
            last = int(ids[-1])
        if self.parts:
            leaves = {int(part.row_ids()[end]) // self.leaf_size for part in self.parts for end in (0, -1)}
            expect(last < self.next_row and len(leaves) == 1, "rows that wait belong to no leaf that is open")

    @property
    def number(self) -> int:
        """The number of the open leaf."""
        return int(self.parts[-1].row_ids()[-1] if self.parts else self.next_row) // self.leaf_size

    def rest(self) -> Block | None:
        """The rows of the open leaf."""
        return _joined(self.parts) if self.parts else None

    def without(self, row_ids: Array) -> LeafBuffer:
        """The buffer without some rows."""
        parts = (part.take(np.flatnonzero(~np.isin(part.row_ids(), row_ids))) for part in self.parts)
        return replace(self, parts=tuple(part for part in parts if len(part)))

    def add(
        self, X: Any, y: Any = None, sample_weight: Any = None, row_ids: Any = None, *, what: str
    ) -> tuple[LeafBuffer, Iterator[tuple[int, Block]]]:
        """Check rows; the buffer that holds those of the open leaf, and the leaves that are full, with their numbers.

        Leaves are cut when they are asked for, maybe as views of the rows. ``what`` names the rows in messages.
        """
        if hasattr(X, "shape") and X.shape[0] == 0:
            return self, iter(())
        columns = self.columns
        if columns is not None and not is_frame(X):
            warn_caller(
                f"{what}: rows without names after those with the columns {', '.join(columns)}. They are taken in that "
                "order. Give a frame, whose columns are found by their names."
            )
        if is_frame(X):
            columns = columns or column_names(X)
            try:
                X = with_columns(X, columns)
            except ValueError as error:
                raise ValueError(f"{what}: {error}") from error
        block, like = self._checked(X, y, sample_weight, row_ids, what)
        after = replace(self, next_row=int(block.row_ids()[-1]) + 1, like=like, columns=columns)
        if block.sample_weight is not None and not block.sample_weight.all():
            block = block.take(np.flatnonzero(block.sample_weight))
        if len(block) == 0:
            return after, iter(())
        numbers = block.row_ids() // self.leaf_size
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(block)]
        if after.next_row % self.leaf_size == 0:
            return replace(after, parts=()), self._full(block, edges)
        joined = len(edges) == 2 and bool(self.parts) and self.number == numbers[0]
        parts = [*(self.parts if joined else ()), owned(block.cut(edges[-2], edges[-1]))]
        while len(parts) > 1 and len(parts[-1]) >= len(parts[-2]):  # single rows must not pile up
            parts[-2:] = [concat(parts[-2:])]
        return replace(after, parts=tuple(parts)), iter(()) if joined else self._full(block, edges[:-1])

    def _full(self, block: Block, edges: list[int]) -> Iterator[tuple[int, Block]]:
        """The waiting rows and those of the block up to the last edge, as leaves."""
        waiting = self.parts
        for start, stop in pairwise(edges):
            part = block.cut(start, stop)
            number = int(part.row_ids()[0]) // self.leaf_size
            if waiting and self.number != number:
                yield self.number, _joined(waiting)
                waiting = ()
            yield number, _joined((*waiting, part))
            waiting = ()
        if waiting:
            yield self.number, _joined(waiting)

    def _checked(self, X: Any, y: Any, weight: Any, row_ids: Any, what: str) -> tuple[Block, Block]:
        """The rows in the types of those before them, and an empty block of these types."""
        try:
            block = as_block(X, y)
            weight = check_weights(weight, len(block))
            ids = self._ids(row_ids, len(block))
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from error
        like = self.like
        if like is None:
            like = Block(X=block.X[:0].copy(), y=None if block.y is None else block.y[:0].copy())
        unlike = difference(block, like)
        if unlike:
            raise ValueError(f"{what} {unlike}.")
        return Block(X=block.X.astype(like.X.dtype, copy=False), y=block.y, sample_weight=weight, indices=ids), like

    def _ids(self, row_ids: Any, n_rows: int) -> Array:
        if row_ids is None:
            return np.arange(self.next_row, self.next_row + n_rows, dtype=np.int64)
        ids = np.asarray(row_ids)
        if ids.shape != (n_rows,) or ids.dtype.kind not in "iu":
            raise ValueError(f"row_ids must be {n_rows} whole numbers, one a row.")
        ids = ids.astype(np.int64)
        if ids[0] < self.next_row or (np.diff(ids) <= 0).any() or ids[-1] > _MAX_ROW_ID:
            raise ValueError(f"row_ids must ascend, and go on from {self.next_row} to {_MAX_ROW_ID} at the most.")
        return ids


def owned(block: Block) -> Block:
    """The same rows in memory of their own: whoever brought them may use theirs again."""
    return Block(
        X=block.X.copy(),
        y=None if block.y is None else block.y.copy(),
        sample_weight=None if block.sample_weight is None else block.sample_weight.copy(),
        indices=None if block.indices is None else block.indices.copy(),
    )


def _joined(parts: Sequence[Block]) -> Block:
    leaf = concat(parts)
    return Block(X=leaf.X, y=leaf.y, sample_weight=plain_weights(leaf.sample_weight), indices=leaf.indices)


class BatchSource(Source):
    """Batches in order, regrouped into leaves: arrays, frames, ``(X, y)`` or ``(X, y, sample_weight)``; read once."""

    replayable = False

    def __init__(self, batches: Iterable[Any], *, leaf_size: int) -> None:
        self._rows = LeafBuffer(leaf_size=leaf_size)
        self._leaves = self._read(batches)
        self._first = next(self._leaves, None)
        if self._first is None:
            raise ValueError("The iterable is empty: it gave no batch with a row of positive weight in it.")
        self.n_features = self._first[1].n_features

    def _read(self, batches: Iterable[Any]) -> Iterator[tuple[int, Block]]:
        for number, batch in enumerate(batches):
            self._rows, leaves = self._rows.add(*_parts(batch), what=f"Batch {number}")
            for leaf, block in leaves:
                yield leaf, owned(block)
        number, waiting = self._rows.number, self._rows.rest()
        if waiting is not None:
            yield number, waiting

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        expected = first
        leaf = self._first
        while leaf is not None:
            number, block = leaf
            for _ in range(expected, number):  # all rows of these weigh nothing
                yield InMemoryTask(block.cut(0, 0))
            if number >= first:
                yield InMemoryTask(block)
                expected = number + 1
            leaf = next(self._leaves, None)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """Rows of the first leaf (None: all of them): what comes later cannot be seen yet."""
        assert self._first is not None
        first = self._first[1]
        if size is None or len(first) <= size:
            return first
        return first.take(np.sort(rng.choice(len(first), size, replace=False)))


def _parts(batch: Any) -> tuple[Any, Array | None, Array | None]:
    if isinstance(batch, tuple):
        if not 1 <= len(batch) <= 3:
            raise ValueError(f"A batch is X, (X, y) or (X, y, sample_weight), got a tuple of {len(batch)}.")
        X, y, weight = (*batch, None, None)[:3]
        return X, y, weight
    return batch, None, None


def is_like(block: Block, like: Block) -> bool:
    """Whether rows that were stored have columns, types and labels as those of the same stream."""
    return block.X.dtype == like.X.dtype and difference(block, like) is None


def difference(block: Block, like: Block) -> str | None:
    """How a batch differs from those before it in a way that cannot be mended without losing something."""
    if block.n_features != like.n_features:
        return f"has {block.n_features} columns, the batches before it had {like.n_features}"
    if sparse.issparse(block.X) != sparse.issparse(like.X):
        return "is sparse where the batches before it were dense, or the other way round"
    if not np.can_cast(block.X.dtype, like.X.dtype, casting="safe"):
        return f"is {block.X.dtype}, which does not fit into the {like.X.dtype} of the batches before it"
    if (block.y is None) != (like.y is None):
        return f"has {'no y' if block.y is None else 'y'}, unlike the batches before it"
    if block.y is not None and like.y is not None and (block.y.dtype.kind in "OUS") != (like.y.dtype.kind in "OUS"):
        return f"has a y of {block.y.dtype}, the batches before it of {like.y.dtype}"
    return None
