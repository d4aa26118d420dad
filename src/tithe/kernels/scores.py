"""Scores of rows from their cost and group, without temporaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tithe.kernels.parts import part_rows
from tithe.kernels.threads import over_parts

Array = np.ndarray[Any, Any]


@njit(cache=True, nogil=True)
def _affine(cost, labels, slope, base, weight, score, first, last, rows):  # type: ignore[no-untyped-def]
    for i in range(first * rows, min(cost.shape[0], last * rows)):
        u = weight[i] if weight.size > 0 else 1.0
        score[i] = u * (slope * cost[i] + base[labels[i]])


def affine_scores(cost: Array, labels: Array, slope: float, base: Array, weight: Array | None) -> Array:
    """``weight * (slope * cost + base[label])`` of every row: (n,) float64."""
    n = cost.shape[0]
    score = np.empty(n)
    u = np.empty(0) if weight is None else weight
    rows = part_rows(n, 8)
    over_parts(lambda a, b: _affine(cost, labels, slope, base, u, score, a, b, rows), -(-n // rows), serial=n < 200_000)
    return score
