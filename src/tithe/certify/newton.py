"""Newton's method on all rows: for losses whose curvature of all rows is cheap."""

from __future__ import annotations

import numpy as np

from tithe.certify.descent import Metric
from tithe.certify.gap import ConvexObjective, CurvatureRows, Gap, LazyCurvature, evaluate_all, gap_at
from tithe.core.data import Array, Block, Evaluation
from tithe.core.passes import DataPass

MOST_ROUNDS = 40
_KEPT_GAIN = 0.1  # a curvature is kept for another step while each step leaves at most this share of the excess
_ALLOWED = 0.7  # share of the tolerance that may be left before the certificate, which is dearer, is asked for
_FLAT = 0.35  # share of the slope that may be left at the end of a step
_MOST_TRIES = 12  # lengths tried in a round
_LONGEST, _SHORTEST = 3.0, 0.05  # factor of a length that is not long enough, and least share of one that is too long


class NewtonDescent:
    """Newton's method on all rows, with the curvature of all rows, until the certificate says that it is near enough.

    Each round is one pass for the loss, its gradient and its curvature. Where the curvature costs much more than the
    rest, it is left out while steps with an earlier one leave at most a tenth of the excess. The certificate always
    comes from the curvature at the solution.

    Parameters
    ----------
    params : array (k, d + 1)
        The start.
    few : Block
        Rows that weigh as much as all; they may be all.
    hessian : array, optional
        The curvature of all rows, if it is known already and the same everywhere.

    Attributes
    ----------
    params, point : array (k, d + 1), Evaluation
        The present parameters, and the loss on all rows there.
    curve : list of float
        The loss at the start and after each step; it never rises.
    """

    def __init__(
        self, objective: ConvexObjective, data: DataPass, params: Array, few: Block, hessian: Array | None = None
    ) -> None:
        self.objective, self.data, self._few, self.params = objective, data, few, params
        self._centre = objective.centre(data.or_few(few))
        self._weight = few.total_weight
        known = None if hessian is None else LazyCurvature(lambda: hessian, is_known=True)
        self.point, self._curvature = self._at(params) if known is None else (self._value_at(params), known)
        self.curve = [self.point.value]
        self._metric: Metric | None = None
        self._is_here = False  # whether the metric is the curvature at the present parameters

    def _at(self, params: Array) -> tuple[Evaluation, LazyCurvature]:
        objective, centre = self.objective, self._centre
        sums, curvature = self.data.total(
            lambda leaf: objective.sums_and_curvature(leaf, params, centre, total_weight=self._weight)
        )
        return objective.evaluation(sums, params), curvature

    def _value_at(self, params: Array) -> Evaluation:
        return evaluate_all(self.objective, self.data, params)

    def _metric_here(self) -> Metric:
        """The curvature of all rows at the present parameters."""
        if not self._is_here or self._metric is None:
            if not self._curvature.is_known:
                self.data.n_passes += 1
            hessian = self._curvature()
            assert hessian is not None
            self._metric, self._is_here = self.objective.metric_of(hessian, self._centre), True
        return self._metric

    def _estimate(self, metric: Metric) -> float:
        """The share of the loss that a step promises to gain."""
        gain, value = metric.decrement(self.point.gradient), self.point.value
        return gain / value if value > 0.0 else np.inf

    def run(self, tol: float) -> tuple[Array, Gap]:
        """Descend until the certificate says that the relative excess loss is at most ``tol``, or as far as it goes."""
        target = _ALLOWED * tol
        while True:
            downhill = self.descend(target)
            self._metric_here()
            known = CurvatureRows(rows=self._few, hessian=self._curvature())
            gap = gap_at(self.objective, self.point, known, self.params, self._centre, data=self.data)
            if gap.below(tol) or not downhill:
                return self.params, gap
            target *= 0.1

    def descend(self, target: float) -> bool:
        """Descend until a step promises a relative gain of at most ``target``. False if that is not reached."""
        before, least_value = np.inf, self.objective.least_value(self._few)
        while len(self.curve) <= MOST_ROUNDS:
            metric = None if self._curvature.is_known else self._metric
            estimate = np.inf if metric is None else self._estimate(metric)
            if metric is None or not target < estimate <= _KEPT_GAIN * before:
                metric = self._metric_here()
                estimate = self._estimate(metric)
            if estimate <= target:
                return True
            before = estimate
            if self.point.value < least_value or not self._step(metric):
                break
        return False

    def _step(self, metric: Metric) -> bool:
        """One step downhill; False if none was found even with the curvature at the present parameters."""
        reached = self._go(metric)
        if reached is None and not self._is_here:
            reached = self._go(self._metric_here())
        if reached is None:
            return False
        self.params, self.point, curvature = reached
        if not self.objective.constant_curvature:
            self._curvature, self._is_here = curvature, False
        self.curve.append(self.point.value)
        return True

    def _go(self, metric: Metric) -> tuple[Array, Evaluation, LazyCurvature] | None:
        """The place along the Newton step where the slope is small; None if no length leads down.

        Lengths are minima of the cubic through the values and slopes at the best place so far and the one after it.
        """
        step = -metric.solve(self.point.gradient)
        slope = float(np.vdot(step, self.point.gradient))
        length, low = 1.0, (0.0, self.point.value, slope)
        high: tuple[float, float, float] | None = None
        best: tuple[Array, Evaluation, LazyCurvature] | None = None
        is_constant = self.objective.constant_curvature
        for _ in range(_MOST_TRIES if slope < 0.0 else 0):
            there = self.params + length * step
            if np.array_equal(there, self.params):
                break
            point, curvature = (self._value_at(there), self._curvature) if is_constant else self._at(there)
            here = length, point.value, float(np.vdot(step, point.gradient))
            falls = point.value <= low[1] and np.isfinite(here[2])
            if falls:
                best = there, point, curvature
                if abs(here[2]) <= -_FLAT * slope:
                    break
            if falls and here[2] < 0.0:
                low = here
            else:
                high = here
            length = _next_length(low, high)
        return best


def _next_length(low: tuple[float, float, float], high: tuple[float, float, float] | None) -> float:
    """A length between two places on a line, each (length, value, slope), or beyond the first if there is no second."""
    a, value, slope = low
    if high is None:
        return _LONGEST * a
    b, other, end = high
    width = b - a
    if not (np.isfinite(other) and np.isfinite(end)):
        return a + 0.1 * width
    bend = slope + end - 3.0 * (other - value) / width
    root = bend * bend - slope * end
    share = 0.5
    if root >= 0.0:
        root = np.sqrt(root)
        lower = end - slope + 2.0 * root
        if lower != 0.0:
            share = 1.0 - (end + root - bend) / lower
    return a + float(np.clip(share, _SHORTEST, 1.0 - _SHORTEST)) * width
