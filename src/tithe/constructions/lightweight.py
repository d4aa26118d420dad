"""Lightweight coresets: half uniform, half by the distance to the mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.constructions.draw import draw_rows
from tithe.core.contracts import Construction, MeanPilotObjective, Objective
from tithe.core.data import Array, Block, Rng, Scores, Survey


@dataclass(frozen=True, kw_only=True)
class Lightweight(Construction[MeanPilotObjective]):
    """p_i = u_i / 2W + u_i d_i / 2D with d_i the cost of row i at the column mean and D = sum u d.

    Bachem, Lucic and Krause (2018), for k-means: |error| <= (eps/2) cost(C) + (eps/2) cost({mean}),
    an additive guarantee that costs two cheap passes. All rows equal: p = u / W.
    """

    name: ClassVar[str] = "lightweight"
    requires: ClassVar[tuple[type[Objective], ...]] = (MeanPilotObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    def pilot(self, block: Block, objective: MeanPilotObjective, *, rng: Rng) -> Array:
        return objective.mean_pilot(block)

    def reduce(
        self,
        block: Block,
        objective: MeanPilotObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert survey is not None
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        weights = block.sample_weight
        scores = Scores(
            cost=survey.cost, slope=1.0 / cost if cost > 0 else 0.0, base=np.array([1.0 / weight]), weight=weights
        )
        return draw_rows(block, scores, size, rng)
