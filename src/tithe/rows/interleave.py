"""Columns into rows: the step between a columnar file and a C-ordered matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from tithe.core.data import Array

_GROUP_COLUMNS = 64
_BUFFER_BYTES = 2**18  # stays in the second-level cache beside the rows that are written
_PADDING = 16  # columns a power of two apart would share the same cache lines


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _transpose(columns, n_columns, n_rows, rows, first_row, first_column):
    """Write the columns into the rows; False if one of the values, in the type of the rows, is not finite."""
    for i in range(n_rows):
        for j in range(n_columns):
            rows[first_row + i, first_column + j] = columns[j, i]
    zero = rows.dtype.type(0)
    zeros = zero
    for j in range(n_columns):
        for i in range(n_rows):
            zeros += zero * rows.dtype.type(columns[j, i])  # NaN if the value is not finite
    return zeros == 0


@njit(cache=True, nogil=True)
def _scale(columns, n_columns, n_rows, centers, factors):
    """Centre and scale the columns in place; not in `_transpose`, whose loose arithmetic would change bits."""
    for j in range(n_columns):
        center = centers[j]
        factor = factors[j]
        for i in range(n_rows):
            columns[j, i] = (np.float64(columns[j, i]) - center) * factor


def interleave(
    columns: Sequence[Array],
    rows: Array,
    first_row: int,
    first_column: int,
    scaling: tuple[Array, Array] | None = None,
) -> bool:
    """Write 1-d ``columns`` of any numeric type side by side into the C-ordered ``rows``.

    ``scaling`` are the center and the factor of each column: (x - center) * factor, in double precision, is written
    instead of x. Returns False if one of the values, in the type of ``rows``, is not finite.

    >>> rows = np.zeros((3, 4), np.float32)
    >>> interleave([np.array([1, 2]), np.array([0.5, np.nan])], rows, 1, 2)
    False
    >>> rows
    array([[0. , 0. , 0. , 0. ],
           [0. , 0. , 1. , 0.5],
           [0. , 0. , 2. , nan]], dtype=float32)
    """
    finite = True
    n = len(columns[0]) if columns else 0
    for start in range(0, len(columns), _GROUP_COLUMNS):
        group = columns[start : start + _GROUP_COLUMNS]
        height = max(64, _BUFFER_BYTES // (len(group) * rows.itemsize))
        exact = scaling is None or all(np.can_cast(column.dtype, rows.dtype) for column in group)
        buffer = np.empty((len(group), height + _PADDING), rows.dtype if exact else np.float64)
        for top in range(0, n, height):
            size = min(height, n - top)
            with np.errstate(over="ignore"):  # what is too large for the rows is not finite there
                for line, column in zip(buffer, group, strict=True):
                    line[:size] = column[top : top + size]
            if scaling is not None:
                centers, factors = (part[start : start + _GROUP_COLUMNS] for part in scaling)
                _scale(buffer, len(group), size, centers, factors)
            finite &= _transpose(buffer, len(group), size, rows, first_row + top, first_column + start)
    return finite
