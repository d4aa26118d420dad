"""The loss of a linear model without any coefficient, beside which smaller ones are told from rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tithe.core.contracts import Objective
from tithe.core.data import Array, Block
from tithe.objectives.linear_model import LinearModelObjective

_SAMPLE_ROWS = 1000  # that tell how large a usual loss is


def without_coefficients(objective: Objective, params: Array) -> Array:
    """Parameters like these with all coefficients zero; scales, which must be positive, stay as they are."""
    zero = np.zeros_like(params)
    if isinstance(objective, LinearModelObjective):
        n_linear = objective.n_scores - objective.n_scales
        zero[n_linear:] = params[n_linear:]
    return zero


def without_rounding(objective: Objective, losses: Any, usual: float) -> Array:
    """The losses, those that are rounding beside a ``usual`` one being zero."""
    return np.where(losses <= objective.relative_rounding * usual, 0.0, losses)


def negligible_loss(objective: Objective, rows: Block, params: Array) -> float:
    """The loss on all rows up to which it is rounding; ``rows`` are some of them that weigh as much as all."""
    if not isinstance(objective, LinearModelObjective):
        return 0.0
    step = -(-len(rows) // _SAMPLE_ROWS)
    some = rows.take(np.arange(0, len(rows), step)) if step > 1 else rows
    if not some.total_weight > 0.0:
        return 0.0
    some = replace(some, sample_weight=some.weights() * (rows.total_weight / some.total_weight), mean=None)
    return objective.relative_rounding * objective.evaluate(some, without_coefficients(objective, params)).value
