"""Many classes: the dual problem, with a kernel matrix or with rows and linear scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients
from tithe.odm.kernels.gram import row_squares
from tithe.odm.kernels.many_classes import best_rivals, classes_gap, descend_csr, descend_dense, descend_rows
from tithe.odm.solvers.kernel_matrix import Band, Gram, kernel_not_psd_error

_SWEEPS = 5  # over all rows in a round, if the kernel matrix is held
_MAX_CG_STEPS = 50  # of conjugate gradients
_CG_TOLERANCE = 1e-2  # of the gradient's size, relative to the start
_MAX_HALVINGS = 12


@dataclass(kw_only=True)
class MulticlassDual(Band, ABC):
    """Coefficients v (n, K) of all classes, w_l = sum_i v_i^l phi(x_i), and what they give.

    The margin of a row is f_y - max over l != y of f_l. The lower side of the loss, margins below 1 - theta, is
    convex; the upper side is not. It is made so by a rival q that stays for a round (``rival``; the convex function
    then lies above the true one J and touches it, so J never rises: CCCP), or by the rival's score that stays
    (``level``; no such promise). `tithe.odm.kernels.many_classes` has the multipliers.
    """

    label: Array
    n_classes: int
    value: Array = field(init=False)
    beta: Array = field(init=False)
    rival: Array = field(init=False)
    level: Array = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.label)
        self.value = np.zeros((n, self.n_classes))
        self.beta, self.level = np.zeros(n), np.zeros(n)
        self.rival = np.full(n, -1, np.int64)
        self.mu_now = 0.0

    @property
    def stiff(self) -> Array:
        return self.stiff_at(self.mu_now)

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> None:
        """Exact steps on the multipliers of every row, in random order."""

    @abstractmethod
    def scores(self) -> Array:
        """(n, K)."""

    @abstractmethod
    def product(self, values: Array) -> Array:
        """Scores (n, K) that coefficients (n, K) would give."""

    @abstractmethod
    def squares(self) -> Array:
        """k(x, x) of every row: (n,)."""

    @abstractmethod
    def renew(self) -> None:
        """Recompute scores or weights from the coefficients, which removes rounding errors."""

    def measure(self) -> tuple[float, float, float]:
        """Gap and primal value of this round's convex problem, and the true objective J."""
        gap, loss, true_loss, norm = classes_gap(
            self.scores(),
            self.value,
            self.beta,
            self.label,
            self.rival,
            self.level,
            self.cost,
            self.mu_now,
            self.low,
            self.high,
        )
        if not np.isfinite(norm):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        if norm < -1e-6 * loss:
            raise kernel_not_psd_error()
        return gap, loss + 0.5 * norm, true_loss + 0.5 * norm

    def choose_rivals(self, nonconvex: str) -> None:
        """Fix the present rivals or their scores; multipliers of the upper side move to the new rivals."""
        best, level = np.empty_like(self.rival), np.empty_like(self.level)
        best_rivals(self.scores(), self.label, best, level)
        if nonconvex == "fixed_score":
            self.level = level
            return
        moving = np.flatnonzero((self.beta > 0.0) & (best != self.rival))
        self.value[moving, self.rival[moving]] -= self.beta[moving]
        self.value[moving, best[moving]] += self.beta[moving]
        self.rival = best
        if len(moving):
            self.renew()


@dataclass(kw_only=True)
class KernelMulticlassDual(MulticlassDual):
    """With a kernel matrix: scores (n, K) are kept."""

    gram: Gram

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scores = np.zeros_like(self.value)

    def scores(self) -> Array:
        return self._scores

    def product(self, values: Array) -> Array:
        return self.gram.product(values)

    def submatrix(self, rows: Array) -> Array:
        return self.gram.submatrix(rows)

    def squares(self) -> Array:
        return self.gram.diagonal()

    def renew(self) -> None:
        self._scores = self.gram.product(self.value)

    def sweep(self, rng: np.random.Generator) -> None:
        stiff = self.stiff
        value, scores = np.ascontiguousarray(self.value.T), np.ascontiguousarray(self._scores.T)
        for visit in self.gram.visits(rng, _SWEEPS, lambda numbers: np.ones(len(numbers), bool)):
            descend_rows(
                visit.matrix,
                visit.places,
                visit.numbers,
                self.label,
                self.rival,
                self.level,
                scores,
                value,
                self.beta,
                self.soft,
                stiff,
                self.low,
                self.high,
            )
        self.value, self._scores = np.ascontiguousarray(value.T), np.ascontiguousarray(scores.T)


@dataclass(kw_only=True)
class LinearMulticlassDual(MulticlassDual):
    """With rows and a constant feature: weights (K, d + 1) are kept, that of the constant last."""

    X: Any
    constant: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weights = np.zeros((self.n_classes, self.X.shape[1] + 1))
        self._square = row_squares(self.X) + self.constant**2
        with np.errstate(over="ignore"):
            if not np.isfinite(float(self.cost @ self._square)):
                raise ValueError("Squares of the rows overflow in double precision. Rescale the columns.")

    def scores(self) -> Array:
        return self._scores_of(self.weights)

    def product(self, values: Array) -> Array:
        return self._scores_of(self._weights_of(values))

    def squares(self) -> Array:
        return self._square

    def renew(self) -> None:
        self.weights = np.ascontiguousarray(self._weights_of(self.value))  # by rows, as kernels were compiled for

    def _weights_of(self, values: Array) -> Array:
        return np.column_stack([np.asarray((self.X.T @ values).T), self.constant * values.sum(axis=0)])

    def _scores_of(self, weights: Array) -> Array:
        scores: Array = np.asarray(self.X @ weights[:, :-1].T) + self.constant * weights[:, -1]
        return scores

    def sweep(self, rng: np.random.Generator) -> None:
        rows = (self.X.data, self.X.indices, self.X.indptr) if sparse.issparse(self.X) else (self.X,)
        descend: Any = descend_csr if sparse.issparse(self.X) else descend_dense
        descend(
            *rows,
            self.constant,
            rng.permutation(len(self.label)),
            self.label,
            self.rival,
            self.level,
            self.weights,
            self.value,
            self.beta,
            self.soft,
            self.stiff,
            self.low,
            self.high,
            self._square,
        )


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
