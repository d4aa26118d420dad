"""Any estimator with ``sample_weight``, on a coreset."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from tithe.calibrate import calibrate as calibrate_weights
from tithe.certify import Certificate, outside, polish_rounds
from tithe.core.data import Array, Block, Moments
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.learners.base import CoresetLearner, all_rows
from tithe.objectives.generic import GenericObjective

_BATCHES = 20
_ROWS = 16_384


def _has(method: str) -> Any:
    def check(self: Any) -> bool:
        getattr(self.estimator_ if hasattr(self, "estimator_") else self.estimator, method)
        return True

    return available_if(check)


class CoresetEstimator(CoresetLearner, MetaEstimatorMixin, BaseEstimator):
    """Fit any scikit-learn estimator that takes ``sample_weight`` on a calibrated coreset.

    Parameters
    ----------
    estimator : estimator
        Its ``fit`` must take ``sample_weight``. It is cloned, not changed.
    objective : str or objective
        What the coreset preserves. ``"generic"`` keeps counts, means and second moments of the
        columns (by class for classifiers) and the products with y (for regressors).
    coreset_size : int or float
        Rows to learn from, or a fraction of the rows. With no more rows than this, all are used.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int
        Rounds of re-calibration: residuals of the fitted model are taken on all rows, the weights
        are calibrated to their products with the columns, and the estimator is fitted again. Kept
        only if the score on all rows rises. Needs ``predict`` and a y.
    random_state : int, RandomState, Generator or None
        Of the coreset; the estimator has its own.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on the coreset.
    classes_ : array
        For classifiers.
    coreset_ : Coreset
        Its y holds class numbers for classifiers.
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from tithe import CoresetEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=50_000)
    >>> model = CoresetEstimator(Ridge(), coreset_size=1000, random_state=0).fit(X, y)
    >>> model.estimator_.coef_.round(1).tolist()
    [1.0, -2.0, 0.5]
    """

    def __init__(
        self,
        estimator: Any,
        *,
        objective: Any = "generic",
        coreset_size: int | float = 5000,
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int = 0,
        engine: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CoresetEstimator:
        """Reduce, and fit the estimator on the coreset."""
        if not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(
                f"{type(self.estimator).__name__}.fit() takes no sample_weight, so it cannot learn from a coreset."
            )
        rounds, _ = polish_rounds(self.polish)
        if y is None and self.__sklearn_tags__().target_tags.required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        block = self._checked(X, y, sample_weight, reset=True)
        if is_classifier(self.estimator):
            block = self._encoded(block)
        elif block.y is not None and not np.isfinite(block.y.astype(np.float64)).all():
            raise ValueError("Input y contains NaN or infinity.")
        objective = self._objective(block)
        if len(block) <= self._size(block):
            coreset = all_rows(block, objective.name)
        else:
            coreset = self._reduce(block, objective, as_seed(self.random_state))
        self.coreset_ = coreset
        weight = None if block.sample_weight is None and len(coreset) == len(block) else coreset.weights()
        self.estimator_ = self._fitted(coreset, weight)
        if len(coreset) < len(block):
            for _ in range(rounds):
                if not self._recalibrate(block):
                    break
        return self

    def _encoded(self, block: Block) -> Block:
        assert block.y is not None
        check_classification_targets(block.y)
        self.classes_, numbers = np.unique(block.y, return_inverse=True)
        return Block(X=block.X, y=numbers.astype(np.int64), sample_weight=block.sample_weight, mean=block.mean)

    def _objective(self, block: Block) -> Any:
        if isinstance(self.objective, str) and self.objective == "generic":
            return GenericObjective(n_classes=len(self.classes_) if is_classifier(self.estimator) else 0)
        return make("objective", self.objective)

    def _targets(self, block: Block) -> Array | None:
        return block.y if block.y is None or not is_classifier(self.estimator) else self.classes_[block.y]

    def _fitted(self, block: Block, weight: Array | None) -> Any:
        return clone(self.estimator).fit(block.X, self._targets(block), sample_weight=weight)

    # -- polish ------------------------------------------------------------------------------

    def _recalibrate(self, block: Block) -> bool:
        """One round: calibrate to the residuals of the fitted model on all rows, fit again, keep if better."""
        objective = self._objective(block)
        pilot = self.coreset_.pilot
        if pilot is None or block.y is None or not hasattr(self.estimator_, "predict"):
            raise ValueError("polish needs a y, an estimator with predict(), and calibrate=True.")
        totals: Array | None = None
        for start in range(0, len(block), _ROWS):
            rows = np.arange(start, min(len(block), start + _ROWS))
            part = block.take(rows, block.weights()[rows])
            moments = self._residual_moments(part, objective, pilot)
            if totals is None:
                assert self.coreset_.totals is not None
                totals = np.zeros((len(self.coreset_.totals), moments.values.shape[1]))
            groups = np.zeros(len(part), np.int64) if moments.groups is None else moments.groups
            np.add.at(totals, groups, moments.values * part.weights()[:, None])
        assert totals is not None
        moments = self._residual_moments(self.coreset_, objective, pilot)
        weight, _ = calibrate_weights(self.coreset_.weights(), moments, totals)
        tried = self._fitted(self.coreset_, weight)
        if not self._score(tried, block) > self._score(self.estimator_, block):
            return False
        self.estimator_ = tried
        return True

    def _residual_moments(self, block: Block, objective: Any, pilot: Array) -> Moments:
        moments: Moments = objective.moments(block, pilot)
        residual = self._residuals(block)
        z = moments.values[:, 2 : 2 + block.n_features]
        products = [r[:, None] * z for r in residual.T]
        return Moments(
            values=np.column_stack([moments.values, residual, *products]),
            groups=moments.groups,
            n_basic=moments.n_basic,
        )

    def _residuals(self, block: Block) -> Array:
        """(n, c): what the fitted model leaves unexplained, for each class but the first or for y itself."""
        assert block.y is not None
        if not is_classifier(self.estimator):
            return (block.y - self.estimator_.predict(block.X))[:, None]
        truth = np.equal.outer(block.y, np.arange(len(self.classes_)))
        if hasattr(self.estimator_, "predict_proba"):
            guess = self.estimator_.predict_proba(block.X)
        else:
            guess = np.equal.outer(self.estimator_.predict(block.X), self.classes_)
        return (truth[:, 1:] - guess[:, 1:]).astype(np.float64)

    def _score(self, estimator: Any, block: Block) -> float:
        return float(estimator.score(block.X, self._targets(block), sample_weight=block.sample_weight))

    # -- certify -----------------------------------------------------------------------------

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The estimator's score on rows it has not seen, with a 95 % interval.

        ``X`` is the training data (recognised by its number of rows; the rows of the coreset are
        then left out) or other data from the same source. The interval comes from the scores of
        twenty parts of the rows and Student's t.
        """
        check_is_fitted(self)
        block = self._checked(X, y, sample_weight, reset=False)
        if len(block) == self.coreset_.n_seen:
            block = outside(block, self.coreset_)
        if len(block) < 2 * _BATCHES:
            raise ValueError(f"{len(block)} rows outside the coreset are too few to certify from: give held-out data.")
        order = rng_for(0, "certify").permutation(len(block))
        scores = []
        for rows in np.array_split(order, _BATCHES):
            part = block.take(np.sort(rows))
            scores.append(self.estimator_.score(part.X, part.y, **_weights_of(part)))
        value = float(self.estimator_.score(block.X, block.y, **_weights_of(block)))
        half = float(stats.t.ppf(0.975, _BATCHES - 1) * np.std(scores, ddof=1) / np.sqrt(_BATCHES))
        small = float(
            self.estimator_.score(self.coreset_.X, self._targets(self.coreset_), **_weights_of(self.coreset_))
        )
        return Certificate(
            kind="estimate",
            value=value,
            relative=small - value,
            confidence=0.95,
            n_rows=len(block),
            passes=2,
            sentence=(
                f"Score {value:.4f} +- {half:.4f} (95 %) on {len(block)} rows that were not in the coreset; "
                f"{small:.4f} on the coreset itself, which it was fitted to."
            ),
        )

    # -- the estimator's own methods -----------------------------------------------------------

    def _ask(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._checked(X, reset=False).X)

    @_has("predict")
    def predict(self, X: Any) -> Any:
        return self._ask("predict", X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        return self._ask("predict_proba", X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        return self._ask("predict_log_proba", X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        return self._ask("decision_function", X)

    @_has("transform")
    def transform(self, X: Any) -> Any:
        return self._ask("transform", X)

    @_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        check_is_fitted(self)
        block = self._checked(X, y, sample_weight, reset=False)
        return float(self.estimator_.score(block.X, block.y, **_weights_of(block)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.target_tags.required = inner.target_tags.required
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags


def _weights_of(block: Block) -> dict[str, Array]:
    return {} if block.sample_weight is None else {"sample_weight": block.sample_weight}
