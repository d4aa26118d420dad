"""Centres to try a coreset for clustering with: random ones, and ones on which it errs more than on most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block, Rng
from tithe.kernels.sampling import sample_rows

_JITTERS = (0.1, 1.0, 10.0)  # multiples of the spread of the columns
_FAR_SHIFT = 100.0  # multiple of the spread of the columns
_SAMPLE_ROWS = 5000  # rows that hard centres are fitted on

Solve = Callable[[Block, int], Array]  # rows and the number of centres -> the best centres


def random_centres(block: Block, n_centers: int, *, n_bases: int, rng: Rng) -> list[Array]:
    """Rows as centres, jittered at scales .1, 1 and 10, and moved far away."""
    queries: list[Array] = []
    spread = np.sqrt(np.mean(_dense(block, rng.integers(0, len(block), min(len(block), 2000))).var(axis=0)))
    for _ in range(n_bases):
        base = _dense(block, rng.choice(len(block), min(n_centers, len(block)), replace=False))
        queries.append(base)
        queries += [base + scale * spread * rng.standard_normal(base.shape) for scale in _JITTERS]
        queries.append(base + _FAR_SHIFT * spread)
    return queries


def hard_centres(block: Block, k: int, solve: Solve, rng: Rng) -> list[Array]:
    """Solutions on tiny and larger subsets, with fewer centres, scaled by ten and a tenth, and centres in one place.

    That place is the origin, the row farthest from it, or another far row.
    """
    sample = sample_rows(block, _SAMPLE_ROWS, rng)
    base = solve(sample, k)
    subsets = [solve(sample_rows(sample, size, rng), k) for size in (k + 2, 5 * k, 1000)]
    fewer = [solve(sample, n) for n in {1, -(-k // 2)}]
    norms = np.asarray(
        sample.X.multiply(sample.X).sum(axis=1) if sparse.issparse(sample.X) else (sample.X**2).sum(axis=1)
    )
    order = np.argsort(-norms.ravel(), kind="stable")
    far_rows = [np.repeat(_dense(sample, order[i : i + 1]), k, axis=0) for i in (0, rng.integers(min(100, len(order))))]
    return [base, 10.0 * base, 0.1 * base, 0.0 * base, *subsets, *fewer, *far_rows]


def _dense(block: Block, rows: Array) -> Array:
    chosen = block.X[np.sort(rows)]
    return np.asarray(chosen.toarray() if sparse.issparse(chosen) else chosen, np.float64)
