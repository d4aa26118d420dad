"""Methods and attributes of the estimator inside `CoresetEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array
from tithe.fit.bases import available_if
from tithe.fit.collections import lazy_on_collections
from tithe.fit.fitted import ComputedAttribute

T = TypeVar("T")


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


class EstimatorAttribute(ComputedAttribute[T]):
    """A fitted attribute of ``estimator_``. Without it, or without one before a fit, there is an AttributeError."""

    def _value(self, learner: Any, owner: type) -> Any:
        return getattr(learner.estimator_, self._name)


class EstimatorMethods:
    """Calls the methods of ``estimator_`` with checked rows, and has its fitted attributes.

    Attributes with an entry for each row that was fitted, and row numbers, are left out (``labels_``, ``support_``,
    ``oob_prediction_``): they are about rows of the coreset.
    """

    estimator_: Any
    _rows_for_estimator: Callable[[Any], Any]

    # of several families
    classes_ = EstimatorAttribute[Array]()
    n_classes_ = EstimatorAttribute[Any]()
    n_outputs_ = EstimatorAttribute[int]()
    n_iter_ = EstimatorAttribute[Any]()
    # linear models
    coef_ = EstimatorAttribute[Any]()
    sparse_coef_ = EstimatorAttribute[Any]()
    intercept_ = EstimatorAttribute[Any]()
    alpha_ = EstimatorAttribute[Any]()
    alphas_ = EstimatorAttribute[Array]()
    lambda_ = EstimatorAttribute[float]()
    sigma_ = EstimatorAttribute[Array]()
    C_ = EstimatorAttribute[Any]()
    Cs_ = EstimatorAttribute[Array]()
    l1_ratio_ = EstimatorAttribute[Any]()
    l1_ratios_ = EstimatorAttribute[Array]()
    scores_ = EstimatorAttribute[Any]()
    best_score_ = EstimatorAttribute[float]()
    mse_path_ = EstimatorAttribute[Array]()
    dual_gap_ = EstimatorAttribute[Any]()
    scale_ = EstimatorAttribute[Any]()
    rank_ = EstimatorAttribute[int]()
    singular_ = EstimatorAttribute[Array]()
    solver_ = EstimatorAttribute[str]()
    # support vector machines and kernels
    support_vectors_ = EstimatorAttribute[Any]()
    n_support_ = EstimatorAttribute[Array]()
    dual_coef_ = EstimatorAttribute[Any]()
    offset_ = EstimatorAttribute[Any]()
    fit_status_ = EstimatorAttribute[int]()
    class_weight_ = EstimatorAttribute[Array]()
    # trees and ensembles
    feature_importances_ = EstimatorAttribute[Array]()
    tree_ = EstimatorAttribute[Any]()
    max_features_ = EstimatorAttribute[int]()
    estimators_ = EstimatorAttribute[Any]()
    estimator_weights_ = EstimatorAttribute[Array]()
    estimator_errors_ = EstimatorAttribute[Array]()
    estimators_features_ = EstimatorAttribute[Any]()
    n_estimators_ = EstimatorAttribute[int]()
    n_trees_per_iteration_ = EstimatorAttribute[int]()
    init_ = EstimatorAttribute[Any]()
    oob_score_ = EstimatorAttribute[float]()
    oob_scores_ = EstimatorAttribute[Array]()
    oob_improvement_ = EstimatorAttribute[Array]()
    train_score_ = EstimatorAttribute[Array]()
    validation_score_ = EstimatorAttribute[Array]()
    best_iteration_ = EstimatorAttribute[int]()
    calibrated_classifiers_ = EstimatorAttribute[Any]()
    # neural networks
    coefs_ = EstimatorAttribute[Any]()
    intercepts_ = EstimatorAttribute[Any]()
    loss_ = EstimatorAttribute[Any]()
    best_loss_ = EstimatorAttribute[Any]()
    loss_curve_ = EstimatorAttribute[Any]()
    n_layers_ = EstimatorAttribute[int]()
    # naive Bayes
    class_count_ = EstimatorAttribute[Array]()
    class_prior_ = EstimatorAttribute[Array]()
    class_log_prior_ = EstimatorAttribute[Array]()
    feature_count_ = EstimatorAttribute[Array]()
    feature_log_prob_ = EstimatorAttribute[Any]()
    theta_ = EstimatorAttribute[Array]()
    var_ = EstimatorAttribute[Any]()
    # clusters and densities
    cluster_centers_ = EstimatorAttribute[Array]()
    inertia_ = EstimatorAttribute[float]()
    bandwidth_ = EstimatorAttribute[float]()
    # searches and pipelines
    best_estimator_ = EstimatorAttribute[Any]()
    best_params_ = EstimatorAttribute[dict[str, Any]]()
    cv_results_ = EstimatorAttribute[Any]()
    named_steps = EstimatorAttribute[Any]()

    def _call(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._rows_for_estimator(X))

    @if_estimator_has("predict")
    @lazy_on_collections
    def predict(self, X: Any) -> Any:
        return self._call("predict", X)

    @if_estimator_has("predict_proba")
    @lazy_on_collections
    def predict_proba(self, X: Any) -> Any:
        return self._call("predict_proba", X)

    @if_estimator_has("predict_log_proba")
    @lazy_on_collections
    def predict_log_proba(self, X: Any) -> Any:
        return self._call("predict_log_proba", X)

    @if_estimator_has("decision_function")
    @lazy_on_collections
    def decision_function(self, X: Any) -> Any:
        return self._call("decision_function", X)

    @if_estimator_has("score_samples")
    @lazy_on_collections
    def score_samples(self, X: Any) -> Any:
        return self._call("score_samples", X)

    @if_estimator_has("transform")
    @lazy_on_collections
    def transform(self, X: Any) -> Any:
        return self._call("transform", X)

    @if_estimator_has("inverse_transform")
    def inverse_transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.estimator_.inverse_transform(X)
