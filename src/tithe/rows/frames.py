"""Frames and Arrow tables in memory, of which rows are made leaf by leaf."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.rows.all_rows import scaled_features
from tithe.rows.columns import Choice, common_fields, resolve_columns
from tithe.rows.frame_tables import frame_table
from tithe.rows.learn import spread_rows
from tithe.rows.leaves import SAMPLE_ROWS, unless_all_bad, usual_leaf_rows
from tithe.rows.paths import DataFile, identity_of
from tithe.rows.rows import BlockBuilder, row_of, target_classes

NAME = "the frame"


class FrameSource(Source):
    """Rows of a pandas or polars frame, or of an Arrow table.

    Parameters
    ----------
    frame : frame or table
    choice : Choice
    """

    def __init__(self, frame: Any, choice: Choice) -> None:
        self._table = frame_table(frame)
        self.n_rows = self._table.num_rows
        self.n_bytes = self._table.nbytes
        if not self.n_rows:
            raise ValueError("The frame has no rows.")
        fields = common_fields({NAME: self._table.schema}, choice)
        self._table = self._table.select(fields.names).unify_dictionaries()
        runs = [self._table.slice(first, last - first) for first, last in spread_rows(self.n_rows)]
        sample = [batch for run in runs for batch in run.to_batches()]
        self._columns = resolve_columns(self._table.schema, sample, choice)
        self.schema, self.uncertain = self._columns.schema, self._columns.uncertain
        self.is_sampled = self.n_rows > self.schema.n_rows
        if self.is_sampled and choice.schema is None and choice.scale == "standard":
            self.uncertain = scaled_features(self.schema)  # the rows are in memory: all spreads are measured
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)

    @cached_property
    def identity(self) -> str:
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, self._table.schema) as writer:
            writer.write_table(self._table.combine_chunks())
        values = hashlib.sha256(buffer.getvalue()).hexdigest()
        return identity_of("frame", [], {**self._columns.about, "values": values}, self.n_rows)

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return -(-self._table.num_rows // (self.leaf_rows if leaf_rows is None else leaf_rows))

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on."""
        size = self.leaf_rows if leaf_rows is None else leaf_rows
        tasks = (partial(self._load, start, size) for start in range(first * size, self._table.num_rows, size))
        return (
            tasks
            if first or not self._columns.leaves_rows_out
            else unless_all_bad(tasks, self, [DataFile(NAME, NAME, 0, 0)])
        )

    def _load(self, first: int, n_rows: int) -> Block:
        part = self._table.slice(first, n_rows)
        return self._block(part, np.arange(first, first + part.num_rows))

    def _block(self, rows: Any, ids: Array) -> Block:
        builder = BlockBuilder(self._columns, len(ids))
        for batch in rows.to_batches():
            builder.add(batch)
        return builder.block(ids, partial(row_of, NAME))

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, as they were given, and their ids."""
        passed = 0
        for batch in self._table.select(list(names)).to_batches():
            yield np.arange(passed, passed + batch.num_rows), batch
            passed += batch.num_rows

    def classes(self) -> Array:
        """All values of the target, in ascending order."""
        return target_classes(self._columns, lambda names: (batch for _, batch in self.numbered_batches(names)))

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of all."""
        n_rows = self._table.num_rows
        size = min(n_rows, SAMPLE_ROWS if size is None else size)
        ids = np.sort(rng.choice(n_rows, size, replace=False, shuffle=False))
        return self._block(self._table.take(pa.array(ids)), ids)
