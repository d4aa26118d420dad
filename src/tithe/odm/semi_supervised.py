"""`SemiSupervisedODMClassifier`: a margin machine that learns from labelled and unlabelled rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy.linalg import cho_solve
from sklearn.utils.validation import column_or_1d

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.core.labels import encoded_classes
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Constraint, OneOf, Option, RealNumber, check_params
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Each, Flag, Instance, Integers, Labels, Number, Optional, expect
from tithe.fit.base import require_target
from tithe.fit.bases import ClassifierMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import ClassLabels
from tithe.odm.base import class_numbers, row_costs
from tithe.odm.classifier import ODMClassifier
from tithe.odm.linear_classifier import LinearODMClassifier
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_matrix import KERNELS, label_losses, training_kernel
from tithe.odm.solvers.label_machines import FeatureMachine, FeatureProblem, LabelProblem, ManyProblem, MarginProblem
from tithe.odm.solvers.label_search import (
    FoundLabels,
    LabelSearch,
    refine,
    search_assignment,
    search_labels,
    spreading_factors,
)
from tithe.odm.solvers.labelings import Assignments, Balance, Labelings, linked_groups
from tithe.odm.unknown_labels import (
    Links,
    UnknownLabels,
    kernel_matrix,
    label_certificate,
    rows_in_memory,
    rows_of,
    search_features,
)

_MAX_RELAXED_ROWS = 400  # rows up to which the relaxation is solved; beyond that labels are only refined
_MAX_SPREAD_ROWS = 2000  # rows up to which labels are spread to neighbours
_TOL = 1e-6  # relative gap of the machines in the search
_MANY_TOL = 1e-3  # the same with more than two classes
_SHARES = Optional(Each(Number(least=0.0, most=1.0), length=2))
_MAX_LEFT_OUT, _N_PARTS = 20, 5  # labels up to which each is left out in turn, and in how many parts more are


@dataclass(eq=False, repr=False)
class SemiSupervisedODMClassifier(ClassifierMixin, UnknownLabels):
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
    kernel, degree, coef0, fit_intercept
        See `ODMClassifier`.
    gamma : {"scale", "auto", "neighbors"} or float
        As in `ODMClassifier` or `ODMClustering`, from all rows.
    coreset_size : int or float
        If there are more rows, a weighted coreset of the unlabelled rows, of this size together with the labelled and
        the linked ones, takes their place.
    search : LabelSearch or None
        See `ODMClustering`. The relaxation is solved for two classes and up to 400 rows. With more rows labels are
        refined only, on the columns of a linear kernel or 300 landmarks of another.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
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

    lam: float = 1000.0
    mu: float = 0.5
    theta: float = 0.2
    _: KW_ONLY
    lam_unlabeled: float = 10.0
    unlabeled: Any = -1
    balance: float | str | None = "auto"
    safe: bool = True
    gamma: float | str = "scale"
    fit_intercept: bool = True

    machine_: Annotated[ODMClassifier | LinearODMClassifier | None, Instance(ODMClassifier, LinearODMClassifier)] = (
        field(init=False)
    )
    classes_: Annotated[Array, ClassLabels()] = field(init=False)
    transduction_: Annotated[Array, Labels("rows")] = field(init=False)
    sample_indices_: Annotated[Array, Integers("searched", least=0)] = field(init=False)
    uses_unlabeled_: Annotated[bool, Flag()] = field(init=False)
    left_out_errors_: Annotated[tuple[float, float] | None, _SHARES] = field(init=False)
    objective_: Annotated[float | None, Optional(Number(least=0.0))] = field(init=False)
    relaxed_bound_: Annotated[float | None, Optional(Number(least=0.0))] = field(init=False)
    # the rows that the machine was fitted to
    _columns: Annotated[Array, Integers("columns", least=0)] = field(init=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        "lam_unlabeled": RealNumber(least=0.0),
        "balance": OneOf("auto", None) | RealNumber(least=0.0, most=1.0),
        "safe": Boolean(),
        **UnknownLabels._shared_constraints,
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
        require_target(self, y is not None)
        y = column_or_1d(y, warn=True)
        if len(y) != len(block):
            raise ValueError(f"X has {len(block)} rows and y has {len(y)}.")
        self.classes_, codes = encoded_partly(y, self.unlabeled, block.weights())
        if isinstance(X, Source) and (codes >= 0).all():
            warn_of_dropped_rows(X, len(block))
        seed = as_seed(self.random_state)
        with single_blas_thread():
            links, rows, weight, among = self._searched(block, codes >= 0, len(self.classes_), seed)
            weight = np.ones(len(rows)) if weight is None else weight
            all_codes = self._learn(block, rows, weight, codes[rows], among, rng_for(seed, "search"))
            if (codes >= 0).all():
                all_codes = codes
            elif all_codes is None or len(rows) < len(block):
                all_codes = self._transduced(block, codes, links)
            self.transduction_, self.sample_indices_ = self.classes_[all_codes], rows
        return self

    def _learn(
        self, block: Block, rows: Array, weight: Array, codes: Array, links: Links, rng: np.random.Generator
    ) -> Array | None:
        """Set the machine: that of the labelled rows, or that of all rows with the labels found, which are returned."""
        self.objective_ = self.relaxed_bound_ = self.certificate_ = self.left_out_errors_ = None
        self.uses_unlabeled_ = False
        machine = self._machine(block, rows)
        labelled = np.flatnonzero(codes >= 0)
        used = bool(self.lam_unlabeled > 0.0 and weight[codes < 0].any())
        if used:
            rows_to_label = self._unlabeled_rows(machine, block, rows, weight, links, rng)
            if self.safe:
                errors = rows_to_label.errors_left_out(codes, rng)
                self.left_out_errors_ = errors[:2]
                used = errors[1::2] < errors[::2]  # fewer errors, or as many and a smaller loss
        if used:
            found = rows_to_label.labels(codes, rows_to_label.supervised(codes), rng, thorough=True)
            self.objective_, self.relaxed_bound_ = found.value, found.bound
            self.certificate_ = label_certificate(found.value, found.bound, len(rows), len(block))
            self.uses_unlabeled_ = True
            cost = _costs(weight, codes, self)
            machine.set_params(lam=self.lam + self.lam_unlabeled)
            self._fit_machine(machine, block, rows, self.classes_[found.codes], cost / cost.sum())
            return found.codes
        given = None if block.sample_weight is None else weight[labelled]
        self._fit_machine(machine, block, rows[labelled], self.classes_[codes[labelled]], given)
        return None

    def _machine(self, block: Block, rows: Array) -> ODMClassifier:
        """The machine before it is fitted; the width of its kernel is that of all rows."""
        machine = self._kernel_machine(block, rows, fit_intercept=self.fit_intercept)
        if isinstance(machine.gamma, str) and self.kernel != "precomputed":
            machine.set_params(gamma=training_kernel(machine, block).gamma)
        return machine

    def _unlabeled_rows(
        self, machine: ODMClassifier, block: Block, rows: Array, weight: Array, links: Links, rng: np.random.Generator
    ) -> UnlabeledRows:
        """The rows to label: with the kernel matrix or, for two classes and many rows, with features."""
        K = features = None
        linear = self.kernel == "linear" and isinstance(block.X, np.ndarray)
        if len(self.classes_) == 2 and len(rows) > _MAX_RELAXED_ROWS:
            features = search_features(machine, block, rows, self._constant, rng)
        if features is None or (len(rows) <= _MAX_SPREAD_ROWS and not linear):
            K = kernel_matrix(machine, block, rows)
        return UnlabeledRows(learner=self, K=K, features=features, weight=weight, links=links)

    def _fit_machine(
        self, machine: ODMClassifier, block: Block, rows: Array, labels: Array, weight: Array | None
    ) -> None:
        X = rows_of(self.kernel, block.X, rows)
        self._columns = rows
        if self.kernel != "linear":
            self.machine_ = machine.fit(X, labels, weight)
            return
        linear = LinearODMClassifier(  # it needs no kernel matrix
            machine.lam,
            machine.mu,
            machine.theta,
            tol=machine.tol,
            fit_intercept=machine.fit_intercept,
            random_state=0,
        )
        self.machine_ = linear.fit(X, labels, weight)

    def _transduced(self, block: Block, codes: Array, links: Links) -> Array:
        """Class numbers of all rows that cost the machine least, and obey labels and constraints."""
        assert self.machine_ is not None
        weight, scores = block.weights(), self.machine_.decision_function(self._machine_rows(block.X))
        losses = label_losses(scores, np.maximum(weight, 1e-12), float(self.mu), float(self.theta))
        allowed = _allowed_labels(weight, codes, len(self.classes_), links, self.balance)
        return allowed.cheapest(losses)

    # -- methods of a fitted model -------------------------------------------------------------

    def _machine_columns(self) -> Array:
        return self._columns

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The class of each row."""
        codes = class_numbers(self.decision_function(X))
        return np.asarray(self.classes_[codes])

    def summary(self) -> dict[str, Any]:
        """The classes, whether unlabelled rows were used, the errors on labels left out, and the support vectors."""
        return {
            "classes": self.classes_.tolist(),
            "uses_unlabeled": self.uses_unlabeled_,
            "left_out_errors": None if self.left_out_errors_ is None else list(self.left_out_errors_),
            "support_vectors": len(self.machine_.support_) if isinstance(self.machine_, ODMClassifier) else 0,
        }

    def check_relations(self) -> None:
        machine = self.machine_
        assert machine is not None
        expect(self.sample_indices_.max(initial=0) < len(self.transduction_), "rows are out of range")
        expect(np.array_equal(machine.classes_, self.classes_), "a machine has other classes")
        if self.kernel == "precomputed":
            expect(len(self._columns) == machine.n_encoded_, "a machine has other columns")
            expect(self._columns.max(initial=0) < self.n_encoded_, "columns are out of range")
        else:
            expect(machine.n_encoded_ == self.n_encoded_, "a machine has other columns")


# -- the search ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UnlabeledRows:
    """Rows of which some are labelled, and the search for the labels of the others.

    Machines of two classes are fitted to ``features`` (n, r) if given, whose products are close to the kernel matrix
    K, which is None where there are so many rows that labels are not spread to neighbours.
    """

    learner: SemiSupervisedODMClassifier  # whose parameters count, and whose classes are known
    K: Array | None
    features: Array | None
    weight: Array
    links: Links

    @property
    def _n_classes(self) -> int:
        return len(self.learner.classes_)

    @property
    def _band(self) -> dict[str, float]:
        return {"mu": float(self.learner.mu), "theta": float(self.learner.theta)}

    @cached_property
    def matrix(self) -> Array:
        """The kernel matrix with the constant."""
        assert self.K is not None
        return self.K + self.learner._constant

    def _problem(self, cost: Array, rows: Array | None = None) -> LabelProblem:
        """Machines of two classes, of all rows or some."""
        at = slice(None) if rows is None else rows
        options: dict[str, Any] = {"cost": cost[at], "tol": _TOL, **self._band}
        if self.features is not None:
            return FeatureProblem(features=self.features[at], **options)
        return MarginProblem(matrix=self.matrix if rows is None else self.matrix[np.ix_(rows, rows)], **options)

    def _many(self, cost: Array) -> ManyProblem:
        return ManyProblem(matrix=self.matrix, cost=cost, n_classes=self._n_classes, tol=_MANY_TOL, **self._band)

    def supervised(self, codes: Array) -> Array:
        """Scores of all rows by the machine of the labelled ones: (n,) for two classes, else (n, k)."""
        rows, cost = np.flatnonzero(codes >= 0), _costs(self.weight, codes, self.learner)
        if self._n_classes > 2:
            return self._many(cost).scores_by(rows, codes)
        y = 2.0 * codes[rows] - 1.0
        machine = self._problem(cost, rows).solve(y)
        if self.features is not None and isinstance(machine, FeatureMachine):
            return np.asarray(self.features @ machine.weights)
        return np.asarray(self.matrix[:, rows] @ (y * machine.gamma))

    def labels(self, codes: Array, supervised: Array, rng: np.random.Generator, *, thorough: bool) -> FoundLabels:
        """Labels of the rows whose code is -1, from scores of all rows by the machine of the labelled ones."""
        cost, targets = _costs(self.weight, codes, self.learner), np.zeros((len(codes), self._n_classes))
        targets[codes >= 0, codes[codes >= 0]] = 1.0
        spread = [cho_solve(factor, targets, check_finite=False) for factor in self._spreading_factors]  # to neighbours
        allowed = _allowed_labels(self.weight, codes, self._n_classes, self.links, self.learner.balance)
        losses = label_losses(supervised, cost, **self._band)
        if isinstance(allowed, Assignments):
            starts = [allowed.cheapest(losses), *(allowed.cheapest(-F / F.sum(axis=0)) for F in spread)]
            return search_assignment(self._many(cost), allowed, starts, rng)
        starts = [allowed.best(losses[:, 0] - losses[:, 1]), *(allowed.best(F[:, 1] - F[:, 0]) for F in spread)]
        problem = self._problem(cost)
        if thorough and isinstance(problem, MarginProblem):
            return search_labels(problem, allowed, np.array(starts), self.learner.search or LabelSearch(), rng)
        return FoundLabels.of(min((refine(problem, allowed, y) for y in starts), key=lambda machine: machine.value))

    @cached_property
    def _spreading_factors(self) -> list[tuple[Array, bool]]:
        return [] if self.K is None else spreading_factors(self.K, self.weight)

    def errors_left_out(self, codes: Array, rng: np.random.Generator) -> tuple[float, float, float, float]:
        """How labels left out are predicted, without and with unlabelled rows: mean errors, then mean losses."""
        labelled = np.flatnonzero(codes >= 0)
        counts = np.bincount(codes[labelled], minlength=self._n_classes)
        labelled = labelled[counts[codes[labelled]] > 1]
        if len(labelled) == 0:
            return 0.0, 0.0, 0.0, 0.0
        order = labelled[np.lexsort((rng.random(len(labelled)), codes[labelled]))]  # parts have labels of all classes
        parts = np.arange(len(order)) % (len(order) if len(order) <= _MAX_LEFT_OUT else _N_PARTS)
        results = []
        for part in range(int(parts.max()) + 1):
            left_out = order[parts == part]
            remaining = codes.copy()
            remaining[left_out] = -1
            supervised = self.supervised(remaining)
            scores = supervised, self.labels(remaining, supervised, rng, thorough=False).scores
            results.append([self._judged(score[left_out], codes[left_out]) for score in scores])
        totals = np.sum(results, axis=0) / len(order)
        return float(totals[0, 0]), float(totals[1, 0]), float(totals[0, 1]), float(totals[1, 1])

    def _judged(self, scores: Array, codes: Array) -> tuple[float, float]:
        """The number of errors and the sum of the losses."""
        losses = label_losses(scores, np.ones(len(codes)), 0.0, float(self.learner.theta))[np.arange(len(codes)), codes]
        return float((class_numbers(scores) != codes).sum()), float(losses.sum())


def _costs(weight: Array, codes: Array, learner: SemiSupervisedODMClassifier) -> Array:
    """C of each row (n,): ``lam`` shared by the labelled rows, ``lam_unlabeled`` by the others."""
    costs = np.empty(len(codes))
    for mask, strength in ((codes >= 0, learner.lam), (codes < 0, learner.lam_unlabeled)):
        costs[mask] = row_costs(weight[mask], int(mask.sum()), strength, learner.theta) if mask.any() else 0.0
    return costs


def _allowed_labels(
    weight: Array, codes: Array, n_classes: int, links: Links, balance: float | str | None
) -> Labelings | Assignments:
    """Labels that obey the links, the labels, and the shares of the classes among unlabelled rows."""
    if n_classes == 2:
        groups = linked_groups(*links, np.where(codes < 0, 0.0, 2.0 * codes - 1.0))
        if balance is None:
            return Labelings(groups, None)
        least, most, count = _class_shares(weight, codes, 2, balance)
        total = float(count.sum())
        low, high = max(least[1], total - most[0]), min(most[1], total - least[0])
        return Labelings(groups, Balance(count=count, least=2.0 * low - total, most=2.0 * high - total))
    least, most, count = np.zeros(n_classes), np.full(n_classes, np.inf), np.zeros(len(codes))
    if balance is not None:
        least, most, count = _class_shares(weight, codes, n_classes, balance)
    return Assignments(
        n_classes, must_link=links[0], cannot_link=links[1], labels=codes, count=count, least=least, most=most
    )


def _class_shares(weight: Array, codes: Array, n_classes: int, balance: float | str) -> tuple[Array, Array, Array]:
    """The least and the largest weight of each class among the unlabelled rows, and what each row counts for there."""
    labelled = codes >= 0
    share = np.bincount(codes[labelled], weights=weight[labelled], minlength=n_classes) / weight[labelled].sum()
    slack: Any = balance
    if isinstance(balance, str):  # two standard errors of a share, with one row of each class more
        smooth = (share * labelled.sum() + 1.0) / (labelled.sum() + n_classes)
        slack = 2.0 * np.sqrt(smooth * (1.0 - smooth) / labelled.sum())
    count = np.where(labelled, 0.0, weight)
    total = float(count.sum())
    unit = float(count.max(initial=0.0))  # a row cannot be divided
    least = np.maximum(np.minimum(total * (share - slack), total * share - unit), 0.0)
    most = np.minimum(np.maximum(total * (share + slack), total * share + unit), total)
    return least, most, count


# -- labels of which some are missing ----------------------------------------------------------


def encoded_partly(y: Array, unlabeled: Any, weight: Array) -> tuple[Array, Array]:
    """The classes in y, and the class number of each row (n,), -1 for rows without a label."""
    known = np.flatnonzero(~_missing(y, unlabeled))
    if len(known) == 0:
        what = "missing" if unlabeled is None else f"{unlabeled!r} or missing"
        raise ValueError(f"y holds no labels: every entry is {what}. Label some rows.")
    classes, class_numbers = encoded_classes(_plain_numbers(y[known]))
    if len(classes) < 2:
        only = classes.tolist()[0]
        raise ValueError(f"y holds only one class, {only!r}: there is nothing to tell apart. Label rows of others.")
    if not np.bincount(class_numbers, weights=weight[known], minlength=len(classes)).all():
        raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
    codes = np.full(len(y), -1)
    codes[known] = class_numbers
    return classes, codes


def _plain_numbers(labels: Array) -> Array:
    """Labels of an object array that are all Boolean, all whole numbers or all numbers, as such; others as they are."""
    plain = np.array(labels.tolist()) if labels.dtype == object else labels
    return plain if plain.dtype.kind in "biuf" else labels


def _missing(y: Array, unlabeled: Any) -> Array:
    """A mask of the rows without a label."""
    if y.dtype.kind in "biuf":
        gaps = np.isnan(y) if y.dtype.kind == "f" else np.zeros(len(y), bool)
        return gaps if isinstance(unlabeled, str) else gaps | (y == unlabeled)
    return np.array([_is_missing(label, unlabeled) for label in y.tolist()], bool)


def _is_missing(label: Any, unlabeled: Any) -> bool:
    if label is None or (isinstance(label, float) and np.isnan(label)):
        return True
    return isinstance(label, str) == isinstance(unlabeled, str) and bool(label == unlabeled)


def warn_of_dropped_rows(source: Source, n_rows: int) -> None:
    """Warn if a source of labelled rows only has left others out, which may be those without a label."""
    n_all = source.count()
    if n_all is not None and n_all > n_rows:
        advice = "Open it with missing_target='keep' to learn from rows without a label, too."
        warn_caller(
            f"All {n_rows} rows of the source have a label, and {n_all - n_rows} others were left out. {advice}"
        )
