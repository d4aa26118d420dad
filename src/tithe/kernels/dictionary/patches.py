"""Square patches cut out of a picture, and put back over one another."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.kernels.parts import part_rows

_BAND_COLUMNS = 256  # columns of a picture that one part adds to


@njit(cache=True, nogil=True)
def _cut(plane, top, left, side, centred, X, energy, first, last, rows):
    n, d = X.shape
    for i in range(first * rows, min(n, last * rows)):
        y, x = top[i], left[i]
        total = 0.0
        at = 0
        for a in range(side):
            for b in range(side):
                value = plane[y + a, x + b]
                X[i, at] = value
                total += value
                at += 1
        mean = X.dtype.type(total / d) if centred else X.dtype.type(0.0)
        square = 0.0
        for j in range(d):
            value = X[i, j] - mean
            X[i, j] = value
            square += np.float64(value) * value
        energy[i] = square


def cut_patches(plane: Array, top: Array, left: Array, side: int, *, centred: bool) -> tuple[Array, Array]:
    """Patches (n, side * side) of a picture (h, w) at their upper left corners, and their energies (n,) float64.

    ``centred``: each less its own mean, which is computed in double precision, so that a constant patch becomes zero.
    """
    n = len(top)
    X, energy = np.empty((n, side * side), plane.dtype), np.empty(n)
    rows = part_rows(n, 1)
    over_parts(
        lambda first, last: _cut(plane, top, left, side, centred, X, energy, first, last, rows),
        -(-n // rows),
        serial=X.size < 500_000,
    )
    return X, energy


@njit(cache=True, nogil=True)
def _add(rows, tops, lefts, side, into, first, last):
    width = into.shape[1]
    across = lefts.shape[0]
    for part in range(first, last):
        start, stop = part * _BAND_COLUMNS, min(width, (part + 1) * _BAND_COLUMNS)
        j0 = np.searchsorted(lefts, start - side + 1)
        j1 = np.searchsorted(lefts, stop)
        for i in range(tops.shape[0]):
            for j in range(j0, j1):
                x = lefts[j]
                low, high = max(0, start - x), min(side, stop - x)
                for a in range(side):
                    for b in range(low, high):
                        into[tops[i] + a, x + b] += rows[i * across + j, a * side + b]


def add_patches(rows: Array, tops: Array, lefts: Array, side: int, into: Array) -> None:
    """Adds the patches (len(tops) * len(lefts), side * side) to a picture ``into``, both corners ascending.

    A part is a band of columns, and patches are added to a pixel in the order of the rows: the result does not depend
    on the number of threads, nor on how the rows of patches are batched, if they come from top to bottom.
    """
    over_parts(
        lambda first, last: _add(rows, tops, lefts, side, into, first, last),
        -(-into.shape[1] // _BAND_COLUMNS),
        serial=rows.size < 500_000,
    )
