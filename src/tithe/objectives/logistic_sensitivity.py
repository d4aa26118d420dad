"""Sensitivities of logistic regression, bounded through clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tithe.core.contracts import ClusterBoundedObjective, ClusterSet
from tithe.core.data import Array, Block
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value
from tithe.core.state_checks import Floats, Integers, Optional, Storable, check_fields, expect
from tithe.kernels.linear.sensitivity_bounds import N_SUMS, Views, cluster_members, cluster_sums, decay_scores
from tithe.objectives.clustering import KMeansObjective
from tithe.objectives.labels import signed

_N_INIT = 2  # searches for the clusters: any clusters give a bound, better ones a tighter one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters(ClusterSet, Storable):
    """Clusters of the rows of a logistic regression.

    Parameters
    ----------
    centers : (k, d + 1) float64
        The last coordinate belongs to the intercept; 0 where there is none.
    labels : (k,) int32 or None
        The class whose rows a centre stands for. None: two classes, mirrored onto each other.
    mass : (k,) float64 or None
        The weight of the rows whose exact means the centres are; None: the centres are not exact means.
    """

    centers: Array
    labels: Array | None = None
    mass: Array | None = None

    def __len__(self) -> int:
        return len(self.centers)

    def _check_state(self) -> None:
        check_fields(
            self,
            {
                "centers": Floats("k", "d"),
                "labels": Optional(Integers("k", dtypes=("int32",), least=0)),
                "mass": Optional(Floats("k", least=0.0)),
            },
        )
        expect(len(self) > 0, "there are no clusters")

    def check_columns(self, n_features: int, n_classes: int) -> None:
        expect(self.centers.shape[1] == n_features + 1, "clusters are of other columns")
        expect(self.labels is None or self.labels.max() < n_classes, "clusters are of other classes")


class ClusterBounds(ClusterBoundedObjective):
    """s_n = u_n / (u_n + sum_i W_i exp(-R |m_i - z_n|)) >= the sensitivity of row n, for all |theta| <= R.

    Huggins, Campbell and Broderick (2016). Two classes: z = +-(x, 1), + for class 1, and the loss is
    phi(z . theta), phi(t) = ln(1 + exp(-t)). W_i and m_i are weights and exact means of clusters of
    all rows, without row n in its own. phi is convex, so a cluster costs at least W_i phi(m_i . theta);
    ln phi has slopes within (-1, 0), so that is at least W_i phi(z_n . theta) exp(-R |m_i - z_n|).
    Taking row n out costs nothing: W becomes W - u and m - z becomes (m - z) W / (W - u).

    More classes: f = ln sum_k exp((theta_k - theta_y) . z) with z = (x, 1). Among rows of one class y
    it is convex in z, and the slopes of ln f in the margins (theta_k - theta_y) . z are P_k / f for
    k != y, adding up to (1 - P_y) / -ln(P_y) <= 1: ln f changes by at most the largest change of a
    margin. So the same bound holds with the clusters of the row's own class and
    R >= max_kl |theta_k - theta_l|. Leaving the other classes out only loosens it.

    The proof needs centres that are the means of their rows. ``repair="means"`` assigns all rows
    and recomputes the means; ``repair="mass"`` keeps the centres q_i and replaces W_i by
    sum_l u_l exp(-R |z_l - q_i|) over the rows of the cluster, which is valid but looser.
    ``certified=False`` treats the centres as means although they are not, as published (ACvS).
    """

    fit_intercept: bool

    def clusters(self, block: Block, n_clusters: int, *, rng: np.random.Generator) -> Clusters:
        check_value("n_clusters", n_clusters, WholeNumber(least=1))
        codes = self.codes(block)
        search = KMeansObjective(n_clusters=n_clusters, n_init=_N_INIT)
        last = 1.0 if self.fit_intercept else 0.0
        if self.n_classes == 2:
            rows = signed(block.X, 2.0 * codes - 1.0, last)
            return Clusters(centers=search.solve(Block(X=rows, sample_weight=block.sample_weight), rng=rng))
        centers, labels = [], []
        for g in np.flatnonzero(np.bincount(codes, minlength=self.n_classes)):
            members = block.take(np.flatnonzero(codes == g))
            if members.sample_weight is not None and not members.sample_weight.any():
                continue
            class_centers = search.solve(Block(X=members.X, sample_weight=members.sample_weight), rng=rng)
            centers.append(np.column_stack([class_centers, np.full(len(class_centers), last)]))
            labels += [g] * len(class_centers)
        return Clusters(centers=np.concatenate(centers), labels=np.array(labels, np.int32))

    def exact_clusters(self, block: Block, clusters: Clusters) -> Clusters:
        return self._exact_clusters(block, clusters, self.codes(block))[0]

    def cluster_bound(
        self,
        block: Block,
        clusters: Clusters,
        *,
        radius: float,
        certified: bool = True,
        repair: str = "means",
        codes: Array | None = None,
    ) -> Array:
        """s_n of every row: (n,), in (0, 1], and 0 where the weight is 0. ``codes`` are those of `codes`, if known."""
        check_value("repair", repair, OneOf("means", "mass"))
        check_value("radius", radius, RealNumber(least=0.0))
        codes = self.codes(block) if codes is None else codes
        weight = block.sample_weight
        views = self._views(clusters)
        by_mass = certified and repair == "mass"
        if by_mass:
            labels, sums = cluster_sums(block.X, codes, views, weight=weight, radius=radius)
            mass = sums[:, 1]
        elif certified:
            exact, labels = self._exact_clusters(block, clusters, codes)
            assert exact.mass is not None
            views, mass = self._views(exact), exact.mass
        else:
            labels, sums = cluster_members(block.X, codes, views, weight=weight, with_rows=False)
            mass = sums[:, 0]
        return decay_scores(
            block.X, codes, views, mass=mass, radius=radius, labels=labels, by_mass=by_mass, weight=weight
        )

    def bound_of_new(self, block: Block, clusters: Clusters, *, radius: float) -> Array:
        """s_n of rows that are not part of the clusters: (n,)."""
        if clusters.mass is None:
            raise ValueError(
                "These clusters have no weights yet: call exact_clusters() with the rows that they stand for."
            )
        views, weight = self._views(clusters), block.sample_weight
        codes = self.codes(block)
        return decay_scores(block.X, codes, views, mass=clusters.mass, radius=radius, labels=None, weight=weight)

    def default_radius(self, block: Block, clusters: Clusters) -> float:
        """3 / sqrt(mean squared distance to the nearest centre), the rule of the authors' code; 1 where that is 0."""
        views = self._views(clusters)
        sums = cluster_sums(block.X, self.codes(block), views, weight=block.sample_weight)[1]
        weight, inertia = sums[:, 0].sum(), sums[:, 1].sum()
        return float(3.0 / np.sqrt(inertia / weight)) if inertia > 0.0 else 1.0

    def radius_from(self, params: Array) -> float:
        """1.5 |theta| for parameters (1, d + 1), 1.5 max_kl |theta_k - theta_l| for (K, d + 1)."""
        params = np.atleast_2d(np.asarray(params, np.float64))
        if len(params) == 1:
            return float(1.5 * np.linalg.norm(params))
        return float(1.5 * max(np.linalg.norm(params - row, axis=1).max() for row in params))

    def _exact_clusters(self, block: Block, clusters: Clusters, codes: Array) -> tuple[Clusters, Array]:
        labels, sums = cluster_members(block.X, codes, self._views(clusters), weight=block.sample_weight)
        held = np.where(sums[:, :1] > 0.0, sums[:, :1], 1.0)
        last = sums[:, 2:3] if self.fit_intercept else np.zeros((len(sums), 1))
        means = np.hstack([sums[:, N_SUMS:], last]) / held
        means = np.where(sums[:, :1] > 0.0, means, clusters.centers)
        return replace(clusters, centers=means, mass=sums[:, 0]), labels

    def _views(self, clusters: Clusters) -> Views:
        """Each class sees the centres from its own side: for two classes |+-x - q| = |x -+ q|."""
        centers, last = clusters.centers, 1.0 if self.fit_intercept else 0.0
        if clusters.labels is None:
            sign = np.array([-1.0, 1.0])
            by_class = sign[:, None, None] * centers
            cluster = np.tile(np.arange(len(centers), dtype=np.int32), (2, 1))
            return Views(
                centers=by_class[:, :, :-1], extra=np.square(last - by_class[:, :, -1]), sign=sign, cluster=cluster
            )
        counts = np.bincount(clusters.labels, minlength=self.n_classes)
        cluster = np.full((self.n_classes, int(counts.max())), -1, np.int32)
        by_class = np.zeros((*cluster.shape, centers.shape[1]))
        for g, count in enumerate(counts):
            cluster[g, :count] = np.flatnonzero(clusters.labels == g)
            by_class[g, :count] = centers[cluster[g, :count]]
        extra = np.where(cluster >= 0, np.square(last - by_class[:, :, -1]), 0.0)
        return Views(centers=by_class[:, :, :-1], extra=extra, sign=np.ones(self.n_classes), cluster=cluster)
