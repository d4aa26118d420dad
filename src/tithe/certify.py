"""Certify and polish: one honest look at the full data, and a few to do better."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning

from tithe.calibration import calibrated
from tithe.core.data import Array, Block, Coreset, Evaluation, effective_sample_size
from tithe.core.protocols import Source
from tithe.core.registry import make
from tithe.kernels.descent import Descent, Metric
from tithe.kernels.threads import single_blas_thread

Kind = Literal["bound", "exact", "estimate"]

AUTO_ROUNDS = 2  # polish="auto": on real data the first round or two bring nearly all there is to gain
AUTO_GAIN = 1e-3  # ... and stops earlier once a round brings less than this share of the cost
AUTO_DESCENT = 30  # rounds at the most where polish="auto" stops on a certificate
_MORE_CAUTION, _MOST_CAUTION = 30.0, 1e6  # with the coreset's correlations, after a round that failed
_TRIES = 6  # steps of one round that are tried at the most: each costs a look at the data
_CONFIDENCE = 0.95
_SURE = 300.0  # effective rows from which the curvature in a column is known well enough (to some 6 %)
_NORMAL = float(ndtri(0.5 + 0.5 * _CONFIDENCE))
_FEW = 10.0  # rows for each coefficient at which an estimate may well be off by its own size (measured)
_NEARLY = 2.0  # a bound this close to the estimate is worth more than it


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the small set cost, measured on rows that were not chosen to flatter it.

    Parameters
    ----------
    kind : {"bound", "exact", "estimate"}
        A bound is a theorem about the numbers computed, an exact value was computed on all rows,
        an estimate states its confidence.
    value : float
        The number certified; ``sentence`` says what it is.
    relative : float
        How far off the small set's own idea of the value is, relative to the value.
    confidence : float or None
        Of an estimate; None otherwise.
    interval : (float, float) or None
        Where the value lies with that confidence.
    bound : float or None
        Where there is one: what the number certified provably does not exceed.
    n_rows : int
        Rows looked at.
    passes : int
        Times each of them was read.
    sentence : str
        The same, for a person.
    """

    kind: Kind
    value: float
    relative: float
    confidence: float | None
    interval: tuple[float, float] | None = None
    bound: float | None = None
    n_rows: int
    passes: int
    sentence: str

    def __str__(self) -> str:
        return self.sentence


class Rows:
    """All rows, wherever they are: a block, or the leaves of a source that can be read again.

    Every look reads each leaf once and holds no more of it than what is added up. Leaves may be worked
    on side by side; their results are added in the order of the leaves, so a sum has the same bits on
    every engine. A block is one leaf.

    Parameters
    ----------
    rows : Block or Source
    engine : str or engine
        Who reads the leaves of a source. ``"auto"`` is ``"threads"``.

    Attributes
    ----------
    n_rows : int
        Rows of the last look; of a block at once.
    """

    def __init__(self, rows: Block | Source, engine: Any = "auto") -> None:
        self._rows = rows
        self._engine = "threads" if isinstance(engine, str) and engine == "auto" else engine
        self.n_rows = len(rows) if isinstance(rows, Block) else 0

    def each(self, work: Callable[[Block], Any]) -> Iterator[Any]:
        """``work(leaf)`` of every leaf that has rows, in order."""
        if isinstance(self._rows, Block):
            yield work(self._rows)
            return
        self.n_rows = 0

        def part(leaf: Block, number: int) -> Any:
            return len(leaf), work(leaf) if len(leaf) else None

        with single_blas_thread():  # BLAS adds in another order on two
            for n_rows, result in make("engine", self._engine).map(self._rows.tasks(), part):
                self.n_rows += n_rows
                if n_rows:
                    yield result
        if not self.n_rows:
            raise ValueError("There are no rows: the source is empty.")

    def total(self, work: Callable[[Block], Any]) -> Any:
        """``work(leaf)``, added up over the leaves."""
        return reduce(add, self.each(work))

    def or_few(self, coreset: Block) -> Block:
        """The block, or the coreset where rows are read from a source: to say where columns lie.

        Curvatures are taken about that place, which changes nothing about them but rounding and what is
        believed of correlations; the mean of a coreset is near enough, and costs no look.
        """
        return self._rows if isinstance(self._rows, Block) else coreset


def weighted_total(block: Block, cost: Array) -> float:
    """sum u * cost, in float64."""
    return float(cost.sum() if block.sample_weight is None else block.sample_weight @ cost)


def certify_cost(
    objective: Any, rows: Block | Source, params: Any, coreset: Block, *, engine: Any = "auto"
) -> Certificate:
    """The exact cost of a solution on all rows, and how far off the coreset's idea of it is."""
    every = Rows(rows, engine)
    full = every.total(lambda leaf: weighted_total(leaf, objective.cost(leaf, params)))
    return cost_certificate(full, coreset_cost(objective, coreset, params), every.n_rows, passes=1)


def coreset_cost(objective: Any, coreset: Block, params: Any) -> float:
    """The cost of a solution as the coreset sees it."""
    return weighted_total(coreset, objective.cost(coreset, params))


def cost_certificate(full: float, small: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate from the two costs of one solution."""
    relative = small / full - 1.0 if full > 0 else (0.0 if small == 0 else math.inf)
    return Certificate(
        kind="exact",
        value=full,
        relative=relative,
        confidence=None,
        n_rows=n_rows,
        passes=passes,
        sentence=(
            f"The solution costs exactly {full:.6g} on all {n_rows} rows; "
            f"the coreset says {small:.6g}, which is {relative:+.2%} off."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Polished:
    """A solution after some rounds on the full data.

    ``curve`` holds the full-data cost before each round and at the end; it never rises.
    ``labels`` are the assignments at the final solution, None where rows are not held in memory.
    ``passes`` counts looks at the data, ``n_rows`` the rows of one.
    """

    params: Any
    labels: Array | None
    curve: list[float]
    passes: int
    n_rows: int


def polish_rounds(polish: Any) -> tuple[int, float]:
    """How many rounds at the most, and the gain below which to stop, for ``polish``."""
    if isinstance(polish, str) and polish == "auto":
        return AUTO_ROUNDS, AUTO_GAIN
    if isinstance(polish, (bool, str)) or not isinstance(polish, (int, np.integer)) or polish < 0:
        raise ValueError(f"polish must be 'auto' or a number of rounds of at least 0, got {polish!r}.")
    return int(polish), 0.0


def polish_by_steps(
    objective: Any, rows: Block | Source, params: Any, polish: Any, *, engine: Any = "auto"
) -> Polished:
    """Rounds of the objective's own steps over all rows, and the final assignment.

    Every round is accepted only if the cost falls; the last look gives labels and the exact cost.
    ``rounds`` rounds take at most ``rounds + 1`` looks.
    """
    rounds, least_gain = polish_rounds(polish)
    every = Rows(rows, engine)

    def look(at: Any, *, last: bool) -> Any:
        return every.total(lambda leaf: objective.look(leaf, at, last=last))

    here = look(params, last=rounds == 0)
    curve, labels, passes = [here.total], here.labels, 1
    for number in range(1, rounds + 1):
        tried, gain = objective.step(here, params)
        if gain <= least_gain * curve[-1]:
            break  # rows that change clusters might save a little more, but not enough to pay for a look
        here = look(tried, last=number == rounds)
        passes += 1
        if here.total >= curve[-1]:
            break
        params, labels = tried, here.labels
        curve.append(here.total)
    return Polished(
        params=params,
        labels=labels if isinstance(rows, Block) else None,
        curve=curve,
        passes=passes,
        n_rows=every.n_rows,
    )


# -- convex objectives: how far from the smallest value there is -------------------------------


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What one look at all rows says about P(theta) - P*.

    ``bound`` is proved. ``estimate`` is half the squared Newton decrement g . H^-1 g, H the coreset's
    curvature with the exact diagonal of all rows. Three things make it uncertain: ``error``, its
    relative standard error from the draw of the rows that H was taken from; ``few``, coefficients for
    each of these rows, since H^-1 is biased where they are many; and ``bend``, the mean change of a
    margin along the Newton step, since the curvature changes by up to that share on the way.
    """

    evaluation: Evaluation
    bound: float
    estimate: float
    error: float
    few: float
    bend: float

    def below(self, tol: float) -> bool:
        """Whether the relative excess is ``tol`` at the most: proved, or estimated with some caution."""
        enough = tol * self.evaluation.value
        return self.bound <= enough or self.estimate * self._doubt() <= enough

    def certificate(self, n_rows: int, *, passes: int) -> Certificate:
        value = self.evaluation.value
        if self.bound <= _NEARLY * self.estimate:
            return bound_certificate(value, self.bound, n_rows, passes=passes)
        scale = 1.0 / value if value > 0 else 0.0
        low, high = self._interval()
        return Certificate(
            kind="estimate",
            value=self.estimate,
            relative=self.estimate * scale,
            confidence=_CONFIDENCE,
            interval=(low, high),
            bound=self.bound,
            n_rows=n_rows,
            passes=passes,
            sentence=(
                f"The loss, penalty included, is {value:.8g} on all {n_rows} rows, above the smallest possible by "
                f"about {self.estimate * scale:.2g} of itself (95 %: {low * scale:.2g} to {high * scale:.2g}), "
                f"provably at most {self.bound * scale:.2g} of itself."
            ),
        )

    def _doubt(self) -> float:
        """The factor by which the estimate may be off, either way."""
        return math.exp(min(50.0, _NORMAL * self.error)) * (1.0 + _FEW * self.few) * (1.0 + self.bend)

    def _interval(self) -> tuple[float, float]:
        return self.estimate / self._doubt(), min(self.bound, self.estimate * self._doubt())


def bound_certificate(value: float, bound: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate of what is proved: the value exceeds the smallest one by no more than the bound."""
    relative = bound / value if value > 0 else 0.0
    return Certificate(
        kind="bound",
        value=bound,
        relative=relative,
        confidence=None,
        bound=bound,
        n_rows=n_rows,
        passes=passes,
        sentence=(
            f"The loss, penalty included, is {value:.8g} on all {n_rows} rows, above the smallest possible by provably "
            f"at most {relative:.2g} of itself."
        ),
    )


def gap_at(
    objective: Any, evaluation: Evaluation, metric: Metric, coreset: Block, params: Array, *, step: Array | None = None
) -> Gap:
    """The gap at ``params`` from the evaluation on all rows and the curvature of the coreset.

    ``step`` is a Newton step from a curvature that has learned from steps on all rows.
    """
    if not (np.isfinite(evaluation.value) and np.isfinite(evaluation.gradient).all()):
        raise ValueError("The loss overflows in double precision. Rescale the columns or the weights.")
    newton = metric.solve(evaluation.gradient) if step is None else step
    estimate = 0.5 * float(np.vdot(evaluation.gradient, newton))
    # each drawn row's part in H along the Newton step: their squares are the variance of the draw
    part = coreset.weights() * objective.bend(coreset, params, newton)
    total = float(part.sum())
    error = float(np.sqrt(part @ part)) / total if total > 0 else 0.0
    change = np.abs(objective.margins(coreset.X, newton)).max(axis=1)
    return Gap(
        evaluation=evaluation,
        bound=evaluation.bound,
        estimate=min(estimate, evaluation.bound),
        error=error,
        few=params.size / effective_sample_size(coreset.weights()),
        bend=float(part @ change) / total if total > 0 else 0.0,
    )


def certify_gap(
    objective: Any, rows: Block | Source, params: Array, coreset: Block, *, engine: Any = "auto"
) -> Certificate:
    """How far the loss on all rows is from the smallest possible there, in one pass."""
    every = Rows(rows, engine)
    centre = objective.centre(every.or_few(coreset))
    evaluation = _evaluated(objective, every, params, diagonal=True, centre=centre)
    metric = objective.metric(coreset, params, diagonal=evaluation.diagonal, centre=centre)
    return gap_at(objective, evaluation, metric, coreset, params).certificate(every.n_rows, passes=1)


def certify_bound(objective: Any, rows: Block | Source, params: Array, *, engine: Any = "auto") -> Certificate:
    """The same, but only what is proved: no coreset is needed."""
    every = Rows(rows, engine)
    evaluation = _evaluated(objective, every, params, diagonal=False, centre=None)
    return bound_certificate(evaluation.value, evaluation.bound, every.n_rows, passes=1)


def _evaluated(objective: Any, every: Rows, params: Array, *, diagonal: bool, centre: Array | None) -> Evaluation:
    """One look at all rows."""
    sums = every.total(lambda leaf: objective.sums(leaf, params, diagonal=diagonal, centre=centre))
    evaluation: Evaluation = objective.evaluation(sums, params)
    return evaluation


def warn_of_excess(gap: Gap, tol: float, why: str) -> None:
    """Say that the certificate is not what was asked for, and why."""
    relative = min(gap.bound, gap.estimate) / gap.evaluation.value
    warnings.warn(
        f"The loss may exceed the smallest possible by {relative:.2g} of itself, more than tol={tol:g}: {why}",
        ConvergenceWarning,
        stacklevel=6,
    )


@dataclass(frozen=True, kw_only=True)
class Descended:
    """A solution of a convex objective after some rounds on the full data; ``curve`` never rises."""

    params: Array
    coreset: Coreset
    gap: Gap
    curve: list[float]
    passes: int
    n_rows: int


def polish_by_descent(
    objective: Any,
    rows: Block | Source,
    coreset: Coreset,
    params: Array,
    *,
    polish: Any,
    tol: float,
    calibrate: bool,
    rng: Any,
    engine: Any = "auto",
) -> Descended:
    """Calibrate at the solution, fit again, and go downhill on all rows in the metric of the coreset.

    The first look at all rows gives the loss, its gradient and the exact totals for calibration; the
    fit on the calibrated coreset is the first step, and L-BFGS, preconditioned by the coreset's
    curvature, goes on from there. Every step is accepted only if the loss on all rows falls. Stops on
    the certificate (``polish="auto"``), or after a number of rounds besides the calibration.
    """
    auto = isinstance(polish, str) and polish == "auto"
    rounds = AUTO_DESCENT if auto else polish_rounds(polish)[0]
    enough = tol if auto else 0.0
    every = Rows(rows, engine)
    centre = objective.centre(every.or_few(coreset))

    # where every column is in many of the rows, their own curvature will do, and a look is cheaper without it
    exact = objective.least_support(coreset, params, centre) < _SURE

    def look(at: Array) -> Evaluation:
        return _evaluated(objective, every, at, diagonal=exact, centre=centre)

    def metric_at(at: Array, point: Evaluation, caution: float = 1.0) -> Metric:
        metric: Metric = objective.metric(coreset, at, diagonal=point.diagonal, centre=centre, caution=caution)
        return metric

    point = look(params)
    curve, passes, before = [point.value], 1, None
    metric = metric_at(params, point)
    gap = gap_at(objective, point, metric, coreset, params)
    if calibrate and not gap.below(enough):
        coreset = calibrated(replace(coreset, totals=point.totals, pilot=params), objective)
        if coreset.provenance.get("calibration_n_beyond", 0):  # else the weights hardly changed
            tried = objective.solve(coreset, rng=rng, init=params)
            there = look(tried)
            passes += 1
            if there.value < point.value:
                before, params, point = (params, point), tried, there
                curve.append(point.value)
        metric = metric_at(params, point)
        gap = gap_at(objective, point, metric, coreset, params)
    descent = Descent(look, params, metric, point=point)
    if before is not None:
        descent.recall(*before)
    caution = 1.0
    for _ in range(rounds):
        if gap.below(enough):
            break
        if descent.round(most_tries=_TRIES):
            curve.append(descent.point.value)
        else:
            caution *= _MORE_CAUTION
            if caution > _MOST_CAUTION:
                break
            descent.renew(metric_at(descent.params, descent.point, caution))
        here = metric_at(descent.params, descent.point)
        gap = gap_at(objective, descent.point, here, coreset, descent.params, step=descent.newton())
    if auto and not gap.below(tol):
        warn_of_excess(
            gap,
            tol,
            f"{coreset.effective_size:.0f} effective rows know little of the curvature in {params.size} coefficients. "
            "Ask for a larger coreset_size.",
        )
    return Descended(
        params=descent.params,
        coreset=coreset,
        gap=gap,
        curve=curve,
        passes=passes + descent.n_evaluations,
        n_rows=every.n_rows,
    )
