"""Class labels as numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tithe.core.data import Array, Block
from tithe.kernels.labels import count_codes, distinct_labels, label_numbers


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
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
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
            raise ValueError(f"y holds labels of different kinds, or gaps, which cannot be sorted: {error}.") from error
        if labels.dtype.kind == "f" and not (np.isfinite(labels).all() and np.array_equal(labels, np.trunc(labels))):
            finite = np.isfinite(labels).all()
            values = f"{len(labels)} values such as {labels.tolist()[0]!r}" if finite else "NaN or infinity"
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
        codes = label_numbers(block.y, labels)
        if codes.min() < 0:
            raise ValueError(
                f"y holds {block.y[codes < 0].tolist()[0]!r}, which is not among the {len(labels)} classes known: "
                f"{', '.join(map(repr, labels[:5].tolist()))}{', ...' if len(labels) > 5 else ''}. "
                "Name all of them beforehand: classes=(...)."
            )
        return codes
