"""Quadratic functions of signs: local search, and unit vectors in place of signs for a bound."""

from __future__ import annotations

import numpy as np
from numba import njit

_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def turn_vectors(G, V, sweeps, tol):
    """Raise sum_ij G_ij v_i . v_j over unit vectors v_i, the rows of V, in place, one at a time.

    Returns the lengths of sum over j != i of G_ij v_j. Ends where a sweep raises the total by less than ``tol``.
    """
    p, r = V.shape
    total = np.zeros(r)
    lengths = np.zeros(p)
    for _ in range(sweeps):
        raised = 0.0
        for i in range(p):
            for k in range(r):
                total[k] = 0.0
            for j in range(p):
                if j != i:
                    weight = G[i, j]
                    for k in range(r):
                        total[k] += weight * V[j, k]
            square = 0.0
            inner = 0.0
            for k in range(r):
                square += total[k] * total[k]
                inner += total[k] * V[i, k]
            length = np.sqrt(square)
            lengths[i] = length
            raised += 2.0 * (length - inner)
            if length > 0.0:
                for k in range(r):
                    V[i, k] = total[k] / length
        if raised <= tol:
            break
    return lengths


@njit(cache=True, nogil=True)
def exchange_signs(G, c, t, size, least, most, n_near, max_moves, smallest):
    """Raise t G t + 2 c . t over signs t in place, sum size . t between ``least`` and ``most``: by single changes, else
    by two among the ``n_near`` signs that lose least, as long as one gains more than ``smallest``.
    """
    p = len(t)
    slope = np.empty(p)
    total = 0.0
    for i in range(p):
        slope[i] = c[i]
        for j in range(p):
            slope[i] += G[i, j] * t[j]
        total += size[i] * t[i]
    gain = np.empty(p)
    for _ in range(max_moves):
        one, best = -1, smallest
        for i in range(p):
            gain[i] = G[i, i] - t[i] * slope[i]  # a quarter of what the change brings
            after = total - 2.0 * size[i] * t[i]
            if gain[i] > best and least <= after <= most:
                one, best = i, gain[i]
        other = -1
        if one < 0:
            near = np.argsort(-gain)[:n_near]
            for a in range(len(near)):
                i = near[a]
                for b in range(a):
                    j = near[b]
                    both = gain[i] + gain[j] + 2.0 * G[i, j] * t[i] * t[j]
                    after = total - 2.0 * (size[i] * t[i] + size[j] * t[j])
                    if both > best and least <= after <= most:
                        one, other, best = i, j, both
        if one < 0:
            return
        for k in (one, other):
            if k >= 0:
                step = 2.0 * t[k]
                total -= step * size[k]
                for j in range(p):
                    slope[j] -= step * G[k, j]
                t[k] = -t[k]
