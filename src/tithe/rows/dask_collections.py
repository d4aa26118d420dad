"""Dask arrays and frames as sources of rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tithe.core.data import Array
from tithe.rows.all_rows import Sums, ValueCounts, counted_columns, feature_sums, value_counts, with_sums
from tithe.rows.columns import Choice, Columns, common_fields, resolve_columns
from tithe.rows.dask_source import SAMPLE_PARTS, DaskSource
from tithe.rows.frame_tables import frame_table
from tithe.rows.learn import SAMPLE_ROWS
from tithe.rows.leaves import fair_shares
from tithe.rows.partition_rows import MatrixRows, PartitionRows, TableRows, take
from tithe.rows.schema import TableSchema


def is_dask_collection(X: Any) -> bool:
    """Whether X is a Dask array or frame. Dask is not imported for it."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X)) and (_is_array(X) or _is_frame(X))


def _is_array(X: Any) -> bool:
    return hasattr(X, "chunks") and hasattr(X, "ndim")


def _is_frame(X: Any) -> bool:
    return hasattr(X, "npartitions") and hasattr(X, "dtypes")


def dask_source(X: Any, y: Any = None, sample_weight: Any = None, *, schema: TableSchema | None = None) -> DaskSource:
    """A Dask array or frame with y and weights as the rows of a learner.

    Numbers are taken as they are. A frame with text or dates becomes rows by a schema: the given one, or one that is
    learned, as by `open_dataset`.
    """
    _check_extra(X, y, "y")
    _check_extra(X, sample_weight, "sample_weight")
    if _is_frame(X) and (schema is not None or not _all_numbers(X)):
        extra = {name: value for name, value in (("target", y), ("weight", sample_weight)) if value is not None}
        if any(str(column) in _EXTRA_COLUMNS for column in X.columns):
            raise ValueError(f"Rename the column {next(c for c in X.columns if str(c) in _EXTRA_COLUMNS)!r}.")
        _lengths(X, *extra.values())  # other partitions are refused
        frame = X.assign(**{_EXTRA[name]: value for name, value in extra.items()})
        target, weight = (_EXTRA[name] if name in extra else None for name in _EXTRA)
        return open_collection(frame, Choice(schema=schema, target=target, weight=weight))
    extra_values = [value for value in (y, sample_weight) if value is not None]
    rows = MatrixRows(
        dtype=_dtype_of(X),
        n_features=len(X.columns) if _is_frame(X) else X.shape[1],
        columns=tuple(X.columns) if _is_frame(X) else None,
        has_y=y is not None,
        has_weight=sample_weight is not None,
    )
    return _source(X, extra_values, rows, _lengths(X, *extra_values))


_EXTRA = {"target": "__tithe_target__", "weight": "__tithe_weight__"}
_EXTRA_COLUMNS = tuple(_EXTRA.values())


def open_collection(X: Any, choice: Choice) -> DaskSource:
    """The rows of a Dask frame by the options of `open_dataset`, or those of an array of numbers."""
    if not _is_frame(X):
        if choice != Choice():
            raise ValueError("A Dask array has no named columns: give y and weights to fit() or build_coreset().")
        return dask_source(X)
    used = X[_names_read(X, choice)]  # what is not used is not read
    lengths = _lengths(used)
    if not lengths.sum():
        raise ValueError("The frame has no rows.")
    choice = replace(choice, row_id=None)  # it is not read
    sample = _sample(used, lengths)
    fields = common_fields({f"partition {number}": table.schema for number, table in sample}, choice)
    batches = [batch for _, table in sample for batch in table.select(fields.names).to_batches()]
    columns = resolve_columns(fields, batches, choice)
    fields = pa.schema([fields.field(name) for name in columns.read])
    source = _source(used, [], TableRows(columns, fields), lengths)
    if choice.schema is not None or lengths.sum() <= columns.schema.n_rows:
        return source
    schema = _learned_from_all_rows(source, columns, choice)
    if schema is columns.schema:
        return source
    return open_collection(X, choice.with_schema(schema))


def _names_read(X: Any, choice: Choice) -> list[Any]:
    """The columns of a frame that may be read, in its order; those that were asked for must be there."""
    asked = choice.columns if choice.schema is None else choice.schema.reads
    present = [str(name) for name in X.columns]
    for name in (*(asked or ()), *choice.special, *choice.exclude):
        if name not in present:
            raise ValueError(f"The frame has no column {name!r}. Its columns are {', '.join(present[:30])}.")
    left_out = {*choice.exclude, choice.row_id}
    wanted = present if asked is None else [*asked, *choice.special]
    return [name for name in X.columns if str(name) in wanted and str(name) not in left_out]


def _sample(X: Any, lengths: Array) -> list[tuple[int, Any]]:
    """Rows from all over a frame as Arrow tables, with the numbers of their partitions."""
    import dask

    numbers = np.flatnonzero(lengths)
    if len(numbers) > SAMPLE_PARTS:
        numbers = numbers[np.arange(SAMPLE_PARTS) * len(numbers) // SAMPLE_PARTS]
    shares = fair_shares(lengths[numbers].tolist(), min(SAMPLE_ROWS, int(lengths[numbers].sum())), 0.5)
    parts, lazy = _partitions(X), dask.delayed(_table_at, pure=False)
    chosen = [
        (int(i), lazy(parts[i], np.arange(share) * lengths[i] // share))
        for i, share in zip(numbers, shares, strict=True)
        if share
    ]
    try:
        tables = dask.compute(*(table for _, table in chosen))
    except Exception as error:
        raise _explained(X, error) from error
    return [(number, table) for (number, _), table in zip(chosen, tables, strict=True)]


def _table_at(frame: Any, places: Array) -> Any:
    return frame_table(take(frame, places))


def _learned_from_all_rows(source: DaskSource, columns: Columns, choice: Choice) -> TableSchema:
    """The schema with what a sample cannot tell, by sums and counts that the partitions are reduced to in place."""
    schema = columns.schema
    if len(columns.uncertain):
        sums = source.on_partitions(_sums_of, source.rows, columns.uncertain)
        schema = with_sums(schema, columns.uncertain, sums)
    if counted_columns(schema):
        counts = ValueCounts(schema)
        for part in source.on_partitions(_counts_of, counts.names, schema.na):
            counts.add(part)
        schema = counts.applied(schema, choice.options)
    return schema


def _sums_of(values: Sequence[Any], rows: PartitionRows, features: Array) -> Sums:
    places = np.arange(len(values[0]))
    return feature_sums(rows.block(0, values, places, places).X, features)


def _counts_of(values: Sequence[Any], names: list[str], na: Sequence[str]) -> dict[str, dict[str, int]]:
    return value_counts(frame_table(values[0]), names, na)


# -- partitions --------------------------------------------------------------------------------


def _source(X: Any, extra: Sequence[Any], rows: PartitionRows, lengths: Array) -> DaskSource:
    from dask.base import tokenize

    return DaskSource(
        rows,
        list(zip(*map(_partitions, (X, *extra)), strict=True)),
        lengths,
        by_rows=_is_array(X),
        identity=f"dask {tokenize(X, *extra)} {rows.n_features}",
        explain=partial(_explained, X),
    )


def _partitions(X: Any) -> list[Any]:
    """The partitions as `Delayed`, which share a graph."""
    import dask

    # else Dask joins small files, more of them the fewer columns are read: X and y would have other partitions
    with dask.config.set({"optimization.tune.active": False}):
        parts: list[Any] = np.ravel(X.to_delayed()).tolist()
        if parts and parts[0].key not in parts[0].dask:  # Dask optimises arrays that are persisted away
            parts = np.ravel(X.to_delayed(optimize_graph=False)).tolist()
    return parts


def _lengths(X: Any, *extra: Any) -> Array:
    """The rows of each partition. They are counted where they are not known; y and weights must have as many."""
    import dask

    known = [_known_lengths(value) for value in (X, *extra)]
    lengths = [length for length in known if length is not None]
    if len(lengths) < len(known):
        try:
            lengths = list(dask.compute(*(_lazy_lengths(value) for value in (X, *extra))))
        except Exception as error:
            raise _explained(X, error) from error
    if any(list(length) != list(lengths[0]) for length in lengths[1:]):
        raise ValueError(_other_partitions(X, "y or sample_weight"))
    return np.asarray(lengths[0], np.int64)


def _known_lengths(X: Any) -> tuple[int, ...] | None:
    if _is_array(X) and not np.isnan(X.chunks[0]).any():
        return tuple(X.chunks[0])
    return None


def _lazy_lengths(X: Any) -> Any:
    import dask

    narrow = X[[X.columns[0]]] if _is_frame(X) and X.ndim == 2 else X  # one column tells as much as all
    return [dask.delayed(len)(part) for part in _partitions(narrow)]


def _check_extra(X: Any, values: Any, name: str) -> None:
    """Refuse columns of X in several chunks, and y or weights that are no collection of the same partitions."""
    if _is_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {X.ndim}.")
        if len(X.chunks[1]) > 1:
            raise ValueError(
                f"The columns of X are in {len(X.chunks[1])} chunks, and a row must be in one: X.rechunk({{1: -1}})."
            )
    if values is None:
        return
    if not is_dask_collection(values) or _is_array(values) != _is_array(X) or values.ndim != 1:
        kind = "Dask array of one dimension" if _is_array(X) else "series of a Dask frame"
        raise ValueError(
            f"{name} must be a {kind} with the same partitions as X, got {type(values).__name__}: {_call_for(X, name)}."
        )
    n_parts = X.numblocks[0] if _is_array(X) else X.npartitions
    n_own = values.numblocks[0] if _is_array(X) else values.npartitions
    known, own = _known_lengths(X), _known_lengths(values) if _is_array(X) else None
    if n_parts != n_own or (known is not None and own is not None and known != own):
        raise ValueError(_other_partitions(X, name))


def _other_partitions(X: Any, name: str) -> str:
    return f"{name} has other partitions than X: {_call_for(X, name)}."


def _call_for(X: Any, name: str) -> str:
    if _is_array(X):
        return f"make them equal by {name}.rechunk(X.chunks[0]), or by da.from_array(..., chunks=X.chunks[0])"
    return (
        "take both from one frame, open_dataset(frame, target=..., weight=...), or make them equal by "
        f"{name}.repartition(divisions=X.divisions)"
    )


def _all_numbers(X: Any) -> bool:
    return all(getattr(dtype, "kind", "O") in "biuf" for dtype in X.dtypes)


def _dtype_of(X: Any) -> Any:
    """float32 where all columns are, else float64."""
    dtypes = [X.dtype] if _is_array(X) else list(X.dtypes)
    is_single = all(np.dtype(getattr(dtype, "numpy_dtype", dtype)) == np.float32 for dtype in dtypes)
    return np.dtype(np.float32 if is_single else np.float64)


def _explained(X: Any, error: Exception) -> Exception:
    """For a column that some partition lacks: an error that names the partition. Dask names only the column."""
    if not isinstance(error, KeyError) or not _is_frame(X):
        return error
    import dask
    from dask.dataframe import DataFrame

    # partitions as they were before columns were chosen
    whole = DataFrame(X.expr.frame) if type(X.expr).__name__ == "Projection" else X
    names_of = dask.delayed(_names_of)
    for number, names in enumerate(dask.compute(*(names_of(part) for part in _partitions(whole)))):
        missing = [str(name) for name in X.columns if str(name) not in names]
        if missing:
            return ValueError(
                f"Partition {number} has no column {missing[0]!r}. Its columns are {', '.join(names[:30])}."
            )
    return error


def _names_of(frame: Any) -> list[str]:
    return [str(name) for name in frame.columns]
