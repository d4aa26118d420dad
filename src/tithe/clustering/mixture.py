"""Gaussian mixtures on a coreset, polished and certified on all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, coreset_cost, likelihood_certificate
from tithe.clustering.learners import GroupLearner
from tithe.clustering.mixture_objective import Components, GaussianMixtureObjective, Search, refuse_sparse
from tithe.clustering.objective import distinct_rows
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import WholeNumber, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, expect
from tithe.fit.base import MIN_AUTO_ROWS, FittedAttribute
from tithe.fit.bases import BaseEstimator, DensityMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import BarChart, named_clusters

_ROUGH_N_INIT = 4  # of the solution on the drawn rows, where totals are taken
_AUTO_ROWS_PER_PARAMETER = 10
_MAX_AUTO_ROWS = 20_000  # with more, steps on the coreset take longer than the polish that makes up for them
_AUTO_ROUNDS = 10  # of polish="auto"


class CoresetGaussianMixture(GroupLearner, DensityMixin, BaseEstimator):
    """A mixture of normal distributions, fitted by EM on a calibrated coreset, polished and certified on all rows.

    Maximises sum_i u_i log sum_j pi_j N(x_i; mu_j, Sigma_j) for rows x_i (d,) of weight u_i, with weights pi_j that add
    up to 1, means mu_j (d,) and covariances Sigma_j (d, d). Takes ``sample_weight``, which
    `sklearn.mixture.GaussianMixture` does not. Rows are drawn by bounds on their sensitivity (Lucic, Faulkner, Krause
    and Feldman, Training Gaussian Mixture Models at Scale via Coresets, JMLR 18, 2018; `GaussianMixtureObjective` has
    the scores). A round of polish is a step of EM on all rows.

    Parameters
    ----------
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
        One matrix for each component, one for all, a diagonal for each, or one variance for each.
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 10 for each free parameter of the mixture, at least
        5,000 and at most 20,000. If there are no more rows than this, all are used.
    construction, engine
        See `build_coreset`.
    polish : int or "auto"
        Steps of EM on all rows after the fit, each accepted only if the log-likelihood rises. ``"auto"``: at most 10,
        and none after a step that promises a row less than half of ``tol``.
    tol, max_iter : float, int
        A search on the coreset ends when a step raises the mean log-likelihood of a row by less than ``tol``, or after
        ``max_iter`` steps; the best one goes on to a tenth of ``tol``.
    reg_covar : float
        Added to every variance.
    n_init : int or "auto"
        Searches, of which the best is kept; the worse half is stopped after every few steps. ``"auto"``: 16 to
        32, most with few components, fewer with many columns, and 1 from given means.
    init_params : {"auto", "kmeans", "k-means++", "random", "random_from_data"}
        Where searches start: the clusters of k-means, those of its seeds, random shares, or the clusters of random
        rows. Columns are scaled to the same deviation for it. ``"auto"``: all in turns, but for random shares.
    weights_init, means_init, precisions_init : array, optional
        Where the search starts instead, in the shapes of the attributes: those of an earlier model go on from it.
    verbose : int
        If not 0, print the number of rows kept and the log-likelihoods.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    weights_ : array (n_components,)
    means_ : array (n_components, d)
    component_weights_ : array (n_components,)
        The weight of the rows that each component stands for: ``weights_`` times that of all rows.
    covariances_, precisions_, precisions_cholesky_ : array
        (n_components, d, d) for ``"full"``, (d, d) for ``"tied"``, (n_components, d) for ``"diag"``, (n_components,)
        for ``"spherical"``.
    converged_ : bool
        Whether the last step of the search on the coreset raised the mean log-likelihood by less than ``tol``.
    n_iter_ : int
        Steps of EM on the coreset.
    lower_bound_ : float
        The exact mean log-likelihood of a training row; that of the coreset if the rows could be read only once.
    lower_bounds_ : list of float
        This number before each round of polish and at the end. It never falls.
    objective_curve_ : list of float
        Minus these numbers.
    coreset_ : Coreset
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream
        After `partial_fit`: the stream that keeps the coreset.
    certificate_ : Certificate or None
        The mean log-likelihood of all training rows beside that of the coreset, from the last pass. None if the rows
        could be read only once: see ``certify``.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0.0, 1.0, size=(20_000, 2)), rng.normal(9.0, 3.0, size=(10_000, 2))])
    >>> model = CoresetGaussianMixture(2, coreset_size=1000, random_state=0).fit(X)
    >>> np.sort(model.weights_).round(2).tolist()
    [0.33, 0.67]
    >>> model.certificate_.kind, model.certificate_.quantity
    ('exact', 'log_likelihood')
    """

    options = GaussianMixtureObjective.options
    usual_rounds = _AUTO_ROUNDS // 2

    weights_ = FittedAttribute[Array](Floats("k", least=0.0))
    means_ = FittedAttribute[Array](Floats("k", "d", empty=False))
    covariances_ = FittedAttribute[Array]()
    component_weights_ = FittedAttribute[Array](Floats("k", least=0.0))
    converged_ = FittedAttribute[bool]()
    lower_bound_ = FittedAttribute[float]()

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: Literal["full", "tied", "diag", "spherical"] = "full",
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        polish: int | str = "auto",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int | str = "auto",
        init_params: Literal["auto", "kmeans", "k-means++", "random", "random_from_data"] = "auto",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        verbose: int = 0,
        engine: Any = "auto",
        n_jobs: int | None = None,
        encode: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.coreset_size = coreset_size
        self.construction = construction
        self.polish = polish
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.verbose = verbose
        self.engine = engine
        self.n_jobs = n_jobs
        self.encode = encode
        self.random_state = random_state

    def _objective(self) -> GaussianMixtureObjective:
        n_init: Any = None if isinstance(self.n_init, str) and self.n_init == "auto" else self.n_init
        return GaussianMixtureObjective(
            n_components=self.n_components,
            covariance_type=self.covariance_type,
            reg_covar=self.reg_covar,
            n_init=n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            init_params=self.init_params,
        )

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Fit, and return the most probable component of each row of ``X``, an array or a frame: (n,)."""
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def _checked(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
        refuse_sparse(X)
        return super()._checked(X, y, sample_weight, reset=reset)

    def _reduce(
        self, data: DataPass, objective: Any, seed: int, *, checkpoint: Checkpoint | None = None, **options: Any
    ) -> Coreset:
        rough = replace(objective, n_init=min(_ROUGH_N_INIT, objective.n_init or _ROUGH_N_INIT))
        return super()._reduce(data, rough, seed, checkpoint=checkpoint, **options)

    def _check_n_rows(self, n_rows: int | None) -> None:
        """See the base class. Starts of wrong shapes are refused too."""
        k = self.n_components
        if n_rows is not None and n_rows < k:
            raise ValueError(f"Expected n_samples >= n_components but got n_components = {k}, n_samples = {n_rows}.")
        self._given_start(self.n_encoded_)
        size = self._size(n_rows, self.n_encoded_)
        if size < k:
            raise ValueError(
                f"coreset_size={self.coreset_size} keeps {size} rows, fewer than n_components={k}: ask for some rows "
                "for each of the free parameters of the mixture."
            )

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        wanted = _AUTO_ROWS_PER_PARAMETER * self._objective().n_parameters(n_features)
        return min(max(MIN_AUTO_ROWS, wanted), _MAX_AUTO_ROWS)

    def _learn(self, coreset: Coreset, data: DataPass | None, seed: int, context: None) -> dict[str, Any]:
        """Search on the coreset, polish and certify on all rows. ``data`` is None if they cannot be read again."""
        objective, weight, certificate = self._objective(), coreset.weight_seen, None
        self._check_n_rows(coreset.n_seen)
        found = self._search(objective, coreset, rng_for(seed, "solve"))
        auto = _AUTO_ROUNDS, 0.5 * self.tol * weight
        polished = self._polished(objective, coreset, data, found.params, auto=auto)
        log_likelihoods = [-cost / weight for cost in polished.curve]
        self._report(coreset, found, log_likelihoods)
        if data is not None:
            estimate = -coreset_cost(objective, coreset, polished.params) / coreset.total_weight
            n_rows, passes, single = polished.n_rows, polished.passes, self._single(coreset)
            certificate = likelihood_certificate(log_likelihoods[-1], estimate, n_rows, passes=passes, single=single)
        parts = Components.of(polished.params, self.n_encoded_)
        return {
            "coreset_": coreset,
            "weights_": parts.weights.copy(),
            "means_": parts.means,
            "covariances_": self._shaped(parts),
            "component_weights_": parts.weights * weight,
            "converged_": found.converged,
            "n_iter_": found.n_iter,
            "objective_curve_": [-value for value in log_likelihoods],
            "lower_bound_": log_likelihoods[-1],
            "certificate_": certificate,
        }

    def _search(self, objective: GaussianMixtureObjective, coreset: Coreset, rng: np.random.Generator) -> Search:
        """The best mixture that is found on the coreset, from what the parameters say of the start."""
        rows = distinct_rows(coreset) if coreset.is_whole else coreset
        d = coreset.n_features
        weights, means, covariances = self._given_start(d)
        starts = objective.starts(rows, rng, means=means)
        pilot = coreset.pilot
        if pilot is not None and len(pilot) == objective.n_components and means is None:
            starts.append(pilot)  # the best of the searches before calibration, unless it is that of a stream
        given: dict[str, Array] = {}
        given |= {} if weights is None else {"weights": weights}
        given |= {} if covariances is None else {"covariances": covariances}
        if given:
            starts = [replace(Components.of(start, d), **given).packed() for start in starts]
        return objective.race(rows, starts)

    def _given_start(self, d: int) -> tuple[Array | None, Array | None, Array | None]:
        """Weights, means and the covariance of each component (k, d, d) or (k, d), as far as they were given."""
        k, kind = self.n_components, self.covariance_type
        weights = _given("weights_init", self.weights_init, (k,), positive=True)
        means = _given("means_init", self.means_init, (k, d))
        precisions = _given("precisions_init", self.precisions_init, _shape_of(kind, k, d), positive=kind in _ROWWISE)
        covariances = None if precisions is None else _each(_inverted(precisions, kind), kind, k, d)
        return None if weights is None else weights / weights.sum(), means, covariances

    def _report(self, coreset: Coreset, found: Search, log_likelihoods: list[float]) -> None:
        """Warn if the search did not converge, and print the log-likelihoods if ``verbose``."""
        if not found.converged:
            warn_caller(
                f"The search on the coreset did not converge in max_iter={self.max_iter} steps. Raise max_iter or tol, "
                "or look for degenerate columns.",
                ConvergenceWarning,
            )
        if self.verbose:
            name = type(self).__name__
            print(f"{name}: {self.n_components} components from {len(coreset)} of {coreset.n_seen} rows.")
            for number, value in enumerate(log_likelihoods):
                print(f"{name}: mean log-likelihood {value:.6g} after {number} rounds of polish.")

    def _shaped(self, parts: Components) -> Array:
        """The covariances in the shape of ``covariances_``."""
        values = parts.covariances
        if self.covariance_type == "tied":
            values = values[0]
        elif self.covariance_type != "full":
            values = values.reshape(parts.means.shape)
        return np.ascontiguousarray(values[:, 0] if self.covariance_type == "spherical" else values)

    @property
    def lower_bounds_(self) -> list[float]:
        """The mean log-likelihoods of a row before each round of polish and at the end."""
        check_is_fitted(self)
        return [-value for value in self.objective_curve_]

    @property
    def _params(self) -> Array:
        """The mixture as the objective has it."""
        check_is_fitted(self)
        k, d = self.means_.shape
        covariances = _each(self.covariances_, self.covariance_type, k, d)
        return Components(weights=self.weights_, means=self.means_, covariances=covariances).packed()

    @property
    def precisions_cholesky_(self) -> Array:
        """The upper triangular factors U of the precisions U U', or roots of the precisions of columns."""
        factors = Components.of(self._params, self.means_.shape[1]).factors()
        if self.covariance_type == "spherical":
            return factors[:, 0, 0].copy()
        if self.covariance_type == "diag":
            return factors.reshape(self.means_.shape).copy()
        upper: Array = np.ascontiguousarray(factors.transpose(0, 2, 1))
        return upper[0] if self.covariance_type == "tied" else upper

    @property
    def precisions_(self) -> Array:
        """Inverses of the covariances."""
        upper = self.precisions_cholesky_
        if self.covariance_type in ("diag", "spherical"):
            return upper**2
        precisions: Array = upper @ np.swapaxes(upper, -1, -2)
        return precisions

    # -- on rows -----------------------------------------------------------------------------

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The most probable component of each row: (n,); a column ``prediction`` of a Spark DataFrame."""
        return self._evaluated(X)[1]

    @lazy_on_collections
    def predict_proba(self, X: Any) -> Array:
        """The probability of each component given the row: (n, n_components)."""
        return self._evaluated(X, with_chances=True)[3]

    @lazy_on_collections
    def score_samples(self, X: Any) -> Array:
        """The log density of each row: (n,)."""
        return self._evaluated(X)[0]

    def _evaluated(self, X: Any, *, with_chances: bool = False) -> tuple[Array, Array, Array, Array]:
        params = self.solve()._params
        rows = replace(self._checked(X, reset=False), sample_weight=None)
        return self._objective().evaluate(rows, params, with_chances=with_chances)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-likelihood of a row of ``X``, rows or a source. One pass."""
        return self._mean_of(X, sample_weight)[0]

    def bic(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The Bayesian information criterion on ``X``, rows or a source; the number of rows is their weight."""
        mean, weight, _ = self._mean_of(X, sample_weight)
        return -2.0 * mean * weight + self._n_parameters() * float(np.log(weight))

    def aic(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Akaike's information criterion on ``X``, rows or a source."""
        mean, weight, _ = self._mean_of(X, sample_weight)
        return -2.0 * mean * weight + 2.0 * self._n_parameters()

    def _n_parameters(self) -> int:
        return replace(self._objective(), n_components=len(self.means_)).n_parameters(self.n_encoded_)

    def _mean_of(self, X: Any, sample_weight: Any) -> tuple[float, float, int]:
        """The mean log-likelihood of the rows, their weight and their number."""
        params, objective = self.solve()._params, self._objective()
        data = DataPass(self._validate_rows(X, None, sample_weight, reset=False), self.engine)
        cost, weight = data.total(
            lambda leaf: np.array([leaf.weights() @ objective.cost(leaf, params), leaf.total_weight])
        )
        return -float(cost / weight), float(weight), data.n_rows

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The exact mean log-likelihood of ``X``, rows or a source, beside that of the coreset. One pass."""
        self.solve()
        estimate = -coreset_cost(self._objective(), self.coreset_, self._params) / self.coreset_.total_weight
        mean, _, n_rows = self._mean_of(X, sample_weight)
        return likelihood_certificate(mean, estimate, n_rows, passes=1, single=self._single(self.coreset_))

    def _single(self, coreset: Coreset) -> float | None:
        """The mean log-likelihood of a row under one normal distribution, as the coreset says; None if k = 1."""
        objective = self._objective()
        if objective.n_components == 1:
            return None
        objective = replace(objective, n_components=1, n_init=1)
        params = objective.solve(coreset, rng=rng_for(0, "single"))
        return -coreset_cost(objective, coreset, params) / coreset.total_weight

    def sample(self, n_samples: int = 1) -> tuple[Array, Array]:
        """Random rows (n_samples, d) of the mixture, and the component that each comes from (n_samples,)."""
        check_value("n_samples", n_samples, WholeNumber(least=1))
        params, rng = self.solve()._params, rng_for(as_seed(self.random_state), "sample")
        factors = Components.of(params, self.means_.shape[1]).factors()
        labels = np.repeat(np.arange(len(params)), rng.multinomial(n_samples, self.weights_ / self.weights_.sum()))
        noise = rng.standard_normal((n_samples, self.means_.shape[1]))
        rows = self.means_[labels]
        for c, factor in enumerate(factors):
            at = labels == c
            if len(factor) < rows.shape[1]:
                rows[at] += noise[at] / factor[0]
            else:
                rows[at] += solve_triangular(factor, noise[at].T, lower=True).T
        return rows, labels

    def summary(self) -> dict[str, Any]:
        """The log-likelihood of a row (of the coreset if the rows could be read only once), and the components."""
        nobody = np.full(len(self.solve().weights_), -1)
        return {
            "log_likelihood": self.lower_bound_,
            "converged": self.converged_,
            "clusters": named_clusters(self, self.means_, self.component_weights_, nobody, None),
        }

    def charts(self) -> list[BarChart]:
        """The weights of the components."""
        weights = self.solve().component_weights_
        return [BarChart.of_largest("components", range(len(weights)), weights, "rows, by weight (from the coreset)")]

    def check_relations(self) -> None:
        super().check_relations()
        if self._is_behind:
            return
        expect(abs(self.weights_.sum() - 1.0) < 1e-6, "weights do not add up to 1")
        shape = _shape_of(self._objective().covariance_type, *self.means_.shape)
        Floats(*shape).check("covariances_", self.covariances_, {})
        if self.covariance_type not in _ROWWISE:
            symmetric = np.allclose(self.covariances_, np.swapaxes(self.covariances_, -1, -2))
            expect(symmetric, "covariances are not symmetric")
        Components.of(self._params, self.n_encoded_).factors()


_ROWWISE = ("diag", "spherical")


def _shape_of(covariance_type: str, k: int, d: int) -> tuple[int, ...]:
    """The shape of the covariances as scikit-learn has them."""
    return {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[covariance_type]


def _each(covariances: Array, covariance_type: str, k: int, d: int) -> Array:
    """Covariances in scikit-learn's shape as those of each component: (k, d, d), or diagonals (k, d)."""
    if covariance_type == "tied":
        return np.repeat(covariances[None], k, axis=0)
    return np.repeat(covariances[:, None], d, axis=1) if covariance_type == "spherical" else covariances


def _inverted(precisions: Array, covariance_type: str) -> Array:
    """The covariances of these precisions, in the same shape."""
    if covariance_type in _ROWWISE:
        return 1.0 / precisions
    if not np.allclose(precisions, np.swapaxes(precisions, -1, -2)):
        raise ValueError("precisions_init must be symmetric.")
    try:
        np.linalg.cholesky(precisions)
    except np.linalg.LinAlgError:
        raise ValueError("precisions_init must be positive definite.") from None
    return np.linalg.inv(precisions)


def _given(name: str, values: Any, shape: tuple[int, ...], *, positive: bool = False) -> Array | None:
    """A start that was given, as floats of the right shape."""
    if values is None:
        return None
    array: Array = np.ascontiguousarray(values, np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}: {shape} is needed for these components and columns.")
    if not np.isfinite(array).all() or (positive and not (array > 0.0).all()):
        raise ValueError(f"{name} must be finite{' and positive' if positive else ''}.")
    return array
