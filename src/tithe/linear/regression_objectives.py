"""Objectives of regressions with one linear score: least squares, Poisson, Huber."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block, Evaluation
from tithe.core.linear_algebra import MAX_COORDINATES
from tithe.core.parallel import add_parts, column_sums
from tithe.core.params import Constraint, Option, RealNumber, Target, check_params
from tithe.linear.kernels import Loss, ScoreSums, Swept, poisson_terms, sweep
from tithe.linear.objective import N_DRIFT_SUMS, LinearModelObjective

_RUN_ROWS = 8192  # rows whose losses are computed at a time, where they are not compiled


@dataclass(frozen=True, kw_only=True, eq=False)
class RowTerms:
    """Losses (n,) of some rows, their first and second derivatives in the score, and more columns (m, n) to add up.

    >>> residual = np.array([0.5, -2.0])
    >>> RowTerms(loss=0.5 * residual**2, first=residual, second=np.ones(2)).loss
    array([0.125, 2.   ])
    """

    loss: Array
    first: Array
    second: Array
    more: Array = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True, kw_only=True)
class SingleScoreObjective(LinearModelObjective[ScoreSums]):
    """A sum of losses phi(z, y) of the score z = x . w + b, and a penalty on w.

    A subclass defines `row_terms` (the loss, which is convex in z and not negative, and its derivatives, for arrays of
    scores and targets), `penalty`, and `unit` where the value is not a plain sum. It may refuse targets in
    `check_target`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, as in the scikit-learn model of the same loss. The intercept carries none.
    fit_intercept : bool
    max_iter, tol : int, float
        `solve` stops after so many rounds, or when a step of Newton promises less than this share.

    Notes
    -----
    Bound. Write c_i for the weight of a row times `unit`, lam / 2 |w|^2 for the penalty and phi* for the convex
    conjugate of a loss. For any r_i with sum c_i r_i = 0 (needed only with an intercept) no value is smaller than
    -|sum c_i r_i x_i|^2 / (2 lam) - sum c_i phi*(r_i). The derivatives r_i at a solution come close to that, and
    phi*(r) = r z - phi(z) there. To make their sum zero, those of one sign are multiplied by a share s <= 1, and
    phi*(s r) <= s phi*(r) since phi* is convex and phi*(0) <= 0. With sum c_i r_i = 0 the bound is
    |gradient|^2 / (2 lam). Without a penalty it is only that losses are not negative.

    Examples
    --------
    >>> from tithe.objectives import RowTerms, SingleScoreObjective
    >>> @dataclass(frozen=True, kw_only=True)
    ... class LogCosh(SingleScoreObjective):
    ...     name = "log_cosh"
    ...     def row_terms(self, score, y, params):
    ...         gap, slope = score - y, np.tanh(score - y)
    ...         return RowTerms(loss=np.logaddexp(gap, -gap) - np.log(2.0), first=slope, second=1.0 - slope**2)
    ...     def penalty(self):
    ...         return self.alpha, 0.0
    >>> rows = Block(X=np.arange(5.0)[:, None], y=3 * np.arange(5.0) + 1)
    >>> LogCosh(alpha=0.0).solve(rows, rng=np.random.default_rng(0)).round(3)
    array([[3., 1.]])
    """

    alpha: float = 1.0

    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True

    constraints: ClassVar[dict[str, Constraint]] = {"alpha": RealNumber(least=0.0)}
    options: ClassVar[tuple[Option, ...]] = (Option("alpha", constraints["alpha"], "Strength of the penalty."),)
    target: ClassVar[Target] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_params(self, self.constraints)

    # -- what a subclass defines ---------------------------------------------------------------

    @abstractmethod
    def row_terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        """Losses of rows with these scores and targets, all float64 (n,), and their derivatives."""

    @classmethod
    def check_target(cls, y: Array) -> None:
        """Refuse targets that the loss is not defined for."""

    def compiled(self, params: Array) -> Loss | None:
        """The loss as compiled sweeps know it; None: from `row_terms`, which takes a few times as long."""
        return None

    # -- what the base asks --------------------------------------------------------------------

    @property
    def n_scores(self) -> int:
        return 1

    def strengthened(self, factor: float) -> Self:
        return replace(self, alpha=self.alpha / factor)

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        return np.abs(self._terms_at(block, params).first)

    def evaluation(self, sums: ScoreSums, params: Array) -> Evaluation:
        unit = self.unit(float(sums.count[0]))
        penalty = self.penalty()[0]
        gradient = unit * sums.gradient
        gradient[:, :-1] += penalty * params[:, :-1]
        gradient[~self._free_coordinates(gradient.shape)] = 0.0
        value = unit * float(sums.loss.sum()) + 0.5 * penalty * float(np.vdot(params[:, :-1], params[:, :-1]))
        bound = value - self._least(sums, unit)
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=float(np.clip(bound, 0.0, value)) if np.isfinite(bound) else value,
            diagonal=None if sums.diagonal is None else unit * sums.diagonal,
            totals=self.totals_of(sums),
        )

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        curvature: Array = self._terms_at(block, params).second * self.margins(block.X, direction)[:, 0] ** 2
        return curvature

    def _residuals(self, block: Block, params: Array) -> Array:
        return self._terms_at(block, params).first[:, None]

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        known = self._one_score(block, params)
        if known is None:
            second = self._terms_at(block, params).second * block.weights()
        else:
            second = sweep(
                block.X, known[0], params[0], known[1], weight=block.sample_weight, bends=True, gradient=False
            ).bends
        return second[:, None], lambda a, b, at: second[at]

    def _terms_at(self, block: Block, params: Array) -> RowTerms:
        return self.row_terms(self.margins(block.X, params)[:, 0].astype(np.float64), _target(block), params)

    def _shares(self, sums: ScoreSums) -> Array:
        """Shares (2,) of the derivatives of each sign that make their sum zero; see the class."""
        share = np.ones(2)
        low, high = -float(sums.by_sign[0, -1]), float(sums.by_sign[1, -1])
        if self.fit_intercept and low != high:
            share[int(high > low)] = min(low, high) / max(low, high)
        return share

    def _least(self, sums: ScoreSums, unit: float) -> float:
        """What no value is smaller than."""
        penalty = self.penalty()[0]
        if not penalty > 0.0:
            return 0.0
        share = self._shares(sums)
        mixed = unit * (share @ sums.by_sign[:, :-1])
        return unit * float(share @ (sums.loss - sums.product)) - float(mixed @ mixed) / (2.0 * penalty)

    def _loss_pass(
        self,
        block: Block,
        params: Array,
        *,
        cost: bool = True,
        gradient: bool = True,
        diagonal: bool = False,
        centre: Array | None = None,
    ) -> tuple[Array, ScoreSums]:
        """Losses (n,) and sums. What is not asked for is empty or zero."""
        known = self._one_score(block, params)
        if known is None:
            return self._sums_by_terms(block, params, diagonal=diagonal, centre=centre)
        options: Any = {"cost": cost, "gradient": gradient, "diagonal": diagonal, "centre": centre}
        swept = sweep(block.X, known[0], params[0], known[1], weight=block.sample_weight, **options)
        return swept.cost, swept.sums

    def _one_score(self, block: Block, params: Array) -> tuple[Array, Loss] | None:
        loss = self.compiled(params)
        return None if loss is None else (_target(block), loss)

    def _sums_of(self, sums: ScoreSums) -> ScoreSums:
        return sums

    def _sums_by_terms(
        self, block: Block, params: Array, *, diagonal: bool, centre: Array | None
    ) -> tuple[Array, ScoreSums]:
        """Losses and sums from `row_terms`, run by run of the rows."""
        n, y, weight = len(block), _target(block), block.weights()
        runs = [slice(start, start + _RUN_ROWS) for start in range(0, n, _RUN_ROWS)]
        costs, tables, gradients, diagonals = np.empty(n), [], [], []
        for at in runs:
            rows, u = block.X[at], weight[at]
            score = self.margins(rows, params)[:, 0].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                terms = self.row_terms(score, y[at], params)
                sides = np.stack([u * (terms.first <= 0.0), u * (terms.first > 0.0)])
                columns = [np.ones(len(u)), terms.first * score, terms.loss, *terms.more]
                costs[at] = terms.loss
                tables.append(sides @ np.column_stack(columns))
                slopes = sides * terms.first
                gradients.append(np.column_stack([np.asarray((rows.T @ slopes.T).T), slopes.sum(axis=1)]))
            if diagonal:
                square = (
                    rows.multiply(rows)
                    if sparse.issparse(rows)
                    else np.square(rows - (0.0 if centre is None else centre))
                )
                bend = u * terms.second
                diagonals.append(np.append(np.asarray(square.T @ bend).ravel(), bend.sum()))
        return costs, ScoreSums(
            table=add_parts(np.stack(tables)),
            by_sign=add_parts(np.stack(gradients)),
            diagonal=add_parts(np.stack(diagonals))[None] if diagonal else None,
        )


def _target(block: Block) -> Array:
    if block.y is None:
        raise ValueError("A regression needs a target for every row: give y.")
    return block.y.astype(np.float64, copy=False)


@dataclass(frozen=True, kw_only=True)
class LeastSquaresObjective(SingleScoreObjective):
    """f(x, y) = (y - x . w - b)^2 / 2.

    The value is twice the sum of the losses, plus alpha |w|^2: that of `sklearn.linear_model.Ridge`.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LeastSquaresObjective
    >>> block = Block(X=np.arange(5.0)[:, None], y=3 * np.arange(5.0) + 1)
    >>> LeastSquaresObjective(alpha=0.0).solve(block, rng=np.random.default_rng(0)).round(6)
    array([[3., 1.]])
    """

    name: ClassVar[str] = "least_squares"
    relative_rounding: ClassVar[float] = 1e-24
    constant_curvature: ClassVar[bool] = True
    error_model = "location"

    def compiled(self, params: Array) -> Loss:
        return Loss()

    def row_terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        residual = score - y
        return RowTerms(loss=0.5 * residual * residual, first=residual, second=np.ones(len(score)))

    def unit(self, weight: float) -> float:
        return 2.0

    def penalty(self) -> tuple[float, float]:
        return 2.0 * self.alpha, 0.0

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        weight = block.weights()
        return weight[:, None], lambda a, b, at: weight[at]

    def drift_of(self, sums: Array, params: Array, step: Array) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class PoissonObjective(SingleScoreObjective):
    """f(x, y) = exp(z) - y z + y ln y - y, half the Poisson deviance of the mean exp(z), z = x . w + b.

    The value is the mean of the losses plus alpha / 2 |w|^2: that of `sklearn.linear_model.PoissonRegressor`. Rows
    with exposures e and counts k are rows of target k / e and weight e.

    The second derivative exp(z) has no bound, but it changes by a factor of exp(change of z) only, as that of the
    logistic loss does: steps that go too far are halved, and certificates hold in the same way.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import PoissonObjective
    >>> block = Block(X=np.zeros((4, 1)), y=np.array([1.0, 2.0, 3.0, 2.0]))
    >>> np.exp(PoissonObjective().solve(block, rng=np.random.default_rng(0))[0, -1]).round(3)
    np.float64(2.0)
    """

    name: ClassVar[str] = "poisson"
    error_model = "likelihood"

    def compiled(self, params: Array) -> Loss:
        return Loss(poisson=True)

    def row_terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        loss, first, second = poisson_terms(score, y)
        return RowTerms(loss=loss, first=first, second=second)

    def penalty(self) -> tuple[float, float]:
        return self.alpha, 0.0

    def unit(self, weight: float) -> float:
        return 1.0 / weight if weight > 0.0 else 0.0

    def start_params(self, block: Block) -> Array:
        """The constant that fits best: coefficients 0, and the logarithm of the mean."""
        flat = super().start_params(block)
        if self.fit_intercept and block.y is not None:
            weight = block.weights()
            total = max(float(weight @ block.y), 0.5 * float(weight[weight > 0.0].min(initial=np.inf)))
            flat[0, -1] = np.log(total / weight.sum())  # of rows without any count, as if half a count were there
        return flat

    @classmethod
    def check_target(cls, y: Array) -> None:
        if len(y) and y.min() < 0.0:
            raise ValueError(f"Poisson regression needs targets of at least 0, got {y.min():g}.")


_SMALLEST_SCALE = 1e-15  # of rows that are fitted exactly: without it the scale would fall for ever
_MIN_ROWS_PER_COEFFICIENT = 2  # rows with a curvature, with fewer of which an interval would not hold


@dataclass(frozen=True, kw_only=True, eq=False)
class HuberSums(ScoreSums):
    """Sums with those of the scale, which has a place of its own in the parameters: (2, d + 1)."""

    @property
    def gradient(self) -> Array:
        scale = np.append(np.zeros(self.by_sign.shape[1] - 1), self.more[:, 0].sum())
        return np.vstack([super().gradient, scale])


@dataclass(frozen=True, kw_only=True)
class HuberObjective(SingleScoreObjective):
    """f(x, y) = s + s H((y - x . w - b) / s), with penalty alpha |w|^2: that of `sklearn.linear_model.HuberRegressor`.

    H(t) = t^2 where |t| <= epsilon and 2 epsilon |t| - epsilon^2 elsewhere. The scale s > 0 is fitted together with
    the coefficients; the sum is convex in all of them. Parameters are (2, d + 1): (w, b) and (0, s).

    10^-30 / s is added to each loss, so that there is a minimum where all rows are fitted exactly. Elsewhere that is
    lost in rounding, unless the residuals are below 10^-12: scale such a y.

    Bound. H(t) >= rho t - rho^2 / 4 for |rho| <= 2 epsilon, so with rho_i = H'(t_i), sum u_i rho_i = 0 (with an
    intercept) and sum u_i rho_i^2 <= 4 sum u_i no value is smaller than
    sum u_i rho_i y_i - |sum u_i rho_i x_i|^2 / (4 alpha). Both conditions are met by multiplying with shares <= 1.

    Few rows. Only rows within epsilon scales of the line have a curvature. With few of them for each coefficient,
    intercept and scale, other rows come within on the way to the minimum, and the curvature here tells nothing about
    it. On 1,500 random places with 1 to 40 rows for each coefficient, the intervals of a certificate held the truth
    in 32 % with less than 1 such row for each coefficient (the truth was up to 10^8 times the upper end), in 97 % with
    1 to 2 (25 times), and in 99 % with more (1.3 times). Below 2 there is no interval, only the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import HuberObjective
    >>> x = np.arange(20.0)
    >>> block = Block(X=x[:, None], y=np.where(x == 7, 999.0, 3 * x + 1 + x % 2))
    >>> HuberObjective().solve(block, rng=np.random.default_rng(0))[0].round()
    array([3., 1.])
    """

    alpha: float = 0.0001
    epsilon: float = 1.35

    name: ClassVar[str] = "huber"
    error_model = "location"
    constraints: ClassVar[dict[str, Constraint]] = {
        **SingleScoreObjective.constraints,
        "epsilon": RealNumber(least=1.0),
    }
    options: ClassVar[tuple[Option, ...]] = (
        *SingleScoreObjective.options,
        Option("epsilon", constraints["epsilon"], "Residuals beyond this many scales are outliers."),
    )

    @property
    def n_scores(self) -> int:
        return 2

    @property
    def n_scales(self) -> int:
        return 1

    def compiled(self, params: Array) -> Loss | None:
        scale = float(params[1, -1])
        return Loss(huber=(scale, float(self.epsilon), (_SMALLEST_SCALE / scale) ** 2)) if scale > 0.0 else None

    def row_terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        scale = float(params[1, -1])
        if not scale > 0.0:
            endless = np.full(len(score), np.inf)
            return RowTerms(loss=endless, first=endless, second=endless, more=np.stack((endless,) * 3))
        t = (y - score) / scale
        clipped = np.clip(t, -self.epsilon, self.epsilon)
        second = np.where(np.abs(t) <= self.epsilon, 2.0 / scale, 0.0)
        square, least = clipped * clipped, (_SMALLEST_SCALE / scale) ** 2
        return RowTerms(
            loss=scale * (1.0 + least + 2.0 * clipped * t - square),
            first=-2.0 * clipped,
            second=second,
            # for the scale: f', what the bound needs, f''
            more=np.stack([1.0 - least - square, -2.0 * clipped * y, second * square + 2.0 * least / scale]),
        )

    def penalty(self) -> tuple[float, float]:
        return 2.0 * self.alpha, 0.0

    def start_params(self, block: Block) -> Array:
        """A constant, and the scale about it: the medians of rows of all weights, or the spread where that is 0."""
        flat = super().start_params(block)
        y = np.zeros(1) if block.y is None else block.y[block.weights() > 0.0].astype(np.float64)
        flat[0, -1] = np.median(y) if self.fit_intercept else 0.0
        away = np.abs(y - flat[0, -1])
        flat[1, -1] = np.median(away) or away.mean() or 1.0
        return flat

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        """Without the products of columns that have no coefficient in the scale."""
        swept = self._swept(block, params, centre, gram=False)
        if swept is None:
            return super().curvature(block, params, centre, total_weight=total_weight)
        return self._whole_curvature(block, params, centre, swept)

    def _whole_curvature(self, block: Block, params: Array, centre: Array | None, swept: Swept) -> Array | None:
        d = block.n_features
        linear = super()._whole_curvature(block, params, centre, swept)
        if linear is None or 2 * (d + 1) > MAX_COORDINATES:
            return super().curvature(block, params, centre)
        mixed = -0.5 * swept.slopes * swept.bends
        total = float(mixed.sum())
        along = np.append(column_sums(block.X, mixed), total)
        if centre is not None:
            along[:-1] -= total * centre
        slope, bend = swept.sums.more[:, 0].sum(), swept.sums.more[:, 2].sum()
        hessian = np.zeros((2 * (d + 1), 2 * (d + 1)))
        hessian[: d + 1, : d + 1] = linear[0]
        hessian[: d + 1, -1] = hessian[-1, : d + 1] = along
        hessian[-1, -1] = max(bend, 2.0 * abs(slope) / float(params[1, -1]))  # as in `_hessian_weights`
        return hessian[None]

    def _sums_of(self, sums: ScoreSums) -> ScoreSums:
        diagonal = sums.diagonal
        if diagonal is not None:
            diagonal = np.vstack([diagonal, np.append(np.zeros(diagonal.shape[1] - 1), sums.more[:, 2].sum())])
        return HuberSums(table=sums.table, by_sign=sums.by_sign, diagonal=diagonal)

    # -- the scale beside the score ------------------------------------------------------------

    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Array, ScoreSums]:
        cost, sums = super()._loss_pass(block, params, **what)
        return cost, self._sums_of(sums)

    def _residuals(self, block: Block, params: Array) -> Array:
        terms = self._terms_at(block, params)
        return np.column_stack([terms.first, terms.more[0]])

    def _second_derivatives(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        terms = self._terms_at(block, params)
        weight, t = block.weights(), -0.5 * terms.first
        second = terms.second * weight
        return np.column_stack([second, terms.more[2] * weight]), lambda a, b, at: second[at] * t[at]

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        both, cross = self._second_derivatives(block, params)
        weight, slope = block.weights(), float(block.weights() @ self._terms_at(block, params).more[0])
        # a step of Newton may halve the scale, not more: with a scale near 0 all rows would be outliers
        missing = max(0.0, 2.0 * abs(slope) / float(params[1, -1]) - both[:, 1].sum())
        both[:, 1] += missing * (weight / weight.sum())
        return both, cross

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        terms = self._terms_at(block, params)
        change = self.margins(block.X, direction)
        t = -0.5 * terms.first
        both = change[:, 0] ** 2 + 2.0 * t * change[:, 0] * change[:, 1]
        curvature: Array = terms.second * both + terms.more[2] * change[:, 1] ** 2
        return curvature

    def drift_sums(self, block: Block, params: Array, step: Array) -> Array:
        """Rows with a curvature as well, at the end."""
        n_curved = float(np.count_nonzero(self._terms_at(block, params).second * block.weights()))
        if not params[1, -1] > step[1, -1]:  # the scale does not stay positive
            return np.append(np.zeros(N_DRIFT_SUMS), n_curved)
        return np.append(super().drift_sums(block, params, step), n_curved)

    def drift_of(self, sums: Array, params: Array, step: Array) -> float:
        """The change of the second derivative along the step, row by row.

        Infinite where the scale would not stay positive, and with too few rows for an interval; see the class.
        """
        n_coefficients = np.count_nonzero(self._free_coordinates(params.shape))
        if not params[1, -1] > step[1, -1] or sums[-1] < _MIN_ROWS_PER_COEFFICIENT * n_coefficients:
            return np.inf
        return self._change_on_the_way(sums[:-1])

    def _least(self, sums: ScoreSums, unit: float) -> float:
        if not (self.alpha > 0.0 and np.isfinite(sums.table).all()):
            return 0.0
        share = self._shares(sums)
        square = float(share**2 @ (sums.table[:, 0] - sums.more[:, 0]))  # sum u rho^2 / 4, or more
        if square > sums.count[0]:
            share = share * np.sqrt(sums.count[0] / square)
        mixed = share @ sums.by_sign[:, :-1]
        return -float(share @ sums.more[:, 1]) - float(mixed @ mixed) / (4.0 * self.alpha)
