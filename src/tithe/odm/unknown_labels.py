"""What clustering and semi-supervised learning share: the labels of a margin machine are unknown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted

from tithe.certify.certificate import Certificate, bound_certificate
from tithe.clustering.objective import KMeansObjective
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.params import CORESET_SIZE, Constraint, Instance, OneOf, resolve_size
from tithe.core.state_checks import Instance as IsA
from tithe.core.state_checks import Optional
from tithe.fit.base import Described, check_no_extra_arrays, checked_block, note_columns
from tithe.fit.bases import BaseEstimator
from tithe.fit.collections import lazy_on_collections
from tithe.odm.base import KERNEL_CONSTRAINTS, KernelRows
from tithe.odm.classifier import ODMClassifier
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_matrix import (
    KERNELS_WITH_GAMMA,
    landmark_features,
    training_kernel,
    training_matrix,
)
from tithe.odm.solvers.label_search import LabelSearch
from tithe.odm.solvers.labelings import checked_links
from tithe.reduce.plan import build_coreset

_NEIGHBOUR = 10  # whose median distance is the width of the kernel
_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4)  # shares of the mean diagonal
_MAX_LANDMARKS = 299  # rows that stand for a kernel in the search
_PILOT_CENTERS = 20  # clusters of the coreset's objective: it should follow the shape of the data

Links = tuple[Array, Array]  # pairs of rows (p, 2) that must have one label, and pairs that must have different ones


@dataclass(eq=False, repr=False, kw_only=True)
class UnknownLabels(KernelRows, Described, BaseEstimator):
    """The base of estimators that search for labels of the rows, and fit a machine to those that they find."""

    lam: float = 100.0
    mu: float = 0.5
    theta: float = 0.2
    must_link: Any = None
    cannot_link: Any = None
    kernel: Any = "rbf"
    gamma: float | str = "neighbors"
    degree: float = 3
    coef0: float = 0.0
    fit_intercept: bool = False
    coreset_size: int | float = 1000
    search: LabelSearch | None = None
    encode: bool | str = "auto"
    random_state: Any = None

    machine_: Any = field(init=False)
    certificate_: Annotated[Certificate | None, Optional(IsA(Certificate))] = field(default=None, init=False)

    _shared_constraints: ClassVar[dict[str, Constraint]] = {
        **{name: MarginObjective.constraints[name] for name in ("lam", "mu", "theta")},
        **KERNEL_CONSTRAINTS,
        "gamma": OneOf("neighbors") | KERNEL_CONSTRAINTS["gamma"],
        "coreset_size": CORESET_SIZE,
        "search": OneOf(None) | Instance(LabelSearch, "a LabelSearch"),
    }

    # -- steps of a fit ------------------------------------------------------------------------

    @property
    def _constant(self) -> float:
        """What a penalised intercept adds to the kernel."""
        return 1.0 if self.fit_intercept else 0.0

    def _searched(
        self, block: Block, kept: Array, n_classes: int, seed: int
    ) -> tuple[Links, Array, Array | None, Links]:
        """The links, the rows to search, in their order, their weights, and the links among them.

        A coreset takes the place of rows neither ``kept`` (n,) nor linked, if there are more than ``coreset_size``.
        """
        n = len(block)
        links = checked_links(self.must_link, n, "must_link"), checked_links(self.cannot_link, n, "cannot_link")
        kept = kept.copy()
        kept[np.concatenate(links).ravel()] = True
        others = np.flatnonzero((block.weights() > 0.0) & ~kept)
        size = max(resolve_size(self.coreset_size, n) - int(kept.sum()), n_classes)
        if self.kernel == "precomputed" or len(others) <= size:
            rows = np.union1d(others, np.flatnonzero(kept))
            weight = None if block.sample_weight is None else block.sample_weight[rows].astype(np.float64)
        else:
            coreset = build_coreset(
                block.X[others],
                sample_weight=None if block.sample_weight is None else block.sample_weight[others],
                objective=KMeansObjective(n_clusters=max(_PILOT_CENTERS, n_classes), n_init=1),
                coreset_size=size,
                random_state=seed,
            )
            all_weights = block.weights() * kept
            all_weights[others[coreset.row_ids()]] = coreset.weights()
            rows = np.flatnonzero(kept | (all_weights > 0.0))
            weight = all_weights[rows]
        return links, rows, weight, (np.searchsorted(rows, links[0]), np.searchsorted(rows, links[1]))

    def _kernel_machine(self, block: Block, rows: Array, **options: Any) -> ODMClassifier:
        """The machine before it is fitted, with the width of its kernel."""
        gamma = self.gamma if self.gamma != "neighbors" else _neighbor_gamma(self.kernel, block.X, rows)
        return ODMClassifier(
            self.lam,
            self.mu,
            self.theta,
            kernel=self.kernel,
            gamma=gamma,
            degree=self.degree,
            coef0=self.coef0,
            random_state=0,
            **options,
        )

    # -- methods of a fitted model -------------------------------------------------------------

    def _machine_columns(self) -> Array:
        """The training rows that the machine was fitted to: its columns of a kernel matrix that is precomputed."""
        raise NotImplementedError

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """The scores of ``machine_``: (n,) for two classes or clusters, else (n, k). Zeros for a single cluster."""
        check_is_fitted(self)
        rows = checked_block(self, X, reset=False).X
        if self.machine_ is None:
            return np.zeros(rows.shape[0])
        return np.asarray(self.machine_.decision_function(self._machine_rows(rows)))

    def _machine_rows(self, X: Any) -> Any:
        """Rows as the machine takes them."""
        return X[:, self._machine_columns()] if self.kernel == "precomputed" else X


def rows_in_memory(learner: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Block, Any]:
    """All rows as a checked block, and y. A source is read as a whole; y and weights come with it."""
    if not isinstance(X, Source):
        return checked_block(learner, X, None, sample_weight, reset=True), y
    note_columns(learner, check_no_extra_arrays(X, y, sample_weight), reset=True)
    block = concat([task() for task in X.tasks()])
    return replace(block, y=None), block.y


def kernel_matrix(machine: ODMClassifier, block: Block, rows: Array) -> Array:
    """The kernel matrix of some rows, in double precision."""
    return training_matrix(machine, Block(X=rows_of(machine.kernel, block.X, rows)))


def search_features(machine: ODMClassifier, block: Block, rows: Array, constant: float, rng: Any) -> Array:
    """Features (n, r) whose products are close to the kernel plus a constant: columns, or landmarks of the kernel."""
    if machine.kernel == "linear" and isinstance(block.X, np.ndarray):
        features = block.X[rows].astype(np.float64)
    else:
        landmarks = np.sort(rng.permutation(len(rows))[:_MAX_LANDMARKS])
        if machine.kernel == "precomputed":
            columns = block.X[np.ix_(rows, rows[landmarks])].astype(np.float64)
        else:
            function = replace(training_kernel(machine, block.take(rows, None)), dtype=np.float64)
            columns = function.rectangle(function.prepare(block.X[rows]), function.prepare(block.X[rows[landmarks]]))
        features = landmark_features(columns, landmarks, _JITTERS)
    return np.column_stack([features, np.full(len(rows), constant**0.5)])


def rows_of(kernel: Any, X: Any, rows: Array) -> Any:
    """Rows of X, and for a kernel matrix their columns too."""
    return X[np.ix_(rows, rows)] if isinstance(kernel, str) and kernel == "precomputed" else X[rows]


def label_certificate(value: float, bound: float | None, n_searched: int, n_rows: int) -> Certificate | None:
    """What a lower bound on the objective over all labels says of labels with this value."""
    if bound is None:
        return None
    searched_all = n_searched == n_rows
    rows = f"all {n_rows} rows" if searched_all else f"{n_searched} of {n_rows} rows"
    return replace(
        bound_certificate(value, max(value - bound, 0.0), n_searched, passes=1),
        compared_on="all rows" if searched_all else f"the {n_searched} rows that labels were searched for",
        sentence=(
            f"The objective of the labels is {value:.6g} on {rows}. No labels that obey the constraints have one below "
            f"{bound:.6g}."
        ),
    )


def _neighbor_gamma(kernel: Any, X: Any, rows: Array) -> float:
    """1 / (2 s^2), s the median distance of distinct rows to their tenth neighbour; 1 for kernels without a width."""
    if not isinstance(kernel, str) or kernel not in KERNELS_WITH_GAMMA:
        return 1.0
    distance = euclidean_distances(X[rows])
    zero = 1e-7 * float(distance.max(initial=0.0))  # what rounding leaves between equal rows
    first = (distance <= zero).argmax(axis=1)
    distinct = np.flatnonzero(first == np.arange(len(first)))
    if len(distinct) < 2 or not np.isfinite(zero):
        return 1.0
    near = np.sort(distance[np.ix_(distinct, distinct)], axis=1)[:, min(_NEIGHBOUR, len(distinct) - 1)]
    gamma = 0.5 / float(np.median(near)) ** 2
    return gamma if np.isfinite(gamma) and gamma > 0.0 else 1.0
