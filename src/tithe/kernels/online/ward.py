"""Ward's tree over a few weighted centres."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def ward_tree(centers, weights):
    """Repeatedly join the two clusters whose union costs least.

    Joining clusters of weights a and b costs a b / (a + b) |c_a - c_b|^2, which is what the k-means cost grows by.
    Returns the nodes, the p given ones first and then those that came about (2p - 1, d), their weights, the
    pairs that were joined (p - 1, 2) and what each of them cost.
    """
    p, d = centers.shape
    nodes, mass = np.empty((2 * p - 1, d)), np.empty(2 * p - 1)
    pairs, costs = np.empty((p - 1, 2), np.int64), np.empty(p - 1)
    alive = np.zeros(2 * p - 1, np.bool_)
    for a in range(p):  # loops, since copies of whole arrays take seconds to compile
        alive[a], mass[a] = True, weights[a]
        for j in range(d):
            nodes[a, j] = centers[a, j]
    price = np.empty((2 * p - 1, 2 * p - 1))
    for new in range(2 * p - 1):
        if new >= p:
            best, left, right = np.inf, -1, -1
            for a in range(new):
                for b in range(a):
                    if alive[a] and alive[b] and price[a, b] < best:
                        best, left, right = price[a, b], b, a
            alive[left] = alive[right] = False
            alive[new] = True
            mass[new] = mass[left] + mass[right]
            for j in range(d):
                nodes[new, j] = (mass[left] * nodes[left, j] + mass[right] * nodes[right, j]) / mass[new]
            pairs[new - p, 0], pairs[new - p, 1], costs[new - p] = left, right, best
        for a in range(new):
            if alive[a]:
                total = 0.0
                for j in range(d):
                    gap = nodes[a, j] - nodes[new, j]
                    total += gap * gap
                price[new, a] = mass[a] * mass[new] / (mass[a] + mass[new]) * total
    return nodes, mass, pairs, costs
