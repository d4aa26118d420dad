"""Class labels: their numbers, without sorting millions of them, their weights, and objectives of rows with classes."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.parallel import over_parts
from tithe.core.params import MOST_CLASSES

_MAX_EXACT_INTEGER = 1 << 53  # whole numbers beyond this are not exact as floats
_PART_ROWS = 65_536
_MAX_CLASSES_ONE_BY_ONE = 8  # up to which rows are counted class by class
_MAX_CLASSES, _MAX_NUMBER_CLASSES = 200, 100  # of a target that is taken as classes, and of one of numbers
_FEW_ROWS = 20  # a class on average, with which more than 100 classes are names of rows rather than classes
_MAX_LABEL_RANGE = 1 << 16  # whole numbers this close together are counted instead of sorted


def count_codes(codes: Array, n_classes: int) -> Array:
    """Rows of each class and, last, of none of them: (n_classes + 1,)."""
    counts = np.zeros((-(-len(codes) // _PART_ROWS), n_classes + 1), np.int64)

    def count(part: int, rows: slice) -> None:
        if n_classes <= _MAX_CLASSES_ONE_BY_ONE:
            counts[part, :-1] = [np.count_nonzero(codes[rows] == c) for c in range(n_classes)]
        else:
            known = np.clip(codes[rows], -1, n_classes) + 1
            counts[part, :-1] = np.bincount(known, minlength=n_classes + 2)[1:-1]

    _over(len(codes), count)
    total: Array = counts.sum(axis=0)
    total[-1] = len(codes) - total.sum()
    return total


def _over(n: int, work: Callable[[int, slice], None]) -> None:
    """``work(part, rows)`` for parts of the rows that stay in the second-level cache."""

    def run(first: int, last: int) -> None:
        for part in range(first, last):
            work(part, slice(part * _PART_ROWS, (part + 1) * _PART_ROWS))

    over_parts(run, -(-n // _PART_ROWS), serial=n < 4 * _PART_ROWS)


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


def _as_texts(y: Array) -> Any:
    """Python's texts as an Arrow array, None if the labels are anything else: NumPy's own texts are sorted faster."""
    if y.dtype != object:
        return None
    import pyarrow as pa

    try:
        texts = pa.array(y)
    except (pa.ArrowException, UnicodeError, TypeError, OverflowError):
        return None
    return texts if pa.types.is_string(texts.type) and not texts.null_count else None


def label_numbers(y: Array, labels: Array) -> Array:
    """The position of each row's label in ``labels``, -1 if it is not among them: (n,) int32."""
    values, integer_labels = _as_integers(y), _as_integers(labels)
    if values is not None and integer_labels is not None:
        low, high = int(integer_labels.min()), int(integer_labels.max())
        if high - low < _MAX_LABEL_RANGE and max(-low, high) < _MAX_EXACT_INTEGER:
            table = np.full(high - low + 3, -1, np.int32)  # its ends are for labels below and above all
            table[integer_labels.astype(np.int64) - low + 1] = np.arange(len(integer_labels))
            codes = np.empty(len(y), np.int32)

            def number(part: int, rows: slice) -> None:
                part_values = values[rows]
                if values.dtype.kind == "f":  # a large one is beyond all whole numbers
                    part_values = np.clip(part_values, low - 1, high + 1)
                at = part_values.astype(np.int64, copy=False) - (low - 1)  # what overflows ends up beyond the labels
                np.take(table, at, out=codes[rows], mode="clip")

            _over(len(y), number)
            return codes
    texts, text_labels = _as_texts(y), _as_texts(labels.astype(object))
    if texts is not None and text_labels is not None:
        from pyarrow.compute import index_in

        positions: Array = index_in(texts, value_set=text_labels).fill_null(-1).to_numpy()
        return positions
    order = np.argsort(labels, kind="stable")
    at = np.minimum(np.searchsorted(labels[order], y), len(labels) - 1)
    positions = order[at]
    return np.where(labels[positions] == y, positions, -1).astype(np.int32)


def distinct_labels(y: Array) -> Array:
    """The same as ``np.unique(y)``, without sorting all of them if labels are whole numbers or text."""
    values = _as_integers(y)
    if values is not None:
        low, high = int(values.min()), int(values.max())
        if high - low < _MAX_LABEL_RANGE and max(-low, high) < _MAX_EXACT_INTEGER:
            present = np.zeros(high - low + 1, np.bool_)

            def mark(part: int, rows: slice) -> None:
                present[values[rows].astype(np.int64, copy=False) - low] = True

            _over(len(y), mark)
            labels: Array = (np.flatnonzero(present) + low).astype(y.dtype)
            return labels
    texts = _as_texts(y)
    return np.unique(y) if texts is None else np.array(sorted(texts.unique().to_pylist()), y.dtype)


def checked_classes(y: Array) -> Array:
    """The labels. Floating point numbers that are not integers are refused."""
    if y.dtype.kind not in "biu" and _as_texts(y) is None:  # integers and texts need no check, which would sort them
        from sklearn.utils.multiclass import check_classification_targets

        try:
            check_classification_targets(y)
        except ValueError as error:
            raise ValueError(
                f"{error} If y is a quantity, take a regressor: CoresetRidge, or tithe fit ridge."
            ) from None
    return y


def refuse_gaps(y: Array, row_ids: Array | None = None) -> None:
    """Refuse a target with gaps or infinities, by their number and the first row that has one."""
    if y.dtype.kind == "f":
        gaps = ~np.isfinite(y)
    elif y.dtype == object and _as_texts(y) is None:
        gaps = np.array([label is None or str(label) in ("nan", "NaT", "<NA>") for label in y], bool)
    else:
        return
    if gaps.any():
        first = int(gaps.argmax()) if row_ids is None else int(row_ids[gaps.argmax()])
        what = "infinity" if y.dtype.kind == "f" and not np.isnan(y).any() else "NaN"
        raise ValueError(
            f"Input y contains {what}. It has no value in {gaps.sum():,} of {len(y):,} rows, first in row {first:,}: "
            "leave these rows out of X and y, or put values in."
        )


def unsortable(y: Array, row_ids: Array | None, error: TypeError) -> ValueError:
    """The error for labels that cannot be sorted: gaps are told apart from labels of several kinds."""
    refuse_gaps(y, row_ids)
    return ValueError(f"y holds labels of different kinds, which cannot be sorted: {error}.")


def encoded_classes(y: Array) -> tuple[Array, Array]:
    """The classes in y in ascending order, and the class number of each row: (n,) int32."""
    refuse_gaps(y)
    try:
        labels = distinct_labels(checked_classes(y))
    except TypeError as error:
        raise unsortable(y, None, error) from error
    return labels, label_numbers(y, labels)


def holds_classes(y: Array) -> bool:
    """Whether a target holds classes: text, true or false, or whole numbers of at most `MOST_CLASSES` values."""
    if y.dtype.kind not in "iuf":
        return True
    whole = y.dtype.kind in "iu" or bool((y == y.round()).all())
    return whole and len(distinct_labels(y)) <= MOST_CLASSES


def seem_no_classes(labels: Array, n_rows: int) -> bool:
    """Whether the distinct values of a target are more likely a quantity, or names of rows, than classes.

    >>> seem_no_classes(np.arange(150), 10**6), seem_no_classes(np.array(["a", "b"]), 40)
    (True, False)
    """
    is_number = labels.dtype.kind in "iuf"
    if labels.dtype.kind == "f" and not bool((labels == labels.round()).all()):
        return True
    if len(labels) > _MAX_NUMBER_CLASSES and n_rows < _FEW_ROWS * len(labels):
        return True
    return len(labels) > (_MAX_NUMBER_CLASSES if is_number else _MAX_CLASSES)


def commonest_class(y: Array, weight: Array) -> tuple[Any, float]:
    """The class with the most weight, and its share: the accuracy of a model that knows nothing else."""
    labels = distinct_labels(y)
    mass = np.bincount(label_numbers(y, labels), weights=weight, minlength=len(labels))
    return labels.tolist()[int(mass.argmax())], float(mass.max() / mass.sum())


def is_balanced(class_weight: Any) -> bool:
    return isinstance(class_weight, str) and class_weight == "balanced"


def class_factors(class_weight: Any, classes: Array, mass: Array | None) -> Array:
    """Factors of the weights of each class. "balanced" needs ``mass``, the total weight of each class."""
    if is_balanced(class_weight):
        if mass is None:
            raise ValueError(
                "class_weight='balanced' needs the weight of every class before the first row is read, and these rows "
                "come only once: give the weights as a dict."
            )
        with np.errstate(divide="ignore"):
            factors: Array = mass.sum() / (len(mass) * mass)
        return np.where(mass > 0, factors, 0.0)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}.")
    known = classes.tolist()
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not a class of y: {known[:5]}.")
    weights = [class_weight.get(label, 1.0) for label in known]
    if not all(isinstance(w, numbers.Real) for w in weights):
        raise ValueError(f"Class weights must be numbers, got {class_weight!r}.")
    factors = np.array(weights, np.float64)
    if not (np.isfinite(factors).all() and (factors >= 0).all()):
        raise ValueError(f"Class weights must be finite and not negative, got {class_weight!r}.")
    return factors


def weights_by_class(class_weight: Any, classes: Array, codes: Array, weight: Array | None) -> Array | None:
    """The weights of rows times those of their classes. ``codes`` are the class numbers of the rows."""
    if class_weight is None:
        return weight
    mass = np.bincount(codes, weights=weight, minlength=len(classes))
    factor = class_factors(class_weight, classes, mass)
    return factor[codes] if weight is None else weight * factor[codes]


@dataclass(frozen=True, kw_only=True)
class LabelledObjective:
    """An objective of rows with classes.

    Parameters
    ----------
    classes : tuple or None
        The labels that y may hold, in the order of their numbers 0 .. K - 1. None: those of the
        rows at hand, in ascending order.
    """

    classes: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.classes is None:
            return
        if len(self.classes) == 1:
            raise ValueError(f"There is only one class, {self.classes[0]!r}: at least two are needed.")
        if len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError(f"classes must be at least two different labels, got {self.classes!r}.")

    @property
    def lacks_classes(self) -> bool:
        """Whether the classes are still to be taken from the rows."""
        return self.classes is None

    @property
    def n_classes(self) -> int:
        if self.classes is None:
            raise ValueError("The classes are not known yet: give classes=, or call for_rows() with rows that have y.")
        return len(self.classes)

    def for_rows(self, block: Block) -> Self:
        """The objective with the classes of these rows, unless classes were given."""
        if block.y is None:
            raise ValueError(f"Objective {type(self).__name__} needs a class for every row: give y.")
        if self.classes is not None:
            return self
        try:
            labels = distinct_labels(block.y)
        except TypeError as error:
            raise unsortable(block.y, block.row_ids(), error) from error
        refuse_gaps(block.y, block.row_ids())
        if labels.dtype.kind == "f" and not np.array_equal(labels, np.trunc(labels)):
            values = f"{len(labels)} values such as {labels.tolist()[0]!r}"
            raise ValueError(f"y holds {values}: these are no classes.")
        if len(labels) < 2:
            raise ValueError(
                f"y holds only one class, {labels.tolist()[0]!r}, in the rows at hand: there is nothing to tell apart. "
                f"If others come later in a stream, name all: {type(self).__name__}(classes=...)."
            )
        return replace(self, classes=tuple(labels.tolist()))

    def codes(self, block: Block) -> Array:
        """The number of the class of each row: (n,) int32."""
        if block.y is None:
            raise ValueError(f"Objective {type(self).__name__} needs a class for every row: give y.")
        if len(block.y) == 0:
            return np.empty(0, np.int32)
        plain = block.y.dtype == np.int32 and self.classes == tuple(range(self.n_classes))
        # kernels use these numbers as indices without checking them
        if plain and count_codes(block.y, self.n_classes)[-1] == 0:
            return block.y
        labels = np.asarray(self.classes)
        try:
            codes = label_numbers(block.y, labels)
        except TypeError as error:
            raise unsortable(block.y, block.row_ids(), error) from error
        if codes.min() < 0:
            raise ValueError(
                f"y holds {block.y[codes < 0].tolist()[0]!r}, which is not among the {len(labels)} classes known: "
                f"{', '.join(map(repr, labels[:5].tolist()))}{', ...' if len(labels) > 5 else ''}. "
                "Name all of them beforehand: classes=(...)."
            )
        return codes
