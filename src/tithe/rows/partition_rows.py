"""Partitions of a collection on a cluster as checked blocks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.labels import distinct_labels
from tithe.rows.arrays import as_matrix, plain_weights
from tithe.rows.columns import Columns, kind_of
from tithe.rows.frame_tables import frame_table
from tithe.rows.rows import BlockBuilder, bad_rows, row_of, target_classes
from tithe.rows.schema import TableSchema


class PartitionRows(ABC):
    """Makes blocks of the values of a partition: X, and y and the weights where there are any.

    It travels to the workers, so it holds nothing that is large.
    """

    n_features: int
    row_bytes: int
    feature_names: Sequence[str] | None
    schema: TableSchema | None

    @abstractmethod
    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        """The rows of partition ``number`` at ``places`` in it, which ``values`` hold, with their row ids."""

    @abstractmethod
    def classes(self, values: Sequence[Any]) -> Array:
        """The distinct values of the target in a partition, in ascending order."""


def cut(value: Any, start: int, stop: int) -> Any:
    """The rows of an array, a matrix or a frame from ``start`` to ``stop``."""
    return value.iloc[start:stop] if hasattr(value, "iloc") else value[start:stop]


def take(value: Any, places: Array) -> Any:
    """The rows of an array, a matrix or a frame at ``places``."""
    return value.iloc[places] if hasattr(value, "iloc") else value[places]


@dataclass(frozen=True, eq=False)
class MatrixRows(PartitionRows):
    """Rows of numbers that are taken as they are.

    Parameters
    ----------
    dtype : numpy.dtype
        float32 or float64.
    n_features : int
    columns : tuple or None
        Those of a frame; None for arrays.
    has_y, has_weight : bool
    """

    dtype: Any
    n_features: int
    columns: tuple[Any, ...] | None
    has_y: bool
    has_weight: bool
    schema: None = None

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return int(self.n_features * np.dtype(self.dtype).itemsize)

    @property
    def feature_names(self) -> Sequence[str] | None:  # type: ignore[override]
        named = self.columns is not None and all(isinstance(name, str) for name in self.columns)
        return list(self.columns or ()) if named else None

    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        X = self._matrix(number, values[0])
        y = np.asarray(values[1]) if self.has_y else None
        weight = np.asarray(values[-1], np.float64) if self.has_weight else None
        if len(ids) == 0:
            return Block(X=X, y=y, sample_weight=None, indices=ids)
        missing_y = None if y is None or y.dtype.kind != "f" else np.isnan(y)
        total = X.sum(dtype=np.float64)
        bad = bad_rows(X, missing_y, weight, bool(np.isfinite(total)))
        if bad is not None:
            row = int(np.argmax(bad))
            raise ValueError(
                f"{row_of(f'partition {number}', int(places[row]))}: {self._what_is_wrong(row, X, missing_y)}. Mend it "
                "or leave it out; open_dataset(frame, ...) fills gaps in the columns of a frame."
            )
        return Block(X=X, y=y, sample_weight=plain_weights(weight), indices=ids)

    def _matrix(self, number: int, values: Any) -> Any:
        try:
            X = as_matrix(values if self.columns is None else values[list(self.columns)])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"Partition {number}: {error}") from error
        if X.shape[1] != self.n_features:
            raise ValueError(f"Partition {number} has {X.shape[1]} columns, and there should be {self.n_features}.")
        if not np.can_cast(X.dtype, self.dtype, casting="safe"):
            raise ValueError(
                f"Partition {number} holds {X.dtype}, which does not fit into the {self.dtype} that the collection "
                f"says it holds. Convert it: X.astype({str(X.dtype)!r})."
            )
        return X.astype(self.dtype, copy=False)

    def _what_is_wrong(self, row: int, X: Any, missing_y: Array | None) -> str:
        values = X[row].toarray().ravel() if sparse.issparse(X) else X[row]
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            name = int(wrong[0]) if self.columns is None else self.columns[int(wrong[0])]
            return f"column {name!r} is missing or not a finite number"
        if missing_y is not None and missing_y[row]:
            return "the target is missing"
        return "the weight is missing, not finite or negative"

    def classes(self, values: Sequence[Any]) -> Array:
        if not self.has_y:
            raise ValueError("There is no target: give y, or name its column, open_dataset(frame, target=...).")
        y = np.asarray(values[1])
        return distinct_labels(y) if len(y) else y


@dataclass(frozen=True, eq=False)
class TableRows(PartitionRows):
    """Rows of a frame whose columns become features by a schema.

    Parameters
    ----------
    columns : Columns
    fields : pyarrow.Schema
        The columns that are read, with the types that the partitions agree on.
    """

    columns: Columns
    fields: pa.Schema

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return self.columns.schema.n_features

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return self.columns.schema.row_bytes

    @property
    def feature_names(self) -> Sequence[str]:  # type: ignore[override]
        return self.columns.schema.feature_names

    @property
    def schema(self) -> TableSchema:  # type: ignore[override]
        return self.columns.schema

    def block(self, number: int, values: Sequence[Any], ids: Array, places: Array) -> Block:
        builder = BlockBuilder(self.columns, len(ids))
        for batch in self.table(number, values[0]).to_batches():
            try:
                builder.add(batch)
            except (ValueError, pa.ArrowException) as error:
                raise ValueError(f"Partition {number}: {error}") from error
        return builder.block(ids, partial(_locate, number, ids, places))

    def table(self, number: int, frame: Any) -> Any:
        """The columns that are read, with the types that all partitions have."""
        table = frame_table(frame)
        missing = [name for name in self.fields.names if name not in table.column_names]
        if missing:
            shown = ", ".join(table.column_names[:30])
            raise ValueError(f"Partition {number} has no column {missing[0]!r}. Its columns are {shown}.")
        arrays = []
        for field in self.fields:
            values = table.column(field.name)
            if values.type != field.type:
                values = _converted(values, field, number)
            arrays.append(values)
        return pa.table(arrays, schema=self.fields).unify_dictionaries()

    def classes(self, values: Sequence[Any]) -> Array:
        return target_classes(self.columns, lambda names: frame_table(values[0]).select(names).to_batches())


def _locate(number: int, ids: Array, places: Array, row_id: int) -> str:
    return row_of(f"partition {number}", int(places[np.searchsorted(ids, row_id)]))


def _converted(values: Any, field: pa.Field, number: int) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.combine_chunks()
        values = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values.cast(field.type)
    kind, expected = kind_of(values.type), kind_of(field.type)
    if kind not in (expected, "nothing"):
        raise ValueError(
            f"Partition {number}: column {field.name!r} is {values.type}, and {field.type} in other partitions. Give "
            f"it one type: frame.astype({{{field.name!r}: ...}})."
        )
    return values.cast(field.type, safe=False)
