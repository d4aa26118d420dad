"""Delimited text: CSV and TSV files, also compressed or in zip archives, read in order."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.rows.columns import Choice, common_fields, resolve_columns
from tithe.rows.csv_block import CsvRows, Probe, comma_columns, learn_types, text_tables, with_decimal_points
from tithe.rows.dialect import Dialect, TextLayout, read_dialect
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.leaves import SAMPLE_ROWS, at_least_one, text_bytes, unless_all_bad, usual_leaf_rows
from tithe.rows.limits import Limits
from tithe.rows.lines import BYTE_ORDER_MARK, RowReader
from tithe.rows.partitions import Constants, partition_values
from tithe.rows.paths import DataFile, identity_of, map_files, no_rows
from tithe.rows.rows import row_of, target_classes
from tithe.rows.text_files import TextFile, text_files

_MAX_PROBES = 64  # blocks from which types are inferred and a sample is drawn
_PROBE_BYTES = 2**16
_PROBE_ROWS = 4096
_THINNED_BYTES = 2**26  # bytes of text from which a sample of compressed files is drawn


class TextBlock(NamedTuple):
    """Consecutive rows of a file as text."""

    file: TextFile
    data: bytes
    first_in_file: int
    first: int
    n_rows: int

    @property
    def ids(self) -> Array:
        return np.arange(self.first, self.first + self.n_rows)

    def locate(self, row_id: int) -> str:
        """The file and row number of the row with an id, for messages."""
        return row_of(self.file.path, row_id - self.first + self.first_in_file)


class Place(NamedTuple):
    """Where consecutive rows of a file stand: from the offset ``at`` on."""

    file: TextFile
    at: int
    n_bytes: int
    first_in_file: int
    n_rows: int

    def read(self, before: int) -> TextBlock:
        """The rows; ``before`` is the number of rows in all files before this one."""
        with self.file.open() as stream:
            stream.seek(self.at)
            data = stream.read(self.n_bytes)
        return TextBlock(self.file, data, self.first_in_file, before + self.first_in_file, self.n_rows)


class Piece(NamedTuple):
    """Whole lines of a file: ``at`` is their offset in it, ``before`` the size of all files before it."""

    file: TextFile
    data: bytes
    at: int
    before: int


def _about(block: TextBlock, row_id: int) -> str:
    """The file and approximate number of a row of a sample, for messages."""
    return f"{block.file.path!r}, about row {row_id - block.first + block.first_in_file:,}"


class DelimitedSource(Source):
    """Rows of delimited text with a header line, in the order of the files.

    Types are inferred from blocks spread over the files; a column of whole numbers there may hold fractions
    elsewhere. Lines are cut into leaves while tasks are iterated over, and parsed when a task is called. The number
    of many rows is known only at the end. For clusters, `n_leaves` reads all files once to tell where leaves begin;
    workers then read and parse them. Files that are compressed cannot be read from the middle, so their leaves travel.

    Parameters
    ----------
    files : list of DataFile
    choice : Choice
    limits : Limits
    """

    def __init__(self, files: Sequence[DataFile], choice: Choice, layout: TextLayout, limits: Limits) -> None:
        self._limits = limits
        self._data_files = list(files)
        texts = text_files(files)
        constants = dict(zip(files, partition_values(files), strict=True))
        learned = map_files(partial(_dialect, layout=layout, limits=limits, constants=constants), texts)
        dialects = {text.path: dialect for text, dialect in zip(texts, learned, strict=True)}
        self._files = [text for text in texts if dialects[text.path].names]
        if not self._files:
            raise no_rows(files)
        self._dialects = {text.path: dialects[text.path] for text in self._files}
        self._probe_bytes = max(_PROBE_BYTES, 256 * max(len(dialect.names) for dialect in self._dialects.values()))
        pieces = list(self._pieces(self._probe_bytes, 0.0))
        self._bytes_per_row = np.mean([len(p.data) / max(1, p.data.count(b"\n")) for p in pieces] or [1])
        self.row_bytes = 8 * max(len(dialect.names) for dialect in self._dialects.values())  # until it is known
        probes, self.n_rows = self._schema_sample(pieces, known=choice.schema is not None)
        self.is_sampled = self.n_rows is None
        self._rows = csv_rows(self._dialects, probes, choice)
        self.n_bytes = sum(file.size for file in files)
        self.schema, self.uncertain = self._rows.columns.schema, self._rows.columns.uncertain
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)
        self.identity = identity_of("csv", files, {**self._rows.columns.about, **asdict(layout)}, None)
        self._places: dict[int, list[tuple[Place, int]]] = {}  # of the leaves, by their size, with the rows before

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on; earlier leaves are read but not parsed."""
        tasks = self._loaders(first, self.leaf_rows if leaf_rows is None else leaf_rows)
        if first or not self._rows.columns.leaves_rows_out:
            return tasks
        return unless_all_bad(tasks, self, self._data_files)

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Callable[[], Block]]:
        if leaf_rows in self._places:
            yield from (partial(self._load_from, *place) for place in self._places[leaf_rows][first:])
            return
        for number, block in enumerate(self._cut(leaf_rows)):
            if number >= first:
                yield partial(self._load, block)

    def n_leaves(self, leaf_rows: int | None = None) -> int | None:
        """The number of leaves, for which all files are read once; None if any of them is compressed."""
        if any(file.compression for file in self._files):
            return None
        size = self.leaf_rows if leaf_rows is None else leaf_rows
        if size not in self._places:
            in_files = map_files(partial(self._places_in, n_rows=size), self._files)
            before = accumulate((sum(place.n_rows for place in places) for places in in_files), initial=0)
            self._places = {size: [(place, n) for places, n in zip(in_files, before, strict=False) for place in places]}
        if not self._places[size]:
            raise no_rows(self._data_files)
        return len(self._places[size])

    def _places_in(self, file: TextFile, n_rows: int) -> list[Place]:
        return [Place(file, at, len(data), first, n) for at, data, first, n in self._cut_file(file, n_rows)]

    def _load_from(self, place: Place, before: int) -> Block:
        return self._load(place.read(before))

    def _load(self, block: TextBlock) -> Block:
        return self._rows.load(block.data, self._dialects[block.file.path], block.ids, block.locate)

    def count(self) -> int:
        """The number of rows, bad ones included; all files are read."""
        return sum(block.n_rows for block in self._cut(self.leaf_rows))

    def _cut(self, n_rows: int) -> Iterator[TextBlock]:
        """All rows in blocks of ``n_rows``, or fewer where rows are long."""
        before = 0
        for file in self._files:
            in_file = 0
            for _, data, first, n_taken in self._cut_file(file, n_rows):
                yield TextBlock(file, data, first, before + first, n_taken)
                in_file = first + n_taken
            before += in_file
        if not before:
            raise no_rows(self._data_files)

    def _cut_file(self, file: TextFile, n_rows: int) -> Iterator[tuple[int, bytes, int, int]]:
        """The rows of a file in such blocks: the offset of each, its text, the number of its first row and of rows."""
        n_bytes, first = text_bytes(n_rows, self.row_bytes), 0
        header = self._dialects[file.path].header
        with file.open() as stream:
            reader = RowReader(stream, file.path, header=header, limits=self._limits)
            if header:
                reader.take(1)
            while True:
                data, n_taken = reader.take(n_rows, n_bytes)
                if not n_taken:
                    break
                yield reader.n_bytes_taken - len(data), data, first, n_taken
                first += n_taken
        file.file.check()

    def _pieces(self, n_bytes: int, offset: float) -> Iterator[Piece]:
        """Whole lines spread evenly over the bytes of all files; the beginnings of compressed ones."""
        ends = np.cumsum([file.size for file in self._files])
        n_places = int(np.clip(ends[-1] // n_bytes, 1, _MAX_PROBES))
        for place in (np.arange(n_places) + offset) * (ends[-1] / n_places):
            number = int(np.searchsorted(ends, place, side="right"))
            file = self._files[number]
            at = 0 if file.compression else int(place) - int(ends[number]) + file.size
            with file.open() as stream:
                if at:
                    stream.seek(at)
                data = stream.read(n_bytes)
            whole_lines = data if len(data) < n_bytes else data[: data.rfind(b"\n") + 1]
            lines = self._after_header(whole_lines, file) if at == 0 else whole_lines.partition(b"\n")[2]
            if lines:
                yield Piece(file, lines, at + len(whole_lines) - len(lines), int(ends[number]) - file.size)

    def _schema_sample(self, pieces: Sequence[Piece], *, known: bool) -> tuple[list[Probe], int | None]:
        """Lines from which a schema is learned, and their number; None if these are blocks from all over the files.

        If it is ``known``, only types are told, and the ``pieces`` that were read are enough.
        """
        probes: list[Probe] = []
        n_rows = 0
        for block in () if known else self._cut(SCHEMA_ROWS):
            probes.append(Probe(block.file.path, self._dialects[block.file.path], block.data))
            n_rows += block.n_rows
            if n_rows > SCHEMA_ROWS:
                break
        if 0 < n_rows <= SCHEMA_ROWS:
            return probes, n_rows
        if not known:
            n_bytes = max(self._probe_bytes, int(self._bytes_per_row * SCHEMA_ROWS) // _MAX_PROBES)
            pieces = list(self._pieces(n_bytes, 0.0))
        return [Probe(piece.file.path, self._dialects[piece.file.path], piece.data) for piece in pieces], None

    def _after_header(self, data: bytes, file: TextFile) -> bytes:
        """The beginning of a file without its header and byte-order mark."""
        data = data.removeprefix(BYTE_ORDER_MARK)
        header = self._dialects[file.path].header and self._reader(data, file, header=True).take(1)[0]
        return data[len(header or b"") :]

    def _reader(self, data: bytes, file: TextFile, *, header: bool = False) -> RowReader:
        """The rows of a piece of a file."""
        return RowReader(io.BytesIO(data), file.path, header=header, limits=self._limits)

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, parsed, bad rows left out or refused, and their ids."""
        for block in self._cut(SAMPLE_ROWS):
            dialect = self._dialects[block.file.path]
            table, ids = self._rows.table(block.data, dialect, block.ids, block.locate, names)
            for batch in table.to_batches():
                yield ids[: batch.num_rows], batch
                ids = ids[batch.num_rows :]

    def classes(self) -> Array:
        """All values of the target, in ascending order, from a pass over that column."""
        return target_classes(self._rows.columns, lambda names: (batch for _, batch in self.numbered_batches(names)))

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of blocks spread evenly over all of the data.

        Row ids are those of `tasks`, except for blocks from the middle of files that are not compressed. The number
        of rows before these is not known, so their ids are estimated from the length of rows. They are distinct and
        ascend, but may be the ids of other rows.
        """
        size = SAMPLE_ROWS if size is None else size
        n_bytes = max(self._probe_bytes, int(1.5 * size * self._bytes_per_row) // _MAX_PROBES)
        if any(file.compression for file in self._files):
            blocks = [self._load(block) for block in self._thinned()]
        elif 2 * n_bytes * _MAX_PROBES >= (self.n_bytes or 0):
            blocks = [task() for task in self.tasks()]
        else:
            blocks = list(self._spread(n_bytes, rng.random())) or [next(self.tasks())()]
        rows = at_least_one(concat(blocks), self, self._data_files, size)
        if len(rows) <= size:
            return rows
        return rows.take(np.sort(rng.choice(len(rows), size, replace=False)))

    def _spread(self, n_bytes: int, offset: float) -> Iterator[Block]:
        """Rows of blocks spread over all files. A block that starts inside quotes cannot be parsed and is left out."""
        after = 0
        for file, data, at, before in self._pieces(n_bytes, offset):
            first = max(after, int((before + at) / self._bytes_per_row))
            try:
                _, n_rows = self._reader(data, file).take(len(data))
                block = TextBlock(file, data, int(at / self._bytes_per_row), first, n_rows)
                yield self._rows.load(data, self._dialects[file.path], block.ids, partial(_about, block))
                after = first + n_rows
            except ValueError:
                if b'"' not in data:
                    raise

    def _thinned(self) -> list[TextBlock]:
        """Evenly spaced blocks of files that can only be read in order."""
        blocks: list[TextBlock] = []
        step = 1
        for number, block in enumerate(self._cut(_PROBE_ROWS)):
            if number % step == 0:
                blocks.append(block)
            while len(blocks) > _MAX_PROBES or (len(blocks) > 1 and sum(len(b.data) for b in blocks) > _THINNED_BYTES):
                blocks, step = blocks[::2], 2 * step
        return blocks


def csv_rows(dialects: Mapping[str, Dialect], probes: Sequence[Probe], choice: Choice) -> CsvRows:
    """The columns of the files with these dialects, by path; schema and types are learned from the probes."""
    tables = text_tables(probes)
    with_commas = comma_columns(probes, tables, choice.reads)
    tables = [with_decimal_points(table, with_commas) for table in tables]
    types = learn_types(tables, [name for name in choice.special if name != choice.row_id])
    if choice.weight is not None and types.get(choice.weight) == pa.int64():
        types[choice.weight] = pa.float64()  # what is a whole number here may have a fraction elsewhere
    schemas = {}
    for file, dialect in dialects.items():
        in_file = [(name, types.get(name, pa.string())) for name in dialect.names]
        schemas[file] = pa.schema([*in_file, *((name, value.type) for name, value in dialect.constants.items())])
    fields = common_fields(schemas, choice)
    as_text = pa.schema([(name, pa.string() if name in types else fields.field(name).type) for name in fields.names])
    batches = [batch for table in tables for batch in table.to_batches()]
    columns = resolve_columns(fields, batches, choice, as_text)
    parsed = {name: fields.field(name).type for name in fields.names} | columns.number_types
    return CsvRows(columns, parsed, with_commas)


def _dialect(text: TextFile, *, layout: TextLayout, limits: Limits, constants: dict[DataFile, Constants]) -> Dialect:
    if layout.delimiter is None and ".tsv" in text.path.lower():
        layout = replace(layout, delimiter="\t")
    with text.open() as stream:
        dialect = read_dialect(stream, text.path, layout, limits)
    return replace(
        dialect, constants={name: v for name, v in constants[text.file].items() if name not in dialect.names}
    )
