"""Loops over boosted pilots: margins of rows, and the sizes of the gradients there."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


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
