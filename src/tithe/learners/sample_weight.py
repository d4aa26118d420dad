"""Where the weights of rows go: to an estimator, to the steps of a pipeline, or through scikit-learn's routing."""

from __future__ import annotations

from inspect import signature
from typing import Any

from sklearn import get_config
from sklearn.base import MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, get_routing_for_object

from tithe.core.data import Array

_WEIGHT = "sample_weight"
_PAIRWISE_OPTIONS = ("kernel", "metric", "affinity")


def last_step(estimator: Any) -> tuple[str, Any]:
    """The estimator that learns, with the prefix of its parameters: a pipeline's last step, or the estimator itself.

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
    """Keyword arguments that hand the weights to ``estimator.fit``; none where there are no weights.

    A pipeline gives them to its last step and to every other step whose ``fit`` takes them. Where metadata
    routing is enabled, pipelines and other meta-estimators route them as their steps request.
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
    """Whether scikit-learn decides where the weights go."""
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
    if isinstance(estimator, Pipeline):  # the first step decides, and a later one may well take a kernel of the first
        return False
    # meta-estimators do not all pass the tag on
    options = estimator.get_params(deep=True).items()
    return any(
        isinstance(value, str) and value == "precomputed" and key.rpartition("__")[2] in _PAIRWISE_OPTIONS
        for key, value in options
    )
