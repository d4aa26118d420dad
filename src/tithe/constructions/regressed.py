"""Sensitivities that are computed on a sample and predicted by a regression for all other rows (RDSF)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from joblib import hash as joblib_hash
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe.constructions.cablr import RADIUS
from tithe.constructions.draw import draw_rows
from tithe.constructions.regressed_bounds import SampleBound, bound_sample
from tithe.constructions.regressed_model import SensitivityModel, as_linear, features, n_groups
from tithe.core.contracts import BoundedObjective, ClusterBoundedObjective, Construction, Objective
from tithe.core.data import Array, Block, Rng, Scores, Survey
from tithe.core.errors import unknown_name
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params
from tithe.core.state_checks import Floats, Integers, Storable, check_fields, expect
from tithe.kernels.sampling import sample_rows

_REGRESSORS = ("ols", "ridge", "lasso", "elasticnet")
_MIN_SAMPLE, _MAX_SAMPLE = 500, 20_000  # limits of the sample, which is one row in a hundred


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known(Storable):
    """Rows whose m was computed: their ids in ascending order."""

    ids: Array
    values: Array

    def _check_state(self) -> None:
        check_fields(self, {"ids": Integers("n", least=0), "values": Floats("n", least=0.0)})
        expect(len(self.ids) > 0 and (np.diff(self.ids) > 0).all(), "ids of rows do not ascend")


@dataclass(frozen=True, kw_only=True, eq=False)
class Regressed(Construction[BoundedObjective]):
    """p_n = (1 - mix) u_n m_n / sum(u m) + mix u_n / W, with m = N s predicted by a regression (RDSF).

    On a uniform sample of b rows, m = b s is computed from the bound of `Cablr` with clusters of the sample
    (logistic regression), or from the sensitivities at a pilot (all objectives that have some, as for `Sensitivity`).
    It is regressed on z = +-(x, 1) (two classes), on x and the class, or on x. Rows of the sample keep their m; all
    others get the prediction, clipped to [5 % quantile of m, N mean(m)], or to [max(1, 5 % quantile), N] for logistic
    regression, where m lies between 1 and N. Draws are unbiased even if predictions are wrong, but the guarantee of
    `Cablr` or `Sensitivity` is lost. ``mix`` bounds every weight by N / (mix size).

    Sensitivities of clusters are no linear function of x: for these take a regressor that is not linear, such as a
    tree. Where predictions are poor (``r2`` in the provenance), so is the draw.

    Parameters
    ----------
    regressor : "ols", "ridge", "lasso", "elasticnet" or a scikit-learn regressor
        With fewer than 2 (d + 1) rows in the sample, "ridge" is used instead of any other name. Columns are
        standardised before a penalised fit, and penalties are chosen by cross-validation.
    sample_size : int or None
        Their number b. None: 1 % of the rows, but at least 500 and at most 20,000.
    norm_feature : bool
        Regress on |(x, 1)| as well.
    log : bool
        Regress ln m, and predict its exponential: always positive, and proportional errors count alike.
    n_clusters, radius, certified
        For logistic regression, as for `Acvs`; at most 1000 rows for each cluster are clustered.

    Attributes
    ----------
    sensitivity_model_ : SensitivityModel or None
        Once prepared: scores new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Regressed
    >>> from tithe.objectives import LogisticObjective
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = build_coreset(X, X[:, 0] > 0, objective=LogisticObjective(), construction=Regressed(),
    ...                         coreset_size=100, random_state=0)
    >>> coreset.provenance["construction"], len(coreset) <= 100, round(coreset.weights().sum())
    ('regressed', True, 2000)
    """

    regressor: Any = "ols"
    n_clusters: int = 6
    radius: float | str = "auto"
    certified: bool = True
    sample_size: int | None = None
    norm_feature: bool = False
    log: bool = False
    mix: float = 0.1
    sensitivity_model_: SensitivityModel | None = field(default=None, repr=False, compare=False)
    known: Known | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "regressed"
    requires: ClassVar[tuple[type[Objective], ...]] = (BoundedObjective,)
    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": WholeNumber(least=1),
        "radius": RADIUS,
        "certified": Boolean(),
        "sample_size": OneOf(None) | WholeNumber(least=2),
        "norm_feature": Boolean(),
        "log": Boolean(),
        "mix": RealNumber(least=0.0, most=1.0),
    }

    def __post_init__(self) -> None:
        if isinstance(self.regressor, str) and self.regressor not in _REGRESSORS:
            raise unknown_name("regressor", self.regressor, _REGRESSORS)
        if not isinstance(self.regressor, str) and not (
            hasattr(self.regressor, "fit") and hasattr(self.regressor, "predict")
        ):
            raise ValueError(f"regressor must be one of {', '.join(_REGRESSORS)} or have fit() and predict().")
        check_params(self, self._constraints)

    def __eq__(self, other: object) -> bool:
        """Whether the options are the same; regressors are compared by type and parameters."""
        return isinstance(other, Regressed) and self._options() == other._options()

    def __hash__(self) -> int:
        return hash(self._options())

    def _options(self) -> tuple[Any, ...]:
        regressor = self.regressor
        if not isinstance(regressor, str):
            regressor = type(regressor), joblib_hash(regressor.get_params())  # parameters may be arrays
        others = (f.name for f in fields(self) if f.compare and f.name != "regressor")
        return regressor, *(vars(self)[name] for name in others)

    def _check_state(self) -> None:
        super()._check_state()
        expect((self.known is None) == (self.sensitivity_model_ is None), "a part of the regression is missing")

    def check_columns(self, n_features: int, objective: BoundedObjective) -> None:
        model = self.sensitivity_model_
        if model is not None:
            same = model.n_features == n_features and n_groups(model.objective) == n_groups(objective)
            expect(same, "a regression of sensitivities is of other columns or classes")

    def prepare(self, block: Block, objective: BoundedObjective, *, rng: Rng) -> Self:
        """The same construction, its regression fitted on a sample of the rows unless it has one."""
        if self.sensitivity_model_ is not None:
            return self
        size = self.sample_size or min(_MAX_SAMPLE, max(_MIN_SAMPLE, len(block) // 100))
        sample = sample_rows(block, size, rng)
        if sample.sample_weight is not None:
            sample = sample.take(np.flatnonzero(sample.sample_weight > 0.0))
        m, bound = bound_sample(
            block,
            sample,
            objective,
            n_clusters=self.n_clusters,
            radius=self.radius,
            certified=self.certified,
            rng=rng,
        )
        model = self._fit(sample, objective, m, len(block), bound)
        ids = sample.row_ids()
        order = np.argsort(ids, kind="stable")
        return replace(self, sensitivity_model_=model, known=Known(ids=ids[order], values=m[order]))

    def _fit(
        self, sample: Block, objective: BoundedObjective, m: Array, n_rows: int, bound: SampleBound
    ) -> SensitivityModel:
        choice = self.regressor
        if isinstance(choice, str) and len(sample) < 2 * (sample.n_features + 1):
            choice = "ridge"
        rows = features(objective, sample, self.norm_feature)
        if self.log:  # a row without a sensitivity counts as the smallest one: 0 has no logarithm
            m = np.maximum(m, np.min(m[m > 0.0], initial=np.inf)) if m.any() else np.ones_like(m)
        target = np.log(m) if self.log else m
        regressor, weights, raw = _regress(choice, rows, target)
        low, high = float(np.quantile(m, 0.05)), float(n_rows)
        if isinstance(objective, ClusterBoundedObjective):
            low = max(1.0, low)  # these bounds lie between 1 / N and 1
        else:
            high *= max(1.0, float(m.mean()))  # bounds up to a factor: the row would be drawn nearly always
        spread = float(np.square(target - target.mean()).sum())
        residual = float(np.square(target - raw).sum())
        # exp(raw) adds up to less than m: a mean of logarithms is below the logarithm of the mean
        shift = float(np.log(m.sum()) - logsumexp(raw)) if self.log else None
        predicted = raw if shift is None else np.exp(np.minimum(raw + shift, np.log(2.0 * high)))
        return SensitivityModel(
            objective=objective,
            regressor=regressor,
            linear=None if weights is None else as_linear(weights, sample.n_features, objective, self.norm_feature),
            log_shift=shift,
            norm_feature=self.norm_feature,
            bound=bound,
            n_features=sample.n_features,
            n_rows=n_rows,
            r2_=1.0 - residual / spread if spread > 0.0 else 0.0,
            clip_low_=low,
            clip_high_=high,
            clipped_share_=float(np.mean((predicted < low) | (predicted > high))),
        )

    def scores(self, block: Block, *, codes: Array | None = None) -> tuple[Array, float]:
        """m of all rows (n,), computed where the row was in the sample, and the share of predictions clipped."""
        if self.sensitivity_model_ is None or self.known is None:
            raise ValueError("There is no regression yet: call prepare() with the rows first.")
        m, clipped = self.sensitivity_model_.predict(block, codes)
        ids = self.known.ids
        if block.indices is not None:
            at = np.minimum(np.searchsorted(ids, block.indices), len(ids) - 1)
            same = ids[at] == block.indices
            m[same] = self.known.values[at[same]]
        elif len(block) == self.sensitivity_model_.n_rows:
            m[ids] = self.known.values
        return m, clipped

    def reduce(
        self,
        block: Block,
        objective: BoundedObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        ready = self.prepare(block, objective, rng=rng)
        model = ready.sensitivity_model_
        assert model is not None
        codes, weight = objective.codes(block), block.sample_weight
        m, clipped = ready.scores(block, codes=codes)
        total = float(m.sum() if weight is None else m @ weight)
        share = np.array([self.mix / block.total_weight])
        scores = Scores(cost=m, slope=(1.0 - self.mix) / total, base=share, weight=weight)
        drawn = draw_rows(block, scores, size, rng, codes=codes)
        name = self.regressor if isinstance(self.regressor, str) else type(self.regressor).__name__
        forced = isinstance(self.regressor, str) and model.sample_size < 2 * (block.n_features + 1)
        notes: dict[str, str | int | float] = {
            "regressor": "ridge" if forced else name,
            "r2": model.r2_,
            "clipped_share": clipped,
            "mean_predicted": total / block.total_weight,
            "sample_size": model.sample_size,
            **model.bound.notes,
        }
        return replace(drawn, notes=notes)


def _regress(choice: Any, rows: Any, m: Array) -> tuple[Any, Array | None, Array]:
    """The fitted regressor (None: least squares), intercept and coefficients if it is linear, and its predictions."""
    if isinstance(choice, str) and choice == "ols" and not sparse.issparse(rows):
        weights = _least_squares(rows, m)
        return None, weights, rows @ weights[1:] + weights[0]
    if isinstance(choice, str):
        regressor = _make_regressor(choice, rows)
    else:
        regressor = clone(choice)
    regressor.fit(rows, m)
    raw = np.asarray(regressor.predict(rows), np.float64).reshape(-1)
    coefficients = _coefficients(regressor)
    if coefficients is not None and len(coefficients) == rows.shape[1] + 1:
        product = rows @ coefficients[1:] + coefficients[0]
        # some regressors have coefficients but predict another function of them
        if np.allclose(product, raw, rtol=1e-6, atol=1e-6 * np.abs(raw).max(initial=1.0)):
            return regressor, coefficients, raw
    return regressor, None, raw


def _make_regressor(choice: str, rows: Any) -> Any:
    if choice == "ols":
        return LinearRegression()
    scaler = StandardScaler(with_mean=not sparse.issparse(rows))
    if choice == "ridge":
        # leave-one-out is cheap only with few rows or few columns
        return make_pipeline(scaler, RidgeCV(np.logspace(-4, 6, 21), cv=None if min(rows.shape) <= 2000 else 3))
    if choice == "lasso":
        return make_pipeline(scaler, LassoCV(cv=5))
    return make_pipeline(scaler, ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9], cv=5))


def _coefficients(regressor: Any) -> Array | None:
    """Intercept and coefficients on the unscaled features; None if the regressor is not linear in them."""
    last = regressor[-1] if hasattr(regressor, "steps") else regressor
    coef = getattr(last, "coef_", None)
    if coef is None or np.ndim(coef) != 1:
        return None
    coef, intercept = np.asarray(coef, np.float64), float(getattr(last, "intercept_", 0.0))
    if hasattr(regressor, "steps"):
        if len(regressor) != 2 or not isinstance(regressor[0], StandardScaler):
            return None
        scaler = regressor[0]
        coef = coef if scaler.scale_ is None else coef / scaler.scale_
        intercept -= float(scaler.mean_ @ coef) if scaler.with_mean else 0.0
    return np.concatenate([[intercept], coef])


def _least_squares(rows: Array, m: Array) -> Array:
    """Intercept and coefficients of least squares; where there are several solutions, the one of smallest norm."""
    mean = rows.mean(axis=0)
    centred = rows - mean
    scale = np.linalg.norm(centred, axis=0)
    if scale.min() > 0.0:
        gram = (centred.T @ centred) / np.outer(scale, scale)
        # normal equations if they are accurate enough for predictions
        if np.linalg.eigvalsh(gram)[0] > 1e-8:
            coef = np.linalg.solve(gram, centred.T @ (m - m.mean()) / scale) / scale
            return np.concatenate([[m.mean() - mean @ coef], coef])
    coef = np.linalg.lstsq(centred, m - m.mean(), rcond=None)[0]
    return np.concatenate([[m.mean() - mean @ coef], coef])
