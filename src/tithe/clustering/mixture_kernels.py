"""Log densities of normal mixtures and the sums of an EM step: dense rows, in tiles, on several threads.

Rows are turned into columns a tile at a time, so that every inner loop runs over rows. A row's numbers do not depend on
the other rows of its tile, and sums are those of differences from the present means, which do not cancel.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, part_rows

_TILE_ROWS = 128  # rows at a time: they stay in the first-level cache
_LEAST_SHARE = 1e-20  # of a row in a component: smaller ones add nothing to any sum
_LEAST_LOG_SHARE = -100.0
_ROUNDING = 6755399441055744.0  # 1.5 * 2^52: what is added to it is rounded to an integer
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
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
def _exponential(scores, r, top, rounded, doubling):
    """exp(scores - top) in place, 0 below exp(-100): 2^n exp(f), |f| <= log(2) / 2, by its series. No call in a loop.

    ``rounded`` and ``doubling`` are work space. n stands in the last bits of a float of 2^52 and more, and the powers
    of 2 are made from their bits.
    """
    integers, powers = rounded.view(np.int64), doubling.view(np.float64)
    for i in range(r):
        below = scores[i] - top[i]
        x = below if below > _LEAST_LOG_SHARE else _LEAST_LOG_SHARE
        rounded[i] = x * _LOG2_E + _ROUNDING
        n = rounded[i] - _ROUNDING
        f = (x - n * _LN2_HIGH) - n * _LN2_LOW
        series = 1.0 / 6227020800.0
        series = series * f + 1.0 / 479001600.0
        series = series * f + 1.0 / 39916800.0
        series = series * f + 1.0 / 3628800.0
        series = series * f + 1.0 / 362880.0
        series = series * f + 1.0 / 40320.0
        series = series * f + 1.0 / 5040.0
        series = series * f + 1.0 / 720.0
        series = series * f + 1.0 / 120.0
        series = series * f + 1.0 / 24.0
        series = series * f + 1.0 / 6.0
        series = series * f + 0.5
        series = series * f + 1.0
        scores[i] = series * f + 1.0 if below > _LEAST_LOG_SHARE else 0.0
    for i in range(r):
        doubling[i] = (integers[i] + 1023) << 52
    for i in range(r):
        scores[i] *= powers[i]


@njit(cache=True, nogil=True, fastmath=_EXACT, error_model="numpy")
def _shares(scores, r, densities, labels, start, top, total, rounded, doubling):
    """Turn scores into the shares of the components in each row, and note its log density and largest component."""
    for i in range(r):
        top[i], total[i], doubling[i] = scores[0, i], 0.0, 0
    for c in range(1, scores.shape[0]):
        for i in range(r):
            larger = scores[c, i] > top[i]
            top[i] = scores[c, i] if larger else top[i]
            doubling[i] = c if larger else doubling[i]
    for i in range(r):
        labels[start + i] = doubling[i]
        top[i] = top[i] if top[i] > -np.inf else 0.0  # too far away for any number: all shares are 0
    for c in range(scores.shape[0]):
        _exponential(scores[c], r, top, rounded, doubling)
        for i in range(r):
            total[i] += scores[c, i]
    for i in range(r):
        densities[start + i] = top[i] + np.log(total[i])
        total[i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
    for c in range(scores.shape[0]):
        for i in range(r):
            scores[c, i] *= total[i]


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
        b = 0
        while full and b + 4 <= a:
            p0, p1, p2, p3 = 0.0, 0.0, 0.0, 0.0
            for i in range(m):
                p0 += line[i] * gap[b, i]
                p1 += line[i] * gap[b + 1, i]
                p2 += line[i] * gap[b + 2, i]
                p3 += line[i] * gap[b + 3, i]
            sums[at] += p0
            sums[at + 1] += p1
            sums[at + 2] += p2
            sums[at + 3] += p3
            at, b = at + 4, b + 4
        while full and b < a:
            p0 = 0.0
            for i in range(m):
                p0 += line[i] * gap[b, i]
            sums[at] += p0
            at, b = at + 1, b + 1


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
    top, total = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS)
    rounded, doubling = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    u, losses, kept = np.empty(_TILE_ROWS), np.empty(_TILE_ROWS), np.empty(_TILE_ROWS, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE_ROWS):
            r = min(stop, start + _TILE_ROWS) - start
            for i in range(r):
                for a in range(d):
                    points[a, i] = X[start + i, a]
            for c in range(k):
                _score(points, r, heights[c], means[c], factors[c], gap, line, square, scores[c])
            _shares(scores, r, densities, labels, start, top, total, rounded, doubling)
            if chances.size > 0:
                for i in range(r):
                    for c in range(k):
                        chances[start + i, c] = scores[c, i]
            if mode == 0:
                continue
            for i in range(r):
                u[i] = weight[start + i] if weight.size > 0 else 1.0
                losses[i] = -densities[start + i] if densities[start + i] > -np.inf else 0.0
            for c in range(k):
                if mode == HARD:
                    for i in range(r):
                        scores[c, i] = 1.0 if labels[start + i] == c else 0.0
                m = np.int64(0)
                for i in range(r):
                    kept[m] = i
                    m += 1 if scores[c, i] > _LEAST_SHARE else 0
                if 4 * m > 3 * r:  # rows with no share add nothing, and cost less than to leave them out
                    for i in range(r):
                        share[i] = scores[c, i] * u[i]
                    for a in range(d):
                        for i in range(r):
                            gap[a, i] = points[a, i] - means[c, a]
                    _add(gap, line, share, losses, r, full, sums[part, c])
                elif m > 0:
                    for j in range(m):
                        share[j], loss[j] = scores[c, kept[j]] * u[kept[j]], losses[kept[j]]
                    for a in range(d):
                        for j in range(m):
                            gap[a, j] = points[a, kept[j]] - means[c, a]
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
