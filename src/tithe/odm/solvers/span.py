"""The best points, primal and dual, of the span of some directions whose products with the kernel matrix are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from tithe.core.data import Array
from tithe.odm.solvers.two_classes import Dual

_MAX_STEPS = 50
_ROUNDING = 1e-13  # share of all costs below which a decrease is rounding
_MIN_GAIN = 1e-7  # share of the dual value below which a step is the last: D has kinks, at which steps get short


def step_length(slope: Callable[[float], float]) -> float:
    """Where an increasing slope is zero, at most 1, to a thousandth: the length of a Newton step."""
    return 1.0 if slope(1.0) <= 0.0 else float(brentq(slope, 0.0, 1.0, xtol=1e-3)) if slope(0.0) < 0.0 else 0.0


def multipliers(dual: Dual, margins: Array, soft: Array, stiff: Array) -> Array:
    """soft [low - u]+ - stiff [u - high]+: minus the derivative of the losses of these margins."""
    values: Array = soft * np.maximum(dual.low - margins, 0.0) - stiff * np.maximum(margins - dual.high, 0.0)
    return values


def curvature(dual: Dual, margins: Array, soft: Array, stiff: Array) -> Array:
    """The derivative of `multipliers`, with its sign changed."""
    values: Array = np.where(margins < dual.low, soft, np.where(margins > dual.high, stiff, 0.0))
    return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Span:
    """Multipliers gamma = lengths @ directions, whose margins are u = Q gamma = lengths @ products.

    The primal value is P = gamma . u / 2 + sum of the losses of the margins, the dual value, with C = ``dual.cost``,

        D = sum over gamma > 0 of (low gamma - gamma^2 / 2 C)
            + sum over gamma < 0 of (high gamma - gamma^2 / 2 mu C) - gamma . u / 2.

    Parameters
    ----------
    dual : Dual
        The problem.
    directions, products : (k, n)
    """

    dual: Dual
    directions: Array
    products: Array

    def primal(self, lengths: Array) -> float:
        dual, margins = self.dual, lengths @ self.products
        loss = 0.5 * float(dual.cost @ np.maximum(dual.low - margins, 0.0) ** 2)
        loss += 0.5 * dual.mu * float(dual.cost @ np.maximum(margins - dual.high, 0.0) ** 2)
        return loss + 0.5 * float((lengths @ self.directions) @ margins)

    def dual_value(self, lengths: Array) -> float:
        dual, gamma = self.dual, lengths @ self.directions
        goal, ridge = np.where(gamma > 0.0, dual.low, dual.high), np.where(gamma > 0.0, dual.soft, dual.stiff)
        ridge = np.where(gamma == 0.0, 0.0, ridge)  # without an upper side it is infinite
        return float(goal @ gamma - 0.5 * (ridge * gamma) @ gamma - 0.5 * gamma @ (lengths @ self.products))

    def lowest_primal(self, lengths: Array) -> Array:
        """Newton's method on P, from these lengths on: it is smooth but for its curvature."""
        dual, upper = self.dual, self.dual.mu * self.dual.cost
        gram = self._gram()
        scale = 1.0 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
        products, gram = self.products * scale[:, None], gram * scale[:, None] * scale
        lengths = lengths / scale
        for _ in range(_MAX_STEPS):
            margins = lengths @ products
            gradient = gram @ lengths - products @ multipliers(dual, margins, dual.cost, upper)
            hessian = gram + (products * curvature(dual, margins, dual.cost, upper)) @ products.T
            step = np.linalg.lstsq(hessian, -gradient, rcond=1e-13)[0]
            if not -float(gradient @ step) > _ROUNDING * float(dual.cost.sum()):
                break
            lengths = lengths + _primal_length(dual, gram, products, lengths, step) * step
        return lengths * scale

    def highest_dual(self, lengths: Array) -> Array:
        """Newton's method on D, from these lengths on, as long as it rises.

        D has a kink where a multiplier is zero. The derivative there is any number between low - u and high - u:
        steps take it for zero where they can, and are as long as is best, kinks included.
        """
        gram, best = self._gram(), self.dual_value(lengths)
        for _ in range(_MAX_STEPS):
            step = self._dual_step(gram, lengths)
            value = self.dual_value(lengths + step)
            if not value > best + _MIN_GAIN * abs(best):
                break
            lengths, best = lengths + step, value
        return lengths

    def _dual_step(self, gram: Array, lengths: Array) -> Array:
        dual = self.dual
        gamma, margins = lengths @ self.directions, lengths @ self.products
        ridge = np.where(gamma > 0.0, dual.soft, np.where(gamma < 0.0, dual.stiff, 0.0))
        goal = np.where(gamma > 0.0, dual.low, np.where(gamma < 0.0, dual.high, np.clip(margins, dual.low, dual.high)))
        gradient = self.directions @ (goal - ridge * gamma) - gram @ lengths
        step: Array = np.linalg.lstsq(gram + (self.directions * ridge) @ self.directions.T, gradient, rcond=1e-13)[0]
        change, margin_change = step @ self.directions, step @ self.products

        def slope(t: float) -> float:
            moved = gamma + t * change
            is_positive = (moved > 0.0) | ((moved == 0.0) & (change > 0.0))
            goal = np.where(is_positive, dual.low, dual.high)
            ridge = np.where(is_positive, dual.soft, dual.stiff)
            return float((margins + t * margin_change - goal + ridge * moved) @ change)

        return step_length(slope) * step

    def _gram(self) -> Array:
        gram = self.directions @ self.products.T
        symmetric: Array = 0.5 * (gram + gram.T)
        return symmetric


def _primal_length(dual: Dual, gram: Array, products: Array, lengths: Array, step: Array) -> float:
    margins, straight, change = lengths @ products, gram @ step, step @ products

    def slope(t: float) -> float:
        pull = multipliers(dual, margins + t * change, dual.cost, dual.mu * dual.cost)
        return float((lengths + t * step) @ straight) - float(pull @ change)

    return step_length(slope)
