"""k-means and k-medians on a coreset, polished and certified on all rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, certify_cost, coreset_cost, cost_certificate, polish_by_steps, polish_rounds
from tithe.core.data import Array, Block, Coreset
from tithe.core.seeding import as_seed, rng_for
from tithe.learners.base import CoresetLearner, is_whole, read_again
from tithe.learners.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from tithe.objectives.clustering import ClusteringObjective, KMeansObjective, KMedianObjective


class _CoresetClusterer(CoresetLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    _objective_type: type[ClusteringObjective]
    _fitted = (
        "coreset_",
        "cluster_centers_",
        "labels_",
        "inertia_",
        "cost_curve_",
        "n_iter_",
        "certificate_",
        "_n_features_out",
    )

    coreset_: Coreset
    cluster_centers_: Array
    labels_: Array
    inertia_: float
    cost_curve_: list[float]
    n_iter_: int
    certificate_: Certificate | None

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        coreset_size: int | float = 5000,
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        n_init: int = 8,
        max_iter: int = 100,
        tol: float = 1e-4,
        engine: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.random_state = random_state

    def _objective(self) -> ClusteringObjective:
        return self._objective_type(
            n_clusters=self.n_clusters, n_init=self.n_init, max_iter=self.max_iter, tol=self.tol
        )

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Reduce, solve on the coreset, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_source`) is read leaf by leaf, once to reduce it and once for every look of
            polish. One that cannot be read again is fitted without polish and certificate.
        y : ignored
        sample_weight : array of shape (n,), optional
            Those of a source come with its rows.
        """
        self._check_options()
        rows = self._given(X, None, sample_weight, reset=True)
        self._drop_stream()
        again = read_again(rows, self.polish)
        self._check_number(len(rows) if isinstance(rows, Block) else rows.n_rows)
        seed = as_seed(self.random_state)
        self._learn(self._reduce(rows, self._objective(), seed), again, seed)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take in more rows, which need not be kept; centres are found when they are asked for.

        In which pieces rows come makes no difference. Up to ``coreset_size`` rows are all used, as `fit` would
        use them; of more, a `CoresetStream` keeps a coreset. There is no polish and no certificate, the
        rows being gone: `certify` on rows at hand. The first call after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        return self._push(X, None, sample_weight)

    def _piece(self, block: Block, classes: Any) -> Block:
        self._check_number(None)
        return block

    def _check_options(self) -> None:
        self._objective()
        polish_rounds(self.polish)
        self._check_names()

    def _check_number(self, n_rows: int | None) -> None:
        """Whether there are rows enough for so many clusters, and are to be kept; None: it will turn out."""
        if n_rows is not None and n_rows < self.n_clusters:
            raise ValueError(f"n_samples={n_rows} should be >= n_clusters={self.n_clusters}.")
        size = self._size(n_rows, self.n_features_in_)
        if size < self.n_clusters:
            raise ValueError(
                f"coreset_size={self.coreset_size} keeps {size} rows, fewer than "
                f"n_clusters={self.n_clusters}: ask for some hundred rows a cluster."
            )

    def _learn(self, coreset: Coreset, rows: Any, seed: int) -> None:
        """Solve on the coreset, polish and certify on the rows; None: they are gone."""
        objective, whole, at_hand = self._objective(), is_whole(coreset), isinstance(rows, Block)
        self._check_number(coreset.n_seen)
        centers = objective.solve(_distinct(coreset) if whole else coreset, rng=rng_for(seed, "solve"))
        looked_at = coreset if rows is None or (whole and not at_hand) else rows
        rounds = 0 if whole or rows is None else self.polish
        polished = polish_by_steps(objective, looked_at, centers, rounds, engine=self.engine)
        self.__dict__.pop("labels_", None)
        if polished.labels is not None and at_hand:
            self.labels_ = polished.labels
        self.coreset_ = coreset
        self.cluster_centers_ = np.ascontiguousarray(polished.params, dtype=coreset.X.dtype)
        self.inertia_ = polished.curve[-1]
        self.cost_curve_ = polished.curve
        self.n_iter_ = len(polished.curve)
        self.certificate_ = None
        if rows is not None:
            small, n_rows = coreset_cost(objective, coreset, polished.params), polished.n_rows
            self.certificate_ = cost_certificate(
                self.inertia_, small, coreset.n_seen if whole else n_rows, passes=polished.passes
            )
        self._n_features_out = len(self.cluster_centers_)

    def predict(self, X: Any) -> Array:
        """The nearest centre of each row."""
        check_is_fitted(self)
        return self._objective().assign(self._checked(X, reset=False), self.cluster_centers_)

    def transform(self, X: Any) -> Array:
        """Euclidean distances to the centres: (n, n_clusters)."""
        check_is_fitted(self)
        distances: Array = euclidean_distances(self._checked(X, reset=False).X, self.cluster_centers_)
        return distances

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the cost of the centres on ``X``."""
        return -self.certify(X, sample_weight=sample_weight).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The exact cost of the centres on ``X``, rows or a source, in one pass, beside what the coreset says of it."""
        check_is_fitted(self)
        rows = self._given(X, None, sample_weight, reset=False)
        return certify_cost(self._objective(), rows, self.cluster_centers_, self.coreset_, engine=self.engine)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_PARAMETERS = """
    Parameters
    ----------
    n_clusters : int
    coreset_size : int or float
        Rows to learn from, or a fraction of the rows. With no more rows than this, all are used.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int or "auto"
        Rounds over all rows that improve the centres after the fit, each accepted only if the cost
        falls. ``"auto"``: two at the most, fewer once a round brings less than a thousandth.
    n_init, max_iter, tol : int, int, float
        How the solution on the coreset is searched for.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, d)
    labels_ : array (n,)
        The nearest centre of each training row. Not there after a fit from a source, whose rows were never
        in memory together: use ``predict``.
    inertia_ : float
        The exact cost on all training rows, not on the coreset; what the coreset says of it where the
        rows could be read only once.
    cost_curve_ : list of float
        That cost before each polish round and at the end. It never rises.
    coreset_ : Coreset
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream
        After `partial_fit`: what keeps the coreset up to date.
    certificate_ : Certificate or None
        What the fit cost, from the last look at the training data. None where it could be read only once:
        see ``certify``.
"""


class CoresetKMeans(_CoresetClusterer):
    __doc__ = (
        """k-means on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i min_j |x_i - c_j|^2. Reads the data a handful of times, where
    `sklearn.cluster.KMeans` reads it once per iteration and seed.
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

    Minimises sum_i u_i min_j |x_i - c_j|, the Euclidean distance itself: a centre is the geometric
    median of its cluster, found by Weiszfeld's iteration, and far rows pull no harder than near ones.
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


def _distinct(coreset: Coreset) -> Block:
    """Distinct rows in a fixed order, weights added: then duplicates equal weights and order is no matter."""
    X = coreset.X
    if sparse.issparse(X):
        X = X.copy()
        X.sum_duplicates()
        dense = X.toarray() if X.shape[0] * X.shape[1] <= 10_000_000 else None
        if dense is None:
            return coreset
    else:
        dense = X
    _, first, group = np.unique(dense, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(group.ravel(), weights=coreset.weights(), minlength=len(first))
    return Block(X=X[first], sample_weight=weight)
