"""Parts of rows, sums over parts, and weighted column sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.parallel import over_parts

_GRAIN_ROWS = 1024  # parts are multiples of this many rows
_PART_ROWS = 16 * _GRAIN_ROWS  # rows whose sums are added in one go
_MAX_PARTIAL_BYTES = 1 << 26  # for partial sums, for any n


def part_rows(n_rows: int, partial_bytes: int) -> int:
    """Rows per part: a function of the problem alone, never of the number of threads."""
    max_parts = max(4, _MAX_PARTIAL_BYTES // max(1, partial_bytes))
    preferred = min(_PART_ROWS, -(-n_rows // (16 * _GRAIN_ROWS)) * _GRAIN_ROWS)  # small parts for few rows
    return max(_GRAIN_ROWS, preferred, -(-n_rows // (max_parts * _GRAIN_ROWS)) * _GRAIN_ROWS)


@njit(cache=True, nogil=True)
def _neumaier(parts, total):
    for j in range(parts.shape[1]):
        done, compensation = 0.0, 0.0
        for i in range(parts.shape[0]):
            part = parts[i, j]
            updated = done + part
            if abs(done) >= abs(part):
                compensation += (done - updated) + part
            else:
                compensation += (part - updated) + done
            done = updated
        total[j] = done + compensation if np.isfinite(compensation) else done  # sums that overflow stay infinite


def add_parts(parts: Array) -> Array:
    """Sum over the first axis, compensated (Neumaier), in the order of the parts."""
    total = np.zeros(parts.shape[1:])
    _neumaier(parts.reshape(len(parts), total.size), total.reshape(-1))
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _part_sums(X, weight, sums, first, last, rows):
    n, d = X.shape
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            u = weight[i] if weight.size > 0 else 1.0
            for j in range(d):
                sums[part, j] += u * X[i, j]


def column_sums(X: Any, weight: Array | None = None) -> Array:
    """Weighted column sums (d,) in float64. Not finite exactly when some entry is not, or the sum is too large."""
    n, d = X.shape
    if sparse.issparse(X):
        return np.asarray(X.T @ (np.ones(n) if weight is None else weight), np.float64)
    if weight is not None:
        return _sum_parts(X, weight)
    # short rows are read several at a time, as one longer row: loops of some length run faster
    fold = max(1, 64 // d)
    n_folded = n - n % fold
    sums: Array = _sum_parts(X[:n_folded].reshape(n_folded // fold, fold * d), None).reshape(fold, d).sum(axis=0)
    return sums + X[n_folded:].sum(axis=0, dtype=np.float64)


def column_means(block: Block) -> Array:
    """The weighted column means (d,); those of the block if it has them already."""
    if block.mean is not None:
        return block.mean
    means: Array = column_sums(block.X, block.sample_weight) / block.total_weight
    return means


def _sum_parts(X: Array, weight: Array | None) -> Array:
    n, d = X.shape
    rows = part_rows(n, 8 * d)
    n_parts = -(-n // rows)
    sums = np.zeros((n_parts, d))
    u = np.empty(0) if weight is None else weight
    over_parts(lambda first, last: _part_sums(X, u, sums, first, last, rows), n_parts, serial=X.size < 100_000)
    return add_parts(sums)
