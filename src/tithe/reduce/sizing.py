"""How many rows to keep, measured on the data itself; `tithe.theory.sizes` has the sizes of theorems."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import numpy as np

from tithe.core.contracts import Objective, SampledObjective, Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.params import OneOf, check_value
from tithe.core.passes import DataPass
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.reduce.build import reduce_rows
from tithe.reduce.distortion import random_queries, ratio_error, refuse_signed, total_costs
from tithe.reduce.draws import InfluenceObjective
from tithe.reduce.plan import Plan, check_contracts
from tithe.rows.arrays import as_block

PROMISE = OneOf("costs", "fit")

_MIN_ROWS_TO_MEASURE = 100  # with fewer rows nothing can be measured, and all are kept
_SAMPLE_ROWS = 200_000  # rows of a source that sizes are measured on
_MERGE_FACTOR = 1.5  # by how much merging may add to the error of a draw; the theory of balanced costs says 1.41
_N_TRIALS = 5  # coresets of each size
_STUDENT_QUANTILE = 2.132  # quantile of Student's t at .95 with _N_TRIALS - 1 degrees of freedom
_MIN_ROWS_PER_NUMBER = 8  # rows for each number of the pilot; calibration needs that many
_HOPELESS_FACTOR = 4.0  # times all rows: where a size says that so many are needed, no larger one is tried
_LARGEST_ERROR = 1e3  # infinite ones, of a cost of nothing, count as this: nearly all rows are then proposed
_N_SEARCHES = 3  # on all rows, for a loss with many local minima
_OTHER_STRENGTH = 100.0  # of the losses beside the penalty, at which a trial coreset is fitted as well


def propose_size(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    eps: float,
    promise: str = "costs",
    pilot_size: int = 1000,
    random_state: Any = 0,
) -> tuple[int, float]:
    """A coreset size for an error of ``eps``, and a limit that the error stays below in 95 % of draws.

    Two promises can be asked for. ``"costs"``: the coreset tells the cost of any solution within a factor of
    1 ± ``eps``. ``"fit"``: a fit on the coreset costs at most 1 + ``eps`` times what a fit on all rows costs, which
    takes far fewer rows.

    Five coresets of ``pilot_size`` rows are built, and the error e of each is measured. What one more coreset will
    have is predicted from the mean a and standard deviation s of the five ln e: with probability .95 at most
    exp(a + t s sqrt(1 + 1/5)), t = 2.13 the quantile of Student's distribution. This limit is compared with ``eps``.
    Other sizes are tried by bisection, ``pilot_size`` times powers of the root of 2, and the smallest that is
    met with a limit within ``eps`` is proposed. The sizes are the same for every ``eps``, so that a larger ``eps``
    never asks for more rows. Sizes beyond a quarter of the rows at hand are not tried: since errors of costs fall like
    m^(-1/2), and those of fits like 1/m, they are computed as that quarter times the square of (limit / eps), or
    times limit / eps.

    ``"costs"``: e is the largest distortion of some fifty queries: random ones, zero, solutions on subsets and with
    other penalties or fewer centres, these ten times as large and a tenth, parameters that point at far rows, and the
    solutions on the coresets themselves.
    What is promised: in at least 95 % of draws of this size, no query like those tried has a distortion above
    ``eps``. It is a measurement, not a theorem: other queries may have more. For ``margin`` on nine open sets, 1 of 39
    coresets had more for queries like those tried, and at most 1 of 39 for other kinds (solutions of another loss or
    on a part of the rows, multiples of solutions, scores on single columns), except one. Queries with scores far
    outside the band on the few rows of a rare column alone, a coefficient of 2 / (standard deviation of the column),
    had more in 7 of 39 coresets, up to 7 times ``eps``, where columns are one-hot (`benchmarks/sizes.py`). They would
    need up to 50 times as many rows.

    ``"fit"``: e is the cost of the solution on the coreset, less that of a solution on all rows, as a share of it.
    What is promised: in at least 95 % of draws of this size, it is at most ``eps``. A loss that is not convex, such as
    that of clusters, has many local minima, and which of them a search finds is chance, also on all rows. So the cost
    is compared with the minimum that a search on all rows reaches from this solution. What the median of the five
    minima is above the worst of three searches on all rows is added.

    ``X`` may be a source: then a sample of 200,000 of its rows is measured on, far rows that are not in it are not
    known, and an error 1.5 times as large (of a fit 1.5^2 times) is allowed for, as merging adds to it. With too few
    rows to tell, all are proposed.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> objective = tithe.objectives.KMeansObjective(n_clusters=2)
    >>> size, limit = tithe.propose_size(X, objective=objective, eps=0.2, pilot_size=200)
    >>> 100 < size < 1000, limit <= 0.2
    (True, True)
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}.")
    if pilot_size < 1:
        raise ValueError(f"pilot_size must be at least 1, got {pilot_size}.")
    check_value("promise", promise, PROMISE)
    goal: Objective = make("objective", objective)
    check_contracts(goal, (SampledObjective,), needed_by="propose_size")
    refuse_signed(goal, needed_by="propose_size")
    seed = as_seed(random_state)
    is_source = isinstance(X, Source)
    block = X.sample(_SAMPLE_ROWS, rng=rng_for(seed, "propose")) if is_source else as_block(X, y, sample_weight)
    n_rows: int | None = X.n_rows if is_source else len(block)
    goal = goal.for_rows(block)
    assert isinstance(goal, SampledObjective)
    if len(block) < _MIN_ROWS_TO_MEASURE:
        return (len(block) if n_rows is None else n_rows), 0.0
    pilot = goal.pilot(block, rng=rng_for(seed, "rough"))
    trial = _trial_of_fits(block, goal, seed) if promise == "fit" else _trial_of_costs(block, goal, pilot, seed)
    within = eps / _MERGE_FACTOR ** (2 * trial.slope) if is_source else eps
    largest = len(block) // 4  # of a size to measure: a coreset of all rows tells nothing
    numbers = pilot.shape[0] * (1 + (pilot.shape[1] if pilot.shape[0] == 1 else 1))
    least = min(_MIN_ROWS_PER_NUMBER * numbers, largest)
    proposed, limit = _smallest_size(trial, _sizes(pilot_size, least, largest), pilot_size, within, n_rows)
    if n_rows is not None and proposed >= n_rows:
        return n_rows, 0.0  # all rows have no error
    return proposed, limit


def _sizes(pilot_size: int, least: int, largest: int) -> list[int]:
    """What may be tried: ``least``, ``largest``, and between them ``pilot_size`` times powers of the root of 2."""
    steps = range(math.ceil(2.0 * math.log2(least / pilot_size)), math.floor(2.0 * math.log2(largest / pilot_size)) + 1)
    return sorted({least, *(round(pilot_size * 2.0 ** (step / 2)) for step in steps), largest})


def _smallest_size(trial: _Trial, sizes: list[int], first: int, within: float, n_rows: int | None) -> tuple[int, float]:
    """The smallest of the sizes that bisection from ``first`` meets whose limit is within the goal, and that limit.

    Whatever the limits are, a wider goal ends at a smaller size: the sizes tried are the same up to the first that
    only the wider goal accepts.
    """
    failed, passed = -1, len(sizes)
    at = min(bisect_left(sizes, first), len(sizes) - 1)
    limits: dict[int, float] = {}
    while passed - failed > 1:
        limits[at] = trial.limit(sizes[at])
        if limits[at] <= within:
            passed = at
        else:
            failed = at
            needed = extrapolate_size(limits[at], sizes[at], within, slope=trial.slope)
            if passed == len(sizes) and n_rows is not None and needed >= _HOPELESS_FACTOR * n_rows:
                return n_rows, limits[at] * (sizes[at] / n_rows) ** trial.slope
        at = (failed + passed) // 2
    if passed < len(sizes):
        return sizes[passed], limits[passed]
    proposed = extrapolate_size(limits[failed], sizes[failed], within, slope=trial.slope)
    return proposed, limits[failed] * (sizes[failed] / proposed) ** trial.slope


@dataclass(frozen=True, eq=False)
class _Trial:
    """Rows, and the ``errors`` of several coresets of them, which fall like m^-``slope``."""

    block: Block
    objective: Objective
    seed: int
    errors: Callable[[list[Coreset]], list[float]]
    slope: float

    def limit(self, size: int) -> float:
        """What the error of one more coreset of this size stays below, with a probability of .95."""
        seeds = [int(rng_for(self.seed, "propose", i).integers(2**62)) for i in range(_N_TRIALS)]
        plans = [Plan.of(self.objective, "auto", size, calibrate=True, seed=seed) for seed in seeds]
        errors = self.errors([reduce_rows(DataPass(self.block), plan) for plan in plans])
        logs = np.log(np.clip(errors, 1e-12, _LARGEST_ERROR))
        return float(np.exp(logs.mean() + _STUDENT_QUANTILE * math.sqrt(1.0 + 1.0 / _N_TRIALS) * logs.std(ddof=1)))


def _trial_of_costs(block: Block, objective: Objective, pilot: Array, seed: int) -> _Trial:
    """The error is the largest distortion of queries, whose costs on all rows are known, and of the solutions."""
    queries = [*random_queries(block, objective, n_bases=4, seed=seed), pilot]
    queries += objective.hard_params(block, rng=rng_for(seed, "hard"))
    costs, stronger = total_costs(block, objective, queries), objective.strengthened(_OTHER_STRENGTH)

    def error(number: int, coreset: Coreset) -> float:
        rng = rng_for(seed, "own", number)
        solutions = [goal.solve(coreset, rng=rng) for goal in (objective, stronger) if goal is not None]
        full = [*costs, *total_costs(block, objective, solutions)]
        small = total_costs(coreset, objective, [*queries, *solutions])
        return max(ratio_error(a, b) for a, b in zip(small, full, strict=True))

    return _Trial(block, objective, seed, lambda coresets: list(starmap(error, enumerate(coresets))), 0.5)


def _trial_of_fits(block: Block, objective: Objective, seed: int) -> _Trial:
    """The error is the excess cost of a solution over the worst of some on all rows.

    A search from the solution, on all rows, finds the minimum nearby. Where there are many, the typical one of these
    must not be worse than the worst on all rows; if it is, that is part of the error.
    """
    convex = isinstance(objective, InfluenceObjective)
    fits = [objective.solve(block, rng=rng_for(seed, "full", i)) for i in range(1 if convex else _N_SEARCHES)]
    best = float(max(total_costs(block, objective, fits)))

    def errors(coresets: list[Coreset]) -> list[float]:
        rngs = [rng_for(seed, "own", i) for i in range(len(coresets))]
        solutions = [objective.solve(coreset, rng=rng) for coreset, rng in zip(coresets, rngs, strict=True)]
        costs = total_costs(block, objective, solutions)
        if convex:
            return [ratio_error(cost, best) for cost in costs]
        minima = [objective.solve(block, rng=rng, init=s) for s, rng in zip(solutions, rngs, strict=True)]
        least = total_costs(block, objective, minima)
        worse = max(0.0, float(np.median(least)) - best)
        return [ratio_error(cost + worse, nearby) for cost, nearby in zip(costs, least, strict=True)]

    return _Trial(block, objective, seed, errors, 1.0)


def extrapolate_size(measured: float, pilot_size: int, eps: float, *, slope: float = 0.5) -> int:
    """The pilot rule: errors fall like m^-slope, so m = m0 (measured / eps)^(1 / slope) rows are enough.

    >>> extrapolate_size(measured=0.02, pilot_size=1000, eps=0.01)
    4000
    """
    if not (measured >= 0 and pilot_size >= 1 and eps > 0):
        raise ValueError("measured must not be negative, pilot_size at least 1 and eps positive.")
    return max(1, math.ceil(pilot_size * math.pow(measured / eps, 1.0 / slope)))
