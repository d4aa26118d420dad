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
from tithe.rows.columns import Choice, Columns, Numbered, common_fields, resolve_columns
from tithe.rows.csv_block import Probe
from tithe.rows.delimited import csv_rows
from tithe.rows.dialect import TextLayout, find_dialect
from tithe.rows.leaves import Loaded, text_bytes, usual_leaf_rows
from tithe.rows.libsvm import census, read_block, refuse_names
from tithe.rows.limits import Limits
from tithe.rows.lines import RowReader
from tithe.rows.paths import all_bad, identity_of
from tithe.rows.record_batches import BatchCutter, block_of_batches
from tithe.rows.rows import row_of
from tithe.rows.schema import TableSchema

NAME = "standard input"

_PROBE_ROWS = 4096  # by which a schema is learned: a leaf has at least that many
_FEWEST_PROBED = 1000  # rows that are waited for where rows come live

Task = Callable[[], Block]


class PipedSource(Source):
    """Rows that can be read once.

    Parameters
    ----------
    take : callable
        ``take(n_rows)`` gives a loader of the next rows, at most that many, or None at the end.
    feature_names, row_bytes : sequence of str, int
    about : dict
        What was opened, for the identity.
    schema : TableSchema or None
    name : str
        What messages call it.
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
        task: Task | None = Loaded(self._ahead(leaf_rows))
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
    choice: Choice,
    n_features: int | None,
    *,
    live: bool = False,
    layout: TextLayout | None = None,
    limits: Limits | None = None,
) -> PipedSource:
    """The rows of a binary stream; of a ``live`` one in whatever pieces they come."""
    limits = limits or Limits()
    if format == "libsvm":
        return _piped_libsvm(stream, choice, n_features, live, limits)
    if format == "arrow":
        return _piped_arrow(stream, choice, live)
    return _piped_csv(stream, choice, live, layout or TextLayout(), limits)


def _locate(row_id: int) -> str:
    return row_of(NAME, row_id)


def _piped_csv(stream: Any, choice: Choice, live: bool, layout: TextLayout, limits: Limits) -> PipedSource:
    reader = RowReader(stream, NAME, header=layout.header is not False, live=live, limits=limits)
    first = reader.take(1)
    following = _ahead(reader, 1 if choice.schema is not None else _FEWEST_PROBED if live else _PROBE_ROWS)
    dialect = find_dialect(first[0], following[0], NAME, layout, limits)
    if not dialect.names:
        raise _no_rows(NAME)
    ahead = [following if dialect.header else (first[0] + following[0], first[1] + following[1])]
    if not ahead[0][1]:
        raise _no_rows(NAME)
    rows = csv_rows({NAME: dialect}, [Probe(NAME, dialect, ahead[0][0])], choice)
    passed = 0

    def take(n_rows: int) -> Task | None:
        nonlocal passed
        data, n_taken = ahead.pop() if ahead else (b"", 0)
        room = text_bytes(n_rows, rows.columns.schema.row_bytes) - len(data)
        more, n_more = (b"", 0) if n_taken and (live or room <= 0) else reader.take(n_rows - n_taken, room)
        n_taken += n_more
        if not n_taken:
            return None
        passed += n_taken
        return partial(rows.load, data + more, dialect, np.arange(passed - n_taken, passed), _locate)

    return _piped_table(take, rows.columns, "csv")


def _ahead(reader: RowReader, n_rows: int) -> tuple[bytes, int]:
    """The first rows, at least ``n_rows`` if there are as many; also those of a live stream are waited for."""
    data, n_taken = reader.take(max(n_rows, _PROBE_ROWS), text_bytes(0, 0))
    while 0 < n_taken < n_rows and len(data) < text_bytes(0, 0):
        more, n_more = reader.take(n_rows - n_taken, text_bytes(0, 0) - len(data))
        if not n_more:
            break
        data, n_taken = data + more, n_taken + n_more
    return data, n_taken


def _piped_arrow(stream: Any, choice: Choice, live: bool) -> PipedSource:
    try:
        batches = pa.ipc.open_stream(stream)
        _ = batches.schema.names  # which must be text in UTF-8
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"Standard input is not an Arrow IPC stream: {error}") from error
    return open_reader(batches, choice, NAME, live=live)


def open_reader(reader: pa.RecordBatchReader, choice: Choice, name: str, *, live: bool = False) -> PipedSource:
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


def _piped_libsvm(stream: Any, choice: Choice, n_features: int | None, live: bool, limits: Limits) -> PipedSource:
    refuse_names(choice)
    if n_features is None:
        raise ValueError("How many columns standard input has is not known beforehand: give n_features.")
    reader = RowReader(stream, NAME, quotes=False, live=live, limits=limits)
    ahead = [reader.take(_PROBE_ROWS, text_bytes(0, 0))]
    counts = census(ahead[0][0])
    row_bytes = 12 * counts.n_entries // max(1, counts.n_rows) + 4
    passed = 0

    def take(n_rows: int) -> Task | None:
        nonlocal passed
        data, n_taken = ahead.pop() if ahead else (b"", 0)
        room = text_bytes(n_rows, row_bytes) - len(data)
        if not n_taken or not (live or room <= 0):
            data += reader.take(n_rows - n_taken, room)[0]
        if not data:
            return None
        n_taken = census(data).n_rows
        passed += n_taken
        ids = np.arange(passed - n_taken, passed)
        return partial(read_block, data, n_features, counts.has_zero, ids, choice, _locate)

    about = {"format": "libsvm", **asdict(choice), "n_features": n_features}
    return PipedSource(take, feature_names=Numbered(n_features), row_bytes=row_bytes, about=about)
