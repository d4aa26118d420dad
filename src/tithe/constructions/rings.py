"""Rings: strata of rows at similar distances from a pilot centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.core.contracts import Construction, NearestObjective, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.kernels.clustering.groups import draw_in_groups, group_masses, ring_codes


@dataclass(frozen=True, kw_only=True)
class Rings(Construction[NearestObjective]):
    """Exponential rings around the pilot centres, the same number of draws from each.

    With d_i the distance of row i to its nearest pilot centre, c the pilot's cost and W the
    weight, R = (c / (alpha W))^(1/z); the layer of row i is 0 if d_i <= R, else ceil(log2(d_i/R)).
    All rows of a ring (centre, layer) of at most x rows are kept with their own weights. Any other ring gives
    x draws with p proportional to u, each weighing W_ring / x. The weight of every ring is exact.

    Chen (2009), with two corrections: nearest centres (the balls overlap), and x proportional to 1/eps^2.
    ``alpha`` only sets the radius R and causes no bias. x is the largest number for which the rows do not exceed
    the size; `tithe.reduce.sizing.theoretical_size` gives the one of the theorem.
    """

    alpha: float = 4.0

    name: ClassVar[str] = "rings"
    requires: ClassVar[tuple[type[Objective], ...]] = (NearestObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    def ring_of(self, block: Block, survey: Survey, power: int) -> tuple[Array, int]:
        """The number of the ring of each row, (n,) int32, and an upper bound on the number of rings."""
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        weights = block.sample_weight
        lightest = 1.0 if weights is None else weights[weights > 0].min()
        # a row beyond the last layer would cost more than all rows together
        last = max(0, int(np.ceil((np.log2(self.alpha) + np.log2(weight) - np.log2(lightest)) / power)))
        factor = self.alpha * weight / cost if cost > 0 else 0.0
        codes = ring_codes(survey.cost, survey.labels, factor=factor, power=power, last_layer=last)
        return codes, len(survey.totals) * (last + 1)

    def reduce(
        self,
        block: Block,
        objective: NearestObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert survey is not None
        rings, n_rings = self.ring_of(block, survey, objective.power)
        counts, masses = group_masses(rings, n_rings, block.sample_weight)
        occupied = int((counts > 0).sum())
        if occupied > size:
            raise ValueError(
                f"There are {occupied} rings and only {size} rows may be kept: ask for at least as many rows as "
                "rings, or use construction='sensitivity'."
            )
        per_ring = _draws_per_ring(counts, size)
        return block.take(*draw_in_groups(rings, counts, masses, per_ring, block.sample_weight, rng))


def _draws_per_ring(count: Array, size: int) -> int:
    """The largest x with sum(min(count, x)) <= size."""
    low, high = 1, int(count.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(count, middle).sum() <= size:
            low = middle
        else:
            high = middle - 1
    return low
