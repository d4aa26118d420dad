"""Which rows of the past belong to clusters that get no rows any more."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array, Block
from tithe.kernels.clustering.centres import assign

_MIN_EXPECTED = 12.0  # rows of a cluster that goes on; none of them is held with a probability of exp(-12)
_MIN_HALF_LIVES = 1.5  # without a row; shorter pauses are common in streams with days and weeks
_MAX_HALF_LIVES = 60.0  # older rows have no weight; powers of two must not overflow


def stale_rows(block: Block, centers: Array, n_rows: int, half_life: float) -> Array:
    """Whether the cluster of each row has ended: (n,) of bool.

    A cluster has ended if it got no row for one and a half half-lives, and would have at least 12 of the rows held
    from this time had it gone on as before: its share of the weight when its last row came, times the rows held since.

    Parameters
    ----------
    block : Block
        Rows with the weights 2^(-age / half_life) times the number of rows that each stands for. Ids are positions in
        the stream of ``n_rows`` rows.
    centers : (k, d)
        Of the clusters.
    """
    weight, k = block.weights(), len(centers)
    labels = assign(block.X, centers)[0]
    age = (n_rows - 1.0 - block.row_ids()) / half_life
    gap = np.full(k, np.inf)
    np.minimum.at(gap, labels, age)
    mass = np.bincount(labels, weights=weight, minlength=k)
    share = np.minimum(1.0, mass * 2.0 ** np.minimum(gap, _MAX_HALF_LIVES) / mass.sum())
    held_since = np.searchsorted(np.sort(age), gap)
    ended: Array = (gap >= _MIN_HALF_LIVES) & (share * held_since >= _MIN_EXPECTED)
    return ended[labels]
