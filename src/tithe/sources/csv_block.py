"""A block of delimited text, parsed into checked rows."""

from __future__ import annotations

import csv
import io
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
from tithe.sources.rows import Rows, fault

_PARSED_AT_ONCE = 2**22
_BLANK = re.compile(rb"^[ \t]+\r?\n", re.MULTILINE)  # no value of a single column


@dataclass(frozen=True)
class Dialect:
    """How a file is written: the names in its header, in order, and what stands between values."""

    names: tuple[str, ...]
    delimiter: str

    def read(self, data: bytes, types: dict[str, Any], only: Sequence[str], *, lenient: bool = False) -> Any:
        """Parse whole lines into a table of the columns ``only``; if ``lenient``, less rows too long or too short."""
        return pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(
                column_names=self.names, use_threads=False, block_size=_PARSED_AT_ONCE
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=b'"' in data,
                invalid_row_handler=(lambda _: "skip") if lenient else None,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: types[name] for name in only if name in types}, include_columns=only
            ),
        )


def read_header(line: bytes, file: str, delimiter: str) -> Dialect:
    """The dialect of a file that starts with this line; without names if the line is empty."""
    try:
        text = line.removeprefix(b"\xef\xbb\xbf").decode().lstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file!r} is not text in UTF-8: {error}") from error
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
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
    """The type of every column as far as these blocks of lines of files tell; one block in four makes a column text.

    Rows that are too long or too short tell nothing; they are found when they are read.
    """
    blocks = [(file, dialect, rows) for file, dialect, data in blocks if (rows := _BLANK.sub(b"", data))]
    found: dict[str, Counter[Any]] = {}
    fault = None
    # a block that was cut inside quotes has rows of any length, and tells nothing if another does
    for lenient in (False, True):
        for file, dialect, rows in blocks:
            try:
                schema = dialect.read(rows, {}, dialect.names, lenient=lenient or b'"' not in rows).schema
            except pa.ArrowException as error:
                fault = FileFormatError(f"{file!r} is no table of one row a line: {error}")
                continue
            for field in schema:
                found.setdefault(field.name, Counter())[field.type] += 1
        if found:
            break
    if not found and fault is not None:
        raise fault
    return {name: _common_type(seen) for name, seen in found.items()}


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
            parsed = dialect.read(data, self.types, only)
        except pa.ArrowException as error:
            data, ids = self._sound_rows(data, dialect, ids, locate, error)
            parsed = dialect.read(data, self.types, only) if len(ids) else self._no_rows(only)
        target = self.columns.choice.target
        if target in only and pa.types.is_string(parsed.column(target).type):
            values = parsed.column(target)
            missing = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
            parsed = parsed.set_column(parsed.column_names.index(target), target, missing)
        return parsed, ids

    def _no_rows(self, only: Sequence[str]) -> Any:
        return pa.schema([(name, self.types[name]) for name in only]).empty_table()

    def load(self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows of a block that has ``len(ids)`` of them, checked."""
        table, ids = self.table(data, dialect, ids, locate, self.columns.read)
        rows = Rows(self.columns, len(ids))
        try:
            for batch in table.to_batches():
                rows.add(batch)
            return rows.block(ids, locate)
        except FileFormatError as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on {error}: are quotes where they belong?") from error

    def _sound_rows(
        self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str], error: Exception
    ) -> tuple[bytes, Array]:
        """A block that could not be parsed, less the rows that are to blame, and the ids of those left."""
        sound = io.StringIO(newline="")
        writer = csv.writer(sound, delimiter=dialect.delimiter)
        kept: list[int] = []
        text = io.StringIO(data.decode(errors="replace"), newline="")
        for number, values in enumerate(filter(None, csv.reader(text, delimiter=dialect.delimiter))):
            wrong = self._what_is_wrong(values, dialect)
            if wrong is None:
                writer.writerow(values)
                kept.append(number)
            elif self.columns.choice.bad_rows == "error":
                raise fault(locate(int(ids[min(number, len(ids) - 1)])), wrong)
        if len(kept) >= len(ids):  # then it is no row that is to blame
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}")
        return sound.getvalue().encode(), ids[kept]

    def _what_is_wrong(self, values: Sequence[str], dialect: Dialect) -> str | None:
        if len(values) != len(dialect.names):
            return f"it has {len(values)} values instead of {len(dialect.names)}"
        for name, value in zip(dialect.names, values, strict=True):
            if name in self.columns.read and "\ufffd" in value:
                return f"column {name!r} is not text in UTF-8"
            if name in self.columns.read and not _fits(value, self.types[name]):
                return f"column {name!r} is {value!r}, but {self.types[name]} elsewhere"
        return None


def _fits(value: str, type_: pa.DataType) -> bool:
    if value in pyarrow.csv.ConvertOptions().null_values:
        return True
    if pa.types.is_boolean(type_):
        return value.lower() in ("true", "false", "0", "1")
    if pa.types.is_integer(type_):
        return value.strip().lstrip("+-").isdecimal()
    return not pa.types.is_floating(type_) or _is_number(value)


def _is_number(value: str) -> bool:
    try:
        return "_" not in value and float(value) is not None
    except ValueError:
        return False
