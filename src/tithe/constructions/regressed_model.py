"""A regression that predicts the sensitivities of new rows, all at once or in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d

from tithe.constructions.regressed_bounds import SampleBound
from tithe.core.contracts import BoundedObjective
from tithe.core.data import Array, Block
from tithe.core.params import WholeNumber, check_value
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Integer, Number, Optional, Storable, check_fields, expect
from tithe.kernels.linear.scores import linear_scores

_CHUNK_ROWS = 65_536  # rows whose features are written out at a time
_CHECKED_SHARE = 0.01  # share of a stream that is scored exactly
_MIN_CHECKED = 100  # rows scored exactly before drift is reported
_NO_DRIFT = (0.5, 2.0)  # ratios of exact to predicted scores that count as no drift


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(Storable):
    """bias[c] + scale[c] * x . coef + norm_coef * |(x, 1)| for a row x of class c."""

    coef: Array
    bias: Array
    scale: Array
    norm_coef: float

    def _check_state(self) -> None:
        bias, scale = Floats("c", contiguous=False), Floats("c", contiguous=False)
        table = {"coef": Floats("d", contiguous=False), "bias": bias, "scale": scale, "norm_coef": Number()}
        check_fields(self, table)


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityModel(Storable):
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

    objective: BoundedObjective
    regressor: Any
    linear: Linear | None
    log_shift: float | None
    norm_feature: bool
    bound: SampleBound
    n_features: int
    n_rows: int
    r2_: float
    clip_low_: float
    clip_high_: float
    clipped_share_: float

    def _check_state(self) -> None:
        check_fields(
            self,
            {
                "n_features": Integer(least=1),
                "n_rows": Integer(least=1),
                "clip_low_": Number(least=0.0),
                "clip_high_": Number(least=0.0),
                "log_shift": Optional(Number()),
            },
        )
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

    @property
    def drift_(self) -> float:
        return self._exact / self._predicted if self.n_checked_ else float("nan")

    @property
    def drifted(self) -> bool:
        """Whether exact and predicted scores differ by a factor of two, once enough rows were checked."""
        return self.n_checked_ >= _MIN_CHECKED and not _NO_DRIFT[0] <= self.drift_ <= _NO_DRIFT[1]


def n_groups(objective: BoundedObjective) -> int:
    """The number of classes, each with an intercept of its own; 1 without classes."""
    return 1 if objective.classes is None else len(objective.classes)


def features(objective: BoundedObjective, block: Block, norm_feature: bool) -> Any:
    """The features of the regression: the objective's signed rows in float64, and |(x, 1)| if ``norm_feature``."""
    rows = objective.signed_rows(block).astype(np.float64)
    if not norm_feature:
        return rows
    X = block.X
    square = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X, dtype=np.float64)
    norm = np.sqrt(np.asarray(square, np.float64).reshape(-1, 1) + 1.0)
    return (
        sparse.hstack([rows, sparse.csr_matrix(norm)], format="csr") if sparse.issparse(X) else np.hstack([rows, norm])
    )


def as_linear(weights: Array, d: int, objective: BoundedObjective, norm_feature: bool) -> Linear:
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
