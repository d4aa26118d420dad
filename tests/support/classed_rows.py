"""Rows with three classes and weights, and places to cut them into leaves."""

from __future__ import annotations

import numpy as np

UNEVEN = [1, 1, 3000, 3100, 21_000, 21_000, 39_998]  # eight leaves, two of them empty, of 40,000 rows


def classed_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """40,000 rows, three classes, weights."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40_000, 4)) * [0.5, 1.0, 2.0, 4.0] + 3.0
    y = ((X - 3.0) @ rng.normal(size=(4, 3)) + rng.gumbel(size=(40_000, 3))).argmax(axis=1)
    return X, np.array(["no", "maybe", "yes"])[y], rng.exponential(size=40_000)
