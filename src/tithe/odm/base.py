"""The bases of optimal margin distribution machines: parameters, margins, scores by kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import rel_entr
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tithe.core.data import Array, Block, weighted_quantiles
from tithe.core.errors import warn_caller
from tithe.core.labels import encoded_classes, label_numbers
from tithe.core.params import Boolean, Constraint, Function, OneOf, RealNumber, WholeNumber, check_value
from tithe.core.state_checks import Anything, Each, Flag, Floats, Integers, Number, Optional, Rows, Storable, expect
from tithe.fit.base import Described, checked_block, require_target
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import ClassLabels
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_matrix import KERNELS, KernelFunction, kernel_scores
from tithe.odm.solvers.many_classes import NONCONVEX
from tithe.rows.arrays import check_weights

MAX_EXACT_MULTIPLIERS, EXACT_TOL = 1000, 1e-20  # small problems are solved to rounding error, in milliseconds
QUANTILE_LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MIN_COST = 1e-200  # of a row: solvers divide by the costs


@dataclass(frozen=True, kw_only=True)
class MarginDistribution(Storable):
    """The distribution of the margins of some rows.

    Parameters
    ----------
    mean, variance : float
        Weighted.
    semi_variance : float
        The part of the variance that comes from margins below the mean: the mean of max(0, mean - margin)^2.
    levels, quantiles : tuple of float
        Quantiles of the margins, and the share of the weight with at most this margin. The k-th smallest of n margins
        is the quantile of level k / n, and the smallest one that of level 0.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import ODMClassifier
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> margins = ODMClassifier().fit(X, X[:, 0] > 0).margin_distribution_
    >>> 0 < margins.mean < 2, len(margins.levels) == len(margins.quantiles)
    (True, True)
    """

    mean: Annotated[float, Number()]
    variance: Annotated[float, Number(least=0.0)]
    semi_variance: Annotated[float, Number(least=0.0)]
    levels: Annotated[tuple[float, ...], Each(Number(), length="levels")]
    quantiles: Annotated[tuple[float, ...], Each(Number(), length="levels")]

    @classmethod
    def of(cls, margins: Array, weight: Any, levels: Sequence[float] = QUANTILE_LEVELS) -> MarginDistribution:
        """The distribution of margins (n,) with weights (n,), and its quantiles of some levels in [0, 1]."""
        shares = np.asarray(levels, np.float64).reshape(-1)
        if not np.all((shares >= 0.0) & (shares <= 1.0)):
            raise ValueError(f"levels must lie between 0 and 1, got {levels!r}.")
        if len(margins) == 0:
            raise ValueError("There are no margins: give at least one row.")
        weight = check_weights(weight, len(margins))
        weight = np.ones(len(margins)) if weight is None else weight
        if not weight.any():
            raise ValueError("All sample weights are zero: there are no margins to describe.")
        mean = float(np.average(margins, weights=weight))
        return cls(
            mean=mean,
            variance=float(np.average((margins - mean) ** 2, weights=weight)),
            semi_variance=float(np.average(np.maximum(mean - margins, 0.0) ** 2, weights=weight)),
            levels=tuple(shares.tolist()),
            quantiles=tuple(weighted_quantiles(margins, weight, shares).tolist()),
        )

    def risk_bound(self, n_rows: int, n_votes: int, *, largest: float = 1.0, delta: float = 0.05) -> float:
        """What the share of wrong classes on new rows is at most, with probability 1 - ``delta``: a k-th margin bound.

        For two classes and a vote f = sum_j a_j h_j of ``n_votes`` functions h_j with values in [-1, 1] that were fixed
        before the training rows were seen, a_j >= 0 and sum a_j = ``largest``: the trees of a boosted model if there
        are so many possible ones, or for a linear model on d columns of absolute values up to B_j, known beforehand,
        the 2 (d + 1) functions +-x_j / B_j and +-1, with ``largest`` = sum |w_j| B_j + |b|. The distribution is that
        of the margins of ``n_rows`` independent training rows without weights. The best of its quantiles is taken, so
        give many levels.

        Notes
        -----
        Of the kind of Gao and Zhou (2013), after Schapire and others (1998) and Wang and others (2011). Let g be the
        mean of N functions drawn with the chances a_j / sum a, and t one of the N + 1 multiples of 1 / N in [0, 1]. By
        Hoeffding's inequality P(y g > t, y f <= 0) <= e^(-N t^2 / 2), and P(y g <= t, y f >= theta) is at most
        e^(-N (theta - t)^2 / 2). By Chernoff's, for all of at most n_votes^N functions g at once, all t and all N, the
        risk p and its mean q on the training rows have kl(q, p) <= (N ln n_votes + ln(N (N + 1)^2 / delta)) / n_rows,
        or p <= q; and so have their means over g, as kl is convex. With the share of margins below theta, k / n:

            risk <= e^(-N t^2 / 2) + max{p : kl(k / n + e^(-N (theta - t)^2 / 2), p) <= that}.

        It says something with large margins and many rows only. Rows held out say more.

        Examples
        --------
        >>> margins = np.full(100_000, 0.5)
        >>> found = MarginDistribution.of(margins, None).risk_bound(100_000, n_votes=20)
        >>> 0.005 < found < 0.02
        True
        """
        check_value("n_rows", n_rows, WholeNumber(least=1))
        check_value("n_votes", n_votes, WholeNumber(least=1))
        check_value("largest", largest, RealNumber(above=0.0))
        check_value("delta", delta, RealNumber(above=0.0, below=1.0))
        theta, share = np.array(self.quantiles) / largest, np.array(self.levels)
        if theta.max() > 1.0 + 1e-9:
            raise ValueError(f"A margin is {theta.max() * largest:.4g}, and no vote is above largest={largest:g}.")
        theta, share = theta[theta > 0.0], share[theta > 0.0]
        n_drawn = np.unique(np.geomspace(1, n_rows, _DRAWS_TRIED).round())
        t = np.round(0.5 * np.outer(theta, n_drawn)) / n_drawn
        budget = (n_drawn * np.log(n_votes) + np.log(n_drawn * (n_drawn + 1.0) ** 2 / delta)) / n_rows
        missed = np.exp(-0.5 * n_drawn * np.maximum(theta[:, None] - t, 0.0) ** 2)
        seen = np.minimum(1.0, share[:, None] + missed)
        bounds = np.exp(-0.5 * n_drawn * t**2) + _largest_chance(seen, np.broadcast_to(budget, seen.shape))
        return float(min(1.0, bounds.min(initial=1.0)))


_DRAWS_TRIED = 200
_HALVINGS = 50


def _largest_chance(seen: Array, budget: Array) -> Array:
    """The largest p with kl(seen, p) <= budget."""
    low, high = seen.copy(), np.ones_like(seen)
    for _ in range(_HALVINGS):
        p = 0.5 * (low + high)
        within = rel_entr(seen, p) + rel_entr(1.0 - seen, 1.0 - p) <= budget
        low, high = np.where(within, p, low), np.where(within, high, p)
    return high


KERNEL_CONSTRAINTS: dict[str, Constraint] = {
    "kernel": OneOf(*KERNELS) | Function(),
    "gamma": OneOf("scale", "auto") | RealNumber(above=0.0),
    "degree": RealNumber(least=0.0),
    "coef0": RealNumber(),
    "fit_intercept": Boolean(),
}


def margins_of(scores: Array, codes: Array) -> Array:
    """Margins (n,): for two classes the signed scores, else the score of the class minus the best other score."""
    if scores.ndim == 1:
        return np.where(codes == 1, scores, -scores)
    rows = np.arange(len(scores))
    rivals = scores.copy()
    rivals[rows, codes] = -np.inf
    return np.asarray(scores[rows, codes] - rivals.max(axis=1))


def labelled_margins(scores: Array, y: Any, classes: Array) -> Array:
    """Margins (n,) of rows with labels y; labels that are no class are refused."""
    y = column_or_1d(y)
    if len(y) != len(scores):
        raise ValueError(f"X has {len(scores)} rows and y has {len(y)}.")
    codes = label_numbers(y, classes)
    if codes.min() < 0:
        raise ValueError(f"y holds {y[codes < 0].tolist()[0]!r}, which is not a class that was fitted.")
    return margins_of(scores, codes)


def labelled_rows(learner: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Block, Array]:
    """The rows, and the class number of each (n,). Sets ``classes_``, of which there must be two or more."""
    require_target(learner, y is not None)
    block = checked_block(learner, X, y, sample_weight, reset=True)
    assert block.y is not None
    learner.classes_, codes = encoded_classes(block.y)
    if len(learner.classes_) < 2:
        raise ValueError(f"y holds only one class, {learner.classes_.tolist()[0]!r}: there is nothing to tell apart.")
    return block, codes


def warn_of_gap(machine: MarginMachine, gap: float, value: float, n_rounds: int) -> None:
    """Say that a dual solver stopped before its gap was small."""
    warn_caller(
        f"The duality gap is {gap / value:.2g} of the value after {n_rounds} rounds, more than tol={machine.tol:g}. "
        f"Raise max_iter={machine.max_iter}, lower lam, or scale the columns.",
        ConvergenceWarning,
    )


def class_numbers(scores: Array) -> Array:
    """The class number of each row (n,), from scores (n,) of two classes, or (n, K)."""
    return np.asarray((scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1))


def row_costs(weight: Array | None, n_rows: int, lam: float, theta: float) -> Array:
    """C_i = lam u_i / (W (1 - theta)^2): (n,). All are large enough to divide by."""
    weight = np.ones(n_rows) if weight is None else weight
    share = weight / weight.max()  # the sum of huge weights would overflow
    return np.asarray(np.maximum(lam / (1.0 - theta) ** 2 * (share / share.sum()), MIN_COST))


class MarginMachine(ABC):
    """Checks of lam, mu and theta, and margins of rows.

    Subclasses are classifiers of scikit-learn with these parameters.
    """

    lam: float
    mu: float
    theta: float
    tol: float
    max_iter: int
    fit_intercept: bool
    intercept_scaling: float
    nonconvex: str
    classes_: Annotated[Array, ClassLabels()]

    _margin_constraints: ClassVar[dict[str, Constraint]] = {
        **MarginObjective.constraints,
        "tol": RealNumber(above=0.0),
        "max_iter": WholeNumber(least=1),
        "nonconvex": OneOf(*NONCONVEX),
        "fit_intercept": Boolean(),
    }

    @property
    def _free(self) -> bool:
        """Whether the intercept carries no penalty."""
        return bool(self.fit_intercept and np.isinf(self.intercept_scaling))

    @property
    def _constant(self) -> float:
        """What a penalised intercept adds to the kernel: the square of the constant feature."""
        return float(self.intercept_scaling) ** 2 if self.fit_intercept and not self._free else 0.0

    @abstractmethod
    def decision_function(self, X: Any) -> Array:
        """The scores f: (n,) for two classes, else (n, K)."""

    def margins(self, X: Any, y: Any) -> Array:
        """y f(x) for two classes, else f_y(x) minus the largest f of another class: (n,)."""
        check_is_fitted(self)
        return labelled_margins(self.decision_function(X), y, self.classes_)

    def margin_distribution(
        self, X: Any, y: Any, sample_weight: Any = None, *, levels: Sequence[float] = QUANTILE_LEVELS
    ) -> MarginDistribution:
        """Mean, variance, semi-variance and quantiles of the margins of rows, such as those of a test."""
        return MarginDistribution.of(self.margins(X, y), sample_weight, levels)


class KernelRows:
    """A learner with a kernel: rows may be sparse, or a kernel matrix that is precomputed."""

    kernel: Any

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


@dataclass(eq=False, repr=False)
class KernelMachine(KernelRows, MarginMachine, Described):
    """Machines f(x) = sum of ``dual_coef_`` times k(x_i, x) over the support vectors, + ``intercept_``."""

    lam: float = 1000.0
    mu: float = 0.5
    theta: float = 0.2
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str = "scale"
    degree: float = 3
    coef0: float = 0.0
    fit_intercept: bool = True
    intercept_scaling: float = 1.0

    support_: Annotated[Array, Integers("support", least=0)] = field(init=False)
    support_vectors_: Annotated[Any, Anything()] = field(init=False)
    dual_coef_: Annotated[Array, Floats("outputs", "support")] = field(init=False)
    intercept_: Annotated[Array, Floats("outputs")] = field(init=False)
    _gamma: Annotated[float, Number(least=0.0)] = field(init=False)
    _centre: Annotated[Array | None, Optional(Floats("d"))] = field(init=False)
    _single: Annotated[bool, Flag()] = field(init=False)

    def check_relations(self) -> None:
        vectors, n_support = self.support_vectors_, len(self.support_)
        expect(callable(self.kernel) or self.kernel in KERNELS, "there is no such kernel")
        if self.kernel == "precomputed":
            expect(self.support_.max(initial=0) < self.n_encoded_, "support vectors are out of range")
            return
        expect(sparse.issparse(vectors) or self._centre is not None, "a mean is missing")
        Rows(n_support, self.n_encoded_).check("support_vectors_", vectors, {})

    @property
    def coef_(self) -> Array:
        """Weights of the columns: (1, d) for two classes, else (K, d)."""
        if self.kernel != "linear":
            raise AttributeError(f"coef_ exists only with kernel='linear', not with kernel={self.kernel!r}.")
        return np.asarray((self.support_vectors_.T @ self.dual_coef_.T).T)

    def summary(self) -> dict[str, Any]:
        """The classes, and the number of support vectors, which are training rows."""
        return {"classes": self.classes_.tolist(), "support_vectors": len(self.support_)}

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """The scores f: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        rows = checked_block(self, X, reset=False).X
        if self.kernel == "precomputed":
            scores = np.asarray(rows[:, self.support_] @ self.dual_coef_.T)
        else:
            scores = kernel_scores(self._fitted_kernel(), rows, self.support_vectors_, self.dual_coef_)
        scores = scores + self.intercept_
        return scores[:, 0] if len(self.dual_coef_) == 1 else scores

    def _fitted_kernel(self) -> KernelFunction:
        function = KernelFunction.of(self, self._gamma, self._centre)
        return replace(function, dtype=np.float32) if self._single else function

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The class of each row."""
        codes = class_numbers(self.decision_function(X))
        return np.asarray(self.classes_[np.minimum(codes, len(self.classes_) - 1)])  # there may be one class so far
