"""What every construction shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tithe.core.data import Array, Block, Rng, Survey


@dataclass(frozen=True, kw_only=True)
class Construction:
    """Chooses rows; see `tithe.core.contracts.Construction` for the contract."""

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    surveys: ClassVar[bool] = False
    looks: ClassVar[int] = 1  # times a draw reads all rows
    unbiased: ClassVar[bool] = True  # sums over many draws have the full sum as their mean

    def check_columns(self, n_features: int, objective: Any) -> None:
        """Whether what a construction has learned, and was read from a file, fits rows of so many columns."""

    def prepare(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Construction:
        """Itself, unless a construction learns something from the rows at hand."""
        return self

    def pilot(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Array:
        """The objective's own pilot, unless a construction has a cheaper one."""
        pilot: Array = objective.pilot(block, rng=rng)
        return pilot

    def reduce(
        self, block: Block, objective: Any, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        raise TypeError(f"{type(self).__name__} must define reduce().")
