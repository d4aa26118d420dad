"""How many rows to keep, measured on the data itself; `tithe.theory.sizes` has the sizes of theorems."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tithe.certify.gap import ConvexObjective, values_of
from tithe.core.contracts import Objective, SampledObjective, Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.params import OneOf, check_value
from tithe.core.passes import DataPass
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.reduce.distortion import random_queries, ratio_error, refuse_signed, total_costs
from tithe.reduce.plan import Plan, check_contracts, reduce_rows
from tithe.rows.arrays import as_block

PROMISE = OneOf("fit", "costs")

_MIN_ROWS_TO_MEASURE = 100  # with fewer rows nothing can be measured, and all are kept
_SAMPLE_ROWS = 200_000  # rows of a source that sizes are measured on
_MERGE_FACTOR = 1.5  # by how much merging may add to the error of a draw; the theory of balanced costs says 1.41
_N_DRAWS = 20  # of each size; the largest error of 20 is below that of one more in 1 of 21 cases, whatever its law
_LEVEL = 0.99  # of the limit for errors that are normal, or the squares of normal ones: they are not quite
_MIN_ROWS_PER_NUMBER = 8  # rows for each number of the pilot; calibration needs that many
_LARGEST_ERROR = 1e3  # infinite ones, of a cost of nothing, count as this
_N_SEARCHES = 5  # on all rows, for a loss with many local minima
_OTHER_STRENGTH = 100.0  # of the losses beside the penalty, at which a trial coreset is fitted as well


def propose_size(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    eps: float,
    promise: str = "fit",
    pilot_size: int = 1000,
    random_state: Any = 0,
) -> tuple[int, float]:
    """A coreset size for an error of ``eps``, and a limit that the error stays below in 95 % of draws.

    Two promises can be asked for. ``"fit"``: a fit on the coreset has a loss of at most 1 + ``eps`` times that of a fit
    on all rows. ``"costs"``: the coreset tells the cost of any solution within a factor of 1 ± ``eps``, which takes far
    more rows, often all of them.

    Twenty coresets of a size are built, and the error e of each is measured. The limit is the largest of the twenty,
    or what corresponds to a + t s sqrt(1 + 1/20) if that is more, with a and s the mean and standard deviation of the
    distortions, or of the roots of the excesses, and t the quantile 0.99 of Student's distribution. One more coreset
    has an error above the largest of twenty with a probability of 1/21. The limit is compared with ``eps``. Sizes are
    tried by bisection, ``pilot_size`` times powers of the root of 2, and the smallest that is met with a limit within
    ``eps`` is proposed; all rows if there is none. The sizes are the same for every ``eps``, so that a larger ``eps``
    never asks for more rows.

    ``"fit"``: e is the excess of the loss that is fitted, penalty included, on all rows: that of the solution on the
    coreset over that of a solution on all rows, as a share of the latter. A loss that is not convex, such as that of
    clusters, has many local minima, and which of them a search finds is chance, also on all rows. So e is the larger
    one of two numbers: the excess over the minimum that a search on all rows reaches from this solution, and over the
    worst of five searches on all rows.

    ``"costs"``: e is the largest distortion of some fifty queries: random ones, zero, solutions on subsets and with
    other penalties or fewer centres, these ten times as large and a tenth, parameters that point at far rows, and the
    solutions on the coresets themselves.
    What is promised: in at least 95 % of draws of this size, no query like those tried has a distortion above
    ``eps``. It is a measurement, not a theorem: queries of other kinds may have more, above all scores far outside the
    band on the few rows of a rare column alone where columns are one-hot (`benchmarks/sizes.py`).

    ``X`` may be a source: then a sample of 200,000 of its rows is measured on, far rows that are not in it are not
    known, and an error 1.5 times as large (of a fit 1.5^2 times) is counted, as merging adds to it. Where that is not
    all rows, sizes beyond a fifth of the sample are not tried. Errors of costs fall like m^(-1/2), and those of fits
    like 1/m, so that they are computed from what a fifth has. With too few rows to tell, all are proposed.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> objective = tithe.objectives.KMeansObjective(n_clusters=2)
    >>> size, limit = tithe.propose_size(X, objective=objective, eps=0.1, pilot_size=200)
    >>> size < 500, limit <= 0.1
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
    numbers = pilot.shape[0] * (1 + (pilot.shape[1] if pilot.shape[0] == 1 else 1))
    of_fits = promise == "fit"
    error = _error_of_fits(block, goal, seed) if of_fits else _error_of_costs(block, goal, pilot, seed)
    trial = _Trial(
        block=block,
        objective=goal,
        seed=seed,
        error=error,
        slope=1.0 if of_fits else 0.5,
        is_whole=len(block) == n_rows or len(block) < _SAMPLE_ROWS,
        factor=_MERGE_FACTOR if is_source else 1.0,
    )
    least = min(_MIN_ROWS_PER_NUMBER * numbers, len(block) // 4)
    proposed, limit = _smallest_size(trial, _sizes(pilot_size, least, trial.largest), pilot_size, eps)
    if n_rows is not None and proposed >= n_rows:
        return n_rows, 0.0  # all rows have no error
    return proposed, limit


def _sizes(pilot_size: int, least: int, largest: int) -> list[int]:
    """What may be tried: ``least``, ``largest``, and between them ``pilot_size`` times powers of the root of 2."""
    steps = range(math.ceil(2.0 * math.log2(least / pilot_size)), math.floor(2.0 * math.log2(largest / pilot_size)) + 1)
    return sorted({least, *(round(pilot_size * 2.0 ** (step / 2)) for step in steps), largest})


def _smallest_size(trial: _Trial, sizes: list[int], first: int, eps: float) -> tuple[int, float]:
    """The smallest of the sizes that bisection from ``first`` meets whose limit is within the goal, and that limit.

    Whatever the limits are, a wider goal ends at a smaller size: the sizes tried are the same up to the first that
    only the wider goal accepts.
    """
    failed, passed = -1, len(sizes)
    at = min(bisect_left(sizes, first), len(sizes) - 1)
    limits: dict[int, float] = {}
    while passed - failed > 1:
        limits[at] = trial.limit(sizes[at], eps)
        if limits[at] <= eps:
            passed = at
        else:
            failed = at
        at = (failed + passed) // 2
    if passed < len(sizes):
        return sizes[passed], limits[passed]
    if trial.is_whole:
        return len(trial.block), 0.0
    limit = trial.limit(sizes[failed])
    proposed = extrapolate_size(limit, sizes[failed], eps, slope=trial.slope)
    return proposed, limit * (sizes[failed] / proposed) ** trial.slope


@dataclass(frozen=True, eq=False)
class _Trial:
    """Rows, and the errors of coresets of them, which fall like m^-``slope``.

    ``is_whole`` says whether these are all rows. ``factor`` is what merging may multiply errors of costs by, and its
    square those of fits.
    """

    block: Block
    objective: Objective
    seed: int
    error: Callable[[int, Coreset], float]
    slope: float
    is_whole: bool
    factor: float

    @property
    def largest(self) -> int:
        """The largest size to try: nearly all rows tell nothing of more rows."""
        return len(self.block) * (9 if self.is_whole else 2) // 10

    def limit(self, size: int, enough: float = math.inf) -> float:
        """What the error of one more coreset stays below; once an error is above ``enough``, that error."""
        # among few rows, those that a draw takes out miss; the error falls like (1 / m - 1 / n)^slope
        missing = 1.0 if self.is_whole else 1.0 - size / len(self.block)
        factor, power, roots = math.pow(self.factor**2 / missing, self.slope), 2.0 * self.slope, np.empty(_N_DRAWS)
        for i in range(_N_DRAWS):
            seed = int(rng_for(self.seed, "propose", i).integers(2**62))
            plan = Plan.of(self.objective, "auto", size, calibrate=True, seed=seed)
            error = factor * min(self.error(i, reduce_rows(DataPass(self.block), plan)), _LARGEST_ERROR)
            if error > enough:
                return error
            roots[i] = math.pow(error, 1.0 / power)
        spread = stdtrit(_N_DRAWS - 1, _LEVEL) * math.sqrt(1.0 + 1.0 / _N_DRAWS) * roots.std(ddof=1)
        return math.pow(max(roots.max(), roots.mean() + spread), power)


def _error_of_costs(block: Block, objective: Objective, pilot: Array, seed: int) -> Callable[[int, Coreset], float]:
    """The largest distortion of queries, whose costs on all rows are known, and of the solutions on the coreset."""
    queries = [*random_queries(block, objective, n_bases=4, seed=seed), pilot]
    queries += objective.hard_params(block, rng=rng_for(seed, "hard"))
    costs, stronger = total_costs(block, objective, queries), objective.strengthened(_OTHER_STRENGTH)

    def error(number: int, coreset: Coreset) -> float:
        rng = rng_for(seed, "own", number)
        solutions = [goal.solve(coreset, rng=rng) for goal in (objective, stronger) if goal is not None]
        full = [*costs, *total_costs(block, objective, solutions)]
        small = total_costs(coreset, objective, [*queries, *solutions])
        return max(ratio_error(a, b) for a, b in zip(small, full, strict=True))

    return error


def _error_of_fits(block: Block, objective: Objective, seed: int) -> Callable[[int, Coreset], float]:
    """The excess of a solution over the worst of some on all rows, and over the minimum nearby if that is more."""
    convex, data = isinstance(objective, ConvexObjective), DataPass(block)
    usual = (
        0.0
        if convex
        else float(total_costs(block, objective, random_queries(block, objective, n_bases=1, seed=seed)).max())
    )
    fits = [objective.solve(block, rng=rng_for(seed, "full", i)) for i in range(1 if convex else _N_SEARCHES)]
    worst = float(values_of(objective, data, fits, usual).max())

    def error(number: int, coreset: Coreset) -> float:
        rng = rng_for(seed, "own", number)
        solution = objective.solve(coreset, rng=rng)
        nearby = [] if convex else [objective.solve(block, rng=rng, init=solution)]
        value, *least = values_of(objective, data, [solution, *nearby], usual)
        return max(0.0 if value <= other else ratio_error(value, other) for other in (worst, *least))

    return error


def extrapolate_size(measured: float, pilot_size: int, eps: float, *, slope: float = 0.5) -> int:
    """The pilot rule: errors fall like m^-slope, so m = m0 (measured / eps)^(1 / slope) rows are enough.

    >>> extrapolate_size(measured=0.02, pilot_size=1000, eps=0.01)
    4000
    """
    if not (measured >= 0 and pilot_size >= 1 and eps > 0):
        raise ValueError("measured must not be negative, pilot_size at least 1 and eps positive.")
    return max(1, math.ceil(pilot_size * math.pow(measured / eps, 1.0 / slope)))
