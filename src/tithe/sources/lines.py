"""Text in blocks of whole rows, cut without parsing it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.errors import FileFormatError

_CHUNK = 2**22
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


class RowReader:
    """Rows of a stream of text. A row ends at a newline that stands outside quotes; empty lines are none.

    Parameters
    ----------
    stream : object with ``read(n_bytes)``
    name : str
        What errors call it.
    quotes : bool
        Whether quotes mean anything.
    live : bool
        Take what is there rather than wait for more; the stream has ``read1`` then.
    """

    def __init__(self, stream: Any, name: str, *, quotes: bool = True, live: bool = False) -> None:
        self._read_some = stream.read1 if live else stream.read
        self._live = live
        self._name = name
        self._quotes = quotes
        self._chunk = b""
        self._start = 0
        self._ends = np.zeros(0, np.int64)
        self._before = b"\0\n"
        self._quoted = False

    def take(self, n_rows: int) -> tuple[bytes, int]:
        """The next ``n_rows`` rows (of a live stream at least one) and how many there were; ``(b"", 0)`` at the end."""
        pieces: list[bytes] = []
        wanted = n_rows
        if not wanted:
            return b"", 0
        while len(self._ends) < wanted:
            if self._live and len(self._ends):
                wanted = n_rows = len(self._ends)
                break
            pieces.append(self._chunk[self._start :])
            wanted -= len(self._ends)
            if not self._read():
                return self._rest(b"".join(pieces), n_rows - wanted)
        stop = int(self._ends[wanted - 1]) + 1
        pieces.append(self._chunk[self._start : stop])
        self._start, self._ends = stop, self._ends[wanted:]
        return b"".join(pieces), n_rows

    def _read(self) -> bool:
        """The next chunk, and where rows end in it."""
        chunk = self._chunk = self._read_some(_CHUNK)
        self._start = 0
        codes = np.frombuffer(self._before + chunk, np.uint8)
        ends = np.flatnonzero(codes[2:] == _NEWLINE)
        if self._quotes and chunk and (self._quoted or b'"' in chunk):
            inside = np.logical_xor.accumulate(codes[2:] == _QUOTE) ^ self._quoted
            ends = ends[~inside[ends]]
            self._quoted = bool(inside[-1])
        one, two = codes[ends + 1], codes[ends]  # bytes before the newline
        empty = (one == _NEWLINE) | ((one == _RETURN) & (two == _NEWLINE))
        self._ends = ends[~empty]
        self._before = codes[-2:].tobytes()
        return len(chunk) > 0

    def _rest(self, data: bytes, n_rows: int) -> tuple[bytes, int]:
        """What is left at the end of the stream; its last row may lack a newline."""
        if self._quoted:
            raise FileFormatError(f"{self._name!r} ends inside quotes: a closing quote is missing somewhere.")
        self._chunk, self._ends = b"", np.zeros(0, np.int64)
        unfinished = bool(data.rpartition(b"\n")[2].strip(b"\r"))
        return data, n_rows + unfinished
