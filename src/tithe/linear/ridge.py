"""Ridge regression on a coreset, polished and certified on all rows."""

from __future__ import annotations

from tithe.linear.learner import TOLERANCE
from tithe.linear.regression_objectives import LeastSquaresObjective
from tithe.linear.regressor import CORESET_TOL_RATIO, CoresetLinearRegressor


class CoresetRidge(CoresetLinearRegressor):
    """Least squares with an L2 penalty on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i (y_i - x_i . w - b)^2 + alpha |w|^2, the intercept b free: the same as
    `sklearn.linear_model.Ridge`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty.
    coreset_size, construction, calibrate, polish, tol, fit_intercept, warm_start, engine, n_jobs, verbose, random_state
        See `CoresetLogisticRegression`.
    max_iter : int
        Maximum number of rounds of the fit on the coreset.

    Attributes
    ----------
    coef_, intercept_ : array (d,), float
    certificate_ : Certificate or None
        How far the loss on all training rows is from the smallest possible; exact up to rounding if the curvature was
        taken from all rows.
    objective_curve_, n_iter_, n_passes_, coreset_, sample_indices_, stream_
        See `CoresetLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0 + rng.normal(size=100_000)
    >>> model = CoresetRidge(coreset_size=1000, random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([1.0, -2.0, 0.5], 3.0)
    """

    options = (*LeastSquaresObjective.options, TOLERANCE)

    def _objective(self) -> LeastSquaresObjective:
        return LeastSquaresObjective(
            alpha=self.alpha, fit_intercept=self.fit_intercept, max_iter=self.max_iter, tol=CORESET_TOL_RATIO * self.tol
        )
