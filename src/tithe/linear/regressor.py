"""The base class of linear regressions on a coreset."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.passes import DataPass
from tithe.core.state_checks import Floats, Number
from tithe.fit.bases import RegressorMixin
from tithe.fit.fitted import FLOATS, FittedAttribute
from tithe.fit.results import BarChart, column_names, named_coefficients
from tithe.linear.learner import CoresetLinearModel
from tithe.linear.regression_objectives import SingleScoreObjective
from tithe.rows.leaves import MappedSource

CORESET_TOL_RATIO = 0.01  # tolerance of the fit on the coreset over that on all rows


@dataclass(frozen=True)
class NumericTarget:
    """Converts y to double precision, and refuses targets that the loss is not defined for."""

    loss: type[SingleScoreObjective]

    def __call__(self, block: Block) -> Block:
        if block.y is None:
            raise ValueError("The source gives no y: name its column, target=...")
        try:
            y = np.asarray(block.y, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y must hold numbers: {error}.") from error
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity.")
        self.loss.check_target(y)
        return replace(block, y=y)


class CoresetLinearRegressor(RegressorMixin, CoresetLinearModel):
    """A linear model with one score and a numeric target.

    Subclasses have the parameters of `CoresetLinearModel`, ``alpha`` and ``max_iter``. They define ``_objective()``.
    """

    coef_ = FittedAttribute[Array](Floats("d", dtypes=FLOATS))
    intercept_ = FittedAttribute[float](Number())

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        tol: float = 1e-4,
        fit_intercept: bool = True,
        max_iter: int = 200,
        warm_start: bool = False,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @abstractmethod
    def _objective(self) -> SingleScoreObjective:
        """The loss that a coreset has to preserve."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, which need not be kept; see `CoresetLogisticRegression.partial_fit`."""
        return self._push(X, self._required(y), sample_weight)

    def predict(self, X: Any) -> Array:
        """The expected target of each row: (n,); a column ``prediction`` of a Spark DataFrame."""
        return self._mean_of(self._score(X))

    def _score(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = self._checked(X, reset=False).X
        score: Array = np.asarray(rows @ self.coef_.astype(rows.dtype)) + rows.dtype.type(self.intercept_)
        return score

    def _mean_of(self, score: Array) -> Array:
        """The expected target of rows with these scores."""
        return score

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, and the coefficients."""
        coefficients = named_coefficients(self, self.coef_[None], ())
        return {**super().summary(), "intercept": float(self.intercept_), "coefficients": coefficients}

    def charts(self) -> list[BarChart]:
        """The coefficients."""
        return [BarChart.of_largest("coefficients", column_names(self), self.coef_, "coefficient")]

    # -- methods of the base class -------------------------------------------------------------

    def _params(self) -> Array:
        return np.append(self.coef_, self.intercept_).astype(np.float64)[None]

    def _store(self, params: Array) -> None:
        self.coef_, self.intercept_ = params[0, :-1].copy(), float(params[0, -1])

    def _learn(self, coreset: Coreset | None, data: DataPass | None, seed: int, **options: Any) -> None:
        super()._learn(coreset, data, seed, **options)
        self.coef_ = self.coef_.astype(self.coreset_.X.dtype)

    def _prepare_block(self, block: Block, *, reset: bool) -> Block:
        return NumericTarget(type(self._objective()))(block)

    def _prepare_source(self, data: DataPass, *, reset: bool) -> DataPass:
        assert isinstance(data.rows, Source)
        return data.over(MappedSource(data.rows, NumericTarget(type(self._objective()))))

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        return self._prepare_block(block, reset=False)
