"""One look over all entries: weighted column sums, and whether everything is finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.kernels.parts import add_parts, part_rows
from tithe.kernels.threads import over_parts

Array = np.ndarray[Any, Any]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dense_sums(X, weight, sums, first, last, rows):  # type: ignore[no-untyped-def]
    n, d = X.shape
    few = np.empty(d, np.float64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, 64):
            few[:] = 0.0
            for i in range(start, min(stop, start + 64)):
                u = weight[i] if weight.size > 0 else 1.0
                for j in range(d):
                    few[j] += u * X[i, j]
            for j in range(d):
                sums[part, j] += few[j]


def column_sums(X: Any, weight: Array | None = None) -> Array:
    """Weighted column sums (d,) in float64. Not finite exactly when a row of weight > 0 is not."""
    n, d = X.shape
    if sparse.issparse(X):
        return np.asarray(X.T @ (np.ones(n) if weight is None else weight), np.float64)
    rows = part_rows(n, 8 * d)
    n_parts = -(-n // rows)
    sums = np.zeros((n_parts, d))
    u = np.empty(0) if weight is None else weight
    over_parts(lambda first, last: _dense_sums(X, u, sums, first, last, rows), n_parts, serial=n * d < 100_000)
    return add_parts(sums)
