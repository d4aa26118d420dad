"""RDSF: sensitivities of a sample, regressed on its rows, draw the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from joblib import hash as joblib_hash
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_array, column_or_1d

from tithe.core.contracts import Construction, Objective, RowScorer, SensitivityObjective
from tithe.core.data import Array, Block, Rng, Scores
from tithe.core.errors import unknown_name, warn_caller
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params, check_value
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Integer, Integers, Number, Optional, Storable, expect
from tithe.linear.cablr import RADIUS, find_radius
from tithe.linear.kernels import linear_scores
from tithe.linear.logistic_objective import Clusters, LogisticObjective
from tithe.linear.objective import LabelledLinearObjective, signed
from tithe.reduce.draws import draw_rows, score_values
from tithe.reduce.kernels import sample_rows
from tithe.reduce.stream import CoresetStream

Bounded = SensitivityObjective | LogisticObjective  # objectives that bound the sensitivities of rows


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleBound(Storable, ABC):
    """What the bounds of new rows need of a sample of ``size`` rows and total weight ``weight``."""

    size: Annotated[int, Integer(least=1)]
    weight: Annotated[float, Number(least=0.0)]

    def of_new(self, block: Block, objective: Bounded) -> Array:
        """m of rows that were not in the sample, as if each were one more row of mean weight: (n,)."""
        # the mean weight is also that of a sample without weights, where it is 1
        rows = Block(X=block.X, y=block.y, sample_weight=np.full(len(block), self.weight / self.size))
        return self._bounds(rows, objective) * self.size

    @property
    def notes(self) -> dict[str, str | int | float]:
        """What a coreset says about the bounds in its provenance."""
        return {}

    @abstractmethod
    def _bounds(self, rows: Block, objective: Bounded) -> Array:
        """s of rows that have weights: (n,)."""

    @abstractmethod
    def check_columns(self, n_features: int, objective: Bounded) -> None:
        """Raise ValueError if a state from a file does not fit rows of ``n_features`` columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSampleBound(SampleBound):
    """Clusters with the exact means of the sample, and the radius within which their bound holds."""

    clusters: Clusters
    radius: Annotated[float, Number(least=0.0)]

    @property
    def notes(self) -> dict[str, str | int | float]:
        return {"radius": self.radius}

    def _bounds(self, rows: Block, objective: Bounded) -> Array:
        assert isinstance(objective, LogisticObjective)
        return objective.bound_of_new(rows, self.clusters, radius=self.radius)

    def check_columns(self, n_features: int, objective: Bounded) -> None:
        expect(isinstance(objective, LogisticObjective), "clusters are of another objective")
        self.clusters.check_columns(n_features, objective.n_classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class PilotSampleBound(SampleBound):
    """The pilot that rows are scored at, and what the sample adds up to there."""

    pilot: Array
    totals: Array

    def _bounds(self, rows: Block, objective: Bounded) -> Array:
        assert isinstance(objective, SensitivityObjective)
        survey = objective.survey(rows, self.pilot)
        return score_values(objective.sensitivity_of_new(rows, survey, self.totals))

    def check_columns(self, n_features: int, objective: Bounded) -> None:
        expect(isinstance(objective, SensitivityObjective), "a pilot is of another objective")
        label = None if objective.classes is None else np.array(objective.classes)[:1]
        row = Block(X=np.zeros((1, n_features)), y=label, sample_weight=np.ones(1))
        objective.check_pilot(self.pilot, None, row)
        bound = self._bounds(row, objective)
        expect(np.isfinite(bound).all(), "totals of a sample do not fit its pilot")


def bound_sample(
    block: Block, sample: Block, objective: Bounded, *, n_clusters: int, radius: float | str, certified: bool, rng: Rng
) -> tuple[Array, SampleBound]:
    """m of the rows of a sample of the block (n,), all of positive weight, and what the bounds of new rows need."""
    about: dict[str, Any] = {"size": len(sample), "weight": sample.total_weight}
    known: SampleBound
    if isinstance(objective, LogisticObjective):
        clustered = sample_rows(sample, 1000 * n_clusters, rng)
        clusters = objective.clusters(clustered, n_clusters, rng=rng)
        limit = find_radius(radius, block, clustered, clusters, objective, rng)
        bound = objective.cluster_bound(sample, clusters, radius=limit, certified=certified)
        known = ClusterSampleBound(clusters=objective.exact_clusters(sample, clusters), radius=limit, **about)
    else:
        assert isinstance(objective, SensitivityObjective)
        pilot = objective.pilot(block, rng=rng)
        survey = objective.survey(sample, pilot)
        bound = score_values(objective.sensitivity(sample, survey))
        known = PilotSampleBound(pilot=pilot, totals=objective.sensitivity_totals(sample, survey), **about)
    # per unit of weight, and free of its scale: b s for rows of equal weight
    return bound * (sample.total_weight / sample.weights()), known


_CHUNK_ROWS = 65_536  # rows whose features are written out at a time
_CHECKED_SHARE = 0.01  # share of a stream that is scored exactly
_MIN_CHECKED = 100  # rows scored exactly before drift is reported
_NO_DRIFT = (0.5, 2.0)  # ratios of exact to predicted scores that count as no drift


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(Storable):
    """bias[c] + scale[c] * x . coef + norm_coef * |(x, 1)| for a row x of class c."""

    coef: Annotated[Array, Floats("d", contiguous=False)]
    bias: Annotated[Array, Floats("c", contiguous=False)]
    scale: Annotated[Array, Floats("c", contiguous=False)]
    norm_coef: Annotated[float, Number()]


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityModel(RowScorer):
    """Predicts m = N s of new rows, clipped to [clip_low_, clip_high_].

    Attributes
    ----------
    regressor : estimator or None
        The fitted regressor; None for least squares.
    linear : Linear or None
        The prediction, or its logarithm, as one product with the rows, if the regressor is linear.
    log_shift : float or None
        None: m is predicted. Else ln m, and m is the exponential of the prediction and this number, chosen so that
        the m of the sample add up to the right sum.
    bound : SampleBound
        What `exact` needs.
    n_rows : int
        Rows of the data.
    r2_, clip_low_, clip_high_, clipped_share_ : float
        On the rows it was fitted on: the share of the variance of m, or of ln m, explained; the smallest and the
        largest m that is predicted; the share of predictions outside these.
    """

    objective: Bounded
    regressor: Any
    linear: Linear | None
    log_shift: Annotated[float | None, Optional(Number())]
    norm_feature: bool
    bound: SampleBound
    n_features: Annotated[int, Integer(least=1)]
    n_rows: Annotated[int, Integer(least=1)]
    r2_: float
    clip_low_: Annotated[float, Number(least=0.0)]
    clip_high_: Annotated[float, Number(least=0.0)]
    clipped_share_: float

    def check_relations(self) -> None:
        expect(not self.objective.lacks_classes, "the classes of a regression are not known")
        self.bound.check_columns(self.n_features, self.objective)
        if self.linear is not None:
            fits = len(self.linear.coef) == self.n_features and len(self.linear.bias) == n_groups(self.objective)
            expect(fits, "a regression of sensitivities is of other columns or classes")
        else:
            classes = self.objective.classes
            row = Block(X=np.zeros((1, self.n_features)), y=None if classes is None else np.array(classes)[:1])
            raw = self.regressor.predict(features(self.objective, row, self.norm_feature))
            expect(np.shape(raw) == (1,) and np.isfinite(raw).all(), "a regressor does not predict numbers")

    @property
    def sample_size(self) -> int:
        """Rows of the sample that it was fitted on."""
        return self.bound.size

    def score(self, X: Any, y: Any = None) -> Array:
        """The predicted m of rows with their classes, or of a block: (n,) float64."""
        return self.predict(self._block(X, y))[0]

    def predict(self, block: Block, codes: Array | None = None) -> tuple[Array, float]:
        """The predicted m of a block (n,), and the share that was clipped."""
        low, high = self.clip_low_, max(self.clip_low_, self.clip_high_)
        if self.log_shift is None:
            return self._clipped(block, codes, low, high, 0.0)
        logarithms, outside = self._clipped(block, codes, float(np.log(low)), float(np.log(high)), self.log_shift)
        # exp and log are not exact inverses
        return np.clip(np.exp(logarithms, out=logarithms), low, high, out=logarithms), outside

    def _clipped(self, block: Block, codes: Array | None, low: float, high: float, shift: float) -> tuple[Array, float]:
        """The predictions plus a number, within the bounds: (n,), and the share that was outside."""
        if self.linear is not None:
            form = self.linear
            codes = self.objective.codes(block) if codes is None else codes
            return linear_scores(
                block.X,
                np.zeros(len(block), np.int32) if codes is None else codes,
                coef=form.coef,
                bias=form.bias + shift,
                scale=form.scale,
                norm_coef=form.norm_coef,
                low=low,
                high=high,
            )
        raw = np.empty(len(block))
        for start in range(0, len(block), _CHUNK_ROWS):
            part = block.cut(start, start + _CHUNK_ROWS)
            raw[start : start + _CHUNK_ROWS] = self.regressor.predict(features(self.objective, part, self.norm_feature))
        raw += shift
        outside = float(np.mean((raw < low) | (raw > high))) if len(raw) else 0.0
        return np.clip(raw, low, high, out=raw), outside

    def exact(self, X: Any, y: Any = None) -> Array:
        """m of new rows from the bound itself, beside the sample: (n,)."""
        return self.bound.of_new(self._block(X, y), self.objective)

    def named_coefficients(self, names: Sequence[str]) -> tuple[Sequence[tuple[str, float]], float]:
        """The coefficients of m, or of ln m, by column, largest first; none if the regressor is not linear. And R^2.

        With two classes a column counts times the sign of the class.
        """
        if self.linear is None:
            return [], self.r2_
        coef = self.linear.coef
        order = np.argsort(-np.abs(coef), kind="stable")
        return [(names[j], float(coef[j])) for j in order], self.r2_

    def stream(self, size: int, random_state: Any = None) -> OnlineInclusion:
        """Choose rows batch by batch: about ``size`` for every growth of the stream by a factor e."""
        return OnlineInclusion(self, size, random_state)

    def _block(self, X: Any, y: Any) -> Block:
        if isinstance(X, Block):
            return X
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_min_samples=0)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} columns, expected {self.n_features} as in the rows of the fit.")
        if y is None:
            if self.objective.classes is not None:
                raise ValueError("A row is scored together with its class: give y.")
            return Block(X=X)
        y = column_or_1d(y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}.")
        return Block(X=X, y=y)


class OnlineInclusion:
    """Keeps or drops each row of a stream at once: row n is kept with pi_n = min(1, size m_n / (m_1 + ... + m_n)).

    The m are predicted from the rows alone, not from which rows were kept, so weights 1 / pi_n are unbiased for
    every sum over the stream. If scores are similar, about ``size (1 + ln(n / size))`` of n rows are kept. The result
    does not depend on how the stream is cut into batches.

    Attributes
    ----------
    drift_ : float
        Mean of the exact m divided by the mean of the predicted m, on a random 1 % of the stream.
    n_checked_, n_seen_ : int
    """

    def __init__(self, model: SensitivityModel, size: int, random_state: Any = None) -> None:
        check_value("size", size, WholeNumber(least=1))
        seed = as_seed(random_state)
        self.model, self.size = model, size
        self.n_seen_ = self.n_checked_ = 0
        self._total = self._exact = self._predicted = 0.0
        self._warned = False
        self._draws, self._checks = rng_for(seed, "include"), rng_for(seed, "check")

    def include(self, X: Any, y: Any = None) -> tuple[Array, Array]:
        """Which rows are kept, (n,) bool, and the weights 1 / pi of those that are."""
        block = self.model._block(X, y)
        scores = self.model.score(block)
        # one sum that continues over batches: the same bits for any batches
        running = np.cumsum(np.concatenate([[self._total], scores]))
        chance = np.minimum(1.0, self.size * scores / running[1:])
        included = self._draws.random(len(block)) < chance
        checked = np.flatnonzero(self._checks.random(len(block)) < _CHECKED_SHARE)
        if len(checked):
            self._exact += float(self.model.exact(block.take(checked)).sum())
            self._predicted += float(scores[checked].sum())
        self.n_checked_ += len(checked)
        self.n_seen_ += len(block)
        self._total = float(running[-1])
        return included, 1.0 / chance[included]

    def push(self, stream: CoresetStream, X: Any, y: Any = None) -> None:
        """Push the rows of a batch that are kept into a stream, with their weights. Warns if scores have drifted."""
        kept, weights = self.include(X, y)
        first, rows = self.n_seen_ - len(kept), np.flatnonzero(kept)
        if len(rows):
            labels = None if y is None else np.asarray(y)[rows]
            stream.push(X[rows], labels, weights, row_ids=first + rows)
        if self.drifted and not self._warned:
            self._warned = True
            warn_caller(self.drift_text)

    @property
    def drift_text(self) -> str:
        """What the drift means."""
        return (
            f"Rows matter {self.drift_:.2g} times as much as the regression says, by {self.n_checked_:,} rows that "
            "were scored exactly: they have drifted away from those that it was fitted on. Draws stay unbiased, and "
            "vary more: build a coreset of new rows."
        )

    @property
    def drift_(self) -> float:
        return self._exact / self._predicted if self.n_checked_ else float("nan")

    @property
    def drifted(self) -> bool:
        """Whether exact and predicted scores differ by a factor of two, once enough rows were checked."""
        return self.n_checked_ >= _MIN_CHECKED and not _NO_DRIFT[0] <= self.drift_ <= _NO_DRIFT[1]


def n_groups(objective: Bounded) -> int:
    """The number of classes, each with an intercept of its own; 1 without classes."""
    return 1 if objective.classes is None else len(objective.classes)


def signed_rows(objective: Bounded, block: Block) -> Any:
    """z = +-(x, 1) for a linear model of two classes, x and indicators of the class for one of more, else x."""
    if not isinstance(objective, LabelledLinearObjective):
        return block.X
    codes = objective.codes(block)
    if objective.n_classes == 2:
        return signed(block.X, 2.0 * codes - 1.0, 1.0)
    truth = np.equal.outer(codes, np.arange(objective.n_classes)).astype(block.X.dtype)
    if sparse.issparse(block.X):
        return sparse.hstack([block.X, sparse.csr_matrix(truth)], format="csr")
    return np.hstack([block.X, truth])


def features(objective: Bounded, block: Block, norm_feature: bool) -> Any:
    """The features of the regression in float64: `signed_rows`, and |(x, 1)| if ``norm_feature``."""
    rows = signed_rows(objective, block).astype(np.float64)
    if not norm_feature:
        return rows
    X = block.X
    square = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X, dtype=np.float64)
    norm = np.sqrt(np.asarray(square, np.float64).reshape(-1, 1) + 1.0)
    return (
        sparse.hstack([rows, sparse.csr_matrix(norm)], format="csr") if sparse.issparse(X) else np.hstack([rows, norm])
    )


def as_linear(weights: Array, d: int, objective: Bounded, norm_feature: bool) -> Linear:
    """A linear function of the signed rows as one of the plain rows, with numbers for each class."""
    intercept, coef, rest = weights[0], weights[1 : d + 1], weights[d + 1 :]
    norm_coef = float(rest[-1]) if norm_feature else 0.0
    if objective.classes is None:
        return Linear(coef=coef, bias=np.array([intercept]), scale=np.ones(1), norm_coef=norm_coef)
    if len(objective.classes) == 2:
        sign = np.array([-1.0, 1.0])
        return Linear(coef=coef, bias=intercept + sign * rest[0], scale=sign, norm_coef=norm_coef)
    bias = intercept + rest[: len(objective.classes)]
    return Linear(coef=coef, bias=bias, scale=np.ones(len(bias)), norm_coef=norm_coef)


_REGRESSORS = ("ols", "ridge", "lasso", "elasticnet")
_MIN_SAMPLE, _MAX_SAMPLE = 500, 20_000  # limits of the sample, which is one row in a hundred


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known(Storable):
    """Rows whose m was computed: their ids in ascending order."""

    ids: Annotated[Array, Integers("n", least=0)]
    values: Annotated[Array, Floats("n", least=0.0)]

    def check_relations(self) -> None:
        expect(len(self.ids) > 0 and (np.diff(self.ids) > 0).all(), "ids of rows do not ascend")


@dataclass(frozen=True, kw_only=True, eq=False)
class Regressed(Construction[Bounded]):
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
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(
    ...     X, X[:, 0] > 0, objective="logistic", construction="regressed", coreset_size=100, random_state=0
    ... )
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
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
    requires: ClassVar[tuple[tuple[type[Objective], ...], ...]] = ((SensitivityObjective, LogisticObjective),)
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

    @property
    def scorer(self) -> RowScorer | None:
        return self.sensitivity_model_

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
        return regressor, *(getattr(self, name) for name in others)

    def check_relations(self) -> None:
        expect((self.known is None) == (self.sensitivity_model_ is None), "a part of the regression is missing")

    def check_columns(self, n_features: int, objective: Bounded) -> None:
        model = self.sensitivity_model_
        if model is not None:
            same = model.n_features == n_features and n_groups(model.objective) == n_groups(objective)
            expect(same, "a regression of sensitivities is of other columns or classes")

    def prepare(self, block: Block, objective: Bounded, *, rng: Rng) -> Self:
        """The same construction, its regression fitted on a sample of the rows unless it has one."""
        if self.sensitivity_model_ is not None:
            return self
        size = self.sample_size or min(_MAX_SAMPLE, max(_MIN_SAMPLE, len(block) // 100))
        sample = sample_rows(block, size, rng)
        if sample.sample_weight is not None:
            sample = sample.take(np.flatnonzero(sample.sample_weight > 0.0))
        m, bound = bound_sample(
            block, sample, objective, n_clusters=self.n_clusters, radius=self.radius, certified=self.certified, rng=rng
        )
        model = self._fit(sample, objective, m, len(block), bound)
        ids = sample.row_ids()
        order = np.argsort(ids, kind="stable")
        return replace(self, sensitivity_model_=model, known=Known(ids=ids[order], values=m[order]))

    def _fit(self, sample: Block, objective: Bounded, m: Array, n_rows: int, bound: SampleBound) -> SensitivityModel:
        choice = self.regressor
        if isinstance(choice, str) and len(sample) < 2 * (sample.n_features + 1):
            choice = "ridge"
        rows = features(objective, sample, self.norm_feature)
        if self.log:  # a row without a sensitivity counts as the smallest one: 0 has no logarithm
            m = np.maximum(m, np.min(m[m > 0.0], initial=np.inf)) if m.any() else np.ones_like(m)
        target = np.log(m) if self.log else m
        regressor, weights, raw = _regress(choice, rows, target)
        low, high = float(np.quantile(m, 0.05)), float(n_rows)
        if isinstance(objective, LogisticObjective):
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

    def reduce(self, block: Block, objective: Bounded, size: int, *, rng: Rng, **_: Any) -> Block:
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
