"""Influence: rows with a large effect on the solution are drawn more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.constructions.draw import draw_by_class
from tithe.constructions.leverage import Leverage, Leverages, shares
from tithe.core.contracts import InfluenceObjective, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.parallel import limit_threads, over_parts
from tithe.kernels.labels import count_codes
from tithe.kernels.sampling import draw

_MAX_ALL_SCORED = 800_000  # with more rows, only a sample of them is scored
_MIN_SCORED, _SCORED_PER_ROW_KEPT = 200_000, 5  # size of this sample: the larger of the two
_CHUNK_ROWS = 16_384  # rows that are scored together
_RARE_CLASS_ROWS = 20_000  # classes of no more rows are scored whole


@dataclass(frozen=True, kw_only=True)
class Influence(Leverage[InfluenceObjective]):
    """p_i = u_i (.4 r_i l_i / sum(u r l) + .3 l_i / sum(u l) + .3 / W), each draw weighing u_i / (m p_i).

    l_i is the root of the leverage (`Leverage`) and r_i the derivative of the row's loss in its score at the pilot
    (for logistic regression 1 - P(y | x)). r l is the size of a row's influence on the solution; drawing by it
    minimises the variance of the gradient at the pilot. The other two terms cover directions that the pilot gets
    wrong or does not know (rare one-hot columns), and bound every weight by W / (.3 m).

    With more than 800,000 rows, one row of each run of consecutive rows (of equal weight) is scored and represents
    its run: 200,000 rows, or 5 for each row kept. All rows of classes of at most 20,000 rows are scored. The draw
    stays unbiased, and its variance grows by at most a fifth of that of a uniform draw.

    It is what ``construction="auto"`` stands for with linear models, except where the rows kept are fewer than the
    coefficients and a uniform draw is better: see `LinearModelObjective`.
    """

    name: ClassVar[str] = "influence"
    requires: ClassVar[tuple[type[Objective], ...]] = (InfluenceObjective,)
    needs_pilot: ClassVar[bool] = True
    n_passes: ClassVar[int] = 2  # leverages and losses

    def reduce(
        self,
        block: Block,
        objective: InfluenceObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert pilot is not None
        codes = objective.codes(block)
        n_scored = max(_MIN_SCORED, _SCORED_PER_ROW_KEPT * size)
        if len(block) <= max(_MAX_ALL_SCORED, 2 * n_scored):
            weight, positions = block.weights(), np.arange(len(block))
            cost = objective.cost(block, pilot) if survey is None else survey.cost
            gradient, root = objective.pull(block, pilot, cost), self.roots(block, rng)
        else:
            positions, represented = _one_of_each_run(block, codes, objective, n_scored, rng)
            weight = represented if block.sample_weight is None else represented * block.sample_weight[positions]
            codes = None if codes is None else codes[positions]
            leverages = Leverages.of(block, rng) if self.leverages is None else self.leverages
            gradient, root = _gradients_and_roots(block, positions, objective, pilot, leverages)
        scores = shares([(0.4, root * gradient), (0.3, root), (0.3, None)], weight)
        drawn, inverse = draw_by_class(scores, codes, size, rng)
        return block.take(positions[drawn], inverse * weight[drawn])


def _gradients_and_roots(
    block: Block, positions: Array, objective: InfluenceObjective, pilot: Array, leverages: Leverages
) -> tuple[Array, Array]:
    """Derivatives of some rows at the pilot, and roots of their leverages. Rows are copied chunk by chunk."""
    gradient, root = np.empty(len(positions)), np.empty(len(positions))

    def run(first: int, last: int) -> None:
        with limit_threads(1):  # a kernel that used the same threads would wait for itself
            for part in range(first, last):
                at = slice(part * _CHUNK_ROWS, (part + 1) * _CHUNK_ROWS)
                rows = block.take(positions[at])
                gradient[at] = objective.pull(rows, pilot, objective.cost(rows, pilot))
                root[at] = leverages.root(rows.X)

    over_parts(run, -(-len(positions) // _CHUNK_ROWS))
    return gradient, root


def _one_of_each_run(
    block: Block, codes: Array | None, objective: Objective, n_scored: int, rng: Rng
) -> tuple[Array, Array]:
    """Positions of about ``n_scored`` rows, ascending, and the number of rows that each represents."""
    n, weight = len(block), block.sample_weight
    if weight is None:
        edges = n * np.arange(n_scored + 1) // n_scored
        runs = np.diff(edges)
        positions, represented = edges[:-1] + (rng.random(n_scored) * runs).astype(np.int64), runs.astype(np.float64)
    else:
        positions, represented = draw(weight, n_scored, rng)  # runs of equal weight
    if codes is None:
        return positions, represented
    carrying = codes if weight is None else codes[weight > 0.0]
    rare = np.flatnonzero(count_codes(carrying, objective.n_classes)[:-1] <= _RARE_CLASS_ROWS)
    if len(rare) == 0:
        return positions, represented
    common = ~np.isin(codes[positions], rare)
    all_rare = np.flatnonzero(np.isin(codes, rare) & (block.weights() > 0.0))
    positions = np.concatenate([positions[common], all_rare])
    order = np.argsort(positions, kind="stable")
    return positions[order], np.concatenate([represented[common], np.ones(len(all_rare))])[order]
