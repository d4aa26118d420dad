"""Many classes: conjugate gradients on the multipliers that are not zero, if coordinate sweeps converge slowly."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array
from tithe.solvers.linear_algebra import conjugate_gradients
from tithe.solvers.odm.many_classes_dual import MulticlassDual

_MAX_CG_STEPS = 50  # of conjugate gradients
_CG_TOLERANCE = 1e-2  # of the gradient's size, relative to the start
_MAX_HALVINGS = 12


class Multipliers:
    """a = -alpha >= 0 (n, K), zero at the own class, and beta >= 0 (n,), as one vector.

    The dual is x H x / 2 - c x over x = (a, beta) >= 0. Coordinate descent finds out which are zero; the others
    solve a linear system, H x = c among them, by conjugate gradients. Every step is a product with the kernel matrix.
    """

    def __init__(self, dual: MulticlassDual) -> None:
        self.dual = dual
        self.rows = np.arange(len(dual.label))
        self.with_rival = bool(dual.rival[0] >= 0)
        self.a = -dual.value
        if self.with_rival:
            self.a[self.rows, dual.rival] += dual.beta
        self.a[self.rows, dual.label] = 0.0
        np.maximum(self.a, 0.0, out=self.a)
        self.beta = dual.beta.copy()
        self.stiff = np.where(np.isfinite(dual.stiff), dual.stiff, 0.0)  # beta is zero where it is not

    def values(self, a: Array, beta: Array) -> Array:
        """v (n, K) of the multipliers."""
        values: Array = -a
        values[self.rows, self.dual.label] = a.sum(axis=1) - beta
        if self.with_rival:
            values[self.rows, self.dual.rival] += beta
        return values

    def curve(self, a: Array, beta: Array, scores: Array) -> tuple[Array, Array]:
        """H x, from the scores of v."""
        true_scores = scores[self.rows, self.dual.label]
        lower = true_scores[:, None] - scores + (self.dual.soft * a.sum(axis=1))[:, None]
        upper = self.stiff * beta - true_scores
        if self.with_rival:
            upper += scores[self.rows, self.dual.rival]
        return lower, upper

    def linear(self) -> tuple[float, Array]:
        """c: the same number for all of a, and one for each beta."""
        goal = -self.dual.high - (0.0 if self.with_rival else self.dual.level)
        return self.dual.low, np.broadcast_to(goal, self.beta.shape)

    def value(self, a: Array, beta: Array, curved: tuple[Array, Array]) -> float:
        low, goal = self.linear()
        return float(np.vdot(a, 0.5 * curved[0] - low) + beta @ (0.5 * curved[1] - goal))


def subspace_step(dual: MulticlassDual) -> bool:
    """Move all nonzero multipliers towards their joint optimum, as far as signs allow; False if none moves."""
    at = Multipliers(dual)
    free_a, free_beta = at.a > 0.0, at.beta > 0.0
    curved = at.curve(at.a, at.beta, dual.scores())
    step_a, step_beta, score_change = _towards_best(at, curved, free_a, free_beta)
    old_value, length = at.value(at.a, at.beta, curved), 1.0
    for _ in range(_MAX_HALVINGS):
        a, beta = np.maximum(at.a + length * step_a, 0.0), np.maximum(at.beta + length * step_beta, 0.0)
        values = at.values(a, beta)
        inside = length == 1.0 and not (at.a + step_a < 0.0).any() and not (at.beta + step_beta < 0.0).any()
        scores = dual.scores() + score_change if inside else dual.product(values)
        if at.value(a, beta, at.curve(a, beta, scores)) < old_value:
            dual.value, dual.beta = values, beta
            dual.renew()
            return True
        length *= 0.5
    return False


def _towards_best(
    at: Multipliers, curved: tuple[Array, Array], free_a: Array, free_beta: Array
) -> tuple[Array, Array, Array]:
    """The step in a and in beta to the solution among the free ones, and the scores it changes."""
    dual, (low, goal) = at.dual, at.linear()
    squares, n_a = dual.squares(), at.a.size
    # the diagonal of H: every column in its own scale
    inverse_a = free_a / (2.0 * squares + dual.soft)[:, None]
    inverse_beta = free_beta / ((2.0 if at.with_rival else 1.0) * squares + at.stiff + 1e-300)
    inverse = np.concatenate([inverse_a.ravel(), inverse_beta])
    right = np.concatenate([((low - curved[0]) * free_a).ravel(), (goal - curved[1]) * free_beta])
    free = np.concatenate([free_a.ravel(), free_beta])

    def split(x: Array) -> tuple[Array, Array]:
        return x[:n_a].reshape(at.a.shape), x[n_a:]

    def product(x: Array) -> Array:
        a, beta = split(x)
        curve_a, curve_beta = at.curve(a, beta, dual.product(at.values(a, beta)))
        return np.concatenate([curve_a.ravel(), curve_beta]) * free

    small = _CG_TOLERANCE**2 * float(right @ (inverse * right))
    step, _ = conjugate_gradients(
        product,
        right,
        precondition=lambda x: inverse * x,
        is_small=lambda _, size: size <= small,
        max_steps=_MAX_CG_STEPS,
    )
    step_a, step_beta = split(step)
    return step_a, step_beta, dual.product(at.values(step_a, step_beta))
