"""Certificates: what a small set cost, as a number with a stated meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from tithe.core.contracts import Objective, Source
from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.core.state_checks import Each, Integer, Number, Optional, Text, check_fields

Kind = Literal["bound", "exact", "estimate"]
USEFUL_BOUND = 0.5  # share of the loss: a bound above it says next to nothing


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
    bound : float or None
        Where there is one: what the number certified provably does not exceed.
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
    bound: float | None = None
    n_rows: int
    passes: int
    sentence: str

    def __str__(self) -> str:
        return self.sentence

    def _check_state(self) -> None:
        number = Number(finite=False)
        check_fields(
            self,
            {
                "kind": Text(("bound", "exact", "estimate")),
                "value": number,
                "relative": number,
                "confidence": Optional(Number(least=0.0, most=1.0)),
                "interval": Optional(Each(number, length=2)),
                "bound": Optional(number),
                "n_rows": Integer(),
                "passes": Integer(),
                "sentence": Text(),
            },
        )


def weighted_total(block: Block, cost: Array) -> float:
    """sum u * cost, in float64."""
    return float(cost.sum() if block.sample_weight is None else block.sample_weight @ cost)


def certify_cost(
    objective: Objective, rows: Block | Source, params: Any, coreset: Block, *, engine: Any = "auto"
) -> Certificate:
    """The exact cost of a solution on all rows, and how far off the coreset's idea of it is."""
    every = DataPass(rows, engine)
    full = every.total(lambda leaf: weighted_total(leaf, objective.cost(leaf, params)))
    return cost_certificate(full, coreset_cost(objective, coreset, params), every.n_rows, passes=1)


def coreset_cost(objective: Objective, coreset: Block, params: Any) -> float:
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


def excess_certificate(
    loss: float,
    excess: float,
    interval: tuple[float, float],
    bound: float,
    n_rows: int,
    *,
    confidence: float,
    passes: int,
) -> Certificate:
    """A certificate of an estimate of how far the loss exceeds that of a fit on all rows."""
    scale = 1.0 / loss if loss > 0 else 0.0
    low, high = interval
    proved = f", provably by at most {percent(bound * scale)}" if bound * scale <= USEFUL_BOUND else ""
    return Certificate(
        kind="estimate",
        value=excess,
        relative=excess * scale,
        confidence=confidence,
        interval=interval,
        bound=bound,
        n_rows=n_rows,
        passes=passes,
        sentence=(
            f"The loss, penalty included, is {loss:.8g} on all {n_rows} rows. It exceeds the loss of a fit on all rows "
            f"by about {percent(excess * scale)} ({confidence:.0%}: {percent(low * scale)} to {percent(high * scale)})"
            f"{proved}."
        ),
    )


def bound_certificate(loss: float, bound: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate of what is proved: the loss exceeds the smallest one by no more than the bound."""
    relative = bound / loss if loss > 0 else 0.0
    if relative <= USEFUL_BOUND:
        excess = f"It exceeds the loss of a fit on all rows provably by at most {percent(relative)}."
    else:
        excess = (
            "By how much it exceeds the loss of a fit on all rows is not known: polish it, or ask for a larger "
            "coreset_size."
        )
    return Certificate(
        kind="bound",
        value=bound,
        relative=relative,
        confidence=None,
        bound=bound,
        n_rows=n_rows,
        passes=passes,
        sentence=f"The loss, penalty included, is {loss:.8g} on all {n_rows} rows. {excess}",
    )


def percent(share: float) -> str:
    """A share in per cent, with two digits.

    >>> percent(0.0123), percent(3.6e-7), percent(0.0)
    ('1.2 %', '3.6e-05 %', '0 %')
    """
    return f"{100.0 * share:.2g} %"
