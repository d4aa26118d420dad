"""Random numbers that depend on a row's id alone."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# constants of SplitMix64
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hashed(ids: Array, key: int) -> Array:
    """A number of 64 bits for each row id, different for different ids, as random as the key: (n,) uint64.

    It is output number ``id`` of the generator SplitMix64 (Steele, Lea and Flood 2014) seeded with the
    key, so whether a row is chosen depends on nothing but its id.
    """
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def uniform_of(ids: Array, key: int) -> Array:
    """The same as numbers in [0, 1): (n,)."""
    numbers: Array = (hashed(ids, key) >> np.uint64(11)) * 2.0**-53
    return numbers
