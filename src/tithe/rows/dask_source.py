"""Rows of Dask collections, in partitions that a cluster holds or computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from tithe.core.contracts import PlacedGroup, PlacedPart, Placement, Source
from tithe.core.data import Array, Block, concat
from tithe.rows.leaves import LEAF_ROWS, SAMPLE_ROWS, fair_shares, usual_leaf_rows
from tithe.rows.partition_rows import PartitionRows, cut, take

SAMPLE_PARTS = 64  # partitions that a sample comes from
_PLACED_LEAF_ROWS = LEAF_ROWS // 4  # small beside a partition: only leaves at its ends need rows of two partitions

Part = tuple[int, int, tuple[Any, ...]]  # number of a partition, first row in it, values from there on


class DaskSource(Source):
    """Rows of a Dask array or frame. Row ids are positions.

    The leaves of an array are cut at multiples of their size, whatever its chunks; those of a frame are its partitions.

    Parameters
    ----------
    rows : PartitionRows
        Makes blocks of the partitions.
    parts : list of tuples of Delayed
        The partitions: X, and y and the weights where there are any.
    lengths : array of int
        Rows of each partition.
    by_rows : bool
        Whether leaves are cut at multiples of their size; else they are the partitions.
    identity : str
    explain : callable
        Returns an error that says more than one that a partition raised, or the same.
    """

    def __init__(
        self,
        rows: PartitionRows,
        parts: Sequence[tuple[Any, ...]],
        lengths: Array,
        *,
        by_rows: bool,
        identity: str,
        explain: Callable[[Exception], Exception],
    ) -> None:
        self.rows, self.identity = rows, identity
        self.n_features, self.feature_names = rows.n_features, rows.feature_names
        self.schema, self.row_bytes = rows.schema, rows.row_bytes
        self._edges = np.append(0, np.cumsum(lengths, dtype=np.int64))
        self.n_rows = int(self._edges[-1])
        self._by_rows = by_rows
        self.determinism = "rows" if by_rows else "partitions"
        self.leaf_rows = min(_PLACED_LEAF_ROWS, usual_leaf_rows(rows.row_bytes)) if by_rows else 0
        self._collection: _Collection | None = _Collection(list(parts), explain)
        self._at_hand: dict[int, tuple[int, tuple[Any, ...]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the workers: not the graph of the collection."""
        return {**self.__dict__, "_collection": None}

    @property
    def best_engine(self) -> str:  # type: ignore[override]
        """ "dask" if there is a client."""
        from distributed import get_client

        try:
            get_client()
        except ValueError:
            return "threads"
        return "dask"

    # -- leaves ----------------------------------------------------------------------------------

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return len(self._starts(leaf_rows)) - 1

    def _starts(self, leaf_rows: int | None) -> Array:
        """The row ids at which leaves begin, and the number of rows."""
        if not self._by_rows:
            return self._edges
        assert self.n_rows is not None
        size = leaf_rows or self.leaf_rows
        return np.append(np.arange(0, self.n_rows, size), self.n_rows)

    def _parts_of(self, first: int, stop: int) -> list[tuple[int, int, int]]:
        """The partitions that hold the rows ``first`` to ``stop``: (number, first row in it, row after the last)."""
        edges = self._edges
        low, high = np.searchsorted(edges, (first, stop - 1), side="right") - 1
        return [
            (i, max(0, first - int(edges[i])), min(stop, int(edges[i + 1])) - int(edges[i]))
            for i in range(int(low), int(high) + 1)
            if edges[i + 1] > edges[i]
        ]

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on. They compute partitions that are not at hand."""
        starts = self._starts(leaf_rows)
        for number in range(first, len(starts) - 1):
            yield partial(self._load, number, int(starts[number]), int(starts[number + 1]))

    def _load(self, leaf: int, first: int, stop: int) -> Block:
        parts = self._parts_of(first, stop) if stop > first else [(leaf, 0, 0)]
        return concat([self._block(number, start, end) for number, start, end in parts])

    def _block(self, number: int, start: int, stop: int) -> Block:
        held = self._at_hand.get(number)
        if held is None:
            if self._collection is None:
                raise RuntimeError("The rows of this source are those of a Dask collection: use engine='dask'.")
            held = 0, self._collection.values(number)
        offset, values = held
        n_rows = self._edges[number + 1] - self._edges[number]
        whole = offset == 0 and (start, stop) == (0, n_rows)
        if whole and len(values[0]) != n_rows:
            raise ValueError(f"Partition {number} has {len(values[0])} rows now and had {n_rows} before.")
        chosen = values if whole else [cut(value, start - offset, stop - offset) for value in values]
        places = np.arange(start, stop)
        return self.rows.block(number, chosen, places + self._edges[number], places)

    # -- leaves on a cluster ---------------------------------------------------------------------

    def placement(self, first: int = 0, leaf_rows: int | None = None) -> Placement | None:
        if self._collection is None:
            return None
        groups = tuple(self._groups(first, self._starts(leaf_rows)))
        return Placement(self._collection.graph(), groups, self._collection.explain)

    def _groups(self, first: int, starts: Array) -> Iterator[PlacedGroup]:
        """The leaves within one partition together; a leaf with rows of several alone."""
        assert self._collection is not None
        keys, edges, leaf, n_leaves = self._collection.keys(), self._edges, first, len(starts) - 1
        while leaf < n_leaves:
            begin, end = int(starts[leaf]), int(starts[leaf + 1])
            if begin == end:
                yield PlacedGroup(leaf, leaf + 1, (PlacedPart(leaf, keys[leaf]),))
                leaf += 1
                continue
            parts = self._parts_of(begin, end)
            stop = leaf + 1
            if len(parts) == 1 and self._by_rows:
                number = parts[0][0]
                stop = int(np.searchsorted(starts, edges[number + 1], side="right")) - 1
                parts = [(number, parts[0][1], int(starts[stop] - edges[number]))]
            yield PlacedGroup(leaf, stop, tuple(self._placed(keys[i], i, start, last) for i, start, last in parts))
            leaf = stop

    def _placed(self, keys: tuple[Any, ...], number: int, start: int, stop: int) -> PlacedPart:
        """A large part of a partition travels whole: it is most likely to be where the task runs."""
        n_rows = int(self._edges[number + 1] - self._edges[number])
        return PlacedPart(number, keys) if 2 * (stop - start) > n_rows else PlacedPart(number, keys, start, stop)

    def with_parts(self, parts: Sequence[Any]) -> DaskSource:
        source = copy(self)
        source._at_hand = {number: (first, tuple(values)) for number, first, values in parts}
        return source

    # -- what is learned before a pass -----------------------------------------------------------

    def on_partitions(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(values, *arguments)`` of every partition that has rows, computed where the partitions are."""
        numbers = np.flatnonzero(np.diff(self._edges)).tolist()
        assert self._collection is not None
        return self._collection.compute(function, [(number, arguments) for number in numbers])

    def classes(self) -> Array | None:
        """All values of the target, in ascending order, from a pass over the partitions."""
        found = self.on_partitions(self.rows.classes)
        return np.unique(np.concatenate(found)) if found else np.empty(0)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) from 64 leaves of all of the data: of each the share that its length gives it.

        The rows are chosen where their partitions are.
        """
        assert self.n_rows is not None
        ids = self._drawn_ids(min(self.n_rows, SAMPLE_ROWS if size is None else size), rng)
        numbers = np.searchsorted(self._edges, ids, side="right") - 1
        assert self._collection is not None
        wanted = []
        for number in np.unique(numbers).tolist():
            own = ids[numbers == number]
            wanted.append((number, (self.rows, number, own, own - self._edges[number])))
        if not wanted:
            return self.rows.block(0, self._collection.values(0), np.empty(0, np.int64), np.empty(0, np.int64))
        return concat(self._collection.compute(_drawn_rows, wanted))

    def _drawn_ids(self, size: int, rng: np.random.Generator) -> Array:
        starts = self._starts(None)
        counts = np.diff(starts)
        leaves = np.flatnonzero(counts)
        enough = max(SAMPLE_PARTS, -(-size * len(leaves) // max(1, int(counts.sum()))))
        if len(leaves) > enough:
            leaves = np.sort(rng.choice(leaves, enough, replace=False))
        if not len(leaves):
            return np.empty(0, np.int64)
        held = counts[leaves]
        shares = fair_shares(held.tolist(), min(size, int(held.sum())), rng.random())
        drawn = [
            starts[leaf] + np.sort(rng.choice(counts[leaf], share, replace=False, shuffle=False))
            for leaf, share in zip(leaves, shares, strict=True)
        ]
        return np.concatenate(drawn)


def _drawn_rows(values: Sequence[Any], rows: PartitionRows, number: int, ids: Array, places: Array) -> Block:
    return rows.block(number, [take(value, places) for value in values], ids, places)


class _Collection:
    """The partitions of a collection, where it is: at the caller, not on a worker."""

    def __init__(self, parts: list[tuple[Any, ...]], explain: Callable[[Exception], Exception]) -> None:
        self._parts, self.explain = parts, explain
        self._lock = Lock()
        self._last: tuple[int, tuple[Any, ...]] | None = None

    def keys(self) -> list[tuple[Any, ...]]:
        return [tuple(value.key for value in part) for part in self._parts]

    def graph(self) -> dict[Any, Any]:
        """The tasks of all partitions: those of one collection share a graph."""
        graphs = {id(value.dask): value.dask for value in self._parts[0]} if self._parts else {}
        return {key: task for graph in graphs.values() for key, task in dict(graph).items()}

    def values(self, number: int) -> tuple[Any, ...]:
        """The values of a partition, computed here. The last are kept: leaves of a partition follow one another."""
        import dask

        with self._lock:
            if self._last is None or self._last[0] != number:
                self._last = number, self._explained(dask.compute, *self._parts[number])
            return self._last[1]

    def compute(self, function: Callable[..., Any], calls: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        """``function(values, *arguments)`` of partitions, all in one computation."""
        import dask

        lazy = dask.delayed(function, pure=False)
        return list(self._explained(dask.compute, *(lazy(list(self._parts[i]), *args) for i, args in calls)))

    def _explained(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise self.explain(error) from error
