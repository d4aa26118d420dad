"""The exact cost of a solution on all rows, and polish by steps that lower it."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from tithe.certify.certificate import Certificate, share_of_all
from tithe.core.contracts import Objective, ParamsT
from tithe.core.data import Array, Block, grouped
from tithe.core.params import POLISH, check_value
from tithe.core.passes import DataPass

AUTO_ROUNDS = 2  # rounds of polish="auto": on real data the first two bring nearly the whole gain
AUTO_GAIN = 1e-3  # polish="auto" stops earlier if a round saves less than this share of the cost


class StepSums(Protocol):
    """What one pass for a step gives: the cost, and the labels of the rows of one block. Those of leaves add up."""

    @property
    def total(self) -> float: ...

    @property
    def labels(self) -> Array | None: ...

    def __add__(self, other: Self, /) -> Self: ...


StepT = TypeVar("StepT", bound=StepSums)


class SteppedObjective(Objective[Array], Generic[StepT]):
    """What `polish_by_steps` needs: results of leaves add up, and a step follows from the sum."""

    @abstractmethod
    def evaluate_for_step(self, block: Block, params: Array, *, last: bool = False) -> StepT:
        """What one pass over a block gives; the ``last`` pass may leave out what `step` needs."""

    @abstractmethod
    def step(self, evaluation: StepT, params: Array) -> tuple[Array, float]:
        """A solution that costs less than ``params``, and a lower bound on how much less."""


@dataclass(frozen=True, kw_only=True)
class Polished:
    """A solution after some rounds on the full data.

    ``curve`` holds the full-data cost before each round and at the end; it never rises.
    ``labels`` are the assignments at the final solution, None where rows are not held in memory.
    ``passes`` is the number of passes over the data, ``n_rows`` the number of rows.
    """

    params: Array
    labels: Array | None
    curve: list[float]
    passes: int
    n_rows: int


def polish_rounds(polish: Any) -> tuple[int, float]:
    """The largest number of rounds, and the relative gain below which to stop."""
    if isinstance(polish, str) and polish == "auto":
        return AUTO_ROUNDS, AUTO_GAIN
    check_value("polish", polish, POLISH)
    return int(polish), 0.0


def polish_by_steps(
    objective: SteppedObjective[StepT],
    data: DataPass,
    params: Array,
    polish: Any,
    *,
    auto: tuple[int, float] | None = None,
) -> Polished:
    """Rounds of the objective's own steps over all rows, and the final assignment.

    A round is accepted only if the cost falls. The last pass gives labels and the exact cost, so a number of rounds
    takes at most one pass more. ``auto`` is the largest number of rounds of ``polish="auto"`` and the gain below which
    it stops; by default these are `AUTO_ROUNDS` and `AUTO_GAIN` of the cost.
    """
    rounds, share = polish_rounds(polish)
    least = 0.0
    if auto is not None and share > 0.0:
        (rounds, least), share = auto, 0.0
    n_passes_before = data.n_passes

    def make_pass(candidate: Array, *, last: bool) -> StepT:
        return data.total(lambda leaf: objective.evaluate_for_step(leaf, candidate, last=last))

    result = make_pass(params, last=rounds == 0)
    curve, labels = [result.total], result.labels
    for number in range(1, rounds + 1):
        candidate, gain = objective.step(result, params)
        if gain <= (share * curve[-1] if share else least):
            break  # rows that change clusters might save a little more, but too little for another pass
        result = make_pass(candidate, last=number == rounds)
        if result.total >= curve[-1]:
            break
        params, labels = candidate, result.labels
        curve.append(result.total)
    return Polished(
        params=params,
        labels=labels if isinstance(data.rows, Block) else None,
        curve=curve,
        passes=data.n_passes - n_passes_before,
        n_rows=data.n_rows,
    )


def weighted_total(block: Block, cost: Array) -> float:
    """sum u * cost, in float64."""
    return float(cost.sum() if block.sample_weight is None else block.sample_weight @ cost)


def certify_cost(
    objective: Objective[ParamsT], data: DataPass, params: ParamsT, coreset: Block, *, centre: ParamsT | None = None
) -> Certificate:
    """The exact cost of a solution on all rows, and the error of its cost on the coreset.

    ``centre`` is the solution of a single cluster, whose cost is the spread of the rows.
    """
    compared = [params] if centre is None else [params, centre]
    costs = data.total(
        lambda leaf: np.array([weighted_total(leaf, objective.cost(leaf, solution)) for solution in compared])
    )
    estimate = coreset_cost(objective, coreset, params)
    spread = None if centre is None else float(costs[1])
    return cost_certificate(float(costs[0]), estimate, data.n_rows, passes=1, spread=spread)


def total_cost(objective: Objective[ParamsT], data: DataPass, params: ParamsT) -> float:
    """The cost of a solution on all rows, in one pass."""
    return data.total(lambda leaf: weighted_total(leaf, objective.cost(leaf, params)))


def coreset_cost(objective: Objective[ParamsT], coreset: Block, params: ParamsT) -> float:
    """The cost of a solution on the coreset."""
    return weighted_total(coreset, objective.cost(coreset, params))


def relative_error(coreset_value: float, value: float) -> float:
    """The error of ``coreset_value`` as a share of ``value``."""
    if value == 0.0:
        return 0.0 if coreset_value == 0.0 else math.inf
    return (coreset_value - value) / abs(value)


def coreset_clause(coreset_value: float, value: float, *, said_by: str = "the coreset says") -> str:
    """A clause that compares the coreset's number; empty where both are equal."""
    error = relative_error(coreset_value, value)
    if error == 0.0:
        return ""
    if math.isfinite(error):
        off = f", which is {100.0 * error:+.2f} % off" if abs(error) >= 5e-5 else ", which is right to four digits"
    else:
        off = ""
    return f"; {said_by} {grouped(coreset_value)}{off}"


def cost_certificate(
    full: float, coreset_value: float, n_rows: int, *, passes: int, spread: float | None = None
) -> Certificate:
    """A certificate from the cost of one solution on all rows and that on the coreset.

    ``spread`` is what a single centre costs, about: the centres explain the share of it that they save.
    """
    subject = "The solution costs"
    if spread is not None and spread > 0.0:
        explained = share_of_all(min(1.0, max(0.0, 1.0 - full / spread)))
        subject = f"The centres explain about {explained} of the spread of the rows: they cost"
    return Certificate(
        kind="exact",
        quantity="cost",
        value=full,
        coreset_error=relative_error(coreset_value, full),
        n_rows=n_rows,
        passes=passes,
        sentence=f"{subject} exactly {grouped(full)} on all {n_rows:,} rows{coreset_clause(coreset_value, full)}.",
    )


def likelihood_certificate(
    full: float, coreset_value: float, n_rows: int, *, passes: int, single: float | None = None
) -> Certificate:
    """A certificate from the mean log-likelihood of a row, of all rows and as the coreset says.

    ``single`` is what the coreset says of one normal distribution, about: the mixture is told beside it.
    """
    beside = ""
    if single is not None:
        gain = coreset_value - single
        times = f", by which a row is {grouped(math.exp(gain), 2)} times as likely" if 0.01 < gain < 10.0 else ""
        beside = f", about {grouped(abs(gain), 3)} {'more' if gain >= 0.0 else 'less'} than under a single normal "
        beside += f"distribution{times}"
    return Certificate(
        kind="exact",
        quantity="log_likelihood",
        value=full,
        coreset_error=coreset_value - full,
        n_rows=n_rows,
        passes=passes,
        sentence=f"The mean log-likelihood of a row is exactly {grouped(full)} on all {n_rows:,} rows{beside}; the "
        f"coreset says {grouped(coreset_value)}.",
    )
