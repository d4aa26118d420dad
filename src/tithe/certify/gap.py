"""How far a convex loss is above its smallest value on all rows: proved, and estimated with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tithe.certify.certificate import Certificate, bound_certificate, exact_excess_certificate, excess_certificate
from tithe.core.contracts import ConvexObjective
from tithe.core.data import Array, Block, Coreset, Evaluation, concat, effective_sample_size
from tithe.core.hashing import uniform_of
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.passes import DataPass
from tithe.solvers.descent import Metric

CONFIDENCE = 0.95
N_GROUPS = 8  # groups of a sample that are left out in turn (jackknife)
_QUANTILE = float(stdtrit(N_GROUPS - 1, 0.5 + 0.5 * CONFIDENCE))
_ALL_ROWS_WORK = 100_000_000  # products up to which the curvature is taken from all rows
_SAMPLE_ROWS, _ROWS_PER_COEFFICIENT = 20_000, 50  # else from a sample: rows at the least, and for each coefficient
_SAMPLE_WORK, _LEAST_PER_COEFFICIENT = 5_000_000_000, 20  # products at the most; with fewer rows it is no use
# a curvature that is the same everywhere is taken from all rows: coefficients, or products, up to which that is quick
_EXACT_COEFFICIENTS, _EXACT_WORK = 64, 20_000_000_000
_CANDIDATES = 100_000  # rows that the sample is chosen from, at the most
_CHUNK_ROWS = 8192  # candidates that are looked at together
_LARGEST_CHANGE = 5.0  # mean change of a margin beyond which the curvature here says nothing about the minimum
_LARGEST_ERROR = 1.0  # standard error of the logarithm of the estimate from which it is no estimate
_ROUGH_FACTOR = 100.0  # by which an estimate without a known curvature may be too small
_NEARLY = 2.0  # a bound this close to the estimate is worth more than it
_HASH_KEY = 0x7A3C_91F5_0D2B_E864  # rows are chosen by their ids alone: nothing else may steer what certifies


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What one pass over all rows says about P(theta) - P*.

    Parameters
    ----------
    evaluation : Evaluation
        P, its gradient g and the proved bound, on all rows.
    estimate : float
        Half the squared Newton decrement, g . H^-1 g / 2.
    interval : (float, float) or None
        Where the gap lies with confidence .95; None where the curvature H is not known well enough to say.
    exact : bool
        Whether the estimate is the gap itself: H is the same everywhere and was taken from all rows.

    Notes
    -----
    H must not come from the rows that the solution was fitted and polished with. Descent in the metric of these rows
    leaves a gradient in just the directions in which they overstate the curvature, and there g . H^-1 g is far too
    small (up to 100 times with 3 rows for each coefficient). So H is taken from all rows, or from a fresh sample of
    them (`CurvatureRows`).

    Two things make the estimate uncertain. The first is the mean change c of a margin along the Newton step, each row
    weighed by its part in the curvature along it: a loss like exp(-margin), which is what nearly separable classes
    come to, has c = 1 and twice the gap that is estimated. On 9,000 places of 144 problems, the gap lay between
    (1 + c)^-2 and (1 + c)^2 times the estimate in more than 99.8 %: a measurement, not a theorem. The second is the
    sample, if there is one: the standard error is a jackknife's, from the estimates without one eighth of it at a
    time, and the largest of these counts as well.
    """

    evaluation: Evaluation
    estimate: float
    interval: tuple[float, float] | None
    exact: bool = False

    @property
    def bound(self) -> float:
        return self.evaluation.bound

    @property
    def largest(self) -> float:
        """What the gap may well amount to."""
        if self.exact:
            return self.estimate
        return self.bound if self.interval is None else self.interval[1]

    def below(self, tol: float) -> bool:
        """Whether the relative excess is ``tol`` at the most: proved, or by the upper end of the interval."""
        enough = tol * self.evaluation.value
        rough = self.interval is None and self.estimate * _ROUGH_FACTOR <= enough
        return self.largest <= enough or self.bound <= enough or rough

    def certificate(self, n_rows: int, *, passes: int) -> Certificate:
        loss = self.evaluation.value
        if self.exact:
            return exact_excess_certificate(loss, self.estimate, self.bound, n_rows, passes=passes)
        if self.interval is None or self.bound <= _NEARLY * self.estimate:
            return bound_certificate(loss, self.bound, n_rows, passes=passes)
        return excess_certificate(
            loss, self.estimate, self.interval, self.bound, n_rows, confidence=CONFIDENCE, passes=passes
        )


@dataclass(frozen=True, kw_only=True)
class CurvatureRows:
    """Rows that the curvature is taken from: all of them, or a sample that nothing was fitted to.

    Row i of a sample is kept with probability min(1, m (q_i / Q + u_i / W) / 2), m being the size asked for. u_i is
    its weight, W that of all rows, and q_i = sum_j h_i u_i x_ij^2 / H_jj its part in the diagonal of the curvature,
    which adds up to Q: rows that much of the curvature in some coordinate depends on are nearly sure to be there.
    Whether a row is kept depends on its id and its own numbers, not on the leaf it lies in.

    Parameters
    ----------
    rows : Block
    groups : list of Block
        The sample in eight parts; empty if ``rows`` are all rows.
    known : bool
        Whether they tell the whole curvature: it is not kept as a matrix where there are too many coefficients.
    hessian : array or None
        The curvature of all rows, if it is the same everywhere and was added up in a pass; ``rows`` are then some rows.
    """

    rows: Block
    groups: tuple[Block, ...] = ()
    known: bool = True
    hessian: Array | None = None

    @classmethod
    def all_of(cls, objective: ConvexObjective, block: Block, params: Array) -> CurvatureRows:
        """All rows, which are at hand."""
        return cls(rows=block, known=objective.convex and objective.keeps_curvature(params))

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

    def metric(self, objective: ConvexObjective, params: Array, centre: Array | None) -> tuple[Metric, list[Metric]]:
        """The curvature with the penalty as these rows see it, and without one group at a time."""
        hessian = self.hessian
        if hessian is None and objective.constant_curvature and self.is_whole:
            hessian = objective.curvature(self.rows, params, centre)
        if hessian is not None:
            return objective.metric_of(hessian, centre), []
        if not self.groups:
            return objective.metric(self.rows, params, centre=centre), []
        weight = self.rows.total_weight
        curvatures = (objective.curvature(group, params, centre, total_weight=weight) for group in self.groups)
        parts = [part for part in curvatures if part is not None]  # of few coefficients it is kept
        whole = sum(parts[1:], parts[0])
        scale = N_GROUPS / (N_GROUPS - 1)
        return (
            objective.metric_of(whole, centre),
            [objective.metric_of(scale * (whole - part), centre) for part in parts],
        )


class CurvatureDraw:
    """Chooses the rows of `CurvatureRows`, leaf by leaf, at the parameters that the pass is made at."""

    def __init__(
        self, objective: ConvexObjective, params: Array, coreset: Block, n_rows: int | None, centre: Array | None
    ) -> None:
        self._objective, self._params, self._centre = objective, params, centre
        wanted = max(_SAMPLE_ROWS, _ROWS_PER_COEFFICIENT * params.size)
        self._size = min(wanted, _SAMPLE_WORK // params.size**2)
        n_seen = coreset.n_seen if isinstance(coreset, Coreset) else len(coreset)
        n_rows = n_seen if n_rows is None else n_rows
        cheap = params.size <= _EXACT_COEFFICIENTS or n_rows * params.size**2 <= _EXACT_WORK
        self.adds_up = cheap and objective.constant_curvature and objective.keeps_curvature(params)
        self.whole = n_rows <= self._size or n_rows * params.size**2 <= _ALL_ROWS_WORK
        enough = self.whole or self._size >= _LEAST_PER_COEFFICIENT * params.size
        self.known = enough and objective.convex and objective.keeps_curvature(params)
        if self.whole or self.adds_up or not self.known:
            return
        self._run = max(1, n_rows // _CANDIDATES)  # of so many rows one is a candidate
        self._diagonal = objective.sums(coreset, params, diagonal=True, centre=centre).diagonal
        scale = n_rows / n_seen
        self._parts = scale * float(np.count_nonzero(self._diagonal))
        self._weight = scale * coreset.total_weight
        self._diagonal = scale * self._diagonal

    def among(self, leaf: Block) -> Any:
        """Blocks of the rows of this leaf that are kept, or their curvature; those of all leaves add up (+).

        Which rows are kept depends on nothing but the rows.
        """
        if self.adds_up:
            return self._objective.curvature(leaf, self._params, self._centre)
        if not self.known:
            return []
        if self.whole:
            return [leaf]
        candidates = _one_of_each(leaf, self._run)
        kept: list[Any] = [None] * max(1, -(-len(candidates) // _CHUNK_ROWS))

        def run(first: int, last: int) -> None:
            for number in range(first, last):
                at = candidates[number * _CHUNK_ROWS : (number + 1) * _CHUNK_ROWS]
                kept[number] = self._kept_of(leaf.take(at))

        with single_blas_thread():
            over_parts(run, len(kept))
        return kept

    def _kept_of(self, rows: Block) -> Block:
        """Those of some candidates that are kept."""
        part = self._objective.curvature_parts(rows, self._params, self._diagonal, self._centre)
        weight = self._run * rows.weights()
        chance = np.minimum(1.0, 0.5 * self._size * (self._run * part / self._parts + weight / self._weight))
        kept = np.flatnonzero((uniform_of(rows.row_ids(), _HASH_KEY) < chance) & (weight > 0.0))
        return rows.take(kept, weight[kept] / chance[kept])

    def rows(self, parts: Any, coreset: Block) -> CurvatureRows:
        """What was kept of all leaves; the coreset where the curvature is not known anyway."""
        if self.adds_up:
            return CurvatureRows(rows=coreset, hessian=parts)
        if not self.known:
            return CurvatureRows(rows=coreset, known=False)
        return CurvatureRows.of(concat(parts), drawn=not self.whole)


def _one_of_each(block: Block, length: int) -> Array:
    """Positions of one row in each run of so many ids, chosen by the number of the run; the ids of a block ascend."""
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
class _Seen:
    """Sums over the rows of some leaves, and what `CurvatureDraw` keeps of them."""

    sums: Any
    kept: Any

    def __add__(self, other: _Seen) -> _Seen:
        return _Seen(self.sums + other.sums, self.kept + other.kept)


def evaluate_all(
    objective: ConvexObjective, every: DataPass, params: Array, *, diagonal: bool = False, centre: Array | None = None
) -> Evaluation:
    """The objective on all rows, in one pass."""
    sums = every.total(lambda leaf: objective.sums(leaf, params, diagonal=diagonal, centre=centre))
    return objective.evaluation(sums, params)


def evaluate_and_draw(
    objective: ConvexObjective, every: DataPass, params: Array, coreset: Block, *, diagonal: bool, centre: Array | None
) -> tuple[Evaluation, CurvatureRows]:
    """The same, and rows for the curvature, in one pass."""
    draw = CurvatureDraw(objective, params, coreset, every.n_expected, centre)

    def work(leaf: Block) -> _Seen:
        return _Seen(objective.sums(leaf, params, diagonal=diagonal, centre=centre), draw.among(leaf))

    seen = every.total(work)
    return objective.evaluation(seen.sums, params), draw.rows(seen.kept, coreset)


def gap_at(
    objective: ConvexObjective,
    evaluation: Evaluation,
    curvature: CurvatureRows,
    params: Array,
    centre: Array | None,
    *,
    step: Array | None = None,
) -> Gap:
    """The gap at ``params``, from the evaluation on all rows and the curvature.

    ``step`` is the Newton step of somebody who knows better where the curvature is not known.
    """
    if not (np.isfinite(evaluation.value) and np.isfinite(evaluation.gradient).all()):
        raise ValueError("The loss overflows in double precision. Rescale the columns or the weights.")
    gradient = evaluation.gradient
    metric, others = curvature.metric(objective, params, centre)
    newton = metric.solve(gradient) if step is None or curvature.known else step
    estimate = 0.5 * float(np.vdot(gradient, newton))
    interval = None
    if curvature.known and estimate > 0.0:
        interval = _interval(objective, curvature.rows, params, newton, [m.decrement(gradient) for m in others])
    if interval is not None:
        interval = estimate * interval[0], min(evaluation.bound, estimate * interval[1])
    exact = objective.constant_curvature and curvature.is_whole
    return Gap(evaluation=evaluation, estimate=min(estimate, evaluation.bound), interval=interval, exact=exact)


def _interval(
    objective: ConvexObjective, rows: Block, params: Array, newton: Array, without: list[float]
) -> tuple[float, float] | None:
    """Factors of the estimate between which the gap lies; see `Gap`."""
    change = objective.curvature_drift(rows, params, newton)
    error, few, most = 0.0, 0.0, 1.0
    if without:
        logs = np.log(np.maximum(without, np.finfo(np.float64).tiny))
        error = float(np.sqrt((N_GROUPS - 1) / N_GROUPS * np.square(logs - logs.mean()).sum()))
        few = params.size / effective_sample_size(rows.weights())
        most = math.exp(float(logs.max() - logs.mean()))
    if not (change <= _LARGEST_CHANGE and error <= _LARGEST_ERROR):
        return None
    random = math.exp(_QUANTILE * error)
    return 1.0 / (random * (1.0 + few) * (1.0 + change) ** 2), max(random, most) * (1.0 + change) ** 2


def certify_gap(objective: ConvexObjective, data: DataPass, params: Array, coreset: Block) -> Certificate:
    """How far the loss on all rows is from the smallest possible there, in one pass."""
    centre = objective.centre(data.or_few(coreset))
    evaluation, curvature = evaluate_and_draw(objective, data, params, coreset, diagonal=False, centre=centre)
    return gap_at(objective, evaluation, curvature, params, centre).certificate(data.n_rows, passes=1)


def certify_bound(objective: ConvexObjective, data: DataPass, params: Array) -> Certificate:
    """The same, but only what is proved: no coreset is needed."""
    evaluation = evaluate_all(objective, data, params)
    return bound_certificate(evaluation.value, evaluation.bound, data.n_rows, passes=1)
