"""k-means and k-medians on a coreset, polished and certified on all rows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from tithe.certify import (
    Certificate,
    certify_cost,
    coreset_cost,
    cost_certificate,
    polish_by_steps,
    polish_rounds,
    total_cost,
)
from tithe.certify.cost import Polished, SteppedObjective
from tithe.clustering.objective import (
    ClusteringObjective,
    KMeansObjective,
    KMedianObjective,
    StepEvaluation,
    search_centers,
)
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import Constraint, WholeNumber
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Integers
from tithe.fit.base import FLOATS, MIN_AUTO_ROWS, CoresetLearner, FittedAttribute
from tithe.fit.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import BarChart, named_clusters

_AUTO_ROWS_PER_CLUSTER = 100
_AUTO_N_INIT = 8  # searches cost little on a coreset


class GroupLearner(CoresetLearner):
    """What k-means, k-medians and mixtures share: no target, and steps over all rows as polish."""

    _uses_target = False
    _constraints: ClassVar[dict[str, Constraint]] = {"verbose": WholeNumber()}

    coreset_ = FittedAttribute[Coreset](holds_rows=True)
    objective_curve_ = FittedAttribute[list[float]]()
    n_iter_ = FittedAttribute[int]()
    certificate_ = FittedAttribute[Certificate | None]()

    @abstractmethod
    def _check_n_rows(self, n_rows: int | None) -> None:
        """Refuse fewer rows than groups, in the data (if ``n_rows`` is known) or in the coreset."""

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        self._check_n_rows(None)
        return block

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        if reset:
            self._check_n_rows(data.n_expected)
        return data

    def _check_options(self) -> None:
        self._objective()
        polish_rounds(self.polish)
        super()._check_options()

    def _polished(
        self,
        objective: SteppedObjective[StepEvaluation],
        coreset: Coreset,
        data: DataPass | None,
        params: Array,
        **auto: Any,
    ) -> Polished:
        """Polish on all rows, or on the coreset if they cannot be read again. Labels are those of rows in memory."""
        whole, in_memory = coreset.is_whole, data is not None and isinstance(data.rows, Block)
        # a coreset that holds all rows saves a pass over a source
        judged_on = DataPass(coreset) if data is None or (whole and not in_memory) else data
        polished = polish_by_steps(objective, judged_on, params, 0 if whole or data is None else self.polish, **auto)
        n_rows = coreset.n_seen if whole else polished.n_rows
        return replace(polished, labels=polished.labels if in_memory else None, n_rows=n_rows)


class _CoresetClusterer(GroupLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """The base class of k-means and k-medians."""

    options = ClusteringObjective.options
    usual_rounds = 2
    _objective_type: type[ClusteringObjective]

    cluster_centers_ = FittedAttribute[Array](Floats("k", "d", dtypes=FLOATS, empty=False))
    labels_ = FittedAttribute[Array](
        Integers("rows", dtypes=("int32", "int64"), least=0), from_stream=False, holds_rows=True
    )
    cluster_weights_ = FittedAttribute[Array](Floats("k", least=0.0))
    typical_rows_ = FittedAttribute[Array](Integers("k", least=-1))
    inertia_ = FittedAttribute[float]()

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        init: Any = "k-means++",
        n_init: int | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        verbose: int = 0,
        engine: Any = "auto",
        n_jobs: int | None = None,
        encode: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs
        self.encode = encode
        self.random_state = random_state

    def _objective(self) -> ClusteringObjective:
        n_init: Any = self.n_init
        if isinstance(n_init, str) and n_init == "auto":
            n_init = _AUTO_N_INIT
        return self._objective_type(n_clusters=self.n_clusters, n_init=n_init, max_iter=self.max_iter, tol=self.tol)

    def _check_options(self) -> None:
        super()._check_options()
        if isinstance(self.init, str):
            if self.init not in ("k-means++", "random"):
                raise ValueError(f"init must be 'k-means++', 'random', an array or a callable, got {self.init!r}.")
        elif not callable(self.init):
            centers = check_array(self.init, dtype=np.float64, input_name="init")
            if len(centers) != self.n_clusters:
                raise ValueError(
                    f"init has {len(centers)} rows: give one centre for each of {self.n_clusters} clusters."
                )
            if not isinstance(self.n_init, str) and self.n_init != 1:
                warn_caller(
                    f"init is an array of centres: one search is made from them, not n_init={self.n_init}.",
                    RuntimeWarning,
                )

    def _check_n_rows(self, n_rows: int | None) -> None:
        if n_rows is not None and n_rows < self.n_clusters:
            raise ValueError(f"n_samples={n_rows} should be >= n_clusters={self.n_clusters}.")
        size = self._size(n_rows, self.n_encoded_)
        if size < self.n_clusters:
            raise ValueError(
                f"coreset_size={self.coreset_size} keeps {size} rows, fewer than "
                f"n_clusters={self.n_clusters}: ask for some hundred rows per cluster."
            )

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(MIN_AUTO_ROWS, _AUTO_ROWS_PER_CLUSTER * self.n_clusters)

    def _learn(self, coreset: Coreset, data: DataPass | None, seed: int, context: None) -> dict[str, Any]:
        """Solve on the coreset, polish and certify on all rows."""
        objective, certificate = self._objective(), None
        self._check_n_rows(coreset.n_seen)
        centers = search_centers(objective, coreset, self.init, rng_for(seed, "solve"))
        polished = self._polished(objective, coreset, data, centers)
        if data is not None:
            estimate = coreset_cost(objective, coreset, polished.params)
            certificate = cost_certificate(
                polished.curve[-1],
                estimate,
                polished.n_rows,
                passes=polished.passes,
                spread=objective.spread(coreset)[1],
            )
        centers = np.ascontiguousarray(polished.params, dtype=coreset.X.dtype)
        labels, clusters = _clusters_in(objective, coreset, centers)
        self._report(coreset, labels if polished.labels is None else polished.labels, polished.curve)
        return {
            **({} if polished.labels is None else {"labels_": polished.labels}),
            "coreset_": coreset,
            "cluster_centers_": centers,
            **clusters,
            "inertia_": polished.curve[-1],
            "objective_curve_": polished.curve,
            "n_iter_": len(polished.curve),
            "certificate_": certificate,
        }

    def _report(self, coreset: Coreset, labels: Array, curve: list[float]) -> None:
        """Warn of clusters without rows, and print the costs if ``verbose``."""
        n_used = int(np.count_nonzero(np.bincount(labels)))
        if n_used < self.n_clusters:
            warn_caller(
                f"Number of distinct clusters ({n_used}) found smaller than n_clusters ({self.n_clusters}). There are "
                "fewer distinct rows than clusters, or some clusters are empty.",
                ConvergenceWarning,
            )
        if self.verbose:
            name = type(self).__name__
            print(f"{name}: {self.n_clusters} clusters from {len(coreset)} of {coreset.n_seen} rows.")
            for number, cost in enumerate(curve):
                print(f"{name}: cost {cost:.6g} after {number} rounds of polish.")

    def summary(self) -> dict[str, Any]:
        """The cost on all rows (on the coreset if they could be read only once), and the clusters."""
        self.solve()
        coreset = None if "coreset_" in self._left_out else self.coreset_
        return {
            "cost": self.inertia_,
            "cluster_weights": self.cluster_weights_.tolist(),
            "clusters": named_clusters(self, self.cluster_centers_, self.cluster_weights_, self.typical_rows_, coreset),
        }

    def charts(self) -> list[BarChart]:
        """The weights of the clusters."""
        weights = self.solve().cluster_weights_
        return [BarChart.of_largest("clusters", range(len(weights)), weights, "rows, by weight (from the coreset)")]

    def _adopt_coreset(self, coreset: Coreset, feature_names: Array | None) -> None:
        super()._adopt_coreset(coreset, feature_names)
        _, clusters = _clusters_in(self._objective(), coreset, self.cluster_centers_)
        self._fitted_values = {**(self._fitted_values or {}), **clusters}

    @property
    def _n_features_out(self) -> int:
        """For `get_feature_names_out`, which needs no solution."""
        check_is_fitted(self)
        return len(self.cluster_centers_) if self._fitted_values else int(self.n_clusters)

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The number of the nearest centre of each row, in a column ``prediction`` of a Spark DataFrame."""
        return self._objective().assign(self.solve()._checked(X, reset=False), self.cluster_centers_)

    @lazy_on_collections
    def transform(self, X: Any) -> Array:
        """Euclidean distances to the centres: (n, n_clusters); a column ``transformed`` of a Spark DataFrame."""
        distances: Array = euclidean_distances(self.solve()._checked(X, reset=False).X, self.cluster_centers_)
        return distances

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the cost of the centres on ``X``."""
        data = DataPass(self.solve()._validate_rows(X, None, sample_weight, reset=False), self.engine)
        return -total_cost(self._objective(), data, self.cluster_centers_)

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The exact cost of the centres on ``X``, rows or a source, beside the estimate from the coreset. One pass."""
        data = DataPass(self.solve()._validate_rows(X, None, sample_weight, reset=False), self.engine)
        centre, _ = self._objective().spread(self.coreset_)
        return certify_cost(self._objective(), data, self.cluster_centers_, self.coreset_, centre=centre)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _clusters_in(objective: ClusteringObjective, coreset: Coreset, centers: Array) -> tuple[Array, dict[str, Array]]:
    """The cluster of each row of the coreset; and the weights and typical rows of the clusters, as attributes."""
    labels = objective.assign(coreset, centers)
    typical = _nearest_rows(labels, objective.cost(coreset, centers), coreset.row_ids(), len(centers))
    weights = np.bincount(labels, weights=coreset.weights(), minlength=len(centers))
    return labels, {"cluster_weights_": weights, "typical_rows_": typical}


def _nearest_rows(labels: Array, costs: Array, ids: Array, n_clusters: int) -> Array:
    """The id of the row nearest to each centre, -1 for a cluster without rows: (k,). Of equal ones the first."""
    order = np.lexsort((ids, costs, labels))
    first = np.flatnonzero(np.diff(labels[order], prepend=-1))
    nearest = np.full(n_clusters, -1)
    nearest[labels[order[first]]] = ids[order[first]]
    return nearest


_PARAMETERS = """
    Parameters
    ----------
    n_clusters : int
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 5,000, or 100 for each cluster if that is more. If
        there are no more rows than this, all are used.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int or "auto"
        Rounds over all rows that improve the centres after the fit, each accepted only if the cost falls.
        ``"auto"``: at most two, and none after a round that saves less than a thousandth of the cost.
    init : {"k-means++", "random"}, array (n_clusters, d) or callable
        Where the search on the coreset starts, as in `sklearn.cluster.KMeans`: rows drawn by their distance from the
        centres chosen so far (for medians not squared), rows drawn uniformly, given centres, or what
        ``init(X, n_clusters, random_state=...)`` returns for the rows ``X`` of the coreset.
    n_init : int or "auto"
        Searches, of which the best is kept; the worse half is stopped after every few steps. ``"auto"``: 8, or 1
        from given centres.
    max_iter, tol : int, float
        Maximum number of steps of a search; it stops earlier if a step saves less than a share ``tol`` of the cost.
    verbose : int
        If not 0, print the number of rows kept and the costs.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, d)
    labels_ : array (n,)
        The nearest centre of each training row. Missing after a fit from a source, whose rows were never in memory
        together: use ``predict``.
    cluster_weights_ : array (n_clusters,)
        The weight of each cluster, by the coreset.
    typical_rows_ : array (n_clusters,)
        The row id of the coreset's row nearest to each centre; -1 for a cluster without rows.
    inertia_ : float
        The exact cost on all training rows; the estimate from the coreset if the rows could be read only once.
    objective_curve_ : list of float
        This cost before each round of polish and at the end. It never rises.
    coreset_ : Coreset
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream or None
        After `partial_fit`: the stream that keeps the coreset.
    certificate_ : Certificate or None
        The cost on all training rows and the error of the coreset, from the last pass. None if the rows could be
        read only once: see ``certify``.
"""


class CoresetKMeans(_CoresetClusterer):
    __doc__ = (
        """k-means on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i min_j |x_i - c_j|^2. Reads the data a few times; `sklearn.cluster.KMeans` reads it once per
    iteration and start.
"""
        + _PARAMETERS
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetKMeans
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.1, size=(20_000, 2)) for c in (0.0, 1.0, 5.0)])
    >>> model = CoresetKMeans(n_clusters=3, coreset_size=300, random_state=0).fit(X)
    >>> np.sort(model.cluster_centers_[:, 0]).round(1).tolist()
    [0.0, 1.0, 5.0]
    >>> model.certificate_.kind
    'exact'
    """
    )
    _objective_type = KMeansObjective


class CoresetKMedians(_CoresetClusterer):
    __doc__ = (
        """k-medians (geometric medians, not means) on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i min_j |x_i - c_j|, with Euclidean distances that are not squared: a centre is the geometric
    median of its cluster, found by Weiszfeld's iteration. Outliers have less influence than in k-means.
"""
        + _PARAMETERS
        + """
    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetKMedians
    >>> X = np.concatenate([np.zeros((60, 2)), np.full((40, 2), 1000.0)])
    >>> CoresetKMedians(n_clusters=1, random_state=0).fit(X).cluster_centers_.round(3).tolist()
    [[0.0, 0.0]]
    """
    )
    _objective_type = KMedianObjective
