"""Linear regressions on a coreset, polished and certified on all rows: least squares, Poisson and Huber."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.metrics import d2_tweedie_score

from tithe.certify import Certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.state_checks import Either, Floats, Number
from tithe.fit.base import FLOATS, CoresetLearner, FittedAttribute, limits_threads
from tithe.fit.bases import RegressorMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.labels import finite_target
from tithe.fit.results import BarChart, column_names, strongest
from tithe.linear.inference import Inference
from tithe.linear.learner import CORESET_TOL_RATIO, TOLERANCE, CoresetLinearModel
from tithe.linear.outputs import Outputs, checked_targets, has_several_outputs, penalties
from tithe.linear.regression_objectives import (
    HuberObjective,
    LeastSquaresObjective,
    PoissonObjective,
    SingleScoreObjective,
)
from tithe.rows.arrays import check_weights
from tithe.rows.leaves import MappedSource


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
        block = finite_target(replace(block, y=y))
        self.loss.check_target(y)
        return block


class CoresetLinearRegressor(RegressorMixin, CoresetLinearModel):
    """A linear model with one score and a numeric target: the base class of regressors, yours too.

    Subclasses have the parameters of `CoresetRidge`, and set ``objective_class``, which is made with ``alpha``,
    ``fit_intercept``, ``max_iter`` and ``tol``.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> class LeastSquares(tithe.objectives.CoresetLinearRegressor):
    ...     objective_class = tithe.objectives.LeastSquaresObjective
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> LeastSquares(alpha=1e-6, random_state=0).fit(X, X @ [1.0, 2.0]).coef_.round(3).tolist()
    [1.0, 2.0]
    """

    objective_class: ClassVar[type[SingleScoreObjective]]
    _tol_ratio: ClassVar[float] = CORESET_TOL_RATIO
    _takes_newton = True

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
        encode: bool | str = "auto",
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
        self.encode = encode
        self.random_state = random_state

    def _objective(self) -> SingleScoreObjective:
        tol = self._tol_ratio * self.tol
        return self.objective_class(alpha=self.alpha, fit_intercept=self.fit_intercept, max_iter=self.max_iter, tol=tol)

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The expected target of each row: (n,); a column ``prediction`` of a Spark DataFrame."""
        rows = self.solve()._checked(X, reset=False).X
        return self._mean_of(np.asarray(rows @ self.coef_.T.astype(rows.dtype)) + rows.dtype.type(self.intercept_))

    def _mean_of(self, score: Array) -> Array:
        """The expected target of rows with these scores."""
        return score

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, and the coefficients."""
        loss = super().summary()
        coef = np.atleast_2d(self.coef_)
        coefficients = self._named_coefficients(coef, range(len(coef)))
        return {**loss, "intercept": np.asarray(self.intercept_).tolist(), "coefficients": coefficients}

    def charts(self) -> list[BarChart]:
        """The coefficients; of several outputs, the largest of each column."""
        coef = np.atleast_2d(self.solve().coef_)
        axis = "coefficient" if len(coef) == 1 else "largest over the outputs"
        return [BarChart.of_largest("coefficients", column_names(self), strongest(coef), axis)]

    # -- methods of the base class -------------------------------------------------------------

    def _params(self) -> Array:
        return np.append(self.coef_, self.intercept_).astype(np.float64)[None]

    def _attributes(self, params: Array, dtype: Any) -> dict[str, Any]:
        return {"coef_": params[0, :-1].astype(dtype), "intercept_": float(params[0, -1])}

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        target, rows = NumericTarget(type(self._objective())), data.rows
        return data.over(target(rows) if isinstance(rows, Block) else MappedSource(rows, target))

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        return NumericTarget(type(self._objective()))(block)


class CoresetRidge(CoresetLinearRegressor):
    """Least squares with an L2 penalty on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i (y_i - x_i . w - b)^2 + alpha |w|^2, the intercept b free: the same as
    `sklearn.linear_model.Ridge`.

    Parameters
    ----------
    alpha : float or array (m,)
        Strength of the penalty, that of each output if there are several.
    coreset_size, construction, calibrate, polish, tol, fit_intercept, warm_start, engine, n_jobs, verbose
        See `CoresetLogisticRegression`, and there also the next two.
    encode, random_state
    max_iter : int
        Maximum number of rounds of the fit on the coreset.

    Attributes
    ----------
    coef_, intercept_ : array (d,), float
        With y of shape (n, m): (m, d) and (m,).
    certificate_ : Certificate or None
        How far the loss on all training rows is from the smallest possible; exact up to rounding if the curvature was
        taken from all rows. With several outputs it is about the sum of their losses.
    objective_curve_, n_iter_, n_passes_, coreset_, sample_indices_, stream_
        See `CoresetLogisticRegression`.

    Notes
    -----
    With y of shape (n, m) all rows are used, which have to be in memory, and no coreset: one curvature serves all
    outputs.

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
    objective_class = LeastSquaresObjective

    coef_ = FittedAttribute[Array](Either(Floats("d", dtypes=FLOATS), Floats("outputs", "d", dtypes=FLOATS)))
    intercept_ = FittedAttribute[Any](Either(Number(), Floats("outputs")))

    @limits_threads
    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        context: Any,
        checkpoint: Checkpoint | None,
        progress: Progress | bool | None,
    ) -> Self:
        if not has_several_outputs(y):
            return super()._fit(X, y, sample_weight, context, checkpoint, progress)
        if checkpoint is not None:
            raise ValueError(
                "Several outputs are fitted on all rows: there is no reduction to keep. Leave checkpoint out."
            )
        CoresetLearner._check_options(self)  # that of linear models makes the loss of one alpha
        problem, dtype = self._outputs(X, y, sample_weight, reset=True)
        self._note_ranges(X, problem.rows)
        self._start_fit()
        params = problem.fit(self.tol)
        gap = problem.gap(params)
        if not gap.below(self.tol):
            self._warn_above_tol(gap, self.max_iter, problem.n_passes)
        self._fitted_values = {
            "coef_": params[:, :-1].astype(dtype),
            "intercept_": params[:, -1].copy(),
            "certificate_": gap.certificate(len(problem.rows), passes=1),
            "objective_curve_": [gap.evaluation.value],
            "n_iter_": 1,
            "n_passes_": problem.n_passes,
        }
        return self

    def _outputs(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Outputs, Any]:
        """The problems of several outputs, and the type of the rows."""
        if isinstance(X, Source):
            raise ValueError("Several outputs need rows in memory: give arrays, or fit one target of the source.")
        block = self._checked(X, None, sample_weight, reset=reset)
        targets = checked_targets(y, len(block))
        alphas = penalties(self.alpha, targets.shape[1])
        objectives = [clone(self).set_params(alpha=alpha)._objective() for alpha in alphas]
        return Outputs(objectives, block, targets), block.X.dtype

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """How far the loss on these rows, or that of all outputs together, is from the smallest possible on them."""
        if not has_several_outputs(y):
            return super().certify(X, y, sample_weight)
        problem, _ = self.solve()._outputs(X, y, sample_weight, reset=False)
        return problem.gap(self._params()).certificate(len(problem.rows), passes=1)

    def infer(self, X: Any, y: Any = None, sample_weight: Any = None, *, counts: bool = True) -> Inference:
        """See `CoresetLogisticRegression.infer`; of one output."""
        if np.ndim(self.solve().coef_) > 1:
            raise ValueError("Standard errors are those of one output: fit a model to each column of y.")
        return super().infer(X, y, sample_weight, counts=counts)

    def _params(self) -> Array:
        return np.column_stack([np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)]).astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class CoresetPoissonRegressor(CoresetLinearRegressor):
    """Poisson regression (L2) on a calibrated coreset, polished and certified on all rows.

    Minimises the mean, weighted by u, of half the Poisson deviance of exp(x . w + b), plus alpha / 2 |w|^2, the
    intercept b free: the same as `sklearn.linear_model.PoissonRegressor`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty.
    coreset_size, construction, calibrate, polish, tol, fit_intercept, warm_start, engine, n_jobs, verbose
        See `CoresetLogisticRegression`, and there also the next two.
    encode, random_state
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
    objective_class = PoissonObjective

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

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        data = super()._prepare(data, reset=reset)
        if reset and isinstance(data.rows, Block):
            self._check_rows(data.rows)
        return data

    def _check_rows(self, block: Block) -> None:
        if block.y is None or not (block.weights() * block.y).any():
            raise ValueError("All targets are 0, so the logarithm of their mean is not finite. Give positive ones too.")

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
    coreset_size, construction, calibrate, polish, tol, fit_intercept, warm_start, engine, n_jobs, verbose
        See `CoresetLogisticRegression`, and there also the next two.
    encode, random_state
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
    objective_class = HuberObjective
    _tol_ratio = 1e-8  # the last steps of Newton's method cost little
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
        encode: bool | str = "auto",
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
            encode=encode,
            random_state=random_state,
        )
        self.epsilon = epsilon

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, and the scale."""
        return {**super().summary(), "scale": self.scale_}

    def _params(self) -> Array:
        scale = np.append(np.zeros(len(self.coef_)), self.scale_)
        return np.vstack([super()._params(), scale])

    def _attributes(self, params: Array, dtype: Any) -> dict[str, Any]:
        return {**super()._attributes(params, dtype), "scale_": float(params[1, -1])}

    def _objective(self) -> HuberObjective:
        objective = super()._objective()
        assert isinstance(objective, HuberObjective)
        return replace(objective, epsilon=self.epsilon)
