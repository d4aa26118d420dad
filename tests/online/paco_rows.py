"""Rows in blobs, and whether two online clusterings went the same way."""

from __future__ import annotations

import numpy as np

from tithe.online import PACO


def blobs(n: int, k: int = 4, d: int = 2, *, seed: int = 0, apart: float = 10.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    places = apart * np.array([[i % 3, i // 3] for i in range(k)], float)
    centers = np.zeros((k, d))
    centers[:, :2] = places - places.mean(axis=0)
    return centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))


def same(a: PACO, b: PACO) -> bool:
    left, right = a.history_, b.history_
    return all(np.array_equal(left[name], right[name]) for name in left) and np.array_equal(
        a.cluster_centers_, b.cluster_centers_
    )
