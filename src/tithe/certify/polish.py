"""Polish: a few more passes over all rows that improve a solution, never for the worse."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify.certificate import percent
from tithe.certify.gap import Gap, evaluate_all, evaluate_and_draw, gap_at
from tithe.core.contracts import ConvexObjective, SteppedObjective
from tithe.core.data import Array, Block, Coreset, Evaluation
from tithe.core.params import POLISH, check_value
from tithe.core.passes import DataPass
from tithe.reduce.calibration import calibrated
from tithe.solvers.descent import Descent, Metric

AUTO_ROUNDS = 2  # polish="auto": on real data the first round or two bring nearly all there is to gain
AUTO_GAIN = 1e-3  # ... and stops earlier once a round brings less than this share of the cost
AUTO_DESCENT = 30  # rounds at the most where polish="auto" stops on a certificate
_MORE_CAUTION, _MOST_CAUTION = 30.0, 1e6  # with the coreset's correlations, after a round that failed
_TRIES = 6  # steps of one round that are tried at the most: each costs a look at the data
_NEWTON = 250  # coefficients up to which a fresh curvature at every place is cheap
_SURE = 300.0  # effective rows from which the curvature in a column is known well enough (to some 6 %)


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
    check_value("polish", polish, POLISH)
    return int(polish), 0.0


def polish_by_steps(objective: SteppedObjective, data: DataPass, params: Any, polish: Any) -> Polished:
    """Rounds of the objective's own steps over all rows, and the final assignment.

    Every round is accepted only if the cost falls; the last look gives labels and the exact cost.
    ``rounds`` rounds take at most ``rounds + 1`` looks.
    """
    rounds, least_gain = polish_rounds(polish)
    before = data.n_passes

    def look(at: Any, *, last: bool) -> Any:
        return data.total(lambda leaf: objective.look(leaf, at, last=last))

    here = look(params, last=rounds == 0)
    curve, labels = [here.total], here.labels
    for number in range(1, rounds + 1):
        tried, gain = objective.step(here, params)
        if gain <= least_gain * curve[-1]:
            break  # rows that change clusters might save a little more, but not enough to pay for a look
        here = look(tried, last=number == rounds)
        if here.total >= curve[-1]:
            break
        params, labels = tried, here.labels
        curve.append(here.total)
    return Polished(
        params=params,
        labels=labels if isinstance(data.rows, Block) else None,
        curve=curve,
        passes=data.n_passes - before,
        n_rows=data.n_rows,
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
    objective: ConvexObjective,
    data: DataPass,
    coreset: Coreset,
    params: Array,
    *,
    polish: Any,
    tol: float,
    calibrate: bool,
    rng: Any,
) -> Descended:
    """Calibrate at the solution, fit again, and go downhill on all rows.

    The first pass over all rows gives the loss, its gradient, the exact totals for calibration and the rows that
    the curvature is taken from. The fit on the calibrated coreset is the first step; Newton's method with that
    curvature goes on from there (L-BFGS where it is dear or not known as a whole). Every step is accepted only if
    the loss on all rows falls. Stops on the certificate (``polish="auto"``), or after a number of rounds besides the
    calibration.
    """
    auto = isinstance(polish, str) and polish == "auto"
    rounds = AUTO_DESCENT if auto else polish_rounds(polish)[0]
    enough = tol if auto else 0.0
    before = data.n_passes
    way = _Way(objective, data, coreset, params)
    if calibrate and not way.gap().below(enough):
        way.step_by_calibration(rng, go=rounds == 0 or not way.gap().exact)
    for _ in range(rounds):
        if way.is_below(enough) or not way.step_by_descent():
            break
    gap = way.gap()
    if auto and not gap.below(tol):
        excess = percent(gap.largest / gap.evaluation.value)
        warnings.warn(
            f"The loss may exceed that of a fit on all rows by {excess}, more than tol={tol:g}, after {len(way.curve)} "
            "steps. Ask for a larger coreset_size, or raise tol.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return Descended(
        params=way.descent.params,
        coreset=way.coreset,
        gap=gap,
        curve=way.curve,
        passes=data.n_passes - before,
        n_rows=data.n_rows,
    )


class _Way:
    """The way down on all rows: where it has come to, and what is known there."""

    def __init__(self, objective: ConvexObjective, every: DataPass, coreset: Coreset, params: Array) -> None:
        self.objective, self.every, self.coreset = objective, every, coreset
        self._centre = objective.centre(every.or_few(coreset))
        # where every column is in many of the rows, their own curvature will do, and a pass is cheaper without it
        self._exact = objective.least_support(coreset, params, self._centre) < _SURE
        point, self._curvature = evaluate_and_draw(
            objective, every, params, coreset, diagonal=self._exact, centre=self._centre
        )
        self._caution = 1.0
        self._gap: Gap | None = None
        self.curve = [point.value]
        self.descent = Descent(self._evaluate, params, self._metric(params, point), point=point)

    def _evaluate(self, params: Array) -> Evaluation:
        return evaluate_all(self.objective, self.every, params, diagonal=self._exact, centre=self._centre)

    def _metric(self, params: Array, point: Evaluation) -> Metric:
        if self._curvature.hessian is not None:
            return self._curvature.metric(self.objective, params, self._centre)[0]
        rows = self._curvature.rows if self._curvature.known else self.coreset
        drawn = self._exact and not self._curvature.is_whole
        metric: Metric = self.objective.metric(
            rows,
            params,
            diagonal=point.diagonal if drawn else None,
            centre=self._centre,
            caution=self._caution,
        )
        return metric

    def gap(self) -> Gap:
        """The gap at the present place."""
        if self._gap is None:
            descent = self.descent
            self._gap = gap_at(
                self.objective, descent.point, self._curvature, descent.params, self._centre, step=descent.newton()
            )
        return self._gap

    def is_below(self, tol: float) -> bool:
        """Whether the gap is, without taking a dear curvature where the answer is plain."""
        point = self.descent.point
        promised = 0.5 * float(np.vdot(point.gradient, self.descent.newton()))
        if self._is_dear() and promised > tol * point.value and point.bound > tol * point.value:
            return False
        return self.gap().below(tol)

    def _is_dear(self) -> bool:
        return bool(self.descent.params.size > _NEWTON)

    def step_by_calibration(self, rng: Any, *, go: bool) -> None:
        """Calibrate the coreset to the totals at the present place, and ``go`` to the fit on it if that is better.

        Where the curvature of all rows is known exactly, a step of Newton is better still.
        """
        before, point = self.descent.params, self.descent.point
        taken = replace(self.coreset, totals=point.totals, pilot=before)
        self.coreset, report = calibrated(taken, self.objective)
        if not go or report is None or not report.n_beyond:  # without more totals, the weights hardly changed
            return
        if self.descent.go_to(self.objective.solve(self.coreset, rng=rng, init=before)):
            self._arrived()
            self.descent.recall(before, point)

    def step_by_descent(self) -> bool:
        """One round downhill. False where no more caution will help."""
        if self.descent.round(most_tries=_TRIES):
            self._arrived()
            return True
        self._caution *= _MORE_CAUTION
        if self._caution > _MOST_CAUTION:
            return False
        self.descent.renew(self._metric(self.descent.params, self.descent.point))
        return True

    def _arrived(self) -> None:
        """A new place: its own curvature, where that is cheap or there was none before."""
        self.curve.append(self.descent.point.value)
        self._gap = None
        if not self._is_dear():
            self.descent.renew(self._metric(self.descent.params, self.descent.point))
