"""Estimators of other libraries: the weights that they take, directly or routed, and their residuals."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, get_routing_for_object

from tithe.core.data import Array, Block

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
