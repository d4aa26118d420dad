"""The width of the clusters of the past, and proposals for centres."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.spatial.distance import cdist

from tithe.clustering.choose_k import apparent_split, apparent_variance
from tithe.clustering.kernels import assign
from tithe.core.data import Array, Block
from tithe.core.state_checks import Floats, Integer, Integers, Number, Storable, expect
from tithe.online.kernels import cut_in_pieces, ward_tree

_SPLIT_FACTOR = 1.5  # a cluster counts as two if cutting it saves this many times the split of a Gaussian
_COARSE_PRICE = 2.0  # price of a cluster in the search for a scale: variances in a direction per row
_MAX_LOSS_RATIO = 24.0  # over sqrt(d): rows of a larger loss over the median are not in their cluster
_ROUNDING = 1e-13  # distance of equal rows from their mean over the largest value
_ROWS_PER_PIECE = 3  # effective rows, on average
_MIN_SHARE, _MIN_ROWS = 0.01, 2.5  # of the weight, and rows: lighter clusters are not sound
_N_LATEST = 64  # rows far from all clusters that others are compared with
_MIN_POCKET_SHARE, _MIN_POCKET = 0.1, 2.0  # of these, and rows, that are near one that recurs
_MIN_NOISE, _MAX_NOISE = 0.01, 0.12  # of the weight: less or more than this is no noise
_MOST_OF_LARGEST = 0.6  # over the largest loss of a normal cluster: the rows that are no noise have less


@dataclass(frozen=True, kw_only=True)
class Scale(Storable):
    """Statistics of the past, which depend on the rows and on the number of centres at the time of the survey.

    ``variance`` is that within clusters, in one direction; ``split`` is what cutting the largest cluster in two would
    save if it were Gaussian: the mean over all rows, in units of the variance. ``noise`` is the share of the weight
    that rows far from all clusters had, which do not recur. ``anchors`` (a, d) and ``weights`` (a,)
    are those of the clusters of Ward's tree, at all levels, the ``n_cut`` that were found apart from each other first.
    Row k of ``levels`` (p + 1, p) holds the anchors that are the k clusters of the tree; -1 if there are fewer.
    """

    variance: Annotated[float, Number(least=0.0)]
    split: Annotated[float, Number(least=0.0)]
    anchors: Annotated[Array, Floats("a", "d")]
    weights: Annotated[Array, Floats("a", least=0.0)]
    n_cut: Annotated[int, Integer(least=1)]
    levels: Annotated[Array, Integers(("p", 1), "p", least=-1, below="a")]
    noise: Annotated[float, Number(least=0.0, most=1.0)] = 0.0

    def check_relations(self) -> None:
        expect(self.n_cut <= len(self.anchors), "there are fewer anchors than clusters")
        check_levels(self.levels)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Rows cut into many small pieces: their centres (k, d), and mass, loss and sum of the rows of each (k, 2 + d)."""

    places: Array
    sums: Array
    effective: float  # rows, by their weights

    @classmethod
    def of(cls, block: Block, max_clusters: int, seed: int, row: int) -> Self:
        """Pieces by D^2 draws that depend on the seed and the number of the row."""
        weight = block.weights()
        effective = float(weight.sum() ** 2 / (weight @ weight))
        k = 2 * max(1, min(max_clusters, int(effective / _ROWS_PER_PIECE)))
        places, sums = cut_in_pieces(np.ascontiguousarray(block.X.T), weight, k, seed, row)
        return cls(places=places, sums=sums, effective=effective)._only(sums[:, 0] > 0.0)

    def without_noise(self) -> Self:
        """Without the light pieces, in which noise is. It makes all clusters seem wider."""
        mass = self.sums[:, 0]
        light = mass < _MIN_SHARE * mass.sum()
        return self._only(~light) if mass[light].sum() <= _MAX_NOISE * mass.sum() else self

    def _only(self, used: Array) -> Self:
        if used.all():
            return self
        share = float(self.sums[used, 0].sum() / self.sums[:, 0].sum())
        return replace(self, places=self.places[used], sums=self.sums[used], effective=share * self.effective)


def measure_scale(block: Block, pieces: Pieces, max_clusters: int, n_centers: int = 1) -> Scale:
    """Join the pieces of the rows by Ward's method, and find the level that is consistent with its scale.

    From fine to coarse: with v the variance in a direction within the clusters of a level and W the total weight, the
    best level at a price of 2 v W per cluster, until it is the level that v was measured at. Separate cells of a
    smooth cloud save less than this price. Then clusters that save 1.5 times what cutting the largest one in two saves
    are separated.

    With more ``n_centers`` than these clusters, variance and split are those of so many clusters of the tree. For n
    rows in d dimensions cuts seem to save (1 + sqrt(d / n))^2 times as much (Marchenko and Pastur), as does the price.
    """
    sums, effective, mass = pieces.sums, pieces.effective, pieces.sums[:, 0].copy()
    total, means = float(mass.sum()), sums[:, 2:] / mass[:, None]
    within = sums[:, 1] - mass * ((means - pieces.places) ** 2).sum(axis=1)
    nodes, weights, pairs, costs = ward_tree(means, mass)
    levels = np.arange(len(mass), 0, -1)  # clusters left after each join
    loss = max(0.0, float(within.sum())) + np.concatenate([[0.0], costs.cumsum()])
    free = np.maximum(effective - levels, 0.5 * effective) / effective
    variance = loss / (total * free * block.n_features)
    at, price_factor = 0, _COARSE_PRICE * total * float(apparent_variance(effective, block.n_features))
    while (coarser := int((loss + price_factor * variance[at] * levels).argmin())) > at:
        at = coarser
    alive = _alive(pairs, len(mass))
    cut, coarse = np.flatnonzero(alive[at]), at
    split = _largest_split(weights[cut] / total, effective, block.n_features)
    spread = _variance(block, nodes[cut])
    price = _SPLIT_FACTOR * split * total * spread / free[at]
    at = int((loss[: at + 1] + price * levels[: at + 1]).argmin())
    present = min(at, max(0, len(mass) - n_centers))
    measured = np.flatnonzero(alive[present])
    order = np.concatenate([np.flatnonzero(alive[at]), np.flatnonzero(~alive[at])])
    return Scale(
        variance=(spread if present == coarse else _variance(block, nodes[measured])) / float(free[present]),
        split=_largest_split(weights[measured] / total, effective, block.n_features),
        anchors=nodes[order],
        weights=weights[order],
        n_cut=int(levels[at]),
        levels=_levels(alive, np.argsort(order), max_clusters),
    )


def largest_loss(variance: float, d: int) -> float:
    """A loss that hardly any row of a normal cluster with this variance in each direction has."""
    return variance * (d + 4.0 * math.sqrt(2.0 * d) + 8.0)


def lone_rows(block: Block, scale: Scale) -> Array:
    """Whether each row is far from all clusters and does not recur, as noise is: (n,) of bool.

    A row is far if its loss at each cluster with a hundredth of the weight is more than the largest one of a row
    there. If it recurs, at least a tenth of the latest 64 such rows are near it, and two rows. Less than a
    hundredth of the weight is no noise: a far row may be the first of a cluster, and a centre for it does no harm. Nor
    is there noise where many rows are between near and far, as those of long tails are.
    """
    weight, lone = block.weights(), np.zeros(len(block), bool)
    mass, most = scale.weights[: scale.n_cut], largest_loss(scale.variance, block.n_features)
    sound = scale.anchors[: scale.n_cut][mass >= max(_MIN_ROWS, _MIN_SHARE * weight.sum())]
    if len(sound) == 0 or most == 0.0:
        return lone
    loss = assign(block.X, sound, power=2)[1]
    between = weight[loss > _MOST_OF_LARGEST * most].sum() > _MAX_NOISE * weight.sum()
    if between or np.median(loss) <= _ROUNDING * most:  # most rows may be equal, and the others all that varies
        return lone
    far = np.flatnonzero((loss > most) & (weight > 0.0))
    latest = far[np.argsort(block.row_ids()[far], kind="stable")][-_N_LATEST:]
    count = np.maximum(weight[latest], 1.0)  # a row that has faded has still come
    near = (cdist(block.X[far], block.X[latest], "sqeuclidean") <= most) @ count
    lone[far] = near < max(_MIN_POCKET, _MIN_POCKET_SHARE * count.sum())
    return lone if weight[lone].sum() >= _MIN_NOISE * weight.sum() else np.zeros(len(block), bool)


def check_levels(levels: Array) -> None:
    """Refuse levels whose row k does not have k anchors or none."""
    used = (levels >= 0).sum(axis=1)
    expect((np.diff((levels >= 0).astype(np.int8), axis=1) <= 0).all(), "levels have gaps")
    expect(((used == 0) | (used == np.arange(len(levels)))).all(), "a level has another number of clusters")


def _largest_split(shares: Array, effective: float, d: int) -> float:
    """What cutting the largest cluster in two saves. ``shares`` are the clusters' shares of the weight."""
    largest = float(shares.max())
    return float(largest * apparent_split(largest * effective, d))


def _variance(block: Block, centers: Array) -> float:
    """Variance of the rows around their centres in one direction, without rows of clusters that have no centre yet."""
    weight = block.weights()
    loss = assign(block.X, centers, power=2)[1]
    order = np.argsort(loss, kind="stable")
    order = order[loss[order] > (_ROUNDING * float(np.abs(block.X).max())) ** 2]
    below = weight[order].cumsum()
    if not len(below) or below[-1] == 0.0:
        return 0.0
    median = loss[order[np.searchsorted(below, 0.5 * below[-1])]]
    near = loss <= median * (1.0 + _MAX_LOSS_RATIO / math.sqrt(block.n_features))
    return float(weight[near] @ loss[near] / weight[near].sum()) / block.n_features


def _alive(pairs: Array, n_pieces: int) -> Array:
    """Whether each node of the tree is one of the clusters after 0, 1, 2 ... joins: (k, 2k - 1) of bool."""
    turn, node = np.arange(n_pieces)[:, None], np.arange(2 * n_pieces - 1)
    joined = np.full(len(node), n_pieces)
    joined[pairs] = np.arange(n_pieces - 1)[:, None]
    alive: Array = (node - n_pieces < turn) & (turn <= joined)
    return alive


def _levels(alive: Array, place: Array, max_clusters: int) -> Array:
    """Row k: the places of the k clusters of the tree, for k up to ``max_clusters``."""
    levels, most = np.full((max_clusters + 1, max_clusters), -1), min(max_clusters, len(alive))
    used = np.arange(max_clusters) < np.arange(1, most + 1)[:, None]
    levels[1 : most + 1][used] = place[np.nonzero(alive[::-1][:most])[1]]
    return levels
