"""k-means and k-medians on a coreset, polished and certified on all rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, certify_cost, coreset_cost, cost_certificate, polish_by_steps, polish_rounds
from tithe.core.checkpoint import Checkpoint
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import Constraint, WholeNumber, check_params
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Integers, Sizes, expect
from tithe.learners.base import MIN_AUTO_ROWS, CoresetLearner, can_read_again, limits_threads
from tithe.learners.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from tithe.learners.charts import BarChart
from tithe.learners.lazy_fit import FittedAttribute
from tithe.learners.stored import FLOATS
from tithe.objectives.clustering import ClusteringObjective, KMeansObjective, KMedianObjective

_AUTO_ROWS_PER_CLUSTER = 100
_SEARCHES = 8  # that n_init="auto" makes on the coreset: they cost little there


class _CoresetClusterer(CoresetLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    options = ClusteringObjective.options
    usual_rounds = 2
    _objective_type: type[ClusteringObjective]

    coreset_ = FittedAttribute[Coreset]()
    cluster_centers_ = FittedAttribute[Array](Floats("k", "d", dtypes=FLOATS))
    labels_ = FittedAttribute[Array](Integers("rows", dtypes=("int32", "int64"), least=0), from_stream=False)
    inertia_ = FittedAttribute[float]()
    objective_curve_ = FittedAttribute[list[float]]()
    n_iter_ = FittedAttribute[int]()
    certificate_ = FittedAttribute[Certificate | None]()

    _constraints: ClassVar[dict[str, Constraint]] = {
        "verbose": WholeNumber(),
    }

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
        self.random_state = random_state

    def _objective(self) -> ClusteringObjective:
        n_init: Any = self.n_init
        if isinstance(n_init, str) and n_init == "auto":
            n_init = _SEARCHES
        return self._objective_type(n_clusters=self.n_clusters, n_init=n_init, max_iter=self.max_iter, tol=self.tol)

    @limits_threads
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Reduce, solve on the coreset, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_dataset`) is read leaf by leaf, once to reduce it and once for every look of
            polish. One that cannot be read again is fitted without polish and certificate.
        y : ignored
        sample_weight : array of shape (n,), optional
            Those of a source come with its rows.
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        self._check_options()
        rows = self._given(X, None, sample_weight, reset=True)
        self._start_fit()
        again, data = can_read_again(rows, self.polish), self._passes(rows, progress)
        self._check_number(data.n_expected)
        seed = as_seed(self.random_state)
        coreset = self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        self._learn(coreset, data if again else None, seed)
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

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        self._check_number(None)
        return block

    def _check_options(self) -> None:
        self._objective()
        polish_rounds(self.polish)
        self._check_names()
        check_params(self, self._constraints)
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

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(MIN_AUTO_ROWS, _AUTO_ROWS_PER_CLUSTER * self.n_clusters)

    def _learn(self, coreset: Coreset, data: DataPass | None, seed: int) -> None:
        """Solve on the coreset, polish and certify on all rows; None: they are gone."""
        objective, whole = self._objective(), coreset.is_whole
        at_hand = data is not None and isinstance(data.rows, Block)
        self._check_number(coreset.n_seen)
        centers = self._search(objective, coreset, rng_for(seed, "solve"))
        # a coreset of all rows saves a pass over a source
        judged_on = DataPass(coreset) if data is None or (whole and not at_hand) else data
        rounds = 0 if whole or data is None else self.polish
        polished = polish_by_steps(objective, judged_on, centers, rounds)
        if polished.labels is not None and at_hand:
            self.labels_ = polished.labels
        self.coreset_ = coreset
        self.cluster_centers_ = np.ascontiguousarray(polished.params, dtype=coreset.X.dtype)
        self.inertia_ = polished.curve[-1]
        self.objective_curve_ = polished.curve
        self.n_iter_ = len(polished.curve)
        self.certificate_ = None
        if data is not None:
            small, n_rows = coreset_cost(objective, coreset, polished.params), polished.n_rows
            self.certificate_ = cost_certificate(
                self.inertia_, small, coreset.n_seen if whole else n_rows, passes=polished.passes
            )
        self._report(objective, polished.labels)

    def _search(self, objective: ClusteringObjective, coreset: Coreset, rng: np.random.Generator) -> Array:
        """Centres found on the coreset, from the starts that ``init`` says."""
        rows = _distinct(coreset) if coreset.is_whole else coreset
        if isinstance(self.init, str) and self.init == "k-means++":
            return objective.solve(rows, rng=rng)
        if isinstance(self.init, str):
            return objective.race(rows, [_random_rows(rows, self.n_clusters, rng) for _ in range(objective.n_init)])
        if not callable(self.init):
            return objective.race(rows, [self._centers(self.init)])
        seeds = rng.integers(2**31, size=objective.n_init)
        given = [self.init(coreset.X, self.n_clusters, random_state=check_random_state(int(s))) for s in seeds]
        return objective.race(rows, [self._centers(centers) for centers in given])

    def _centers(self, given: Any) -> Array:
        """Centres to start from, checked."""
        given = given.toarray() if sparse.issparse(given) else given  # rows of a sparse X
        centers: Array = check_array(given, dtype=np.float64, order="C", input_name="init")
        if centers.shape != (self.n_clusters, self.n_features_in_):
            raise ValueError(
                f"The shape of the initial centers {centers.shape} must be ({self.n_clusters}, {self.n_features_in_}): "
                "a row for each cluster, and the columns of X."
            )
        return centers

    def _report(self, objective: ClusteringObjective, labels: Array | None) -> None:
        """Warn of clusters without rows, and print what was done if it is wanted."""
        if labels is None:
            labels = objective.assign(self.coreset_, self.cluster_centers_)
        n_used = int(np.count_nonzero(np.bincount(labels)))
        if n_used < self.n_clusters:
            warn_caller(
                f"Number of distinct clusters ({n_used}) found smaller than n_clusters ({self.n_clusters}). There are "
                "fewer distinct rows than clusters, or some clusters are empty.",
                ConvergenceWarning,
            )
        if self.verbose:
            name = type(self).__name__
            print(f"{name}: {self.n_clusters} clusters from {len(self.coreset_)} of {self.coreset_.n_seen} rows.")
            for number, cost in enumerate(self.objective_curve_):
                print(f"{name}: cost {cost:.6g} after {number} rounds of polish.")

    def summary(self) -> dict[str, Any]:
        """The cost on all rows (on the coreset where they are gone) and the weight of each cluster."""
        return {"cost": self.inertia_, "cluster_weights": self._cluster_weights().tolist()}

    def charts(self) -> list[BarChart]:
        """Clusters by weight."""
        weights = self._cluster_weights()
        return [BarChart.of_largest("clusters", range(len(weights)), weights, "rows, by weight (from the coreset)")]

    def _cluster_weights(self) -> Array:
        labels = self._objective().assign(self.coreset_, self.cluster_centers_)
        return np.bincount(labels, weights=self.coreset_.weights(), minlength=len(self.cluster_centers_))

    def _check_solution(self, sizes: Sizes) -> None:
        expect(sizes["k"] > 0, "there are no centres")

    @property
    def _n_features_out(self) -> int:
        """For `get_feature_names_out`, which need not find the centres first."""
        check_is_fitted(self)
        return len(self.cluster_centers_) if self._fitted_values else int(self.n_clusters)

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
        data = DataPass(self._given(X, None, sample_weight, reset=False), self.engine)
        return certify_cost(self._objective(), data, self.cluster_centers_, self.coreset_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_PARAMETERS = """
    Parameters
    ----------
    n_clusters : int
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 5,000, or 100 for each cluster if that is more. With
        no more rows than this, all are used.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int or "auto"
        Rounds over all rows that improve the centres after the fit, each accepted only if the cost
        falls. ``"auto"``: two at the most, fewer once a round brings less than a thousandth.
    init : {"k-means++", "random"}, array (n_clusters, d) or callable
        Where the search on the coreset starts, as in `sklearn.cluster.KMeans`: draws by their distance from the
        centres that there are (for medians not squared), rows drawn uniformly, given centres, or what
        ``init(X, n_clusters, random_state=...)`` returns for the rows ``X`` of the coreset.
    n_init : int or "auto"
        Searches, of which the best is kept; the worse half is given up after every few steps. ``"auto"``: 8, and 1
        from given centres.
    max_iter, tol : int, float
        Steps of a search, and the share of the cost that a step has to save for another one to be made.
    verbose : int
        Print the number of rows kept and the costs if it is not 0.
    n_jobs : int or None
        Threads. None uses those that the process has; -1 as well.
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
    objective_curve_ : list of float
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


def _random_rows(block: Block, n_rows: int, rng: np.random.Generator) -> Array:
    """Different rows (at most ``n_rows``), drawn by their weights."""
    weight = block.weights()
    places = rng.choice(len(block), min(n_rows, len(block)), replace=False, p=weight / weight.sum())
    rows = block.X[places]
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


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
