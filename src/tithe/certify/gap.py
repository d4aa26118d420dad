"""How far a convex loss is above its smallest value on all rows: proved, and estimated with an interval."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from scipy.special import stdtrit

from tithe.certify.certificate import (
    Certificate,
    above_the_best,
    bound_certificate,
    exact_excess_certificate,
    excess_certificate,
    percent,
    rounding_certificate,
)
from tithe.certify.descent import Metric
from tithe.core.contracts import Objective
from tithe.core.data import Array, Block, Coreset, Evaluation, concat, effective_sample_size
from tithe.core.linear_algebra import MAX_COORDINATES
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.passes import AddsUp, DataPass
from tithe.core.seeding import uniform_of
from tithe.reduce.draws import InfluenceObjective

CONFIDENCE = 0.95
N_GROUPS = 8  # groups of a sample, left out one at a time (jackknife)
_T_QUANTILE = float(stdtrit(N_GROUPS - 1, 0.5 + 0.5 * CONFIDENCE))
# work is the number of rows times the squared number of coefficients
_MAX_WORK_ON_ALL_ROWS = 100_000_000  # with more work, the curvature is taken from a sample
_MAX_ADDED_WORK = 20_000_000_000  # up to which that of all rows is added up for a certificate
_MIN_SAMPLE_ROWS, _SAMPLE_ROWS_PER_COEFFICIENT = 20_000, 50
_MAX_SAMPLE_WORK = 5_000_000_000
_MIN_ROWS_PER_COEFFICIENT = 20  # with fewer rows in the sample the curvature is not known well enough
# a curvature that does not depend on the parameters is taken from all rows, up to one of these limits
_MAX_EXACT_COEFFICIENTS, _MAX_EXACT_WORK = 64, 20_000_000_000
_MAX_CANDIDATES = 100_000  # rows that the sample is chosen from
_CHUNK_ROWS = 8192  # candidates that are scored together
_MAX_MARGIN_CHANGE = 5.0  # mean change of a margin above which the curvature tells nothing about the minimum
_MAX_LOG_ERROR = 1.0  # standard error of the logarithm of the estimate, above which there is no interval
_SAFETY_FACTOR = 100.0  # an estimate without a known curvature may be too small by this factor
_CLOSE_BOUND = 2.0  # a bound of at most this multiple of the estimate is reported instead of it
_ROWS_OF_USUAL_LOSS = 1000  # that show how large a usual loss is
_HASH_KEY = 0x7A3C_91F5_0D2B_E864  # rows are chosen by their ids alone, independently of the fit


class LossSums(Protocol):
    """What one pass over rows gives. Those of several leaves add up.

    With r the derivatives of a row's loss in its k scores, the weight of the rows is ``count`` (basic moments,), the
    sum of r times (x, 1) is ``gradient`` (k, d + 1), and ``diagonal`` (k, d + 1) that of the curvature if it was asked
    for.
    """

    @property
    def count(self) -> Array: ...

    @property
    def gradient(self) -> Array: ...

    @property
    def diagonal(self) -> Array | None: ...

    def __add__(self, other: Self, /) -> Self: ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    SumsT = TypeVarWithDefault("SumsT", bound=LossSums, default=Any)
else:
    SumsT = TypeVar("SumsT")


class LazyCurvature:
    """The curvature of some rows at one place: taken when it is asked for, and only once.

    ``is_known`` says that taking it costs next to nothing.
    """

    def __init__(self, take: Callable[[], Array | None], *, is_known: bool = False) -> None:
        self._take, self.is_known = cache(take), is_known

    def __call__(self) -> Array | None:
        self.is_known = True
        return self._take()


class ConvexObjective(InfluenceObjective, Generic[SumsT]):
    """What certificates of the excess loss and polish by descent need: a smooth sum of losses of linear scores.

    A penalty may be added to the sum. `tithe.linear.objective.LinearModelObjective` defines all of it.
    """

    constant_curvature: ClassVar[bool] = False  # whether the second derivative is the same everywhere

    @property
    def convex(self) -> bool:
        """Whether the sum is convex in the parameters; else a gap can be bounded but not estimated."""
        return True

    def least_value(self, block: Block) -> float:
        """A value below which descent would go on for ever, as there is no minimum; rows weigh as much as all."""
        return 0.0

    @abstractmethod
    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> SumsT:
        """What one pass over a block gives."""

    @abstractmethod
    def evaluation(self, sums: SumsT, params: Array) -> Evaluation:
        """Value, gradient, proved bound and totals of the moments, of all rows that were added up."""

    def evaluate(self, block: Block, params: Array, *, diagonal: bool = False) -> Evaluation:
        """`evaluation` of the rows of one block."""
        return self.evaluation(self.sums(block, params, diagonal=diagonal), params)

    @abstractmethod
    def centre(self, block: Block) -> Array | None:
        """Where columns are centred before their curvature is taken."""

    @abstractmethod
    def metric(
        self,
        block: Block,
        params: Array,
        *,
        diagonal: Array | None = None,
        centre: Array | None = None,
        caution: float = 1.0,
    ) -> Metric:
        """The curvature of these rows with the penalty."""

    @abstractmethod
    def metric_of(self, hessian: Array, centre: Array | None = None) -> Metric:
        """A curvature that is taken as it is, with the penalty."""

    @abstractmethod
    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        """The second derivative of the losses of these rows, out of rows of ``total_weight``; None where too wide."""

    def sums_and_curvature(
        self, block: Block, params: Array, centre: Array | None, *, total_weight: float | None = None
    ) -> tuple[SumsT, LazyCurvature]:
        """`sums` and `curvature` at the same place, which may be cheaper together."""
        take = partial(self.curvature, block, params, centre, total_weight=total_weight)
        return self.sums(block, params), LazyCurvature(take)

    @abstractmethod
    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        """The part of each row in the diagonal of the curvature of all, added up over the coordinates: (n,)."""

    @abstractmethod
    def drift_sums(self, block: Block, params: Array, step: Array) -> Array:
        """What `drift_of` needs of these rows; that of several blocks adds up."""

    @abstractmethod
    def drift_of(self, sums: Array, params: Array, step: Array) -> float:
        """How much the curvature along a Newton step changes on its way, as a share of itself."""

    @abstractmethod
    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        """The smallest effective number of rows that the curvature in a column comes from."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The gap P(theta) - P* between the loss on all rows and its minimum, from one pass over all rows.

    Parameters
    ----------
    evaluation : Evaluation
        P, its gradient g and the proved bound, on all rows.
    estimate : float
        Half the squared Newton decrement, g . H^-1 g / 2.
    interval : (float, float) or None
        Where the gap lies with confidence 0.95; None where the curvature H is not known well enough to say.
    exact : bool
        Whether the estimate is the gap itself: H is the same everywhere and was taken from all rows.
    negligible : float
        A loss up to which it is rounding: no fit is better.

    Notes
    -----
    H must not come from the rows that the solution was fitted and polished with. Descent in the metric of these rows
    leaves a gradient in just the directions in which they overstate the curvature, and there g . H^-1 g is far too
    small (up to 100 times with 3 rows for each coefficient). So H is taken from all rows, or where that is too
    expensive from a fresh sample of them (`CurvatureRows`). With heavy tails a sample may miss the few rows with most
    of the curvature: then intervals held the truth in 10 of 17 polished fits.

    Two things make the estimate uncertain. The first is the mean change c of a margin along the Newton step, each row
    weighed by its part in the curvature along it: a loss like exp(-margin), which is what nearly separable classes
    come to, has c = 1 and twice the gap that is estimated. On 9,000 places of 144 problems, the gap lay between
    (1 + c)^-2 and (1 + c)^2 times the estimate in more than 99.8 %: a measurement, not a theorem. Where a few far rows
    gain or lose most of the curvature on the way, c is larger, or there is no interval (`drift_of`). The second is the
    sample, if there is one: the standard error is a jackknife's, from the estimates without one eighth of it at a
    time, and the largest of these counts as well.
    """

    evaluation: Evaluation
    estimate: float
    interval: tuple[float, float] | None
    exact: bool = False
    negligible: float = 0.0

    @property
    def bound(self) -> float:
        return self.evaluation.bound

    @property
    def largest(self) -> float:
        """The upper end of what is known about the gap."""
        if self.exact:
            return self.estimate
        return self.bound if self.interval is None else self.interval[1]

    @property
    def largest_text(self) -> str:
        """The same as a share of the smallest loss, in words."""
        share = above_the_best(self.largest, self.evaluation.value)
        return percent(share) if math.isfinite(share) else "any amount"

    def below(self, tol: float) -> bool:
        """Whether the relative excess is ``tol`` at the most: proved, or by the upper end of the interval."""
        if self.evaluation.value <= self.negligible:
            return True
        allowed = tol * self.evaluation.value
        surely_below = self.interval is None and self.estimate * _SAFETY_FACTOR <= allowed
        return self.largest <= allowed or self.bound <= allowed or surely_below

    def certificate(self, n_rows: int, *, passes: int) -> Certificate:
        loss = self.evaluation.value
        if loss <= self.negligible:
            return rounding_certificate(loss, n_rows, passes=passes)
        if self.exact:
            return exact_excess_certificate(loss, self.estimate, self.bound, n_rows, passes=passes)
        if self.interval is None or self.bound <= _CLOSE_BOUND * self.estimate:
            return bound_certificate(loss, self.bound, n_rows, passes=passes)
        return excess_certificate(
            loss, self.estimate, self.interval, self.bound, n_rows, confidence=CONFIDENCE, passes=passes
        )


@dataclass(frozen=True, kw_only=True)
class CurvatureRows:
    """Rows that the curvature is taken from: all of them, or a sample that nothing was fitted to.

    Row i of a sample is kept with probability min(1, m (q_i / Q + u_i / W) / 2), m being the size asked for. u_i is
    its weight, W that of all rows, and q_i = sum_j h_i u_i x_ij^2 / H_jj its part in the diagonal of the curvature,
    which adds up to Q: a row that contributes much of the curvature in some coordinate is nearly sure to be drawn.
    Whether a row is kept depends on its id and its values, not on the leaf it lies in.
    """

    rows: Block
    groups: tuple[Block, ...] = ()  # the sample in eight parts; empty if ``rows`` are all rows
    known: bool = True  # whether they give the whole curvature; not as a matrix if there are too many coefficients
    hessian: Array | None = None  # of all rows, if the same everywhere and added up in a pass; ``rows`` are then some

    @classmethod
    def all_of(cls, objective: ConvexObjective, block: Block, params: Array) -> CurvatureRows:
        """All rows, which are in memory."""
        return cls(rows=block, known=objective.convex and params.size <= MAX_COORDINATES)

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return self.known and not self.groups

    @classmethod
    def of(cls, block: Block, *, drawn: bool) -> CurvatureRows:
        """Rows that were kept, ``drawn`` from all of them or complete."""
        if not drawn:
            return cls(rows=block)
        group = (uniform_of(block.row_ids(), _HASH_KEY + 1) * N_GROUPS).astype(np.int64)
        return cls(rows=block, groups=tuple(block.take(np.flatnonzero(group == g)) for g in range(N_GROUPS)))

    def can_be_of_all_rows(self, data: DataPass, params: Array) -> bool:
        """Whether these are a sample, and the curvature of all rows is not too expensive."""
        return bool(self.groups) and data.n_rows * params.size**2 <= _MAX_ADDED_WORK

    def of_all_rows(
        self, objective: ConvexObjective, data: DataPass, params: Array, centre: Array | None, weight: float
    ) -> CurvatureRows:
        """The curvature of all rows, which have this weight, added up in a pass."""
        hessian = data.total(lambda leaf: objective.curvature(leaf, params, centre, total_weight=weight))
        return replace(self, groups=(), hessian=hessian)

    def metric(self, objective: ConvexObjective, params: Array, centre: Array | None) -> tuple[Metric, list[Metric]]:
        """The curvature of these rows with the penalty, and the same without one group at a time."""
        hessian = self.hessian
        if hessian is None and objective.constant_curvature and self.is_whole:
            hessian = objective.curvature(self.rows, params, centre)
        if hessian is not None:
            return objective.metric_of(hessian, centre), []
        if not self.groups:
            return objective.metric(self.rows, params, centre=centre), []
        weight = self.rows.total_weight
        curvatures = (objective.curvature(group, params, centre, total_weight=weight) for group in self.groups)
        parts = [part for part in curvatures if part is not None]  # none is None with few coefficients
        total = sum(parts[1:], parts[0])
        scale = N_GROUPS / (N_GROUPS - 1)
        return (
            objective.metric_of(total, centre),
            [objective.metric_of(scale * (total - part), centre) for part in parts],
        )


class CurvatureDraw:
    """Draws the rows of `CurvatureRows`, leaf by leaf, at the parameters of the pass."""

    def __init__(
        self, objective: ConvexObjective, params: Array, coreset: Block, n_rows: int | None, centre: Array | None
    ) -> None:
        self._objective, self._params, self._centre = objective, params, centre
        wanted = max(_MIN_SAMPLE_ROWS, _SAMPLE_ROWS_PER_COEFFICIENT * params.size)
        self._size = min(wanted, _MAX_SAMPLE_WORK // params.size**2)
        n_seen = coreset.n_seen if isinstance(coreset, Coreset) else len(coreset)
        n_rows = n_seen if n_rows is None else n_rows
        cheap = params.size <= _MAX_EXACT_COEFFICIENTS or n_rows * params.size**2 <= _MAX_EXACT_WORK
        self.adds_curvature = cheap and objective.constant_curvature and params.size <= MAX_COORDINATES
        self.takes_all = n_rows <= self._size or n_rows * params.size**2 <= _MAX_WORK_ON_ALL_ROWS
        enough_rows = self.takes_all or self._size >= _MIN_ROWS_PER_COEFFICIENT * params.size
        self.known = enough_rows and objective.convex and params.size <= MAX_COORDINATES
        if self.takes_all or self.adds_curvature or not self.known:
            return
        self._run = max(1, n_rows // _MAX_CANDIDATES)  # one candidate for each run of rows
        self._diagonal = objective.sums(coreset, params, diagonal=True, centre=centre).diagonal
        scale = n_rows / n_seen
        self._parts = scale * float(np.count_nonzero(self._diagonal))
        self._weight = scale * coreset.total_weight
        self._diagonal = scale * self._diagonal

    def curvature_of(self, leaf: Block) -> Array | None:
        """The curvature of the rows of this leaf, if it is added up."""
        return self._objective.curvature(leaf, self._params, self._centre) if self.adds_curvature else None

    def among(self, leaf: Block) -> list[Block]:
        """Blocks of the rows drawn from this leaf. Which rows are drawn depends on the rows alone."""
        if self.adds_curvature or not self.known:
            return []
        if self.takes_all:
            return [leaf]
        candidates = _one_row_of_each_run(leaf, self._run)
        drawn = [leaf] * max(1, -(-len(candidates) // _CHUNK_ROWS))

        def run(first: int, last: int) -> None:
            for number in range(first, last):
                at = candidates[number * _CHUNK_ROWS : (number + 1) * _CHUNK_ROWS]
                drawn[number] = self._draw_from(leaf.take(at))

        with single_blas_thread():
            over_parts(run, len(drawn))
        return drawn

    def _draw_from(self, rows: Block) -> Block:
        """The candidates that are drawn, with their weights."""
        part = self._objective.curvature_parts(rows, self._params, self._diagonal, self._centre)
        weight = self._run * rows.weights()
        chance = np.minimum(1.0, 0.5 * self._size * (self._run * part / self._parts + weight / self._weight))
        drawn = np.flatnonzero((uniform_of(rows.row_ids(), _HASH_KEY) < chance) & (weight > 0.0))
        return rows.take(drawn, weight[drawn] / chance[drawn])

    def rows(self, drawn: list[Block], curvature: Array | None, coreset: Block) -> CurvatureRows:
        """The rows drawn from all leaves; the coreset if the curvature was added up or is not known."""
        if self.adds_curvature:
            return CurvatureRows(rows=coreset, hessian=curvature)
        if not self.known:
            return CurvatureRows(rows=coreset, known=False)
        return CurvatureRows.of(concat(drawn), drawn=not self.takes_all)


def _one_row_of_each_run(block: Block, length: int) -> Array:
    """Positions of one row in each run of ``length`` ids, chosen by the number of the run. Ids must ascend."""
    n, ids = len(block), block.indices
    if length == 1 or n == 0:
        return np.arange(n)
    first, last = (0, n - 1) if ids is None else (int(ids[0]), int(ids[-1]))
    runs = np.arange(first // length, last // length + 1)
    chosen = runs * length + (uniform_of(runs, _HASH_KEY + 2) * length).astype(np.int64)
    chosen = chosen[(chosen >= first) & (chosen <= last)]
    if ids is None or last - first == n - 1:
        return chosen - first
    place = np.searchsorted(ids, chosen)
    positions: Array = place[ids[place] == chosen]
    return positions


@dataclass(frozen=True)
class _LeafResult(AddsUp, Generic[SumsT]):
    """Sums over the rows of some leaves, the rows that `CurvatureDraw` draws from them, and their curvature."""

    sums: SumsT
    drawn: list[Block]
    curvature: Array | None


def evaluate_all(
    objective: ConvexObjective, data: DataPass, params: Array, *, diagonal: bool = False, centre: Array | None = None
) -> Evaluation:
    """The objective on all rows, in one pass."""
    sums = data.total(lambda leaf: objective.sums(leaf, params, diagonal=diagonal, centre=centre))
    return objective.evaluation(sums, params)


def evaluate_and_draw(
    objective: ConvexObjective[SumsT],
    data: DataPass,
    params: Array,
    coreset: Block,
    *,
    diagonal: bool,
    centre: Array | None,
) -> tuple[Evaluation, CurvatureRows]:
    """The objective on all rows and rows for the curvature, in one pass."""
    draw = CurvatureDraw(objective, params, coreset, data.n_expected, centre)

    def work(leaf: Block) -> _LeafResult[SumsT]:
        sums = objective.sums(leaf, params, diagonal=diagonal, centre=centre)
        return _LeafResult(sums, draw.among(leaf), draw.curvature_of(leaf))

    result = data.total(work)
    return objective.evaluation(result.sums, params), draw.rows(result.drawn, result.curvature, coreset)


def gap_at(
    objective: ConvexObjective,
    evaluation: Evaluation,
    curvature: CurvatureRows,
    params: Array,
    centre: Array | None,
    *,
    step: Array | None = None,
    data: DataPass | None = None,
) -> Gap:
    """The gap at ``params``, from the evaluation on all rows and the curvature.

    ``step`` is used as the Newton step where the curvature is not known. The drift of a curvature that was added up
    over all rows of ``data`` is taken over all of them too: few rows may have most of it.
    """
    if not (np.isfinite(evaluation.value) and np.isfinite(evaluation.gradient).all()):
        raise ValueError("The loss overflows in double precision. Rescale the columns or the weights.")
    gradient = evaluation.gradient
    metric, jackknife_metrics = curvature.metric(objective, params, centre)
    newton = metric.solve(gradient) if step is None or curvature.known else step
    estimate = 0.5 * float(np.vdot(gradient, newton))
    interval, follows = None, True
    if curvature.known and estimate > 0.0:
        decrements = [metric.decrement(gradient) for metric in jackknife_metrics]
        drift = 0.0
        if not objective.constant_curvature:
            over = DataPass(curvature.rows) if curvature.hessian is None or data is None else data
            drift = objective.drift_of(
                over.total(lambda leaf: objective.drift_sums(leaf, params, newton)), params, newton
            )
        follows = drift <= _MAX_MARGIN_CHANGE
        interval = _interval(drift, params.size, curvature.rows, decrements)
    if interval is not None:
        interval = estimate * interval[0], min(evaluation.bound, estimate * interval[1])
    exact = objective.constant_curvature and curvature.is_whole
    return Gap(
        evaluation=evaluation,
        # with a large drift the curvature tells nothing about the minimum, not even that it is near
        estimate=min(estimate, evaluation.bound) if follows else evaluation.bound,
        interval=interval,
        exact=exact,
        negligible=_negligible_loss(objective, curvature.rows, params),
    )


def _negligible_loss(objective: ConvexObjective, rows: Block, params: Array) -> float:
    """The loss on all rows up to which it is rounding; ``rows`` are some of them that weigh as much as all."""
    step = -(-len(rows) // _ROWS_OF_USUAL_LOSS)
    some = rows.take(np.arange(0, len(rows), step)) if step > 1 else rows
    if not some.total_weight > 0.0:
        return 0.0
    some = replace(some, sample_weight=some.weights() * (rows.total_weight / some.total_weight), mean=None)
    return objective.relative_rounding * objective.evaluate(some, objective.without_coefficients(params)).value


def _interval(change: float, n_coefficients: int, sample: Block, decrements: list[float]) -> tuple[float, float] | None:
    """Factors of the estimate between which the gap lies, for a drift of ``change``; see `Gap`."""
    error, bias, largest_ratio = 0.0, 0.0, 1.0
    if decrements:
        logs = np.log(np.maximum(decrements, np.finfo(np.float64).tiny))
        error = float(np.sqrt((N_GROUPS - 1) / N_GROUPS * np.square(logs - logs.mean()).sum()))
        bias = n_coefficients / effective_sample_size(sample.weights())
        largest_ratio = math.exp(float(logs.max() - logs.mean()))
    if not (change <= _MAX_MARGIN_CHANGE and error <= _MAX_LOG_ERROR):
        return None
    error_factor = math.exp(_T_QUANTILE * error)
    drift = (1.0 + change) ** 2
    return 1.0 / (error_factor * (1.0 + bias) * drift), max(error_factor, largest_ratio) * drift


def certify_gap(objective: ConvexObjective, data: DataPass, params: Array, coreset: Block) -> Certificate:
    """How far the loss on all rows is from the smallest possible there, in one pass; more if they are in memory."""
    before, centre = data.n_passes, objective.centre(data.or_few(coreset))
    evaluation, curvature = evaluate_and_draw(objective, data, params, coreset, diagonal=False, centre=centre)
    if isinstance(data.rows, Block) and curvature.can_be_of_all_rows(data, params):
        curvature = curvature.of_all_rows(objective, data, params, centre, data.rows.total_weight)
    in_memory = data if isinstance(data.rows, Block) else None
    gap = gap_at(objective, evaluation, curvature, params, centre, data=in_memory)
    return gap.certificate(data.n_rows, passes=data.n_passes - before)


def certify_bound(objective: ConvexObjective, data: DataPass, params: Array) -> Certificate:
    """The proved bound alone, in one pass. No coreset is needed."""
    evaluation = evaluate_all(objective, data, params)
    return bound_certificate(evaluation.value, evaluation.bound, data.n_rows, passes=1)


def values_of(objective: Objective, data: DataPass, solutions: Sequence[Any], usual: float) -> Array:
    """What the objective has at each solution on all rows, penalty included, in one pass: (n_solutions,).

    What is rounding is zero: beside the value without any coefficient or atom, or else beside a ``usual`` one.
    """
    convex = isinstance(objective, ConvexObjective)
    null = objective.without_coefficients(solutions[0]) if convex else objective.null_params(data.rows.n_features)
    compared = [*solutions, *([] if null is None else [null])]

    def sums(leaf: Block) -> Array:
        of_leaf = np.empty(len(compared), dtype=object)  # added entry by entry, as lists are not
        for i, params in enumerate(compared):
            if isinstance(objective, ConvexObjective):
                of_leaf[i] = objective.sums(leaf, params)
            else:
                of_leaf[i] = float(objective.cost(leaf, params) @ leaf.weights())
        return of_leaf

    totals = data.total(sums)
    if isinstance(objective, ConvexObjective):
        for i, params in enumerate(compared):
            totals[i] = objective.evaluation(totals[i], params).value
    values = totals.astype(np.float64)
    return objective.without_rounding(values[: len(solutions)], usual if null is None else float(values[-1]))
