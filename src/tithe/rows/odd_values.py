"""Text in columns of numbers or dates, which is taken as a gap: counted, and told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.errors import warn_caller
from tithe.rows.schema import Column, TableSchema

_MAX_COLUMNS_SHOWN = 5


def with_odd_values(column: Column, distinct: Any, times: Array, parsed: Array) -> Column:
    """The column, with the number of its texts that were not parsed. ``times`` is how often each of them occurs."""
    odd = np.flatnonzero(np.isnan(parsed))
    return replace(column, n_odd=int(times[odd].sum()), odd_value=distinct[int(odd[0])].as_py()) if len(odd) else column


def warn_of_odd_values(schema: TableSchema) -> None:
    """Warn of texts that became gaps in columns that are used."""
    columns = [column for column in schema.used if column.n_odd]
    if columns:
        shown = "; ".join(f"{c.name!r} has {c.n_odd:,} such as {c.odd_value!r}" for c in columns[:_MAX_COLUMNS_SHOWN])
        warn_caller(f"Text in columns of numbers or dates is a gap. Of {schema.n_rows:,} rows, {shown}.")
