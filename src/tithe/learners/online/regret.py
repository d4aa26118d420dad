"""Bounds on the regret of an online clustering (Li, Guedj and Loustau 2018, Corollaries 1 to 3)."""

from __future__ import annotations

import math

import numpy as np

from tithe.core.data import Array


def regret_bounds(
    max_clusters: int, d: int, n_rows: int, radius: float, rate: float, eta: float, *, falling: bool
) -> Array:
    """What the expected loss of T rows can exceed that of the best k centres by, for k = 1 .. p: (p,).

    For draws from the quasi-posterior at a fixed inverse temperature lambda, rows within R, and centres within R, it is

        d k / (2 lambda) ln(4 R^2 / tau^2) + eta k / lambda + ln(p) / lambda + d T tau^2 / (d + 2) + lambda T C^2 / 2.

    C = (3 R)^2 bounds the loss of a centre in the ball of radius 2 R. The formula holds for every tau <= R: it compares
    with centres drawn uniformly within tau of the best ones, which costs d tau^2 / (d + 2) a row, at a divergence
    from the prior of d k ln(2 R / tau). tau^2 = (d + 2) / (2 lambda T) gives Corollary 1, and lambda = (d + 2) /
    (2 R^2 sqrt(T)) then Corollary 2. If lambda is so small that this tau is above R, tau = R is taken.

    If lambda_t = lambda sqrt(T / t) falls to lambda, with lambda_0 = lambda_1, the last term is lambda T C^2, since
    the sum of all lambda_{t-1} is at most 2 lambda T. With the lambda of Corollary 2 this is Corollary 3.

    Parameters
    ----------
    max_clusters, d, n_rows : int
        p, the number of columns, and T.
    radius : float
        R.
    rate : float
        lambda, for the last row.
    eta : float
    falling : bool
        Whether lambda_t falls, or is fixed.
    """
    if rate == 0.0:
        return np.full(max_clusters, np.inf)
    k = np.arange(1.0, max_clusters + 1.0)
    square = min(radius**2, (d + 2) / (2.0 * rate * n_rows))
    divergence = 0.5 * d * k * math.log(4.0 * radius**2 / square) + eta * k + math.log(max_clusters)
    variance = (1.0 if falling else 0.5) * rate * n_rows * (3.0 * radius) ** 4
    bounds: Array = divergence / rate + d * n_rows * square / (d + 2) + variance
    return bounds
