"""`ODMClustering`: clusters that a margin machine can tell apart."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.certify.certificate import Certificate
from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.core.params import (
    CORESET_SIZE,
    Boolean,
    Constraint,
    Function,
    OneOf,
    RealNumber,
    WholeNumber,
    check_params,
    resolve_size,
)
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Check, Floats, Instance, Integers, Number, Optional, Storable, check_fields, expect
from tithe.fit.bases import BaseEstimator, ClusterMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.fitted import COLUMNS, OPTIONAL_COLUMNS, check_schema
from tithe.fit.results import BarChart, Described
from tithe.fit.tables import checked_block
from tithe.odm.base import row_costs
from tithe.odm.classifier import ODMClassifier
from tithe.odm.clustering_problem import ClusteringProblem, cluster_assignments, cluster_labelings
from tithe.odm.kernel_machine import KernelRows
from tithe.odm.kernel_rows import (
    kernel_matrix,
    label_certificate,
    neighbour_gamma,
    reduced_rows,
    rows_in_memory,
    rows_of,
)
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_functions import KERNELS
from tithe.odm.solvers.label_search_many import label_losses
from tithe.odm.solvers.labelings import checked_links
from tithe.odm.solvers.relaxation import margin_loss


class ODMClustering(KernelRows, ClusterMixin, Described, Storable, BaseEstimator):
    """Clusters that an optimal margin distribution machine can tell apart.

    The labels y are unknowns of the machine (`ODMClassifier` states its loss and its parameters). For two clusters,

        min over y in B of g(y),    g(y) = min over w of |w|^2 / 2 + 1/2 sum_i C_i l(y_i w . phi(x_i)),

    where B holds the labels that obey the balance and the links, and phi is centred: a single cluster gains nothing.
    The convex relaxation is solved over mixtures of labelings, which are added as cutting planes; its solution is
    rounded and refined. More than two clusters are found by assigning rows and fitting the machine of many classes in
    turn. After Zhang and Zhou, "Optimal margin distribution clustering" (AAAI 2018).

    Parameters
    ----------
    n_clusters : int
    balance : float in [0, 1)
        The weights of two clusters may differ by this share of the whole. Each of k clusters has at least a share
        (1 - balance) / k.
    must_link, cannot_link : array of shape (p, 2) or None
        Pairs of row numbers that must be in one cluster, or in two. Links hold exactly. Contradictions are errors.
    lam, mu, theta, kernel, degree, coef0
        See `ODMClassifier`.
    gamma : {"neighbors", "scale", "auto"} or float
        ``"neighbors"``: 1 / (2 s^2), s the median distance of distinct rows to their tenth neighbour. A width of
        the size of a neighbourhood follows clusters of any shape. The others as in `ODMClassifier`.
    fit_intercept : bool
        Without an intercept, scores have a mean of zero, which prefers clusters of similar weight. With one, clusters
        of unequal weight are found more often, but the relaxation is less tight, and only the balance rules out a
        single cluster. With an intercept and ``lam=1000``, clusters agreed better with the classes of 12 sets (mean
        ARI .245 against .214 with the defaults, .323 against .279 with 10 % of links), but the bound was half as
        close, and the search found other labels from other starts (``benchmarks/odm_clustering.py``).
    intercept_scaling : float
        The constant feature.
    coreset_size : int or float
        If there are more rows, a weighted coreset of this size and the rows with links are clustered. The other rows
        get their labels from the machine, within the constraints.
    max_cuts : int
        Maximum number of rounds of cutting planes.
    n_restarts : int
        Searches for a cutting plane from random labels, in each round.
    tol : float
        The relaxation ends where a cutting plane lowers its value by less than this share.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    labels_ : array (n,)
        The cluster of each row. Clusters are numbered by their means in the first column in which these differ.
    machine_ : ODMClassifier or None
        The machine fitted to these labels; `predict` uses it. It always has an intercept, as the search takes the mean
        out of the kernel. None for a single cluster.
    objective_ : float
        g of the labels, on the rows that were clustered.
    relaxed_bound_ : float or None
        No labels that obey the constraints have a smaller objective: proved. None for more than two clusters.
    relaxed_value_ : float or None
        The value of the mixture of labelings that the search ended with. If no better cutting plane exists, which is
        not proved, it is a lower bound too, and tighter than ``relaxed_bound_``.
    certificate_ : Certificate or None
        What the bound says of the labels. None for more than two clusters.
    sample_indices_ : array
        Positions of the rows that were clustered: all of them, or a coreset.
    cluster_weights_ : array (n_clusters,)
    n_features_in_, feature_names_in_

    Notes
    -----
    A round takes a time of order n^3, n the rows that are clustered. A machine saved to a file holds training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import ODMClustering
    >>> angle = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    >>> ring = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> X = np.concatenate([ring, 3.0 * ring])
    >>> model = ODMClustering(random_state=0).fit(X)
    >>> [len(set(labels.tolist())) for labels in (model.labels_[:60], model.labels_[60:], model.labels_)]
    [1, 1, 2]
    >>> bool(model.relaxed_bound_ <= model.objective_)
    True
    """

    labels_: Array
    machine_: ODMClassifier | None
    objective_: float
    relaxed_bound_: float | None
    relaxed_value_: float | None
    certificate_: Certificate | None
    sample_indices_: Array
    cluster_weights_: Array
    n_features_in_: int
    feature_names_in_: Array

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": WholeNumber(least=1),
        "balance": RealNumber(least=0.0, below=1.0),
        **{name: MarginObjective.constraints[name] for name in ("lam", "mu", "theta")},
        "kernel": OneOf(*KERNELS) | Function(),
        "gamma": OneOf("neighbors", "scale", "auto") | RealNumber(above=0.0),
        "degree": RealNumber(least=0.0),
        "coef0": RealNumber(),
        "fit_intercept": Boolean(),
        "intercept_scaling": RealNumber(above=0.0),
        "coreset_size": CORESET_SIZE,
        "max_cuts": WholeNumber(),
        "n_restarts": WholeNumber(),
        "tol": RealNumber(above=0.0),
    }

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        balance: float = 0.3,
        must_link: Any = None,
        cannot_link: Any = None,
        lam: float = 100.0,
        mu: float = 0.5,
        theta: float = 0.2,
        kernel: Any = "rbf",
        gamma: float | str = "neighbors",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = False,
        intercept_scaling: float = 1.0,
        coreset_size: int | float = 1000,
        max_cuts: int = 20,
        n_restarts: int = 5,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.balance = balance
        self.must_link = must_link
        self.cannot_link = cannot_link
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.coreset_size = coreset_size
        self.max_cuts = max_cuts
        self.n_restarts = n_restarts
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source; a kernel matrix (n, n) if it is precomputed
            A source (`open_dataset`) is read into memory as a whole.
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows, also in the balance; multiplying all weights changes the balance
            only by rounding.
        """
        check_params(self, self._constraints)
        block, _ = rows_in_memory(self, X, None, sample_weight)
        if len(block) < self.n_clusters:
            raise ValueError(f"n_samples={len(block)} should be >= n_clusters={self.n_clusters}.")
        must_link = checked_links(self.must_link, len(block), "must_link")
        cannot_link = checked_links(self.cannot_link, len(block), "cannot_link")
        seed = as_seed(self.random_state)
        with single_blas_thread():
            rows, weight = self._clustered_rows(block, np.concatenate([must_link, cannot_link]), seed)
            share = np.ones(len(rows)) if weight is None else weight
            kernel = self._machine(block, rows)
            K = kernel_matrix(kernel, block, rows)
            problem = ClusteringProblem(self, K, share, _renumbered(must_link, rows), _renumbered(cannot_link, rows))
            labels = _numbered(problem.solve(rng_for(seed, "search")), kernel, block, rows, share)
            # one cluster needs no machine
            self.machine_ = kernel.fit(rows_of(self.kernel, block.X, rows), labels, weight) if labels.any() else None
            if self.machine_ is None:
                labels = np.zeros(len(block), np.int64)
            elif len(rows) < len(block):
                labels = self._label_all(block, must_link, cannot_link)
        self.objective_, self.relaxed_bound_, self.relaxed_value_ = problem.value, problem.bound, problem.relaxed
        self.labels_, self.sample_indices_ = labels, rows
        self.cluster_weights_ = np.bincount(labels, weights=block.weights(), minlength=self.n_clusters)
        self.certificate_ = label_certificate(problem.value, problem.bound, len(rows), len(block))
        return self

    def _clustered_rows(self, block: Block, links: Array, seed: int) -> tuple[Array, Array | None]:
        """The rows to cluster, in their order, and their weights: all rows with a weight or a link, or a coreset."""
        linked = np.zeros(len(block), bool)
        linked[links.ravel()] = True
        if self.kernel == "precomputed":
            rows = np.flatnonzero(linked | (block.weights() > 0.0))
            return rows, None if block.sample_weight is None else block.sample_weight[rows].astype(np.float64)
        size = resolve_size(self.coreset_size, len(block))
        return reduced_rows(block, linked, size, n_clusters=self.n_clusters, seed=seed)

    def _machine(self, block: Block, rows: Array) -> ODMClassifier:
        """The machine that is fitted to the labels, with the width of its kernel."""
        gamma = self.gamma if self.gamma != "neighbors" else neighbour_gamma(self.kernel, block.X, rows)
        return ODMClassifier(
            self.lam,
            self.mu,
            self.theta,
            kernel=self.kernel,
            gamma=gamma,
            degree=self.degree,
            coef0=self.coef0,
            random_state=0,
        )

    def _label_all(self, block: Block, must_link: Array, cannot_link: Array) -> Array:
        """Labels of all rows that cost the machine least and obey the constraints."""
        assert self.machine_ is not None
        scores, weight = self.machine_.decision_function(block.X), block.weights()
        cost, mu, theta = row_costs(weight, len(block), self.lam, self.theta), float(self.mu), float(self.theta)
        if self.n_clusters > 2:
            assignments = cluster_assignments(self, weight, must_link, cannot_link)
            return assignments.best(label_losses(scores, cost, mu, theta))
        c = margin_loss(-scores, cost, mu, theta) - margin_loss(scores, cost, mu, theta)
        return (cluster_labelings(self, weight, must_link, cannot_link).best(c) > 0.0).astype(np.int64)

    # -- methods of a fitted model -------------------------------------------------------------

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """The scores of ``machine_``: (n,) for two clusters, else (n, n_clusters). Zeros for a single one."""
        check_is_fitted(self)
        block = checked_block(self, X, reset=False)
        if self.machine_ is None:
            return np.zeros(len(block))
        rows = self.sample_indices_ if self.kernel == "precomputed" else None
        return self.machine_.decision_function(block.X if rows is None else block.X[:, rows])

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The cluster of each row, by ``machine_``. Constraints on training rows do not apply."""
        scores = self.decision_function(X)
        labels: Array = (scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return labels

    def summary(self) -> dict[str, Any]:
        """The objective, its lower bound, and the weights of the clusters."""
        return {
            "objective": self.objective_,
            "relaxed_bound": self.relaxed_bound_,
            "cluster_weights": self.cluster_weights_.tolist(),
            "support_vectors": 0 if self.machine_ is None else len(self.machine_.support_),
        }

    def charts(self) -> list[BarChart]:
        """The weights of the clusters."""
        weights = self.cluster_weights_
        return [BarChart.of_largest("clusters", range(len(weights)), weights, "rows, by weight")]

    def _check_state(self) -> None:
        values = self.__dict__
        if "machine_" not in values:
            expect("labels_" not in values, "labels have no machine")
            return
        sizes = check_fields(self, COLUMNS, optional=OPTIONAL_COLUMNS)
        check_schema(values, sizes["d"])
        sizes = check_fields(self, _STATE, sizes=sizes)
        expect(self.labels_.max(initial=0) < sizes["k"], "labels are out of range")
        expect(self.sample_indices_.max(initial=0) < sizes["rows"], "rows are out of range")
        if self.machine_ is None:
            expect(sizes["k"] == 1, "clusters have no machine")
            return
        n_columns = len(self.sample_indices_) if self.kernel == "precomputed" else sizes["d"]
        expect(self.machine_.n_features_in_ == n_columns, "a machine has other columns")
        expect(len(self.machine_.classes_) == sizes["k"], "a machine has other clusters")


_STATE: dict[str, Check] = {
    "machine_": Optional(Instance(ODMClassifier)),
    "labels_": Integers("rows", least=0),
    "sample_indices_": Integers("clustered", least=0),
    "cluster_weights_": Floats("k", least=0.0),
    "objective_": Number(least=0.0),
    "relaxed_bound_": Optional(Number(least=0.0)),
    "relaxed_value_": Optional(Number(least=0.0)),
    "certificate_": Optional(Instance(Certificate)),
}


def _renumbered(links: Array, rows: Array) -> Array:
    """Links as positions among ``rows``, which hold every linked row."""
    return np.searchsorted(rows, links)


def _numbered(labels: Array, machine: ODMClassifier, block: Block, rows: Array, weight: Array) -> Array:
    """Labels numbered by the means of the clusters in the first column in which they differ, or by their first rows.

    The order of the rows does not matter then, and neither does whether a row is repeated or has a weight.
    """
    names, first = np.unique(labels, return_index=True)
    keys = [first]
    if machine.kernel != "precomputed":
        X = block.X[rows]
        means = np.array(
            [(X.T @ (weight * (labels == name))) / max(weight[labels == name].sum(), 1e-300) for name in names]
        )
        scale = np.abs(means).max(axis=0)
        keys += list(np.round(means / np.where(scale > 0.0, scale, 1.0), 9).T[::-1])
    order = np.lexsort(keys)
    numbers = np.empty(len(names), np.int64)
    numbers[order] = np.arange(len(names))
    return numbers[np.searchsorted(names, labels)]
