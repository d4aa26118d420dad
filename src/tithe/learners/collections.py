"""Dask collections as the rows of learners: `fit` reads them where they are, `predict` and `transform` are lazy."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from operator import methodcaller
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.learners.tables import schema_of
from tithe.sources.dask_collections import dask_source, is_dask_collection

Method = TypeVar("Method", bound=Callable[..., Any])
_READING = ("fit", "certify")
_LAZY = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform")
_EXAMPLE_ROWS = 2


def reads_collections(method: Method) -> Method:
    """A method of (X, y, sample_weight) that also takes Dask collections: they become a source."""

    @functools.wraps(method)
    def reading(learner: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not is_dask_collection(X):
            return method(learner, X, *args, **options)
        schema = None if method.__name__ == "fit" else schema_of(learner)
        extra = dict(zip(("y", "sample_weight"), args, strict=False))
        extra |= {name: options.pop(name) for name in ("y", "sample_weight") if name in options}
        return method(learner, dask_source(X, **extra, schema=schema), **options)

    return cast(Method, reading)


def lazy_on_collections(method: Method) -> Method:
    """A method of rows that gives a Dask collection for one: nothing is computed by the call."""

    @functools.wraps(method)
    def lazy(learner: Any, X: Any, *args: Any, **options: Any) -> Any:
        if not is_dask_collection(X):
            return method(learner, X, *args, **options)
        check_is_fitted(learner)
        return _mapped(learner, method.__name__, X)

    return cast(Method, lazy)


class CollectionMixin:
    """Lets `fit` and `certify` of subclasses read Dask collections, and makes `predict` and such lazy."""

    without_rows: Callable[[], Any]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: method for name, method in vars(cls).items() if isinstance(method, FunctionType)}
        for name in own.keys() & set(_READING):
            setattr(cls, name, reads_collections(own[name]))
        for name in own.keys() & set(_LAZY):
            setattr(cls, name, lazy_on_collections(own[name]))


def _mapped(learner: Any, name: str, X: Any) -> Any:
    """The method for each partition. The model is one task, which all others depend on."""
    import dask

    slim = learner.without_rows() if isinstance(learner, CollectionMixin) else learner
    model = dask.delayed(slim, pure=False, traverse=False, name=f"tithe-model-{uuid.uuid4().hex}")
    example = _example(X)
    answer = methodcaller(name, example)(slim)
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
    """The names of the columns of an answer of two dimensions: features for `transform`, else classes."""
    if np.ndim(answer) < 2:
        return None
    if name == "transform":
        return list(learner.get_feature_names_out())
    return list(range(np.shape(answer)[1])) if name == "predict" else list(learner.classes_)
