"""Uniform sampling with weights N/m: the baseline that everything else must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tithe.constructions.base import Construction
from tithe.constructions.strata import LEAST, draw_by_class
from tithe.core.data import Array, Block, Survey
from tithe.kernels.sampling import draw


@dataclass(frozen=True, kw_only=True)
class Uniform(Construction):
    """Rows without replacement, each weighing N/m; with weights u, draws with p = u/W weighing W/m.

    Where the objective has classes and some class would get fewer than ten draws, every class is
    drawn from by itself, so that none vanishes (`draw_by_class`).
    """

    name: ClassVar[str] = "uniform"

    def reduce(
        self,
        block: Block,
        objective: Any,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: np.random.Generator,
    ) -> Block:
        n = len(block)
        if callable(getattr(objective, "codes", None)):
            codes = objective.codes(block)
            mass = np.bincount(codes, weights=block.sample_weight)
            if mass[mass > 0.0].min() * size < LEAST * mass.sum():
                positions, inverse = draw_by_class(block.weights(), codes, size, rng)
                return block.take(positions, inverse * block.weights()[positions])
        if block.sample_weight is None:
            positions = np.sort(rng.choice(n, size, replace=False))
            return block.take(positions, np.full(size, n / size))
        positions, inverse = draw(block.sample_weight, size, rng)
        return block.take(positions, inverse * block.sample_weight[positions])
