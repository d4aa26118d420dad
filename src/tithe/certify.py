"""Certify and polish: one honest look at the full data, and a few to do better."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tithe.core.data import Array, Block

Kind = Literal["bound", "exact", "estimate"]

AUTO_ROUNDS = 2  # polish="auto": on real data the first round or two bring nearly all there is to gain
AUTO_GAIN = 1e-3  # ... and stops earlier once a round brings less than this share of the cost


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What the small set cost, measured on rows that were not chosen to flatter it.

    Parameters
    ----------
    kind : {"bound", "exact", "estimate"}
        A bound is a theorem about the numbers computed, an exact value was computed on all rows,
        an estimate states its confidence.
    value : float
        The number certified; ``sentence`` says what it is.
    relative : float
        How far off the small set's own idea of the value is, relative to the value.
    confidence : float or None
        Of an estimate; None otherwise.
    interval : (float, float) or None
        Where the value lies with that confidence.
    n_rows : int
        Rows looked at.
    passes : int
        Times each of them was read.
    sentence : str
        The same, for a person.
    """

    kind: Kind
    value: float
    relative: float
    confidence: float | None
    interval: tuple[float, float] | None = None
    n_rows: int
    passes: int
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def weighted_total(block: Block, cost: Array) -> float:
    """sum u * cost, in float64."""
    return float(cost.sum() if block.sample_weight is None else block.sample_weight @ cost)


def certify_cost(objective: Any, block: Block, params: Any, coreset: Block) -> Certificate:
    """The exact cost of a solution on all rows, and how far off the coreset's idea of it is."""
    full = weighted_total(block, objective.cost(block, params))
    return cost_certificate(full, coreset_cost(objective, coreset, params), len(block), passes=1)


def coreset_cost(objective: Any, coreset: Block, params: Any) -> float:
    """The cost of a solution as the coreset sees it."""
    return weighted_total(coreset, objective.cost(coreset, params))


def cost_certificate(full: float, small: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate from the two costs of one solution."""
    relative = small / full - 1.0 if full > 0 else (0.0 if small == 0 else math.inf)
    return Certificate(
        kind="exact",
        value=full,
        relative=relative,
        confidence=None,
        n_rows=n_rows,
        passes=passes,
        sentence=(
            f"The solution costs exactly {full:.6g} on all {n_rows} rows; "
            f"the coreset says {small:.6g}, which is {relative:+.2%} off."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Polished:
    """A solution after some rounds on the full data.

    ``curve`` holds the full-data cost before each round and at the end; it never rises.
    ``labels`` are the assignments at the final solution. ``passes`` counts looks at the data.
    """

    params: Any
    labels: Array
    curve: list[float]
    passes: int


def polish_rounds(polish: Any) -> tuple[int, float]:
    """How many rounds at the most, and the gain below which to stop, for ``polish``."""
    if isinstance(polish, str) and polish == "auto":
        return AUTO_ROUNDS, AUTO_GAIN
    if isinstance(polish, (bool, str)) or not isinstance(polish, (int, np.integer)) or polish < 0:
        raise ValueError(f"polish must be 'auto' or a number of rounds of at least 0, got {polish!r}.")
    return int(polish), 0.0


def polish_by_steps(objective: Any, block: Block, params: Any, polish: Any) -> Polished:
    """Rounds of the objective's own ``improve`` step over all rows, and the final assignment.

    Every round is accepted only if the cost falls; the last look gives labels and the exact cost.
    ``rounds`` rounds take at most ``rounds + 1`` looks.
    """
    rounds, least_gain = polish_rounds(polish)
    step = objective.improve(block, params, last=rounds == 0)
    curve = [weighted_total(block, step.cost)]
    labels, passes = step.labels, 1
    for number in range(1, rounds + 1):
        if step.gain <= least_gain * curve[-1]:
            break  # rows that change clusters might save a little more, but not enough to pay for a look
        tried = step.params
        step = objective.improve(block, tried, last=number == rounds)
        passes += 1
        total = weighted_total(block, step.cost)
        if total >= curve[-1]:
            break
        params, labels = tried, step.labels
        curve.append(total)
    return Polished(params=params, labels=labels, curve=curve, passes=passes)
