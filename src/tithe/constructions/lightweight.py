"""Lightweight coresets: half uniform, half by the distance to the mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tithe.constructions.base import Construction
from tithe.core.data import Array, Block, Survey
from tithe.kernels.sampling import draw
from tithe.kernels.scores import affine_scores


@dataclass(frozen=True, kw_only=True)
class Lightweight(Construction):
    """p_i = u_i / 2W + u_i d_i / 2D with d_i the cost of row i at the column mean and D = sum u d.

    Bachem, Lucic and Krause (2018), for k-means: |error| <= (eps/2) cost(C) + (eps/2) cost({mean}),
    an additive guarantee that costs two cheap passes. All rows equal: p = u / W.
    """

    name: ClassVar[str] = "lightweight"
    requires: ClassVar[tuple[str, ...]] = ("mean_pilot", "survey")

    def pilot(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Array:
        pilot: Array = objective.mean_pilot(block)
        return pilot

    def reduce(
        self, block: Block, objective: Any, size: int, *, survey: Survey | None, rng: np.random.Generator
    ) -> Block:
        assert survey is not None
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        slope = 1.0 / cost if cost > 0 else 0.0
        base = np.full(len(survey.totals), 1.0 / weight)
        positions, inverse = draw(
            affine_scores(survey.cost, survey.labels, slope, base, block.sample_weight), size, rng
        )
        own = block.sample_weight
        return block.take(positions, inverse if own is None else inverse * own[positions])
