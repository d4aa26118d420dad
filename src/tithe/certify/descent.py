"""Smooth convex minimisation: L-BFGS in a given metric."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy.linalg import cho_solve

from tithe.core.data import Array
from tithe.core.linear_algebra import growing, jittered_cholesky

_MAX_PAIRS = 10
_MAX_HALVINGS = 30  # of a step in a line search: further ones are at rounding level
_ARMIJO = 1e-4
_HALF_TRUSTED_ROWS = 4.0  # effective rows at which an estimated correlation is halved


class Metric:
    """M = T^(1/2) [blocks of correlations] T^(1/2): a curvature with a factored inverse.

    Parameters
    ----------
    hessian : (B, s, s) or None
        Blocks of a curvature estimated from few rows, together over all coordinates; None: diagonal.
    diagonal : (B s,) float64
        The diagonal that M shall have before the penalty: exact where it is known.
    penalty : (B s,) float64
        What the penalty adds to the diagonal.
    support : (B s,) or None
        Effective number of rows that each coordinate of ``hessian`` was estimated from. Off the
        diagonal, the estimate is multiplied by sqrt(n / (n + 4)) for each coordinate: a column that
        is not zero in a few rows only is correlated with all others by chance.
    centre : (d,) or None
        ``hessian`` and ``diagonal`` are those of columns less this; coordinates come in runs of d
        columns and an intercept. Columns far from the origin are nearly collinear with the intercept.
    balanced : bool
        Steps (k, s) add up to zero over the k margins: moving all margins of a softmax alike changes
        the penalty only, which an estimated curvature does not reflect.
    free : array of bool of the shape of the parameters, or None
        Coordinates that steps may change; None: all. The others have no diagonal and no penalty.
    """

    def __init__(
        self,
        hessian: Array | None,
        diagonal: Array,
        penalty: Array,
        support: Array | None = None,
        centre: Array | None = None,
        balanced: bool = False,
        free: Array | None = None,
    ) -> None:
        self._balanced = balanced
        self._fixed = None if free is None or free.all() else ~free
        self._centre = centre
        total = diagonal + penalty
        if not np.isfinite(total).all():
            raise ValueError("The curvature overflows in double precision. Rescale the columns or the weights.")
        # every coordinate in its own scale, so that one column in units of 10^30 does not affect the others
        self._root = np.sqrt(np.where(total > 0.0, total, 1.0))
        self._factors: list[Array] = []
        if hessian is None:
            return
        size = hessian.shape[1]
        share = np.sqrt(np.divide(diagonal, total, out=np.zeros_like(total), where=total > 0.0))
        for b, block in enumerate(hessian):
            at = slice(b * size, (b + 1) * size)
            variances = np.diagonal(block)
            positive = variances > 0.0
            inverse = np.where(positive, 1.0 / np.sqrt(np.where(positive, variances, 1.0)), 0.0)
            if support is not None:
                inverse = inverse * np.sqrt(support[at] / (support[at] + _HALF_TRUSTED_ROWS))
            scale = inverse * share[at]
            correlation = block * scale[:, None] * scale
            np.fill_diagonal(correlation, 1.0)
            self._factors.append(jittered_cholesky(correlation, growing(1e-10)))

    def solve(self, gradient: Array) -> Array:
        """M^-1 times a gradient of any shape."""
        centred = gradient
        if self._centre is not None:
            centred = gradient.reshape(-1, len(self._centre) + 1).copy()
            centred[:, :-1] -= centred[:, -1:] * self._centre
            if self._fixed is not None:
                centred[self._fixed] = 0.0
        scaled = centred.reshape(-1) / self._root
        if self._factors:
            blocks = scaled.reshape(len(self._factors), -1)
            scaled = np.concatenate(
                [cho_solve((f, True), p, check_finite=False) for f, p in zip(self._factors, blocks, strict=True)]
            )
        step: Array = scaled / self._root
        if self._centre is not None:
            step = step.reshape(-1, len(self._centre) + 1)
            step[:, -1] -= step[:, :-1] @ self._centre
        step = step.reshape(gradient.shape)
        return step - step.mean(axis=0) if self._balanced else step

    def decrement(self, gradient: Array) -> float:
        """g . M^-1 g / 2: the gain that a Newton step promises."""
        return 0.5 * float(np.vdot(gradient, self.solve(gradient)))


class Point(Protocol):
    """A place of a `Descent`: the value there, and its gradient."""

    @property
    def value(self) -> float: ...

    @property
    def gradient(self) -> Array: ...


PointT = TypeVar("PointT", bound=Point)


class Descent(Generic[PointT]):
    """Preconditioned L-BFGS, one round at a time; a round is accepted only if the value falls.

    ``evaluate`` maps parameters to a point with ``value`` and ``gradient``; ``n_evaluations`` counts its calls.
    """

    def __init__(
        self, evaluate: Callable[[Array], PointT], start: Array, metric: Metric, *, point: PointT | None = None
    ) -> None:
        self._evaluate = evaluate
        self.n_evaluations = 0
        self.params = start
        self.metric = metric
        self.point = self._at(start) if point is None else point
        self._pairs: deque[tuple[Array, Array, float]] = deque(maxlen=_MAX_PAIRS)

    def _at(self, params: Array) -> PointT:
        self.n_evaluations += 1
        return self._evaluate(params)

    def renew(self, metric: Metric) -> None:
        """Use another metric; pairs of steps and changes are forgotten."""
        self.metric = metric
        self._pairs.clear()

    def recall(self, params: Array, point: PointT) -> None:
        """Learn from the change between another point and the present one."""
        self._learn(self.params - params, self.point.gradient - point.gradient)

    def go_to(self, params: Array) -> bool:
        """Go to the given parameters if their value is lower. False if it is not: then nothing has changed."""
        point = self._at(params)
        if not point.value < self.point.value:
            return False
        self.params, self.point = params, point
        return True

    def newton(self) -> Array:
        """Minus the direction of the next round: the estimated inverse curvature times the gradient."""
        return -self._direction()

    def _direction(self) -> Array:
        q = self.point.gradient.copy()
        products = []
        for step, change, inverse in reversed(self._pairs):
            a = inverse * float(np.vdot(step, q))
            q -= a * change
            products.append(a)
        q = self.metric.solve(q)
        for (step, change, inverse), a in zip(self._pairs, reversed(products), strict=True):
            q += (a - inverse * float(np.vdot(change, q))) * step
        return -q

    def round(self, *, most_tries: int = _MAX_HALVINGS) -> bool:
        """One step downhill. False if none was found: then nothing has changed."""
        direction = self._direction()
        slope = float(np.vdot(direction, self.point.gradient))
        if not slope < 0.0:
            self._pairs.clear()
            direction = -self.metric.solve(self.point.gradient)
            slope = float(np.vdot(direction, self.point.gradient))
            if not slope < 0.0:
                return False
        length = 1.0
        for _ in range(most_tries):
            params = self.params + length * direction
            if np.array_equal(params, self.params):
                return False
            point = self._at(params)
            gain = self.point.value - point.value
            if gain > 0.0 and gain >= -_ARMIJO * length * slope:
                self._remember(params, point)
                return True
            if not np.isfinite(point.value):
                length *= 0.1
                continue
            # the minimum of the parabola through value, slope and the new value, within bounds
            curvature = 2.0 * (-gain - length * slope)
            best = -slope * length * length / curvature if curvature > 0.0 else 0.5 * length
            length = float(np.clip(best, 0.1 * length, 0.5 * length))
        return False

    def _remember(self, params: Array, point: PointT) -> None:
        self._learn(params - self.params, point.gradient - self.point.gradient)
        self.params, self.point = params, point

    def _learn(self, step: Array, change: Array) -> None:
        curvature = float(np.vdot(step, change))
        if curvature > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self._pairs.append((step, change, 1.0 / curvature))
