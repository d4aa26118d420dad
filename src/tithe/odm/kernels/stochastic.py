"""Stochastic descent with variance reduction for squared losses outside a band: SVRG and SAGA."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True)
def _slope(u, mu, theta):  # type: ignore[no-untyped-def]
    """Half the derivative of the loss at margin u."""
    if u < 1.0 - theta:
        return u - 1.0 + theta
    return mu * (u - 1.0 - theta) if u > 1.0 + theta else 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _run_dense(X, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v):  # type: ignore[no-untyped-def]
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
def _run_csr(data, indices, indptr, signs, cost, draws, share, eta, mu, theta, constant, follow, table, mean, v, last):  # type: ignore[no-untyped-def]
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
