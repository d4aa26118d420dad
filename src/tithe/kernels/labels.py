"""Labels to numbers without sorting millions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from tithe.core.parallel import over_parts

Array = np.ndarray[Any, Any]

_MAX_EXACT_INTEGER = 1 << 53  # whole numbers beyond this are not exact as floats
_PART_ROWS = 65_536
_MAX_CLASSES_ONE_BY_ONE = 8  # up to which rows are counted class by class
_MAX_LABEL_RANGE = 1 << 16  # whole numbers this close together are counted instead of sorted


@njit(cache=True, nogil=True)
def _present(y, low, present, first, last):  # type: ignore[no-untyped-def]
    for i in range(first * _PART_ROWS, min(y.shape[0], last * _PART_ROWS)):
        present[np.int64(y[i]) - low] = True


@njit(cache=True, nogil=True)
def _numbered(y, low, table, codes, first, last):  # type: ignore[no-untyped-def]
    for i in range(first * _PART_ROWS, min(y.shape[0], last * _PART_ROWS)):
        at = np.int64(y[i]) - low
        codes[i] = table[at] if 0 <= at < table.shape[0] else -1


@njit(cache=True, nogil=True)
def _counted_by_class(codes, counts, first, last):  # type: ignore[no-untyped-def]
    """A few classes, one after the other: a sum of comparisons is made for many rows at a time."""
    unknown = counts.shape[1] - 1
    for part in range(first, last):
        rows = codes[part * _PART_ROWS : (part + 1) * _PART_ROWS]
        n_known = 0
        for c in range(unknown):
            count = 0
            for i in range(rows.shape[0]):
                count += 1 if rows[i] == c else 0
            counts[part, c] = count
            n_known += count
        counts[part, unknown] = rows.shape[0] - n_known


@njit(cache=True, nogil=True)
def _counted(codes, counts, first, last):  # type: ignore[no-untyped-def]
    unknown = counts.shape[1] - 1
    for part in range(first, last):
        for i in range(part * _PART_ROWS, min(codes.shape[0], (part + 1) * _PART_ROWS)):
            counts[part, codes[i] if 0 <= codes[i] < unknown else unknown] += 1


def count_codes(codes: Array, n_classes: int) -> Array:
    """Rows of each class and, last, of none of them: (n_classes + 1,)."""
    counts = np.zeros((-(-len(codes) // _PART_ROWS), n_classes + 1), np.int64)
    count = _counted_by_class if n_classes <= _MAX_CLASSES_ONE_BY_ONE else _counted
    _over(len(codes), lambda a, b: count(codes, counts, a, b))
    total: Array = counts.sum(axis=0)
    return total


def _over(n: int, kernel: Callable[[int, int], object]) -> None:
    over_parts(kernel, -(-n // _PART_ROWS), serial=n < 4 * _PART_ROWS)


def _as_integers(y: Array) -> Array | None:
    """Labels as an array of whole numbers, None if they are not."""
    if y.dtype.kind == "b":
        return y.view(np.uint8)
    if y.dtype == np.float16:
        y = y.astype(np.float32)
    is_integer = y.dtype.kind in "iu" or (
        y.dtype.kind == "f" and np.isfinite(y).all() and np.array_equal(y, np.trunc(y))
    )
    return y if is_integer and len(y) else None


def label_numbers(y: Array, labels: Array) -> Array:
    """The position of each row's label in ``labels``, -1 if it is not among them: (n,) int32."""
    values, integer_labels = _as_integers(y), _as_integers(labels)
    if values is not None and integer_labels is not None:
        low, high = int(integer_labels.min()), int(integer_labels.max())
        if high - low < _MAX_LABEL_RANGE and max(-low, high) < _MAX_EXACT_INTEGER:
            table = np.full(high - low + 1, -1, np.int32)
            table[integer_labels.astype(np.int64) - low] = np.arange(len(integer_labels))
            codes = np.empty(len(y), np.int32)
            _over(len(y), lambda a, b: _numbered(values, low, table, codes, a, b))
            return codes
    order = np.argsort(labels, kind="stable")
    at = np.minimum(np.searchsorted(labels[order], y), len(labels) - 1)
    positions = order[at]
    return np.where(labels[positions] == y, positions, -1).astype(np.int32)


def distinct_labels(y: Array) -> Array:
    """The same as ``np.unique(y)``, without sorting if labels are whole numbers."""
    values = _as_integers(y)
    if values is not None:
        low, high = int(values.min()), int(values.max())
        if high - low < _MAX_LABEL_RANGE and max(-low, high) < _MAX_EXACT_INTEGER:
            present = np.zeros(high - low + 1, np.bool_)
            _over(len(y), lambda a, b: _present(values, low, present, a, b))
            labels: Array = (np.flatnonzero(present) + low).astype(y.dtype)
            return labels
    return np.unique(y)


def encode_labels(y: Array) -> tuple[Array, Array]:
    """The distinct labels in ascending order, and the number of each row's label: (n,) int32."""
    labels = distinct_labels(y)
    return labels, label_numbers(y, labels)
