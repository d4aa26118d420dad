"""Optimal margin distribution, two classes: coordinate steps on rows of the kernel matrix, and the gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}
_MIN_MOVEMENT_SHARE = 1e-3  # share of the first sweep's movement below which another is not worth its time


@njit(cache=True, nogil=True)
def exact_step(rest, diagonal, low, high, soft, stiff):  # type: ignore[no-untyped-def]
    """The best multiplier of a row whose margin is ``rest`` without it; ``diagonal`` is its kernel with itself."""
    if rest < low:
        return (low - rest) / (diagonal + soft)
    if rest > high and stiff < np.inf:
        return (high - rest) / (diagonal + stiff)
    return 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def descend_rows(matrix, places, numbers, sign, score, gamma, soft, stiff, low, high):  # type: ignore[no-untyped-def]
    """Sweeps of exact coordinate steps over some rows of the kernel matrix, in place.

    ``matrix`` (h, n) has the row of number ``numbers[s, k]`` in ``places[s, k]``; sweep s visits them in the order of
    k. sign, score, gamma, soft, stiff (n,): signs of the classes, decision values, multipliers, and 1 / C and
    1 / (mu C).
    """
    n = len(score)
    first = 0.0
    for sweep in range(len(numbers)):
        moved = 0.0
        for k in range(numbers.shape[1]):
            i, place = numbers[sweep, k], places[sweep, k]
            diagonal = matrix[place, i]
            best = exact_step(sign[i] * score[i] - diagonal * gamma[i], diagonal, low, high, soft[i], stiff[i])
            change = best - gamma[i]
            if change == 0.0:
                continue
            gamma[i] = best
            moved += change * change * (diagonal + (soft[i] if best > 0.0 else stiff[i] if best < 0.0 else 0.0))
            step = change * sign[i]
            for j in range(n):
                score[j] += step * matrix[place, j]
        if sweep == 0:
            first = moved
        if moved <= _MIN_MOVEMENT_SHARE * first:
            return


@njit(cache=True, nogil=True)
def _side(multiplier, slack, weight):  # type: ignore[no-untyped-def]
    """The part of a multiplier and a margin ``slack`` short of its band in the gap; ``weight`` is C or mu C."""
    if weight == 0.0:  # this side has no loss, so its multiplier must be zero
        return np.inf if multiplier > 0.0 else 0.0
    if slack >= 0.0:
        return (multiplier - weight * slack) ** 2 / (2.0 * weight)
    return multiplier * multiplier / (2.0 * weight) - multiplier * slack


@njit(cache=True, nogil=True)
def margin_gap(gamma, margin, cost, mu, low, high):  # type: ignore[no-untyped-def]
    """(primal - dual, sum of the losses C l(u) / 2), from multipliers and margins: (n,) each.

    The part of every row is not negative (Fenchel and Young), so nothing cancels. The primal value is the
    second number plus half of gamma . margin.
    """
    gap = 0.0
    loss = 0.0
    for i in range(len(gamma)):
        short, over, upper = low - margin[i], margin[i] - high, mu * cost[i]
        below = 0.5 * cost[i] * short * short if short > 0.0 else 0.0
        above = 0.5 * upper * over * over if over > 0.0 else 0.0
        loss += below + above
        if gamma[i] >= 0.0:
            gap += _side(gamma[i], short, cost[i]) + above
        else:
            gap += _side(-gamma[i], over, upper) + below
    return gap, loss
