"""Rows that lie on a cluster, Dask collections and Spark DataFrames: what they are known by, and the source of them."""

from __future__ import annotations

import sys
from typing import Any

import narwhals.stable.v2 as nw

from tithe.rows.schema import TableSchema


def is_dask_collection(X: Any) -> bool:
    """Whether X is a Dask array or frame. Dask is not imported for it."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X)) and (is_dask_array(X) or is_dask_frame(X))


def is_dask_array(X: Any) -> bool:
    """Whether a Dask collection is an array."""
    return hasattr(X, "chunks") and hasattr(X, "ndim")


def is_dask_frame(X: Any) -> bool:
    """Whether a Dask collection is a frame or a series."""
    return hasattr(X, "npartitions") and hasattr(X, "dtypes")


def is_spark_frame(X: Any) -> bool:
    """Whether X is a DataFrame of Spark or of Spark Connect."""
    return nw.dependencies.is_pyspark_dataframe(X) or nw.dependencies.is_pyspark_connect_dataframe(X)


def as_rows(
    X: Any, y: Any = None, sample_weight: Any = None, *, schema: TableSchema | None = None
) -> tuple[Any, Any, Any]:
    """Rows that lie on a cluster as a source, with their y and weights; other rows as they are.

    Of a Dask collection y and weights are collections too, of a Spark DataFrame names of columns.
    """
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError(
            "X is a LazyFrame, whose rows wait to be computed: give X.collect(), or tithe.open_dataset(X, target=...), "
            "which reads the rows anew in every pass."
        )
    if is_dask_collection(X):
        from tithe.rows.dask_collections import dask_source

        return dask_source(X, y=y, sample_weight=sample_weight, schema=schema), None, None
    if is_spark_frame(X):
        from tithe.rows.spark_frames import open_numbers

        return open_numbers(X, y, sample_weight, schema), None, None
    return X, y, sample_weight
