"""Squared distances to the nearest subspace, computed from the residual of the projection."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.kernels.parts import part_rows


# called for every row: without counting references, which would take half the time
@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, _nrt=False)  # type: ignore[call-overload]
def _squared_residual(X, i, bases, g, residual):
    """The squared residual of the projection of a row onto subspace g."""
    d = X.shape[1]
    for j in range(d):
        residual[j] = X[i, j]
    for b in range(bases.shape[1]):
        share = 0.0
        for j in range(d):
            share += bases[g, b, j] * residual[j]
        for j in range(d):
            residual[j] -= share * bases[g, b, j]
    square = 0.0
    for j in range(d):
        square += residual[j] * residual[j]
    return square


@njit(cache=True, nogil=True)
def _nearest_subspaces(X, bases, labels, error, first, last, rows):
    residual = np.empty(X.shape[1])
    for part in range(first, last):
        for i in range(part * rows, min(X.shape[0], (part + 1) * rows)):
            error[i], labels[i] = np.inf, 0
            for g in range(bases.shape[0]):
                square = _squared_residual(X, i, bases, g, residual)
                if square < error[i]:
                    error[i], labels[i] = square, g


def subspace_errors(X: Array, bases: Array) -> tuple[Array, Array]:
    """The nearest of the subspaces (g, j, d), each spanned by j orthonormal rows, and the squared distance: (n,)."""
    n = len(X)
    labels, error = np.empty(n, np.int32), np.empty(n)
    bases = np.ascontiguousarray(bases, np.float64)
    rows = part_rows(n, 1)
    serial = n * bases.size < 500_000
    over_parts(lambda a, b: _nearest_subspaces(X, bases, labels, error, a, b, rows), -(-n // rows), serial=serial)
    return labels, error
