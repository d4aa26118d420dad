"""The number of separated clusters: small pieces of the rows are joined until those that are left are separated."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array, Block, effective_sample_size
from tithe.kernels.clustering.distances import assign
from tithe.learners.online.scale import SPLIT, apparent_split, apparent_variance

_MAX_DIRECTIONS = 64  # directions in which pieces are compared
_ENTROPY_FACTOR = 1.1  # cells of a uniform cloud gain nearly the entropy of a cut
_CUT_PARAMETERS = 3  # the share of one side, one more mean and one more variance
_MIN_VARIANCE = 1e-6  # over the mean variance of pieces, because the variance of equal rows is 0


def separated_clusters(block: Block, centers: Array) -> Array:
    """Means (k, d) of the clusters that are left after the pieces, the rows nearest to each centre, are joined.

    Take two pieces of weights n_a and n_b, n = n_a + n_b, with variances v_a and v_b, and v of their union, along the
    line between their means. They are separated, two normal distributions without overlap instead of one, if

        n / 2 ln v - n_a / 2 ln v_a - n_b / 2 ln v_b  >  1.1 n H(n_a / n) + 3 / 2 ln N + n (g(d / n) - g(0)),

    H(p) = -p ln p - (1 - p) ln(1 - p). The left side is .51 n for halves of a normal cloud and .69 n for those of a
    uniform one, whatever its shape in other directions; H is .69, so clouds of equal weight are separated from 3.8
    standard deviations on. g is the apparent gain for halves of a normal cloud of few rows in d dimensions, since the
    line fits noise. The pair that gains most is joined, repeatedly, as long as it is not separated.

    N is the effective number of rows, the square of the sum of the weights over the sum of their squares, and weights
    are counted in this unit.
    """
    pieces = _Pieces(block, centers)
    while pieces.join():
        pass
    return pieces.means[pieces.alive]


class _Pieces:
    """Weights (K,), means (K, d), their coordinates (K, q), scatter about them (K, q, q), and gains of joining (K, K).

    The q coordinates span the means: a line between two of them has no other directions.
    """

    def __init__(self, block: Block, centers: Array) -> None:
        weight = block.weights()
        labels, _, sums = assign(block.X, centers, weight=weight, power=2, with_sums=True)
        assert sums is not None
        used = np.flatnonzero(sums[:, 0] > 0.0)
        unit = effective_sample_size(weight) / weight.sum()
        self.mass = unit * sums[used, 0]
        self.means = centers[used] + sums[used, -block.n_features :] / sums[used, :1]
        self.n_features = block.n_features
        self.price = 0.5 * _CUT_PARAMETERS * np.log(self.mass.sum())
        middle = np.average(self.means, axis=0, weights=self.mass)
        axes = np.linalg.svd((self.means - middle) * np.sqrt(self.mass)[:, None], full_matrices=False)[2]
        axes = axes[:_MAX_DIRECTIONS].T
        self.places = (self.means - middle) @ axes
        rows = np.asarray(block.X @ axes) - middle @ axes
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], [used, used + 1]).T
        self.scatter = np.empty((len(used), axes.shape[1], axes.shape[1]))
        for piece, (start, stop) in enumerate(bounds):
            at = order[start:stop]
            gap = rows[at] - self.places[piece]
            self.scatter[piece] = (gap * (unit * weight[at])[:, None]).T @ gap
        spread = float(np.einsum("ijj->", self.scatter)) / (axes.shape[1] * self.mass.sum())
        self.least = max(_MIN_VARIANCE * spread, np.finfo(float).tiny)
        self.alive = np.ones(len(used), dtype=bool)  # False for pieces that were joined to another
        self.gains = np.empty((len(used), len(used)))
        for piece in range(len(used)):
            self._compare(piece)

    def _compare(self, piece: int) -> None:
        """Compute the gain of joining a piece with each of the others."""
        line = self.places - self.places[piece]
        square = np.einsum("ij,ij->i", line, line)
        line = np.divide(line, np.sqrt(square)[:, None], out=np.zeros_like(line), where=square[:, None] > 0.0)
        scatter_a = np.einsum("ij,ij->i", line @ self.scatter[piece], line)
        scatter_b = np.einsum("ij,ij->i", np.einsum("ij,ijk->ik", line, self.scatter), line)
        n_a, n_b = self.mass[piece], self.mass
        n = n_a + n_b
        # one more row of the pooled variance is added to each piece, because the variance of few rows is uncertain
        pooled = (scatter_a + scatter_b) / n + self.least

        def fit(mass: Array | float, scatter: Array) -> Array:
            value: Array = 0.5 * mass * np.log((scatter + pooled) / (mass + 1.0))
            return value

        entropy = n * np.log(n) - n_a * np.log(n_a) - n_b * np.log(n_b)
        cut = fit(n, scatter_a + scatter_b + n_a * n_b / n * square) - fit(n_a, scatter_a) - fit(n_b, scatter_b)
        gain = _ENTROPY_FACTOR * entropy + self.price + n * _from_noise(n, self.n_features) - cut
        gain[piece] = -np.inf
        gain[~self.alive] = -np.inf
        self.gains[piece] = self.gains[:, piece] = gain

    def join(self) -> bool:
        """Join the pair that gains most. Returns False if no pair gains."""
        a, b = (int(i) for i in np.unravel_index(int(self.gains.argmax()), self.gains.shape))
        if self.gains[a, b] < 0.0:
            return False
        n = self.mass[a] + self.mass[b]
        share = self.mass[b] / n
        line = self.places[b] - self.places[a]
        self.scatter[a] += self.scatter[b] + n * share * (1.0 - share) * np.outer(line, line)
        self.places[a] += share * line
        self.means[a] += share * (self.means[b] - self.means[a])
        self.mass[a], self.alive[b] = n, False
        self.gains[b] = self.gains[:, b] = -np.inf
        self._compare(a)
        return True


def _from_noise(n_rows: Array, d: int) -> Array:
    """g(d / n) - g(0) with g = ln(f / (f - s)) / 2, f the variance along the line, s what the cut saves of it."""
    variance, saved = apparent_variance(n_rows, d), apparent_split(n_rows, d)
    gain: Array = 0.5 * np.log(variance / (variance - saved)) + 0.5 * np.log1p(-SPLIT)
    return gain
