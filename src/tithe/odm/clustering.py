"""`ODMClustering`: clusters that a margin machine can tell apart."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Constraint, RealNumber, WholeNumber, check_params
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Integers, Number, Optional, expect
from tithe.core.state_checks import Instance as IsA
from tithe.fit.bases import ClusterMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import BarChart
from tithe.odm.base import class_numbers, row_costs
from tithe.odm.classifier import ODMClassifier
from tithe.odm.solvers.kernel_matrix import label_losses
from tithe.odm.solvers.label_machines import ManyProblem, MarginProblem
from tithe.odm.solvers.label_search import (
    FoundLabels,
    LabelSearch,
    clustering_starts,
    search_assignment,
    search_labels,
    spectral_starts,
)
from tithe.odm.solvers.labelings import Assignments, Balance, Labelings, linked_groups
from tithe.odm.unknown_labels import (
    Links,
    UnknownLabels,
    kernel_matrix,
    label_certificate,
    rows_in_memory,
    rows_of,
)

_MACHINE_TOL, _EXACT_TOL = 1e-6, 1e-10  # relative gaps of the machines in the search, of many rows and of few
_MAX_EXACT_ROWS = 100
_ROUNDING = 1e-12  # share of the kernel that is added to the diagonal: centring leaves a tiny negative part
_MANY_TOL = 1e-3  # the same with more than two clusters


@dataclass(eq=False, repr=False)
class ODMClustering(ClusterMixin, UnknownLabels):
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
        See `ODMClassifier`. Its ``lam`` is ten times as large; here that makes the bound less close.
    gamma : {"neighbors", "scale", "auto"} or float
        ``"neighbors"``: 1 / (2 s^2), s the median distance of distinct rows to their tenth neighbour. A width of
        the size of a neighbourhood follows clusters of any shape. The others as in `ODMClassifier`.
    fit_intercept : bool
        Without an intercept, scores have a mean of zero, which prefers clusters of similar weight. With one, clusters
        of unequal weight are found more often, but the relaxation is less tight, and only the balance rules out a
        single cluster. With an intercept and ``lam=1000``, clusters agreed better with the classes of 12 sets (mean
        ARI 0.245 against 0.214 with the defaults, 0.323 against 0.279 with 10 % of links), but the bound was half as
        close, and the search found other labels from other starts (``benchmarks/odm_clustering.py``).
    coreset_size : int or float
        If there are more rows, a weighted coreset of this size and the rows with links are clustered. The other rows
        get their labels from the machine, within the constraints.
    search : LabelSearch or None
        How long labels are searched for; None is ``LabelSearch()``.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
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

    n_clusters: int = 2
    _: KW_ONLY
    balance: float = 0.3

    machine_: Annotated[ODMClassifier | None, Optional(IsA(ODMClassifier))] = field(init=False)
    labels_: Annotated[Array, Integers("rows", least=0)] = field(init=False)
    objective_: Annotated[float, Number(least=0.0)] = field(init=False)
    relaxed_bound_: Annotated[float | None, Optional(Number(least=0.0))] = field(init=False)
    relaxed_value_: Annotated[float | None, Optional(Number(least=0.0))] = field(init=False)
    sample_indices_: Annotated[Array, Integers("clustered", least=0)] = field(init=False)
    cluster_weights_: Annotated[Array, Floats("k", least=0.0)] = field(init=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": WholeNumber(least=1),
        "balance": RealNumber(least=0.0, below=1.0),
        **UnknownLabels._shared_constraints,
    }

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
        seed = as_seed(self.random_state)
        with single_blas_thread():
            links, rows, weight, among = self._searched(block, np.zeros(len(block), bool), self.n_clusters, seed)
            share = np.ones(len(rows)) if weight is None else weight
            machine = self._kernel_machine(block, rows)
            found = self._found(kernel_matrix(machine, block, rows), share, among, rng_for(seed, "search"))
            labels = _numbered(found.codes, machine, block, rows, share)
            # one cluster needs no machine
            self.machine_ = machine.fit(rows_of(self.kernel, block.X, rows), labels, weight) if labels.any() else None
            if self.machine_ is None:
                labels = np.zeros(len(block), np.int64)
            elif len(rows) < len(block):
                all_weights = block.weights()
                cost = row_costs(all_weights, len(block), self.lam, self.theta)
                losses = label_losses(self.machine_.decision_function(block.X), cost, float(self.mu), float(self.theta))
                labels = self._allowed(all_weights, links).cheapest(losses)
        self.objective_, self.relaxed_bound_, self.relaxed_value_ = found.value, found.bound, found.relaxed
        self.labels_, self.sample_indices_ = labels, rows
        self.cluster_weights_ = np.bincount(labels, weights=block.weights(), minlength=self.n_clusters)
        self.certificate_ = label_certificate(found.value, found.bound, len(rows), len(block))
        return self

    def _found(self, K: Array, weight: Array, links: Links, rng: np.random.Generator) -> FoundLabels:
        """Labels of the rows with the kernel matrix K (n, n), which is not centred."""
        if self.n_clusters == 1:  # there is nothing to tell apart
            zeros = np.zeros(len(K))
            return FoundLabels(codes=zeros.astype(np.int64), scores=zeros, value=0.0, bound=0.0, relaxed=0.0)
        share = weight / weight.sum()
        mean = K @ share
        centred = K - mean - mean[:, None] + (float(share @ mean) + self._constant)
        centred[np.diag_indices_from(K)] += _ROUNDING * float(np.abs(np.diagonal(K)).mean())
        cost = row_costs(weight, len(K), self.lam, self.theta)
        mu, theta = float(self.mu), float(self.theta)
        allowed = self._allowed(weight, links)
        if isinstance(allowed, Assignments):
            starts = clustering_starts(allowed, K, share, rng)
            many = ManyProblem(matrix=centred, cost=cost, mu=mu, theta=theta, n_classes=self.n_clusters, tol=_MANY_TOL)
            return search_assignment(many, allowed, starts, rng)
        tol = _EXACT_TOL if len(K) <= _MAX_EXACT_ROWS else _MACHINE_TOL
        problem = MarginProblem(matrix=centred, cost=cost, mu=mu, theta=theta, tol=tol)
        return search_labels(problem, allowed, spectral_starts(allowed, K, share), self.search or LabelSearch(), rng)

    def _allowed(self, weight: Array, links: Links) -> Labelings | Assignments:
        """The labels that obey the balance and the links, for two clusters and for more."""
        if self.n_clusters == 2:
            groups = linked_groups(*links, np.zeros(len(weight)))
            return Labelings(groups, Balance.of_clusters(weight, float(self.balance)))
        k, total = self.n_clusters, float(weight.sum())
        least = (1.0 - self.balance) * total / k
        if (weight == np.round(weight)).all():
            least = max(np.floor(least + 1e-9), 1.0)
        return Assignments(
            k,
            must_link=links[0],
            cannot_link=links[1],
            labels=np.full(len(weight), -1),
            count=weight,
            least=np.full(k, least),
            most=np.full(k, total - (k - 1) * least),
        )

    # -- methods of a fitted model -------------------------------------------------------------

    def _machine_columns(self) -> Array:
        return self.sample_indices_

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The cluster of each row, by ``machine_``. Constraints on training rows do not apply."""
        check_is_fitted(self)
        return class_numbers(self.decision_function(X))

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

    def check_relations(self) -> None:
        k = len(self.cluster_weights_)
        expect(self.labels_.max(initial=0) < k, "labels are out of range")
        expect(self.sample_indices_.max(initial=0) < len(self.labels_), "rows are out of range")
        if self.machine_ is None:
            expect(k == 1, "clusters have no machine")
            return
        n_columns = len(self.sample_indices_) if self.kernel == "precomputed" else self.n_encoded_
        expect(self.machine_.n_encoded_ == n_columns, "a machine has other columns")
        expect(len(self.machine_.classes_) == k, "a machine has other clusters")


def _numbered(labels: Array, machine: ODMClassifier, block: Block, rows: Array, weight: Array) -> Array:
    """Labels numbered by the means of the clusters in the first column in which they differ, or by their first rows."""
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
