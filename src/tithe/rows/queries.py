"""Queries of DuckDB, lazy frames of polars and tables of Iceberg: rows that are computed or read anew in every pass."""

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

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError, NoRowsError
from tithe.rows.columns import Choice, common_fields, resolve_columns
from tithe.rows.frame_tables import frame_table
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.leaves import SAMPLE_ROWS, unless_all_bad, usual_leaf_rows
from tithe.rows.paths import DataFile, identity_of
from tithe.rows.record_batches import BatchCutter, block_of_batches
from tithe.rows.rows import target_classes

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


class _Survey(NamedTuple):
    """What one run of a query tells: its columns, its number of rows, and rows from all over."""

    fields: pa.Schema
    n_rows: int
    sample: pa.Table


class Query:
    """A query that can be run again: a relation of DuckDB, a lazy frame of polars, or a table or scan of Iceberg.

    Parameters
    ----------
    native : duckdb.DuckDBPyRelation, polars.LazyFrame, pyiceberg.table.Table or pyiceberg.table.DataScan
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        self._scan = _iceberg_scan(native)
        self.name = "the lazy frame" if nw.dependencies.is_polars_lazyframe(native) else "the query"
        if self._scan is not None:
            self.name = "the Iceberg table"

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Run it. The batches must be read to the end, or the generator closed, before it is run again."""
        try:
            if nw.dependencies.is_polars_lazyframe(self._native):
                for frame in _parts(self._native):
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


class QuerySource(Source):
    """Rows of a query, which is run for every pass. It must give the same rows in the same order each time.

    Parameters
    ----------
    query : Query
    choice : Choice
    """

    def __init__(self, query: Query, choice: Choice) -> None:
        self._query = query
        survey = query.survey
        self.n_rows = survey.n_rows
        fields = common_fields({query.name: survey.fields}, choice)
        sample = survey.sample.select(fields.names)
        self._columns = resolve_columns(fields, sample.to_batches(), choice)
        self.schema, self.uncertain = self._columns.schema, self._columns.uncertain
        self.is_sampled = self.n_rows > self.schema.n_rows
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)
        about = {**self._columns.about, "rows": _hash(survey.sample)}
        self.identity = identity_of("query", [], about, self.n_rows)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on; the query is run while they are iterated over."""
        tasks = self._loaders(first, self.leaf_rows if leaf_rows is None else leaf_rows)
        if first or not self._columns.leaves_rows_out:
            return tasks
        return unless_all_bad(tasks, self, [DataFile(self._query.name, self._query.name, 0, 0)])

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Callable[[], Block]]:
        for number, (ids, batches) in enumerate(self._cut(leaf_rows, self._columns.read)):
            if number >= first:
                yield partial(block_of_batches, self._columns, batches, ids, self._query.name)

    def _cut(self, n_rows: int, names: Sequence[str]) -> Iterator[tuple[Array, list[pa.RecordBatch]]]:
        """All rows in lists of batches with ``n_rows`` rows, and their ids."""
        passed = 0
        with closing(self._query.batches()) as stream:
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

    def classes(self) -> Array:
        """All values of the target, in ascending order, from a run of the query."""
        return target_classes(self._columns, lambda names: (batch for _, batch in self.numbered_batches(names)))

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of all, from a run of the query."""
        n_rows = self.n_rows or 0
        size = min(n_rows, SAMPLE_ROWS if size is None else size)
        wanted = np.sort(rng.choice(n_rows, size, replace=False, shuffle=False))
        batches = []
        for ids, batch in self.numbered_batches(self._columns.read):
            start, stop = np.searchsorted(wanted, (ids[0], ids[-1] + 1)) if len(ids) else (0, 0)
            if start < stop:
                batches.append(batch.take(pa.array(wanted[start:stop] - ids[0])))
        return block_of_batches(self._columns, batches, wanted, self._query.name)


def _parts(frame: Any) -> Iterable[Any]:
    """The rows of a lazy frame of polars as frames, not all of them in memory where polars can do that."""
    return frame.collect_batches(maintain_order=True) if hasattr(frame, "collect_batches") else [frame.collect()]


def _hash(table: pa.Table) -> str:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(buffer.getvalue()).hexdigest()
