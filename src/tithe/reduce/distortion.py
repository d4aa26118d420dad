"""The distortion of a coreset: by how much it changes the cost of queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.contracts import Objective, SampledObjective, Source
from tithe.core.data import Array, Block, Coreset, html_facts
from tithe.core.params import RealNumber, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.registry import make
from tithe.core.seeding import rng_for
from tithe.reduce.plan import check_contracts
from tithe.rows.arrays import as_matrix, is_frame
from tithe.rows.encode import later_rows, refuse_other_width

_JITTERS = (0.1, 1.0, 10.0)  # lengths of the steps of a climb
_SAMPLE_ROWS = 200_000  # rows of a source that solutions are fitted on


@dataclass(frozen=True, kw_only=True, repr=False)
class Distortion:
    """max(r, 1/r) - 1 with r = cost(coreset, q) / cost(full, q), by family of queries q.

    ``values`` maps a family to one number per query. ``worst`` is the largest of all: a LOWER
    bound on the worst case over all queries, since only these were tried.

    >>> errors = Distortion(values={"random": np.array([0.01, 0.03]), "full": np.array([0.002])})
    >>> errors.worst, round(errors.transfer_factor(), 4)
    (0.03, 1.0609)
    >>> print(errors)
      random: median 0.0200, max 0.0300
        full: median 0.0020, max 0.0020
    worst tried 0.0300 (a lower bound on the worst case)
    """

    values: Mapping[str, Array]

    @property
    def worst(self) -> float:
        return max(float(v.max()) for v in self.values.values())

    def transfer_factor(self, approximation: float = 1.0) -> float:
        """What a solution costs on all rows, in units of the smallest cost, if no query has more than ``worst``.

        The solution is within a factor lambda = ``approximation`` of the best one on the coreset. In general the factor
        is lambda (1 + e) / (1 - e') if costs are overestimated by at most e and underestimated by at most e', in shares
        of the cost. With w = ``worst`` these are e = w and e' = w / (1 + w), which gives lambda (1 + w)^2. It is proved
        if the solution and the best one on all rows are among the queries, and an estimate otherwise.
        """
        check_value("approximation", approximation, RealNumber(least=1.0))
        return approximation * (1.0 + self.worst) ** 2

    def summary(self) -> dict[str, tuple[float, float]]:
        """Median and largest distortion of each family."""
        return {name: (float(np.median(v)), float(v.max())) for name, v in self.values.items()}

    def __repr__(self) -> str:
        return f"Distortion(worst={self.worst:.4f})\n{self}"

    def _repr_html_(self) -> str:
        facts = {name: f"median {mid:.4f}, max {top:.4f}" for name, (mid, top) in self.summary().items()}
        worst = {"worst tried": f"{self.worst:.4f}, a lower bound on the worst case"}
        return html_facts("Distortion", {**facts, **worst})

    def __str__(self) -> str:
        lines = [f"{name:>8}: median {mid:.4f}, max {top:.4f}" for name, (mid, top) in self.summary().items()]
        return "\n".join([*lines, f"worst tried {self.worst:.4f} (a lower bound on the worst case)"])


def ratio_error(small: float, full: float) -> float:
    """max(r, 1/r) - 1 for r = small / full; a full cost of 0 must be met by 0."""
    if full == 0.0:
        return 0.0 if small == 0.0 else math.inf
    r = small / full
    return max(r, 1.0 / r) - 1.0 if r > 0 else math.inf


def refuse_signed(objective: Objective, *, needed_by: str) -> None:
    """Refuse an objective whose cost may be negative: errors are no shares of it."""
    if objective.signed:
        raise ValueError(
            f"{needed_by} compares errors with the cost, and that of objective {objective.name!r} may be negative. "
            "Compare the certificates of fits."
        )


def random_queries(block: Block, objective: Objective, *, n_bases: int, seed: int) -> list[Any]:
    """The objective's random queries. They depend on ``seed`` alone and so not on the coreset."""
    return objective.random_params(block, n_bases=n_bases, rng=rng_for(seed, "queries"))


def total_costs(
    rows: Block | Source,
    objective: Objective,
    queries: Sequence[Any],
    engine: Any = "auto",
    progress: Progress | bool | None = None,
) -> Array:
    """The weighted cost of each query on all rows, in one pass: (q,)."""
    data = DataPass(rows, engine, progress)
    totals: Array = data.total(lambda leaf: np.array([objective.cost(leaf, q) @ leaf.weights() for q in queries]))
    return totals


def distortion(
    full: Any,
    coreset: Block,
    objective: str | Objective,
    *,
    queries: Mapping[str, Sequence[Any]] | None = None,
    n_bases: int = 4,
    n_fits: int = 2,
    climb: int = 20,
    random_state: int = 0,
    engine: Any = "auto",
    progress: Progress | bool | None = None,
) -> Distortion:
    """Cost distortion of a coreset, by family of queries.

    Parameters
    ----------
    full : Block, array, frame or source
        A frame becomes features as that of the coreset did.
        From a source the families are made from a sample of the rows (``full`` is then fitted on that), and
        costs are taken in one pass over all of them.
    coreset : Block
    objective : objective
        One with centres or ``random_params``; any other if ``queries`` is given.
    queries : mapping of family name to queries, optional
        Try these instead of the families below.
    n_bases : int
        Sets of random centres; each gives five queries of family ``random``.
    n_fits : int
        Solutions fitted on the full data (``full``) and on the coreset (``coreset``).
    climb : int
        Passes over the full data for hill-climbing on the log ratio from the rough solution (family ``climb``); 0
        leaves the family out.
    random_state : int
        Must not be the seed of the coreset: the queries have to be independent of it.
    engine : str or engine
        Makes the pass over the rows of a source: see `build_coreset`.
    progress : callable, bool or None
        Of the pass over all rows: see `build_coreset`.

    Returns
    -------
    Distortion
        A lower bound on the worst case: the true worst query may not be among those tried.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> objective = tithe.objectives.KMeansObjective(n_clusters=2)
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective=objective, coreset_size=200, random_state=0)
    >>> errors = tithe.distortion(X, coreset, objective, random_state=1)
    >>> sorted(errors.values), errors.worst < 0.2
    (['climb', 'coreset', 'full', 'random', 'rough'], True)
    """
    goal: Objective = make("objective", objective)
    if isinstance(full, Coreset) and not isinstance(coreset, Coreset):
        raise ValueError("distortion(full, coreset, objective) takes all rows first and the coreset second.")
    if isinstance(coreset, Coreset) and coreset.schema is not None and is_frame(full):
        full = later_rows(coreset.schema, full)
    coreset = _as_block(coreset)
    sample = full
    if isinstance(full, Source):
        sample = full.sample(_SAMPLE_ROWS, rng=rng_for(random_state, "sample")) if queries is None else full
        climb = 0  # each step would be a pass over the files
    else:
        full = sample = _as_block(full)
    if full.n_features != coreset.n_features:
        refuse_other_width(coreset.schema if isinstance(coreset, Coreset) else None, full.n_features)
        raise ValueError(f"The rows have {full.n_features} columns, and the coreset has {coreset.n_features}.")
    objective = goal.for_rows(coreset)
    refuse_signed(objective, needed_by="distortion")
    if queries is None:
        check_contracts(objective, (SampledObjective,), needed_by="distortion without queries")
        assert isinstance(objective, SampledObjective)
        queries = {
            "full": [objective.solve(sample, rng=rng_for(random_state, "full", i)) for i in range(n_fits)],
            "coreset": [objective.solve(coreset, rng=rng_for(random_state, "coreset", i)) for i in range(n_fits)],
            "random": random_queries(sample, objective, n_bases=n_bases, seed=random_state),
            "rough": [objective.pilot(sample, rng=rng_for(random_state, "rough"))],
        }
        if climb:
            queries = {**queries, "climb": [_climb(full, coreset, objective, queries["rough"][0], climb, random_state)]}
    all_queries = [q for family in queries.values() for q in family]
    full_costs = total_costs(full, objective, all_queries, engine, progress)
    costs = zip(total_costs(coreset, objective, all_queries), full_costs, strict=True)
    errors = [ratio_error(small, large) for small, large in costs]
    values, at = {}, 0
    for name, family in queries.items():
        values[name] = np.array(errors[at : at + len(family)])
        at += len(family)
    return Distortion(values=values)


def _as_block(rows: Any) -> Block:
    """A block of floating-point rows, from a block, an array or a frame."""
    block = rows if isinstance(rows, Block) else Block(X=as_matrix(rows))
    if block.X.dtype in (np.float32, np.float64) and (sparse.issparse(block.X) or block.X.flags.c_contiguous):
        return block
    X = block.X.astype(np.float64) if sparse.issparse(block.X) else np.ascontiguousarray(block.X, np.float64)
    return Block(X=X, y=block.y, sample_weight=block.sample_weight, indices=block.indices)


def _climb(full: Block, coreset: Block, objective: Objective, query: Array, budget: int, seed: int) -> Array:
    """The worst query on a random walk that takes only steps to a larger error."""

    def error_of(candidate: Array) -> float:
        small, large = (float(objective.cost(rows, candidate) @ rows.weights()) for rows in (coreset, full))
        return ratio_error(small, large)

    rng = rng_for(seed, "climb")
    spread = np.sqrt(np.mean(query.var(axis=0))) or 1.0
    worst, height = query, error_of(query)
    for _ in range(budget):
        step = rng.choice(_JITTERS) * spread
        candidate = worst.copy()
        candidate[rng.integers(len(query))] += step * rng.standard_normal(query.shape[1])
        error = error_of(candidate)
        if error > height:
            worst, height = candidate, error
    return worst
