"""Dask arrays and frames as sources of rows, in partitions that a cluster holds or computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.contracts import PlacedGroup, PlacedPart, Placement, Source
from tithe.core.data import Array, Block, concat, rows_of
from tithe.core.labels import distinct_labels
from tithe.rows.arrays import as_matrix, is_dask_array, is_dask_collection, is_dask_frame, plain_weights
from tithe.rows.blocks import BlockBuilder, bad_rows, row_of, target_classes, what_is_wrong
from tithe.rows.columns import Columns, ColumnSelection, common_fields, kind_of, resolve_columns
from tithe.rows.learn import Sums, ValueCounts, feature_sums, learn_from_all_rows, value_counts
from tithe.rows.leaves import LEAF_ROWS, SAMPLE_ROWS, fair_shares, usual_leaf_rows
from tithe.rows.schema import TableSchema, frame_table


class PartitionRows(ABC):
    """Makes blocks of the values of a partition, X, and y and the weights if any. It travels to the workers."""

    n_features: int
    row_bytes: int
    feature_names: Sequence[str] | None
    schema: TableSchema | None

    @abstractmethod
    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        """The rows of partition ``number`` at ``places`` in it, which ``values`` hold, with their row ids."""

    @abstractmethod
    def classes(self, values: Sequence[Any]) -> Array:
        """The distinct values of the target in a partition, in ascending order."""


class MatrixRows(PartitionRows):
    """Rows of numbers, float32 or float64, that are taken as they are. ``columns`` are those of a frame."""

    def __init__(self, X: Any, *, has_y: bool, has_weight: bool) -> None:
        self.dtype, self.has_y, self.has_weight, self.schema = _dtype_of(X), has_y, has_weight, None
        self.columns = tuple(X.columns) if is_dask_frame(X) else None
        named = self.columns is not None and all(isinstance(name, str) for name in self.columns)
        self.feature_names = list(self.columns or ()) if named else None
        self.n_features = X.shape[1] if self.columns is None else len(self.columns)
        self.row_bytes = self.n_features * self.dtype.itemsize

    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        X = self._matrix(number, values[0])
        y = np.asarray(values[1]) if self.has_y else None
        weight = np.asarray(values[-1], np.float64) if self.has_weight else None
        if len(ids) == 0:
            return Block(X=X, y=y, sample_weight=None, indices=ids)
        missing_y = None if y is None or y.dtype.kind != "f" else np.isnan(y)
        bad = bad_rows(X, missing_y, weight, bool(np.isfinite(X.sum(dtype=np.float64))))
        if bad is not None:
            row = int(np.argmax(bad))
            wrong = what_is_wrong(row, X, missing_y, self._name_of)
            raise ValueError(
                f"{row_of(f'partition {number}', int(places[row]))}: {wrong}. Mend it or leave it out; "
                "open_dataset(frame, ...) fills gaps in the columns of a frame."
            )
        return Block(X=X, y=y, sample_weight=plain_weights(weight), indices=ids)

    def _matrix(self, number: int, values: Any) -> Any:
        try:
            X = as_matrix(values if self.columns is None else values[list(self.columns)])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"Partition {number}: {error}") from error
        if X.shape[1] != self.n_features:
            raise ValueError(f"Partition {number} has {X.shape[1]} columns, and there should be {self.n_features}.")
        if not np.can_cast(X.dtype, self.dtype, casting="safe"):
            raise ValueError(
                f"Partition {number} holds {X.dtype}, which does not fit into the {self.dtype} that the collection "
                f"says it holds. Convert it: X.astype({str(X.dtype)!r})."
            )
        return X.astype(self.dtype, copy=False)

    def _name_of(self, feature: int) -> str:
        return repr(feature if self.columns is None else self.columns[feature])

    def classes(self, values: Sequence[Any]) -> Array:
        if not self.has_y:
            raise ValueError("There is no target: give y, or name its column, open_dataset(frame, target=...).")
        y = np.asarray(values[1])
        return distinct_labels(y) if len(y) else y


class TableRows(PartitionRows):
    """Rows of a frame whose columns become features by a schema.

    ``fields`` are the columns that are read, with the types that the partitions agree on.
    """

    def __init__(self, columns: Columns, fields: pa.Schema) -> None:
        self.columns, self.schema = columns, columns.schema
        self.fields = pa.schema([fields.field(name) for name in columns.read])
        self.n_features, self.feature_names = columns.schema.n_features, columns.schema.feature_names
        self.row_bytes = columns.schema.row_bytes

    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        builder = BlockBuilder(self.columns, len(ids))
        for batch in self.table(number, values[0]).to_batches():
            try:
                builder.add(batch)
            except (ValueError, pa.ArrowException) as error:
                raise ValueError(f"Partition {number}: {error}") from error
        return builder.block(ids, partial(_locate, number, ids, places))

    def table(self, number: int, frame: Any) -> Any:
        """The columns that are read, with the types that all partitions have."""
        table = frame_table(frame)
        missing = [name for name in self.fields.names if name not in table.column_names]
        if missing:
            shown = ", ".join(table.column_names[:30])
            raise ValueError(f"Partition {number} has no column {missing[0]!r}. Its columns are {shown}.")
        arrays = []
        for field in self.fields:
            values = table.column(field.name)
            if values.type != field.type:
                values = _converted(values, field, number)
            arrays.append(values)
        return pa.table(arrays, schema=self.fields).unify_dictionaries()

    def classes(self, values: Sequence[Any]) -> Array:
        return target_classes(self.columns, lambda names: frame_table(values[0]).select(names).to_batches())


def _locate(number: int, ids: Array, places: Array, row_id: int) -> str:
    return row_of(f"partition {number}", int(places[np.searchsorted(ids, row_id)]))


def _converted(values: Any, field: pa.Field, number: int) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.combine_chunks()
        values = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values.cast(field.type)
    kind, expected = kind_of(values.type), kind_of(field.type)
    if kind not in (expected, "nothing"):
        raise ValueError(
            f"Partition {number}: column {field.name!r} is {values.type}, and {field.type} in other partitions. Give "
            f"it one type: frame.astype({{{field.name!r}: ...}})."
        )
    return values.cast(field.type, safe=False)


SAMPLE_PARTS = 64  # partitions that a sample comes from
_PLACED_LEAF_ROWS = LEAF_ROWS // 4  # small beside a partition: only leaves at its ends need rows of two partitions

Part = tuple[int, int, tuple[Any, ...]]  # number of a partition, first row in it, values from there on


class DaskSource(Source):
    """Rows of a Dask array or frame. Row ids are positions.

    The leaves of an array are cut at multiples of their size, whatever its chunks (``by_rows``); those of a frame are
    its partitions. ``parts`` are tuples of Delayed: X, and y and the weights where there are any. ``explain`` returns
    an error that says more than one that a partition raised, or the same.
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
        chosen = values if whole else [rows_of(value, slice(start - offset, stop - offset)) for value in values]
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
    return rows.block(number, [rows_of(value, places) for value in values], ids, places)


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


def dask_source(X: Any, y: Any = None, sample_weight: Any = None, *, schema: TableSchema | None = None) -> DaskSource:
    """A Dask array or frame with y and weights as the rows of a learner.

    Numbers are taken as they are. A frame with text or dates becomes rows by a schema: the given one, or one that is
    learned, as by `open_dataset`.
    """
    _check_extra(X, y, "y")
    _check_extra(X, sample_weight, "sample_weight")
    if is_dask_frame(X) and (schema is not None or not _all_numbers(X)):
        extra = {name: value for name, value in (("target", y), ("weight", sample_weight)) if value is not None}
        if any(str(column) in _EXTRA_COLUMNS for column in X.columns):
            raise ValueError(f"Rename the column {next(c for c in X.columns if str(c) in _EXTRA_COLUMNS)!r}.")
        _lengths(X, *extra.values())  # other partitions are refused
        frame = X.assign(**{_EXTRA[name]: value for name, value in extra.items()})
        target, weight = (_EXTRA[name] if name in extra else None for name in _EXTRA)
        return open_collection(frame, ColumnSelection(schema=schema, target=target, weight=weight))
    extra_values = [value for value in (y, sample_weight) if value is not None]
    rows = MatrixRows(X, has_y=y is not None, has_weight=sample_weight is not None)
    return _source(X, extra_values, rows, _lengths(X, *extra_values))


_EXTRA = {"target": "__tithe_target__", "weight": "__tithe_weight__"}
_EXTRA_COLUMNS = tuple(_EXTRA.values())


def open_collection(X: Any, choice: ColumnSelection) -> DaskSource:
    """The rows of a Dask frame by the options of `open_dataset`, or those of an array of numbers."""
    if not is_dask_frame(X):
        if choice != ColumnSelection():
            raise ValueError("A Dask array has no named columns: give y and weights to fit() or build_coreset().")
        return dask_source(X)
    used = X[_names_read(X, choice)]  # what is not used is not read
    lengths = _lengths(used)
    if not lengths.sum():
        raise ValueError("The frame has no rows.")
    choice = replace(choice, row_id=None)  # it is not read
    sample = _sample(used, lengths)
    fields = common_fields({f"partition {number}": table.schema for number, table in sample}, choice)
    batches = [batch for _, table in sample for batch in table.select(fields.names).to_batches()]
    columns = resolve_columns(fields, batches, choice)
    source = _source(used, [], TableRows(columns, fields), lengths)
    if choice.schema is not None or lengths.sum() <= columns.schema.n_rows:
        return source
    schema = learn_from_all_rows(  # by sums and counts that the partitions are reduced to in place
        columns.schema,
        choice.options,
        columns.uncertain,
        lambda features: source.on_partitions(_sums_of, source.rows, features),
        lambda names, na: source.on_partitions(_counts_of, list(names), na),
    )
    return _source(used, [], TableRows(replace(columns, schema=schema), fields), lengths)


def _names_read(X: Any, choice: ColumnSelection) -> list[Any]:
    """The columns of a frame that may be read, in its order; those that were asked for must be there."""
    asked = choice.columns if choice.schema is None else choice.schema.reads
    present = [str(name) for name in X.columns]
    for name in (*(asked or ()), *choice.special, *choice.exclude):
        if name not in present:
            raise ValueError(f"The frame has no column {name!r}. Its columns are {', '.join(present[:30])}.")
    left_out = {*choice.exclude, choice.row_id}
    wanted = present if asked is None else [*asked, *choice.special]
    return [name for name in X.columns if str(name) in wanted and str(name) not in left_out]


def _sample(X: Any, lengths: Array) -> list[tuple[int, Any]]:
    """Rows from all over a frame as Arrow tables, with the numbers of their partitions."""
    import dask

    numbers = np.flatnonzero(lengths)
    if len(numbers) > SAMPLE_PARTS:
        numbers = numbers[np.arange(SAMPLE_PARTS) * len(numbers) // SAMPLE_PARTS]
    shares = fair_shares(lengths[numbers].tolist(), min(SAMPLE_ROWS, int(lengths[numbers].sum())), 0.5)
    parts, lazy = _partitions(X), dask.delayed(_table_at, pure=False)
    chosen = [
        (int(i), lazy(parts[i], np.arange(share) * lengths[i] // share))
        for i, share in zip(numbers, shares, strict=True)
        if share
    ]
    tables = _computed(X, [table for _, table in chosen])
    return [(number, table) for (number, _), table in zip(chosen, tables, strict=True)]


def _table_at(frame: Any, places: Array) -> Any:
    return frame_table(rows_of(frame, places))


def _sums_of(values: Sequence[Any], rows: PartitionRows, features: Array) -> Sums:
    places = np.arange(len(values[0]))
    return feature_sums(rows.block(0, values, places, places).X, features)


def _counts_of(values: Sequence[Any], names: list[str], na: Sequence[str]) -> ValueCounts:
    return value_counts(frame_table(values[0]), names, na)


# -- partitions --------------------------------------------------------------------------------


def _source(X: Any, extra: Sequence[Any], rows: PartitionRows, lengths: Array) -> DaskSource:
    from dask.base import tokenize

    return DaskSource(
        rows,
        list(zip(*map(_partitions, (X, *extra)), strict=True)),
        lengths,
        by_rows=is_dask_array(X),
        identity=f"dask {tokenize(X, *extra)} {rows.n_features}",
        explain=partial(_explained, X),
    )


def _partitions(X: Any) -> list[Any]:
    """The partitions as `Delayed`, which share a graph."""
    import dask

    # else Dask joins small files, more of them the fewer columns are read: X and y would have other partitions
    with dask.config.set({"optimization.tune.active": False}):
        parts: list[Any] = np.ravel(X.to_delayed()).tolist()
        if parts and parts[0].key not in parts[0].dask:  # Dask optimises arrays that are persisted away
            parts = np.ravel(X.to_delayed(optimize_graph=False)).tolist()
    return parts


def _lengths(X: Any, *extra: Any) -> Array:
    """The rows of each partition. They are counted where they are not known; y and weights must have as many."""
    known = [_known_lengths(value) for value in (X, *extra)]
    lengths = [length for length in known if length is not None]
    if len(lengths) < len(known):
        lengths = list(_computed(X, [_lazy_lengths(value) for value in (X, *extra)]))
    if any(list(length) != list(lengths[0]) for length in lengths[1:]):
        raise ValueError(_other_partitions(X, "y or sample_weight"))
    return np.asarray(lengths[0], np.int64)


def _known_lengths(X: Any) -> tuple[int, ...] | None:
    if is_dask_array(X) and not np.isnan(X.chunks[0]).any():
        return tuple(X.chunks[0])
    return None


def _lazy_lengths(X: Any) -> Any:
    import dask

    narrow = X[[X.columns[0]]] if is_dask_frame(X) and X.ndim == 2 else X  # one column tells as much as all
    return [dask.delayed(len)(part) for part in _partitions(narrow)]


def _check_extra(X: Any, values: Any, name: str) -> None:
    """Refuse columns of X in several chunks, and y or weights that are no collection of the same partitions."""
    if is_dask_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {X.ndim}.")
        if len(X.chunks[1]) > 1:
            raise ValueError(
                f"The columns of X are in {len(X.chunks[1])} chunks, and a row must be in one: X.rechunk({{1: -1}})."
            )
    if values is None:
        return
    if not is_dask_collection(values) or is_dask_array(values) != is_dask_array(X) or values.ndim != 1:
        kind = "Dask array of one dimension" if is_dask_array(X) else "series of a Dask frame"
        raise ValueError(
            f"{name} must be a {kind} with the same partitions as X, got {type(values).__name__}: {_call_for(X, name)}."
        )
    n_parts = X.numblocks[0] if is_dask_array(X) else X.npartitions
    n_own = values.numblocks[0] if is_dask_array(X) else values.npartitions
    known, own = _known_lengths(X), _known_lengths(values) if is_dask_array(X) else None
    if n_parts != n_own or (known is not None and own is not None and known != own):
        raise ValueError(_other_partitions(X, name))


def _other_partitions(X: Any, name: str) -> str:
    return f"{name} has other partitions than X: {_call_for(X, name)}."


def _call_for(X: Any, name: str) -> str:
    if is_dask_array(X):
        return f"make them equal by {name}.rechunk(X.chunks[0]), or by da.from_array(..., chunks=X.chunks[0])"
    return (
        "take both from one frame, open_dataset(frame, target=..., weight=...), or make them equal by "
        f"{name}.repartition(divisions=X.divisions)"
    )


def _all_numbers(X: Any) -> bool:
    return all(getattr(dtype, "kind", "O") in "biuf" for dtype in X.dtypes)


def _dtype_of(X: Any) -> Any:
    """float32 where all columns are, else float64."""
    dtypes = [X.dtype] if is_dask_array(X) else list(X.dtypes)
    is_single = all(np.dtype(getattr(dtype, "numpy_dtype", dtype)) == np.float32 for dtype in dtypes)
    return np.dtype(np.float32 if is_single else np.float64)


def _computed(X: Any, lazy: Sequence[Any]) -> Sequence[Any]:
    import dask

    try:
        values: Sequence[Any] = dask.compute(*lazy)
    except Exception as error:
        raise _explained(X, error) from error
    return values


def _explained(X: Any, error: Exception) -> Exception:
    """For a column that some partition lacks: an error that names the partition. Dask names only the column."""
    if not isinstance(error, KeyError) or not is_dask_frame(X):
        return error
    import dask
    from dask.dataframe import DataFrame

    # partitions as they were before columns were chosen
    whole = DataFrame(X.expr.frame) if type(X.expr).__name__ == "Projection" else X
    names_of = dask.delayed(_names_of)
    for number, names in enumerate(dask.compute(*(names_of(part) for part in _partitions(whole)))):
        missing = [str(name) for name in X.columns if str(name) not in names]
        if missing:
            return ValueError(
                f"Partition {number} has no column {missing[0]!r}. Its columns are {', '.join(names[:30])}."
            )
    return error


def _names_of(frame: Any) -> list[str]:
    return [str(name) for name in frame.columns]
