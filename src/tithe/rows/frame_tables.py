"""Frames of pandas and polars, and Arrow tables, as Arrow tables."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import pyarrow as pa


def frame_table(frame: Any) -> pa.Table:
    """A frame as an Arrow table, without its index. Columns of mixed Python objects become text.

    >>> import pandas as pd
    >>> frame_table(pd.DataFrame({"a": [1, "?"], "b": [1.5, None]})).to_pydict()
    {'a': ['1', '?'], 'b': [1.5, None]}
    """
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    named = nw.from_native(frame, eager_only=True)
    return pa.table([_array(series) for series in named.iter_columns()], names=[str(name) for name in named.columns])


def _array(series: Any) -> Any:
    if series.implementation.is_polars():
        return series.to_arrow()
    native = series.to_native()
    try:
        return pa.array(native, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        missing = series.is_null().to_list()
        return pa.array([None if gap else str(value) for value, gap in zip(native, missing, strict=True)], pa.string())
