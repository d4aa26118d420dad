"""Streams of Arrow record batches, cut to wanted numbers of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.rows.columns import Columns
from tithe.rows.rows import BlockBuilder, row_of


class BatchCutter:
    """Takes rows from a stream of record batches.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Read as far as rows are asked for.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches: Iterator[Any] = iter(batches)
        self._ahead: deque[Any] = deque()

    def look(self, n_rows: int) -> list[Any]:
        """Batches with at least ``n_rows`` rows, or all that are left, which remain to be taken."""
        while sum(batch.num_rows for batch in self._ahead) < n_rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append(batch)
        return list(self._ahead)

    def take(self, n_rows: int, *, live: bool = False) -> list[Any]:
        """The next ``n_rows`` rows, or as many as are left, in batches; of a ``live`` stream those of one batch."""
        taken: list[Any] = []
        missing = n_rows
        while missing and not (live and taken):
            batch = self._ahead.popleft() if self._ahead else next(self._batches, None)
            if batch is None:
                break
            if not batch.num_rows:
                continue
            taken.append(batch[:missing])
            if batch.num_rows > missing:
                self._ahead.appendleft(batch[missing:])
            missing -= taken[-1].num_rows
        return taken


def block_of_batches(columns: Columns, batches: Sequence[Any], ids: Array, name: str) -> Block:
    """The rows of batches, checked, as a block. ``name`` is what messages call the stream."""
    rows = BlockBuilder(columns, len(ids))
    try:
        for batch in batches:
            batch.validate(full=True)  # offsets and codes that lie outside would be read as they are
            rows.add(batch)
    except (ValueError, pa.ArrowException) as error:
        raise FileFormatError(f"From {row_of(name, int(ids[0]))} on: {error}") from error
    return rows.block(ids, partial(row_of, name))
