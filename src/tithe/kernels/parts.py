"""How rows are cut into parts, and how the sums of parts are added."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_GRAIN = 1024  # parts are multiples of this many rows
_PART = 16 * _GRAIN  # rows whose sums are added in one go
_PARTIALS = 1 << 26  # bytes allowed for partial sums, whatever n is


def part_rows(n_rows: int, partial_bytes: int) -> int:
    """Rows per part: a function of the problem alone, never of the number of threads."""
    most_parts = max(4, _PARTIALS // max(1, partial_bytes))
    wanted = min(_PART, -(-n_rows // (16 * _GRAIN)) * _GRAIN)  # few rows: small parts, so that all threads get some
    return max(_GRAIN, wanted, -(-n_rows // (most_parts * _GRAIN)) * _GRAIN)


@njit(cache=True, nogil=True)
def _neumaier(parts, total):  # type: ignore[no-untyped-def]
    for j in range(parts.shape[1]):
        done, lost = 0.0, 0.0
        for i in range(parts.shape[0]):
            part = parts[i, j]
            new = done + part
            if abs(done) >= abs(part):
                lost += (done - new) + part
            else:
                lost += (part - new) + done
            done = new
        total[j] = done + lost if np.isfinite(lost) else done  # sums that overflow stay what they are


def add_parts(parts: Array) -> Array:
    """Sum over the first axis, compensated (Neumaier), in the order of the parts."""
    total = np.zeros(parts.shape[1:])
    _neumaier(parts.reshape(len(parts), total.size), total.reshape(-1))
    return total
