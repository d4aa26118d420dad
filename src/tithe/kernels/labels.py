"""Labels to numbers without sorting millions of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_LARGEST = 1 << 53  # whole numbers beyond this are not exact as floats
_RANGE = 1 << 16  # whole numbers this close together are counted instead of sorted


@njit(cache=True, nogil=True)
def _present(y, low, seen):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        seen[np.int64(y[i]) - low] = True


@njit(cache=True, nogil=True)
def _numbered(y, low, table, codes):  # type: ignore[no-untyped-def]
    for i in range(y.shape[0]):
        at = np.int64(y[i]) - low
        codes[i] = table[at] if 0 <= at < table.shape[0] else -1


def _whole(y: Array) -> Array | None:
    """Labels as an array of whole numbers, if that is what they are."""
    if y.dtype.kind == "b":
        return y.view(np.uint8)
    whole = y.dtype.kind in "iu" or (y.dtype.kind == "f" and np.array_equal(y, np.trunc(y)))
    return y if whole and len(y) else None


def label_numbers(y: Array, labels: Array) -> Array:
    """The place of each row's label in ``labels``, or -1 for one that is not there: (n,) int32."""
    values, known = _whole(y), _whole(labels)
    if values is not None and known is not None:
        low, high = int(known.min()), int(known.max())
        if high - low < _RANGE and max(-low, high) < _LARGEST:
            table = np.full(high - low + 1, -1, np.int32)
            table[known.astype(np.int64) - low] = np.arange(len(known))
            codes = np.empty(len(y), np.int32)
            _numbered(values, low, table, codes)
            return codes
    order = np.argsort(labels, kind="stable")
    at = np.minimum(np.searchsorted(labels[order], y), len(labels) - 1)
    found = order[at]
    return np.where(labels[found] == y, found, -1).astype(np.int32)


def encode_labels(y: Array) -> tuple[Array, Array]:
    """The distinct labels in ascending order, and the number of each row's label: (n,) int32.

    The same as ``np.unique(y, return_inverse=True)``, in two quick looks where labels are whole numbers.
    """
    values = _whole(y)
    if values is not None:
        low, high = int(values.min()), int(values.max())
        if high - low < _RANGE and max(-low, high) < _LARGEST:
            seen = np.zeros(high - low + 1, np.bool_)
            _present(values, low, seen)
            found = np.flatnonzero(seen)
            table = np.zeros(len(seen), np.int32)
            table[found] = np.arange(len(found))
            codes = np.empty(len(y), np.int32)
            _numbered(values, low, table, codes)
            return (found + low).astype(y.dtype), codes
    labels, inverse = np.unique(y, return_inverse=True)
    return labels, inverse.astype(np.int32)
