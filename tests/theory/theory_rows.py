"""Random problems for tests of theorems."""

from __future__ import annotations

import numpy as np

from tithe import Block


def weighted_rows(seed: int, n: int = 40, d: int = 2) -> Block:
    """Weighted rows, some far from the others, half of them in two classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, (n, 1))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(np.int32)
    y[:2] = 0, 1
    return Block(X=X, y=y, sample_weight=rng.integers(1, 4, n).astype(np.float64))
