"""What margins outside a band cost."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tithe.core.data import Array


class MarginLoss:
    """The losses C l(u) / 2 of margins u, l(u) = [1 - theta - u]_+^2 + mu [u - 1 - theta]_+^2.

    The base of every problem. A subclass is a dataclass with the fields ``cost`` (n,), which is C, ``mu`` and
    ``theta``; the margins are those of its rows.
    """

    cost: Array
    mu: float
    theta: float

    @property
    def low(self) -> float:
        """1 - theta, the lower end of the band in which margins cost nothing."""
        return 1.0 - self.theta

    @property
    def high(self) -> float:
        """1 + theta, the upper end."""
        return 1.0 + self.theta

    @cached_property
    def inverse_cost(self) -> Array:
        """1 / C: (n,)."""
        inverse: Array = 1.0 / self.cost
        return inverse

    def inverse_upper_cost(self, mu: float) -> Array:
        """1 / (mu C): (n,), infinite without an upper side."""
        with np.errstate(over="ignore"):  # a tiny mu
            return self.inverse_cost / mu if mu > 0.0 else np.full(len(self.cost), np.inf)

    def loss(self, margins: Array) -> Array:
        """C l(u) / 2: (n,)."""
        return margin_loss(margins, self.cost, self.mu, self.theta)

    def multipliers(self, margins: Array, at: slice = slice(None)) -> Array:
        """Minus the slopes: C [1 - theta - u]_+ - mu C [u - 1 - theta]_+ of all rows, or of those ``at`` a slice."""
        below, above = _outside(margins, self.theta)
        values: Array = self.cost[at] * (below - self.mu * above)
        return values

    def curvatures(self, margins: Array) -> Array:
        """Second derivatives, C below the band and mu C above it: (n,)."""
        values: Array = self.cost * ((margins < 1.0 - self.theta) + self.mu * (margins > 1.0 + self.theta))
        return values


def margin_loss(margins: Array, cost: Array, mu: float, theta: float) -> Array:
    """C l(u) / 2 of margins of any shape."""
    below, above = _outside(margins, theta)
    loss: Array = 0.5 * cost * (below * below + mu * above * above)
    return loss


def label_losses(scores: Array, cost: Array, mu: float, theta: float) -> Array:
    """C l(u) / 2 of each row for each label that it may get: (n, k), from scores (n, k), or (n,) for two classes."""
    if scores.ndim == 1:
        return np.column_stack([margin_loss(-scores, cost, mu, theta), margin_loss(scores, cost, mu, theta)])
    ordered = np.sort(scores, axis=1)
    rival = np.where(scores == ordered[:, -1:], ordered[:, -2:-1], ordered[:, -1:])
    return margin_loss(scores - rival, cost[:, None], mu, theta)


def _outside(margins: Array, theta: float) -> tuple[Array, Array]:
    """How far margins lie below the band, and above it."""
    return np.maximum(1.0 - theta - margins, 0.0), np.maximum(margins - 1.0 - theta, 0.0)
