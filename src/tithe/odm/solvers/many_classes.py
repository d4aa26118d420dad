"""Many classes: rounds in which the upper side of the loss is convex."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.odm.kernels.many_classes import best_rivals
from tithe.odm.solvers.kernel_matrix import MarginLoss, Solved

NONCONVEX = ("cccp", "fixed_score")
_START_TOL = 1e-2  # relative gap of the start, where only the lower side counts
MAX_SHARP_ROUNDS = 50  # rounds after which a tolerance sharper than the requested one is given up
_MAX_RIVAL_ROUNDS = 20


@dataclass(kw_only=True, eq=False)
class MulticlassDual(MarginLoss, ABC):
    """Multipliers of all classes: v (n, K) = alpha - beta (e_y - e_q), w_l = sum_i v_i^l phi(x_i).

    The upper side of the loss is made convex by a rival q that stays for a round (``rival``: the convex function
    touches J from above, so J never rises, CCCP), or by the rival's score that stays (``level``; no such promise).
    """

    label: Array
    n_classes: int
    beta: Array = field(init=False)
    rival: Array = field(init=False)
    level: Array = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.label)
        self.beta, self.level = np.zeros(n), np.zeros(n)
        self.rival = np.full(n, -1, np.int64)
        self.mu_now = 0.0

    @abstractmethod
    def descend(self, tol: float, final_tol: float, max_iter: int) -> int:
        """Solve the convex problem of this round to a relative gap of ``tol``; returns the number of rounds.

        Where that takes long, ``final_tol`` is enough.
        """

    @abstractmethod
    def scores(self) -> Array:
        """(n, K)."""

    @abstractmethod
    def norm(self) -> float:
        """|w|^2 of all classes."""

    @abstractmethod
    def measure(self) -> tuple[float, float, float]:
        """Gap and primal value of this round's convex problem, and the true objective J."""

    @abstractmethod
    def move_rivals(self, rival: Array) -> None:
        """Compare the upper side with other rivals."""

    @abstractmethod
    def kept(self) -> Any:
        """A copy of the solution, for `restore`."""

    @abstractmethod
    def restore(self, kept: Any) -> None: ...

    @abstractmethod
    def shorten(self, share: float) -> None:
        """Multiply the solution by a share in [0, 1]."""

    def choose_rivals(self, nonconvex: str) -> None:
        """Fix the present rivals or their scores."""
        best, level = np.empty_like(self.rival), np.empty_like(self.level)
        best_rivals(self.scores(), self.label, best, level)
        if nonconvex == "fixed_score":
            self.level = level
        else:
            self.move_rivals(best)


def solve_many_classes(dual: MulticlassDual, *, nonconvex: str, tol: float, asked_tol: float, max_iter: int) -> Solved:
    """The machine: first for the lower side alone, then with rivals chosen until J stops falling.

    The one with the smallest J is kept, the last of the curve. A ``tol`` sharper than ``asked_tol`` is given up
    after a number of rounds.
    """
    final_tol = max(tol, asked_tol)
    rounds = dual.descend(max(tol, _START_TOL) if dual.mu > 0.0 else tol, final_tol, max_iter)
    dual.mu_now = dual.mu
    gap, primal, true = dual.measure()
    best, curve = (true, dual.kept()), [true]
    for _ in range(_MAX_RIVAL_ROUNDS if dual.mu > 0.0 else 0):
        dual.choose_rivals(nonconvex)
        tol = tol if rounds < MAX_SHARP_ROUNDS else final_tol
        rounds += dual.descend(tol, final_tol, max_iter - rounds)
        gap, primal, true = dual.measure()
        curve.append(true)
        gained = best[0] - true
        if true < best[0]:
            best = (true, dual.kept())
        if gained <= tol * true or rounds >= max_iter:
            break
    true, kept = best
    dual.restore(kept)
    if curve[-1] > true:  # an earlier round is kept
        curve.append(true)
    if true > 0.5 * float(dual.cost.sum()) * dual.low**2:  # worse than no machine at all
        curve.append(_shorten(dual))
    return Solved(gap=gap, primal=primal, curve=curve, n_iter=rounds)


def _shorten(dual: MulticlassDual) -> float:
    """Scale the solution by the share in [0, 1] with the smallest J; returns J. The gap does not grow."""
    scores, rivals, level = dual.scores(), np.empty_like(dual.rival), np.empty_like(dual.level)
    best_rivals(scores, dual.label, rivals, level)
    margin = scores[np.arange(len(level)), dual.label] - level
    norm = dual.norm()

    def objective(share: float) -> float:
        low, high = np.maximum(dual.low - share * margin, 0.0), np.maximum(share * margin - dual.high, 0.0)
        return 0.5 * share * share * norm + 0.5 * float(dual.cost @ (low * low + dual.mu * high * high))

    shares = np.append(0.0, 0.5 ** np.arange(40))
    best = float(shares[np.argmin([objective(share) for share in shares])])
    dual.shorten(best)
    return objective(best)
