"""What a summary of a clustered stream must preserve: the cost of any centres in a quasi-posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tithe.core.contracts import MeanPilotObjective, SensitivityObjective
from tithe.core.data import Array, Block, Moments, Survey
from tithe.objectives.clustering import KMeansObjective, check_centers

N_ATTRIBUTES = 2  # the last columns of a row: the loss when it was predicted, and the curb


@dataclass(frozen=True, kw_only=True)
class QuasiPosteriorObjective(SensitivityObjective, MeanPilotObjective):
    """g_c(x, p, q) = l + q/2 (l - p)^2 with l = min_j |x - c_j|^2: rows are (x, p, q), d + 2 columns.

    p is the loss at which the row was predicted and q >= 0 the curb, an inverse temperature at that time (Li, Guedj
    and Loustau 2018, section 2). Both travel with the row and stay as they were.

    Notes
    -----
    With the pilot, clusters b and distances d_i of k-means, the score of row i is that of `KMeansObjective`, which
    serves the first term, and for the second one, a quartic one in x,

        u_i q_i (d_i^4 + p_i^2) / sum_s u_s q_s (d_s^4 + p_s^2) + u_i q_i / sum_{s in b} u_s q_s.
    """

    n_clusters: int = 8
    name: ClassVar[str] = "quasi_posterior"

    @property
    def _kmeans(self) -> KMeansObjective:
        return KMeansObjective(n_clusters=self.n_clusters)

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """The pilot of k-means on the points."""
        return self._kmeans.pilot(_points(block), rng=rng)

    def mean_pilot(self, block: Block) -> Array:
        return self._kmeans.mean_pilot(_points(block))

    def survey(self, block: Block, pilot: Array) -> Survey:
        return self._kmeans.survey(_points(block), pilot)

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        check_centers(pilot, totals, block.n_features - N_ATTRIBUTES)

    def _check_state(self) -> None:
        self._kmeans  # noqa: B018 - checks the number of clusters

    def sensitivity(self, block: Block, survey: Survey) -> Array:
        """The score of the class docstring: (n,)."""
        score: Array = self._kmeans.sensitivity(block, survey).at()
        predicted, curb = block.X[:, -2], block.X[:, -1] * block.weights()
        quartic = curb * (survey.cost**2 + predicted**2)
        total = quartic.sum()
        mass = np.bincount(survey.labels, weights=curb) if survey.labels is not None else curb.sum(keepdims=True)
        cluster_mass = mass[survey.labels] if survey.labels is not None else mass
        score = score + np.divide(curb, cluster_mass, out=np.zeros_like(curb), where=cluster_mass > 0.0)
        if total > 0.0:
            score += quartic / total
        return score

    def moments(self, block: Block, pilot: Array) -> Moments:
        """The moments of k-means: counts, costs and means of the pilot's clusters."""
        return self._kmeans.moments(_points(block), pilot)

    def cost(self, block: Block, params: Array) -> Array:
        """g of every row: (n,)."""
        loss = self._kmeans.cost(_points(block), params)
        change: Array = loss + 0.5 * block.X[:, -1] * (loss - block.X[:, -2]) ** 2
        return change

    def solve(self, block: Block, *, rng: np.random.Generator, init: Any = None) -> Array:
        """Centres of least k-means cost, which leaves out the second term."""
        return self._kmeans.solve(_points(block), rng=rng, init=init)


def _points(block: Block) -> Block:
    return replace(block, X=np.ascontiguousarray(block.X[:, :-N_ATTRIBUTES]), mean=None)
