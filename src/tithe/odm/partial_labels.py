"""Labels of which some are missing."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array
from tithe.fit.labels import encoded_classes


def encoded_partly(y: Array, unlabeled: Any, weight: Array) -> tuple[Array, Array]:
    """The classes in y, and the class number of each row (n,), -1 for rows without a label."""
    known = np.flatnonzero(~_missing(y, unlabeled))
    if len(known) == 0:
        what = "missing" if unlabeled is None else f"{unlabeled!r} or missing"
        raise ValueError(f"y holds no labels: every entry is {what}. Label some rows.")
    classes, class_numbers = encoded_classes(_plain_numbers(y[known]))
    if len(classes) < 2:
        only = classes.tolist()[0]
        raise ValueError(f"y holds only one class, {only!r}: there is nothing to tell apart. Label rows of others.")
    if not np.bincount(class_numbers, weights=weight[known], minlength=len(classes)).all():
        raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
    codes = np.full(len(y), -1)
    codes[known] = class_numbers
    return classes, codes


def _plain_numbers(labels: Array) -> Array:
    """Labels of an object array that are all Boolean, all whole numbers or all numbers, as such; others as they are."""
    if labels.dtype != object:
        return labels
    for dtype, kind in ((np.bool_, (bool, np.bool_)), (np.int64, numbers.Integral), (np.float64, numbers.Real)):
        if all(isinstance(label, kind) for label in labels.tolist()):
            return labels.astype(dtype)
    return labels


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


def warn_of_dropped_rows(source: Source, n_rows: int) -> None:
    """Warn if a source of labelled rows only has left others out, which may be those without a label."""
    n_all = source.count()
    if n_all is not None and n_all > n_rows:
        warnings.warn(
            f"All {n_rows} rows of the source have a label, and {n_all - n_rows} others were left out. Open it with "
            "missing_target='keep' to learn from rows without a label, too.",
            UserWarning,
            stacklevel=3,
        )
