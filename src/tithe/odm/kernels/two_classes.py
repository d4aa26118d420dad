"""Optimal margin distribution, two classes: exact coordinate steps, stochastic steps, and the duality gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}
_MIN_MOVEMENT_SHARE = 1e-3  # share of the first sweep's movement below which another is not worth its time


@njit(cache=True, nogil=True)
def exact_step(rest, diagonal, low, high, soft, stiff):
    """The best multiplier of a row whose margin is ``rest`` without it; ``diagonal`` is its kernel with itself."""
    if rest < low:
        return (low - rest) / (diagonal + soft)
    if rest > high and stiff < np.inf:
        return (high - rest) / (diagonal + stiff)
    return 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def descend_rows(matrix, places, numbers, sign, score, gamma, soft, stiff, low, high):
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
def _side(multiplier, slack, weight):
    """The part of a multiplier and a margin ``slack`` short of its band in the gap; ``weight`` is C or mu C."""
    if weight == 0.0:  # this side has no loss, so its multiplier must be zero
        return np.inf if multiplier > 0.0 else 0.0
    if slack >= 0.0:
        return (multiplier - weight * slack) ** 2 / (2.0 * weight)
    return multiplier * multiplier / (2.0 * weight) - multiplier * slack


@njit(cache=True, nogil=True)
def margin_gap(gamma, margin, cost, mu, low, high):
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


# -- linear machines ---------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _fenchel(gamma, u, cost, mu, theta):
    """The part of a row in the duality gap: not negative, and zero exactly where the dual variable fits the margin."""
    below, above = 1.0 - theta - u, u - 1.0 - theta
    lower, upper = cost, mu * cost
    if gamma >= 0.0:
        term = (gamma - lower * below) ** 2 / (2.0 * lower) if below >= 0.0 else gamma * (gamma / (2.0 * lower) - below)
        return term + (0.5 * upper * above * above if above > 0.0 else 0.0)
    n = -gamma
    term = (n - upper * above) ** 2 / (2.0 * upper) if above >= 0.0 else n * (n / (2.0 * upper) - above)
    return term + (0.5 * lower * below * below if below > 0.0 else 0.0)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _epoch_dense(X, signs, cost, squares, order, mu, theta, constant, gamma, v):
    d = X.shape[1]
    gap = 0.0
    for at in range(order.shape[0]):
        i = order[at]
        u = constant * v[d]
        for j in range(d):
            u += X[i, j] * v[j]
        u *= signs[i]
        old = gamma[i]
        stiff = 1.0 / (mu * cost[i]) if mu > 0.0 else np.inf
        gap += _fenchel(old, u, cost[i], mu, theta)
        new = exact_step(u - squares[i] * old, squares[i], 1.0 - theta, 1.0 + theta, 1.0 / cost[i], stiff)
        if new != old:
            gamma[i] = new
            move = (new - old) * signs[i]
            for j in range(d):
                v[j] += move * X[i, j]
            v[d] += move * constant
    return gap


@njit(cache=True, nogil=True, fastmath=_FAST)
def _epoch_csr(data, indices, indptr, signs, cost, squares, order, mu, theta, constant, gamma, v):
    d = v.shape[0] - 1
    gap = 0.0
    for at in range(order.shape[0]):
        i = order[at]
        u = constant * v[d]
        for p in range(indptr[i], indptr[i + 1]):
            u += data[p] * v[indices[p]]
        u *= signs[i]
        old = gamma[i]
        stiff = 1.0 / (mu * cost[i]) if mu > 0.0 else np.inf
        gap += _fenchel(old, u, cost[i], mu, theta)
        new = exact_step(u - squares[i] * old, squares[i], 1.0 - theta, 1.0 + theta, 1.0 / cost[i], stiff)
        if new != old:
            gamma[i] = new
            move = (new - old) * signs[i]
            for p in range(indptr[i], indptr[i + 1]):
                v[indices[p]] += move * data[p]
            v[d] += move * constant
    return gap


@njit(cache=True, nogil=True)
def _gap(gamma, margins, cost, mu, theta):
    total = 0.0
    for i in range(gamma.shape[0]):
        total += _fenchel(gamma[i], margins[i], cost[i], mu, theta)
    return total


def coordinate_epoch(
    X: Any,
    signs: Array,
    cost: Array,
    squares: Array,
    order: Array,
    *,
    mu: float,
    theta: float,
    constant: float,
    gamma: Array,
    v: Array,
) -> float:
    """One exact step in the dual variable of each row of ``order``; ``gamma`` (n,) and ``v`` (d + 1,) are changed.

    v = sum_i gamma_i signs_i (x_i, constant); ``squares`` are |(x_i, constant)|^2. Returns the duality gap, each row
    taken at the time of its own step.
    """
    args = (signs, cost, squares, order, mu, theta, constant, gamma, v)
    if sparse.issparse(X):
        return float(_epoch_csr(X.data, X.indices, X.indptr, *args))
    return float(_epoch_dense(X, *args))


def duality_gap(gamma: Array, margins: Array, cost: Array, *, mu: float, theta: float) -> float:
    """P(v) - D(gamma) for v = sum_i gamma_i z_i and its margins, as a sum of terms none of which is negative."""
    return float(_gap(gamma, margins, cost, mu, theta))


@njit(cache=True, nogil=True)
def _slope(u, mu, theta):
    """Half the derivative of the loss at margin u."""
    if u < 1.0 - theta:
        return u - 1.0 + theta
    return mu * (u - 1.0 - theta) if u > 1.0 + theta else 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _run_dense(X, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v):
    d = X.shape[1]
    keep = 1.0 - eta
    for at in range(draws.shape[0]):
        i = draws[at]
        u = constant * v[d]
        for j in range(d):
            u += X[i, j] * v[j]
        slope = _slope(u * signs[i], mu, theta)
        change = cost[i] * signs[i] * (slope - table[i])
        step = eta * change / share[i]
        for j in range(d):
            v[j] = keep * v[j] - eta * mean[j] - step * X[i, j]
        v[d] = keep * v[d] - eta * mean[d] - step * constant
        if follow and change != 0.0:
            table[i] = slope
            for j in range(d):
                mean[j] += change * X[i, j]
            mean[d] += change * constant


@njit(cache=True, nogil=True, fastmath=_FAST)
def _run_csr(data, indices, indptr, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v, last):
    """Coordinates are updated lazily: k steps on rows without them make v <- q^k v - (1 - q^k) mean, q = 1 - eta.

    ``last`` (d,) holds zeros.
    """
    d = v.shape[0] - 1
    log_keep = np.log1p(-eta)
    for at in range(draws.shape[0]):
        i = draws[at]
        u = constant * v[d]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            if last[j] != at:
                power = np.exp((at - last[j]) * log_keep)
                v[j] = power * v[j] - (1.0 - power) * mean[j]
                last[j] = at
            u += data[p] * v[j]
        slope = _slope(u * signs[i], mu, theta)
        change = cost[i] * signs[i] * (slope - table[i])
        step = eta * change / share[i]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            v[j] = (1.0 - eta) * v[j] - eta * mean[j] - step * data[p]
            last[j] = at + 1
        v[d] = (1.0 - eta) * v[d] - eta * mean[d] - step * constant
        if follow and change != 0.0:
            table[i] = slope
            for p in range(indptr[i], indptr[i + 1]):
                mean[indices[p]] += change * data[p]
            mean[d] += change * constant
    for j in range(d):
        power = np.exp((draws.shape[0] - last[j]) * log_keep)
        v[j] = power * v[j] - (1.0 - power) * mean[j]


def stochastic_run(
    X: Any,
    signs: Array,
    cost: Array,
    draws: Array,
    share: Array,
    *,
    eta: float,
    mu: float,
    theta: float,
    constant: float,
    follow: bool,
    table: Array,
    mean: Array,
    v: Array,
) -> None:
    """Steps of length ``eta`` on the rows ``draws``, row i being drawn with chance ``share_i``; ``v`` is changed.

    The gradient is taken as v + mean + (C_i / share_i)(slope_i(v) - table_i) z_i, with ``mean`` (d + 1,) =
    sum_i C_i table_i z_i. SVRG keeps ``table`` and ``mean``, SAGA updates them (``follow``).
    """
    args = (signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v)
    if sparse.issparse(X):
        _run_csr(X.data, X.indices, X.indptr, *args, np.zeros(X.shape[1], np.int64))
    else:
        _run_dense(X, *args)


# -- kernels -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def negative_distances(values, row_squares, column_squares):
    """min(2 v_ij - r_i - c_j, 0) in place of v_ij: one pass where NumPy takes four. NaN stays NaN."""
    two, zero = values.dtype.type(2.0), values.dtype.type(0.0)
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = two * values[i, j] - row_squares[i] - column_squares[j]
            values[i, j] = zero if value > zero else value
