"""An estimator of scikit-learn's kind in a comparison: its fits, and what they lose on rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from tithe.core.contracts import Objective
from tithe.core.data import Array, Block, Coreset, Rng
from tithe.core.params import Target
from tithe.meta.ensembles import learning_objective, learning_weights, with_class_factors
from tithe.meta.other_estimators import OriginalRows, check_learns_from_coresets, fit_arguments, with_categories
from tithe.rows.schema import TableSchema

_LEAST_CHANCE = 1e-15
_NUMBERS = OriginalRows()  # numeric rows as they are


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedLearner:
    """Fits clones of an estimator. y holds class numbers for classifiers.

    The loss of a row is -ln P(y | x), of an estimator without probabilities 0 or 1, of a regression (y - f(x))^2.
    ``given`` says what the estimator gets in place of numeric rows: dense ones, or a frame with gaps and categories.
    """

    estimator: Any
    given: OriginalRows = _NUMBERS

    def __post_init__(self) -> None:
        check_learns_from_coresets(self.estimator)

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    @property
    def target(self) -> Target:
        return "class" if is_classifier(self.estimator) else "number"

    def for_schema(self, schema: TableSchema | None) -> ComparedLearner:
        """The same for rows that a schema made of a table: see `OriginalRows.for_learner`."""
        return replace(self, given=OriginalRows().for_learner(self.estimator, schema))

    def objective(self, n_classes: int) -> Objective:
        """What its coresets preserve."""
        return learning_objective(self.estimator, "auto", n_classes)

    def fit(self, rows: Block, rng: Rng) -> Any:
        model = clone(self.estimator)
        if model.get_params().get("random_state", 0) is None:
            model.set_params(random_state=int(rng.integers(2**31)))
        weight = rows.sample_weight
        if isinstance(rows, Coreset):
            model, factors = with_class_factors(model, rows)
            weight = learning_weights(model, rows) * factors
        X = self.given.of(rows)
        return with_categories(model, X).fit(X, rows.y, **fit_arguments(model, weight))

    def predicted(self, model: Any, X: Any) -> Array:
        """The class number, or the number, that a model predicts for each row of what it gets: (n,)."""
        return np.ravel(model.predict(X))  # CatBoost predicts a column (n, 1) if there are many classes

    def chances(self, model: Any, X: Any, n_classes: int) -> Array | None:
        """The probabilities of all classes (n, K), 0 of those without a row in the fit; None if there are none.

        ``X`` are rows as the estimator gets them.
        """
        if not hasattr(model, "predict_proba"):
            return None
        chances = np.zeros((X.shape[0], n_classes))
        chances[:, np.asarray(model.classes_, np.int64)] = model.predict_proba(X)
        return chances

    def losses(self, model: Any, X: Any, y: Array, n_classes: int) -> Array:
        """The loss of each row: (n,). ``X`` are rows as the estimator gets them."""
        if self.target == "number":
            square: Array = np.square(y.astype(np.float64) - self.predicted(model, X))
            return square
        chances = self.chances(model, X, n_classes)
        if chances is None:
            return np.asarray(self.predicted(model, X) != y, np.float64)
        return -np.log(np.maximum(chances[np.arange(len(y)), y], _LEAST_CHANCE))
