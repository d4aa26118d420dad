"""Loops over trees: margins of rows, the sizes of the gradients there, and sums over the rows of leaves."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_TINY = 1e-16  # the least second derivative
_DAMPED = math.exp(0.7)  # by which libraries of trees damp the steps of Poisson regression


@njit(cache=True, nogil=True)
def add_trees(X, rows, first, last, starts, output, column, threshold, gap_left, left, right, value, margins):
    """Add the leaf values of trees ``first`` to ``last`` to the margins of some rows."""
    for i in rows:
        for t in range(first, last):
            node = starts[t]
            while left[node] > 0:
                x = X[i, column[node]]
                goes_left = gap_left[node] if math.isnan(x) else x <= threshold[node]
                node = left[node] if goes_left else right[node]
            margins[i, output[t]] += value[node]


@njit(cache=True, nogil=True)
def _class_gradient(margins, i, label, softened):
    """Loss, squared gradient and size of one row of a class, from margins of all classes or of the second of two."""
    k = margins.shape[1]
    if k == 1:
        margin = margins[i, 0] if label == 1 else -margins[i, 0]
        miss = 1.0 / (1.0 + math.exp(margin))
        loss = math.log1p(math.exp(-margin)) if margin > -30.0 else -margin
        spread = miss * (1.0 - miss)
        return loss, miss * miss, math.sqrt(miss * miss + softened * spread * spread)
    top = margins[i, 0]
    for j in range(1, k):
        top = max(top, margins[i, j])
    total = 0.0
    for j in range(k):
        total += math.exp(margins[i, j] - top)
    square, spread = 0.0, 0.0
    for j in range(k):
        chance = math.exp(margins[i, j] - top) / total
        miss = chance - 1.0 if j == label else chance
        square += miss * miss
        spread += (chance * (1.0 - chance)) ** 2
    loss = top + math.log(total) - margins[i, label]
    return loss, square, math.sqrt(square + softened * spread)


@njit(cache=True, nogil=True)
def _number_gradient(margin, y, kind, level):
    """Loss and derivative of one row of a regression."""
    gap = margin - y
    if kind == 1:
        return 0.5 * gap * gap, gap
    if kind == 2:
        return abs(gap), np.sign(gap)
    if kind == 3:
        slope = 1.0 - level if gap > 0.0 else -level
        return slope * gap, slope
    if kind == 4:
        mean = math.exp(margin)
        return mean - y + (y * (math.log(y) - margin) if y > 0.0 else 0.0), mean - y
    ratio = y * math.exp(-margin)
    return ratio - 1.0 - math.log(ratio), 1.0 - ratio


@njit(cache=True, nogil=True)
def gradients(margins, y, kind, level, softened, loss, square, size):
    """Losses, squared gradients and sizes of gradients of rows; ``kind`` is the place of the loss in `LOSSES`."""
    for i in range(margins.shape[0]):
        if kind == 0:
            loss[i], square[i], size[i] = _class_gradient(margins, i, int(y[i]), softened)
        else:
            loss[i], slope = _number_gradient(margins[i, 0], y[i], kind, level)
            square[i], size[i] = slope * slope, abs(slope)


@njit(cache=True, nogil=True)
def _derivatives(kind, margin, y):
    """First and second derivative of a loss with one margin, as boosters take them."""
    if kind == 0:
        p = 1.0 / (1.0 + math.exp(-margin))
        return p - y, max(p * (1.0 - p), _TINY)
    if kind == 1:
        return margin - y, 1.0
    if kind == 2:
        mean = math.exp(margin)
        return mean - y, mean * _DAMPED
    ratio = y * math.exp(-margin)
    return 1.0 - ratio, ratio


@njit(cache=True, nogil=True)
def leaf_sums(kind, scale, margins, y, weight, leaves, first, sums):
    """Add weighted first and second derivatives of rows, and their weights, to the sums of their leaves.

    ``margins`` are (n, K), ``sums`` (K, 3, leaves); row i is in the leaf ``leaves[k, first + i]`` of tree k. ``kind``
    is the place of the loss in `KINDS`; ``scale`` is of the second derivatives of many classes.
    """
    n, n_outputs = margins.shape
    for i in range(n):
        u = weight[i]
        if n_outputs == 1:
            g, h = _derivatives(kind, margins[i, 0], y[i])
            leaf = leaves[0, first + i]
            sums[0, 0, leaf] += u * g
            sums[0, 1, leaf] += u * h
            sums[0, 2, leaf] += u
            continue
        top, total = margins[i, 0], 0.0
        for k in range(n_outputs):
            top = max(top, margins[i, k])
        for k in range(n_outputs):
            total += math.exp(margins[i, k] - top)
        for k in range(n_outputs):
            p = math.exp(margins[i, k] - top) / total
            leaf = leaves[k, first + i]
            sums[k, 0, leaf] += u * (p - 1.0 if k == y[i] else p)
            sums[k, 1, leaf] += u * max(scale * p * (1.0 - p), _TINY)
            sums[k, 2, leaf] += u
