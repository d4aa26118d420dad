"""The margin of more than two classes, smoothed: a way down to where the margin itself has kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import logsumexp

from tithe.core.data import Array, Block, Evaluation
from tithe.objectives.margin import MarginObjective

_ROWS = 16_384
_TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # the last is within some 10^-5 of the value (measured)
_ROUGH, _ENOUGH = 1e-5, 1e-6  # tolerance from which the first four will do; what the rest is worth
_CONVEX, _BEGUN = 2, 1e-3  # temperatures at which only the lower side counts, and how well these are solved


@dataclass(frozen=True, kw_only=True)
class SmoothedMargin(MarginObjective):
    """`MarginObjective` for K > 2 classes with u = f_y - T ln sum_(l != y) exp(f_l / T), T the ``temperature``.

    At T = 0 this is f_y - max_(l != y) f_l; T ln(K - 1) is the most that both can differ by. With p the softmax
    of the other scores / T, du = e_y - p and the second derivative of a loss in the scores is

        loss'' du du^T - loss' (diag p - p p^T) / T,

    whose last part is left out above the band, where it bends downwards. Kinks are where minima like to be, and
    where no step of Newton leads down; cooling step by step gets there (`cooled`).
    """

    temperature: float = 1.0

    def evaluate(
        self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None
    ) -> Evaluation:
        """Value and gradient; there is no bound but the value, and no totals."""
        codes, weight = self.codes(block), block.weights()
        unit = self._unit(block.total_weight)
        value, gradient = 0.0, np.zeros_like(params)
        for start in range(0, len(block), _ROWS):
            at = slice(start, start + _ROWS)
            toward, u = self._smooth(block.X[at], params, codes[at])
            below, above = np.maximum(0.0, 1.0 - self.theta - u), np.maximum(0.0, u - 1.0 - self.theta)
            value += unit * float(weight[at] @ (below * below + self.mu * above * above))
            pull = (2.0 * unit * weight[at] * (self.mu * above - below))[:, None] * toward
            gradient[:, :-1] += (block.X[at].T @ pull).T
            gradient[:, -1] += pull.sum(axis=0)
        penalty = np.array(self._penalty()).repeat([params.shape[1] - 1, 1])
        gradient += penalty * params
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        value += 0.5 * float(np.vdot(penalty * params, params))
        return Evaluation(value=value, gradient=gradient, bound=value, diagonal=None, totals=np.empty((1, 0)))

    def _smooth(self, X: Array, params: Array, codes: Array) -> tuple[Array, Array]:
        """du (n, K) and u (n,)."""
        scores = self.margins(X, params).astype(np.float64, copy=False)
        rows = np.arange(len(codes))
        own = scores[rows, codes]
        scores[rows, codes] = -np.inf
        scores /= self.temperature
        top = logsumexp(scores, axis=1)
        toward = -np.exp(scores - top[:, None])
        toward[rows, codes] = 1.0
        return toward, own - self.temperature * top

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        codes = self.codes(block)
        toward, u = self._smooth(block.X, params, codes)
        second = self._second(u) * block.weights()
        turn = 2.0 * np.maximum(0.0, 1.0 - self.theta - u) * block.weights() / self.temperature
        chance = -toward
        chance[np.arange(len(codes)), codes] = 0.0
        own = second[:, None] * toward * toward + turn[:, None] * chance * (1.0 - chance)

        def cross(a: int, b: int, at: slice) -> Array:
            both: Array = second[at] * toward[at, a] * toward[at, b] - turn[at] * chance[at, a] * chance[at, b]
            return both

        return own, cross

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """By Newton's method at this temperature, and no cooler."""
        return super(MarginObjective, self).minimise(block, init=init)


def cooled(objective: MarginObjective, block: Block, init: Array | None = None) -> tuple[Array, int]:
    """A minimiser (K, d + 1) of ``objective``, cooled down to, and how many looks at all rows that took.

    The first, warm ones are roughly those of the lower side alone, which is convex: from there the upper side leads
    to smaller values than it does from nowhere (by a fifth on the wine data), in fewer looks.
    """
    given = {field.name: vars(objective)[field.name] for field in fields(objective)}
    tol = max(objective.tol, _ENOUGH)
    temperatures = _TEMPERATURES[:4] if objective.tol >= _ROUGH else _TEMPERATURES
    params, looks = init, 0
    for number, temperature in enumerate(temperatures):
        begins = number < _CONVEX
        if begins and init is not None:
            continue
        now = {"mu": 0.0, "tol": max(tol, _BEGUN)} if begins else {"tol": tol}
        params, more = SmoothedMargin(**{**given, **now, "temperature": temperature}).minimise(block, init=params)
        looks += more
    assert params is not None
    return params, looks
