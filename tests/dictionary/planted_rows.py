"""Rows made of few atoms of a random dictionary."""

from __future__ import annotations

import numpy as np


def planted(n: int, *, seed: int = 0, d: int = 20, k: int = 50, most: int = 3, noise: float = 0.01):
    """Signals of ``most`` atoms of a random dictionary; noise is the share of the signals' energy."""
    rng = np.random.default_rng(seed)
    atoms = rng.uniform(-1, 1, size=(k, d))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    used = np.argpartition(rng.random((n, k)), most, axis=1)[:, :most]
    X = np.einsum("nt,ntd->nd", rng.uniform(-1, 1, size=(n, most)), atoms[used])
    return X + rng.normal(size=X.shape) * np.sqrt(noise * (X**2).mean()), atoms
