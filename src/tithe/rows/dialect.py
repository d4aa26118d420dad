"""The layout of a CSV file, told by its first lines: delimiter, header, names of the columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tithe.core.errors import FileFormatError
from tithe.core.params import Boolean, Constraint, OneOf, check_params
from tithe.rows.limits import TABLE_COLUMNS, Limits, beyond
from tithe.rows.lines import RowReader, split_rows
from tithe.rows.values import GAP_TEXTS

# texts that say that a number is missing; Arrow compares them as they are written
GAPS = tuple(sorted({*pyarrow.csv.ConvertOptions().null_values, *GAP_TEXTS, *map(str.upper, GAP_TEXTS), "NaT", "Null"}))

_DELIMITERS = ("\t", ";", "|", ",")  # where two fit equally well, the first: a comma may stand within a value
_SPELLINGS = {"tab": "\t", "\\t": "\t"}
_CONSTRAINTS: dict[str, Constraint] = {"header": Boolean() | OneOf(None)}
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18


@dataclass(frozen=True, kw_only=True)
class TextLayout:
    """What the caller says about the layout of CSV files; None: what the first lines of each file say.

    Parameters
    ----------
    delimiter : str, optional
        One character; ``"tab"`` is a tab.
    header : bool, optional
        Whether the first line names the columns. If not, they are named x0, x1, ...
    """

    delimiter: str | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        check_params(self, _CONSTRAINTS)
        object.__setattr__(self, "delimiter", _SPELLINGS.get(str(self.delimiter), self.delimiter))
        if self.delimiter is not None and (len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(f"delimiter must be one ASCII character, no quote or newline, got {self.delimiter!r}.")


@dataclass(frozen=True)
class Dialect:
    """The layout of a file.

    Parameters
    ----------
    names : tuple of str
        Of the columns, in order; those of ``constants`` are not among them.
    delimiter : str
    header : bool
        Whether the first line is a header.
    constants : dict
        Columns that have one value in the whole file, from the names of its folders.
    """

    names: tuple[str, ...]
    delimiter: str
    header: bool = True
    constants: dict[str, pa.Scalar] = field(default_factory=dict)

    def read(
        self, data: bytes, types: dict[str, Any], only: Sequence[str], block_size: int, *, decimal: str = "."
    ) -> tuple[Any, list[tuple[int, int]]]:
        """Parse whole lines into a table of the columns ``only``, without the rows that have too many or few values.

        Those are returned too: their positions, and how many values they have. The data must be UTF-8: of a wrong row
        that is not, Arrow prints a complaint.
        """
        wrong: list[tuple[int, int]] = []

        def leave_out(row: Any) -> str:
            wrong.append((row.number - 1, row.actual_columns))
            return "skip"

        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=self.names, use_threads=False, block_size=block_size),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=b'"' in data, invalid_row_handler=leave_out
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: types[name] for name in only},
                include_columns=only,
                null_values=GAPS,
                decimal_point=decimal,
            ),
        )
        return table, wrong


def read_dialect(stream: Any, file: str, layout: TextLayout, limits: Limits) -> Dialect:
    """The dialect of a file; it has no names if the file is empty."""
    return find_dialect(*first_rows(RowReader(stream, file, header=True, limits=limits)), file, layout, limits)


def first_rows(reader: RowReader) -> tuple[bytes, bytes]:
    """The first row, and those after it that tell what it is."""
    first = reader.take(1)[0]
    return first, reader.take(_ROWS_LOOKED_AT, _BYTES_LOOKED_AT)[0] if first else b""


def find_dialect(first: bytes, following: bytes, file: str, layout: TextLayout, limits: Limits) -> Dialect:
    """The dialect of a file that begins with these rows."""
    rows = [row for row in split_rows(following)[:_ROWS_LOOKED_AT] if len(row) <= _BYTES_LOOKED_AT]
    texts = [row.decode(errors="replace").strip("\r\n") for row in rows]
    try:
        head = first.decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file!r} is not text in UTF-8: {error}. Save it as UTF-8.") from error
    max_columns = limits.columns or TABLE_COLUMNS
    delimiters = _DELIMITERS if layout.delimiter is None else (layout.delimiter,)
    n_columns = 1 + max(map(head.count, delimiters))
    if n_columns > max_columns:
        raise beyond(f"The header of {file!r} names {n_columns:,} columns", "columns", max_columns)
    delimiter = layout.delimiter or _find_delimiter(head, texts)
    try:
        values = next(csv.reader([head], delimiter=delimiter), [])
    except csv.Error as error:
        raise FileFormatError(f"The header of {file!r} cannot be read: {error}") from error
    header = _is_header(values, _split(texts, delimiter), delimiter) if layout.header is None else layout.header
    names = [value.strip() for value in values] if header else [f"x{j}" for j in range(len(values))]
    return Dialect(tuple(names), delimiter, header)


def _split(texts: Sequence[str], delimiter: str) -> list[list[str]]:
    """The values of rows; rows that cannot be split are left out."""
    rows = []
    for text in texts:
        try:
            rows.append(next(csv.reader([text], delimiter=delimiter), []))
        except csv.Error:
            continue
    return rows


def _find_delimiter(head: str, texts: Sequence[str]) -> str:
    """The delimiter that splits the first row, and most of those that follow into as many values; else a comma."""
    best, most_rows = ",", 0
    for delimiter in _DELIMITERS:
        rows = _split([head, *texts], delimiter) if delimiter in head else []
        if rows and len(rows[0]) > 1:
            n_alike = sum(len(row) == len(rows[0]) for row in rows)
            if n_alike > most_rows:
                best, most_rows = delimiter, n_alike
    return best


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]], delimiter: str) -> bool:
    """Whether the first row names the columns.

    It does if it holds no number, or text above a column of numbers, or numbers that count: column numbers, years.
    """
    if delimiter != ",":  # numbers may have decimal commas
        first, *rows = [[value.replace(",", ".") for value in row] for row in (first, *rows)]
    numbers = [value.strip() for value in first if is_number(value)]
    if len(numbers) == len(first):
        return any(numbers == [str(start + i) for i in range(len(numbers))] for start in (0, 1))
    for j, value in enumerate(first):
        below = [row[j] for row in rows if len(row) == len(first) and row[j] not in GAPS]
        if value not in GAPS and not is_number(value) and below and all(map(is_number, below)):
            return True
    counts = [int(value) for value in numbers if value.isdecimal()]
    return not numbers or (1 < len(counts) == len(numbers) == counts[-1] - counts[0] + 1 and sorted(counts) == counts)


def is_number(value: str) -> bool:
    """Whether a text is a number."""
    try:
        return "_" not in value and float(value) is not None
    except ValueError:
        return False
