"""Rows of X as a frame again, with gaps and categories, for estimators that treat these themselves."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.rows.categories import CategoryEncoding
from tithe.rows.kinds import DenseEncoding
from tithe.rows.schema import Column, TableSchema


def can_view() -> bool:
    """Whether pandas is installed, whose frames have categories."""
    return find_spec("pandas") is not None


def frame_view(schema: TableSchema, X: Any) -> Any:
    """A pandas frame of the columns that a schema made the rows of X from.

    Numbers and dates have the units of their columns, and NaN where a gap was filled and marked. A category is one
    column of pandas categories; a gap, or a value that has no feature, has none. Words, and values that were hashed,
    are numbers as in X. So the frame is the same whatever the rows were read from.
    """
    import pandas as pd

    if sparse.issparse(X):
        return pd.concat([frame_view(schema, X[i : i + 1024].toarray()) for i in range(0, X.shape[0], 1024)])
    units = schema.original_units(X)
    frame: dict[str, Any] = {}
    for first, column in zip(schema.first_features, schema.used, strict=True):
        frame |= _columns(column, units[:, first : first + column.width])
    return pd.DataFrame(frame, index=pd.RangeIndex(len(units)))


def _columns(column: Column, features: Array) -> dict[str, Any]:
    import pandas as pd

    encoding = column.encoding
    assert encoding is not None
    names = encoding.names(column.name)
    if isinstance(encoding, DenseEncoding):
        if encoding.marked:
            gaps, names = features[:, -1] > 0, names[:-1]
            features = np.where(gaps[:, None], np.nan, features[:, :-1])
        return dict(zip(names, features.T, strict=True))
    if not isinstance(encoding, CategoryEncoding) or encoding.n_hashes:
        return dict(zip(names, features.T, strict=True))
    n_values = len(encoding.values) + encoding.other
    values = [name.removeprefix(f"{column.name}=") for name in names[:n_values]]
    present = features[:, :n_values] > 0
    codes = np.where(present.any(axis=1), present.argmax(axis=1), -1) if n_values else np.full(len(features), -1)
    return {column.name: pd.Categorical.from_codes(codes, values)}
