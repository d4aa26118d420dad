"""Arrow batches gathered into one checked block of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.rows.arrays import plain_weights
from tithe.rows.columns import Columns, ColumnSelection
from tithe.rows.leaves import Task, check_any_row_good, usual_leaf_rows
from tithe.rows.paths import DataFile
from tithe.rows.schema import TableSchema
from tithe.rows.values import plain_numbers, without_gaps

MAX_CLASSES = 100_000


class BlockBuilder:
    """Room for ``n_rows`` rows of all batches together, filled batch by batch, then checked and handed over."""

    def __init__(self, columns: Columns, n_rows: int) -> None:
        self._columns = columns
        self.n_rows = n_rows
        self._filled = 0
        self._finite = True
        schema = columns.schema
        self._dense = None if schema.sparse else np.empty((n_rows, schema.n_features), schema.dtype)
        self._sparse: list[Any] = []
        self._y: list[Array] = []
        self._missing_y: list[Array] = []
        self._weight = None if columns.choice.weight is None else np.empty(n_rows)

    def add(self, batch: Any) -> None:
        """Take over the rows of an Arrow record batch that has at least the columns read."""
        last = self._filled + batch.num_rows
        if last > self.n_rows:
            raise FileFormatError(f"there are more than the {self.n_rows} rows announced")
        schema, choice = self._columns.schema, self._columns.choice
        if self._dense is None:
            self._sparse.append(schema.encode_sparse(batch))
            self._finite &= bool(np.isfinite(self._sparse[-1].data).all())
        else:
            self._finite &= schema.encode_into(batch, self._dense[self._filled : last])
        if choice.watch is not None:
            choice.watch.add(schema.watch(batch))
        if self._weight is not None:
            self._weight[self._filled : last] = plain_numbers(batch.column(choice.weight))
        if choice.target is not None:
            y, missing = target_values(batch.column(choice.target), self._columns.target_type)
            self._y.append(with_gaps(y, missing) if choice.keeps_gaps else y)
            self._missing_y.append(missing)
        self._filled = last

    def block(self, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows, checked; ``locate`` names the file and row of a row id in messages."""
        if self._filled < self.n_rows:
            raise FileFormatError(f"there are {self._filled} rows instead of the {self.n_rows} announced")
        columns = self._columns
        X = self._dense
        if X is None:
            X = sparse.csr_matrix((0, columns.schema.n_features), dtype=columns.schema.dtype)
            if self._sparse:
                X = self._sparse[0] if len(self._sparse) == 1 else sparse.vstack(self._sparse, format="csr")
        y = missing_y = None
        if columns.choice.target is not None:
            y = np.concatenate(self._y) if self._y else target_values(pa.nulls(0), columns.target_type)[0]
            missing_y = np.concatenate(self._missing_y) if self._y else np.zeros(0, bool)
        return good_rows(
            X,
            y,
            self._weight,
            ids,
            locate=locate,
            name_of=lambda feature: repr(columns.schema.column_of(feature)),
            choice=columns.choice,
            finite=self._finite,
            left_out=None if columns.choice.keeps_gaps else missing_y,
        )


def row_of(file: str, row: int) -> str:
    """The file and the number of a row, for messages."""
    return f"{file!r}, row {row} (the first is row 0)"


def fault(where: str, what: str) -> ValueError:
    """The error for a bad row."""
    return ValueError(f"{where}: {what}. Mend it, or skip such rows: bad_rows='skip' (--bad-rows skip).")


def good_rows(
    X: Any,
    y: Array | None,
    weight: Array | None,
    ids: Array,
    *,
    locate: Callable[[int], str],
    name_of: Callable[[int], str],
    choice: ColumnSelection,
    finite: bool,
    missing_y: Array | None = None,
    left_out: Array | None = None,
) -> Block:
    """Rows as a block, without those ``left_out``, and without bad ones, which are refused unless they are skipped.

    ``locate`` names the file and row of a row id, ``name_of`` the column of a feature; ``finite`` and ``missing_y`` as
    in `bad_rows`.
    """
    bad = bad_rows(X, missing_y, weight, finite)
    if bad is not None and choice.bad_rows == "error":
        row = int(np.argmax(bad))
        raise fault(locate(int(ids[row])), what_is_wrong(row, X, missing_y, name_of, choice.weight))
    if left_out is not None and left_out.any():
        bad = left_out if bad is None else bad | left_out
    if bad is None:
        return Block(X=X, y=y, sample_weight=plain_weights(weight), indices=ids)
    good = np.flatnonzero(~bad)
    return Block(
        X=X[good],
        y=None if y is None else y[good],
        sample_weight=None if weight is None else plain_weights(weight[good]),
        indices=ids[good],
    )


def what_is_wrong(
    row: int, X: Any, missing_y: Array | None, name_of: Callable[[int], str], weight_name: str | None = None
) -> str:
    """Why a row is bad, for messages."""
    if sparse.issparse(X):
        entries = slice(X.indptr[row], X.indptr[row + 1])
        wrong = X.indices[entries][~np.isfinite(X.data[entries])]
    else:
        wrong = np.flatnonzero(~np.isfinite(X[row]))
    if len(wrong):
        return f"column {name_of(int(wrong[0]))} is missing or not a finite number"
    if missing_y is not None and missing_y[row]:
        return "the target is missing or not finite"
    weight = "the weight" if weight_name is None else f"the weight {weight_name!r}"
    return f"{weight} is missing, not finite or negative"


def bad_rows(X: Any, missing_y: Array | None, weight: Array | None, finite: bool) -> Array | None:
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
    """Few different texts: one object each. What is missing has any of them, since its row is left out."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = column.dictionary.cast(pa.string())
    values, present = texts.to_pylist(), without_gaps(texts, ()).is_valid().to_numpy(zero_copy_only=False)
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    missing = (codes < 0) | ~np.append(present, False)[codes]
    return np.array([*values, ""], object)[codes], missing


def with_gaps(y: Array, missing: Array) -> Array:
    """A target with NaN for missing values if its values are floating point numbers, else an object array with None."""
    if y.dtype.kind == "f":
        return np.where(missing, np.nan, y)
    values: Array = y.astype(object)
    values[missing] = None
    return values


def target_classes(columns: Columns, batches_of: Callable[[list[str]], Iterable[Any]]) -> Array:
    """All values of the target, in ascending order; ``batches_of`` gives the batches of columns by name."""
    target = columns.choice.target
    if target is None:
        raise ValueError("There is no target: name its column, target=... (--target).")
    found: set[Any] = set()
    for batch in batches_of([target]):
        column = batch.column(target)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary.take(column.indices.unique())
        found.update(pc.unique(column).to_pylist())
        if len(found) > MAX_CLASSES:
            raise ValueError(
                f"Column {target!r} has more than {MAX_CLASSES:,} different values. It is no class to be told."
            )
    values, missing = target_values(pa.array(list(found), from_pandas=True), columns.target_type)
    classes: Array = np.unique(values[~missing])
    return classes


class BatchCutter:
    """Takes rows from a stream of record batches, which is read as far as rows are asked for."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches: Iterator[Any] = iter(batches)
        self._ahead: deque[Any] = deque()

    def look(self, n_rows: int) -> list[Any]:
        """Batches with at least ``n_rows`` rows, or all that are left, which remain to be taken."""
        while sum(batch.num_rows for batch in self._ahead) < n_rows:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._ahead.append(batch)
        return list(self._ahead)

    def take(self, n_rows: int, *, live: bool = False) -> list[Any]:
        """The next ``n_rows`` rows, or as many as are left, in batches; of a ``live`` stream those of one batch."""
        return list(islice(self.pieces(n_rows), 1 if live else None))

    def pieces(self, n_rows: int) -> Iterator[Any]:
        """The same rows, a batch at a time: those that are not asked for are not read."""
        while n_rows:
            batch = self._ahead.popleft() if self._ahead else next(self._batches, None)
            if batch is None:
                return
            if batch.num_rows > n_rows:
                self._ahead.appendleft(batch[n_rows:])
            piece = batch[:n_rows]
            n_rows -= piece.num_rows
            if piece.num_rows:
                yield piece


def rows_at(batches: Iterable[Any], positions: Array) -> Iterator[Any]:
    """The rows at ascending ``positions`` of a stream of batches, which is read as far as the last of them."""
    passed = 0
    for batch in batches:
        start, stop = np.searchsorted(positions, (passed, passed + batch.num_rows))
        if start < stop:
            yield batch.take(pa.array(positions[start:stop] - passed))
        passed += batch.num_rows
        if stop == len(positions):
            return


def block_of_batches(columns: Columns, batches: Sequence[Any], ids: Array, name: str) -> Block:
    """The rows of batches, checked, as a block. ``name`` is what messages call the stream."""
    rows = BlockBuilder(columns, len(ids))
    try:
        for batch in batches:
            batch.validate(full=True)  # offsets and codes that lie outside would be read as they are
            rows.add(batch)
    except (ValueError, pa.ArrowException) as error:
        raise FileFormatError(f"From {row_of(name, int(ids[0]))} on: {error}") from error
    return rows.block(ids, partial(row_of, name))


class TableSource(Source):
    """Rows of a table whose columns become features by a schema. A subclass calls `_set_columns`, and cuts leaves."""

    schema: TableSchema
    uncertain: Array  # see `uncertain_features`
    is_sampled: bool  # whether the schema was learned from some of the rows

    def _set_columns(self, columns: Columns, files: Sequence[DataFile]) -> None:
        """Set what follows from the columns. ``n_rows`` is set; messages name the files."""
        self._columns, self._files = columns, list(files)
        self.schema, self.uncertain = columns.schema, columns.uncertain
        self.is_sampled = self.n_rows is None or self.n_rows > self.schema.n_rows
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)

    def learn(self, schema: TableSchema) -> None:
        """Take another schema of the same columns, which was learned from all rows."""
        self._set_columns(replace(self._columns, schema=schema), self._files)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Task]:
        """Loaders of the leaves from number ``first`` on."""
        tasks = self._loaders(first, self.leaf_rows if leaf_rows is None else leaf_rows)
        if first or not self._columns.leaves_rows_out:
            return tasks
        return check_any_row_good(tasks, self, self._files)

    @abstractmethod
    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Task]:
        """Loaders of the leaves from number ``first`` on."""

    @abstractmethod
    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, in Arrow batches, and their ids."""

    def classes(self) -> Array:
        """All values of the target, in ascending order, from a pass over that column."""
        return target_classes(self._columns, lambda names: (batch for _, batch in self.numbered_batches(names)))
