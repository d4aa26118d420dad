"""Frames as rows of a learner: by the schema that it was fitted with, or by one that is learned from them."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.utils.validation import validate_data

from tithe.core.contracts import Source
from tithe.core.data import Block
from tithe.fit.results import Described
from tithe.rows.arrays import as_block, is_frame
from tithe.rows.learn import feature_sums, learn_from_all_rows, learn_schema, scaled_features, value_counts
from tithe.rows.options import TableOptions
from tithe.rows.schema import TableSchema, frame_table


def checked_block(learner: Any, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
    """A checked block. Schema, names and number of columns are stored (``reset``) or compared.

    A frame of finite numbers is taken as it is, as by scikit-learn. One with text, dates or gaps becomes rows by a
    schema, which is stored; every frame is encoded by that schema from then on.
    """
    schema = None if reset else learner.schema_
    if is_frame(X) and (schema is not None or (reset and _needs_schema(X))):
        table = frame_table(X)
        if schema is None:
            schema = _schema_of_table(table)
            set_schema(learner, schema)
        return as_block(schema.encode(table), y, sample_weight)
    block = as_block(X, y, sample_weight)
    if reset:
        learner.schema_ = None
    validate_data(learner, X if hasattr(X, "shape") else block.X, reset=reset, skip_check_array=True)
    return block


def block_of_rows(X: Any, y: Any = None, sample_weight: Any = None) -> Block:
    """A checked block of an array or a frame, the latter by a schema of its own where it holds more than numbers."""
    if is_frame(X) and _needs_schema(X):
        table = frame_table(X)
        X = _schema_of_table(table).encode(table)
    return as_block(X, y, sample_weight)


def _schema_of_table(table: Any) -> TableSchema:
    schema = learn_schema(table)
    if table.num_rows > schema.n_rows:  # it was learned from a sample
        return learn_from_all_rows(
            schema,
            TableOptions(),
            scaled_features(schema),
            lambda features: [feature_sums(schema.encode(table), features)],
            lambda names, na: (value_counts(batch, names, na) for batch in table.select(list(names)).to_batches()),
        )
    return schema


def set_schema(learner: Described, schema: TableSchema | None) -> None:
    """Store a schema, and the names and number of its features."""
    learner.schema_ = schema
    if schema is not None:
        learner.n_features_in_ = schema.n_features
        learner.feature_names_in_ = np.asarray(schema.feature_names, dtype=object)


def check_same_schema(learner: Described, source: Source) -> None:
    """Refuse a source whose columns became features in another way than those of the fit."""
    schema = learner.schema_
    if schema is not None and source.schema is not None and not schema.same_features(source.schema):
        raise ValueError(
            "The columns of this source became features by another schema than in the fit: scales or values differ. "
            "Open it with that of the model: open_dataset(..., schema=model.schema_)."
        )


def _needs_schema(frame: Any) -> bool:
    """Whether a frame holds anything but finite numbers and Booleans."""
    for column in nw.from_native(frame, eager_only=True).iter_columns():  # names may be numbers
        dtype = column.dtype
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            return True
        if dtype.is_float() and not np.isfinite(np.sum(column.to_numpy(), dtype=np.float64)):
            return True
        if not dtype.is_float() and column.null_count():
            return True
    return False
