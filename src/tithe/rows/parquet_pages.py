"""How large the pages of a Parquet file are, before they are unpacked.

A page is unpacked into memory as a whole, and a few kilobytes may stand for gigabytes. Its size stands in a header of
its own in front of it; the footer says where the first page of each column is. Both are structs in Thrift's compact
protocol, and are read here: pyarrow shows no header of a page, and ends the process if a column in a damaged footer is
looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tithe.core.errors import FileFormatError
from tithe.rows.limits import Limits
from tithe.rows.paths import DataFile, parquet_footer

_HEADER_BYTES = (128, 2**14, 2**24)  # tried one after another: Arrow refuses a header that is longer than the last
_UNPACKED, _PACKED = 2, 3  # fields of a page header: sizes in bytes
_ROW_GROUPS, _COLUMNS, _META = 4, 1, 3  # fields of the footer, of a row group, of a column
_PATH, _CODEC, _SIZE, _FIRST_PAGE, _DICTIONARY_PAGE = 3, 4, 7, 9, 11  # of what the footer says of a column
_HARMLESS = (0, 1)  # codecs: none, and snappy, which makes at most 22 bytes of one

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 24


class Chunk(NamedTuple):
    """A column of a row group: its name, where its pages begin and end, whether they may be larger than they look."""

    name: str
    start: int
    stop: int
    is_packed: bool


def check_pages(stream: Any, path: str, group: int, chunks: Sequence[Chunk], limits: Limits) -> None:
    """Refuse a row group with a page beyond the limits in one of the columns ``chunks``.

    A page that makes no sense is left to Arrow, which refuses it.
    """
    for chunk in chunks:
        if not chunk.is_packed:
            continue
        for unpacked, packed in page_sizes(stream, chunk):
            if unpacked > limits.unpacked_bytes:
                what = f"{path!r}, row group {group}: a page of column {chunk.name!r}"
                limits.check_unpacked(what, unpacked, packed)


def chunks_of(file: DataFile, group: int, names: Sequence[str]) -> list[Chunk]:
    """Columns of a row group."""
    wanted = set(names)
    groups = _all_chunks(file)
    return [chunk for chunk in groups[group] if chunk.name in wanted] if group < len(groups) else []


@lru_cache(maxsize=8)
def footer_of(file: DataFile) -> bytes:
    """The footer of a Parquet file, and the eight bytes after it."""
    with file.open() as stream:
        return parquet_footer(stream, file.size) + stream.read_at(8, max(0, file.size - 8))


@lru_cache(maxsize=8)
def _all_chunks(file: DataFile) -> list[list[Chunk]]:
    """The columns of every row group, from the footer."""
    try:
        groups = [group[_COLUMNS] for group in _struct(footer_of(file), 0, 0)[0][_ROW_GROUPS]]
        return [[_chunk(column[_META]) for column in group] for group in groups]
    except (LookupError, TypeError, ValueError) as error:
        raise FileFormatError(f"{file.path!r} is not a whole Parquet file: its footer cannot be read") from error


def _chunk(about: dict[int, Any]) -> Chunk:
    start, dictionary = about[_FIRST_PAGE], about.get(_DICTIONARY_PAGE, 0)
    start = min(start, dictionary) if dictionary > 0 else start
    name = b".".join(about[_PATH]).decode(errors="replace")
    return Chunk(name, start, start + about[_SIZE], about[_CODEC] not in _HARMLESS)


def page_sizes(file: Any, chunk: Chunk) -> Iterator[tuple[int, int]]:
    """Bytes of the pages of a column of a row group, unpacked and packed."""
    at = chunk.start
    while 0 < at < chunk.stop:
        header = _header(file, at)
        if header is None:
            return
        length, unpacked, packed = header
        yield unpacked, packed
        at += length + packed


def _header(file: Any, at: int) -> tuple[int, int, int] | None:
    """Bytes of the page header that stands there, of the page unpacked, and packed; None if it is no header."""
    for n_bytes in _HEADER_BYTES:
        file.seek(at)
        data = file.read(n_bytes)
        try:
            sizes, length = _struct(data, 0, 0)
            unpacked, packed = sizes[_UNPACKED], sizes[_PACKED]
            sound = isinstance(unpacked, int) and isinstance(packed, int) and packed >= 0
            return (length, unpacked, packed) if sound else None
        except IndexError:  # it goes on after these bytes
            if len(data) < n_bytes:
                return None
        except (KeyError, TypeError, ValueError):
            return None
    return None


# -- Thrift's compact protocol -----------------------------------------------------------------


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """The struct that stands there, values by field, and where it ends. IndexError: it does not end."""
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deeply")
    values: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        kind = head & 15
        if kind in _INTEGERS:
            values[field], at = _number(data, at)
        elif kind > _FALSE:
            values[field], at = _value(data, at, kind, depth)
    return values, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The signed number that stands there, seven bits a byte and the sign last, and where it ends."""
    value, at = _length(data, at)
    return (value >> 1) ^ -(value & 1), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number is too long")
    return value | byte << shift, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """The value of this kind that stands there, and where it ends."""
    if kind in _INTEGERS:
        return _number(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _length(data, at)
        return _piece(data, at, length)
    if kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        return _piece(data, at, 8 if kind == _DOUBLE else 1)
    if kind in (_LIST, _SET):
        head, at = data[at], at + 1
        n_values, at = (head >> 4, at) if head >> 4 < 15 else _length(data, at)
        return _values(data, at, [head & 15] * min(n_values, len(data) - at + 1), depth)
    if kind == _MAP:
        n_pairs, at = _length(data, at)
        if not n_pairs:
            return [], at
        kinds = data[at]
        return _values(data, at + 1, [kinds >> 4, kinds & 15] * min(n_pairs, len(data) - at), depth)
    raise ValueError(f"there is no type {kind}")


def _values(data: bytes, at: int, kinds: list[int], depth: int) -> tuple[list[Any], int]:
    values = []
    for kind in kinds:
        value, at = _value(data, at, kind, depth + 1)
        values.append(value)
    return values, at


def _piece(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise IndexError("the data end before the value does")
    return data[at : at + length], at + length
