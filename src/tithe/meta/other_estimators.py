"""Estimators of other libraries: the weights, rows and labels that they take, and their residuals."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, get_routing_for_object

from tithe.core.data import Array, Block
from tithe.fit.bases import BaseEstimator, ClassifierMixin

_WEIGHT = "sample_weight"
_PAIRWISE_OPTIONS = ("kernel", "metric", "affinity")


def last_step(estimator: Any) -> tuple[str, Any]:
    """The last step of a pipeline, or the estimator itself, with the prefix of its parameters.

    >>> from sklearn.linear_model import Ridge
    >>> last_step(Pipeline([("model", Ridge())]))
    ('model__', Ridge())
    """
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix, estimator


def takes_weights(estimator: Any, method: str) -> bool:
    """Whether ``fit`` or ``score`` of an estimator, or of the last step of a pipeline, uses weights."""
    _, learner = last_step(estimator)
    if not hasattr(learner, method):
        return False
    if _is_routed(estimator):
        return bool(get_routing_for_object(learner).consumes(method, [_WEIGHT]))
    return _WEIGHT in signature(getattr(learner, method)).parameters


def fit_arguments(estimator: Any, sample_weight: Array | None) -> dict[str, Array]:
    """Keyword arguments that pass the weights to ``estimator.fit``; none if there are no weights.

    A pipeline passes them to its last step and to each other step whose ``fit`` takes them. If metadata routing is
    enabled, pipelines and other meta-estimators route them as their steps request.
    """
    if sample_weight is None:
        return {}
    names = [_WEIGHT] if _is_routed(estimator) else _names(estimator)
    return dict.fromkeys(names, sample_weight)


def _names(estimator: Any) -> list[str]:
    if isinstance(estimator, Pipeline):
        return [f"{name}__{inner}" for name, step in estimator.steps for inner in _names(step)]
    return [_WEIGHT] if takes_weights(estimator, "fit") else []


def _is_routed(estimator: Any) -> bool:
    """Whether scikit-learn routes the weights."""
    enabled = get_config()["enable_metadata_routing"]
    return bool(enabled) and isinstance(get_routing_for_object(estimator), MetadataRouter)


def check_learns_from_coresets(estimator: Any) -> None:
    """Refuse an estimator that uses no weights, or that takes a precomputed kernel or distance matrix."""
    _, learner = last_step(estimator)
    name = type(learner).__name__ if not isinstance(learner, str) else repr(learner)
    where = f"The last step of the pipeline, {name}," if isinstance(estimator, Pipeline) else f"{name}.fit()"
    if not takes_weights(estimator, "fit"):
        if _is_routed(estimator):
            advice = "Request it: call set_fit_request(sample_weight=True) on the estimator that learns."
            raise ValueError(f"{where} requests no sample_weight, so it cannot learn from a coreset. {advice}")
        advice = (
            " If it hands weights to an inner estimator, enable metadata routing "
            "(sklearn.set_config(enable_metadata_routing=True)) and request sample_weight there."
            if isinstance(learner, MetaEstimatorMixin)
            else ""
        )
        raise ValueError(f"{where} takes no sample_weight, so it cannot learn from a coreset.{advice}")
    if _is_pairwise(estimator):
        raise ValueError(
            f"{type(estimator).__name__} takes a precomputed matrix of kernel values or distances, and a coreset is "
            "drawn from rows of features. Give it the rows, with a kernel or metric that it computes itself."
        )


def _is_pairwise(estimator: Any) -> bool:
    if get_tags(estimator).input_tags.pairwise:
        return True
    if isinstance(estimator, Pipeline):  # only the first step takes X; a later one may take a kernel of it
        return False
    # meta-estimators do not all pass the tag on
    options = estimator.get_params(deep=True).items()
    return any(
        isinstance(value, str) and value == "precomputed" and key.rpartition("__")[2] in _PAIRWISE_OPTIONS
        for key, value in options
    )


def takes_categories(estimator: Any) -> bool:
    """Whether an estimator treats gaps and categories of a frame itself, or looks up the columns of one by name.

    These are the boosted trees of scikit-learn and LightGBM, those of XGBoost with ``enable_categorical``, and
    pipelines that begin with a `sklearn.compose.ColumnTransformer`.
    """
    if isinstance(estimator, Pipeline):
        return isinstance(estimator.steps[0][1], ColumnTransformer)
    options = estimator.get_params(deep=False)
    by_option = options.get("categorical_features") == "from_dtype" or options.get("enable_categorical") is True
    return by_option or type(estimator).__module__.startswith("lightgbm.")


class _NumberedClasses(ClassifierMixin, BaseEstimator):
    """A classifier that takes only the numbers 0, 1, ... for classes, such as XGBoost's, with labels of any kind."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, **params: Any) -> _NumberedClasses:
        self.classes_ = np.unique(y)
        if "eval_set" in params:
            params["eval_set"] = [(rows, self._numbers(labels)) for rows, labels in params["eval_set"]]
        self.estimator_ = clone(self.estimator).fit(X, self._numbers(y), **params)
        return self

    def _numbers(self, labels: Any) -> Array:
        numbers: Array = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[numbers] != np.asarray(labels))
        if len(unknown):
            raise ValueError(f"eval_set has the class {np.asarray(labels)[unknown[0]]!r}, which the coreset has not.")
        return numbers

    def predict(self, X: Any) -> Array:
        labels: Array = self.classes_[self.estimator_.predict(X)]
        return labels

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "estimator_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.estimator_, name)


def fitted_to_labels(estimator: Any, X: Any, y: Any, **params: Any) -> Any:
    """The estimator, fitted; with class numbers in place of labels if it refuses these."""
    try:
        return estimator.fit(X, y, **params)
    except ValueError:
        if not is_classifier(estimator) or np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise
        try:
            return _NumberedClasses(estimator).fit(X, y, **params)
        except ValueError:
            pass
        raise


def residuals(estimator: Any, labels: Array | None, rows_of: Callable[[Block], Any], block: Block) -> Array:
    """Residuals (n, c) of a fitted estimator: of y, or of the indicator of each class but the first.

    ``labels`` are those of a classifier; y of the block then holds class numbers. ``rows_of`` gives the rows of a block
    as the estimator takes them.
    """
    assert block.y is not None
    residual: Array
    if labels is None:
        residual = (block.y - estimator.predict(rows_of(block)))[:, None]
        return residual
    indicators = np.equal.outer(labels[block.y], estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        predicted = estimator.predict_proba(rows_of(block))
    else:
        predicted = np.equal.outer(estimator.predict(rows_of(block)), estimator.classes_)
    residual = (indicators[:, 1:] - predicted[:, 1:]).astype(np.float64)
    return residual
