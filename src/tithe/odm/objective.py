"""Margin distributions: what a coreset for a linear optimal margin distribution machine must preserve."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tithe.core.data import Array, Block, Evaluation, Survey
from tithe.core.params import Constraint, Option, RealNumber, Target, check_params
from tithe.linear.objective import LabelledLinearObjective
from tithe.odm.kernels.linear import MarginSums, margin_sweep, row_squares
from tithe.odm.solvers.kernel_matrix import Solved
from tithe.odm.solvers.linear_classes import LinearMulticlassDual
from tithe.odm.solvers.linear_problem import LinearProblem
from tithe.odm.solvers.linear_solvers import gain_of_step
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.theory.theorems import DRAWN_BY, SizeBound, SizeQuestion, TheoremObjective, by_sensitivities, needed_total

_MIN_COST = 1e-200  # of a row: solvers divide by the costs
_SMALLEST_DRIFT = 1e-3  # of a Newton step whose promise is exact but for rounding
_MIN_STRENGTH, _MAX_STRENGTH = 1e-100, 1e100  # the squares of parameters within these neither over- nor underflow


@dataclass(frozen=True, kw_only=True)
class MarginObjective(LabelledLinearObjective[MarginSums], TheoremObjective):
    """f(x, y) = loss(u) = max(0, 1 - theta - u)^2 + mu max(0, u - 1 - theta)^2 of the margin u of a row.

    Two classes: u = +-(x . w + b), + for the second. K > 2 classes: u = f_y - max_(l != y) f_l of the scores
    f_l = x . w_l + b_l. The value of a solution for rows of weights s, W = sum s, is

        P = |w|^2 / 2 + (b / intercept_scaling)^2 / 2 + lam / (2 W (1 - theta)^2) sum_i s_i loss(u_i),

    summed over the classes. Weight 2 is a row twice; scaling all weights changes nothing; a coreset, whose
    weights add up to those of all rows, carries the same lam. (Zhang and Zhou 2019; lam is twice theirs.)

    Parameters
    ----------
    lam : float
        > 0: how much the margins count beside the penalty.
    mu : float
        In [0, 1]: how much a margin above the band counts beside one below. 0: a squared hinge.
    theta : float
        In [0, 1): half the width of the band 1 +- theta in which margins cost nothing.
    fit_intercept : bool
    intercept_scaling : float
        > 0; infinity: no penalty on the intercept.
    classes : tuple or None
        Labels, in the order of their numbers. None: taken from the rows at hand.
    max_iter, tol : int, float
        `solve` stops after ``max_iter`` rounds, or when a Newton step promises a smaller relative gain than ``tol``.

    Notes
    -----
    Bound, two classes. With C_i = lam s_i / (W (1 - theta)^2), the numbers g_i = -C_i loss'(u_i) / 2 of the
    optimality conditions are a point of the dual problem, and so are t_j g_i for any t_j >= 0, one for each
    group j of rows (below or above the band, by class). There

        P - P* <= P - D(t g) = |w - sum_j t_j V_j|^2 / 2 + sum_j (1 - t_j)^2 L_j,

    V_j the sum of g_i z_i, z = +-(x, intercept_scaling), and L_j the part of the losses of the group in P. All
    t_j = 1 give |gradient|^2 / 2, all t_j = 0 give P. One common t is best in closed form. A free intercept needs
    sum_j t_j R_j = 0, R_j the sum of the last coordinates: (1, ..., 1) is projected onto that, in the metric of
    the L_j, first.

    Bound, more classes. P is not convex, because of margins above the band. Without them it is strongly
    convex: P0 <= P, any subgradient gives its dual point, and P - P* <= P - P0 + (P0 - D0). For a free
    intercept the shares by class are the stationary distribution of a Markov chain (see `LogisticObjective`);
    with more than 32 classes the bound is then only that losses are not negative. `solve` finds a local
    minimum: close to the smallest value, but not proved to be.

    Sensitivity. For every dual point, P(w) >= D + |w - w'|^2 / 2 with w' = sum_j t_j V_j; the root of a loss
    changes by at most b_i |w - w'|, b_i = |z_i| (times sqrt(2) for more classes). So for all w, with a_i the root
    of the loss at w',

        s_i lam loss_i / (2 W (1 - theta)^2) / P <= lam s_i / (2 W (1 - theta)^2) (a_i^2 / D + 2 b_i^2):

    the share of a row in the whole value. a_i is bounded from the pilot, and P* >= lam / 2 / (1 + lam max b^2 /
    (1 - theta)^2) serves where D is smaller. With a free intercept this is a score, not a bound.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import MarginObjective
    >>> block = Block(X=np.array([[-1.0], [0.5], [4.0]]), y=np.array([0, 1, 1]))
    >>> objective = MarginObjective(mu=0.5, theta=0.25).for_rows(block)
    >>> objective.cost(block, np.array([[1.0, 0.0]])).round(6)
    array([0.     , 0.0625 , 3.78125])
    """

    lam: float = 1000.0
    mu: float = 0.05
    theta: float = 0.8
    intercept_scaling: float = 1.0

    constraints: ClassVar[dict[str, Constraint]] = {
        "lam": RealNumber(least=_MIN_STRENGTH, most=_MAX_STRENGTH),
        "mu": RealNumber(least=0.0, most=1.0),
        "theta": RealNumber(least=0.0, below=1.0),
        "intercept_scaling": RealNumber(least=_MIN_STRENGTH, most=_MAX_STRENGTH, finite=False),
    }
    options: ClassVar[tuple[Option, ...]] = (
        Option("lam", constraints["lam"], "How much margins count beside the penalty."),
        Option("mu", constraints["mu"], "How much margins above the band count, beside those below."),
        Option("theta", constraints["theta"], "Half the width of the band in which margins cost nothing."),
    )
    target: ClassVar[Target] = "class"
    name: ClassVar[str] = "margin"
    relative_rounding: ClassVar[float] = 1e-24
    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True
    needs_total_sensitivity: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_params(self, self.constraints)
        super().__post_init__()

    # -- what constructions need ---------------------------------------------------------------

    @property
    def constant(self) -> float:
        """The last coordinate of every row beside a penalty of |.|^2 / 2; 1 where the intercept is free."""
        return super().constant * (1.0 if self._free else self.intercept_scaling)

    @property
    def convex(self) -> bool:
        """With more than two classes the losses of margins above the band are not convex."""
        return self.n_classes == 2

    def strengthened(self, factor: float) -> Self:
        return replace(self, lam=min(max(self.lam * factor, _MIN_STRENGTH), _MAX_STRENGTH))

    def size_theorem(self, question: SizeQuestion) -> SizeBound:
        n_classes = 2 if self.lacks_classes else self.n_classes
        dimension = float((n_classes if n_classes > 2 else 1) * (question.n_features + 1))
        total = needed_total(self.name, question.total_sensitivity)
        theorem = by_sensitivities(question, total, dimension, assumption=DRAWN_BY)
        if not (self.fit_intercept and math.isinf(self.intercept_scaling)):
            return theorem
        return replace(theorem, proved=False, formula=f"{theorem.formula}; with a free intercept S is no bound")

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        """The root of the loss: half the slope below the band, and half the slope / sqrt(mu) above it.

        The loss alone does not tell on which side of the band a margin lies.
        """
        return np.sqrt(cost)

    def survey(self, block: Block, pilot: Array) -> Survey:
        return replace(super().survey(block, pilot), pilot=pilot)

    def sensitivity(self, block: Block, survey: Survey) -> Array:
        """A bound, for all parameters, on the share of each row in the value: (n,); see the class."""
        return self.sensitivity_of_new(block, survey, self.sensitivity_totals(block, survey))

    def sensitivity_totals(self, block: Block, survey: Survey) -> Array:
        """Weight of the rows, D, the distance |w - w'| of the pilot, and the largest b^2: (4,); see the class."""
        assert survey.pilot is not None
        sums = self.sums(block, survey.pilot)
        gap, distance = self._dual(sums, survey.pilot)
        dual = self._value(sums, survey.pilot) - gap
        return np.array([sums.count.sum(), dual, distance, self._slope_squares(block).max(initial=0.0)])

    def sensitivity_of_new(self, block: Block, survey: Survey, totals: Array) -> Array:
        weight, dual, distance, largest = totals.tolist()
        square = self._slope_squares(block)
        lower_bound = 0.5 * self.lam / (1.0 + self.lam * largest / (1.0 - self.theta) ** 2)
        root = np.sqrt(survey.cost) + np.sqrt(square) * distance
        scores: Array = root * root / max(dual, lower_bound) + 2.0 * square
        return self.unit(weight) * block.weights() * scores

    def _slope_squares(self, block: Block) -> Array:
        """b^2 of each row, the square of how fast the root of its loss can change: (n,)."""
        square: Array = row_squares(block.X) + self.constant**2
        return 2.0 * square if self.n_classes > 2 else square

    # -- what a learner needs ------------------------------------------------------------------

    def evaluation(self, sums: MarginSums, params: Array) -> Evaluation:
        unit = self.unit(sums.count.sum())
        value = self._value(sums, params)
        coefficient, intercept = self.penalty()
        gradient = unit * sums.gradient
        gradient[:, :-1] += coefficient * params[:, :-1]
        gradient[:, -1] += intercept * params[:, -1]
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=min(self._dual(sums, params)[0], value),
            diagonal=None if sums.diagonal is None else unit * sums.diagonal,
            totals=self.totals_of(sums),
        )

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        if self.n_classes == 2:
            return super().minimise(block, init=init)
        solved, dual = self.machine(block, init)
        return self.scaled(dual.weights), solved.n_iter

    def scaled(self, weights: Array) -> Array:
        """Parameters (K, d + 1), of weights whose last is that of the constant feature."""
        return np.asarray(weights * np.append(np.ones(weights.shape[1] - 1), self.constant))

    def machine(
        self, block: Block, init: Array | None = None, *, nonconvex: str = "cccp", tol: float | None = None
    ) -> tuple[Solved, LinearMulticlassDual]:
        """A local minimum for K > 2 classes, and its multipliers; rows have positive weights.

        With a ``tol`` sharper than that of the objective, as far as rounding allows.
        """
        dual = LinearMulticlassDual(
            X=block.X,
            constant=self.constant,
            free=self._free,
            label=self.codes(block).astype(np.int64),
            cost=np.maximum(2.0 * self.unit(block.total_weight) * block.weights(), _MIN_COST),
            n_classes=self.n_classes,
            mu=float(self.mu),
            theta=float(self.theta),
        )
        if init is not None:
            dual.start_at(init * np.append(np.ones(block.n_features), 1.0 / self.constant if self.constant else 0.0))
        tol = self.tol if tol is None else tol
        return solve_many_classes(dual, nonconvex=nonconvex, tol=tol, asked_tol=self.tol, max_iter=self.max_iter), dual

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        slopes, margin = self._margins(block, params, self.codes(block))
        change = np.einsum("ik,ik->i", slopes, self.margins(block.X, direction))
        return np.asarray(self._second(margin) * change * change)

    def drift_sums(self, block: Block, params: Array, step: Array) -> Array:
        """1, the weight of these rows, and what they see of a Newton step (`gain_of_step`), times their weight.

        The second derivative jumps where a margin crosses an end of the band, so rules for smooth losses say nothing.
        But the loss is quadratic in pieces, so that its minimum, as these rows see it, is found in a few steps.
        """
        kept = np.flatnonzero(block.weights())
        rows = block if len(kept) == len(block) else block.take(kept)
        scale = np.append(np.ones(block.n_features), 1.0 / self.constant if self.constant > 0.0 else 0.0)
        problem = LinearProblem(
            X=rows.X,
            signs=2.0 * self.codes(rows) - 1.0,
            cost=2.0 * self.unit(rows.total_weight) * rows.weights(),
            mu=float(self.mu),
            theta=float(self.theta),
            constant=self.constant,
            free=self._free,
        )
        seen = gain_of_step(problem, params[0] * scale, step[0] * scale)
        return np.append(1.0, rows.total_weight * np.array([1.0, *seen]))

    def drift_of(self, sums: Array, params: Array, step: Array) -> float:
        """c with (1 + c)^2 the largest ratio of what a Newton step promises and of what there is to gain.

        What several blocks have to gain, each for itself, is at most their sum, and at least what the step leads to.
        """
        promise, led_to, least, most = sums[2:] / sums[1]
        least = least if sums[0] == 1.0 else led_to
        if not (0.0 < promise < np.inf and 0.0 < least <= most < np.inf):
            return np.inf
        return float(np.sqrt(max(promise / least, most / promise)) - 1.0) + _SMALLEST_DRIFT

    def row_margins(self, block: Block, params: Array) -> Array:
        """The margin of every row: (n,)."""
        return self._margins(block, params, self.codes(block))[1]

    # -- inside --------------------------------------------------------------------------------

    @property
    def _free(self) -> bool:
        return self.fit_intercept and not np.isfinite(self.intercept_scaling)

    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Array | None, MarginSums]:
        return margin_sweep(
            block.X,
            self.codes(block),
            params,
            n_classes=self.n_classes,
            mu=self.mu,
            theta=self.theta,
            weight=block.sample_weight,
            by_class=self._free,
            **what,
        )

    def penalty(self) -> tuple[float, float]:
        return 1.0, self.intercept_scaling**-2.0 if self.fit_intercept else 0.0

    def unit(self, weight: float) -> float:
        """lam / (2 W (1 - theta)^2); 0 where nothing has weight."""
        return 0.5 * self.lam / (float(weight) * (1.0 - self.theta) ** 2) if weight > 0.0 else 0.0

    def _value(self, sums: MarginSums, params: Array) -> float:
        coefficient, intercept = self.penalty()
        penalty = coefficient * np.vdot(params[:, :-1], params[:, :-1]) + intercept * params[:, -1] @ params[:, -1]
        return float(0.5 * penalty + self.unit(sums.count.sum()) * sums.loss.sum())

    def _margins(self, block: Block, params: Array, codes: Array) -> tuple[Array, Array]:
        """The derivatives of each margin in the scores (n, k): +-1 or e_y - e_rival; and the margins (n,)."""
        scores = self.margins(block.X, params).astype(np.float64, copy=False)
        if self.n_classes == 2:
            slopes = 2.0 * codes[:, None] - 1.0
        else:
            rows = np.arange(len(codes))
            rivals = scores.copy()
            rivals[rows, codes] = -np.inf
            slopes = np.zeros_like(scores)
            slopes[rows, codes] = 1.0
            slopes[rows, rivals.argmax(axis=1)] = -1.0
        return slopes, np.einsum("ik,ik->i", slopes, scores)

    def _second(self, margin: Array) -> Array:
        """loss''."""
        return 2.0 * (margin < 1.0 - self.theta) + 2.0 * self.mu * (margin > 1.0 + self.theta)

    def _residuals(self, block: Block, params: Array) -> Array:
        """loss' times the derivative of the margin: (n, k)."""
        slopes, u = self._margins(block, params, self.codes(block))
        derivative = -2.0 * np.maximum(0.0, 1.0 - self.theta - u) + 2.0 * self.mu * np.maximum(
            0.0, u - 1.0 - self.theta
        )
        return derivative[:, None] * slopes

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        slopes, margin = self._margins(block, params, self.codes(block))
        second = self._second(margin) * block.weights()
        return second[:, None] * slopes * slopes, lambda a, b, at: second[at] * slopes[at, a] * slopes[at, b]

    def _dual(self, sums: MarginSums, params: Array) -> tuple[float, float]:
        """A proved bound on the excess over the smallest value, and |w - w'| at the dual point w'."""
        convex = slice(0, 2 if self.n_classes == 2 else 1)  # with more classes only what is below the band
        unit = self.unit(sums.count.sum())
        k = len(params)
        sides = -unit * sums.sides[convex]
        groups = sides.reshape(-1, *params.shape)
        if not self._free:
            share, losses = np.ones(len(groups)), unit * sums.loss[convex].sum(axis=1)
        elif sides.shape[1] == 1:
            share, losses = np.zeros(len(groups)), unit * sums.loss[convex].sum(axis=1)
        elif k == 1:
            losses = unit * sums.loss[convex].ravel()
            share = _onto_plane(groups[:, 0, -1], losses)
        else:
            losses = unit * sums.loss[0]
            share = _stationary(groups[:, :, -1])
        # in coordinates (w, b / scaling), where the penalty is half the square; a free intercept has none
        scaling = self.intercept_scaling if self.fit_intercept and not self._free else 0.0
        point, direction = params.copy(), np.einsum("g,gkj->kj", share, groups)
        point[:, -1] = point[:, -1] / scaling if scaling > 0.0 else 0.0
        direction[:, -1] *= scaling
        curvature = float(np.vdot(direction, direction) + 2.0 * (share * share) @ losses)
        common = (float(np.vdot(point, direction)) + 2.0 * share @ losses) / curvature if curvature > 0.0 else 0.0
        share, residual = max(common, 0.0) * share, point - max(common, 0.0) * direction
        square = float(np.vdot(residual, residual))
        above_band = 0.0 if self.n_classes == 2 else unit * float(sums.loss[1].sum())
        return 0.5 * square + float((1.0 - share) ** 2 @ losses) + above_band, float(np.sqrt(square))


def _stationary(flow: Array) -> Array:
    """s >= 0 with s . flow = 0, flow (K, K) with rows that add up to zero, negative off the diagonal; or zeros."""
    share = np.zeros(len(flow))
    present = np.diagonal(flow) > 0.0
    if present.any():
        share[present] = np.abs(np.linalg.svd(flow[present].T)[2][-1])
    # there is no unique s if the classes fall into groups without flow between them
    return share if np.abs(share @ flow).max() <= 1e-12 * np.abs(flow).max() else np.zeros(len(flow))


def _onto_plane(normal: Array, metric: Array) -> Array:
    """The point s >= 0 with normal . s = 0 that is nearest to (1, ..., 1) in sum metric (s - 1)^2."""
    active = metric > 0.0
    share = np.where(active, 1.0, 0.0)
    while active.any():
        curvature = normal[active] ** 2 @ (1.0 / metric[active])
        step = normal[active].sum() / curvature if curvature > 0.0 else 0.0
        share[active] = 1.0 - step * normal[active] / metric[active]
        if share[active].min() >= 0.0:
            break
        share[share < 0.0] = 0.0
        active &= share > 0.0
    return share
