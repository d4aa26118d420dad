"""The data of the demonstration: generated payments, nearly all of six ordinary kinds, a few of ten rare ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tithe.core.data import Array

# amount in euros, distance from home in kilometres: ordinary payments are small and near home
_ORDINARY = ((40, 30), (120, 60), (60, 130), (190, 40), (150, 150), (60, 230))
_ORDINARY_SHARES = (0.26, 0.22, 0.18, 0.15, 0.11, 0.08)
_RARE = (
    (400, 80),
    (680, 60),
    (930, 150),
    (330, 320),
    (620, 330),
    (880, 480),
    (90, 560),
    (400, 640),
    (680, 760),
    (180, 880),
)
_RARE_SHARES = (0.0002, 0.0004)  # of all payments: the smallest and the largest rare group
_MIN_RARE = 10  # payments of a rare group, however few there are in all
_SPREAD = 5.0  # standard deviation of a group, in euros and in kilometres
N_ORDINARY, N_RARE = len(_ORDINARY), len(_RARE)
N_GROUPS = N_ORDINARY + N_RARE


@dataclass(frozen=True, kw_only=True, eq=False)
class Payments:
    """Payments, and the group that each was generated from; the rare groups come last.

    Parameters
    ----------
    X : array (n, 2) float32
        Amount in euros and distance from home in kilometres.
    group : array (n,)
        From 0 to 15; the rare groups are those from 6 on.
    middles : array (16, 2)
        Where the groups lie.
    """

    X: Array
    group: Array
    middles: Array

    def rare_found(self, labels: Array) -> Array:
        """For each rare group whether some cluster holds most of it and, by more than half, nothing else: (10,)."""
        n_clusters = int(labels.max()) + 1
        counts = np.bincount(self.group * n_clusters + labels, minlength=N_GROUPS * n_clusters)
        counts = counts.reshape(N_GROUPS, n_clusters)
        largest = counts.max(axis=1)
        of_cluster = counts.sum(axis=0)[counts.argmax(axis=1)]
        found = (2 * largest > counts.sum(axis=1)) & (2 * largest > of_cluster)
        return np.asarray(found[N_ORDINARY:])


def generated_payments(n_rows: int, seed: int = 0) -> Payments:
    """Payments in random order."""
    rng = np.random.default_rng(seed)
    rare = np.maximum(_MIN_RARE, (n_rows * np.linspace(*_RARE_SHARES, N_RARE)).astype(int))
    ordinary = ((n_rows - rare.sum()) * np.array(_ORDINARY_SHARES)).astype(int)
    ordinary[0] += n_rows - rare.sum() - ordinary.sum()
    group = rng.permutation(np.repeat(np.arange(N_GROUPS), np.concatenate([ordinary, rare])))
    middles = np.array([*_ORDINARY, *_RARE], np.float32)
    X = middles[group] + np.float32(_SPREAD) * rng.standard_normal((n_rows, 2), np.float32)
    return Payments(X=X, group=group, middles=middles)
