"""Random numbers that depend on a seed and a purpose, not on the order of calls."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def as_seed(random_state: Any) -> int:
    """An integer seed from a ``random_state`` as in scikit-learn."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}.")
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    raise ValueError(f"random_state must be None, an integer, a RandomState or a Generator, got {random_state!r}.")


def rng_for(seed: int, *key: int | str) -> np.random.Generator:
    """A Philox generator for a seed and a key, such as a tree position and a purpose.

    >>> rng_for(7, 0, 3, "draw").random() == rng_for(7, 0, 3, "draw").random()
    True
    """
    words = tuple(zlib.crc32(k.encode()) if isinstance(k, str) else k for k in key)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=words)))
