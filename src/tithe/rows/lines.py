"""Text in blocks of whole rows, cut without parsing it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.rows.limits import Limits, beyond
from tithe.rows.rows import row_of

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_CHUNK = 2**22
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_START = b"\0\n"  # as if an empty line stood before the first
_ANY_BYTES = 2**62


class RowReader:
    """Rows of a stream of text. A row ends at a newline that stands outside quotes; empty lines are none.

    Parameters
    ----------
    stream : object with ``read(n_bytes)``
    name : str
        What errors call it.
    header : bool
        Whether the first row is a header: errors then count from the next.
    quotes : bool
        Whether quotes mean anything.
    live : bool
        Take what is there rather than wait for more; the stream has ``read1`` then.
    limits : Limits
        Its ``row_bytes`` hold for a row together with the empty lines before it.
    """

    def __init__(
        self,
        stream: Any,
        name: str,
        *,
        header: bool = False,
        quotes: bool = True,
        live: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._read_some = stream.read1 if live else stream.read
        self._live = live
        self._name = name
        self._quotes = quotes
        self._longest = (limits or Limits()).row_bytes
        self._chunk = b""
        self._start = 0
        self._ends = np.zeros(0, np.int64)
        self._before = _START
        self._quoted = False
        self._at_start = True
        self._row = -1 if header else 0  # the row that has not ended yet
        self._row_bytes = 0  # of it that were read
        self.n_bytes_taken = 0

    def take(self, n_rows: int, n_bytes: int = _ANY_BYTES) -> tuple[bytes, int]:
        """The next rows, and how many there are; ``(b"", 0)`` at the end.

        They are ``n_rows``, or as many as it takes to reach ``n_bytes``; of a live stream those that are there, at
        least one. A byte-order mark in front of the first is left out.
        """
        data, n_taken = self._take(n_rows, n_bytes)
        self.n_bytes_taken += len(data)
        if self._at_start:
            data, self._at_start = data.removeprefix(BYTE_ORDER_MARK), False
        return data, n_taken

    def _take(self, n_rows: int, n_bytes: int) -> tuple[bytes, int]:
        pieces: list[bytes] = []
        n_taken = held = 0
        while n_taken < n_rows:
            if not len(self._ends):
                if self._live and n_taken:
                    break
                pieces.append(self._chunk[self._start :])
                held += len(pieces[-1])
                if not self._read():
                    return self._rest(b"".join(pieces), n_taken)
                continue
            enough = int(np.searchsorted(self._ends, self._start + n_bytes - held - 1)) + 1
            n_more = min(len(self._ends), n_rows - n_taken, enough)
            stop = int(self._ends[n_more - 1]) + 1
            pieces.append(self._chunk[self._start : stop])
            held += stop - self._start
            n_taken += n_more
            self._start, self._ends = stop, self._ends[n_more:]
            if held >= n_bytes:
                break
        return b"".join(pieces), n_taken

    def _read(self) -> bool:
        """The next chunk, and where rows end in it."""
        chunk = self._chunk = self._read_some(_CHUNK)
        self._start = 0
        self._ends, self._quoted = row_ends(chunk, self._before, self._quotes, self._quoted)
        self._before = (self._before + chunk[-2:])[-2:]
        self._check_lengths()
        return len(chunk) > 0

    def _check_lengths(self) -> None:
        """Refuse a row that is too long before all of it is held."""
        lengths = np.diff(self._ends, prepend=-1 - self._row_bytes, append=len(self._chunk) - 1)
        long = lengths > self._longest
        if long.any():
            row = self._row + int(np.argmax(long))
            where = row_of(self._name, row) if row >= 0 else f"{self._name!r}, header"
            quote = " Or is a closing quote missing?" * (self._quotes and self._quoted)
            raise FileFormatError(f"{beyond(f'{where}: the row is too long', 'row_bytes', self._longest)}{quote}")
        self._row += len(self._ends)
        self._row_bytes = int(lengths[-1])

    def _rest(self, data: bytes, n_rows: int) -> tuple[bytes, int]:
        """What is left at the end of the stream; its last row may lack a newline."""
        if self._quoted:
            raise FileFormatError(f"{self._name!r} ends inside quotes: a closing quote is missing somewhere.")
        self._chunk, self._ends = b"", np.zeros(0, np.int64)
        unfinished = bool(data.rpartition(b"\n")[2].strip(b"\r"))
        return data, n_rows + unfinished


def row_ends(chunk: bytes, before: bytes, quotes: bool, quoted: bool) -> tuple[Array, bool]:
    """Where rows end in a chunk, and whether it ends inside quotes.

    ``before`` are the two bytes that precede it, and ``quoted`` says whether it begins inside quotes.
    """
    codes = np.frombuffer(before + chunk, np.uint8)
    ends = np.flatnonzero(codes[2:] == _NEWLINE)
    if quotes and chunk and (quoted or b'"' in chunk):
        inside = np.logical_xor.accumulate(codes[2:] == _QUOTE) ^ quoted
        ends = ends[~inside[ends]]
        quoted = bool(inside[-1])
    last_byte, byte_before = codes[ends + 1], codes[ends]  # bytes before the newline
    empty = (last_byte == _NEWLINE) | ((last_byte == _RETURN) & (byte_before == _NEWLINE))
    return ends[~empty], quoted


def split_rows(data: bytes) -> list[bytes]:
    """The rows of a block that `RowReader.take` gave, each with its newline and the empty lines before it."""
    stops = row_ends(data, _START, True, False)[0] + 1
    rows = [data[start:stop] for start, stop in zip([0, *stops[:-1]], stops, strict=True)] if len(stops) else []
    rest = data[int(stops[-1]) if len(stops) else 0 :]
    return [*rows, rest] if rest.strip(b"\r\n") else rows


def ambiguous_rows(data: bytes, delimiter: str) -> Array:
    """Positions of the rows of such a block that another parser may split elsewhere.

    They have a quote in the middle of a value that does not begin with one, or a return without a newline.
    """
    codes = np.frombuffer(data, np.uint8)
    is_quote = codes == _QUOTE
    inside = np.logical_xor.accumulate(is_quote)
    before, after = np.append(_NEWLINE, codes[:-1]), np.append(codes[1:], _NEWLINE)
    misplaced = is_quote & inside & ~np.isin(before, [ord(delimiter), _NEWLINE, _QUOTE])
    misplaced |= (codes == _RETURN) & ~inside & (after != _NEWLINE)
    rows: Array = np.unique(np.searchsorted(row_ends(data, _START, True, False)[0], np.flatnonzero(misplaced)))
    return rows
