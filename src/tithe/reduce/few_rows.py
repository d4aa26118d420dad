"""The choice between the default draw and a uniform one, if few rows are kept for each coefficient."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tithe.core.contracts import ConvexObjective
from tithe.core.data import Block
from tithe.core.registry import make
from tithe.core.seeding import rng_for

if TYPE_CHECKING:
    from tithe.reduce.plan import Reducer

_FEW_ROWS_PER_COEFFICIENT = 1.5  # rows per coefficient below which the default draw is compared with a uniform one
_TRIAL_DRAWS = 3  # draws of each kind, if the rows at hand are a sample


def safe_with_few_rows(reducer: Reducer, objective: ConvexObjective, at_hand: Block, n_rows: int | None) -> Reducer:
    """The reducer, or a uniform one if that gives the smaller loss; only with few rows per coefficient.

    If the rows at hand are all rows, the final draws are compared, otherwise three draws of each kind.
    """
    all_at_hand = n_rows == len(at_hand)
    if len(at_hand) <= reducer.plan.n_kept:
        return reducer
    rows_each = objective.rows_per_coefficient(at_hand, reducer.plan.n_kept)
    if rows_each >= _FEW_ROWS_PER_COEFFICIENT:
        return reducer
    if not all_at_hand and n_rows is not None:  # the penalty is added to the sum over all rows
        at_hand = replace(at_hand, sample_weight=at_hand.weights() * (n_rows / len(at_hand)), mean=None)
    plan, uniform = reducer.plan, make("construction", "uniform")
    seeds = [plan.seed]
    if not all_at_hand:
        seeds = [int(rng_for(plan.seed, "trial", i).integers(2**62)) for i in range(_TRIAL_DRAWS)]
    draws = [replace(reducer, totals=False, plan=replace(plan, seed=seed)) for seed in seeds]
    loss = np.median([_trial_loss(draw, objective, at_hand) for draw in draws])
    if np.median([_trial_loss(replace(draw, construction=uniform), objective, at_hand) for draw in draws]) < loss:
        reducer = replace(reducer, construction=uniform)
    return replace(reducer, rows_per_coefficient=rows_each)


def _trial_loss(reducer: Reducer, objective: ConvexObjective, rows: Block) -> float:
    """The loss on the rows of a fit on a draw from them."""
    coreset = reducer.leaf(rows, (0, 0))
    if coreset is None:
        return np.inf
    solution = objective.solve(coreset, rng=rng_for(reducer.plan.seed, "trial"), init=reducer.pilot)
    return objective.evaluate(rows, solution).value
