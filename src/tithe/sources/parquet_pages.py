"""How large the pages of a Parquet file are, before they are unpacked.

A page is unpacked into memory as a whole, and a few kilobytes may stand for gigabytes. The footer says only how large
all pages of a column are together; each page has a header of its own, a struct in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tithe.sources.limits import Limits

_HEADER_BYTES = (128, 2**14, 2**24)  # tried one after another: Arrow refuses a header that is longer than the last
_UNPACKED, _PACKED = 2, 3  # fields of a page header: sizes in bytes
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
_DEEPEST = 16


def check_pages(path: str, group: Any, names: Sequence[str], what: str, limits: Limits) -> None:
    """Refuse a row group with a page beyond the limits in one of the columns ``names``.

    ``group`` is what the footer says of it, and ``what`` names it. A page that makes no sense is left to who reads it.
    """
    wanted = set(names)
    with open(path, "rb", buffering=0) as file:
        for i in range(group.num_columns):
            column = group.column(i)
            if column.path_in_schema in wanted and column.compression != "UNCOMPRESSED":
                for unpacked, packed in _page_sizes(file, column):
                    if unpacked > limits.unpacked_bytes:
                        limits.check_unpacked(f"{what}: a page of column {column.path_in_schema!r}", unpacked, packed)


def _page_sizes(file: Any, column: Any) -> Iterator[tuple[int, int]]:
    """Bytes of the pages of a column of a row group, unpacked and packed."""
    at = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        at = min(at, column.dictionary_page_offset)
    end = at + column.total_compressed_size
    while 0 < at < end:
        header = _header(file, at)
        if header is None or header[1] < 0 or header[2] < 0:
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
            return length, sizes.get(_UNPACKED, -1), sizes.get(_PACKED, -1)
        except IndexError:  # it goes on after these bytes
            if len(data) < n_bytes:
                return None
        except ValueError:
            return None
    return None


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, int], int]:
    """Whole numbers of the struct that stands there, by field, and where it ends; all else is passed over."""
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deeply")
    numbers, field = {}, 0
    while head := data[at]:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        kind = head & 15
        if kind in _INTEGERS:
            value, at = _number(data, at)
            numbers[field] = (value >> 1) ^ -(value & 1)
        else:
            at = _after(data, at, kind, depth)
    return numbers, at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number that stands there, seven bits a byte, and where it ends."""
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("a number is too long")
    return value | byte << shift, at + 1


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a field that is not a whole number ends."""
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)[1]
    if kind == _BINARY:
        length, at = _number(data, at)
        return at + length
    if kind in (_BYTE, _DOUBLE):
        return at + (1 if kind == _BYTE else 8)
    if kind not in (_LIST, _SET):
        raise ValueError("a page header has no maps, and no other types")
    head, at = data[at], at + 1
    n_values = head >> 4
    if n_values == 15:
        n_values, at = _number(data, at)
    for _ in range(n_values):
        at = _after_element(data, at, head & 15, depth)
    return at


def _after_element(data: bytes, at: int, kind: int, depth: int) -> int:
    if kind in _INTEGERS:
        return _number(data, at)[1]
    if kind in (_TRUE, _FALSE):
        kind = _BYTE  # in a list they take one
    if at >= len(data):
        raise IndexError("the list goes on")
    return _after(data, at, kind, depth + 1)
