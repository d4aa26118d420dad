"""Solutions of linear models to try a coreset with: random ones, and some on which a coreset errs more than on most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block, Rng
from tithe.reduce.kernels import sample_rows

if TYPE_CHECKING:
    from tithe.linear.objective import LinearModelObjective

_SAMPLE_FOR_SCALE = 20_000  # rows that the scale of columns is taken from
_CONSTANT = 1e-10  # deviation of a column, relative to its largest value, up to which it is constant
_SAMPLE_FOR_FITS = 10_000  # rows that solutions are fitted on
_STRENGTHS = (1e-3, 0.1, 10.0, 1e3)  # factors on the losses, relative to the penalty
_SUBSET_ROWS = 20, 1000
_SUBSET_ROWS_PER_COLUMN = 2  # of one more subset
_FAR_ROWS = 100  # one of this many rows of largest norm is chosen
_SCORES = (3.0, -3.0)  # of a far row, along its own direction
_SPREADS = (0.3, 1.0, 3.0)  # of the scores along random directions


def random_linear(objective: LinearModelObjective, block: Block, n_bases: int, rng: Rng) -> list[Array]:
    """Solutions of small samples, each also moved by .1, 1 and 10 in every score, and a hundred times as large."""
    sample = sample_rows(block, _SAMPLE_FOR_SCALE, rng)
    rows = sample.X.toarray() if sparse.issparse(sample.X) else sample.X
    scale = np.append(rows.std(axis=0, dtype=np.float64), 1.0)
    # the deviation of a column that is constant in the sample is 0, or what rounding leaves of it
    varies = scale > _CONSTANT * np.append(np.abs(rows).max(axis=0), 1.0)
    unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=varies) / np.sqrt(len(scale))
    queries: list[Array] = []
    for _ in range(n_bases):
        base = objective.pilot(block, rng=rng)
        queries.append(base)
        queries += [base + distance * unit * rng.standard_normal(base.shape) for distance in (0.1, 1.0, 10.0)]
        queries.append(100.0 * base)
    return _with_scales(objective, queries, block)


def hard_linear(objective: LinearModelObjective, block: Block, rng: Rng) -> list[Array]:
    """Parameters (k, d + 1) each: zero, solutions on subsets and with other penalties, far rows, random directions."""
    sample = objective.sample_for_query(block, _SAMPLE_FOR_FITS, rng)
    rough = objective.rough()
    stands = block.total_weight / sample.total_weight
    scaled = Block(X=sample.X, y=sample.y, sample_weight=sample.weights() * stands)
    base: Array = rough.solve(scaled, rng=rng)
    sizes = [*_SUBSET_ROWS, _SUBSET_ROWS_PER_COLUMN * (block.n_features + 1)]
    subsets = [rough.solve(objective.sample_for_query(sample, size, rng), rng=rng) for size in sizes]
    penalised = [rough.strengthened(factor).solve(scaled, rng=rng) for factor in _STRENGTHS]
    queries = [0.0 * base, 0.1 * base, base, 10.0 * base, *subsets, *(10.0 * q for q in subsets), *penalised]
    queries += [*_far_directions(objective, sample, base, rng), *_random_directions(sample, base, rng)]
    return _with_scales(objective, queries, block)


def _with_scales(objective: LinearModelObjective, queries: list[Array], block: Block) -> list[Array]:
    """The same queries, with scales that are positive and have no coefficients."""
    linear = objective.n_scores - objective.n_scales
    scales = objective.flat(block)[linear:]
    for query in queries:
        query[linear:] = np.where((scales > 0.0) & (query[linear:] > 0.0), query[linear:], scales)
    return queries


def _far_directions(objective: LinearModelObjective, sample: Block, base: Array, rng: Rng) -> list[Array]:
    """Directions of the farthest row and of another far one, alone and against the solution ``base``."""
    X = sample.X
    norms = np.asarray(X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)).ravel()
    order = np.argsort(-norms, kind="stable")
    queries = []
    for i in (order[0], rng.choice(order[: min(_FAR_ROWS, len(order))])):
        row = X[[i]].toarray()[0] if sparse.issparse(X) else np.asarray(X[i], np.float64)
        direction = np.append(row / max(float(norms[i]), 1e-300), 0.0)
        away = objective.query_direction(sample, int(i), direction)
        queries += [score * away for score in _SCORES]
        queries.append(base - 5.0 * away)
    return queries


def _random_directions(sample: Block, base: Array, rng: Rng) -> list[Array]:
    """Random directions without intercept, two for each spread of the scores."""
    X = sample.X
    mean_square = float((X.multiply(X).sum() if sparse.issparse(X) else np.vdot(X, X)) / X.shape[0])
    queries = []
    for spread in _SPREADS:
        for _ in range(2):
            direction = rng.standard_normal(base.shape) * (spread / max(np.sqrt(mean_square), 1e-150))
            direction[:, -1] = 0.0
            queries.append(direction)
    return queries
