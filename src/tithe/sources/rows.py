"""Arrow batches gathered into one checked block of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.kernels.interleave import interleave
from tithe.sources.arrays import plain_weights
from tithe.sources.categories import places
from tithe.sources.columns import Columns, Feature, numbers

MAX_CLASSES = 100_000


class BlockBuilder:
    """Room for ``n_rows`` rows, filled batch by batch, then checked and handed over.

    Parameters
    ----------
    columns : Columns
    n_rows : int
        Of all batches together.
    """

    def __init__(self, columns: Columns, n_rows: int) -> None:
        self._columns = columns
        self.n_rows = n_rows
        self._filled = 0
        self._finite = True
        self._dense = None if columns.sparse else np.empty((n_rows, columns.n_features), columns.dtype)
        self._sparse: list[Any] = []
        self._y: list[Array] = []
        self._missing_y: list[Array] = []
        self._weight = None if columns.choice.weight is None else np.empty(n_rows)
        # neighbouring numbers are written together
        self._runs = [list(run) for _, run in groupby(columns.features, lambda f: f.text is None or f.name)]

    def add(self, batch: Any) -> None:
        """Take over the rows of an Arrow record batch that has at least the columns read."""
        last = self._filled + batch.num_rows
        if last > self.n_rows:
            raise FileFormatError(f"there are more than the {self.n_rows} rows announced")
        if self._dense is None:
            self._sparse.append(self._as_csr(batch))
        else:
            for run in self._runs:
                self._add_dense(batch, run, self._dense)
        choice = self._columns.choice
        if self._weight is not None:
            self._weight[self._filled : last] = numbers(batch.column(choice.weight))
        if choice.target is not None:
            y, missing = target_values(batch.column(choice.target), self._columns.target_type)
            self._y.append(y)
            self._missing_y.append(missing)
        self._filled = last

    def _add_dense(self, batch: Any, run: Sequence[Feature], X: Array) -> None:
        first = run[0]
        if first.text is None:
            values = [numbers(batch.column(f.name)) for f in run]
            self._finite &= interleave(values, X, self._filled, first.first)
        elif first.width:
            rows = X[self._filled : self._filled + batch.num_rows, first.first : first.first + first.width]
            rows[:] = 0
            rows[np.arange(len(rows)), places(batch.column(first.name), first.text)] = 1

    def _as_csr(self, batch: Any) -> Any:
        """Every row has one entry a column; zeros are dropped afterwards."""
        n, features = batch.num_rows, self._columns.features
        values = np.ones((n, len(features)), self._columns.dtype)
        at = np.empty((n, len(features)), np.int32)
        for j, feature in enumerate(features):
            at[:, j] = feature.first
            if feature.text is None:
                values[:, j] = numbers(batch.column(feature.name))
            else:
                at[:, j] += places(batch.column(feature.name), feature.text).astype(np.int32)
        self._finite &= bool(np.isfinite(values).all())
        starts = np.arange(0, values.size + 1, len(features), dtype=np.int32)
        X = sparse.csr_matrix((values.ravel(), at.ravel(), starts), shape=(n, self._columns.n_features))
        X.eliminate_zeros()
        return X

    def block(self, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows, checked; ``locate`` names the file and row of a row id in messages."""
        if self._filled < self.n_rows:
            raise FileFormatError(f"there are {self._filled} rows instead of the {self.n_rows} announced")
        columns = self._columns
        X = self._dense
        if X is None:
            X = sparse.vstack(self._sparse, format="csr") if self._sparse else _no_rows(columns)
        y = missing_y = None
        if columns.choice.target is not None:
            y = np.concatenate(self._y) if self._y else target_values(pa.nulls(0), columns.target_type)[0]
            missing_y = np.concatenate(self._missing_y) if self._y else np.zeros(0, bool)
        weight = self._weight
        bad = bad_rows(X, missing_y, weight, self._finite)
        if bad is not None and columns.choice.bad_rows == "error":
            row = int(np.argmax(bad))
            raise fault(locate(int(ids[row])), self._what_is_wrong(row, X, missing_y))
        if bad is None:
            return Block(X=X, y=y, sample_weight=plain_weights(weight), indices=ids)
        good = np.flatnonzero(~bad)
        return Block(
            X=X[good],
            y=None if y is None else y[good],
            sample_weight=None if weight is None else plain_weights(weight[good]),
            indices=ids[good],
        )

    def _what_is_wrong(self, row: int, X: Any, missing_y: Array | None) -> str:
        values = X[row].toarray().ravel() if sparse.issparse(X) else X[row]
        wrong = np.flatnonzero(~np.isfinite(values))
        choice = self._columns.choice
        if len(wrong):
            return f"column {self._columns.column_of(int(wrong[0]))!r} is missing or not a finite number"
        if missing_y is not None and missing_y[row]:
            return f"the target {choice.target!r} is missing"
        return f"the weight {choice.weight!r} is missing, not finite or negative"


def row_of(file: str, row: int) -> str:
    """The file and the number of a row, for messages."""
    return f"{file!r}, row {row} (the first is row 0)"


def fault(where: str, what: str) -> ValueError:
    """The error for a bad row."""
    return ValueError(f"{where}: {what}. Mend it, or skip such rows: bad_rows='skip' (--bad-rows skip).")


def bad_rows(X: Any, missing_y: Array | None, weight: Array | None, finite: bool | None) -> Array | None:
    """Which rows are bad: (n,) bool, or None if none is. ``finite`` True: all of X is known to be."""
    bad: Array = np.zeros(X.shape[0], bool)
    if not finite and sparse.issparse(X):
        bad[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~np.isfinite(X.data)]] = True
    elif not finite:
        for top in range(0, len(X), 4096):
            bad[top : top + 4096] = ~np.isfinite(X[top : top + 4096]).all(axis=1)
    if missing_y is not None:
        bad |= missing_y
    if weight is not None:
        bad |= ~((weight >= 0) & (weight < np.inf))
    return bad if bad.any() else None


def _no_rows(columns: Columns) -> Any:
    return sparse.csr_matrix((0, columns.n_features), dtype=columns.dtype)


def target_values(column: Any, target_type: pa.DataType) -> tuple[Array, Array]:
    """A target as plain NumPy, always of the same type, and which of its values are missing."""
    if pa.types.is_string(target_type):
        return _text_target(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column.cast(target_type, safe=False)
    missing: Array = column.is_null(nan_is_null=pa.types.is_floating(target_type)).to_numpy(zero_copy_only=False)
    if column.null_count and not pa.types.is_floating(target_type):
        present = column.drop_null()
        if len(present) == 0:
            return np.zeros(len(column), target_type.to_pandas_dtype()), missing
        column = column.fill_null(present[0])  # any value of this type: the row is bad
    return column.to_numpy(zero_copy_only=False), missing


def _text_target(column: Any) -> tuple[Array, Array]:
    """Few different texts: one object each. What is missing has any of them, since its row is bad."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.cast(pa.string()).to_pylist()
    present = np.array([value is not None for value in values], bool)
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    missing = (codes < 0) | ~np.append(present, False)[codes]
    return np.array([*values, ""], object)[codes], missing


class Distinct:
    """The distinct values of a column, gathered batch by batch.

    Parameters
    ----------
    column : str
    max_values : int
        More distinct values are refused, with the hint ``too_many``.
    """

    def __init__(self, column: str, max_values: int, too_many: str) -> None:
        self._column = column
        self._max_values = max_values
        self._too_many = too_many
        self._values: set[Any] = set()

    def add(self, batch: Any) -> None:
        column = batch.column(self._column)
        if pa.types.is_dictionary(column.type):
            present = column.indices.unique().drop_null()
            nulls = column.null_count > 0
            self._values.update(column.dictionary.take(present).to_pylist())
            if nulls:
                self._values.add(None)
        else:
            self._values.update(pc.unique(column).to_pylist())
        if len(self._values) > self._max_values:
            raise ValueError(
                f"Column {self._column!r} has more than {self._max_values:,} different values. {self._too_many}"
            )

    def texts(self) -> list[str]:
        """The values as text, in ascending order; a null is ``""``."""
        return sorted({"" if value is None else str(value) for value in self._values})

    def targets(self, target_type: pa.DataType) -> Array:
        """The values as a NumPy array, in ascending order, without missing ones."""
        values, missing = target_values(pa.array(list(self._values), from_pandas=True), target_type)
        classes: Array = np.unique(values[~missing])
        return classes
