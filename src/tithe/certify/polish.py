"""Polish a convex objective: improve its solution in a few more passes. A step that does not improve it is dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify.cost import polish_rounds
from tithe.certify.descent import Descent, Metric
from tithe.certify.gap import ConvexObjective, Gap, evaluate_all, evaluate_and_draw, gap_at
from tithe.core.data import Array, Coreset, Evaluation, Rng
from tithe.core.errors import warn_caller
from tithe.core.passes import DataPass
from tithe.reduce.calibration import calibrated

AUTO_DESCENT = 30  # most rounds where polish="auto" stops on a certificate
_ROUNDS_BY_SAMPLE = 8  # after which the curvature of a sample, which mostly takes three or four, is given up
_CAUTION_FACTOR, _MAX_CAUTION = 30.0, 1e6  # caution with the coreset's correlations after a round that failed
_MAX_STEPS_TRIED = 6  # in one round: each costs a pass over the data
_MAX_NEWTON_COEFFICIENTS = 250  # up to this number the curvature is cheap to compute at every point
_MIN_COLUMN_SUPPORT = 300.0  # effective rows for which the curvature in a column is known to about 6 %


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
    rng: Rng,
) -> Descended:
    """Calibrate at the solution, fit again, and descend on all rows.

    The first pass over all rows gives the loss, its gradient, the exact totals for calibration and the rows that
    the curvature is taken from. The fit on the calibrated coreset is the first step. Newton's method with that
    curvature follows, or L-BFGS where the curvature is expensive or only partly known. A step is accepted only if
    the loss on all rows falls. Stops on the certificate (``polish="auto"``), or after a number of rounds besides the
    calibration. Warns if the certificate does not say that the relative excess loss is at most ``tol``.
    """
    auto = isinstance(polish, str) and polish == "auto"
    rounds = AUTO_DESCENT if auto else polish_rounds(polish)[0]
    target = tol if auto else 0.0
    n_passes_before = data.n_passes
    polisher = _DescentPolisher(objective, data, coreset, params)
    if calibrate and not polisher.is_below(target):
        polisher.step_by_calibration(rng, move=rounds == 0 or not polisher.is_exact)
    for number in range(rounds):
        if polisher.is_below(target):
            break
        if auto and number == _ROUNDS_BY_SAMPLE:
            polisher.use_curvature_of_all_rows()
        if not polisher.step_by_descent():
            break
    gap = polisher.gap()
    if not gap.below(tol):
        advice = "Ask for" if auto else 'Set polish="auto", ask for'
        warn_caller(
            f"The loss may exceed that of a fit on all rows by {gap.largest_text}, more than tol={tol:g}, after "
            f"{len(polisher.curve)} steps. {advice} a larger coreset_size, or raise tol.",
            ConvergenceWarning,
        )
    return Descended(
        params=polisher.descent.params,
        coreset=polisher.coreset,
        gap=gap,
        curve=polisher.curve,
        passes=data.n_passes - n_passes_before,
        n_rows=data.n_rows,
    )


class _DescentPolisher:
    """The state of `polish_by_descent`: the present parameters, and the loss and curvature on all rows there."""

    def __init__(self, objective: ConvexObjective, data: DataPass, coreset: Coreset, params: Array) -> None:
        self.objective, self.data, self.coreset = objective, data, coreset
        self._centre = objective.centre(data.or_few(coreset))
        # with enough rows in every column the sampled curvature suffices, and a pass without the diagonal is cheaper
        self._exact = objective.least_support(coreset, params, self._centre) < _MIN_COLUMN_SUPPORT
        point, self._curvature = evaluate_and_draw(
            objective, data, params, coreset, diagonal=self._exact, centre=self._centre
        )
        self._caution = 1.0
        self._pilot = coreset.pilot
        self._renews_hessian = False
        self._gap: Gap | None = None
        self._hessian_at: Array | None = None  # where the curvature of all rows was taken
        self.curve = [point.value]
        self.descent = Descent(self._evaluate, params, self._metric(params, point), point=point)

    def _evaluate(self, params: Array) -> Evaluation:
        return evaluate_all(self.objective, self.data, params, diagonal=self._exact, centre=self._centre)

    def _metric(self, params: Array, point: Evaluation) -> Metric:
        if self._renews_hessian:
            self._take_curvature_of_all_rows(params)
        if self._curvature.hessian is not None:
            return self._curvature.metric(self.objective, params, self._centre)[0]
        rows = self._curvature.rows if self._curvature.known else self.coreset
        drawn = self._exact and not self._curvature.is_whole
        diagonal = point.diagonal if drawn else None
        return self.objective.metric(rows, params, diagonal=diagonal, centre=self._centre, caution=self._caution)

    def _take_curvature_of_all_rows(self, params: Array) -> None:
        weight = self.coreset.weight_seen  # of all rows
        self._curvature = self._curvature.of_all_rows(self.objective, self.data, params, self._centre, weight)
        self._hessian_at = params

    def _gives_up_sample(self) -> bool:
        """From now on, take the curvature from all rows if it comes from a sample; False if that is too expensive."""
        self._renews_hessian |= self._curvature.can_be_of_all_rows(self.data, self.descent.params)
        return self._renews_hessian

    @property
    def is_exact(self) -> bool:
        """Whether a Newton step leads to the minimum."""
        return self.objective.constant_curvature and self._curvature.is_whole

    def gap(self) -> Gap:
        """The gap at the present parameters, from the curvature there: that of all rows, unless it is too expensive."""
        descent = self.descent
        if self._gap is None:
            if self._gives_up_sample() and self._hessian_at is not descent.params:
                self._take_curvature_of_all_rows(descent.params)
            self._gap = gap_at(
                self.objective,
                descent.point,
                self._curvature,
                descent.params,
                self._centre,
                step=descent.newton(),
                data=self.data,
            )
        return self._gap

    def is_below(self, tol: float) -> bool:
        """Whether the relative gap is at most ``tol``; an expensive curvature is not computed if it plainly is not."""
        point = self.descent.point
        estimate = 0.5 * float(np.vdot(point.gradient, self.descent.newton()))
        cheap = not (self._is_expensive() or self._curvature.groups)
        if not cheap and min(estimate, point.bound) > tol * point.value:
            return False
        return self.gap().below(tol)

    def _is_expensive(self) -> bool:
        """Whether the curvature is too expensive to be computed at every point."""
        return bool(self.descent.params.size > _MAX_NEWTON_COEFFICIENTS)

    def use_curvature_of_all_rows(self) -> None:
        """Take the curvature at each point from all rows, if it comes from a sample and is not too expensive.

        With few rows of very large values, or classes that hardly overlap, that of a sample can be far from it.
        """
        if self._curvature.groups and self._gives_up_sample():
            self._gap = None
            self.descent.renew(self._metric(self.descent.params, self.descent.point))

    def step_by_calibration(self, rng: Rng, *, move: bool) -> None:
        """Calibrate the coreset to the totals at the present parameters.

        With ``move``, go to the fit on it if that has a smaller loss. Where the curvature of all rows is known
        exactly, a Newton step is better.
        """
        before, point = self.descent.params, self.descent.point
        uncalibrated = replace(self.coreset, totals=point.totals, pilot=before)
        self.coreset, report = calibrated(uncalibrated, self.objective)
        if not move or report is None or not report.n_beyond:  # without further totals, weights hardly change
            return
        if self.descent.go_to(self.objective.solve(self.coreset, rng=rng, init=before)):
            self._update()
            self.descent.recall(before, point)

    def step_by_descent(self) -> bool:
        """One round of descent; False if it fails even with the largest caution.

        A fit on few rows may leave a scale so small that hardly a row has a curvature there. From such a place the
        descent goes on at the rough solution that the coreset was drawn by, if that has a smaller loss.
        """
        if self.descent.round(most_tries=_MAX_STEPS_TRIED):
            self._update()
            return True
        self._caution *= _CAUTION_FACTOR
        if self._caution > _MAX_CAUTION:
            pilot, self._pilot, self._caution = self._pilot, None, 1.0
            if pilot is None or not self.descent.go_to(pilot):
                return False
            self._update()
            return True
        self.descent.renew(self._metric(self.descent.params, self.descent.point))
        return True

    def _update(self) -> None:
        """Update what is known at the present parameters; the curvature only where it is cheap."""
        self.curve.append(self.descent.point.value)
        self._gap = None
        if not self._is_expensive():
            self.descent.renew(self._metric(self.descent.params, self.descent.point))
