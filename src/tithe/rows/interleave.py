"""Columns into rows: the step between a columnar file and a C-ordered or a CSR matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

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


@njit(cache=True, nogil=True)
def _place_dense(block, codes, first, free, indices, data):
    for i in range(len(codes)):
        row, at = codes[i], free[i]
        for j in range(block.shape[1]):
            if block[row, j] != 0.0:
                indices[at] = first + j
                data[at] = block[row, j]
                at += 1
        free[i] = at


@njit(cache=True, nogil=True)
def _place(rows, places, values, first, free, indices, data):
    for k in range(len(rows)):
        i = rows[k]
        indices[free[i]] = first + places[k]
        data[free[i]] = values[k]
        free[i] += 1


class Repeated(NamedTuple):
    """A dense block: row i of a matrix has the row ``codes[i]`` of ``block`` in it."""

    block: Array
    codes: Array


def sparse_rows(parts: Sequence[Any], firsts: Sequence[int], shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """A CSR matrix of parts side by side, each from its first column on.

    A part is a `Repeated` block, or the rows, columns and values of its entries, ordered by row and column.

    >>> entries = np.array([0, 1]), np.array([1, 0]), np.array([5.0, 6.0])
    >>> dense = Repeated(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1]))
    >>> sparse_rows([dense, entries], [0, 2], (2, 4), np.dtype("float64")).toarray()
    array([[1., 0., 0., 5.],
           [0., 2., 6., 0.]])
    """
    ends = np.zeros(shape[0] + 1, np.int64)
    for part in parts:
        if isinstance(part, Repeated):
            ends[1:] += np.count_nonzero(part.block, axis=1)[part.codes]
        else:
            ends[1:] += np.bincount(part[0], minlength=shape[0])
    np.cumsum(ends, out=ends)
    index_type = np.int32 if max(int(ends[-1]), shape[1]) < 2**31 else np.int64
    indices, data, free = np.empty(ends[-1], index_type), np.empty(ends[-1], dtype), ends[:-1].copy()
    with np.errstate(over="ignore"):  # what is too large for the type is not finite there
        for part, first in zip(parts, firsts, strict=True):
            (_place_dense if isinstance(part, Repeated) else _place)(*part, first, free, indices, data)
    X = sparse.csr_matrix((data, indices, ends.astype(index_type)), shape=shape, copy=False)
    X.has_canonical_format = True
    return X
