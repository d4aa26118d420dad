"""Frames in memory as rows of X: whether a schema is needed, and how it is learned and applied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.params import ENCODE, check_value
from tithe.rows.arrays import holds_numbers, is_frame, n_gaps, named_columns
from tithe.rows.learn import (
    learn_from_all_rows,
    learn_schema,
    scaled_features,
    scaled_numbers,
    sums_of,
    value_counts,
)
from tithe.rows.schema import TableSchema, far_outside, frame_table
from tithe.rows.uses import ColumnWatch, TableOptions, announce, announce_unlike

_MAX_NAMED = 8  # columns in a message


def check_encode(encode: Any) -> None:
    """Refuse what is no value of a parameter ``encode``."""
    check_value("encode", encode, ENCODE)


def frame_schema(X: Any, encode: Any, y: Any = None, *, takes_gaps: bool = False) -> TableSchema | None:
    """The schema by which a frame becomes rows, with a warning of what it loses; None for rows taken as they are.

    Parameters
    ----------
    X : frame, or anything else, which has no schema
    encode : {"auto", "strict", True, False}
        ``"auto"``: a frame of numbers has none; one with text, dates or lists has. ``"strict"``: the same, and what is
        lost is an error. True: every frame has; False: none.
    y : array-like, optional
        The target.
    takes_gaps : bool
        Whether a frame of numbers with gaps has one as well, because the learner makes something of gaps.
    """
    check_encode(encode)
    if encode is False or not is_frame(X) or not (encode is True or _needs_schema(X, takes_gaps)):
        return None
    table = frame_table(X)
    schema = learn_schema(table, labels=_labels(y, table.num_rows))
    if table.num_rows > schema.n_rows:  # it was learned from a sample
        schema = learn_from_all_rows(
            schema,
            TableOptions(),
            scaled_features(schema),
            lambda features: [sums_of(scaled_numbers(schema, table, features))],
            lambda names, na: (value_counts(batch, names, na) for batch in table.select(list(names)).to_batches()),
        )
    announce(schema.losses(), notes=schema.notes(), strict=encode == "strict", switch="encode='strict'")
    return schema


def _labels(y: Any, n_rows: int) -> Any:
    """The target as an Arrow array; None if it is none, which is said where rows are checked."""
    if y is None or np.shape(y) != (n_rows,):
        return None
    try:
        return pa.array(np.asarray(y), from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError):  # such as labels of several kinds
        return None


def later_rows(schema: TableSchema, frame: Any) -> Any:
    """The rows of X of a frame by an earlier schema, with a warning of what is unlike the rows it was learned from."""
    table = frame_table(frame)
    rows = schema.encode(table)
    announce_unlike(schema.watch(table))
    return rows


def refuse_other_width(schema: TableSchema | None, n_features: int, what: str = "the rows before came from") -> None:
    """Refuse an array that has not the features of a table, where such rows are expected."""
    if schema is None or n_features == schema.n_features:
        return
    names = ", ".join(schema.reads[:_MAX_NAMED]) + (", ..." if len(schema.reads) > _MAX_NAMED else "")
    raise ValueError(
        f"X has {n_features} features without names, and {what} a table: give a frame with its "
        f"{len(schema.reads)} columns ({names}), which become {schema.n_features} features."
    )


def ranges_of(rows: Block | Source) -> Array | None:
    """The smallest and the largest value of each column (2, d); None of rows that are not dense in memory."""
    if not (isinstance(rows, Block) and isinstance(rows.X, np.ndarray)):
        return None
    return np.array([rows.X.min(axis=0), rows.X.max(axis=0)], np.float64)


def watch_ranges(names: Any, block: Block, ranges: Array) -> None:
    """Warn of numbers far outside the ranges of the training rows."""
    far = far_outside(block.X, *ranges).sum(axis=0)
    pairs = zip(names, far.tolist(), strict=True)
    announce_unlike([ColumnWatch(str(name), len(block), outside=n) for name, n in pairs])


def _needs_schema(frame: Any, takes_gaps: bool) -> bool:
    """Whether a frame holds anything but numbers and Booleans; with ``takes_gaps``, but finite ones."""
    columns = list(named_columns(frame).iter_columns())  # names may be numbers
    if not all(map(holds_numbers, columns)):
        return True
    return takes_gaps and any(map(n_gaps, columns))
