"""Rows for the tests of this folder."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import Block


@pytest.fixture(scope="module")
def problem() -> Block:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(23_000, 4)) * [1.0, 2.0, 0.5, 1.0] + rng.choice(
        [0.0, 6.0, 30.0], (23_000, 1), p=[0.6, 0.38, 0.02]
    )
    y = (X @ [0.3, -0.2, 0.5, 0.1] + rng.logistic(size=23_000) > 1).astype(np.int64)
    return Block(X=X, y=y, sample_weight=rng.choice([0.0, 0.5, 1.0, 3.0], 23_000))
