"""Optimal margin distribution, two classes: exact coordinate steps, stochastic steps, and the duality gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

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
    """Sweeps of exact coordinate steps over some rows of the kernel matrix, in place: see `RowPanel`."""
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
def _row_gap(gamma, margin, cost, mu, low, high):
    """The part of a row in the duality gap, which is not negative (Fenchel and Young), and its loss C l(u) / 2."""
    short, over, upper = low - margin, margin - high, mu * cost
    below = 0.5 * cost * short * short if short > 0.0 else 0.0
    above = 0.5 * upper * over * over if over > 0.0 else 0.0
    if gamma >= 0.0:
        return _side(gamma, short, cost) + above, below + above
    return _side(-gamma, over, upper) + below, below + above


@njit(cache=True, nogil=True)
def margin_gap(gamma, margin, cost, mu, low, high):
    """(primal - dual, sum of the losses C l(u) / 2): no part of the first sum is negative, so nothing cancels."""
    gap = 0.0
    loss = 0.0
    for i in range(len(gamma)):
        part, lost = _row_gap(gamma[i], margin[i], cost[i], mu, low, high)
        gap += part
        loss += lost
    return gap, loss


# -- linear machines ---------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=_FAST)
def plus_product(total, rows, i, v):
    """total + x_i . v. Rows are (X,), or (data, indices, indptr) of CSR form; the compiler knows which."""
    if len(rows) == 1:
        X = rows[0]
        for j in range(X.shape[1]):
            total += X[i, j] * v[j]
    else:
        data, indices, indptr = rows
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p] * v[indices[p]]
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_row(step, rows, i, v):
    """v += step x_i."""
    if len(rows) == 1:
        X = rows[0]
        for j in range(X.shape[1]):
            v[j] += step * X[i, j]
    else:
        data, indices, indptr = rows
        for p in range(indptr[i], indptr[i + 1]):
            v[indices[p]] += step * data[p]


@njit(cache=True, nogil=True, fastmath=_FAST)
def epoch(rows, signs, cost, squares, order, mu, theta, constant, gamma, v):
    """See `LinearProblem.coordinate_epoch`."""
    d = v.shape[0] - 1
    gap = 0.0
    for at in range(order.shape[0]):
        i = order[at]
        u = signs[i] * plus_product(constant * v[d], rows, i, v)
        old = gamma[i]
        stiff = 1.0 / (mu * cost[i]) if mu > 0.0 else np.inf
        gap += _row_gap(old, u, cost[i], mu, 1.0 - theta, 1.0 + theta)[0]
        new = exact_step(u - squares[i] * old, squares[i], 1.0 - theta, 1.0 + theta, 1.0 / cost[i], stiff)
        if new != old:
            gamma[i] = new
            move = (new - old) * signs[i]
            add_row(move, rows, i, v)
            v[d] += move * constant
    return gap


@njit(cache=True, nogil=True)
def _slope(u, mu, theta):
    """Half the derivative of the loss at margin u."""
    if u < 1.0 - theta:
        return u - 1.0 + theta
    return mu * (u - 1.0 - theta) if u > 1.0 + theta else 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def run_dense(X, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v):
    """See `LinearProblem.walked`."""
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
def run_csr(data, indices, indptr, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v, last):
    """As `run_dense`; k steps on rows without a coordinate make v <- q^k v - (1 - q^k) mean, q = 1 - eta, later."""
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


# -- kernels -----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def negative_distances(values, row_squares, column_squares):
    """min(2 v_ij - r_i - c_j, 0) in place of v_ij: one pass where NumPy takes four. NaN stays NaN."""
    two, zero = values.dtype.type(2.0), values.dtype.type(0.0)
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            value = two * values[i, j] - row_squares[i] - column_squares[j]
            values[i, j] = zero if value > zero else value
