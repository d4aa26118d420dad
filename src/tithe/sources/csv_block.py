"""A block of delimited text, parsed into checked rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.sources.columns import Columns
from tithe.sources.limits import TABLE_COLUMNS, Limits, beyond
from tithe.sources.lines import split_rows
from tithe.sources.rows import BlockBuilder, fault

_PARSE_BYTES = 2**22  # of a block that Arrow parses
_UNREADABLE = (pa.ArrowException, FileFormatError)
_NULLS = frozenset(pyarrow.csv.ConvertOptions().null_values)
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python's surrogateescape shows them
_MAX_CHARACTERS_SHOWN = 60  # characters of a wrong value in a message
_BLANK_LINE = re.compile(rb"^[ \t]+\r?\n", re.MULTILINE)  # no value of a single column


@dataclass(frozen=True)
class Dialect:
    """The format of a file: the names in its header, in order, and the delimiter."""

    names: tuple[str, ...]
    delimiter: str

    def read(self, data: bytes, types: dict[str, Any], only: Sequence[str], *, lenient: bool = False) -> Any:
        """Parse whole lines into a table of the columns ``only``; if ``lenient``, less rows too long or too short."""
        try:
            return self._read(data, types, only, lenient, _PARSE_BYTES)
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error):
                raise
            return self._read(data, types, only, lenient, len(data))  # there is a row that is longer than a block

    def _read(self, data: bytes, types: dict[str, Any], only: Sequence[str], lenient: bool, block_size: int) -> Any:
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=self.names, use_threads=False, block_size=block_size),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=b'"' in data,
                invalid_row_handler=(lambda _: "skip") if lenient else None,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: types[name] for name in only if name in types}, include_columns=only
            ),
        )


def read_header(line: bytes, file: str, delimiter: str, limits: Limits) -> Dialect:
    """The dialect of a file with this header line; it has no names if the line is empty."""
    n_columns = line.count(delimiter.encode()) + 1
    max_columns = limits.columns or TABLE_COLUMNS
    if n_columns > max_columns:
        raise beyond(f"The header of {file!r} names {n_columns:,} columns", "columns", max_columns)
    try:
        text = line.removeprefix(b"\xef\xbb\xbf").decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file!r} is not text in UTF-8: {error}") from error
    try:
        names = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error as error:
        raise FileFormatError(f"The header of {file!r} cannot be read: {error}") from error
    if names and all(_is_number(name) for name in names) and not _are_counted(names):
        raise FileFormatError(
            f"{file!r} starts with numbers, so it seems to have no header. Its first line must name the columns."
        )
    return Dialect(tuple(names), delimiter)


def _are_counted(names: Sequence[str]) -> bool:
    """Whether columns are named by their numbers, from 0 or from 1: other numbers are a row, not names."""
    plain = [name.strip() for name in names]
    return any(plain == [str(first + i) for i in range(len(names))] for first in (0, 1))


def common_types(blocks: Sequence[tuple[str, Dialect, bytes]]) -> dict[str, Any]:
    """The type of every column in these blocks of lines. A column is text if it is in a quarter of the blocks.

    Rows that are too long or too short are ignored here and refused when they are read.
    """
    # bytes that are not UTF-8 are text here: Arrow prints a complaint for every row that has some and is too long
    readable = [(file, dialect, data.decode(errors="replace").encode()) for file, dialect, data in blocks]
    blocks = [(file, dialect, rows) for file, dialect, data in readable if (rows := _BLANK_LINE.sub(b"", data))]
    types: dict[str, Counter[Any]] = {}
    fault = None
    # a block that was cut inside quotes has rows of wrong length; it is used only if there is no better block
    for lenient in (False, True):
        for file, dialect, rows in blocks:
            try:
                schema = dialect.read(rows, {}, dialect.names, lenient=lenient or b'"' not in rows).schema
            except pa.ArrowException as error:
                fault = FileFormatError(f"{file!r} is no table of one row a line: {error}")
                continue
            for field in schema:
                types.setdefault(field.name, Counter())[field.type] += 1
        if types:
            break
    if not types and fault is not None:
        raise fault
    return {name: _common_type(seen) for name, seen in types.items()}


def _common_type(seen: Counter[Any]) -> Any:
    seen.pop(pa.null(), None)
    numbers = {pa.int64(), pa.float64()} & set(seen)
    n_others = seen.total() - sum(seen[number] for number in numbers)
    if numbers and 4 * n_others < seen.total():  # few: they are bad rows
        return pa.int64() if numbers == {pa.int64()} else pa.float64()
    return max(seen, key=seen.__getitem__, default=pa.float64()) if len(seen) < 2 else pa.string()


@dataclass(frozen=True)
class CsvRows:
    """Blocks of text as rows: the columns, and the type that each is parsed to."""

    columns: Columns
    types: dict[str, Any]

    def table(
        self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str], only: Sequence[str]
    ) -> tuple[Any, Array]:
        """Some columns of a block that has ``len(ids)`` rows, and the ids of those that could be parsed."""
        try:
            parsed = self._parsed(data, dialect, len(ids), only)
        except _UNREADABLE as error:
            data, ids = self._sound_rows(data, dialect, ids, locate, error)
            try:
                parsed = self._parsed(data, dialect, len(ids), only) if len(ids) else self._no_rows(only)
            except _UNREADABLE as reason:
                raise FileFormatError(f"From {locate(int(ids[0]))} on: {reason}") from reason
        target = self.columns.choice.target
        if target in only and pa.types.is_string(parsed.column(target).type):
            values = parsed.column(target)
            missing = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
            parsed = parsed.set_column(parsed.column_names.index(target), target, missing)
        return parsed, ids

    def _parsed(self, data: bytes, dialect: Dialect, n_rows: int, only: Sequence[str]) -> Any:
        parsed = dialect.read(data, self.types, only)
        if parsed.num_rows != n_rows:
            raise FileFormatError(
                f"there are {parsed.num_rows} rows instead of {n_rows}: are quotes where they belong?"
            )
        return parsed

    def _no_rows(self, only: Sequence[str]) -> Any:
        return pa.schema([(name, self.types[name]) for name in only]).empty_table()

    def load(self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows of a block that has ``len(ids)`` of them, checked."""
        table, ids = self.table(data, dialect, ids, locate, self.columns.read)
        rows = BlockBuilder(self.columns, len(ids))
        try:
            for batch in table.to_batches():
                rows.add(batch)
        except (ValueError, pa.ArrowException) as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}") from error
        return rows.block(ids, locate)

    def _sound_rows(
        self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str], error: Exception
    ) -> tuple[bytes, Array]:
        """The rows of a block that can be parsed, and their ids, after the whole block could not be."""
        rows = split_rows(data)
        if len(rows) != len(ids):
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}")
        positions = {name: at for at, name in enumerate(dialect.names)}
        read = [(positions[name], name) for name in self.columns.read]
        sound: list[int] = []
        for number, row in enumerate(rows):
            wrong = self._what_is_wrong(row, dialect, read)
            if wrong is None:
                sound.append(number)
            elif self.columns.choice.bad_rows == "error":
                raise fault(locate(int(ids[number])), wrong)
        if len(sound) == len(ids):  # no single row is wrong
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}")
        return b"".join([rows[number] for number in sound]), ids[sound]

    def _what_is_wrong(self, row: bytes, dialect: Dialect, read: Sequence[tuple[int, str]]) -> str | None:
        text = row.decode(errors="surrogateescape").strip("\r\n")
        try:
            values = next(csv.reader([text], delimiter=dialect.delimiter))
        except csv.Error as error:
            return str(error)
        if len(values) != len(dialect.names):
            return f"it has {len(values)} values instead of {len(dialect.names)}"
        for at, name in read:
            value = values[at]
            if not value.isascii() and _ESCAPED.search(value):
                return f"column {name!r} is not text in UTF-8"
            if not _fits(value, self.types[name]):
                shown = value if len(value) <= _MAX_CHARACTERS_SHOWN else value[:_MAX_CHARACTERS_SHOWN] + "..."
                return f"column {name!r} is {shown!r}, but {self.types[name]} elsewhere"
        return None


def _fits(value: str, type_: pa.DataType) -> bool:
    """Whether Arrow parses a value to a type."""
    if value in _NULLS:
        return True
    if pa.types.is_boolean(type_):
        return value.lower() in ("true", "false", "0", "1")
    value = value.strip(" \t")
    if pa.types.is_integer(type_):
        return _INTEGER.fullmatch(value) is not None and -(2**63) <= int(value) < 2**63
    return not pa.types.is_floating(type_) or _NUMBER.fullmatch(value) is not None


def _is_number(value: str) -> bool:
    try:
        return "_" not in value and float(value) is not None
    except ValueError:
        return False
