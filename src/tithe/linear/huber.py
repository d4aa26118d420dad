"""Huber regression on a coreset, polished and certified on all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.state_checks import Number
from tithe.fit.fitted import FittedAttribute
from tithe.linear.learner import TOLERANCE
from tithe.linear.regression_objectives import HuberObjective
from tithe.linear.regressor import CoresetLinearRegressor

_CORESET_TOL_RATIO = 1e-8  # tolerance of the fit on the coreset over that on all rows; Newton's last steps cost little


class CoresetHuberRegressor(CoresetLinearRegressor):
    """Huber regression (L2) on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i (s + s H((y_i - x_i . w - b) / s)) + alpha |w|^2 over coefficients w, the intercept b and the
    scale s: the same as `sklearn.linear_model.HuberRegressor`. H(t) = t^2 where |t| <= epsilon, else
    2 epsilon |t| - epsilon^2: the loss of an outlier grows with its distance, not with the square of it.

    Parameters
    ----------
    epsilon : float
        >= 1: residuals beyond epsilon times the scale are outliers.
    alpha : float
        Strength of the penalty.
    coreset_size, construction, calibrate, polish, tol, fit_intercept, warm_start, engine, n_jobs, verbose, random_state
        See `CoresetLogisticRegression`.
    max_iter : int
        Maximum number of rounds of the fit on the coreset.

    Attributes
    ----------
    coef_, intercept_, scale_ : array (d,), float, float
    certificate_, objective_curve_, n_iter_, n_passes_, coreset_, sample_indices_, stream_
        See `CoresetLogisticRegression`. The certificate is about coefficients, intercept and scale together.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0 + rng.normal(size=100_000)
    >>> y[::50] += 1000.0
    >>> model = CoresetHuberRegressor(coreset_size=1000, random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([1.0, -2.0, 0.5], 3.0)
    """

    options = (*HuberObjective.options, TOLERANCE)
    scale_ = FittedAttribute[float](Number(least=0.0))

    def __init__(
        self,
        epsilon: float = 1.35,
        *,
        alpha: float = 0.0001,
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
        super().__init__(
            alpha,
            coreset_size=coreset_size,
            construction=construction,
            calibrate=calibrate,
            polish=polish,
            tol=tol,
            fit_intercept=fit_intercept,
            max_iter=max_iter,
            warm_start=warm_start,
            engine=engine,
            n_jobs=n_jobs,
            verbose=verbose,
            random_state=random_state,
        )
        self.epsilon = epsilon

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, and the scale."""
        return {**super().summary(), "scale": self.scale_}

    def _params(self) -> Array:
        scale = np.append(np.zeros(len(self.coef_)), self.scale_)
        return np.vstack([super()._params(), scale])

    def _store(self, params: Array) -> None:
        super()._store(params)
        self.scale_ = float(params[1, -1])

    def _objective(self) -> HuberObjective:
        return HuberObjective(
            alpha=self.alpha,
            epsilon=self.epsilon,
            fit_intercept=self.fit_intercept,
            max_iter=self.max_iter,
            tol=_CORESET_TOL_RATIO * self.tol,
        )
