"""Dask collections and Spark DataFrames as the rows of learners: `predict` and `transform` of them are lazy."""

from __future__ import annotations

import functools
import uuid
import warnings
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from tithe.core.contracts import partition_id
from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.fit.base import Described
from tithe.rows.arrays import as_matrix, is_dask_collection, is_spark_frame
from tithe.rows.spark_frames import NAME

Method = TypeVar("Method", bound=Callable[..., Any])
_COLUMNS = {  # the methods that are lazy, and the column that each adds to a Spark DataFrame
    "predict": "prediction",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "decision_function": "margin",
    "score_samples": "score",
    "transform": "transformed",
}
_EXAMPLE_ROWS = 2


def lazy_on_collections(method: Method) -> Method:
    """A method of rows that gives a Dask collection for one, and a Spark DataFrame with a further column for one.

    Nothing is computed by the call, except for the solution if rows of `partial_fit` wait for one.
    """

    @functools.wraps(method)
    def lazy(learner: Any, X: Any, *args: Any, **options: Any) -> Any:
        is_dask = is_dask_collection(X)
        if not is_dask and not is_spark_frame(X):
            return method(learner, X, *args, **options)
        check_is_fitted(learner)
        slim = learner.without_rows()
        if is_dask:
            return _mapped(slim, method.__name__, X)
        return _with_column(X, slim, method.__name__, _COLUMNS[method.__name__])

    return cast(Method, lazy)


# -- Dask -------------------------------------------------------------------------------------


def _mapped(learner: Any, name: str, X: Any) -> Any:
    """The method for each partition. The model is one task, which all others depend on."""
    import dask

    model = dask.delayed(learner, pure=False, traverse=False, name=f"tithe-model-{uuid.uuid4().hex}")
    example = _example(X)
    answer = methodcaller(name, example)(learner)
    if hasattr(X, "columns"):
        meta = _framed(answer, example, _column_names(learner, name, answer))
        return X.map_partitions(_on_frame, model, name, meta.iloc[:0], meta=meta.iloc[:0], enforce_metadata=False)
    answer = np.asarray(answer)
    changes: dict[str, Any] = {"drop_axis": 1} if answer.ndim == 1 else {"chunks": (X.chunks[0], (answer.shape[1],))}
    return X.map_blocks(_on_array, model, name, answer[:0], dtype=answer.dtype, meta=answer[:0], **changes)


def _example(X: Any) -> Any:
    """A few rows of the same kind, of no values in particular."""
    if not hasattr(X, "columns"):
        return np.zeros((_EXAMPLE_ROWS, X.shape[1]), X.dtype)
    from dask.dataframe.dispatch import meta_nonempty

    return meta_nonempty(X._meta)


def _on_array(rows: Any, model: Any, name: str, empty: Any) -> Any:
    return np.asarray(methodcaller(name, rows)(model)) if len(rows) else empty


def _on_frame(rows: Any, model: Any, name: str, empty: Any) -> Any:
    columns = list(empty.columns) if empty.ndim == 2 else None
    return _framed(methodcaller(name, rows)(model), rows, columns) if len(rows) else empty


def _framed(answer: Any, rows: Any, columns: list[Any] | None) -> Any:
    """The answer as a series or a frame with the index of the rows."""
    import pandas as pd

    if isinstance(answer, (pd.Series, pd.DataFrame)):
        return answer.set_axis(rows.index)
    values = np.asarray(answer)
    return pd.Series(values, rows.index) if columns is None else pd.DataFrame(values, rows.index, columns)


def _column_names(learner: Any, name: str, answer: Any) -> list[Any] | None:
    """The names of the columns of an answer of two dimensions: features for `transform`, else classes or numbers."""
    if np.ndim(answer) < 2:
        return None
    if name == "transform":
        return list(learner.get_feature_names_out())
    if name != "predict" and is_classifier(learner):
        return list(learner.classes_)
    return list(range(np.shape(answer)[1]))


# -- Spark ------------------------------------------------------------------------------------


def _with_column(frame: Any, learner: Described, method: str, column: str) -> Any:
    """The DataFrame with the result of a method for each row. Nothing is computed now."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    schema = learner.schema_
    names = list(schema.reads if schema is not None else learner.feature_names or frame.columns)
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"{NAME} has no column {name!r}. Its columns are {', '.join(frame.columns)}.")
    if len(names) != learner.n_encoded_ and schema is None:
        raise ValueError(
            f"{NAME} has {len(names)} columns, but {type(learner).__name__} is expecting {learner.n_encoded_}: "
            "select those of the fit."
        )
    if column in frame.columns:
        raise ValueError(f"{NAME} has a column {column!r}: rename it, since the results are given that name.")
    arrow_type = _type_of(learner, method)
    fields = [*frame.schema.fields, StructField(column, from_arrow_type(arrow_type))]

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


def _type_of(learner: Described, method: str) -> pa.DataType:
    """The type of the results, told by that of a row of zeros."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = methodcaller(method, np.zeros((1, learner.n_encoded_)))(learner)
    value_type = pa.string() if result.dtype.kind in "OUS" else pa.from_numpy_dtype(result.dtype)
    return pa.list_(value_type) if result.ndim == 2 else value_type
