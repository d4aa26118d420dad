"""How wide the clusters of the past are, and where a chain may look for centres."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.state_checks import Floats, Integer, Integers, Number, Storable, check_fields, expect
from tithe.kernels.clustering.distances import assign
from tithe.kernels.online.ward import ward_tree
from tithe.objectives.clustering import KMeansObjective

SPLIT = 2.0 / math.pi  # of the variance in a direction is what cutting a Gaussian in two saves
_SPURIOUS = 0.763  # of the variance that a direction only seems to have, as signs fit noise (Parisi 1980)
_CAUTION = 1.5  # times that much must be saved before a cluster counts as two
_COARSE = 2.0  # of the variance in a direction, saved by a row on average, when a scale is searched for
_FAR = 24.0  # times the median loss, over sqrt(d), beyond which a row is not of its cluster
_ROUNDING = 1e-13  # of the largest value: what a row may be away from the mean of rows that are equal to it
_ROWS_A_PIECE = 3  # that two pieces of the tree must have on average


@dataclass(frozen=True, kw_only=True)
class Scale(Storable):
    """What the past looks like: functions of the rows alone, never of where the chain is.

    Parameters
    ----------
    variance : float
        Within clusters, in one direction.
    split : float
        What cutting the largest cluster in two would save were it Gaussian: a row on average, in units of the
        variance.
    anchors, weights : (a, d), (a,)
        Means and weights of the clusters of Ward's tree, at all levels.
    n_cut : int
        Those that come first are the clusters by which variance and split were measured.
    levels : (p + 1, p)
        Which anchors are the k clusters of the tree's level of k, in row k; -1 where there are not so many.
    """

    variance: float
    split: float
    anchors: Array
    weights: Array
    n_cut: int
    levels: Array

    def _check_state(self) -> None:
        """What must hold of a scale that was read from a file."""
        sizes = check_fields(
            self,
            {
                "variance": Number(least=0.0),
                "split": Number(least=0.0),
                "anchors": Floats("a", "d"),
                "weights": Floats("a", least=0.0),
                "n_cut": Integer(least=1),
                "levels": Integers(("p", 1), "p", least=-1, below="a"),
            },
        )
        expect(self.n_cut <= sizes["a"], "there are fewer anchors than clusters")
        check_levels(self.levels)


def measure_scale(block: Block, max_clusters: int, rng: np.random.Generator) -> Scale:
    """Cut the rows into many pieces, join them by Ward, and find the level that is true to its own scale.

    The level is searched from fine to coarse: with v the variance in a direction within the clusters of a level and
    W the weight, the best level at a price of 2 v W a cluster is looked for, until it is the level that v
    came from. Cells of a smooth cloud save less than this price by being apart, so they are joined until a
    cloud is whole; clusters of which there are k must be about 2 sqrt(k) deviations apart. Then clusters that
    save 1.5 times what cutting the largest one in two saves are told apart at this scale.

    Of n rows in d dimensions the direction that varies most seems to vary (1 + sqrt(d / n))^2 times as much as it
    does (Marchenko and Pastur), which makes cutting by so much more attractive, and prices are higher for it.
    """
    weight = block.weights()
    total = float(weight.sum())
    effective = total**2 / float(weight @ weight)
    half = max(1, min(max_clusters, int(effective / _ROWS_A_PIECE)))
    pilot = KMeansObjective(n_clusters=half).pilot(block, rng=rng)
    _, _, sums = assign(block.X, pilot, weight=weight, power=2, with_sums=True)
    assert sums is not None
    used = sums[:, 0] > 0.0
    sums = sums[used]
    mass = sums[:, 0].copy()  # contiguous: kernels are compiled for each layout
    moved = sums[:, -block.n_features :] / mass[:, None]
    within = sums[:, 1] - mass * np.einsum("ij,ij->i", moved, moved)  # about the means, not the pilot
    nodes, weights, pairs, costs = ward_tree(pilot[used] + moved, mass)
    levels = np.arange(len(mass), 0, -1)  # clusters left after each join
    loss = max(0.0, float(within.sum())) + np.concatenate([[0.0], costs.cumsum()])
    free = np.maximum(effective - levels, 0.5 * effective) / effective
    variance = loss / (total * free * block.n_features)
    at, dear = 0, _COARSE * total * float(apparent_variance(effective, block.n_features))
    while (coarser := int((loss + dear * variance[at] * levels).argmin())) > at:
        at = coarser
    cut = _cut(at, pairs, len(mass))
    split = _largest_split(weights[cut] / total, effective, block.n_features)
    price = _CAUTION * split * total * _variance(block, nodes[cut]) / free[at]
    at = int((loss[: at + 1] + price * levels[: at + 1]).argmin())
    cut = _cut(at, pairs, len(mass))
    others = np.setdiff1d(np.arange(len(nodes)), cut)
    order = np.concatenate([cut, others])
    levels, place = np.full((max_clusters + 1, max_clusters), -1), np.argsort(order)
    for k in range(1, min(max_clusters, len(mass)) + 1):
        levels[k, :k] = place[_cut(len(mass) - k, pairs, len(mass))]
    return Scale(
        variance=_variance(block, nodes[cut]) / float(free[at]),
        split=_largest_split(weights[cut] / total, effective, block.n_features),
        anchors=nodes[order],
        weights=weights[order],
        n_cut=len(cut),
        levels=levels,
    )


def check_levels(levels: Array) -> None:
    """Row k names k anchors, or none where there are not so many."""
    used = (levels >= 0).sum(axis=1)
    expect((np.diff((levels >= 0).astype(np.int8), axis=1) <= 0).all(), "levels have gaps")
    expect(((used == 0) | (used == np.arange(len(levels)))).all(), "a level has another number of clusters")


def apparent_variance(n_rows: Any, d: int) -> Any:
    """Of the direction in which n rows seem to vary most, where the variance is 1 in every direction."""
    return (1.0 + np.sqrt(d / n_rows)) ** 2


def apparent_split(n_rows: Any, d: int) -> Any:
    """What cutting n such rows in two seems to save of it, a row on average."""
    return SPLIT + _SPURIOUS * (apparent_variance(n_rows, d) - 1.0)


def _largest_split(shares: Array, effective: float, d: int) -> float:
    """What cutting the largest cluster in two saves, ``shares`` being those of the weight."""
    largest = float(shares.max())
    return float(largest * apparent_split(largest * effective, d))


def _variance(block: Block, centers: Array) -> float:
    """In one direction, of the rows about their centres; those of clusters that are not told apart yet left out.

    Which those are is judged by the median of the rows that are not at their centre: where more than half are equal
    to others, as zeros often are, the rest has a width nevertheless.
    """
    weight = block.weights()
    loss = assign(block.X, centers, power=2)[1]
    order = np.argsort(loss, kind="stable")
    order = order[loss[order] > (_ROUNDING * float(np.abs(block.X).max())) ** 2]
    below = weight[order].cumsum()
    if not len(below) or below[-1] == 0.0:
        return 0.0
    median = loss[order[np.searchsorted(below, 0.5 * below[-1])]]
    near = loss <= median * (1.0 + _FAR / math.sqrt(block.n_features))
    return float(weight[near] @ loss[near] / weight[near].sum()) / block.n_features


def _cut(n_joins: int, pairs: Array, n_pieces: int) -> Array:
    """The nodes that are there after so many joins."""
    gone = pairs[:n_joins].ravel()
    return np.setdiff1d(np.arange(n_pieces + n_joins), gone)
