"""Columns that alone predict the target nearly without error: it is seldom known so well when a prediction is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.rows.effects import numbered
from tithe.rows.encodings import CategoryEncoding, ColumnEncoding, DenseEncoding, VectorEncoding
from tithe.rows.values import coded_texts, is_number, is_text, numbers_of, value_type

_FEWEST_ROWS = 50
_N_BINS = 100  # quantiles of a column of numbers
_MOST_CLASSES = 20  # whole numbers with fewer values are classes
_LEAST_ACCURACY, _LEAST_R2 = 0.99, 0.99
_LEFT_OF_ERROR = 0.05  # of that of the most frequent class
_MOST_COUNTED = 2**20  # pairs of a group and a class
_ROWS_PER_GROUP = 4  # fewer on average tell nothing of the target


def leak(values: Any, encoding: ColumnEncoding, target: tuple[Array, bool], na: Sequence[str]) -> str:
    """How well a column alone predicts the `target_kinds`, in words; empty if not nearly without error.

    The target is predicted by its mean, or most frequent class, in groups of rows with the same value or, for numbers,
    in quantiles: those of the rows with odd numbers from the others, and the other way round.
    """
    if isinstance(encoding, VectorEncoding):
        return ""
    kinds, is_class = target
    groups = _groups(values, encoding, na)
    known = np.flatnonzero((groups >= 0) & np.isfinite(kinds))
    groups, kinds = numbered(groups[known]), kinds[known]
    if len(known) < max(_FEWEST_ROWS, _ROWS_PER_GROUP * (groups.max(initial=0) + 1)) or (kinds == kinds[0]).all():
        return ""
    halves = np.arange(len(known)) % 2
    if is_class:
        found = np.mean([_right(groups, kinds.astype(np.int64), halves == half).mean() for half in (0, 1)])
        most = np.bincount(kinds.astype(np.int64)).max() / len(kinds)
        fits = found >= _LEAST_ACCURACY and 1.0 - found <= _LEFT_OF_ERROR * (1.0 - most)
        return f"it alone predicts the target with an accuracy of {found:.3f}" if fits else ""
    errors = sum(_squares(groups, kinds, halves == half) for half in (0, 1))
    r2 = 1.0 - errors / np.square(kinds - kinds.mean()).sum()
    if isinstance(encoding, DenseEncoding):  # the tails of a straight line are far from the means of their quantiles
        r2 = max(r2, _straight(encoding.read(values, na)[known], kinds))
    return f"it alone predicts the target with an R² of {r2:.3f}" if r2 >= _LEAST_R2 else ""


def target_kinds(target: Any, na: Sequence[str]) -> tuple[Array, bool]:
    """The numbers of the target, or of its classes, NaN where it is missing."""
    has_numbers = is_number(value_type(target.type)) or is_text(target.type)
    if is_text(target.type):
        target = target.dictionary_encode()
    numbers = numbers_of(target, na) if has_numbers else None
    if numbers is not None and np.isfinite(numbers).mean() > 0.5:
        values, codes = np.unique(numbers, return_inverse=True)
        if len(values) > _MOST_CLASSES or (values % 1 != 0).any():
            return numbers, False
        return np.where(np.isnan(numbers), np.nan, codes.astype(np.float64)), True
    codes = coded_texts(target, na)[0].astype(np.float64)
    return np.where(codes < 0, np.nan, codes), True


def _groups(values: Any, encoding: ColumnEncoding, na: Sequence[str]) -> Array:
    """The group of each row (n,), -1 for gaps."""
    if isinstance(encoding, CategoryEncoding):
        return coded_texts(values, na)[0]
    if not isinstance(encoding, DenseEncoding):
        return np.full(len(values), -1)
    numbers = encoding.read(values, na)
    present = numbers[np.isfinite(numbers)]
    if not len(present):
        return np.full(len(values), -1)
    edges = np.unique(np.quantile(present, np.linspace(0.0, 1.0, _N_BINS + 1)[1:-1]))
    return np.where(np.isfinite(numbers), np.searchsorted(edges, numbers, side="right"), -1)


def _right(groups: Array, kinds: Array, half: Array) -> Array:
    """Whether the most frequent class of a group in the other half is the class of each row of this half."""
    n_kinds = kinds.max() + 1
    pairs = groups[~half] * n_kinds + kinds[~half]
    if (groups.max() + 1) * n_kinds <= _MOST_COUNTED:  # no need to sort them
        times = np.bincount(pairs)
        pairs = np.flatnonzero(times)
        times = times[pairs]
    else:
        pairs, times = np.unique(pairs, return_counts=True)
    pairs = pairs[np.argsort(times, kind="stable")]  # the last one of a group is its most frequent
    most = np.full(groups.max() + 1, -1)
    most[pairs // n_kinds] = pairs % n_kinds
    right: Array = most[groups[half]] == kinds[half]
    return right


def _squares(groups: Array, kinds: Array, half: Array) -> float:
    """The squared errors of the means of the groups in the other half, for the rows of this half."""
    n = groups.max() + 1
    times = np.bincount(groups[~half], minlength=n)
    means = np.bincount(groups[~half], kinds[~half], n) / np.maximum(times, 1)
    means[times == 0] = kinds[~half].mean()
    return float(np.square(kinds[half] - means[groups[half]]).sum())


def _straight(numbers: Array, kinds: Array) -> float:
    """The square of the correlation."""
    if numbers.std() == 0.0:
        return 0.0
    return float(np.corrcoef(numbers, kinds)[0, 1] ** 2)
