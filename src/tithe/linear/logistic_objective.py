"""The objective of logistic regression, and bounds on the sensitivity of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax

from tithe.clustering.objective import KMeansObjective
from tithe.core.data import Array, Block, Evaluation
from tithe.core.params import Constraint, OneOf, Option, RealNumber, Target, WholeNumber, check_params, check_value
from tithe.core.state_checks import Floats, Integers, Optional, Storable, expect
from tithe.linear.kernels import Loss, ScoreSums, sweep
from tithe.linear.logistic_kernels import LogisticSums, logistic_sweep, sums_of_two_classes
from tithe.linear.objective import LabelledLinearObjective, signed
from tithe.linear.sensitivity_kernels import N_SUMS, Views, cluster_members, cluster_sums, decay_scores

_N_INIT = 2  # searches for the clusters: any clusters give a bound, better ones a tighter one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters(Storable):
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

    centers: Annotated[Array, Floats("k", "d")]
    labels: Annotated[Array | None, Optional(Integers("k", dtypes=("int32",), least=0))] = None
    mass: Annotated[Array | None, Optional(Floats("k", least=0.0))] = None

    def __len__(self) -> int:
        return len(self.centers)

    def check_relations(self) -> None:
        expect(len(self) > 0, "there are no clusters")

    def check_columns(self, n_features: int, n_classes: int) -> None:
        expect(self.centers.shape[1] == n_features + 1, "clusters are of other columns")
        expect(self.labels is None or self.labels.max() < n_classes, "clusters are of other classes")


@dataclass(frozen=True, kw_only=True)
class LogisticObjective(LabelledLinearObjective[LogisticSums]):
    """f(x, y) = -ln P(y | x), with penalty |coefficients|^2 / (2 C) on top of the sum.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty, as in scikit-learn: it stands beside a *sum* of losses, so
        the weights of a coreset, which add up to those of all rows, keep its meaning. Infinity: no penalty.
    fit_intercept : bool
        The intercept carries no penalty.
    classes : tuple or None
        Labels, in the order of their numbers. None: taken from the rows at hand.
    max_iter, tol : int, float
        `solve` stops after ``max_iter`` rounds, or when a Newton step promises a smaller relative gain than ``tol``.

    Notes
    -----
    Parameters are (k, d + 1), intercepts last. Two classes: k = 1 and P(1 | x) = 1 / (1 + exp(-m)),
    m = theta . (x, 1). K > 2 classes: k = K and P = softmax(m), as in scikit-learn.

    With r = P - [y = class] the residual (k numbers a row), the moments are 1, the indicators of
    all classes but the first, r, and r times x. Reproducing their totals gives the coreset the
    gradient of the full data at the pilot, so that its solution errs to second order only.
    The best place for the pilot is the solution on the drawn rows (``totals_at_solution``).

    Bound. For any shares 0 <= s_c <= 1 of the classes c with sum_c s_c R_c = 0, R_c the sum of r
    over the rows of class c (only needed with an intercept), the mixtures of P and [y = .] with
    shares s are a feasible point of the dual problem and, the entropy H being concave,

        P(theta) - P* <= P(theta) - sum_c s_c sum_c H(P) + (C/2) |sum_c s_c G_c|^2,

    G_c the sum of r x over class c. R has the form of a generator of a Markov chain (rows sum to
    zero, off-diagonal entries are not negative), so such s exist: its stationary distribution. At
    s = 1 the right-hand side is |gradient|^2 C / 2. With more than 32 classes and an intercept, and without a
    penalty, the bound is only that losses are not negative.

    Sensitivities through clusters, for `Cablr`, `Acvs` and `Regressed`. For all |theta| <= R that of row n is at most

        s_n = u_n / (u_n + sum_i W_i exp(-R |m_i - z_n|)).

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

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array(["no", "yes"]))
    >>> objective = LogisticObjective().for_rows(block)
    >>> objective.classes
    ('no', 'yes')
    >>> objective.cost(block, np.zeros((1, 2))).round(6)
    array([0.693147, 0.693147])
    """

    C: float = 1.0

    constraints: ClassVar[dict[str, Constraint]] = {"C": RealNumber(above=0.0, finite=False)}
    options: ClassVar[tuple[Option, ...]] = (
        Option("C", constraints["C"], "Inverse strength of the penalty.", ("-C", "--inverse-penalty")),
    )
    target: ClassVar[Target] = "class"
    name: ClassVar[str] = "logistic"
    error_model = "likelihood"
    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_params(self, self.constraints)
        super().__post_init__()

    def strengthened(self, factor: float) -> Self:
        return replace(self, C=self.C * factor)

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        """The size of the residual of rows with these losses, up to sqrt(2): 1 - P(y | x)."""
        return -np.expm1(-cost)

    def can_be_fitted(self, block: Block) -> bool:
        return bool(np.bincount(self.codes(block), weights=block.sample_weight, minlength=self.n_classes).all())

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """The result of `solve`, and its number of passes over the rows.

        If a class has no rows there is no minimiser (its intercept falls for ever), and zeros are returned. Without a
        penalty there is none either if classes can be separated: the first solution that separates them is returned.
        """
        if not self.can_be_fitted(block):
            return np.zeros((self.n_scores, block.n_features + 1)), 0
        return super().minimise(block, init=init)

    def evaluation(self, sums: LogisticSums, params: Array) -> Evaluation:
        gradient = sums.gradient
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        elif len(gradient) > 1:
            gradient[:, -1] -= gradient[:, -1].mean()  # the mean is zero but for rounding, which would be magnified
        coefficients = params[:, :-1]
        penalty = 0.5 / self.C * float(np.vdot(coefficients, coefficients))
        value = float(sums.loss.sum()) + penalty
        dual = self._dual(sums)
        gradient[:, :-1] += coefficients / self.C
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=float(np.clip(value - dual, 0.0, value)),
            diagonal=sums.diagonal,
            totals=self.totals_of(sums),
        )

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        chance, change = self._chances(block, params), self.margins(block.X, direction).astype(np.float64)
        if self.n_classes == 2:
            return (chance * (1.0 - chance) * change * change)[:, 0]
        mean = np.einsum("ik,ik->i", chance, change)
        curvature: Array = np.einsum("ik,ik->i", chance, (change - mean[:, None]) ** 2)
        return curvature

    # -- sensitivities through clusters: Cablr, Acvs and Regressed ------------------------------

    def clusters(
        self,
        block: Block,
        n_clusters: int,
        *,
        rng: np.random.Generator,
        search: Callable[[Block, np.random.Generator], Array] | None = None,
    ) -> Clusters:
        """Clusters of the rows by k-means, or by ``search``, which finds the centres of some rows."""
        check_value("n_clusters", n_clusters, WholeNumber(least=1))
        codes = self.codes(block)
        means = KMeansObjective(n_clusters=n_clusters, n_init=_N_INIT)
        find = search or (lambda rows, rng: means.solve(rows, rng=rng))
        last = 1.0 if self.fit_intercept else 0.0
        if self.n_classes == 2:
            rows = signed(block.X, 2.0 * codes - 1.0, last)
            return Clusters(centers=find(Block(X=rows, sample_weight=block.sample_weight), rng))
        centers, labels = [], []
        for g in np.flatnonzero(np.bincount(codes, minlength=self.n_classes)):
            members = block.take(np.flatnonzero(codes == g))
            if members.sample_weight is not None and not members.sample_weight.any():
                continue
            class_centers = find(Block(X=members.X, sample_weight=members.sample_weight), rng)
            centers.append(np.column_stack([class_centers, np.full(len(class_centers), last)]))
            labels += [g] * len(class_centers)
        return Clusters(centers=np.concatenate(centers), labels=np.array(labels, np.int32))

    def clusters_at(self, centers: Array) -> Clusters:
        """Clusters about centres (k, d) that are given, one for each class."""
        last = np.full((len(centers), 1), 1.0 if self.fit_intercept else 0.0)
        rows = np.ascontiguousarray(np.hstack([centers, last]))
        if self.n_classes == 2:  # +-(x, 1) is near +-(q, 1)
            return Clusters(centers=np.concatenate([rows, -rows]))
        labels = np.repeat(np.arange(self.n_classes, dtype=np.int32), len(rows))
        return Clusters(centers=np.tile(rows, (self.n_classes, 1)), labels=labels)

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

    # -- inside --------------------------------------------------------------------------------

    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Array, LogisticSums]:
        return logistic_sweep(
            block.X, self.codes(block), params, n_classes=self.n_classes, weight=block.sample_weight, **what
        )

    def _one_score(self, block: Block, params: Array) -> tuple[Array, Loss] | None:
        return (self.codes(block), Loss(logistic=True)) if self.n_classes == 2 else None

    def _sums_of(self, sums: ScoreSums) -> LogisticSums:
        return sums_of_two_classes(sums)

    def least_value(self, block: Block) -> float:
        """Without a penalty: if the sum is below what one row on the wrong side costs, no row is on the wrong side."""
        weight = block.weights()
        return float(np.log(2.0) * weight[weight > 0.0].min()) if np.isinf(self.C) else 0.0

    def penalty(self) -> tuple[float, float]:
        return 1.0 / self.C, 0.0

    def _chances(self, block: Block, params: Array) -> Array:
        """(n, K) for more than two classes, (n, 1) for two."""
        margins = self.margins(block.X, params).astype(np.float64)
        chances: Array = softmax(margins, axis=1) if self.n_classes > 2 else expit(margins)
        return chances

    def _residuals(self, block: Block, params: Array) -> Array:
        """P - [y = class]: (n, k)."""
        first = 1 if self.n_classes == 2 else 0
        return self._chances(block, params) - np.equal.outer(self.codes(block), np.arange(first, self.n_classes))

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        known = self._one_score(block, params)
        if known is not None:
            bends = sweep(
                block.X, known[0], params[0], known[1], weight=block.sample_weight, bends=True, gradient=False
            ).bends
            return bends[:, None], lambda a, b, at: bends[at]
        chance, weight = self._chances(block, params), block.weights()
        second = chance * (1.0 - chance) * weight[:, None]
        return second, lambda a, b, at: -chance[at, a] * chance[at, b] * weight[at]

    def _dual(self, sums: LogisticSums) -> float:
        """A lower bound on all values: the dual function at the feasible point of the class docstring."""
        if np.isinf(self.C) or (len(sums.by_class) == 1 and self.fit_intercept):
            # no penalty, or too many classes to keep their gradients apart: only that losses are not negative
            return 0.0
        share = self._feasible_shares(sums.by_class[:, :, -1])
        mixed = np.einsum("c,ckj->kj", share[: len(sums.by_class)], sums.by_class[:, :, :-1])
        return float(share @ sums.entropy) - 0.5 * self.C * float(np.vdot(mixed, mixed))

    def _feasible_shares(self, sums: Array) -> Array:
        """The shares s of the bound; sums (K, k) of the residuals by class."""
        if not self.fit_intercept:
            return np.ones(self.n_classes)
        if self.n_classes == 2:
            share = np.abs(sums[::-1, 0])  # s_0 R_0 = s_1 |R_1|
        else:
            share = np.abs(np.linalg.svd(sums.T)[2][-1])
        largest = share.max()
        return share / largest if largest > 0.0 else np.ones(self.n_classes)
