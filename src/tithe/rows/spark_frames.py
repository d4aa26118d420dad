"""Spark DataFrames: rows that lie in partitions on a cluster, and are read there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.contracts import PartitionedRows, Source, partition_id
from tithe.core.data import Array, Block
from tithe.core.seeding import rng_for
from tithe.rows.blocks import MAX_CLASSES, BatchCutter, BlockBuilder, target_classes
from tithe.rows.columns import Columns, ColumnSelection, common_fields, kind_of, resolve_columns
from tithe.rows.learn import Sums, ValueCounts, feature_sums, learn_from_all_rows, total_sums, value_counts
from tithe.rows.leaves import SAMPLE_ROWS, spread_shares, usual_leaf_rows
from tithe.rows.paths import identity_of
from tithe.rows.schema import TableSchema

NAME = "the Spark DataFrame"

_SAMPLE_PARTITIONS = 64
_POSITION = "tithe row"  # a column beside those of the rows: the id of each
_COUNTS = "partition long, n_rows long"
_SUMS = "partition long, n_rows long, sums array<double>, squares array<double>, error string"
_SUMS_TYPES = pa.schema(
    [
        ("partition", pa.int64()),
        ("n_rows", pa.int64()),
        ("sums", pa.list_(pa.float64())),
        ("squares", pa.list_(pa.float64())),
        ("error", pa.string()),
    ]
)
_VALUES = "name string, value string, n_rows long"


def open_numbers(frame: Any, y: Any = None, sample_weight: Any = None, schema: Any = None) -> SparkFrameSource:
    """The rows of a DataFrame for a learner: as they are if all columns are numbers, else by a schema.

    ``y`` and ``sample_weight`` are names of columns, ``schema`` is that of an earlier fit.
    """
    for what, name in (("y", y), ("sample_weight", sample_weight)):
        if not (name is None or isinstance(name, str)):
            raise ValueError(f"The {what} of a Spark DataFrame is one of its columns: give {what}='name'.")
    choice = ColumnSelection(target=y, weight=sample_weight, schema=schema)
    if schema is None:
        fields = frame.limit(0).toArrow().schema
        if all(kind_of(field.type) == "number" for field in fields if field.name not in choice.special):
            choice = replace(choice, scale="none", impute="none")
    return SparkFrameSource(frame, choice)


class SparkFrameSource(Source):
    """Rows of a Spark DataFrame. Row ids are positions, partition after partition.

    A leaf is a run of rows of one partition. Results have the same bits as long as the partitions hold the same rows
    in the same order, which Spark promises for files and for what is cached, not for rows that come from a shuffle.
    Opening it counts the rows of each partition and draws a sample, two jobs. The schema is learned as that of files:
    what the sample of 65,536 rows leaves uncertain is measured on all rows, by the executors.

    Engine ``"spark"`` reads the rows where they lie. ``"serial"`` and ``"threads"`` bring them to this process,
    partition by partition, a job each. A DataFrame cannot be sent elsewhere, so other engines refuse it.
    """

    best_engine, determinism = "spark", "partitions"

    def __init__(self, frame: Any, choice: ColumnSelection) -> None:
        fields = common_fields({NAME: frame.limit(0).toArrow().schema}, choice)
        names = [name for name in fields.names if choice.schema is None or name != choice.row_id]
        self._select(frame, names)
        sample = [] if choice.schema is not None else self._neighbours()
        self._columns = resolve_columns(fields, sample, choice)
        if choice.schema is None and self._columns.schema.n_rows < (self.n_rows or 0):
            self._columns = replace(self._columns, schema=self._schema_of_all_rows())
        if set(self._columns.read) != set(names):
            self._select(frame, self._columns.read)
        self.schema = self._columns.schema
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)

    def _select(self, frame: Any, names: Sequence[str]) -> None:
        """Take the columns that are read, and count the rows.

        All jobs have the same plan up to these rows: with other columns Spark may cut other partitions.
        """
        self._frame = frame.select(*map(_quoted, names))
        self._lengths = _lengths(self._frame)
        self._firsts = [0, *accumulate(self._lengths)]
        self.n_rows = self._firsts[-1]
        if not self.n_rows:
            raise ValueError("The Spark DataFrame has no rows.")

    def _schema_of_all_rows(self) -> TableSchema:
        """The schema with what a sample cannot tell: spreads that are uncertain, and all values of categories."""
        columns = self._columns
        options = columns.choice.options
        return learn_from_all_rows(columns.schema, options, columns.uncertain, self._sums_of, self._counts_of)

    def _sums_of(self, features: Array) -> Iterator[Sums]:
        reader = PartitionReader(self._columns, self._lengths, usual_leaf_rows(self._columns.schema.row_bytes))
        sums = self._frame.mapInArrow(_adding_up(reader, features), _SUMS).toArrow().sort_by("partition")
        return map(_read_sums, sums.to_pylist())

    def _counts_of(self, names: Collection[str], na: Sequence[str]) -> Iterator[ValueCounts]:
        values = self._frame.mapInArrow(_counting(list(names), na), _VALUES).groupBy("name", "value")
        for name, value, n_rows in zip(*values.sum("n_rows").toArrow().to_pydict().values(), strict=True):
            yield {name: {value: n_rows}}

    def __getstate__(self) -> dict[str, Any]:
        raise ValueError("A Spark DataFrame cannot be sent to other processes: use engine='spark', or 'serial'.")

    @cached_property
    def identity(self) -> str:
        """Of the partitions and columns. It does not tell whether values have changed."""
        return identity_of("spark", [], {**self._columns.about, "lengths": self._lengths}, self.n_rows)

    def _level(self, leaf_rows: int) -> int:
        """Partition p owns the leaves from number ``p << level`` on."""
        return (-(-max(self._lengths) // leaf_rows) - 1).bit_length()

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return len(self._lengths) << self._level(leaf_rows or self.leaf_rows)

    def partitioned(self, leaf_rows: int | None = None) -> PartitionedRows:
        size = leaf_rows or self.leaf_rows
        reader = PartitionReader(self._columns, self._lengths, size)
        return PartitionedRows(self._frame, self._lengths, self._level(size), reader)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on; a job brings one partition after another to this process."""
        size = leaf_rows or self.leaf_rows
        level = self._level(size)
        for partition in range(first >> level, len(self._lengths)):
            n_rows = self._lengths[partition]
            table = self._rows_at({partition: np.arange(n_rows)} if n_rows else {})
            for number in range(max(first, partition << level), partition + 1 << level):
                yield partial(self._block, table.slice((number - (partition << level)) * size, size))

    def _block(self, rows: Any) -> Block:
        """Rows of `_rows_at`."""
        builder = BlockBuilder(self._columns, rows.num_rows)
        for batch in rows.to_batches():
            builder.add(batch)
        return builder.block(rows.column(_POSITION).to_numpy(), partial(locate, self._firsts))

    def _rows_at(self, positions: Mapping[int, Array]) -> Any:
        """The rows at ascending positions of some partitions, as an Arrow table, with the ids of the rows."""
        if not positions:
            return self._frame.limit(0).toArrow().append_column(_POSITION, pa.array([], pa.int64()))
        from pyspark.sql.functions import spark_partition_id
        from pyspark.sql.types import LongType, StructField, StructType

        # Spark itself passes over the other partitions; none of their rows come to Python
        frame = self._frame.where(spark_partition_id().isin(list(positions)))
        types = StructType([*self._frame.schema.fields, StructField(_POSITION, LongType())])
        chosen = _choosing({p: (self._firsts[p], at) for p, at in positions.items()})
        table = frame.mapInArrow(chosen, types).toArrow().sort_by(_POSITION)
        wanted = sum(map(len, positions.values()))
        if table.num_rows != wanted:
            raise ValueError(other_rows(f"{table.num_rows} of {wanted} rows of the Spark DataFrame were found"))
        return table

    def _neighbours(self) -> list[Any]:
        """Runs of neighbouring rows, one from each of up to 64 partitions: whether a column counts up is seen there."""
        rng = rng_for(0, "schema")
        shares = self._shares(SAMPLE_ROWS, rng)
        starts = {p: int(rng.integers(self._lengths[p] - n + 1)) for p, n in shares.items()}
        rows = self._rows_at({p: np.arange(start, start + shares[p]) for p, start in starts.items()})
        batches: list[Any] = rows.drop_columns(_POSITION).to_batches()
        return batches

    def _shares(self, size: int, rng: np.random.Generator) -> dict[int, int]:
        """The number of rows that each of some partitions gives."""
        filled = [p for p, n_rows in enumerate(self._lengths) if n_rows]
        n_rows = self.n_rows or 0
        wanted = len(filled) if n_rows <= size else max(_SAMPLE_PARTITIONS, -(-size * len(filled) // n_rows))
        chosen, _, shares = spread_shares([self._lengths[p] for p in filled], size, wanted, rng)
        return {filled[i]: int(share) for i, share in zip(chosen, shares, strict=True) if share}

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) from 64 partitions spread evenly over all, more if these hold too few rows."""
        shares = self._shares(SAMPLE_ROWS if size is None else size, rng)
        rows = {p: np.sort(rng.choice(self._lengths[p], n, replace=False, shuffle=False)) for p, n in shares.items()}
        block = self._block(self._rows_at(rows))
        if not len(block):
            raise ValueError("All rows of the Spark DataFrame that were sampled are bad and were skipped.")
        return block

    def classes(self) -> Array:
        """All values of the target, in ascending order."""

        def batches_of(names: list[str]) -> Any:
            values = self._frame.select(*map(_quoted, names)).distinct().limit(MAX_CLASSES + 2)
            return values.toArrow().to_batches()

        return target_classes(self._columns, batches_of)


@dataclass(frozen=True)
class PartitionReader:
    """Makes leaves of the Arrow batches of a partition, on the worker that has them."""

    columns: Columns
    lengths: tuple[int, ...]
    leaf_rows: int

    def __call__(self, partition: int, batches: Iterator[Any]) -> Iterator[Block]:
        n_rows = self.lengths[partition] if partition < len(self.lengths) else 0
        firsts = [0, *accumulate(self.lengths)]
        rows, passed = BatchCutter(batches), 0
        for start in range(0, n_rows, self.leaf_rows):
            size = min(self.leaf_rows, n_rows - start)
            builder = BlockBuilder(self.columns, size)
            for piece in rows.pieces(size):
                builder.add(piece)
                passed += piece.num_rows
            if passed < start + size:
                raise ValueError(other_rows(f"Partition {partition} has {passed} rows instead of the {n_rows} counted"))
            ids = np.arange(firsts[partition] + start, firsts[partition] + passed)
            yield builder.block(ids, partial(locate, firsts))
        if rows.take(1):
            raise ValueError(other_rows(f"Partition {partition} has more rows than the {n_rows} counted"))


def locate(firsts: Sequence[int], row_id: int) -> str:
    """The partition and the number of a row, for messages; ``firsts`` are the ids of the first rows of partitions."""
    partition = bisect_right(firsts, row_id) - 1
    return f"Partition {partition} of {NAME}, row {row_id - firsts[partition]} (the first is row 0)"


def other_rows(what: str) -> str:
    """The message for a DataFrame that gives other rows in another pass."""
    return f"{what}: it gives other rows each time it is read. Write it to files first, or persist() it."


def _quoted(name: str) -> str:
    """The name of a column, which may hold dots."""
    return f"`{name.replace('`', '``')}`"


def _lengths(frame: Any) -> tuple[int, ...]:
    """The number of rows of each partition, in one job."""
    counts = frame.mapInArrow(_count, _COUNTS).toArrow().to_pydict()
    lengths = [0] * (1 + max(counts["partition"], default=-1))
    for partition, n_rows in zip(counts["partition"], counts["n_rows"], strict=True):
        lengths[partition] = n_rows
    return tuple(lengths)


# -- what runs on the executors ----------------------------------------------------------------------------------------


def _count(batches: Iterator[Any]) -> Iterator[Any]:
    n_rows = sum(batch.num_rows for batch in batches)
    if n_rows:
        yield pa.record_batch({"partition": pa.array([partition_id()]), "n_rows": pa.array([n_rows])})


def _adding_up(reader: PartitionReader, features: Array) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Sums of features and of their squares over a partition. A bad row is a result, which is not tried again."""

    def add_up(batches: Iterator[Any]) -> Iterator[Any]:
        (n_rows, sums, squares), message = total_sums((), features), None
        try:
            leaves = reader(partition_id(), batches)
            n_rows, sums, squares = total_sums((feature_sums(leaf.X, features) for leaf in leaves), features)
        except ValueError as error:
            message = str(error)
        for _ in batches:  # Spark ends a worker that leaves some
            pass
        row = {"partition": partition_id(), "n_rows": n_rows, "sums": sums, "squares": squares, "error": message}
        yield pa.RecordBatch.from_pylist([row], _SUMS_TYPES)

    return add_up


def _read_sums(row: Mapping[str, Any]) -> Sums:
    if row["error"] is not None:
        raise ValueError(row["error"])
    return row["n_rows"], np.array(row["sums"]), np.array(row["squares"])


def _counting(names: Sequence[str], na: Sequence[str]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """How often each value of some columns stands in a batch."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            counts = value_counts(batch, names, na)
            rows = [(name, value, n_rows) for name, values in counts.items() for value, n_rows in values.items()]
            if rows:
                name, value, n_rows = (list(column) for column in zip(*rows, strict=True))
                yield pa.record_batch([name, value, pa.array(n_rows, pa.int64())], names=["name", "value", "n_rows"])

    return count


def _choosing(positions: Mapping[int, tuple[int, Array]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Takes rows at ascending positions of a partition; the id of its first row is known.

    All batches are taken: Spark ends a worker that leaves some, and the next one takes seconds to start.
    """

    def choose(batches: Iterator[Any]) -> Iterator[Any]:
        first, wanted = positions.get(partition_id(), (0, np.empty(0, np.int64)))
        passed = 0
        for batch in batches:
            start, stop = np.searchsorted(wanted, (passed, passed + batch.num_rows))
            if start < stop:
                taken = batch.take(pa.array(wanted[start:stop] - passed))
                yield taken.append_column(_POSITION, pa.array(first + wanted[start:stop]))
            passed += batch.num_rows

    return choose
