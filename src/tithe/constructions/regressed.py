"""Sensitivities predicted by a regression: computed on a sample, guessed for everything else (RDSF)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_array, column_or_1d

from tithe.constructions.base import Construction
from tithe.constructions.clustered import check_radius, find_radius
from tithe.constructions.strata import draw_by_class
from tithe.core.data import Array, Block, Scores, Survey
from tithe.core.errors import unknown_name
from tithe.core.seeding import as_seed, rng_for
from tithe.kernels.sampling import sample_rows
from tithe.kernels.strata import linear_scores

_NAMES = ("ols", "ridge", "lasso", "elasticnet")
_ROWS = 65_536  # rows whose features are written out at a time
_LEAST, _MOST = 500, 20_000  # rows of the sample, of which one in a hundred is taken between these
_CHECKED = 0.01  # share of a stream that is scored exactly
_ENOUGH = 100  # rows scored exactly before anything is said about drift
_DRIFT = (0.5, 2.0)  # ratios of exact to predicted scores that pass for none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear:
    """bias[c] + scale[c] * x . coef + norm_coef * |(x, 1)| for a row x of class c."""

    coef: Array
    bias: Array
    scale: Array
    norm_coef: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityModel:
    """Scores rows it has never seen: the predicted m = N s, clipped to [clip_low_, n_rows].

    Attributes
    ----------
    regressor : estimator or None
        The fitted regressor; None for least squares, which need none.
    linear : Linear or None
        The same as one product with the rows, where the regressor is linear.
    n_rows, sample_size : int
        Rows it was made for, and rows it was fitted on.
    r2_, clip_low_, clipped_share_ : float
        On the rows it was fitted on: the share of variance explained; the larger of 1 and the 5 %
        quantile of m; the share of predictions outside the bounds.
    """

    objective: Any
    regressor: Any
    linear: Linear | None
    norm_feature: bool
    clusters: Any
    radius: float
    n_features: int
    n_rows: int
    sample_size: int
    sample_weight: float
    r2_: float
    clip_low_: float
    clipped_share_: float

    def score(self, X: Any, y: Any = None) -> Array:
        """The predicted m of rows with their classes, or of a block: (n,) float64."""
        return self.predict(self._block(X, y))[0]

    def predict(self, block: Block, codes: Array | None = None) -> tuple[Array, float]:
        """The predicted m of a block (n,), and the share that was clipped."""
        low, high = self.clip_low_, max(self.clip_low_, float(self.n_rows))
        if self.linear is not None:
            form = self.linear
            return linear_scores(
                block.X,
                self.objective.codes(block) if codes is None else codes,
                coef=form.coef,
                bias=form.bias,
                scale=form.scale,
                norm_coef=form.norm_coef,
                low=low,
                high=high,
            )
        raw = np.empty(len(block))
        for start in range(0, len(block), _ROWS):
            some = block.cut(start, start + _ROWS)
            raw[start : start + _ROWS] = self.regressor.predict(features(self.objective, some, self.norm_feature))
        outside = float(np.mean((raw < low) | (raw > high))) if len(raw) else 0.0
        return np.clip(raw, low, high, out=raw), outside

    def exact(self, X: Any, y: Any = None) -> Array:
        """m of new rows as the clusters of the sample bound it: (n,)."""
        block = self._block(X, y)
        unit = self.sample_weight / self.sample_size
        alike = Block(X=block.X, y=block.y, sample_weight=np.full(len(block), unit))
        bound: Array = self.objective.bound_of_new(alike, self.clusters, radius=self.radius)
        return bound * self.sample_size

    def stream(self, size: int, random_state: Any = None) -> OnlineInclusion:
        """An inclusion of rows one batch after another, about ``size`` for every e-fold of the stream."""
        return OnlineInclusion(self, size, random_state)

    def _block(self, X: Any, y: Any) -> Block:
        if isinstance(X, Block):
            return X
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", ensure_min_samples=0)
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} columns, expected {self.n_features} as in the rows of the fit.")
        if y is None:
            raise ValueError("A row is scored together with its class: give y.")
        y = column_or_1d(y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}.")
        return Block(X=X, y=y)


class OnlineInclusion:
    """Rows of a stream, kept as they come: row n with probability pi_n = min(1, size m_n / (m_1 + ... + m_n)).

    The m are predicted from the rows alone, never from what was kept before, so weights 1 / pi_n are
    unbiased for every sum over the stream. After n rows about ``size (1 + ln(n / size))`` are kept if
    the scores are alike. How a stream is cut into batches is no matter.

    Attributes
    ----------
    drift_ : float
        Mean of m computed exactly over mean of m predicted, on a random 1 % of the stream.
    n_checked_, n_seen_ : int
    """

    def __init__(self, model: SensitivityModel, size: int, random_state: Any = None) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        seed = as_seed(random_state)
        self.model, self.size = model, size
        self.n_seen_ = self.n_checked_ = 0
        self._total = self._exact = self._predicted = 0.0
        self._draws, self._checks = rng_for(seed, "include"), rng_for(seed, "check")

    def include(self, X: Any, y: Any = None) -> tuple[Array, Array]:
        """Which rows are kept, (n,) bool, and the weights 1 / pi of those that are."""
        block = self.model._block(X, y)
        scores = self.model.score(block)
        # added one by one from where the last batch stopped: the same bits however the stream is cut
        running = np.cumsum(np.concatenate([[self._total], scores]))
        chance = np.minimum(1.0, self.size * scores / running[1:])
        kept = self._draws.random(len(block)) < chance
        checked = np.flatnonzero(self._checks.random(len(block)) < _CHECKED)
        if len(checked):
            self._exact += float(self.model.exact(block.take(checked)).sum())
            self._predicted += float(scores[checked].sum())
        self.n_checked_ += len(checked)
        self.n_seen_ += len(block)
        self._total = float(running[-1])
        return kept, 1.0 / chance[kept]

    @property
    def drift_(self) -> float:
        return self._exact / self._predicted if self.n_checked_ else float("nan")

    @property
    def drifted(self) -> bool:
        """Whether the scores have left the rows they were fitted on by a factor of two, as far as is known."""
        return self.n_checked_ >= _ENOUGH and not _DRIFT[0] <= self.drift_ <= _DRIFT[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """Rows whose m was computed: their ids in ascending order."""

    ids: Array
    values: Array


@dataclass(frozen=True, kw_only=True)
class Regressed(Construction):
    """p_n = (1 - mix) u_n m_n / sum(u m) + mix u_n / W, with m = N s predicted by a regression (RDSF).

    On a uniform sample of b rows, m = b s is computed from the bound of `Cablr` with clusters of the
    sample, and regressed on z = +-(x, 1) (two classes) or on x and the class. Rows of the sample keep
    their m; all others get the prediction, clipped to [max(1, 5 % quantile of m), N]. Draws are
    unbiased whatever is predicted; what is lost is the guarantee: this is a summary, not a coreset
    with a theorem. ``mix`` bounds every weight by N / (mix size).

    Parameters
    ----------
    regressor : "ols", "ridge", "lasso", "elasticnet" or a scikit-learn regressor
        With fewer than 2 (d + 1) rows in the sample the named ones become "ridge". What is penalised
        is standardised, and penalties are chosen by cross-validation.
    sample_size : int or None
        b. None: 1 % of the rows, but at least 500 and at most 20,000.
    norm_feature : bool
        Regress on |z| as well.
    n_clusters, radius, certified
        As for `Acvs`; no more than 1000 rows a cluster are clustered.

    Attributes
    ----------
    sensitivity_model_ : SensitivityModel or None
        Once prepared: scores new rows.
    """

    regressor: Any = "ols"
    n_clusters: int = 6
    radius: float | str = "auto"
    certified: bool = True
    sample_size: int | None = None
    norm_feature: bool = False
    mix: float = 0.1
    sensitivity_model_: SensitivityModel | None = field(default=None, repr=False, compare=False)
    known: Known | None = field(default=None, repr=False, compare=False)

    name: ClassVar[str] = "regressed"
    requires: ClassVar[tuple[str, ...]] = ("codes", "clusters", "cluster_bound", "default_radius", "signed_rows")

    def __post_init__(self) -> None:
        if isinstance(self.regressor, str) and self.regressor not in _NAMES:
            raise unknown_name("regressor", self.regressor, _NAMES)
        if not isinstance(self.regressor, str) and not (
            hasattr(self.regressor, "fit") and hasattr(self.regressor, "predict")
        ):
            raise ValueError(f"regressor must be one of {', '.join(_NAMES)} or have fit() and predict().")
        if self.n_clusters < 1:
            raise ValueError(f"n_clusters must be at least 1, got {self.n_clusters!r}.")
        if self.sample_size is not None and self.sample_size < 2:
            raise ValueError(f"sample_size must be at least 2, got {self.sample_size!r}.")
        if not 0.0 <= self.mix <= 1.0:
            raise ValueError(f"mix must lie between 0 and 1, got {self.mix!r}.")
        check_radius(self.radius)

    def prepare(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Self:
        """The same construction, its regression fitted on a sample of the rows."""
        size = self.sample_size or min(_MOST, max(_LEAST, len(block) // 100))
        some = sample_rows(block, size, rng)
        if some.sample_weight is not None:
            some = some.take(np.flatnonzero(some.sample_weight > 0.0))
        few = sample_rows(some, 1000 * self.n_clusters, rng)
        clusters = objective.clusters(few, self.n_clusters, rng=rng)
        radius = find_radius(self.radius, block, few, clusters, objective, rng)
        bound = objective.cluster_bound(some, clusters, radius=radius, certified=self.certified)
        # per unit of weight, and free of its scale: b s for rows of equal weight
        m = bound * (some.total_weight / some.weights())
        model = self._fit(some, objective, m, len(block), objective.settle(some, clusters), radius)
        ids = some.row_ids()
        order = np.argsort(ids, kind="stable")
        return replace(self, sensitivity_model_=model, known=Known(ids=ids[order], values=m[order]))

    def _fit(
        self, some: Block, objective: Any, m: Array, n_rows: int, clusters: Any, radius: float
    ) -> SensitivityModel:
        what = self.regressor
        if isinstance(what, str) and len(some) < 2 * (some.n_features + 1):
            what = "ridge"
        rows = features(objective, some, self.norm_feature)
        regressor, weights, raw = _regress(what, rows, m)
        low = max(1.0, float(np.quantile(m, 0.05)))
        spread = float(np.square(m - m.mean()).sum())
        missed = float(np.square(m - raw).sum())
        return SensitivityModel(
            objective=objective,
            regressor=regressor,
            linear=None if weights is None else _linear(weights, some.n_features, objective, self.norm_feature),
            norm_feature=self.norm_feature,
            clusters=clusters,
            radius=radius,
            n_features=some.n_features,
            n_rows=n_rows,
            sample_size=len(some),
            sample_weight=some.total_weight,
            r2_=1.0 - missed / spread if spread > 0.0 else 0.0,
            clip_low_=low,
            clipped_share_=float(np.mean((raw < low) | (raw > n_rows))),
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
        objective: Any,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: np.random.Generator,
    ) -> Block:
        ready = self if self.sensitivity_model_ is not None else self.prepare(block, objective, rng=rng)
        model = ready.sensitivity_model_
        assert model is not None
        codes, own = objective.codes(block), block.sample_weight
        m, clipped = ready.scores(block, codes=codes)
        total = float(m.sum() if own is None else m @ own)
        share = np.array([self.mix / block.total_weight])
        scores = Scores(cost=m, slope=(1.0 - self.mix) / total, base=share, weight=own)
        positions, inverse = draw_by_class(scores, codes, size, rng)
        drawn = block.take(positions, inverse if own is None else inverse * own[positions])
        name = self.regressor if isinstance(self.regressor, str) else type(self.regressor).__name__
        forced = isinstance(self.regressor, str) and model.sample_size < 2 * (block.n_features + 1)
        notes: dict[str, str | int | float] = {
            "regressor": "ridge" if forced else name,
            "r2": model.r2_,
            "clipped_share": clipped,
            "mean_predicted": total / block.total_weight,
            "sample_size": model.sample_size,
            "radius": model.radius,
        }
        return replace(drawn, notes=notes)


def features(objective: Any, block: Block, norm_feature: bool) -> Any:
    """What the regression sees of rows: the objective's signed rows in float64, and |(x, 1)| if wanted."""
    rows = objective.signed_rows(block).astype(np.float64)
    if not norm_feature:
        return rows
    X = block.X
    square = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X, dtype=np.float64)
    norm = np.sqrt(np.asarray(square, np.float64).reshape(-1, 1) + 1.0)
    return (
        sparse.hstack([rows, sparse.csr_matrix(norm)], format="csr") if sparse.issparse(X) else np.hstack([rows, norm])
    )


def _regress(what: Any, rows: Any, m: Array) -> tuple[Any, Array | None, Array]:
    """The fitted regressor (None: least squares), intercept and coefficients if it is linear, and its predictions."""
    if isinstance(what, str) and what == "ols" and not sparse.issparse(rows):
        weights = _least_squares(rows, m)
        return None, weights, rows @ weights[1:] + weights[0]
    if isinstance(what, str):
        regressor = _named(what, rows)
    else:
        regressor = clone(what)
    regressor.fit(rows, m)
    raw = np.asarray(regressor.predict(rows), np.float64).reshape(-1)
    found = _coefficients(regressor)
    if found is not None and len(found) == rows.shape[1] + 1:
        again = rows @ found[1:] + found[0]
        # some regressors have coefficients and predict something else from them
        if np.allclose(again, raw, rtol=1e-6, atol=1e-6 * np.abs(raw).max(initial=1.0)):
            return regressor, found, raw
    return regressor, None, raw


def _named(what: str, rows: Any) -> Any:
    if what == "ols":
        return LinearRegression()
    scaler = StandardScaler(with_mean=not sparse.issparse(rows))
    if what == "ridge":
        # leaving one out is cheap only while one side is short
        return make_pipeline(scaler, RidgeCV(np.logspace(-4, 6, 21), cv=None if min(rows.shape) <= 2000 else 3))
    if what == "lasso":
        return make_pipeline(scaler, LassoCV(cv=5))
    return make_pipeline(scaler, ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9], cv=5))


def _coefficients(regressor: Any) -> Array | None:
    """Intercept and coefficients on the features as they come, through a scaler if there is one."""
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
    """Intercept and coefficients of least squares, the shortest where there are many."""
    middle = rows.mean(axis=0)
    centred = rows - middle
    scale = np.linalg.norm(centred, axis=0)
    if scale.min() > 0.0:
        gram = (centred.T @ centred) / np.outer(scale, scale)
        # normal equations where they lose no more digits than predictions need
        if np.linalg.eigvalsh(gram)[0] > 1e-8:
            coef = np.linalg.solve(gram, centred.T @ (m - m.mean()) / scale) / scale
            return np.concatenate([[m.mean() - middle @ coef], coef])
    coef = np.linalg.lstsq(centred, m - m.mean(), rcond=None)[0]
    return np.concatenate([[m.mean() - middle @ coef], coef])


def _linear(weights: Array, d: int, objective: Any, norm_feature: bool) -> Linear:
    """Weights on the signed rows as a product with the plain rows and numbers for each class."""
    intercept, coef, rest = weights[0], weights[1 : d + 1], weights[d + 1 :]
    norm_coef = float(rest[-1]) if norm_feature else 0.0
    if objective.n_classes == 2:
        sign = np.array([-1.0, 1.0])
        return Linear(coef=coef, bias=intercept + sign * rest[0], scale=sign, norm_coef=norm_coef)
    bias = intercept + rest[: objective.n_classes]
    return Linear(coef=coef, bias=bias, scale=np.ones(len(bias)), norm_coef=norm_coef)
