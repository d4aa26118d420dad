"""CSV and TSV files, also compressed or in zip archives, read in order: text becomes numbers, and rows of X."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tithe.core.data import Array, Block, concat
from tithe.core.errors import FileFormatError
from tithe.rows.blocks import BlockBuilder, TableSource, fault, row_of
from tithe.rows.columns import Columns, ColumnSelection, common_fields, resolve_columns
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.leaves import SAMPLE_ROWS, Task, nonempty_sample, text_bytes
from tithe.rows.paths import DataFile, identity_of, map_files, no_rows, partition_values, with_constants
from tithe.rows.stores import Limits
from tithe.rows.text import (
    GAPS,
    UNREADABLE,
    Dialect,
    TextFile,
    TextLayout,
    TextReader,
    TextSpan,
    file_dialect,
    parse_rows,
    readable,
    row_ends,
    text_files,
)

_PARSE_BYTES = 2**24  # of a block that Arrow parses
_MIN_PARSED = 0.95  # share of the values of a column from which on the others are gaps
_COMMA_NUMBER = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?\s*$"  # such as 7, 1.234,56 and 4,4e-05
_MAY_BE_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"  # such as 4,282: a number of thousands, or of decimals
_GROUPED = r"^\s*[+-]?\d{1,3}(\.\d{3})+(,\d+)?\s*$"  # such as 1.234 and 1.234,56
_PATTERNS = {  # what is parsed to a type, the types in the order in which they are tried
    pa.int64(): r"^-?0*(\d{1,18}|[1-8]\d{18}|[xX][0-9a-fA-F]{1,15})$",
    pa.float64(): r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf(inity)?|nan(\(\w*\))?))$",
    pa.bool_(): r"^(?i:true|false|[01])$",
}
_GAPS = pa.array(GAPS)
_MAX_PROBES = 64  # pieces from which types are inferred and a sample is drawn
_PROBE_BYTES = 2**16
_PROBE_ROWS = 4096
_THINNED_BYTES = 2**26  # of text from which a sample of compressed files is drawn


# -- types of columns ------------------------------------------------------------------------------


def parse_column(texts: Any, type_: pa.DataType) -> Any:
    """Texts, null where they are gaps, as numbers or Booleans; odd values are null.

    >>> parse_column(pa.array(["1", " 2.5 ", "oops", "?"]), pa.float64()).to_pylist()
    [1.0, 2.5, None, None]
    """
    if pa.types.is_string(type_):
        return texts
    try:
        values = texts.cast(type_)
        if not pa.types.is_floating(type_) or not pc.any(pc.is_nan(values)).as_py():
            return values
    except pa.ArrowInvalid:
        pass
    trimmed = pc.utf8_trim(texts, " \t")
    fits = pc.match_substring_regex(trimmed, _PATTERNS[type_])
    fits = pc.and_(fits, pc.invert(pc.is_in(texts, value_set=_GAPS)))
    return pc.if_else(fits, trimmed, pa.scalar(None, pa.string())).cast(type_)


def learn_type(texts: Any) -> pa.DataType:
    """The type of a column of text: whole numbers, numbers, Booleans, or text.

    It is the first type that all values parse to, gaps aside, or else the first that 95 % parse to.
    """
    trimmed = pc.utf8_trim(texts, " \t")
    values = pc.filter(trimmed, pc.invert(pc.is_in(trimmed, value_set=_GAPS, skip_nulls=True))).drop_null()
    if not len(values):
        return pa.float64()
    for type_ in _PATTERNS:
        try:
            values.cast(type_)
            return type_
        except pa.ArrowInvalid:
            continue
    for type_, pattern in _PATTERNS.items():
        if _share(pc.match_substring_regex(values, pattern)) >= _MIN_PARSED:
            return type_
    return pa.string()


def comma_columns(columns: Mapping[str, Any], is_read: Callable[[str], bool]) -> frozenset[str]:
    """The columns of text that are numbers, some with a decimal comma.

    Columns that are read are refused if commas may group thousands in each of them.
    """
    examples = {name: _comma_numbers(texts) for name, texts in columns.items()}
    with_commas = {name: numbers for name, numbers in examples.items() if len(numbers)}
    if all(pc.all(pc.match_substring_regex(numbers, _MAY_BE_THOUSANDS)).as_py() for numbers in with_commas.values()):
        for name in filter(is_read, with_commas):
            raise ValueError(
                f"Column {name!r} has numbers such as {with_commas[name][0].as_py().strip()!r}, of which the comma may "
                "group thousands or begin decimals. Write them without commas, or leave the column out (exclude)."
            )
    return frozenset(with_commas)


def _comma_numbers(texts: Any) -> Any:
    """The numbers with a comma in a column of numbers; none if it is no such column."""
    values = pc.filter(texts, pc.invert(pc.is_in(pc.utf8_trim(texts, " \t"), value_set=_GAPS))).drop_null()
    fits = pc.match_substring_regex(values, _COMMA_NUMBER)
    numbers = pc.filter(values, fits)
    return pc.filter(numbers, pc.match_substring(numbers, ",")) if _share(fits) >= _MIN_PARSED else texts[:0]


def with_decimal_points(table: Any, columns: Collection[str]) -> Any:
    """A table of text with the numbers of some columns written with decimal points, and without points in groups.

    >>> with_decimal_points(pa.table({"a": ["1,5", "-1.234,5", "1.234", "7", "4,4e-5"]}), ["a"])["a"].to_pylist()
    ['1.5', '-1234.5', '1234', '7', '4.4e-5']
    """
    for at, name in enumerate(table.column_names):
        texts = table.column(name)
        if name in columns and pa.types.is_string(texts.type):
            whole = pc.if_else(pc.match_substring_regex(texts, _GROUPED), pc.replace_substring(texts, ".", ""), texts)
            pointed = pc.replace_substring_regex(whole, r"^(\s*[+-]?\d+),(\d+(?:[eE][+-]?\d+)?\s*)$", r"\1.\2")
            table = table.set_column(at, name, pointed)
    return table


def _share(flags: Any) -> float:
    return float(pc.mean(flags).as_py() or 0.0)


# -- rows ------------------------------------------------------------------------------------------


class Probe(NamedTuple):
    """Whole lines of a file from which types are learned."""

    dialect: Dialect
    data: bytes


def csv_rows(dialects: Mapping[str, Dialect], probes: Sequence[Probe], choice: ColumnSelection) -> CsvRows:
    """The columns of the files with these dialects, by path; schema and types are learned from the probes."""
    for file, dialect in dialects.items():
        _refuse_repeated(file, dialect, choice)
    tables = _text_tables(probes)
    texts: dict[str, list[Any]] = {}
    for table in tables:
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_string(column.type):
                texts.setdefault(name, []).extend(column.chunks)
    columns = {name: pa.chunked_array(chunks, pa.string()) for name, chunks in texts.items()}
    has_commas = any(probe.dialect.delimiter != "," for probe in probes)
    with_commas = comma_columns(columns, choice.reads) if has_commas else frozenset()
    columns = {
        name: with_decimal_points(pa.table({name: column}), with_commas)[name] for name, column in columns.items()
    }
    types = {name: learn_type(columns[name]) for name in choice.special if name != choice.row_id and name in columns}
    if choice.weight is not None and types.get(choice.weight) == pa.int64():
        types[choice.weight] = pa.float64()  # what is a whole number here may have a fraction elsewhere
    schemas = {}
    for file, dialect in dialects.items():
        in_file = [(name, types.get(name, pa.string())) for name in dialect.names]
        schemas[file] = pa.schema([*in_file, *((name, value.type) for name, value in dialect.constants.items())])
    fields = common_fields(schemas, choice)
    as_text = pa.schema([(name, pa.string() if name in types else fields.field(name).type) for name in fields.names])
    tables = [with_decimal_points(table, with_commas) for table in tables]
    batches = [batch for table in tables for batch in table.to_batches()]
    resolved = resolve_columns(fields, batches, choice, as_text)
    return CsvRows(resolved, fields, with_commas)


def _refuse_repeated(file: str, dialect: Dialect, choice: ColumnSelection) -> None:
    """Refuse columns of one name, or several without a name, unless they are not read."""
    wanted = {*choice.special, *choice.schema.reads} if choice.schema is not None else None
    for name, times in Counter(dialect.names).items():
        if times > 1 and (choice.reads(name) if wanted is None else name in wanted):
            raise FileFormatError(
                f"The header of {file!r} has {times} columns {f'named {name!r}' if name else 'without a name'}. Rename "
                "them in the file, or name the columns to use: columns=[...] (--columns)."
            )


def _text_tables(probes: Sequence[Probe]) -> list[Any]:
    """The columns of some lines as tables of text, values of whole files among them.

    Rows that are too long or too short are ignored here and refused when they are read.
    """
    sound: list[Any] = []
    unsound: list[Any] = []
    for probe in probes:
        once = [name for name, times in Counter(probe.dialect.names).items() if times == 1]
        table, wrong = parse_rows(readable(probe.data), probe.dialect, dict.fromkeys(once, pa.string()))
        for name, value in probe.dialect.constants.items():
            table = table.append_column(name, pa.repeat(value, table.num_rows))
        # a piece that was cut inside quotes has rows of wrong length; it is used only if there is no better one
        (unsound if wrong and b'"' in probe.data else sound).append(table)
    return sound if any(table.num_rows for table in sound) else unsound


@dataclass(frozen=True)
class CsvRows:
    """Spans of text as rows: the columns, the types that all files agree on, and those that have decimal commas."""

    columns: Columns
    fields: pa.Schema
    with_commas: frozenset[str] = frozenset()

    @cached_property
    def types(self) -> dict[str, Any]:
        """The type that each column is parsed to."""
        return dict(zip(self.fields.names, self.fields.types, strict=True)) | self.columns.number_types

    @cached_property
    def coded(self) -> dict[str, Any]:
        """The columns of text with few values, which are parsed to codes."""
        few = [name for name in self.columns.repeated if pa.types.is_string(self.types[name])]
        return {name: pa.dictionary(pa.int32(), pa.string()) for name in few if name not in self.with_commas}

    def table(
        self, span: TextSpan, dialect: Dialect, ids: Array, locate: Callable[[int], str], only: Sequence[str]
    ) -> tuple[Any, Array]:
        """Some columns of rows with these ids, wrong ones included, and the ids of the rows that are not bad."""
        text = readable(span.data)
        in_file = [name for name in only if name not in dialect.constants]
        try:
            table, wrong, marked = self._parsed(text, dialect, in_file, is_marked=text is not span.data)
        except pa.ArrowException as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}") from error
        if table.num_rows + len(wrong) != span.n_rows:
            return self._in_halves(span, dialect, ids, locate, only)
        faults = {at: f"it has {n} values instead of {len(dialect.names)}" for at, n in wrong}
        good = np.delete(np.arange(span.n_rows), list(faults))
        if marked:
            faults |= {int(good[at]): f"column {name!r} is not text in UTF-8" for at, name in marked.items()}
            is_sound = np.ones(len(good), bool)
            is_sound[list(marked)] = False
            table, good = table.filter(pa.array(is_sound)), good[is_sound]
        self._check(faults, ids, locate)
        return with_constants(table, only, dialect.constants), ids[good]

    def _check(self, faults: Mapping[int, str], ids: Array, locate: Callable[[int], str]) -> None:
        """Refuse the first bad row, unless such rows are skipped."""
        if faults and self.columns.choice.bad_rows == "error":
            first = min(faults)
            raise fault(locate(int(ids[first])), faults[first])

    def _in_halves(
        self, span: TextSpan, dialect: Dialect, ids: Array, locate: Callable[[int], str], only: Sequence[str]
    ) -> tuple[Any, Array]:
        """The table of a span in which Arrow finds other rows than were counted: each half is parsed by itself.

        In the end there is one row, which has a quote in the middle of a value, or a return.
        """
        if span.n_rows > 1:
            first, rest = span.halves()
            at = first.n_rows
            parts = [
                self.table(first, dialect, ids[:at], locate, only),
                self.table(rest, dialect, ids[at:], locate, only),
            ]
            return _joined([table for table, _ in parts]), np.concatenate([good for _, good in parts])
        self._check({0: "it has a quote or a line end inside a value"}, ids, locate)
        return pa.schema([(name, self.types[name]) for name in only]).empty_table(), ids[:0]

    def _parsed(
        self, data: bytes, dialect: Dialect, only: Sequence[str], *, is_marked: bool
    ) -> tuple[Any, list[tuple[int, int]], dict[int, str]]:
        """The table, the wrong rows that it lacks, and those of its rows with bytes that are not UTF-8, by column."""
        types = {name: self.types[name] for name in only} or {dialect.names[0]: pa.string()}
        with_fractions = {name for name, type_ in types.items() if pa.types.is_floating(type_)}
        commas = with_fractions & self.with_commas
        if not is_marked and (
            not commas or commas == with_fractions
        ):  # Arrow takes all columns to have commas, or none
            try:
                coded = {name: self.coded.get(name, type_) for name, type_ in types.items()}
                table, wrong = parse_rows(data, dialect, coded, block=_PARSE_BYTES, decimal="," if commas else ".")
                return with_decimal_points(table, self.with_commas), wrong, {}
            except pa.ArrowInvalid:
                pass  # a value is no number, or a row is longer than a block
        texts, wrong = parse_rows(data, dialect, dict.fromkeys(types, pa.string()))
        texts = with_decimal_points(texts, self.with_commas)
        choice = self.columns.choice
        # a schema of other rows tells gaps from texts that are no numbers
        as_text = self.columns.number_types if choice.schema is not None else ()
        table = pa.table(
            {
                name: texts.column(name) if name in as_text else parse_column(texts.column(name), type_)
                for name, type_ in types.items()
            }
        )
        return table, wrong, self._unreadable(texts, table) if is_marked else {}

    def _unreadable(self, texts: Any, table: Any) -> dict[int, str]:
        """The rows with bytes that are not UTF-8 in a value that is text or could not be parsed, and its column."""
        unreadable: dict[int, str] = {}
        for name, values in zip(table.column_names, table.columns, strict=True):
            odd = np.arange(len(values)) if pa.types.is_string(values.type) else np.flatnonzero(pc.is_null(values))
            has_mark = pc.match_substring(texts.column(name).take(pa.array(odd)), UNREADABLE).fill_null(False)
            unreadable |= dict.fromkeys(odd[np.asarray(has_mark)].tolist(), name)
        return unreadable

    def load(self, span: TextSpan, dialect: Dialect, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows of a span with these ids, checked."""
        table, ids = self.table(span, dialect, ids, locate, self.columns.read)
        rows = BlockBuilder(self.columns, len(ids))
        try:
            for batch in table.to_batches():
                rows.add(batch)
        except (ValueError, pa.ArrowException) as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}") from error
        return rows.block(ids, locate)


def _joined(tables: Sequence[Any]) -> Any:
    """The tables as one. A column that is text in one of them is text in all."""
    types = zip(*(table.schema.types for table in tables), strict=True)
    common = [pa.string() if pa.string() in of_column else of_column[0] for of_column in types]
    schema = pa.schema(list(zip(tables[0].column_names, common, strict=True)))
    return pa.concat_tables([table.cast(schema) for table in tables])


# -- source ----------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """Rows of a file, and how many rows the files before it have. Their text may be left to be read where it is."""

    file: TextFile
    before: int
    rows: TextSpan
    n_bytes: int

    @property
    def ids(self) -> Array:
        first = self.before + self.rows.first
        return np.arange(first, first + self.rows.n_rows)

    def locate(self, row_id: int) -> str:
        """The file and row number of the row with an id, for messages."""
        return row_of(self.file.path, row_id - self.before)


class Piece(NamedTuple):
    """Whole lines from the middle of a file: ``at`` is their offset in it, ``before`` the size of all files before."""

    file: TextFile
    data: bytes
    at: int
    before: int


class DelimitedSource(TableSource):
    """Rows of delimited text with a header line, in the order of the files.

    Types are inferred from pieces spread over the files; a column of whole numbers there may hold fractions
    elsewhere. While tasks are iterated over, text is cut into values and leaves; the values are parsed when a task is
    called. The number of many rows is known only at the end. For clusters, `n_leaves` reads all files once to find
    where leaves begin; workers then read and parse them. Files that are compressed cannot be read from the middle, so
    their leaves travel.
    """

    def __init__(self, files: Sequence[DataFile], choice: ColumnSelection, layout: TextLayout, limits: Limits) -> None:
        self._limits = limits
        texts = text_files(files)
        constants = dict(zip(files, partition_values(files), strict=True))
        self._dialects: dict[str, Dialect] = {}
        for text, dialect in zip(
            texts, map_files(partial(file_dialect, layout=layout, limits=limits), texts), strict=True
        ):
            if dialect.names:
                own = {name: v for name, v in constants[text.file].items() if name not in dialect.names}
                self._dialects[text.path] = replace(dialect, constants=own)
        self._files, self._texts = list(files), [text for text in texts if text.path in self._dialects]
        if not self._texts:
            raise no_rows(files)
        self._probe_bytes = max(_PROBE_BYTES, 256 * max(len(dialect.names) for dialect in self._dialects.values()))
        pieces = list(self._pieces(self._probe_bytes, 0.0))
        self._bytes_per_row = np.mean([len(p.data) / max(1, p.data.count(b"\n")) for p in pieces] or [1])
        self.row_bytes = 8 * max(len(dialect.names) for dialect in self._dialects.values())  # until it is known
        probes, self.n_rows = self._schema_sample(pieces, known=choice.schema is not None)
        self.n_bytes = sum(file.size for file in files)
        self._layout = layout
        self._rows = csv_rows(self._dialects, probes, choice)
        self._set_columns(self._rows.columns, files)

    def _set_columns(self, columns: Columns, files: Sequence[DataFile]) -> None:
        super()._set_columns(columns, files)
        self._rows = replace(self._rows, columns=columns)
        self.identity = identity_of("csv", files, {**columns.about, **asdict(self._layout)}, None)
        self._places: dict[int, list[Leaf]] = {}  # the leaves without their text, by their size

    # -- leaves ----------------------------------------------------------------------------------

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Task]:
        leaves: Iterable[Leaf] = self._places.get(leaf_rows) or self._cut(leaf_rows)
        return (partial(self._load, leaf) for leaf in islice(leaves, first, None))

    def n_leaves(self, leaf_rows: int | None = None) -> int | None:
        """The number of leaves, for which all files are read once; None if any of them is compressed."""
        if any(file.compression for file in self._texts):
            return None
        size = self.leaf_rows if leaf_rows is None else leaf_rows
        if size not in self._places:
            in_files = map_files(partial(self._places_in, n_rows=size), self._texts)
            before = accumulate((sum(leaf.rows.n_rows for leaf in leaves) for leaves in in_files), initial=0)
            self._places = {
                size: [leaf._replace(before=n) for leaves, n in zip(in_files, before, strict=False) for leaf in leaves]
            }
        if not self._places[size]:
            raise no_rows(self._files)
        return len(self._places[size])

    def _places_in(self, file: TextFile, n_rows: int) -> list[Leaf]:
        spans = self._cut_file(file, n_rows)
        return [Leaf(file, 0, span._replace(data=b""), len(span.data)) for span in spans]

    def _load(self, leaf: Leaf) -> Block:
        span = leaf.rows
        if not span.data:
            with leaf.file.open() as stream:
                stream.seek(span.start)
                span = span._replace(data=stream.read(leaf.n_bytes))
        return self._rows.load(span, self._dialects[leaf.file.path], leaf.ids, leaf.locate)

    def count(self) -> int:
        """The number of rows, bad ones included; all files are read."""
        return sum(leaf.rows.n_rows for leaf in self._cut(self.leaf_rows))

    def _cut(self, n_rows: int) -> Iterator[Leaf]:
        """All rows in leaves of ``n_rows``, or fewer where rows are long."""
        before = 0
        for file in self._texts:
            in_file = 0
            for span in self._cut_file(file, n_rows):
                yield Leaf(file, before, span, len(span.data))
                in_file = span.first + span.n_rows
            before += in_file
        if not before:
            raise no_rows(self._files)

    def _cut_file(self, file: TextFile, n_rows: int) -> Iterator[TextSpan]:
        n_bytes, begin = text_bytes(n_rows, self.row_bytes), self._dialects[file.path].begin
        with file.open() as stream:
            stream.read(begin)
            reader = TextReader(stream.read, file.path, self._limits, at=begin)
            while (span := reader.take(n_rows, n_bytes)) is not None:
                yield span
        file.file.check()

    # -- samples ---------------------------------------------------------------------------------

    def _pieces(self, n_bytes: int, offset: float) -> Iterator[Piece]:
        """Whole lines spread evenly over the bytes of all files; the beginnings of compressed ones."""
        ends = np.cumsum([file.size for file in self._texts])
        n_places = int(np.clip(ends[-1] // n_bytes, 1, _MAX_PROBES))
        for place in (np.arange(n_places) + offset) * (ends[-1] / n_places):
            number = int(np.searchsorted(ends, place, side="right"))
            file = self._texts[number]
            at = 0 if file.compression else int(place) - int(ends[number]) + file.size
            with file.open() as stream:
                if at:
                    stream.seek(at)
                data = stream.read(n_bytes)
            whole_lines = data if len(data) < n_bytes else data[: data.rfind(b"\n") + 1]
            begin = self._dialects[file.path].begin
            lines = whole_lines[begin:] if at == 0 else whole_lines.partition(b"\n")[2]
            if lines:
                yield Piece(file, lines, at + len(whole_lines) - len(lines), int(ends[number]) - file.size)

    def _schema_sample(self, pieces: Sequence[Piece], *, known: bool) -> tuple[list[Probe], int | None]:
        """Rows from which a schema is learned, and their number; None if these are pieces from all over the files.

        If it is ``known``, only types are learned, and the ``pieces`` that were read are enough.
        """
        probes: list[Probe] = []
        n_rows = 0
        can_tell = not any(file.compression for file in self._texts) and not any(b'"' in p.data for p in pieces)
        surely_more = can_tell and sum(file.size for file in self._texts) > 2 * SCHEMA_ROWS * self._bytes_per_row
        for leaf in () if known or surely_more else self._cut(SCHEMA_ROWS):
            probes.append(Probe(self._dialects[leaf.file.path], leaf.rows.data))
            n_rows += leaf.rows.n_rows
            if n_rows > SCHEMA_ROWS:
                break
        if 0 < n_rows <= SCHEMA_ROWS:
            return probes, n_rows
        if not known:
            n_bytes = max(self._probe_bytes, int(self._bytes_per_row * SCHEMA_ROWS) // _MAX_PROBES)
            pieces = list(self._pieces(n_bytes, 0.0))
        return [Probe(self._dialects[piece.file.path], piece.data) for piece in pieces], None

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, parsed, bad rows left out or refused, and their ids."""
        for leaf in self._cut(SAMPLE_ROWS):
            table, ids = self._rows.table(leaf.rows, self._dialects[leaf.file.path], leaf.ids, leaf.locate, names)
            for batch in table.to_batches():
                yield ids[: batch.num_rows], batch
                ids = ids[batch.num_rows :]

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of pieces spread evenly over all of the data.

        Row ids are those of `tasks`, except for pieces from the middle of files that are not compressed. The number
        of rows before these is not known, so their ids are estimated from the length of rows. They are distinct and
        ascend, but may be the ids of other rows.
        """
        size = SAMPLE_ROWS if size is None else size
        n_bytes = max(self._probe_bytes, int(1.5 * size * self._bytes_per_row) // _MAX_PROBES)
        if any(file.compression for file in self._texts):
            blocks = [self._load(leaf) for leaf in self._thinned()]
        elif 2 * n_bytes * _MAX_PROBES >= (self.n_bytes or 0):
            blocks = [task() for task in self.tasks()]
        else:
            blocks = list(self._spread(n_bytes, rng.random())) or [next(self.tasks())()]
        rows = nonempty_sample(concat(blocks), self, self._files, size)
        if len(rows) <= size:
            return rows
        return rows.take(np.sort(rng.choice(len(rows), size, replace=False)))

    def _spread(self, n_bytes: int, offset: float) -> Iterator[Block]:
        """Rows of pieces spread over all files. A piece that starts inside quotes cannot be parsed and is left out."""
        after = 0
        for file, data, at, before in self._pieces(n_bytes, offset):
            first, dialect = max(after, int((before + at) / self._bytes_per_row)), self._dialects[file.path]
            if data.count(b'"') % 2:
                continue
            span = TextSpan(data, len(row_ends(data)))
            try:
                ids = np.arange(first, first + span.n_rows)
                about = partial(_about, file.path, int(at / self._bytes_per_row) - first)
                yield self._rows.load(span, dialect, ids, about)
                after = first + span.n_rows
            except ValueError:
                if b'"' not in data:
                    raise

    def _thinned(self) -> list[Leaf]:
        """Evenly spaced rows of files that can only be read in order."""
        leaves: list[Leaf] = []
        step = 1
        for number, leaf in enumerate(self._cut(_PROBE_ROWS)):
            if number % step == 0:
                leaves.append(leaf)
            while len(leaves) > _MAX_PROBES or (
                len(leaves) > 1 and sum(leaf.n_bytes for leaf in leaves) > _THINNED_BYTES
            ):
                leaves, step = leaves[::2], 2 * step
        return leaves


def _about(file: str, offset: int, row_id: int) -> str:
    """The file and approximate number of a row of a sample, for messages."""
    return f"{file!r}, about row {row_id + offset:,}"
