"""Many classes: block coordinate descent on the dual, inside rounds that make the upper side convex."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tithe.core.data import Array
from tithe.kernels.odm.gram import row_squares
from tithe.kernels.odm.many_classes import best_rivals, classes_gap, descend_csr, descend_dense, descend_square
from tithe.solvers.odm.band import Band
from tithe.solvers.odm.kernel_matrix import Gram, not_a_kernel
from tithe.solvers.odm.many_classes_cg import subspace_step

UPPER = ("cccp", "fixed")
_RENEW = 50  # rounds after which scores are computed afresh from the coefficients
_ROUGH = 1e-2  # relative gap of the start, where only the lower side counts
_STILL, _PATIENCE = 1e-13, 5  # relative gap below which rounds that bring little are rounding
_SLOW, _SLOW_ROUNDS = 0.9, 5  # so many rounds in which the gap kept more than this share: sweeps alone are too slow
_SHARP = 50  # sweeps, of all rounds together, after which a tolerance sharper than what was asked for is given up
_OUTER = 20  # times that rivals are chosen anew, at the most


@dataclass(kw_only=True)
class ClassesDual(Band, ABC):
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
        """Whatever follows from the coefficients is computed afresh: rounding is gone."""

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
            raise not_a_kernel()
        return gap, loss + 0.5 * norm, true_loss + 0.5 * norm

    def choose_rivals(self, upper: str) -> None:
        """Rivals or their scores as they are now; multipliers of the upper side move along with them."""
        best, level = np.empty_like(self.rival), np.empty_like(self.level)
        best_rivals(self.scores(), self.label, best, level)
        if upper == "fixed":
            self.level = level
            return
        moving = np.flatnonzero((self.beta > 0.0) & (best != self.rival))
        self.value[moving, self.rival[moving]] -= self.beta[moving]
        self.value[moving, best[moving]] += self.beta[moving]
        self.rival = best
        if len(moving):
            self.renew()


@dataclass(kw_only=True)
class KernelClasses(ClassesDual):
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
class LinearClasses(ClassesDual):
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
        self.weights = self._weights_of(self.value)

    def _weights_of(self, values: Array) -> Array:
        return np.column_stack([np.asarray((self.X.T @ values).T), self.constant * values.sum(axis=0)])

    def _scores_of(self, weights: Array) -> Array:
        found: Array = np.asarray(self.X @ weights[:, :-1].T) + self.constant * weights[:, -1]
        return found

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


@dataclass(frozen=True, kw_only=True)
class ClassesSolution:
    """``gap`` is that of the last convex problem; ``curve`` holds the true objective J after each round of rivals."""

    value: Array
    gap: float
    primal: float
    curve: list[float]
    n_iter: int


def solve_classes(
    dual: ClassesDual,
    *,
    upper: str,
    tol: float,
    warn_above: float,
    max_iter: int,
    rng: np.random.Generator,
    quiet: bool = False,
    patient: bool = True,
) -> ClassesSolution:
    """Coefficients (n, K): first for the lower side alone, then with rivals chosen anew until J stays.

    The rival that wins is the one that stays for a round (``upper="cccp"``) or its score (``"fixed"``). The
    coefficients with the smallest J are given. ``warn_above`` is the tolerance that was asked for: where ``tol`` is
    sharper, it is given up after so many sweeps as take no time worth mentioning. ``quiet``: no warning is given
    where it is not reached. Not ``patient``: what sweeps alone do not find is not looked for.
    """
    enough = max(tol, warn_above)
    rounds = _inner(dual, max(tol, _ROUGH) if dual.mu > 0.0 else tol, enough, max_iter, rng, patient)
    dual.mu_now = dual.mu
    gap, primal, true = dual.measure()
    best, curve = (true, dual.value.copy(), gap, primal), [true]
    for _ in range(_OUTER if dual.mu > 0.0 else 0):
        dual.choose_rivals(upper)
        tol = tol if rounds < _SHARP else enough
        rounds += _inner(dual, tol, enough, max_iter - rounds, rng, patient)
        gap, primal, true = dual.measure()
        curve.append(true)
        gained = best[0] - true
        if true < best[0]:
            best = (true, dual.value.copy(), gap, primal)
        if gained <= tol * true or rounds >= max_iter:
            break
    true, value, gap, primal = best
    dual.value = value
    dual.renew()
    if true > 0.5 * float(dual.cost.sum()) * dual.low**2:  # worse than no machine at all
        curve.append(_shorten(dual))
        value = dual.value
    if gap > warn_above * primal and not quiet:
        warnings.warn(
            f"The duality gap is {gap / primal:.2g} of the value after {rounds} rounds, more than tol={warn_above:g}. "
            f"Raise max_iter={max_iter}, lower lam, or scale the columns.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return ClassesSolution(value=value, gap=gap, primal=primal, curve=curve, n_iter=rounds)


def _shorten(dual: ClassesDual) -> float:
    """Coefficients cut to the share, down to none, that J is smallest for; gives J. The gap is not made worse by it."""
    scores, rivals, level = dual.scores(), np.empty_like(dual.rival), np.empty_like(dual.level)
    best_rivals(scores, dual.label, rivals, level)
    margin = scores[np.arange(len(level)), dual.label] - level
    norm = float(np.vdot(dual.value, scores))

    def objective(share: float) -> float:
        low, high = np.maximum(dual.low - share * margin, 0.0), np.maximum(share * margin - dual.high, 0.0)
        return 0.5 * share * share * norm + 0.5 * float(dual.cost @ (low * low + dual.mu * high * high))

    shares = np.append(0.0, 0.5 ** np.arange(40))
    best = float(shares[np.argmin([objective(share) for share in shares])])
    dual.value = best * dual.value
    dual.beta = best * dual.beta
    dual.renew()
    return objective(best)


def _inner(dual: ClassesDual, tol: float, enough: float, max_iter: int, rng: np.random.Generator, patient: bool) -> int:
    """Sweeps until the gap of the convex problem is small, or as small as rounding lets it be; gives their number.

    Small is ``tol`` of the value, and ``enough`` of it once sweeps have become many.
    Where sweeps alone get slow, conjugate gradients on the multipliers that are not zero go between them.
    """
    slow, still, before = 0, 0, np.inf
    for number in range(1, max_iter + 1):
        dual.sweep(rng)
        if slow >= _SLOW_ROUNDS:
            if not patient:
                return number
            subspace_step(dual)
        gap, primal, _ = dual.measure()
        small = tol if number <= _SHARP else max(tol, enough)
        if gap <= small * primal or number % _RENEW == 0:
            dual.renew()
            gap, primal, _ = dual.measure()
        if gap <= small * primal:
            return number
        slow += gap > _SLOW * before
        still = still + 1 if _STILL * primal > gap > 0.5 * before else 0
        if still >= _PATIENCE:
            return number
        before = gap
    return max_iter
