"""Class labels as numbers, and linear models of classes: one score for two classes, else one for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.kernels.labels import count_codes, distinct_labels, label_numbers
from tithe.kernels.sampling import sample_rows
from tithe.objectives.linear_model import LinearModelObjective

_ROWS_OF_MISSING_CLASS = 3


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
        try:
            codes = label_numbers(block.y, labels)
        except TypeError as error:
            raise ValueError(f"y holds labels of different kinds, or gaps, which cannot be sorted: {error}.") from error
        if codes.min() < 0:
            raise ValueError(
                f"y holds {block.y[codes < 0].tolist()[0]!r}, which is not among the {len(labels)} classes known: "
                f"{', '.join(map(repr, labels[:5].tolist()))}{', ...' if len(labels) > 5 else ''}. "
                "Name all of them beforehand: classes=(...)."
            )
        return codes


@dataclass(frozen=True, kw_only=True)
class LabelledLinearObjective(LabelledObjective, LinearModelObjective):
    """A `LinearModelObjective` whose y are classes.

    There is k = 1 score for two classes, else one for each class. The basic moments are the count and the indicators
    of all classes but the first. With more than two classes the loss must not change where all scores of a row
    change by the same number.
    """

    def __post_init__(self) -> None:
        LinearModelObjective.__post_init__(self)
        LabelledObjective.__post_init__(self)

    @property
    def n_scores(self) -> int:
        """k: one for two classes, else one for each class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def n_basic_moments(self) -> int:
        return self.n_classes

    def _basic_moments(self, block: Block) -> Array:
        indicators = np.equal.outer(self.codes(block), np.arange(1, self.n_classes)).astype(np.float64)
        return np.concatenate([np.ones((len(block), 1)), indicators], axis=1)

    @property
    def _shift_invariant(self) -> bool:
        return self.n_scores > 1

    def _coded(self, block: Block) -> tuple[Self, Block]:
        """Class numbers in place of labels."""
        coded = Block(X=block.X, y=self.codes(block), sample_weight=block.sample_weight)
        return replace(self, classes=tuple(range(self.n_classes))), coded

    def _rows_to_learn_from(self, block: Block, size: int) -> float:
        """Rows of the smallest class.

        With K classes of equal size this gives the rows for each of the K (d + 1) coefficients.
        """
        codes, weight = self.codes(block), block.sample_weight
        if weight is None:
            mass = count_codes(codes, self.n_classes)[:-1]
        else:
            mass = np.bincount(codes, weights=weight, minlength=self.n_classes)
        return float(size * mass[mass > 0.0].min() / mass.sum())

    def sample_for_query(self, block: Block, size: int, rng: np.random.Generator) -> Block:
        """Random rows, and some of each class that would be missing."""
        sample = sample_rows(block, size, rng)
        codes, drawn = self.codes(block), self.codes(sample)
        missing = np.setdiff1d(np.unique(codes), drawn)
        if len(missing) == 0:
            return sample
        more = [rng.permutation(np.flatnonzero(codes == code))[:_ROWS_OF_MISSING_CLASS] for code in missing]
        rows = rng.permutation(len(block))[:size]
        return block.take(np.unique(np.concatenate([rows, *more])))

    def signed_rows(self, block: Block) -> Any:
        """Rows as features for a regression: z = +-(x, 1) for two classes, else x and indicators of the class."""
        codes = self.codes(block)
        if self.n_classes == 2:
            return signed(block.X, 2.0 * codes - 1.0, 1.0)
        truth = np.equal.outer(codes, np.arange(self.n_classes)).astype(block.X.dtype)
        if sparse.issparse(block.X):
            return sparse.hstack([block.X, sparse.csr_matrix(truth)], format="csr")
        return np.hstack([block.X, truth])

    def query_direction(self, block: Block, row: int, along: Array) -> Array:
        """Parameters that move one row towards its own class."""
        code = int(self.codes(block)[row])
        if self.n_scores == 1:
            return (along if code == 1 else -along)[None]
        direction = np.zeros((self.n_scores, len(along)))
        direction[code] = along
        return direction


def signed(X: Any, sign: Array, last: float) -> Any:
    """sign * (x, last) in the precision of the rows, dense or CSR."""
    sign = sign.astype(X.dtype)[:, None]
    if sparse.issparse(X):
        return sparse.hstack([X.multiply(sign), sparse.csr_matrix(last * sign)], format="csr")
    rows = np.empty((X.shape[0], X.shape[1] + 1), X.dtype)
    np.multiply(X, sign, out=rows[:, :-1])
    rows[:, -1:] = last * sign
    return rows
