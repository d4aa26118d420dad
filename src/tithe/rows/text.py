"""Rows of text: plain or compressed files, zip archives and pipes, the layout of CSV, and spans of whole rows.

Arrow parses rows. Here they are counted and cut into spans, at newlines outside quotes, so that a span can be parsed by
itself, in any thread or process.
"""

from __future__ import annotations

import codecs
import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.core.params import Boolean, Constraint, OneOf, check_params
from tithe.rows.blocks import row_of
from tithe.rows.paths import DataFile
from tithe.rows.stores import ACCESS_ERRORS, TABLE_COLUMNS, Limits, beyond, is_visible
from tithe.rows.values import GAP_TEXTS

# texts that say that a value is missing; Arrow compares them as they are written
GAPS = tuple(sorted({*pyarrow.csv.ConvertOptions().null_values, *GAP_TEXTS, *map(str.upper, GAP_TEXTS), "NaT", "Null"}))
UNREADABLE = "\ufdd0"  # stands for bytes that are not UTF-8: no character of any text has this code

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}
_MEMBER_ENDINGS = (".csv", ".tsv", ".txt")
# zipfile raises RuntimeError for a member with a password, NotImplementedError for an unknown compression
_DAMAGES = (pa.ArrowException, OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 2**22  # bytes that are read at once
_DELIMITERS = ("\t", ";", "|", ",")  # where two fit equally well, the first: a comma may stand within a value
_SPELLINGS = {"tab": "\t", "\\t": "\t"}
_CONSTRAINTS: dict[str, Constraint] = {"header": Boolean() | OneOf(None)}
_ROWS_LOOKED_AT = 50
_BYTES_LOOKED_AT = 2**18

codecs.register_error("tithe.unreadable", lambda error: (UNREADABLE, error.end))  # type: ignore[attr-defined]


# -- files -----------------------------------------------------------------------------------------


class TextFile(NamedTuple):
    """A text file as it was found, or one inside a zip archive."""

    file: DataFile
    path: str  # in messages
    size: int  # on disk
    member: str = ""  # of an archive

    @property
    def compression(self) -> str | None:
        return _COMPRESSIONS.get(PurePosixPath(self.file.plain_path.lower()).suffix)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The bytes, uncompressed: an object with ``read``, and with ``seek`` where nothing is compressed."""
        try:
            if self.member:
                self.file.check()
                with self._opened_member() as stream:
                    yield stream
            else:
                with self.file.open() as file, pa.input_stream(file, compression=self.compression) as stream:
                    # of what is packed and damaged, Arrow's own ``read`` never gives memory back
                    unpacked = SimpleNamespace(read=lambda n_bytes: stream.read_buffer(n_bytes).to_pybytes())
                    yield unpacked if self.compression else stream
        except (FileFormatError, *ACCESS_ERRORS):
            raise
        except _DAMAGES as error:
            self.file.check()
            raise FileFormatError(f"{self.path!r} cannot be read: {error}") from error

    def _opened_member(self) -> Any:
        try:
            return _archive(self.file).open(self.member)
        except UnicodeDecodeError as error:  # zipfile decodes the name in front of the data, too
            raise zipfile.BadZipFile(f"its name in the archive is no text: {error}") from error


@lru_cache(maxsize=4)
def _archive(file: DataFile) -> zipfile.ZipFile:
    """An archive, held open: each opening reads the list of all its members. Threads may share it."""
    return zipfile.ZipFile(file.open())


def text_files(files: Sequence[DataFile]) -> list[TextFile]:
    """The text files, those inside zip archives one by one, in the order of the archive."""
    return [
        text
        for file in files
        for text in (
            _members(file) if file.plain_path.lower().endswith(".zip") else [TextFile(file, file.path, file.size)]
        )
    ]


def _members(file: DataFile) -> list[TextFile]:
    """The tables in an archive: files whose name says so, or the only file."""
    try:
        members = [member for member in _archive(file).infolist() if member.filename and not member.is_dir()]
    except _DAMAGES as error:
        raise FileFormatError(f"{file.path!r} is not a whole zip archive: {error}") from error
    visible = [m for m in members if all(map(is_visible, PurePosixPath(m.filename).parts))]
    tables = [m for m in visible if m.filename.lower().endswith(_MEMBER_ENDINGS)] or visible
    if not tables or (len(tables) > 1 and not tables[0].filename.lower().endswith(_MEMBER_ENDINGS)):
        raise FileFormatError(f"{file.path!r} holds no CSV: files in it must end in {', '.join(_MEMBER_ENDINGS)}.")
    return [TextFile(file, f"{file.path}/{m.filename}", m.compress_size, m.filename) for m in tables]


# -- layout ----------------------------------------------------------------------------------------


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
    """The layout of a file."""

    names: tuple[str, ...]  # of the columns, in order, without those of ``constants``; empty if the file is
    delimiter: str
    begin: int = 0  # of the rows: bytes of the byte-order mark, empty lines and the header
    constants: dict[str, pa.Scalar] = field(default_factory=dict)  # columns that its folders name


def file_dialect(text: TextFile, layout: TextLayout, limits: Limits) -> Dialect:
    """The dialect of a file."""
    if layout.delimiter is None and ".tsv" in text.path.lower():
        layout = replace(layout, delimiter="\t")
    with text.open() as stream:
        return find_dialect(read_beginning(stream.read, text.path, limits), text.path, layout, limits)


def read_beginning(read: Any, name: str, limits: Limits, n_rows: int = 0) -> bytes:
    """The bytes from which a dialect is told: the first row, as long as it may be, and more; at least ``n_rows``.

    ``read`` is a method of a stream; of a live one, each call gives what is there.
    """
    data = b""
    while more := read(max(_BYTES_LOOKED_AT, len(data))):
        data += more
        has_row, is_long = _first_row(data)[2], len(data) > limits.row_bytes
        if has_row and (is_long or not n_rows or data.count(b"\n") > n_rows):
            break
        if is_long and not has_row:
            raise beyond(f"{name!r}, header: the row is too long", "row_bytes", limits.row_bytes)
    return data


def _first_row(data: bytes) -> tuple[int, int, bool]:
    """Where the first row begins and ends, and whether a newline ends it."""
    start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
    start = len(data) - len(data[start:].lstrip(b"\r\n"))
    stops = _line_ends(data[start:], True)
    return (start, start + int(stops[0]), True) if len(stops) else (start, len(data), False)


def find_dialect(data: bytes, name: str, layout: TextLayout, limits: Limits) -> Dialect:
    """The dialect of a file that begins with these bytes."""
    start, end, _ = _first_row(data)
    following = data[end : end + _BYTES_LOOKED_AT]
    if len(following) == _BYTES_LOOKED_AT:
        following = following[: whole_rows(following) or None]
    text = following.decode(errors="replace")
    try:
        head = data[start:end].decode().strip("\r\n")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{name!r} is not text in UTF-8: {error}. Save it as UTF-8.") from error
    max_columns = limits.columns or TABLE_COLUMNS
    delimiters = _DELIMITERS if layout.delimiter is None else (layout.delimiter,)
    n_columns = 1 + max(map(head.count, delimiters))
    if n_columns > max_columns:
        raise beyond(f"The header of {name!r} names {n_columns:,} columns", "columns", max_columns)
    delimiter = layout.delimiter or _find_delimiter(head, text)
    try:
        values = next(csv.reader([head], delimiter=delimiter), [])
    except csv.Error as error:
        raise FileFormatError(f"The header of {name!r} cannot be read: {error}") from error
    header = _is_header(values, _split(text, delimiter), delimiter) if layout.header is None else layout.header
    names = [value.strip() for value in values] if header else [f"x{j}" for j in range(len(values))]
    return Dialect(tuple(names), delimiter, end if header else start)


def _split(text: str, delimiter: str) -> list[list[str]]:
    """The values of some rows; rows that cannot be split are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    while len(rows) < _ROWS_LOOKED_AT:
        try:
            row = next(reader, None)
        except csv.Error:
            continue
        if row is None:
            break
        if row:
            rows.append(row)
    return rows


def _find_delimiter(head: str, following: str) -> str:
    """The delimiter that splits the first row, and most of those that follow into as many values; else a comma."""
    best, most_rows = ",", 0
    for delimiter in _DELIMITERS:
        first = _split(head, delimiter)[:1] if delimiter in head else []
        if first and len(first[0]) > 1:
            n_alike = 1 + sum(len(row) == len(first[0]) for row in _split(following, delimiter))
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


# -- rows ------------------------------------------------------------------------------------------


class TextSpan(NamedTuple):
    """Consecutive rows of a file as text: ``first`` is the number of the first of them, ``start`` its offset."""

    data: bytes
    n_rows: int
    first: int = 0
    start: int = 0

    def halves(self) -> tuple[TextSpan, TextSpan]:
        """The first half of at least two rows, and the other."""
        middle = self.n_rows // 2
        at = int(row_ends(self.data)[middle - 1])
        rest = TextSpan(self.data[at:], self.n_rows - middle, self.first + middle, self.start + at)
        return TextSpan(self.data[:at], middle, self.first, self.start), rest


def whole_rows(data: bytes, quotes: bool = True) -> int:
    """Where the last row ends that a newline ends; 0 if there is none. A newline inside quotes ends no row."""
    end = data.rfind(b"\n") + 1
    if quotes and data.count(b'"', 0, end) % 2:
        stops = _line_ends(data, quotes)
        end = int(stops[-1]) if len(stops) else 0
    return end


def _line_ends(data: bytes, quotes: bool) -> Array:
    """The positions after newlines outside quotes."""
    codes = np.frombuffer(data, np.uint8)
    stops: Array = np.flatnonzero(codes == ord("\n")) + 1
    if quotes and len(stops) and b'"' in data:
        stops = stops[np.searchsorted(np.flatnonzero(codes == ord('"')), stops) % 2 == 0]
    return stops


def row_ends(data: bytes, quotes: bool = True) -> Array:
    """Where rows end: after a newline outside quotes, or at the end of the data. Empty lines are skipped."""
    stops = _line_ends(data, quotes)
    if len(data) and (not len(stops) or stops[-1] < len(data)):
        stops = np.append(stops, len(data))
    codes, lengths = np.frombuffer(data, np.uint8), np.diff(stops, prepend=0)
    last, before = codes[stops - 1], codes[np.maximum(stops - 2, 0)]
    empty = (lengths == 1) & ((last == ord("\n")) | (last == ord("\r")))
    empty |= (lengths == 2) & (last == ord("\n")) & (before == ord("\r"))
    rows: Array = stops[~empty]
    return rows


class TextReader:
    """The rows of a stream, in order.

    ``read`` gives the next bytes, at most as many as it is told; of a live stream, those that are there. ``at`` is the
    offset of the first of them in the file, ``ahead`` are bytes that were read before.
    """

    def __init__(
        self, read: Any, name: str, limits: Limits, *, at: int = 0, ahead: bytes = b"", quotes: bool = True
    ) -> None:
        self._read, self._name, self._longest, self._quotes = read, name, limits.row_bytes, quotes
        self._rest = ahead  # bytes after the last whole row
        self._piece, self._ends, self._from = b"", np.zeros(0, np.int64), 0
        self._at, self._n_rows = at, 0  # of the next row
        self._n_read = 0  # rows that were read

    def take(self, n_rows: int, n_bytes: int = 2**62, *, live: bool = False) -> TextSpan | None:
        """The next ``n_rows`` rows, or as many as are left, or as it takes to reach ``n_bytes``; None at the end.

        Of a ``live`` stream, those that are there, at least one.
        """
        pieces: list[bytes] = []
        n_taken = held = 0
        while n_taken < n_rows and held < n_bytes:
            if not len(self._ends):
                if (live and n_taken) or not self._next():
                    break
                continue
            enough = int(np.searchsorted(self._ends, self._from + n_bytes - held)) + 1
            n_more = min(len(self._ends), n_rows - n_taken, enough)
            stop = int(self._ends[n_more - 1])
            pieces.append(self._piece[self._from : stop])
            held, n_taken = held + stop - self._from, n_taken + n_more
            self._from, self._ends = stop, self._ends[n_more:]
        span = TextSpan(b"".join(pieces), n_taken, self._n_rows, self._at)
        self._at, self._n_rows = self._at + held, self._n_rows + n_taken
        return span if n_taken else None

    def _next(self) -> bool:
        """Read on until there are more whole rows; False if there are none left."""
        data, chunk = self._piece[self._from :] + self._rest, min(_CHUNK, self._longest)
        while True:
            self._set_piece(data, whole_rows(data, self._quotes))
            if len(self._ends):
                return True
            is_quoted = self._quotes and data.count(b'"') % 2 == 1
            if len(data) > self._longest:
                what = f"{row_of(self._name, self._n_read)}: the row is too long"
                error = beyond(what, "row_bytes", self._longest)
                raise FileFormatError(f"{error} Or is a closing quote missing?") if is_quoted else error
            more = self._read(max(chunk, len(data)))
            if not more and is_quoted:
                raise FileFormatError(f"{self._name!r} ends inside quotes: a closing quote is missing somewhere.")
            if not more:  # the last row may lack a newline
                self._set_piece(data, len(data))
                return len(self._ends) > 0
            data += more

    def _set_piece(self, data: bytes, end: int) -> None:
        self._piece, self._rest, self._from = data[:end], data[end:], 0
        n_blank = end - len(self._piece.lstrip(b"\r\n"))  # of which there may be very many
        self._ends = row_ends(self._piece[n_blank:], self._quotes) + n_blank
        self._n_read += len(self._ends)


def readable(data: bytes) -> bytes:
    """The text with a mark in place of each byte that is not UTF-8; the same object if all of it is."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return data.decode(errors="tithe.unreadable").encode()
    return data


def parse_rows(
    data: bytes, dialect: Dialect, types: Mapping[str, pa.DataType], *, block: int = 2**31 - 1, decimal: str = "."
) -> tuple[Any, list[tuple[int, int]]]:
    """Whole rows as a table of the columns in ``types``, without the rows that have too many or few values.

    Those are returned too: their positions, and how many values they have. The data are UTF-8: of a wrong row that is
    not, Arrow prints a complaint. Gaps are null.
    """
    wrong: list[tuple[int, int]] = []
    if not data.strip(b"\r\n"):
        return pa.schema(list(types.items())).empty_table(), wrong

    def leave_out(row: Any) -> str:
        wrong.append((row.number - 1, row.actual_columns))
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=dialect.names, use_threads=False, block_size=min(block, len(data))
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=b'"' in data, invalid_row_handler=leave_out
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(types),
            null_values=GAPS,
            strings_can_be_null=True,
            decimal_point=decimal,
        ),
    )
    return table, wrong
