"""Many classes: block coordinate descent on the dual, within rounds in which the upper side is convex."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tithe.core.data import Array
from tithe.odm.kernels.many_classes import best_rivals
from tithe.odm.solvers.many_classes_dual import KernelMulticlassDual, MulticlassDual, subspace_step
from tithe.odm.solvers.many_classes_interior import low_rank_factor, solve_by_interior_points
from tithe.odm.solvers.many_classes_pivots import MAX_FREE, n_free, solve_by_pivots

NONCONVEX = ("cccp", "fixed_score")
_RENEWAL_ROUNDS = 50  # rounds after which scores are recomputed from the coefficients
_START_TOL = 1e-2  # relative gap of the start, where only the lower side counts
_ROUNDING_GAP = 1e-13  # relative gap below which rounds with little progress are at rounding level
_MAX_STILL_ROUNDS = 5  # such rounds, after which the search ends
_SLOW_RATIO = 0.9  # a round is slow if the gap keeps more than this share
_MAX_SLOW_ROUNDS = 5  # slow rounds, after which sweeps are not left alone
_LOOK_BACK = 5  # sweeps that the rate of descent is taken from
_MIN_ROUNDS_LEFT, _ROUNDS_PER_ROW = 20, 0.15  # rounds of sweeps that take as long as pivots to the end: measured
_MAX_FAILURES = 2  # of pivots or interior points, after which conjugate gradients are used
_MAX_SHARP_SWEEPS = 50  # sweeps after which a tolerance sharper than the requested one is given up
_MAX_RIVAL_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class MulticlassSolution:
    """``gap`` is that of the last convex problem; ``curve`` holds the true objective J after each round of rivals.

    The coefficients are those of the round with the smallest J, which may be an earlier one.
    """

    value: Array
    gap: float
    primal: float
    curve: list[float]
    n_iter: int


def solve_many_classes(
    dual: MulticlassDual,
    *,
    nonconvex: str,
    tol: float,
    asked_tol: float,
    max_iter: int,
    rng: np.random.Generator,
    patient: bool = True,
) -> MulticlassSolution:
    """Coefficients (n, K): first for the lower side alone, then with rivals chosen again until J stops falling.

    The rival that wins is the one that stays for a round (``nonconvex="cccp"``) or its score (``"fixed_score"``). The
    coefficients with the smallest J are returned. ``asked_tol`` is the requested tolerance: if ``tol`` is sharper,
    it is given up after a number of sweeps. If ``patient`` is False, the search
    ends as soon as coordinate sweeps converge slowly, instead of adding pivots or conjugate gradients.
    """
    final_tol, pace = max(tol, asked_tol), _Pace()
    rounds = _inner(dual, max(tol, _START_TOL) if dual.mu > 0.0 else tol, final_tol, max_iter, rng, pace, patient)
    dual.mu_now = dual.mu
    gap, primal, true = dual.measure()
    best, curve = (true, dual.value.copy()), [true]
    for _ in range(_MAX_RIVAL_ROUNDS if dual.mu > 0.0 else 0):
        dual.choose_rivals(nonconvex)
        tol = tol if rounds < _MAX_SHARP_SWEEPS else final_tol
        rounds += _inner(dual, tol, final_tol, max_iter - rounds, rng, pace, patient)
        gap, primal, true = dual.measure()
        curve.append(true)
        gained = best[0] - true
        if true < best[0]:
            best = (true, dual.value.copy())
        if gained <= tol * true or rounds >= max_iter:
            break
    true, value = best
    dual.value = value
    dual.renew()
    if true > 0.5 * float(dual.cost.sum()) * dual.low**2:  # worse than no machine at all
        curve.append(_shorten(dual))
        value = dual.value
    return MulticlassSolution(value=value, gap=gap, primal=primal, curve=curve, n_iter=rounds)


def _shorten(dual: MulticlassDual) -> float:
    """Scale the coefficients by the share in [0, 1] with the smallest J; returns J. The gap does not grow."""
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


@dataclass
class _Pace:
    """How fast sweeps were so far, and what helps them: kept for later rounds, which are much like the earlier ones."""

    n_slow: int = 0
    n_left: float = 0.0  # rounds of sweeps until the end, at the present rate
    n_failed: int = 0  # times that pivots or interior points did not lead to the solution
    used_interior_points: bool = False  # the last time that sweeps were left out
    _factors: list[Array | None] = field(default_factory=list)

    def look(self, gaps: list[float], small: float) -> None:
        """Decide by the gaps after each sweep of this round; ``small`` is the one to reach."""
        self.n_slow += len(gaps) > 1 and gaps[-1] > _SLOW_RATIO * gaps[-2]
        if len(gaps) <= _LOOK_BACK:
            return
        rate = min(0.999, (gaps[-1] / gaps[-1 - _LOOK_BACK]) ** (1.0 / _LOOK_BACK))
        self.n_left = float(np.log(small / gaps[-1]) / np.log(rate))

    def low_rank_factor(self, dual: KernelMulticlassDual) -> Array | None:
        """A factor of the kernel matrix if its rank is low; it is computed once."""
        if not self._factors:
            self._factors.append(low_rank_factor(dual.gram, dual.n_classes))
        return self._factors[0]


def _inner(
    dual: MulticlassDual,
    tol: float,
    final_tol: float,
    max_iter: int,
    rng: np.random.Generator,
    pace: _Pace,
    patient: bool,
) -> int:
    """Sweeps until the gap of the convex problem is small, or at rounding level; returns their number.

    Small is ``tol`` of the value, and ``final_tol`` of it once sweeps have become many. Where sweeps get slow,
    conjugate gradients on the multipliers that are not zero go between them; where many more would follow, pivots or
    interior points finish.
    """
    still, at_solution = 0, False
    gaps: list[float] = []
    for number in range(1, max_iter + 1):
        at_solution = patient and not at_solution and _solve_directly(dual, tol, final_tol, rng, pace)
        if not at_solution:
            dual.sweep(rng)
            if pace.n_slow >= _MAX_SLOW_ROUNDS:
                if not patient:
                    return number
                subspace_step(dual)
        gap, primal, _ = dual.measure()
        is_sharpest = at_solution and pace.used_interior_points  # what is left is rounding
        small = tol if number <= _MAX_SHARP_SWEEPS and not is_sharpest else max(tol, final_tol)
        if gap <= small * primal or number % _RENEWAL_ROUNDS == 0:
            dual.renew()
            gap, primal, _ = dual.measure()
        if gap <= small * primal:
            return number
        still = still + 1 if gaps and _ROUNDING_GAP * primal > gap > 0.5 * gaps[-1] else 0
        if still >= _MAX_STILL_ROUNDS:
            return number
        gaps.append(gap)
        pace.look(gaps, final_tol * primal)
    return max_iter


def _solve_directly(dual: MulticlassDual, tol: float, final_tol: float, rng: np.random.Generator, pace: _Pace) -> bool:
    """Solve the convex problem of this round without sweeps, if many would follow; False if that is not done.

    A kernel of low rank takes interior points: pivots end in singular systems. If a solution to rounding error is
    wanted, of few rows, pivots are tried once nevertheless: low ranks that come from rows that occur twice let them
    succeed, and interior points end some digits earlier.
    """
    if not isinstance(dual, KernelMulticlassDual) or pace.n_failed >= _MAX_FAILURES or pace.n_left <= _MIN_ROUNDS_LEFT:
        return False
    factor = pace.low_rank_factor(dual) if tol >= final_tol or pace.n_failed else None
    pace.used_interior_points = factor is not None
    if factor is not None:
        solved = solve_by_interior_points(dual, factor, tol, max(tol, final_tol))
    elif pace.n_left <= _ROUNDS_PER_ROW * len(dual.label) or n_free(dual) > MAX_FREE:
        return False
    else:
        solved = solve_by_pivots(dual, final_tol, rng)
    pace.n_failed += not solved
    pace.n_left = pace.n_left if solved else 0.0
    return solved
