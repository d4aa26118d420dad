"""Small weighted problems with difficult rows: an outlier, a duplicate, unequal clusters."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Block


def small_problem(n: int = 160, d: int = 3, *, weighted: bool = True, outlier: bool = True, seed: int = 0) -> Block:
    """Unequal blobs, a far outlier if wanted and a duplicated row, with integer weights if weighted."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=4.0, size=(4, d))
    which = rng.choice(4, n, p=[0.55, 0.3, 0.1, 0.05])
    X = centers[which] + rng.normal(size=(n, d))
    if outlier:
        X[0] = 40.0
    X[1] = X[2]
    weight = rng.integers(1, 5, n).astype(np.float64) if weighted else None
    y = (which % 2).astype(np.float64)
    return Block(X=X, y=y, sample_weight=weight, indices=np.arange(n))


def repeated(block: Block) -> Block:
    """The same problem with integer weights written out as repeated rows."""
    times = block.weights().astype(int)
    return Block(
        X=np.repeat(block.X, times, axis=0),
        y=None if block.y is None else np.repeat(block.y, times),
        indices=np.arange(times.sum()),
    )
