"""How many rows to keep, measured on the data itself."""

from __future__ import annotations

from typing import Any

from tithe.build import reduce_source
from tithe.core.data import Block
from tithe.core.errors import require_methods
from tithe.core.protocols import is_source
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.metrics import distortion, size_from_pilot, trial_queries
from tithe.sources.arrays import ArraySource, as_block

_FEW = 100  # rows too few to measure anything on: keep them all
_SAMPLE = 200_000  # rows of a source that sizes are measured on
_TREE = 1.5  # by how much merging may add to the error of a draw; the theory of balanced costs says 1.41
_TRIES = 3  # coresets of each size
_LEAST = 8  # rows for each number of the pilot: with fewer, calibration steers by nothing


def propose_size(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: Any,
    eps: float,
    pilot_size: int = 1000,
    random_state: Any = 0,
) -> tuple[int, float]:
    """A coreset size for a distortion of ``eps``, and the distortion that coresets of that size had.

    Three coresets of ``pilot_size`` rows are built, and the largest distortion of each over random
    queries, the rough solution and the solutions of the coresets themselves is measured. Since errors fall
    like m^(-1/2), that many rows times the square of (measured / eps) are tried next, and more until all
    three are within ``eps``; sizes beyond a quarter of the rows at hand are not tried. It is a
    measurement on queries that were tried, not a guarantee. ``X`` may be a source: then a sample of 200,000 of
    its rows is measured on, and ``eps`` is divided by 1.5 for what merging adds. With too few rows to
    tell, all are proposed.
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}.")
    objective = make("objective", objective)
    require_methods(objective, ("pilot", "survey", "moments"), needed_by="propose_size")
    seed = as_seed(random_state)
    n_rows: int | None
    if is_source(X):
        block, n_rows, within = X.sample(_SAMPLE, rng=rng_for(seed, "propose")), X.n_rows, eps / _TREE
    else:
        block = as_block(X, y, sample_weight)
        n_rows, within = len(block), eps
    if callable(getattr(objective, "for_rows", None)):
        objective = objective.for_rows(block)
    queries = trial_queries(block, objective, n_bases=4, seed=seed)
    if len(block) < _FEW:
        return (len(block) if n_rows is None else n_rows), 0.0
    pilot = objective.pilot(block, rng=rng_for(seed, "rough"))
    least = min(_LEAST * pilot.shape[0] * (1 + (pilot.shape[1] if pilot.shape[0] == 1 else 1)), len(block) // 4)
    largest = len(block) // 4  # of a size to measure: a coreset of all rows tells nothing
    size = min(max(pilot_size, least), largest)
    measured = _measured(block, objective, size, [*queries, pilot], seed)
    proposed = max(least, size_from_pilot(measured, size, within))
    while proposed <= largest:  # at another size calibration may steer by more or by less: measure it
        measured = _measured(block, objective, proposed, [*queries, pilot], seed)
        if measured <= within:
            break
        proposed = max(proposed + proposed // 2, size_from_pilot(measured, proposed, within))
    return (proposed if n_rows is None else min(proposed, n_rows)), measured


def _measured(block: Block, objective: Any, size: int, queries: list[Any], seed: int) -> float:
    """The largest distortion that any of three coresets has."""
    worst = []
    for i in range(_TRIES):
        coreset = reduce_source(
            ArraySource(block),
            objective=objective,
            coreset_size=size,
            random_state=int(rng_for(seed, "propose", i).integers(2**62)),
        )
        own = objective.solve(coreset, rng=rng_for(seed, "own", i))
        worst.append(distortion(block, coreset, objective, queries={"tried": [*queries, own]}).worst)
    return max(worst)
