"""Dual coordinate descent for squared losses outside a band: one variable for each row, each step exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True)
def _fenchel(gamma, u, cost, mu, theta):  # type: ignore[no-untyped-def]
    """The part of a row in the duality gap: not negative, and zero exactly where the dual variable fits the margin."""
    below, above = 1.0 - theta - u, u - 1.0 - theta
    lower, upper = cost, mu * cost
    if gamma >= 0.0:
        term = (gamma - lower * below) ** 2 / (2.0 * lower) if below >= 0.0 else gamma * (gamma / (2.0 * lower) - below)
        return term + (0.5 * upper * above * above if above > 0.0 else 0.0)
    n = -gamma
    term = (n - upper * above) ** 2 / (2.0 * upper) if above >= 0.0 else n * (n / (2.0 * upper) - above)
    return term + (0.5 * lower * below * below if below > 0.0 else 0.0)


@njit(cache=True, nogil=True)
def _best_dual(rest, square, cost, mu, theta):  # type: ignore[no-untyped-def]
    """The dual variable that is best for its row, ``rest`` being the row's margin without its own part."""
    if rest < 1.0 - theta:
        return (1.0 - theta - rest) / (square + 1.0 / cost)
    if mu > 0.0 and rest > 1.0 + theta:
        return (1.0 + theta - rest) / (square + 1.0 / (mu * cost))
    return 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _epoch_dense(X, signs, cost, squares, order, mu, theta, constant, gamma, v):  # type: ignore[no-untyped-def]
    d = X.shape[1]
    gap = 0.0
    for at in range(order.shape[0]):
        i = order[at]
        u = constant * v[d]
        for j in range(d):
            u += X[i, j] * v[j]
        u *= signs[i]
        old = gamma[i]
        gap += _fenchel(old, u, cost[i], mu, theta)
        new = _best_dual(u - squares[i] * old, squares[i], cost[i], mu, theta)
        if new != old:
            gamma[i] = new
            move = (new - old) * signs[i]
            for j in range(d):
                v[j] += move * X[i, j]
            v[d] += move * constant
    return gap


@njit(cache=True, nogil=True, fastmath=_FAST)
def _epoch_csr(data, indices, indptr, signs, cost, squares, order, mu, theta, constant, gamma, v):  # type: ignore[no-untyped-def]
    d = v.shape[0] - 1
    gap = 0.0
    for at in range(order.shape[0]):
        i = order[at]
        u = constant * v[d]
        for p in range(indptr[i], indptr[i + 1]):
            u += data[p] * v[indices[p]]
        u *= signs[i]
        old = gamma[i]
        gap += _fenchel(old, u, cost[i], mu, theta)
        new = _best_dual(u - squares[i] * old, squares[i], cost[i], mu, theta)
        if new != old:
            gamma[i] = new
            move = (new - old) * signs[i]
            for p in range(indptr[i], indptr[i + 1]):
                v[indices[p]] += move * data[p]
            v[d] += move * constant
    return gap


@njit(cache=True, nogil=True)
def _gap(gamma, margins, cost, mu, theta):  # type: ignore[no-untyped-def]
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
