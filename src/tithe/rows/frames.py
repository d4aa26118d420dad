"""Frames and Arrow tables in memory, and queries, whose rows are computed or read anew in every pass."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, partial
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError, NoRowsError
from tithe.rows.blocks import BatchCutter, BlockBuilder, TableSource, block_of_batches, row_of, rows_at
from tithe.rows.columns import ColumnSelection, common_fields, resolve_columns
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.learn import scaled_features, spread_rows
from tithe.rows.leaves import SAMPLE_ROWS, Task
from tithe.rows.paths import DataFile, identity_of
from tithe.rows.schema import frame_table
from tithe.rows.uses import MEASURED_SCALES

NAME = "the frame"


class FrameSource(TableSource):
    """Rows of a pandas or polars frame, or of an Arrow table."""

    def __init__(self, frame: Any, choice: ColumnSelection) -> None:
        self._table = frame_table(frame)
        self.n_rows = self._table.num_rows
        self.n_bytes = self._table.nbytes
        if not self.n_rows:
            raise ValueError("The frame has no rows.")
        fields = common_fields({NAME: self._table.schema}, choice)
        self._table = self._table.select(fields.names).unify_dictionaries()
        runs = [self._table.slice(first, last - first) for first, last in spread_rows(self.n_rows)]
        sample = [batch for run in runs for batch in run.to_batches()]
        self._set_columns(resolve_columns(self._table.schema, sample, choice), [DataFile(NAME, NAME, 0, 0)])
        if self.is_sampled and choice.schema is None and choice.scale in MEASURED_SCALES:
            self.uncertain = scaled_features(self.schema)  # the rows are in memory: all spreads are measured

    @cached_property
    def identity(self) -> str:
        return identity_of("frame", [], {**self._columns.about, "values": _table_hash(self._table)}, self.n_rows)

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return len(range(0, self._table.num_rows, self.leaf_rows if leaf_rows is None else leaf_rows))

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Task]:
        for start in range(first * leaf_rows, self._table.num_rows, leaf_rows):
            yield partial(self._load, start, leaf_rows)

    def _load(self, first: int, n_rows: int) -> Block:
        part = self._table.slice(first, n_rows)
        return self._block(part, np.arange(first, first + part.num_rows))

    def _block(self, rows: Any, ids: Array) -> Block:
        builder = BlockBuilder(self._columns, len(ids))
        for batch in rows.to_batches():
            builder.add(batch)
        return builder.block(ids, partial(row_of, NAME))

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, as they were given, and their ids."""
        passed = 0
        for batch in self._table.select(list(names)).to_batches():
            yield np.arange(passed, passed + batch.num_rows), batch
            passed += batch.num_rows

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of all."""
        n_rows = self._table.num_rows
        size = min(n_rows, SAMPLE_ROWS if size is None else size)
        ids = np.sort(rng.choice(n_rows, size, replace=False, shuffle=False))
        return self._block(self._table.take(pa.array(ids)), ids)


_RUN_ROWS = 1024  # neighbouring rows that the sample for a schema takes together


def is_query(where: Any) -> bool:
    """Whether this is a query that can be run again."""
    return (
        nw.dependencies.is_duckdb_relation(where)
        or nw.dependencies.is_polars_lazyframe(where)
        or _iceberg_scan(where) is not None
    )


def _iceberg_scan(where: Any) -> Any:
    """The scan of a table of Iceberg as it is now, or the scan itself; None for anything else."""
    iceberg = sys.modules.get("pyiceberg.table")
    if iceberg is None:
        return None
    if isinstance(where, iceberg.Table):
        return where.scan()  # of one snapshot: rows that are appended later are not in it
    return where if isinstance(where, iceberg.DataScan) else None


def _is_dataset(native: Any) -> bool:
    dataset = sys.modules.get("pyarrow.dataset")  # which takes a while to load
    return dataset is not None and isinstance(native, dataset.Dataset)


class _Survey(NamedTuple):
    """What one run of a query tells: its columns, its number of rows, and rows from all over."""

    fields: pa.Schema
    n_rows: int
    sample: pa.Table


class Query:
    """A query that can be run again: see `is_query`; or an Arrow dataset with a filter."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._scan = _iceberg_scan(native)
        self.name = "the lazy frame" if nw.dependencies.is_polars_lazyframe(native) else "the query"
        if self._scan is not None:
            self.name = "the Iceberg table"
        if _is_dataset(native):
            self.name = "the filtered dataset"

    def __getstate__(self) -> dict[str, Any]:
        if _is_dataset(self._native):  # which Arrow would send without its filter
            raise ValueError("An Arrow dataset with a filter cannot be sent to other processes.")
        return self.__dict__

    def batches(self, names: Sequence[str] | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Run it; a dataset only for the columns ``names``.

        The batches must be read to the end, or the generator closed, before it is run again.
        """
        try:
            if _is_dataset(self._native):
                columns = None if names is None else list(names)
                yield from self._native.to_batches(columns=columns, batch_readahead=2, fragment_readahead=1)
                return
            if nw.dependencies.is_polars_lazyframe(self._native):
                for frame in _frames_of(self._native):
                    yield from frame_table(frame).to_batches()
            else:
                with self._reader() as reader:
                    yield from reader
        except pa.ArrowException as error:
            raise ValueError(f"{self.name} failed: {error}") from error

    def _reader(self) -> pa.RecordBatchReader:
        if self._scan is not None:
            return self._scan.to_arrow_batch_reader()
        return pa.RecordBatchReader.from_stream(self._native)

    @cached_property
    def survey(self) -> _Survey:
        """Count the rows and take some of them: every run of rows, or every 2nd, 4th, ... where there are many."""
        runs: list[pa.Table] = []
        step, n_rows, fields = 1, 0, None
        cutter = BatchCutter(self.batches())
        number = 0
        while batches := cutter.take(_RUN_ROWS):
            fields = batches[0].schema
            n_rows += sum(batch.num_rows for batch in batches)
            if number % step == 0:
                runs.append(pa.Table.from_batches(batches))
            number += 1
            if len(runs) * _RUN_ROWS > SCHEMA_ROWS:
                runs, step = runs[::2], 2 * step
        if fields is None:
            raise NoRowsError(f"There are no rows: {self.name} gives none.")
        return _Survey(fields, n_rows, pa.concat_tables(runs).unify_dictionaries())


class QuerySource(TableSource):
    """Rows of a query, which is run for every pass. It must give the same rows in the same order each time."""

    def __init__(self, query: Query, choice: ColumnSelection) -> None:
        self._query = query
        survey = query.survey
        self.n_rows = survey.n_rows
        fields = common_fields({query.name: survey.fields}, choice)
        sample = survey.sample.select(fields.names)
        name = query.name
        self._set_columns(resolve_columns(fields, sample.to_batches(), choice), [DataFile(name, name, 0, 0)])

    @cached_property
    def identity(self) -> str:
        about = {**self._columns.about, "rows": _table_hash(self._query.survey.sample)}
        return identity_of("query", [], about, self.n_rows)

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Callable[[], Block]]:
        for number, (ids, batches) in enumerate(self._cut(leaf_rows, self._columns.read)):
            if number >= first:
                yield partial(block_of_batches, self._columns, batches, ids, self._query.name)

    def _cut(self, n_rows: int, names: Sequence[str]) -> Iterator[tuple[Array, list[pa.RecordBatch]]]:
        """All rows in lists of batches with ``n_rows`` rows, and their ids."""
        passed = 0
        with closing(self._query.batches(names)) as stream:
            cutter = BatchCutter(stream)
            while batches := cutter.take(n_rows):
                n_taken = sum(batch.num_rows for batch in batches)
                yield np.arange(passed, passed + n_taken), [batch.select(list(names)) for batch in batches]
                passed += n_taken
        if passed != self.n_rows:
            raise FileFormatError(
                f"{self._query.name} gave {self.n_rows} rows at first and {passed} in a later run. Save the rows "
                "as Parquet, and open that."
            )

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, as the query gives them, and their ids."""
        for ids, batches in self._cut(self.leaf_rows, names):
            for batch in batches:
                yield ids[: batch.num_rows], batch
                ids = ids[batch.num_rows :]

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of all, from a run of the query."""
        n_rows = self.n_rows or 0
        size = min(n_rows, SAMPLE_ROWS if size is None else size)
        wanted = np.sort(rng.choice(n_rows, size, replace=False, shuffle=False))
        all_rows = (batch for _, batch in self.numbered_batches(self._columns.read))
        batches = list(rows_at(all_rows, wanted))
        return block_of_batches(self._columns, batches, wanted, self._query.name)


def _frames_of(frame: Any) -> Iterable[Any]:
    """The rows of a lazy frame of polars as frames, not all of them in memory where polars can do that."""
    return frame.collect_batches(maintain_order=True) if hasattr(frame, "collect_batches") else [frame.collect()]


def _table_hash(table: pa.Table) -> str:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(buffer.getvalue()).hexdigest()
