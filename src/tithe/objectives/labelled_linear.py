"""Linear models of classes: one score for two classes, else one for each class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tithe.core.data import Array, Block
from tithe.kernels.labels import count_codes
from tithe.kernels.sampling import sample_rows
from tithe.objectives.labels import LabelledObjective
from tithe.objectives.linear_model import LinearModelObjective

_ROWS_OF_MISSING_CLASS = 3


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

    def query_direction(self, block: Block, row: int, along: Array) -> Array:
        """Parameters that move one row towards its own class."""
        code = int(self.codes(block)[row])
        if self.n_scores == 1:
            return (along if code == 1 else -along)[None]
        direction = np.zeros((self.n_scores, len(along)))
        direction[code] = along
        return direction
