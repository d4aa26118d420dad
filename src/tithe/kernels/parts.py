"""Parts of rows, and sums over parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_GRAIN_ROWS = 1024  # parts are multiples of this many rows
_PART_ROWS = 16 * _GRAIN_ROWS  # rows whose sums are added in one go
_MAX_PARTIAL_BYTES = 1 << 26  # for partial sums, for any n


def part_rows(n_rows: int, partial_bytes: int) -> int:
    """Rows per part: a function of the problem alone, never of the number of threads."""
    max_parts = max(4, _MAX_PARTIAL_BYTES // max(1, partial_bytes))
    preferred = min(_PART_ROWS, -(-n_rows // (16 * _GRAIN_ROWS)) * _GRAIN_ROWS)  # small parts for few rows
    return max(_GRAIN_ROWS, preferred, -(-n_rows // (max_parts * _GRAIN_ROWS)) * _GRAIN_ROWS)


@njit(cache=True, nogil=True)
def _neumaier(parts, total):  # type: ignore[no-untyped-def]
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
