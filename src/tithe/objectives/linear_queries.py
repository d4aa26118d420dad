"""Parameters of linear models on which a coreset errs more than on most: what sizes are tried with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.kernels.sampling import sample_rows

_SAMPLE = 10_000  # rows that stand for all where solutions are fitted
_STRENGTHS = (1e-3, 0.1, 10.0, 1e3)  # of the losses beside the penalty, times that of the objective
_SUBSETS = 20, 1000  # rows of subsets, and ...
_SUBSET_PER_COLUMN = 2  # ... so many for each column
_FAR_POOL = 100  # far rows that one is chosen from
_SCORES = (3.0, -3.0)  # that a far row gets by a direction of its own
_SPREADS = (0.3, 1.0, 3.0)  # of the scores along random directions


def hard_queries(objective: Any, block: Block, rng: np.random.Generator) -> list[Array]:
    """Parameters (k, d + 1) each: zero, solutions on subsets and with other penalties, far rows, random directions."""
    some = _of_all_classes(objective, block, _SAMPLE, rng)
    rough = objective.rough()
    stands = block.total_weight / some.total_weight
    scaled = Block(X=some.X, y=some.y, sample_weight=some.weights() * stands)
    base: Array = rough.solve(scaled, rng=rng)
    sizes = [*_SUBSETS, _SUBSET_PER_COLUMN * (block.n_features + 1)]
    subsets = [rough.solve(_of_all_classes(objective, some, size, rng), rng=rng) for size in sizes]
    others = [rough.strengthened(factor).solve(scaled, rng=rng) for factor in _STRENGTHS]
    queries = [0.0 * base, 0.1 * base, base, 10.0 * base, *subsets, *(10.0 * q for q in subsets), *others]
    return [*queries, *_far(objective, some, base, rng), *_random(some, base, rng)]


def _of_all_classes(objective: Any, block: Block, size: int, rng: np.random.Generator) -> Block:
    """Random rows, and some of each class that would be missing."""
    some = sample_rows(block, size, rng)
    codes, drawn = objective.codes(block), objective.codes(some)
    missing = np.setdiff1d(np.unique(codes), drawn)
    if len(missing) == 0:
        return some
    more = [rng.permutation(np.flatnonzero(codes == code))[:3] for code in missing]
    rows = rng.permutation(len(block))[:size]
    return block.take(np.unique(np.concatenate([rows, *more])))


def _far(objective: Any, some: Block, base: Array, rng: np.random.Generator) -> list[Array]:
    """Directions of the farthest row and of another far one, alone and against the solution ``base``."""
    X = some.X
    norms = np.asarray(X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)).ravel()
    order, codes = np.argsort(-norms, kind="stable"), objective.codes(some)
    queries = []
    for i in (order[0], rng.choice(order[: min(_FAR_POOL, len(order))])):
        row = X[[i]].toarray()[0] if sparse.issparse(X) else np.asarray(X[i], np.float64)
        along = np.append(row / max(float(norms[i]), 1e-300), 0.0)
        away = np.zeros_like(base)
        away[codes[i] if len(base) > 1 else 0] = along if len(base) > 1 or codes[i] == 1 else -along
        queries += [score * away for score in _SCORES]
        queries.append(base - 5.0 * away)
    return queries


def _random(some: Block, base: Array, rng: np.random.Generator) -> list[Array]:
    """Random directions without intercept, two for each spread of the scores."""
    X = some.X
    mean_square = float((X.multiply(X).sum() if sparse.issparse(X) else np.vdot(X, X)) / X.shape[0])
    queries = []
    for spread in _SPREADS:
        for _ in range(2):
            direction = rng.standard_normal(base.shape) * (spread / max(np.sqrt(mean_square), 1e-150))
            direction[:, -1] = 0.0
            queries.append(direction)
    return queries
