"""Rows that come through a pipe, once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.errors import FileFormatError, NoRowsError
from tithe.rows.blocks import BatchCutter, block_of_batches, row_of
from tithe.rows.columns import Columns, ColumnSelection, Numbered, common_fields, resolve_columns
from tithe.rows.delimited import Probe, csv_rows
from tithe.rows.leaves import InMemoryTask, text_bytes, usual_leaf_rows
from tithe.rows.libsvm import census, read_block, refuse_names
from tithe.rows.paths import all_bad, identity_of
from tithe.rows.schema import TableSchema
from tithe.rows.stores import Limits
from tithe.rows.text import TextLayout, TextReader, TextSpan, find_dialect, read_beginning

NAME = "standard input"

_PROBE_ROWS = 4096  # by which a schema is learned: a leaf has at least that many
_FEWEST_PROBED = 1000  # rows that are waited for where rows come live

Task = Callable[[], Block]


class PipedSource(Source):
    """Rows that can be read once: ``take(n_rows)`` gives a loader of the next rows, at most that many, or None.

    ``about`` says what was opened, for the identity; ``name`` is what messages call it.
    """

    replayable = False

    def __init__(
        self,
        take: Callable[[int], Task | None],
        *,
        feature_names: Sequence[str],
        row_bytes: int,
        about: dict[str, Any],
        schema: TableSchema | None = None,
        name: str = NAME,
    ) -> None:
        self._take = take
        self._name = name
        self.schema = schema
        self.feature_names = feature_names
        self.n_features = len(feature_names)
        self.row_bytes = row_bytes
        self.leaf_rows = max(_PROBE_ROWS, usual_leaf_rows(row_bytes))
        self.identity = identity_of("pipe", [], about, None)
        self._first = self._read(self.leaf_rows)
        if self._first is None:
            raise _no_rows(name)
        while not len(self._first):  # its rows were bad, and nothing can be learned from none
            self._first = self._read(self.leaf_rows)
            if self._first is None:
                raise all_bad(name, None)
        self._n_ahead = self.leaf_rows

    def _read(self, n_rows: int) -> Block | None:
        task = self._take(n_rows)
        return None if task is None else task()

    def _ahead(self, n_rows: int) -> Block:
        """The first rows, at least ``n_rows`` of the input."""
        if self._first is None:
            raise ValueError(f"{_at_start(self._name)} has been read already and cannot be read again.")
        if n_rows > self._n_ahead:
            more_rows = self._read(n_rows - self._n_ahead)
            self._first = self._first if more_rows is None else concat([self._first, more_rows])
            self._n_ahead = n_rows
        return self._first

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Task]:
        """Loaders of the leaves from number ``first`` on; may be called once. Leaves have at least 4,096 rows."""
        leaf_rows = max(_PROBE_ROWS, leaf_rows or self.leaf_rows)
        task: Task | None = InMemoryTask(self._ahead(leaf_rows))
        number, self._first = 0, None
        while task is not None:
            if number >= first:
                yield task
            number, task = number + 1, self._take(leaf_rows)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` of the first rows (None: those of a leaf): what comes later cannot be seen yet."""
        rows = self._ahead(size or 0)
        if size is None or len(rows) <= size:
            return rows
        return rows.take(np.sort(rng.choice(len(rows), size, replace=False)))

    def classes(self) -> Array:
        """Raises ValueError: the classes of a pipe are not known beforehand."""
        raise ValueError(f"The classes of {self._name} are not known before all of it is read: name them all.")


def open_piped(
    stream: Any,
    format: str,
    choice: ColumnSelection,
    n_features: int | None,
    *,
    live: bool = False,
    layout: TextLayout | None = None,
    limits: Limits | None = None,
) -> PipedSource:
    """The rows of a binary stream; of a ``live`` one in whatever pieces they come."""
    if format == "arrow":
        try:
            batches = pa.ipc.open_stream(stream)
            _ = batches.schema.names  # which must be text in UTF-8
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FileFormatError(f"Standard input is not an Arrow IPC stream: {error}") from error
        return open_reader(batches, choice, NAME, live=live)
    read, limits = stream.read1 if live else stream.read, limits or Limits()
    if format == "libsvm":
        return _piped_libsvm(read, choice, n_features, live, limits)
    return _piped_csv(read, choice, live, layout or TextLayout(), limits)


def _locate(row_id: int) -> str:
    return row_of(NAME, row_id)


def _piped_csv(read: Any, choice: ColumnSelection, live: bool, layout: TextLayout, limits: Limits) -> PipedSource:
    n_probed = 1 if choice.schema is not None else _FEWEST_PROBED if live else _PROBE_ROWS
    start = read_beginning(read, NAME, limits, n_rows=n_probed)
    dialect = find_dialect(start, NAME, layout, limits)
    if not dialect.names:
        raise _no_rows(NAME)
    reader = TextReader(read, NAME, limits, at=dialect.begin, ahead=start[dialect.begin :])
    first = reader.take(_PROBE_ROWS, text_bytes(0, 0), live=live)
    if first is None:
        raise _no_rows(NAME)
    if first.n_rows < n_probed:  # also those of a live stream are waited for
        more = reader.take(n_probed - first.n_rows, text_bytes(0, 0))
        if more is not None:
            first = first._replace(data=first.data + more.data, n_rows=first.n_rows + more.n_rows)
    rows = csv_rows({NAME: dialect}, [Probe(dialect, first.data)], choice)
    ahead = [first]

    def take(n_rows: int) -> Task | None:
        span = _next_span(reader, ahead, n_rows, text_bytes(n_rows, rows.columns.schema.row_bytes), live=live)
        if span is None:
            return None
        return partial(rows.load, span, dialect, np.arange(span.first, span.first + span.n_rows), _locate)

    return _piped_table(take, rows.columns, "csv")


def _next_span(reader: TextReader, ahead: list[TextSpan], n_rows: int, n_bytes: int, *, live: bool) -> TextSpan | None:
    """The next rows, those first that were read ahead."""
    if not ahead:
        return reader.take(n_rows, n_bytes, live=live)
    span = ahead.pop()
    room = n_bytes - len(span.data)
    more = None if live or room <= 0 else reader.take(n_rows - span.n_rows, room)
    return span if more is None else span._replace(data=span.data + more.data, n_rows=span.n_rows + more.n_rows)


def open_reader(reader: pa.RecordBatchReader, choice: ColumnSelection, name: str, *, live: bool = False) -> PipedSource:
    """The rows of a stream of record batches, which can be read once; ``name`` is what messages call it."""
    schema = reader.schema
    fields = common_fields({name: schema}, choice)
    empty = next((column for column in fields.names if pa.types.is_null(schema.field(column).type)), None)
    if empty is not None:  # such a stream says how many rows it has, however many, and holds none of them
        raise ValueError(f"Column {empty!r} of {name} has no type and no values. Leave it out of columns.")
    cutter = BatchCutter(_unbroken(reader, name))
    n_probed = 0 if choice.schema is not None else _FEWEST_PROBED if live else _PROBE_ROWS
    probes = cutter.look(n_probed)
    if n_probed and not any(batch.num_rows for batch in probes):
        raise _no_rows(name)
    columns = resolve_columns(fields, [_validated(batch, name) for batch in probes], choice)
    passed = 0

    def take(n_rows: int) -> Task | None:
        nonlocal passed
        batches = cutter.take(n_rows, live=live)
        n_taken = sum(batch.num_rows for batch in batches)
        passed += n_taken
        ids = np.arange(passed - n_taken, passed)
        return partial(block_of_batches, columns, batches, ids, name) if n_taken else None

    return _piped_table(take, columns, "arrow", name)


def _unbroken(reader: pa.RecordBatchReader, name: str) -> Iterator[Any]:
    """The batches of a reader; an error that says where the stream broke off."""
    passed = 0
    try:
        for batch in reader:
            passed += batch.num_rows
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{_at_start(name)} broke off after row {passed}: {error}") from error


def _validated(batch: Any, name: str) -> Any:
    """The batch, if its offsets and codes lie inside: others would be read as they are."""
    try:
        batch.validate(full=True)
    except (ValueError, pa.ArrowException) as error:
        raise FileFormatError(f"From {row_of(name, 0)} on: {error}") from error
    return batch


def _no_rows(name: str) -> NoRowsError:
    return NoRowsError(f"There are no rows: {name} is empty.")


def _at_start(name: str) -> str:
    """The name as the first words of a sentence."""
    return name[:1].upper() + name[1:]


def _piped_table(take: Callable[[int], Task | None], columns: Columns, format: str, name: str = NAME) -> PipedSource:
    schema = columns.schema
    about = {"format": format, **columns.about}
    return PipedSource(
        take, feature_names=schema.feature_names, row_bytes=schema.row_bytes, about=about, schema=schema, name=name
    )


def _piped_libsvm(
    read: Any, choice: ColumnSelection, n_features: int | None, live: bool, limits: Limits
) -> PipedSource:
    refuse_names(choice)
    if n_features is None:
        raise ValueError("How many columns standard input has is not known beforehand: give n_features.")
    reader = TextReader(read, NAME, limits, quotes=False)
    first = reader.take(_PROBE_ROWS, text_bytes(0, 0), live=live)
    ahead = [] if first is None else [first]
    counts = census(b"" if first is None else first.data)
    row_bytes = 12 * counts.n_entries // max(1, counts.n_rows) + 4
    passed = 0

    def take(n_rows: int) -> Task | None:
        nonlocal passed
        span = _next_span(reader, ahead, n_rows, text_bytes(n_rows, row_bytes), live=live)
        if span is None:
            return None
        n_taken = census(span.data).n_rows  # without comments
        passed += n_taken
        ids = np.arange(passed - n_taken, passed)
        return partial(read_block, span.data, n_features, counts.has_zero, ids, choice, _locate)

    about = {"format": "libsvm", **asdict(choice), "n_features": n_features}
    return PipedSource(take, feature_names=Numbered(n_features), row_bytes=row_bytes, about=about)
