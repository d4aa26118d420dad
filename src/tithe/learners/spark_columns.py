"""Predictions as a further column of a Spark DataFrame, computed when Spark needs them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_is_fitted

from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.learners.tables import schema_of
from tithe.sources.arrays import as_matrix
from tithe.sources.spark_frames import NAME, is_spark_frame, partition_id

Method = TypeVar("Method", bound=Callable[..., Any])


def adds_spark_column(column: str) -> Callable[[Method], Method]:
    """Let a method of a learner take a Spark DataFrame too, and return it with the result in a further column."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def either(learner: Any, X: Any) -> Any:
            if not is_spark_frame(X):
                return method(learner, X)
            check_is_fitted(learner)
            return _with_column(X, learner, method.__name__, column)

        return cast(Method, either)

    return decorate


def _with_column(frame: Any, learner: Any, method: str, column: str) -> Any:
    """The DataFrame with the result of a method for each row. Nothing is computed now."""
    from pyspark.sql.types import StructField, StructType

    schema = schema_of(learner)
    names = list(schema.reads if schema is not None else learner.__dict__.get("feature_names_in_", frame.columns))
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"{NAME} has no column {name!r}. Its columns are {', '.join(frame.columns)}.")
    if len(names) != learner.n_features_in_ and schema is None:
        raise ValueError(
            f"{NAME} has {len(names)} columns, but {type(learner).__name__} is expecting {learner.n_features_in_}: "
            "select those of the fit."
        )
    if column in frame.columns:
        raise ValueError(f"{NAME} has a column {column!r}: rename it, since the results are given that name.")
    arrow_type = _type_of(learner, method)
    fields = [*frame.schema.fields, StructField(column, _spark_type(arrow_type))]

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = 0
        for batch in batches:
            rows = pa.Table.from_batches([batch]).select(names)
            try:
                with limit_threads(1), single_blas_thread(), warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # that arrays have no names
                    results = methodcaller(method, rows if schema is not None else as_matrix(rows))(learner)
            except ValueError as error:
                last = passed + batch.num_rows - 1
                raise ValueError(f"Partition {partition_id()} of {NAME}, rows {passed} to {last}: {error}") from error
            passed += batch.num_rows
            values = results.tolist() if results.ndim == 2 else results
            yield batch.append_column(column, pa.array(values, arrow_type))

    return frame.mapInArrow(compute, StructType(fields))


def _type_of(learner: Any, method: str) -> pa.DataType:
    """The type of the results, told by that of a row of zeros."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = methodcaller(method, np.zeros((1, learner.n_features_in_)))(learner)
    value_type = pa.string() if result.dtype.kind in "OUS" else pa.from_numpy_dtype(result.dtype)
    return pa.list_(value_type) if result.ndim == 2 else value_type


def _spark_type(arrow_type: pa.DataType) -> Any:
    from pyspark.sql import types

    if pa.types.is_list(arrow_type):
        return types.ArrayType(_spark_type(arrow_type.value_type))
    known = {
        pa.bool_(): types.BooleanType(),
        pa.int8(): types.ByteType(),
        pa.int16(): types.ShortType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.string(): types.StringType(),
    }
    if arrow_type not in known:
        raise ValueError(f"Spark has no type for results that are {arrow_type}.")
    return known[arrow_type]
