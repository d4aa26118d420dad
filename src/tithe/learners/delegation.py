"""Methods and attributes of the estimator inside `CoresetEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Block
from tithe.learners.bases import available_if


def if_estimator_has(method: str) -> Callable[[Any], Any]:
    """A decorator of a method that is available only if the estimator has it."""

    def check(learner: Any) -> bool:
        getattr(learner.estimator_ if learner._fitted_values else learner.estimator, method)
        return True

    return available_if(check)


def require_method(estimator: Any, method: str, *, needed_by: str) -> None:
    """Refuse an estimator of another library that lacks a method."""
    if not hasattr(estimator, method):
        raise ValueError(f"{needed_by} needs {method}(), which {type(estimator).__name__} does not have.")


def _attribute(name: str) -> Any:
    return property(lambda self: getattr(self.estimator_, name), doc=f"``{name}`` of ``estimator_``.")


class EstimatorMethods:
    """Calls the methods of ``estimator_`` with checked rows."""

    estimator_: Any
    _checked: Callable[..., Block]

    classes_: Any = _attribute("classes_")
    coef_: Any = _attribute("coef_")
    intercept_: Any = _attribute("intercept_")
    feature_importances_: Any = _attribute("feature_importances_")
    n_iter_: Any = _attribute("n_iter_")

    def _call(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._checked(X, reset=False).X)

    @if_estimator_has("predict")
    def predict(self, X: Any) -> Any:
        return self._call("predict", X)

    @if_estimator_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        return self._call("predict_proba", X)

    @if_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        return self._call("predict_log_proba", X)

    @if_estimator_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        return self._call("decision_function", X)

    @if_estimator_has("score_samples")
    def score_samples(self, X: Any) -> Any:
        return self._call("score_samples", X)

    @if_estimator_has("transform")
    def transform(self, X: Any) -> Any:
        return self._call("transform", X)

    @if_estimator_has("inverse_transform")
    def inverse_transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.estimator_.inverse_transform(X)
