"""The column that names the rows of a table (``--row-id``), beside what was computed for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click


class RowIds:
    """The values of a column of files, handed out in the order of the rows. A row that could not be read has none.

    Parameters
    ----------
    source : Source
    name : str
    """

    def __init__(self, source: Any, name: str) -> None:
        if not source.replayable:
            raise click.UsageError("--row-id: rows that come only once are not read again. Save them to a file first.")
        self.name = name
        self._arrays = _all_positions(source, name)
        self._held: Any = None

    def take(self, n_rows: int) -> Any:
        """The values of the next rows, as an Arrow array."""
        import pyarrow as pa

        while self._held is None or len(self._held) < n_rows:
            following = next(self._arrays, None)
            if following is None:  # the last rows could not be read
                following = pa.nulls(n_rows, pa.string() if self._held is None else self._held.type)
            self._held = following if self._held is None else pa.concat_arrays([self._held, following])
        taken, self._held = self._held[:n_rows], self._held[n_rows:]
        return taken

    def added_to(self, table: Any) -> Any:
        """The table of the next rows with their ids beside the numbers of the rows, or in place of these."""
        if self.name == "row_id":
            return table.set_column(0, self.name, self.take(table.num_rows))
        if self.name in table.column_names:
            raise ValueError(f"There is a column {self.name!r} of results already: rename that of --row-id.")
        return table.add_column(1, self.name, self.take(table.num_rows))


def _all_positions(source: Any, name: str) -> Iterator[Any]:
    """The values of all rows, a null for each that could not be read."""
    import numpy as np
    import pyarrow as pa

    first = 0
    for ids, batch in source.numbered_batches([name]):
        if not len(ids):
            continue
        places = np.full(int(ids[-1]) + 1 - first, -1)
        places[ids - first] = np.arange(len(ids))
        values = batch.column(name)
        values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        yield values.take(pa.array(np.maximum(places, 0), mask=places < 0))
        first = int(ids[-1]) + 1


def names_of_rows(source: Any, name: str | None, row_ids: Sequence[int]) -> dict[int, str]:
    """The values of the column for some rows."""
    import numpy as np

    if name is None or not source.replayable:
        return {}
    wanted = np.array(sorted(row_ids), np.int64)
    names: dict[int, str] = {}
    for ids, batch in source.numbered_batches([name]):
        at = np.flatnonzero(np.isin(ids, wanted))
        names |= dict(zip(ids[at].tolist(), map(str, batch.column(name).take(at).to_pylist()), strict=True))
    return names
