"""Poisson regression on a coreset, polished and certified on all rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.metrics import d2_tweedie_score

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.progress import Checkpoint, Progress
from tithe.linear.learner import TOLERANCE
from tithe.linear.regression_objectives import PoissonObjective
from tithe.linear.regressor import CORESET_TOL_RATIO, CoresetLinearRegressor
from tithe.rows.arrays import check_weights


class CoresetPoissonRegressor(CoresetLinearRegressor):
    """Poisson regression (L2) on a calibrated coreset, polished and certified on all rows.

    Minimises the mean, weighted by u, of half the Poisson deviance of exp(x . w + b), plus alpha / 2 |w|^2, the
    intercept b free: the same as `sklearn.linear_model.PoissonRegressor`.

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
    certificate_, objective_curve_, n_iter_, n_passes_, coreset_, sample_indices_, stream_
        See `CoresetLogisticRegression`. The y of a coreset holds rates if there were exposures.

    Notes
    -----
    With ``exposure`` e (years insured, hours observed) a row has y events in e units, and the mean of y is
    e exp(x . w + b). Its loss e exp(z) - y (z + ln e) is, up to a constant, e times that of the rate y / e. So rates
    are fitted with weights u e, as scikit-learn advises for its `PoissonRegressor`: `predict` gives events per unit,
    and the loss is a mean over units, not over rows. With a source, give rates as its target and exposures as its
    weight.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> years = rng.uniform(0.1, 2.0, size=100_000)
    >>> y = rng.poisson(years * np.exp(X @ [0.2, -0.5, 0.3] - 1.0))
    >>> model = CoresetPoissonRegressor(alpha=1e-4, coreset_size=1000, random_state=0).fit(X, y, exposure=years)
    >>> model.coef_.round(1).tolist(), round(model.intercept_, 1)
    ([0.2, -0.5, 0.3], -1.0)
    """

    options = (*PoissonObjective.options, TOLERANCE)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Reduce, fit on the coreset, calibrate, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
        y : array of shape (n,)
            Counts or rates, not negative. That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        exposure : array of shape (n,), optional
            Positive. y are then counts in ``exposure`` units, see Notes.
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        return super().fit(X, *_rates(X, y, sample_weight, exposure), checkpoint=checkpoint, progress=progress)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, exposure: Any = None) -> Self:
        """Add rows, which need not be kept; see `CoresetLogisticRegression.partial_fit` and `fit`."""
        return super().partial_fit(X, *_rates(X, y, sample_weight, exposure))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the deviance that is explained (D^2), as in scikit-learn."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _mean_of(self, score: Array) -> Array:
        return np.exp(score)

    def _prepare_block(self, block: Block, *, reset: bool) -> Block:
        prepared = super()._prepare_block(block, reset=reset)
        if reset:
            self._check_rows(prepared)
        return prepared

    def _check_rows(self, block: Block) -> None:
        if block.y is None or not (block.weights() * block.y).any():
            raise ValueError("All targets are 0, so the logarithm of their mean is not finite. Give positive ones too.")

    def _objective(self) -> PoissonObjective:
        return PoissonObjective(
            alpha=self.alpha, fit_intercept=self.fit_intercept, max_iter=self.max_iter, tol=CORESET_TOL_RATIO * self.tol
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _rates(X: Any, y: Any, sample_weight: Any, exposure: Any) -> tuple[Any, Any]:
    """Targets and weights, changed into rates and their weights if there are exposures."""
    if exposure is None:
        return y, sample_weight
    if isinstance(X, Source) or y is None:
        raise ValueError("exposure needs y. With a source, give rates as its target and exposures as its weight.")
    y = np.asarray(y, np.float64)
    units = check_weights(exposure, len(y))
    if units is None or not units.all():
        raise ValueError("exposure must be positive for every row.")
    weight = check_weights(sample_weight, len(y))
    return y / units, units if weight is None else weight * units
