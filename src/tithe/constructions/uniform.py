"""Uniform sampling with weights N/m: the baseline for all other constructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.constructions.draw import MIN_DRAWS_OF_A_CLASS, draw_rows
from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Rng, Survey


@dataclass(frozen=True, kw_only=True)
class Uniform(Construction[Objective]):
    """Rows without replacement, each weighing N/m; with weights u, draws with p = u/W weighing W/m.

    If the objective has classes and some class would get fewer than ten draws, rows are drawn from each class
    separately, so that every class is kept (`draw_by_class`).
    """

    name: ClassVar[str] = "uniform"
    n_passes: ClassVar[int] = 0

    def reduce(
        self, block: Block, objective: Objective, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        n = len(block)
        codes = objective.codes(block)
        if codes is not None:
            mass = np.bincount(codes, weights=block.sample_weight)
            if mass[mass > 0.0].min() * size < MIN_DRAWS_OF_A_CLASS * mass.sum():
                return draw_rows(block, block.weights(), size, rng, codes=codes)
        if block.sample_weight is None:
            return block.take(np.sort(rng.choice(n, size, replace=False)), np.full(size, n / size))
        return draw_rows(block, block.sample_weight, size, rng)
