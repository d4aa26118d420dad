"""Log densities of normal mixtures and the sums of an EM step: dense rows, in tiles, on several threads.

Rows are turned into columns a tile at a time, so that every inner loop runs over rows. A row's numbers do not depend on
the other rows of its tile, and sums are those of differences from the present means, which do not cancel.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.core.parts import add_parts, part_rows

_TILE_ROWS = 128  # rows at a time: they stay in the first-level cache
_LEAST_SHARE = 1e-20  # of a row in a component: smaller ones add nothing to any sum
_EXACT = {"contract"}
_SUMS = {"contract", "reassoc", "nsz"}
SOFT, HARD = 1, 2


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _score(points, r, height, mean, factor, gap, line, square, scores):
    """Log weight and log density of one component at each of the r columns of ``points``."""
    d = points.shape[0]
    for i in range(r):
        square[i] = 0.0
    for a in range(d):
        if factor.shape[0] < d:  # a diagonal matrix
            f, m = factor[0, a], mean[a]
            for i in range(r):
                square[i] += (f * (points[a, i] - m)) ** 2
            continue
        for i in range(r):
            gap[a, i] = points[a, i] - mean[a]
        for i in range(r):
            line[i] = factor[a, a] * gap[a, i]
        b = 0
        while b + 4 <= a:
            f0, f1, f2, f3 = factor[a, b], factor[a, b + 1], factor[a, b + 2], factor[a, b + 3]
            for i in range(r):
                line[i] += f0 * gap[b, i] + f1 * gap[b + 1, i] + f2 * gap[b + 2, i] + f3 * gap[b + 3, i]
            b += 4
        while b < a:
            f0 = factor[a, b]
            for i in range(r):
                line[i] += f0 * gap[b, i]
            b += 1
        for i in range(r):
            square[i] += line[i] * line[i]
    for i in range(r):
        scores[i] = height - 0.5 * square[i]


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _shares(scores, r, densities, labels, start):
    """Turn scores into the shares of the components in each row, and note its log density and largest component."""
    for i in range(r):
        largest, best = scores[0, i], 0
        for c in range(1, scores.shape[0]):
            if scores[c, i] > largest:
                largest, best = scores[c, i], c
        labels[start + i] = best
        if largest == -np.inf:  # too far away for any number
            densities[start + i] = -np.inf
            for c in range(scores.shape[0]):
                scores[c, i] = 0.0
            continue
        total = 0.0
        for c in range(scores.shape[0]):
            below = scores[c, i] - largest
            scores[c, i] = np.exp(below) if below > -100.0 else 0.0
            total += scores[c, i]
        densities[start + i] = largest + np.log(total)
        for c in range(scores.shape[0]):
            scores[c, i] /= total


@njit(cache=True, nogil=True, fastmath=_SUMS, error_model="numpy")
def _add(gap, line, share, loss, m, full, sums):
    """Add the m rows of one component to its sums: count, loss, differences, their squares and products."""
    d = gap.shape[0]
    count, cost = 0.0, 0.0
    for i in range(m):
        count += share[i]
        cost += share[i] * loss[i]
    sums[0] += count
    sums[1] += cost
    at = 2 + 2 * d
    for a in range(d):
        first, second = 0.0, 0.0
        for i in range(m):
            line[i] = share[i] * gap[a, i]
            first += line[i]
            second += line[i] * gap[a, i]
        sums[2 + a] += first
        sums[2 + d + a] += second
        if full:
            for b in range(a):
                product = 0.0
                for i in range(m):
                    product += line[i] * gap[b, i]
                sums[at] += product
                at += 1


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _mixture(X, weight, model, results, first, last, rows):
    heights, means, factors, mode = model
    densities, labels, chances, sums = results
    n, d = X.shape
    k = means.shape[0]
    full = factors.shape[1] == d and sums.shape[2] > 2 + 2 * d
    points, gap = np.empty((d, _TILE_ROWS)), np.empty((d, _TILE_ROWS))
    line, square = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS)
    share, loss, scores = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS), np.empty((k, _TILE_ROWS))
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop, start + _TILE_ROWS) - start
            for i in range(r):
                for a in range(d):
                    points[a, i] = X[start + i, a]
            for c in range(k):
                _score(points, r, heights[c], means[c], factors[c], gap, line, square, scores[c])
            _shares(scores, r, densities, labels, start)
            if chances.size > 0:
                for i in range(r):
                    for c in range(k):
                        chances[start + i, c] = scores[c, i]
            if mode == 0:
                continue
            for c in range(k):
                m = 0
                for i in range(r):
                    part_of = scores[c, i] if mode == SOFT else (1.0 if labels[start + i] == c else 0.0)
                    if part_of > _LEAST_SHARE:
                        share[m] = part_of * weight[start + i] if weight.size > 0 else part_of
                        loss[m] = -densities[start + i]
                        for a in range(d):
                            gap[a, m] = points[a, i] - means[c, a]
                        m += 1
                if m > 0:
                    _add(gap, line, share, loss, m, full, sums[part, c])


def mixture(
    X: Array,
    heights: Array,
    means: Array,
    factors: Array,
    *,
    weight: Array | None = None,
    mode: int = 0,
    with_chances: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """Log densities (n,), largest components (n,) int32, sums (k, q) and shares of components (n, k).

    Component c has the density exp(heights[c] - |factors[c] (x - means[c])|^2 / 2); ``factors`` are lower triangular
    matrices (k, d, d), or diagonals (k, 1, d). With ``mode`` SOFT each row counts in each component by its share, with
    HARD in its largest one alone; 0 adds up nothing. The columns of ``sums`` are the count, the loss (minus the log
    density), the differences from the mean, their squares, and for matrices their products a > b. The weights of the
    rows are factors of all of these. Shares are (0, k) unless they are asked for.
    """
    n, d = X.shape
    k = len(means)
    q = 2 + 2 * d + (d * (d - 1) // 2 if factors.shape[1] == d else 0)
    rows = part_rows(n, 8 * k * q if mode else 1)
    n_parts = -(-n // rows)
    densities, labels = np.empty(n), np.empty(n, np.int32)
    chances, sums = np.empty((n if with_chances else 0, k)), np.zeros((n_parts if mode else 0, k, q))
    u = np.empty(0) if weight is None else weight
    model, results = (heights, means, factors, mode), (densities, labels, chances, sums)

    def run(first: int, last: int) -> None:
        _mixture(X, u, model, results, first, last, rows)

    over_parts(run, n_parts, serial=n * k * q < 1_000_000)
    return densities, labels, add_parts(sums) if mode else np.empty((k, 0)), chances
