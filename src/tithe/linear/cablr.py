"""Sensitivities bounded through clusters: CABLR with clusters of all rows, ACvS with those of a sample."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from joblib import hash as joblib_hash
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Rng
from tithe.core.errors import warn_caller
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params, check_value
from tithe.core.state_checks import Number, Storable
from tithe.linear.logistic_objective import Clusters, LogisticObjective
from tithe.reduce.draws import draw_rows
from tithe.reduce.kernels import sample_rows

RADIUS = OneOf("auto", "pilot") | RealNumber(above=0.0)
_MAX_USEFUL_SENSITIVITY = 0.1  # mean sensitivity, as a share of the rows, above which the user is warned
_WARNING_SAMPLE_ROWS = 65_536  # rows on which the mean sensitivity is taken for the warning; a leaf has this many


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared(Storable):
    """What is learned once: the clusters, and the radius within which the bound holds."""

    clusters: Clusters
    radius: Annotated[float, Number(least=0.0)]


def find_radius(
    radius: float | str, block: Block, sample: Block, clusters: Clusters, objective: LogisticObjective, rng: Rng
) -> float:
    """R: the given number, the default of the objective for the clustered rows, or from a pilot fit."""
    if radius == "auto":
        return objective.default_radius(sample, clusters)
    if radius == "pilot":
        return objective.radius_from(objective.pilot(block, rng=rng))
    return float(radius)


@dataclass(frozen=True, kw_only=True, eq=False)
class Clustered(Construction[LogisticObjective]):
    n_clusters: int = 6
    clusters: Any = "kmeans"
    radius: float | str = "auto"
    certified: bool = True
    repair: str = "means"
    prepared: Prepared | None = field(default=None, repr=False, compare=False)

    requires: ClassVar[tuple[type[Objective], ...]] = (LogisticObjective,)
    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": WholeNumber(least=1),
        "radius": RADIUS,
        "certified": Boolean(),
        "repair": OneOf("means", "mass"),
    }

    def __post_init__(self) -> None:
        check_params(self, self._constraints)
        how = self.clusters
        if isinstance(how, str):
            check_value("clusters", how, OneOf("kmeans"))
        elif not hasattr(how, "fit"):
            centers = check_array(how, dtype=np.float64, input_name="clusters")
            object.__setattr__(self, "clusters", np.ascontiguousarray(centers))

    def __eq__(self, other: object) -> bool:
        """Whether the options are the same; clusterings are compared by type and parameters."""
        return type(self) is type(other) and isinstance(other, Clustered) and self._options() == other._options()

    def __hash__(self) -> int:
        return hash(self._options())

    def _options(self) -> tuple[Any, ...]:
        how = self.clusters
        if not isinstance(how, str):
            parts = how if isinstance(how, np.ndarray) else (type(how).__name__, how.get_params())
            how = joblib_hash(parts)
        return how, *(getattr(self, f.name) for f in fields(self) if f.compare and f.name != "clusters")

    def _found(self, sample: Block, objective: LogisticObjective, rng: Rng) -> Clusters:
        """The clusters of these rows, or those that were given."""
        if isinstance(self.clusters, str):
            return objective.clusters(sample, self.n_clusters, rng=rng)
        if isinstance(self.clusters, np.ndarray):
            return objective.clusters_at(self.clusters)
        return objective.clusters(sample, self.n_clusters, rng=rng, search=self._search)

    def _search(self, rows: Block, rng: Rng) -> Array:
        """The centres that the clustering algorithm of another library finds."""
        algorithm = clone(self.clusters)
        if "random_state" in algorithm.get_params():
            algorithm.set_params(random_state=int(rng.integers(2**31)))
        weight = {} if rows.sample_weight is None else {"sample_weight": rows.sample_weight}
        algorithm.fit(rows.X, **weight)
        if hasattr(algorithm, "cluster_centers_"):
            return np.asarray(algorithm.cluster_centers_, np.float64)
        labels = np.asarray(algorithm.labels_)
        found = np.flatnonzero((labels >= 0) & (rows.weights() > 0.0))  # some algorithms leave rows out
        if not len(found):
            raise ValueError(
                f"{type(algorithm).__name__} finds no clusters in {len(rows):,} rows: change its parameters."
            )
        names, labels = np.unique(labels[found], return_inverse=True)
        weights = rows.weights()[found]
        member = sparse.csr_matrix((weights, (labels, np.arange(len(found)))), shape=(len(names), len(found)))
        sums = member @ rows.X[found]
        centers = np.asarray(sums.toarray() if sparse.issparse(sums) else sums, np.float64)
        return np.ascontiguousarray(centers / np.bincount(labels, weights=weights)[:, None])

    def check_columns(self, n_features: int, objective: LogisticObjective) -> None:
        if self.prepared is not None:
            self.prepared.clusters.check_columns(n_features, objective.n_classes)

    def clustered_rows(self, block: Block, rng: Rng) -> Block:
        """The rows that are clustered."""
        return block

    def prepare(self, block: Block, objective: LogisticObjective, *, rng: Rng) -> Self:
        """The same construction, with clusters and radius found unless it has them."""
        if self.prepared is not None:
            return self
        sample = self.clustered_rows(block, rng)
        clusters = self._found(sample, objective, rng)
        clusters.check_columns(block.n_features, objective.n_classes)
        radius = find_radius(self.radius, block, sample, clusters, objective, rng)
        ready = replace(self, prepared=Prepared(clusters=clusters, radius=radius))
        ready._warn_if_useless(block, objective)
        return ready

    def scores(self, block: Block, objective: LogisticObjective, *, codes: Array | None = None) -> Array:
        """The bounds s_n of all rows (n,), once prepared."""
        if self.prepared is None:
            raise ValueError("There are no clusters yet: call prepare() with the rows first.")
        return objective.cluster_bound(
            block,
            self.prepared.clusters,
            radius=self.prepared.radius,
            certified=self.certified,
            repair=self.repair,
            codes=codes,
        )

    def _warn_if_useless(self, block: Block, objective: LogisticObjective) -> None:
        """Warn if the bounds are too large to be of use: once, when the clusters are found, not in each node."""
        assert self.prepared is not None
        step = -(-len(block) // _WARNING_SAMPLE_ROWS)
        sample = block if step <= 1 else block.take(np.arange(0, len(block), step))
        mean = float(self.scores(sample, objective).sum())
        # the total weight of coreset rows is the number of rows that they represent
        if mean > _MAX_USEFUL_SENSITIVITY * max(len(sample), sample.total_weight):
            warn_caller(
                f"The mean sensitivity is {mean:.3g} for {len(sample)} rows at radius {self.prepared.radius:.3g}: "
                "nearly every row may matter, and sampling by these bounds is near useless. Lower the radius, "
                "standardise the columns, or use construction='influence'."
            )

    def reduce(self, block: Block, objective: LogisticObjective, size: int, *, rng: Rng, **_: Any) -> Block:
        ready = self.prepare(block, objective, rng=rng)
        assert ready.prepared is not None
        codes = objective.codes(block)
        scores = ready.scores(block, objective, codes=codes)
        mean = float(scores.sum())
        drawn = draw_rows(block, scores, size, rng, codes=codes)
        notes: dict[str, str | int | float] = {
            "radius": ready.prepared.radius,
            "n_clusters": len(ready.prepared.clusters),
            "mean_sensitivity": mean,
            "certified": int(self.certified),
        }
        return replace(drawn, notes=notes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cablr(Clustered):
    """p_n = s_n / S with s_n the objective's bound of the sensitivity through clusters of all rows.

    Huggins, Campbell and Broderick (2016), with each row excluded exactly from its own cluster and a separate draw
    from every class. The guarantee holds for all solutions of norm at most R: with m-bar = sum s_n (noted as
    ``mean_sensitivity``, between 1 and N), c m-bar ((d + 1) ln m-bar + ln(1 / delta)) / eps^2 rows suffice. m-bar
    grows exponentially in R times the distances.

    Parameters
    ----------
    n_clusters : int
        Clusters, or clusters of each class where there are more than two.
    clusters : "kmeans", array (k, d) or a clustering algorithm
        How they are found: by k-means; or they are given, as centres of rows, each of which then stands for a cluster
        of every class; or by an estimator of scikit-learn or alike, which finds its own number of them, in the rows
        times the sign of their class for two classes, or in those of each class. Any clusters give a valid bound.
    radius : float, "auto" or "pilot"
        The radius R. "auto": 3 / sqrt(mean squared distance to the centres); "pilot": 1.5 times the norm of a
        pilot fit. It includes the intercept: standardise the columns.
    certified, repair : bool, "means" or "mass"
        How the bound is made valid; see the objective's `cluster_bound`.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(
    ...     X, X[:, 0] > 0, objective="logistic", construction="cablr", coreset_size=100, random_state=0
    ... )
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    name: ClassVar[str] = "cablr"


@dataclass(frozen=True, kw_only=True, eq=False)
class Acvs(Clustered):
    """CABLR with the clusters of a uniform sample: p_n = s_n / S.

    Accelerated clustering via sampling. The sample's centres are not the means of all rows, so the
    bound is repaired unless ``certified=False``; see `Cablr` for what it guarantees.

    Parameters
    ----------
    sample_size : int or None
        Rows that are clustered. None: 1000 for each cluster but at most 2.5 % of the rows, and at least 50 for each
        cluster.
    n_clusters, clusters, radius, certified, repair
        As for `Cablr`.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(
    ...     X, X[:, 0] > 0, objective="logistic", construction="acvs", coreset_size=100, random_state=0
    ... )
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    sample_size: int | None = None

    name: ClassVar[str] = "acvs"
    _constraints: ClassVar[dict[str, Constraint]] = {
        **Clustered._constraints,
        "sample_size": OneOf(None) | WholeNumber(least=1),
    }

    def clustered_rows(self, block: Block, rng: Rng) -> Block:
        default = max(50 * self.n_clusters, min(1000 * self.n_clusters, len(block) // 40))
        return sample_rows(block, default if self.sample_size is None else self.sample_size, rng)
