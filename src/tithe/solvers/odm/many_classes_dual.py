"""Many classes: the dual problem, with a kernel matrix or with rows and linear scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.kernels.odm.gram import row_squares
from tithe.kernels.odm.many_classes import best_rivals, classes_gap, descend_csr, descend_dense, descend_square
from tithe.solvers.odm.band import Band
from tithe.solvers.odm.kernel_matrix import Gram, kernel_not_psd_error


@dataclass(kw_only=True)
class MulticlassDual(Band, ABC):
    """Coefficients v (n, K) of all classes, w_l = sum_i v_i^l phi(x_i), and what they give.

    The margin of a row is f_y - max over l != y of f_l. The lower side of the loss, margins below 1 - theta, is
    convex; the upper side is not. It is made so by a rival q that stays for a round (``rival``; the convex function
    then lies above the true one J and touches it, so J never rises: CCCP), or by the rival's score that stays
    (``level``; no such promise). `tithe.kernels.odm.many_classes` has the multipliers.
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

    def squares(self) -> Array:
        return self.gram.diagonal()

    def renew(self) -> None:
        self._scores = self.gram.product(self.value)

    def sweep(self, rng: np.random.Generator) -> None:
        stiff, gram = self.stiff, self.gram
        for chunk in rng.permutation(len(gram.slices)):
            at = gram.slices[chunk]
            value = np.ascontiguousarray(self.value[at].T)
            descend_square(
                gram.square(chunk, chunk),
                self.label[at],
                self.rival[at],
                self.level[at],
                np.ascontiguousarray(self._scores[at].T),
                value,
                self.beta[at],
                self.soft[at],
                stiff[at],
                self.low,
                self.high,
                gram.orders(chunk, rng),
            )
            change = value.T - self.value[at]
            self.value[at] = value.T
            if change.any():
                gram.add_product(chunk, change, self._scores)


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
