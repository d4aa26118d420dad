"""Logistic regression: what a coreset for it must preserve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax

from tithe.core.data import Array, Block, Evaluation
from tithe.core.params import Constraint, Option, RealNumber, Target, check_params
from tithe.kernels.linear.logistic import LogisticSums, logistic_sweep
from tithe.objectives.labels import LabelledLinearObjective
from tithe.objectives.logistic_sensitivity import ClusterBounds


@dataclass(frozen=True, kw_only=True)
class LogisticObjective(LabelledLinearObjective, ClusterBounds):
    """f(x, y) = -ln P(y | x), with penalty |coefficients|^2 / (2 C) on top of the sum.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty, as in scikit-learn: it stands beside a *sum* of losses, so
        the weights of a coreset, which add up to those of all rows, keep its meaning. Infinity: no penalty.
    fit_intercept : bool
        The intercept carries no penalty.
    classes : tuple or None
        Labels, in the order of their numbers. None: taken from the rows at hand.
    max_iter, tol : int, float
        `solve` stops after ``max_iter`` rounds, or when a Newton step promises a smaller relative gain than ``tol``.

    Notes
    -----
    Parameters are (k, d + 1), intercepts last. Two classes: k = 1 and P(1 | x) = 1 / (1 + exp(-m)),
    m = theta . (x, 1). K > 2 classes: k = K and P = softmax(m), as in scikit-learn.

    With r = P - [y = class] the residual (k numbers a row), the moments are 1, the indicators of
    all classes but the first, r, and r times x. Reproducing their totals gives the coreset the
    gradient of the full data at the pilot, so that its solution errs to second order only.
    The best place for the pilot is the solution on the drawn rows (``totals_at_solution``).

    Bound. For any shares 0 <= s_c <= 1 of the classes c with sum_c s_c R_c = 0, R_c the sum of r
    over the rows of class c (only needed with an intercept), the mixtures of P and [y = .] with
    shares s are a feasible point of the dual problem and, the entropy H being concave,

        P(theta) - P* <= P(theta) - sum_c s_c sum_c H(P) + (C/2) |sum_c s_c G_c|^2,

    G_c the sum of r x over class c. R has the form of a generator of a Markov chain (rows sum to
    zero, off-diagonal entries are not negative), so such s exist: its stationary distribution. At
    s = 1 the right-hand side is |gradient|^2 C / 2. With more than 32 classes and an intercept, and without a
    penalty, the bound is only that losses are not negative.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array(["no", "yes"]))
    >>> objective = LogisticObjective().for_rows(block)
    >>> objective.classes
    ('no', 'yes')
    >>> objective.cost(block, np.zeros((1, 2))).round(6)
    array([0.693147, 0.693147])
    """

    C: float = 1.0

    constraints: ClassVar[dict[str, Constraint]] = {"C": RealNumber(above=0.0, finite=False)}
    options: ClassVar[tuple[Option, ...]] = (
        Option("C", constraints["C"], "Inverse strength of the penalty.", ("-C", "--inverse-penalty")),
    )
    target: ClassVar[Target] = "class"
    name: ClassVar[str] = "logistic"
    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_params(self, self.constraints)
        super().__post_init__()

    def strengthened(self, factor: float) -> Self:
        return replace(self, C=self.C * factor)

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        """The size of the residual of rows with these losses, up to sqrt(2): 1 - P(y | x)."""
        return -np.expm1(-cost)

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """The result of `solve`, and its number of passes over the rows.

        If a class has no rows there is no minimiser (its intercept falls for ever), and zeros are returned. Without a
        penalty there is none either if classes can be separated: the first solution that separates them is returned.
        """
        if not np.bincount(self.codes(block), weights=block.sample_weight, minlength=self.n_classes).all():
            return np.zeros((self.n_scores, block.n_features + 1)), 0
        return super().minimise(block, init=init)

    def evaluation(self, sums: LogisticSums, params: Array) -> Evaluation:
        gradient = sums.gradient.sum(axis=0)
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        elif len(gradient) > 1:
            gradient[:, -1] -= gradient[:, -1].mean()  # the mean is zero but for rounding, which would be magnified
        coefficients = params[:, :-1]
        penalty = 0.5 / self.C * float(np.vdot(coefficients, coefficients))
        value = float(sums.loss.sum()) + penalty
        dual = self._dual(sums)
        gradient[:, :-1] += coefficients / self.C
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=float(np.clip(value - dual, 0.0, value)),
            diagonal=sums.diagonal,
            totals=self.totals_of(sums),
        )

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        chance, change = self._chances(block, params), self.margins(block.X, direction).astype(np.float64)
        if self.n_classes == 2:
            return (chance * (1.0 - chance) * change * change)[:, 0]
        mean = np.einsum("ik,ik->i", chance, change)
        curvature: Array = np.einsum("ik,ik->i", chance, (change - mean[:, None]) ** 2)
        return curvature

    # -- inside --------------------------------------------------------------------------------

    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Array, LogisticSums]:
        return logistic_sweep(
            block.X, self.codes(block), params, n_classes=self.n_classes, weight=block.sample_weight, **what
        )

    def _gradient_sums(self, sums: LogisticSums) -> Array:
        slopes: Array = sums.gradient.sum(axis=0)
        return slopes

    def _least_value(self, block: Block) -> float:
        """Without a penalty: if the sum is below what one row on the wrong side costs, no row is on the wrong side."""
        weight = block.weights()
        return float(np.log(2.0) * weight[weight > 0.0].min()) if np.isinf(self.C) else 0.0

    def _penalty(self) -> tuple[float, float]:
        return 1.0 / self.C, 0.0

    def _chances(self, block: Block, params: Array) -> Array:
        """(n, K) for more than two classes, (n, 1) for two."""
        margins = self.margins(block.X, params).astype(np.float64)
        chances: Array = softmax(margins, axis=1) if self.n_classes > 2 else expit(margins)
        return chances

    def _residuals(self, block: Block, params: Array) -> Array:
        """P - [y = class]: (n, k)."""
        first = 1 if self.n_classes == 2 else 0
        return self._chances(block, params) - np.equal.outer(self.codes(block), np.arange(first, self.n_classes))

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        chance, weight = self._chances(block, params), block.weights()
        second = chance * (1.0 - chance) * weight[:, None]
        return second, lambda a, b, at: -chance[at, a] * chance[at, b] * weight[at]

    def _dual(self, sums: LogisticSums) -> float:
        """A lower bound on all values: the dual function at the feasible point of the class docstring."""
        if np.isinf(self.C) or (len(sums.gradient) == 1 and self.fit_intercept):
            # no penalty, or too many classes to keep their gradients apart: only that losses are not negative
            return 0.0
        share = self._feasible_shares(sums.gradient[:, :, -1])
        mixed = np.einsum("c,ckj->kj", share[: len(sums.gradient)], sums.gradient[:, :, :-1])
        return float(share @ sums.entropy) - 0.5 * self.C * float(np.vdot(mixed, mixed))

    def _feasible_shares(self, sums: Array) -> Array:
        """The shares s of the bound; sums (K, k) of the residuals by class."""
        if not self.fit_intercept:
            return np.ones(self.n_classes)
        if self.n_classes == 2:
            share = np.abs(sums[::-1, 0])  # s_0 R_0 = s_1 |R_1|
        else:
            share = np.abs(np.linalg.svd(sums.T)[2][-1])
        largest = share.max()
        return share / largest if largest > 0.0 else np.ones(self.n_classes)
