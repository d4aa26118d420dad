"""`SemiSupervisedODMClassifier`: a margin machine that learns from labelled and unlabelled rows."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tithe.certify.certificate import Certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.core.params import (
    CORESET_SIZE,
    Boolean,
    Constraint,
    Function,
    OneOf,
    Option,
    RealNumber,
    WholeNumber,
    check_params,
    resolve_size,
)
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import (
    Check,
    Each,
    Flag,
    Instance,
    Integers,
    Labels,
    Number,
    Optional,
    Storable,
    check_fields,
    expect,
)
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.fitted import COLUMNS, OPTIONAL_COLUMNS, check_classes, check_schema
from tithe.fit.results import Described
from tithe.fit.tables import checked_block
from tithe.odm.classifier import ODMClassifier
from tithe.odm.kernel_machine import KernelRows
from tithe.odm.kernel_rows import label_certificate, neighbour_gamma, reduced_rows, rows_in_memory, rows_of
from tithe.odm.linear_classifier import LinearODMClassifier
from tithe.odm.objective import MarginObjective
from tithe.odm.partial_labels import encoded_partly, warn_of_dropped_rows
from tithe.odm.semi_supervised_problem import label_problem, semi_supervised_costs, transduced
from tithe.odm.solvers.kernel_functions import KERNELS, training_kernel
from tithe.odm.solvers.labelings import checked_links


class SemiSupervisedODMClassifier(KernelRows, ClassifierMixin, Described, Storable, BaseEstimator):
    """Optimal margin distribution machine for rows of which only some are labelled.

    The labels of the other rows are unknowns of the machine (`ODMClassifier` states its loss l and its parameters):

        min over their labels and w of |w|^2 / 2 + sum over labelled rows of C_i l(u_i) / 2 + the same over the others,

    C_i = lam s_i / (W (1 - theta)^2) for labelled rows, W the sum of their weights, and the same with ``lam_unlabeled``
    for unlabelled ones. Labels obey the links, and the shares of the classes that the labelled rows suggest. They are
    found as by `ODMClustering`, starting from the machine of the labelled rows and from labels that spread to
    neighbours. After Zhang and Zhou, "Semi-supervised optimal margin distribution machines" (IJCAI 2018).

    Parameters
    ----------
    lam : float
        Weight of the mean loss of the labelled rows, as in `ODMClassifier`.
    mu, theta : float
    lam_unlabeled : float
        Weight of the mean loss of the unlabelled rows. With 0 they are not used. The default changes little where
        classes overlap; 1000, with ``gamma="neighbors"``, follows classes with gaps between them, of any shape, as
        long as there are no more than some hundred rows for each label.
    unlabeled : int, float, str or None
        What y holds for rows without a label; None and NaN mean the same in any case. Use a text for classes that
        are texts, and None if -1 is a class.
    balance : float, "auto" or None
        The share of each class among unlabelled rows is within ``balance`` of its share among the labelled ones.
        ``"auto"``: within two standard errors of it. None: any shares.
    must_link, cannot_link : array of shape (p, 2) or None
        Pairs of row numbers that must have one label, or different ones. Links hold exactly in ``transduction_``.
    safe : bool
        Keep the machine of the labelled rows unless unlabelled ones help: labels are left out in turn (in five parts if
        there are more than 20), and must be predicted with fewer errors or, if errors are equal, a smaller loss.
    kernel, degree, coef0, fit_intercept, intercept_scaling
        See `ODMClassifier`.
    gamma : {"scale", "auto", "neighbors"} or float
        As in `ODMClassifier` or `ODMClustering`, from all rows.
    coreset_size : int or float
        If there are more rows, a weighted coreset of the unlabelled rows, of this size together with the labelled and
        the linked ones, takes their place.
    max_cuts, n_restarts, tol
        See `ODMClustering`. The relaxation is solved for two classes and up to 400 rows. With more rows labels are
        refined only, on the columns of a linear kernel or 300 landmarks of another.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    classes_ : array (K,)
    machine_ : ODMClassifier, or LinearODMClassifier for a linear kernel
        The machine that predicts.
    transduction_ : array (n,)
        The labels of all training rows: given, or found.
    sample_indices_ : array
        Positions of the rows that labels are searched for or given: all of them, or with a coreset of the others.
    uses_unlabeled_ : bool
        Whether unlabelled rows had a part in ``machine_``.
    left_out_errors_ : tuple of two floats, or None
        The share of labels left out that are predicted wrongly, by the machine of the labelled rows and with unlabelled
        rows; None if ``safe`` is False or all rows are labelled.
    objective_, relaxed_bound_, certificate_
        Of the labels found, as in `ODMClustering`; None if they were not searched for, or without a relaxation.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from tithe.odm import SemiSupervisedODMClassifier
    >>> X, y = make_moons(150, noise=0.06, random_state=0)
    >>> given = np.full(150, -1)
    >>> rows = np.concatenate([np.flatnonzero(y == k)[:5] for k in (0, 1)])
    >>> given[rows] = y[rows]
    >>> model = SemiSupervisedODMClassifier(lam_unlabeled=1000.0, gamma="neighbors", random_state=0).fit(X, given)
    >>> model.score(X, y) > 0.95
    True
    """

    classes_: Array
    machine_: ODMClassifier | LinearODMClassifier
    transduction_: Array
    sample_indices_: Array
    uses_unlabeled_: bool
    left_out_errors_: tuple[float, float] | None
    objective_: float | None
    relaxed_bound_: float | None
    certificate_: Certificate | None
    n_features_in_: int
    feature_names_in_: Array

    _constraints: ClassVar[dict[str, Constraint]] = {
        **{name: MarginObjective.constraints[name] for name in ("lam", "mu", "theta")},
        "lam_unlabeled": RealNumber(least=0.0),
        "balance": OneOf("auto", None) | RealNumber(least=0.0, most=1.0),
        "safe": Boolean(),
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

    options: ClassVar[tuple[Option, ...]] = (
        *MarginObjective.options,
        Option("lam_unlabeled", _constraints["lam_unlabeled"], "How much margins of unlabelled rows count."),
        Option(
            "balance",
            _constraints["balance"],
            "How far the shares of classes may be from those among the labels; auto: two standard errors.",
        ),
        Option("kernel", OneOf(*(name for name in KERNELS if name != "precomputed")), "What rows are compared by."),
        Option("gamma", _constraints["gamma"], "Width of the kernel: a number, scale, auto or neighbors."),
    )

    def __init__(
        self,
        lam: float = 1000.0,
        mu: float = 0.5,
        theta: float = 0.2,
        *,
        lam_unlabeled: float = 10.0,
        unlabeled: Any = -1,
        balance: float | str | None = "auto",
        must_link: Any = None,
        cannot_link: Any = None,
        safe: bool = True,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        coreset_size: int | float = 1000,
        max_cuts: int = 20,
        n_restarts: int = 5,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.lam_unlabeled = lam_unlabeled
        self.unlabeled = unlabeled
        self.balance = balance
        self.must_link = must_link
        self.cannot_link = cannot_link
        self.safe = safe
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
        """Fit the machine.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source; a kernel matrix (n, n) if it is precomputed
            A source is read into memory as a whole, and brings y along. Rows whose target is a gap are among them if
            it is opened with ``open_dataset(..., missing_target="keep")``.
        y : array of shape (n,)
            Labels, and ``unlabeled`` where there is none.
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows. Weights are relative to each other among labelled rows, and among
            unlabelled ones.
        """
        check_params(self, self._constraints)
        block, y = rows_in_memory(self, X, y, sample_weight)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        y = column_or_1d(y, warn=True)
        if len(y) != len(block):
            raise ValueError(f"X has {len(block)} rows and y has {len(y)}.")
        self.classes_, codes = encoded_partly(y, self.unlabeled, block.weights())
        if isinstance(X, Source) and (codes >= 0).all():
            warn_of_dropped_rows(X, len(block))
        must_link = checked_links(self.must_link, len(block), "must_link")
        cannot_link = checked_links(self.cannot_link, len(block), "cannot_link")
        seed = as_seed(self.random_state)
        with single_blas_thread():
            kept = codes >= 0
            kept[np.concatenate([must_link, cannot_link]).ravel()] = True
            rows, weight = self._searched_rows(block, kept, seed)
            links = np.searchsorted(rows, must_link), np.searchsorted(rows, cannot_link)
            all_codes = self._learn(block, rows, weight, codes[rows], links, rng_for(seed, "search"))
            if (codes >= 0).all():
                all_codes = codes
            elif all_codes is None or len(rows) < len(block):
                scores = self._scores(block.X)
                all_codes = transduced(self, scores, block.weights(), codes, must_link, cannot_link)
            self.transduction_, self.sample_indices_ = self.classes_[all_codes], rows
        return self

    def _searched_rows(self, block: Block, kept: Array, seed: int) -> tuple[Array, Array]:
        if self.kernel == "precomputed":
            rows = np.flatnonzero(kept | (block.weights() > 0.0))
            return rows, block.weights()[rows]
        size = resolve_size(self.coreset_size, len(block))
        rows, weight = reduced_rows(block, kept, size, n_clusters=len(self.classes_), seed=seed)
        return rows, np.ones(len(rows)) if weight is None else weight

    def _learn(
        self, block: Block, rows: Array, weight: Array, codes: Array, links: tuple[Array, Array], rng: Any
    ) -> Array | None:
        """Set the machine: that of the labelled rows, or that of all rows with the labels found, which are returned."""
        self.objective_ = self.relaxed_bound_ = self.certificate_ = self.left_out_errors_ = None
        self.uses_unlabeled_ = False
        machine = self._machine(block, rows)
        labelled = np.flatnonzero(codes >= 0)
        used = bool(self.lam_unlabeled > 0.0 and weight[codes < 0].any())
        if used:
            problem = label_problem(self, machine, block, rows, weight, links, rng)
            if self.safe:
                errors = problem.errors_left_out(codes, rng)
                self.left_out_errors_ = errors[:2]
                used = errors[1::2] < errors[::2]  # fewer errors, or as many and a smaller loss
        if used:
            labeling = problem.search(codes, problem.supervised(codes), rng, thorough=True)
            self.objective_, self.relaxed_bound_ = labeling.value, labeling.bound
            self.certificate_ = label_certificate(labeling.value, labeling.bound, len(rows), len(block))
            self.uses_unlabeled_ = True
            cost = semi_supervised_costs(self, weight, codes)
            machine.set_params(lam=self.lam + self.lam_unlabeled)
            self._fit_machine(machine, block, rows, self.classes_[labeling.codes], cost / cost.sum())
            return labeling.codes
        given = None if block.sample_weight is None else weight[labelled]
        self._fit_machine(machine, block, rows[labelled], self.classes_[codes[labelled]], given)
        return None

    def _fit_machine(self, machine: Any, block: Block, rows: Array, labels: Array, weight: Array | None) -> None:
        if self.kernel == "linear":  # it needs no kernel matrix
            options = {name: getattr(machine, name) for name in ("lam", "mu", "theta", "tol", "fit_intercept")}
            machine = LinearODMClassifier(**options, intercept_scaling=self.intercept_scaling, random_state=0)
        self._columns = rows
        self.machine_ = machine.fit(rows_of(self.kernel, block.X, rows), labels, weight)

    def _machine(self, block: Block, rows: Array) -> ODMClassifier:
        """The machine before it is fitted, with the width of its kernel."""
        gamma = self.gamma if self.gamma != "neighbors" else neighbour_gamma(self.kernel, block.X, rows)
        machine = ODMClassifier(
            self.lam,
            self.mu,
            self.theta,
            kernel=self.kernel,
            gamma=gamma,
            degree=self.degree,
            coef0=self.coef0,
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
            random_state=0,
        )
        if isinstance(gamma, str) and self.kernel != "precomputed":
            machine.set_params(gamma=training_kernel(machine, block).gamma)
        return machine

    # -- methods of a fitted model -------------------------------------------------------------

    def _scores(self, X: Any) -> Array:
        return self.machine_.decision_function(X[:, self._columns] if self.kernel == "precomputed" else X)

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """The scores of ``machine_``: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        return self._scores(checked_block(self, X, reset=False).X)

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The class of each row."""
        scores = self.decision_function(X)
        labels: Array = self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]
        return labels

    def summary(self) -> dict[str, Any]:
        """The classes, whether unlabelled rows were used, the errors on labels left out, and the support vectors."""
        return {
            "classes": self.classes_.tolist(),
            "uses_unlabeled": self.uses_unlabeled_,
            "left_out_errors": None if self.left_out_errors_ is None else list(self.left_out_errors_),
            "support_vectors": len(self.machine_.support_) if isinstance(self.machine_, ODMClassifier) else 0,
        }

    def _check_state(self) -> None:
        values = self.__dict__
        if "machine_" not in values:
            expect("classes_" not in values, "classes have no machine")
            return
        sizes = check_fields(self, COLUMNS, optional=OPTIONAL_COLUMNS, sizes=check_classes(self))
        check_schema(values, sizes["d"])
        sizes = check_fields(self, _STATE, sizes=sizes)
        expect(self.sample_indices_.max(initial=0) < sizes["rows"], "rows are out of range")
        expect(np.array_equal(self.machine_.classes_, self.classes_), "a machine has other classes")
        if self.kernel == "precomputed":
            expect(len(self._columns) == self.machine_.n_features_in_, "a machine has other columns")
            expect(self._columns.max(initial=0) < sizes["d"], "columns are out of range")
        else:
            expect(self.machine_.n_features_in_ == sizes["d"], "a machine has other columns")


_STATE: dict[str, Check] = {
    "machine_": Instance(ODMClassifier, LinearODMClassifier),
    "transduction_": Labels("rows"),
    "sample_indices_": Integers("searched", least=0),
    "_columns": Integers("columns", least=0),
    "uses_unlabeled_": Flag(),
    "left_out_errors_": Optional(Each(Number(least=0.0, most=1.0), length=2)),
    "objective_": Optional(Number(least=0.0)),
    "relaxed_bound_": Optional(Number(least=0.0)),
    "certificate_": Optional(Instance(Certificate)),
}
