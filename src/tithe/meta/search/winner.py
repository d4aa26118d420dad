"""The winner of a search: how it is fitted, and its methods, which the search has as well."""

from __future__ import annotations

from typing import Any

from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array
from tithe.core.seeding import rng_for
from tithe.fit.base import CoresetLearner
from tithe.fit.fitted import FittedAttribute
from tithe.fit.results import Described
from tithe.meta.estimator import CoresetEstimator
from tithe.meta.other_estimators import last_step
from tithe.meta.search.folds import FoldReducer
from tithe.meta.search.scoring import Scoring, is_multimetric, score_rows, scorers_of
from tithe.rows.arrays import check_weights


def _check_refit(search: Any, method: str) -> None:
    if not search.refit:
        raise AttributeError(f"{method} needs the winner fitted on all rows, and refit is False: set it to True.")


def _passed_on(method: str) -> Any:
    """A method of the winner, available only if the estimator has it."""

    def has(self: Any) -> bool:
        _check_refit(self, f"{method}()")
        getattr(self.best_estimator_ if self._fitted_values else self.estimator, method)
        return True

    def call(self: Any, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method)(X)

    call.__name__, call.__doc__ = method, f"Call ``{method}`` of the winner."
    return available_if(has)(call)


def winner_of(best: Any, reducer: FoldReducer, n_rows: int | None, engine: Any) -> Any:
    """The best candidate as a learner on a coreset of all rows, which are reduced as those of the folds."""
    if isinstance(best, CoresetLearner):
        return best
    size = reducer.size(n_rows)
    prefix, learner = last_step(best)
    if isinstance(learner, CoresetLearner):
        best.set_params(**{f"{prefix}coreset_size": size})  # it is fitted on a coreset, which it must not reduce again
    return CoresetEstimator(
        best,
        objective=reducer.objective_for(reducer.n_classes),
        coreset_size=size,
        construction=reducer.construction,
        calibrate=reducer.calibrate,
        engine=engine,
        random_state=int(rng_for(reducer.seed, "refit").integers(2**62)),
    )


class WinnerMethods(Described):
    """Methods and attributes of ``best_estimator_``, for `CoresetSearchCV`."""

    estimator: Any
    scoring: Any
    refit: Any
    multimetric_ = FittedAttribute[bool]()
    best_estimator_ = FittedAttribute[Any](optional=True)

    predict = _passed_on("predict")
    predict_proba = _passed_on("predict_proba")
    predict_log_proba = _passed_on("predict_log_proba")
    decision_function = _passed_on("decision_function")
    score_samples = _passed_on("score_samples")
    transform = _passed_on("transform")
    inverse_transform = _passed_on("inverse_transform")

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The score of the winner by ``scoring``; of several scores, the one that ``refit`` names."""
        _check_refit(self, "score()")
        check_is_fitted(self, "best_estimator_")
        if self.multimetric_ and not isinstance(self.refit, str):
            raise ValueError("Several scores were taken, and refit is a callable that names none: use scorer_.")
        named = is_multimetric(self.scoring)
        scoring = self.scorer_[self.refit] if named else self.scoring
        weight = check_weights(sample_weight, X.shape[0] if hasattr(X, "shape") else len(X))
        scorer = Scoring(self.estimator, scoring)
        scores = score_rows(scorer.scorer(), self.best_estimator_, X, y, weight if scorer.uses(weight) else None)
        return float(scores[self.refit] if isinstance(scores, dict) else scores)

    def summary(self) -> dict[str, Any]:
        """The best parameters, and what the winner says about itself."""
        values: dict[str, Any] = self.__dict__.get("_fitted_values") or {}
        best = {name: values[f"{name}_"] for name in ("best_params", "best_score") if f"{name}_" in values}
        winner = values.get("best_estimator_")
        return {**best, **(winner.summary() if isinstance(winner, Described) else {})}

    @property
    def scorer_(self) -> Any:
        """The scorer, or a dict of scorers by name.

        It is made from ``scoring`` each time, because a saved model must not contain functions.
        """
        if is_multimetric(self.scoring):
            return scorers_of(self.estimator, self.scoring)
        return Scoring(self.estimator, self.scoring).scorer()

    @property
    def classes_(self) -> Array:
        _check_refit(self, "classes_")
        classes: Array = self.best_estimator_.classes_
        return classes

    def __sklearn_tags__(self) -> Any:
        return CoresetEstimator(self.estimator).__sklearn_tags__()
