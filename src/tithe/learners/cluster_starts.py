"""Centres that a search for clusters on a coreset starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_random_state

from tithe.core.data import Array, Block, Coreset
from tithe.objectives.clustering import ClusteringObjective

_MAX_DENSE_SIZE = 10_000_000  # entries of a sparse matrix up to which equal rows are looked for


def search_centers(objective: ClusteringObjective, coreset: Coreset, init: Any, rng: np.random.Generator) -> Array:
    """The best centres that are found on the coreset from the starts that ``init`` gives."""
    rows = distinct_rows(coreset) if coreset.is_whole else coreset
    k, n_init = objective.n_clusters, objective.n_init
    if isinstance(init, str) and init == "k-means++":
        return objective.solve(rows, rng=rng)
    if isinstance(init, str):
        return objective.race(rows, [random_rows(rows, k, rng) for _ in range(n_init)])
    shape = (k, coreset.n_features)
    if not callable(init):
        return objective.race(rows, [_checked_centers(init, shape)])
    seeds = rng.integers(2**31, size=n_init)
    starts = [init(coreset.X, k, random_state=check_random_state(int(seed))) for seed in seeds]
    return objective.race(rows, [_checked_centers(start, shape) for start in starts])


def _checked_centers(init: Any, shape: tuple[int, int]) -> Array:
    init = init.toarray() if sparse.issparse(init) else init  # a callable may return rows of a sparse X
    centers: Array = check_array(init, dtype=np.float64, order="C", input_name="init")
    if centers.shape != shape:
        raise ValueError(
            f"The shape of the initial centers {centers.shape} must be {shape}: a row for each cluster, and the "
            "columns of X."
        )
    return centers


def random_rows(block: Block, n_rows: int, rng: np.random.Generator) -> Array:
    """Different rows (at most ``n_rows``), drawn by their weights."""
    weight = block.weights()
    places = rng.choice(len(block), min(n_rows, len(block)), replace=False, p=weight / weight.sum())
    rows = block.X[places]
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def distinct_rows(coreset: Coreset) -> Block:
    """Distinct rows in a fixed order with the weights of equal rows added.

    A search on them gives the same result for duplicates and for weights, and for any order of the rows.
    """
    X = coreset.X
    dense = X
    if sparse.issparse(X):
        if X.shape[0] * X.shape[1] > _MAX_DENSE_SIZE:
            return coreset
        X = X.copy()
        X.sum_duplicates()
        dense = X.toarray()
    _, first, group = np.unique(dense, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(group.ravel(), weights=coreset.weights(), minlength=len(first))
    return Block(X=X[first], sample_weight=weight)
