"""Rows as they were given: the rows of a frame that stand behind numeric rows of a coreset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import pyarrow as pa

from tithe.core.data import Array, Block
from tithe.core.state_checks import Each, Optional, Text
from tithe.fit.fitted import FittedAttribute
from tithe.fit.tables import schema_of
from tithe.meta.other_estimators import takes_weights
from tithe.rows.arrays import is_frame
from tithe.rows.schema import TableSchema, frame_table, frame_view


@dataclass(frozen=True, kw_only=True)
class OriginalRows:
    """What an estimator gets in place of numeric rows, and further arguments of its ``fit``.

    Parameters
    ----------
    frame : frame or None
        The frame that the numeric rows were made from; their ids are positions in it.
    schema : TableSchema or None
        If there is no frame: the schema by which numeric rows become a frame again. None: numeric rows are taken.
    fit_params : mapping
    """

    frame: Any = None
    schema: TableSchema | None = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)

    def of(self, block: Block) -> Any:
        """The original rows of a block."""
        if self.frame is not None:
            return rows_at(self.frame, block.row_ids())
        return block.X if self.schema is None else frame_view(self.schema, block.X)

    def arguments(self) -> dict[str, Any]:
        """Further arguments of ``fit``; frames of an ``eval_set`` become rows as those to learn from."""
        params = dict(self.fit_params)
        if self.schema is not None and "eval_set" in params:
            params["eval_set"] = [(self._viewed(rows), labels) for rows, labels in params["eval_set"]]
        return params

    def _viewed(self, rows: Any) -> Any:
        assert self.schema is not None
        return frame_view(self.schema, self.schema.encode(frame_table(rows))) if is_frame(rows) else rows


def rows_at(frame: Any, positions: Array) -> Any:
    """Some rows of a frame, as a frame of the same kind."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.take(positions)
    return nw.from_native(frame, eager_only=True)[positions].to_native()


def columns_of(frame: Any) -> list[str]:
    """The names of the columns of a frame."""
    return [
        str(name) for name in (frame.schema.names if isinstance(frame, (pa.Table, pa.RecordBatch)) else frame.columns)
    ]


def selected(frame: Any, names: list[str]) -> Any:
    """The frame with these columns in this order. Raises ValueError if one is missing."""
    missing = [name for name in names if name not in columns_of(frame)]
    if missing:
        raise ValueError(f"The feature names should match those of the fit: there is no column {missing[0]!r}.")
    if columns_of(frame) == names:
        return frame
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.select(names)
    return nw.from_native(frame, eager_only=True).select(names).to_native()


class TakesFrames:
    """A learner whose estimator gets the rows of a frame as they are, while the rows are reduced as numbers."""

    estimator_: Any
    _checked: Callable[..., Block]
    _columns = FittedAttribute[list[str] | None](Optional(Each(Text())))  # of the frame that was fitted on
    _is_viewed = FittedAttribute[bool]()  # whether it was fitted on a frame that was made from numeric rows

    def _given(self, X: Any) -> OriginalRows:
        """What the estimator gets of X: rows of a frame, if it was fitted on such rows, else numbers."""
        if self._columns is not None and is_frame(X):
            return OriginalRows(frame=selected(X, self._columns))
        return OriginalRows(schema=schema_of(self) if self._is_viewed else None)

    def _rows_for_estimator(self, X: Any) -> Any:
        given = self._given(X)
        return given.of(self._checked(X, reset=False)) if given.frame is None else given.frame

    def _plain_score(self, given: OriginalRows, block: Block) -> float:
        return float(self.estimator_.score(given.of(block), block.y, **self._weights_of(block)))

    def _weights_of(self, block: Block) -> dict[str, Array]:
        if block.sample_weight is None or not takes_weights(self.estimator_, "score"):
            return {}
        return {"sample_weight": block.sample_weight}
