"""Two classes and a kernel: dual coordinate descent, safe shrinking, and Newton's method to finish."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.core.data import Array
from tithe.kernels.odm.two_classes import descend_square, margin_gap
from tithe.solvers.odm.band import Band
from tithe.solvers.odm.kernel_matrix import WHOLE, Gram, not_a_kernel
from tithe.solvers.odm.two_classes_newton import DIRECT, newton_step, nystroem

_SLOW, _PATIENCE = 0.7, 2  # rounds in which the gap kept more than this share, after which Newton takes over
_RENEW = 50  # rounds after which scores are computed afresh from the multipliers
_SHRINK = 0.5  # share of the rows below which those that are left get a matrix of their own
_ACCURACY, _FINEST = 1e-4, 1e-9  # of a Newton step found by iteration: first, and the last tried when none moves
_FOR_OTHERS = 0.5  # share of the tolerance that a shrunk problem is solved to


@dataclass(kw_only=True)
class Dual(Band):
    """Multipliers of two classes: min over gamma of gamma Q gamma / 2 + sum of D gamma^2 / 2 - band . gamma.

    With u = Q gamma the margins, C = ``cost`` and the band [1 - theta, 1 + theta] = [low, high],

        gap = P(w) - D(gamma) = sum of what each row lacks of gamma = C [low - u]+ - mu C [u - high]+,

    a sum of terms that are not negative, so that |w - w*|^2 <= 2 gap and every margin is known to within
    sqrt(2 gap Q_ii). ``intercept`` is that of a free intercept, else 0.
    """

    gram: Gram
    sign: Array
    gamma: Array = field(init=False)
    score: Array = field(init=False)
    intercept: float = 0.0

    def __post_init__(self) -> None:
        self.gamma = np.zeros(len(self.sign))
        self.score = np.zeros(len(self.sign))
        self.stiff = self.stiff_at(self.mu)

    def margins(self) -> Array:
        return self.sign * (self.score + self.intercept)

    def renew(self) -> None:
        """Scores afresh from the multipliers: the rounding of many small changes is gone."""
        self.score = self.gram.product((self.sign * self.gamma)[:, None])[:, 0]

    def gap(self) -> tuple[float, float]:
        """The duality gap and the primal value."""
        gap, loss = margin_gap(self.gamma, self.margins(), self.cost, self.mu, self.low, self.high)
        norm = float((self.sign * self.gamma) @ self.score)
        self.check_norm(norm)
        return gap, loss + 0.5 * norm

    def check_norm(self, norm: float) -> None:
        if not np.isfinite(norm):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        if norm < -1e-6 * float(np.abs(self.gamma * self.score).sum()):
            raise not_a_kernel()

    def outside(self, margin: Array) -> Array:
        """Where multipliers are not zero at these margins."""
        below: Array = margin < self.low
        return below | (margin > self.high) if self.mu > 0.0 else below

    def clipped(self) -> Dual:
        """The same without negative multipliers, which a loss of one side alone does not allow."""
        other = copy(self)
        other.gamma = np.maximum(self.gamma, 0.0)
        other.renew()
        return other

    def known_inside(self, gap: float, own: Array) -> Array:
        """Rows that lie inside the band at the solution too, since w is within sqrt(2 gap) of it."""
        reach = np.sqrt(2.0 * gap * own)
        margin = self.margins()
        inside: Array = margin > self.low + reach
        return inside & (margin < self.high - reach) if self.mu > 0.0 else inside


def solve_binary(
    dual: Dual, *, tol: float, warn_above: float, max_iter: int, rng: np.random.Generator, free: bool
) -> tuple[float, int]:
    """Multipliers to a relative gap of ``tol``, in place; gives the gap and the number of rounds.

    Coordinate descent goes first, on the rows that may still lie outside the band; where it gets slow, Newton's
    method takes over. A ``free`` intercept ties all multipliers together: then Newton's method does all of it.
    """
    rounds = _newton(dual, tol, max_iter, free=True) if free else _rounds(dual, tol, max_iter, rng)
    gap, primal = dual.gap()
    if gap > tol * primal and rounds < max_iter and dual.gram.function.dtype != np.float64:
        dual.gram = dual.gram.in_double()
        dual.renew()
        rounds += _newton(dual, tol, max_iter - rounds, free=free)
        gap, primal = dual.gap()
    if gap > warn_above * primal:
        warnings.warn(
            f"The duality gap is {gap / primal:.2g} of the value after {rounds} rounds, more than tol={warn_above:g}. "
            f"Raise max_iter={max_iter}, lower lam, or scale the columns.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return gap, rounds


def _rounds(dual: Dual, tol: float, max_iter: int, rng: np.random.Generator) -> int:
    """Rounds of coordinate descent over all squares, and Newton steps once these get slow; gives their number."""
    own, slow, before, may_shrink = dual.gram.diagonal(), 0, np.inf, len(dual.gram) > WHOLE
    number = 0
    while number < max_iter:
        _round(dual, rng)
        number += 1
        gap, primal = dual.gap()
        if gap <= tol * primal or number % _RENEW == 0:
            dual.renew()
            gap, primal = dual.gap()
        if gap <= tol * primal:
            return number
        slow = slow + 1 if gap > _SLOW * before else 0
        if slow >= _PATIENCE:
            dual.renew()
            return number + _newton(dual, tol, max_iter - number, free=False)
        before = gap
        inside = dual.known_inside(gap, own)
        if may_shrink and inside.mean() >= 1.0 - _SHRINK:
            number += _solve_shrunk(dual, ~inside, tol, max_iter - number, rng)
            may_shrink = False  # the others are looked at once more, and are what they were found to be
    return number


def _solve_shrunk(dual: Dual, left: Array, tol: float, max_iter: int, rng: np.random.Generator) -> int:
    """The same for the rows that are left; the multipliers of all others are known to be zero."""
    rows = np.flatnonzero(left)
    smaller = Dual(gram=dual.gram.part(rows), sign=dual.sign[rows], cost=dual.cost[rows], mu=dual.mu, theta=dual.theta)
    smaller.gamma = dual.gamma[rows]
    smaller.renew()
    # rows left out add to the gap what their margins still lack: a little is kept for them
    rounds = _rounds(smaller, _FOR_OTHERS * tol, max_iter, rng)
    dual.gamma = np.zeros(len(dual.sign))
    dual.gamma[rows] = smaller.gamma
    dual.score = dual.gram.scores(rows, (smaller.sign * smaller.gamma)[:, None])[:, 0]
    return rounds


def _round(dual: Dual, rng: np.random.Generator) -> None:
    """Exact coordinate steps over every row, a square at a time, in random order."""
    gram = dual.gram
    for chunk in rng.permutation(len(gram.slices)):
        at = gram.slices[chunk]
        sign, before = dual.sign[at], dual.gamma[at].copy()
        descend_square(
            gram.square(chunk, chunk),
            sign,
            dual.score[at].copy(),
            dual.gamma[at],
            dual.soft[at],
            dual.stiff[at],
            dual.low,
            dual.high,
            gram.orders(chunk, rng),
        )
        change = sign * (dual.gamma[at] - before)
        if change.any():
            gram.add_product(chunk, change[:, None], dual.score[:, None])


def _newton(dual: Dual, tol: float, max_iter: int, *, free: bool) -> int:
    """Active-set Newton steps until the gap is small or nothing moves; gives their number."""
    basis = None if len(dual.gram) <= DIRECT else nystroem(dual.gram)
    number, accuracy = 0, _ACCURACY
    while True:
        tried = dual if dual.mu > 0.0 or dual.gamma.min() >= 0.0 else dual.clipped()
        gap, primal = tried.gap()
        if gap <= tol * primal or accuracy < _FINEST or number == max_iter:
            dual.gamma, dual.score = tried.gamma, tried.score
            return number
        moved = newton_step(dual, basis, free=free, accuracy=accuracy)
        accuracy = _ACCURACY if moved else accuracy * 0.01 if basis is not None else 0.0
        number += 1
