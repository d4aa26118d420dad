"""Parts of a file in a store, fetched in few requests before they are read in small pieces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow as pa

_MAX_GAP = 2**20  # bytes: fetching so many in vain costs less than another request
_REQUEST_BYTES = 2**24
_MAX_HELD = 2**28


def hold_parts(file: Any, parts: Iterable[tuple[int, int]], *, n_threads: int) -> Any:
    """The file with the bytes between these offsets in memory; the file itself where these are too many.

    Parameters
    ----------
    file : pyarrow.NativeFile
        It is closed with the one that is returned.
    parts : iterable of (start, stop)
    n_threads : int
        Requests that are made at the same time.
    """
    spans = _spans(parts, file.size())
    if not spans or sum(stop - start for start, stop in spans) > _MAX_HELD:
        return file
    return pa.PythonFile(_HeldParts(file, spans, n_threads), "r")


def _spans(parts: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The parts inside a file in ascending order, neighbours joined."""
    spans: list[tuple[int, int]] = []
    for start, stop in sorted((max(0, start), min(stop, size)) for start, stop in parts):
        if start >= stop:  # a damaged file says so
            continue
        if spans and start <= spans[-1][1] + _MAX_GAP:
            spans[-1] = spans[-1][0], max(stop, spans[-1][1])
        else:
            spans.append((start, stop))
    return spans


class _HeldParts:
    """A file for Arrow that reads from memory where it can."""

    def __init__(self, file: Any, spans: list[tuple[int, int]], n_threads: int) -> None:
        self._file = file
        self._position = 0
        self._size = file.size()
        self._starts = [start for start, _ in spans]
        self._held = [bytearray(stop - start) for start, stop in spans]
        requests = [
            (memoryview(held)[first:last], start + first)
            for start, held in zip(self._starts, self._held, strict=True)
            for first, last in pairwise([*range(0, len(held), _REQUEST_BYTES), len(held)])
        ]
        if n_threads == 1 or len(requests) == 1:
            for request in requests:
                self._fetch(request)
        else:
            with ThreadPoolExecutor(min(n_threads, len(requests))) as threads:
                list(threads.map(self._fetch, requests))

    def _fetch(self, request: tuple[memoryview, int]) -> None:
        room, start = request
        data = self._file.read_at(len(room), start)
        if len(data) != len(room):
            raise OSError(f"{len(data)} bytes came instead of {len(room)}")
        room[:] = data

    def read(self, n_bytes: int = -1) -> Any:
        stop = self._size if n_bytes < 0 else min(self._size, self._position + n_bytes)
        n_bytes = max(0, stop - self._position)
        number = bisect_right(self._starts, self._position) - 1
        offset = self._position - self._starts[number] if number >= 0 else -1
        if number >= 0 and offset + n_bytes <= len(self._held[number]):
            data: Any = bytes(memoryview(self._held[number])[offset : offset + n_bytes])
        else:
            data = self._read_from_store(n_bytes)
        self._position += len(data)
        return data

    def _read_from_store(self, n_bytes: int) -> Any:
        return self._file.read_at(n_bytes, self._position)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)
