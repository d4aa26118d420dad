"""Labels of which some are missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.learners.labels import encoded_classes


def encoded_partly(y: Array, unlabeled: Any, weight: Array) -> tuple[Array, Array]:
    """The classes in y, and the class number of each row (n,), -1 for rows without a label."""
    known = np.flatnonzero(~_missing(y, unlabeled))
    if len(known) == 0:
        raise ValueError(f"y holds no labels: every entry is {unlabeled!r} or missing. Label some rows.")
    labels = y[known]
    if labels.dtype == object and all(isinstance(label, (float, int)) for label in labels.tolist()):
        labels = labels.astype(np.float64)
    classes, numbers = encoded_classes(labels)
    if len(classes) < 2:
        only = classes.tolist()[0]
        raise ValueError(f"y holds only one class, {only!r}: there is nothing to tell apart. Label rows of others.")
    if not np.bincount(numbers, weights=weight[known], minlength=len(classes)).all():
        raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
    codes = np.full(len(y), -1)
    codes[known] = numbers
    return classes, codes


def _missing(y: Array, unlabeled: Any) -> Array:
    """A mask of the rows without a label."""
    if y.dtype.kind in "biuf":
        gaps = np.isnan(y) if y.dtype.kind == "f" else np.zeros(len(y), bool)
        return gaps if isinstance(unlabeled, str) else gaps | (y == unlabeled)
    return np.array([_is_missing(label, unlabeled) for label in y.tolist()], bool)


def _is_missing(label: Any, unlabeled: Any) -> bool:
    if label is None or (isinstance(label, float) and np.isnan(label)):
        return True
    return isinstance(label, str) == isinstance(unlabeled, str) and bool(label == unlabeled)
