"""`IncrementalODMClassifier`: the kernel machine that rows join and leave, exact at every moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.errors import RowsNotSavedError
from tithe.core.interrupts import uninterrupted
from tithe.core.labels import label_numbers
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Constraint, Function, OneOf, RealNumber, check_params
from tithe.core.state_checks import Storable, copy_with
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.fit.labels import checked_classes
from tithe.fit.results import Described
from tithe.fit.tables import checked_block
from tithe.odm.base import EXACT_TOL, MIN_COST, MarginMachine, row_costs
from tithe.odm.incremental_results import ROW_ATTRIBUTES, IncrementalResults
from tithe.odm.incremental_state import (
    INCREMENTAL_KERNELS,
    centre_of,
    check_incremental,
    classes_so_far,
    joined_rows,
    new_kernels,
    new_row_ids,
    positions_of,
)
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.exact_machine import Change, ExactMachine, check_memory
from tithe.odm.solvers.kernel_functions import training_kernel
from tithe.odm.solvers.path import Rows

_FITTED = (
    *ROW_ATTRIBUTES, "classes_", "support_", "support_vectors_", "dual_coef_", "intercept_", "cost_", "_gap",
    "_unlearning", "_flipped", "_gamma", "_centre", "_single", "n_features_in_", "feature_names_in_", "schema_",
)  # fmt: skip
_FIXED = ("mu", "theta", "kernel", "gamma", "degree", "coef0", "fit_intercept", "intercept_scaling")


class IncrementalODMClassifier(IncrementalResults, MarginMachine, ClassifierMixin, Described, Storable, BaseEstimator):
    """Optimal margin distribution machine of two classes that rows join and leave, exact at every moment.

    After any sequence of `partial_fit` and `forget`, the machine is the one that a fit on the rows now held gives, up
    to rounding: the solution is followed from the old rows to the new ones, which takes a small part of the time of a
    fit. Adding rows and forgetting them again leads back to where it started.

    The objective is that of `ODMClassifier`. The cost C = ``lam`` / (W (1 - theta)^2) of a row of weight one is fixed
    by the total weight W of the first batch, so that more rows count for more, as if ``lam`` grew with W (`lam_` says
    how large it is now). `rescale` returns to ``lam``.

    Parameters
    ----------
    lam, mu, theta, kernel, degree, coef0, fit_intercept
        As in `ODMClassifier`, except for precomputed kernels.
    gamma : {"scale", "auto"} or float
        As in `ODMClassifier`; "scale" is taken from the first batch, and stays.
    intercept_scaling : float
        The intercept is the weight of a constant feature of this value. It cannot be infinite here.
    cache_size : float
        Megabytes for matrices of 16 bytes for each pair of rows: 2,000 are enough for 11,180 rows. Batches that need
        more are refused. For a moment three times as much is needed when the matrices grow, or a large batch is solved.

    Attributes
    ----------
    classes_ : array (1,) or (2,)
        In ascending order. The second one may come later, and none is ever dropped.
    row_ids_ : array (n,)
        Ids of the rows held, in ascending order.
    support_ : array (s,)
        Ids of the rows whose margins lie outside the band.
    support_vectors_ : array or CSR matrix (s, d)
    dual_coef_ : array (1, s)
    intercept_ : array (1,)
    cost_ : float
        C of a row of weight one.
    lam_ : float
        The ``lam`` that the costs stand for with the rows now held.
    gap_ : float
        Upper bound of the objective minus its minimum, rounding included.
    unlearning_ : Unlearning or None
        A certificate for all rows forgotten so far.
    n_features_in_, feature_names_in_

    Notes
    -----
    One row that joins or leaves takes a time of order n^2: some passes over a matrix. Batches of more than three tenths
    of the rows are solved directly. ``save_model(model, path, rows=True)`` keeps everything needed to go on, to the
    last bit; without ``rows`` a model file holds what predictions need, the support vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import IncrementalODMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where((X**2).sum(axis=1) < 1.2, "in", "out")
    >>> model = IncrementalODMClassifier(gamma=0.5).partial_fit(X[:200], y[:200])
    >>> before = model.decision_function(X)
    >>> model.partial_fit(X[200:], y[200:]).forget(np.arange(200, 300)).row_ids_.size
    200
    >>> bool(np.abs(model.decision_function(X) - before).max() < 1e-9)
    True
    >>> model.unlearning_.tolerance < 1e-6
    True
    """

    n_features_in_: int
    feature_names_in_: Array
    _flipped: bool  # whether the first class is +1 for the machine, because it was seen before the second
    _fixed: dict[str, Any]
    _next_id: int

    probability = False
    tol = EXACT_TOL  # kernels are computed in double precision
    _constraints: ClassVar[dict[str, Constraint]] = {
        **MarginObjective.constraints,
        "intercept_scaling": RealNumber(above=0.0),
        "kernel": OneOf(*INCREMENTAL_KERNELS) | Function(),
        "gamma": OneOf("scale", "auto") | RealNumber(above=0.0),
        "degree": RealNumber(least=0.0),
        "coef0": RealNumber(),
        "fit_intercept": Boolean(),
        "cache_size": RealNumber(above=0.0),  # megabytes
    }

    def __init__(
        self,
        lam: float = 1000.0,
        mu: float = 0.5,
        theta: float = 0.2,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        cache_size: float = 2000,
    ) -> None:
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.cache_size = cache_size

    # -- changes of the rows -------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Start anew with these rows, which get the ids 0, 1, 2, ...

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), of any two labels
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows. Rows of weight zero are not kept.
        """
        trial = copy_with(self, {name: value for name, value in self.__dict__.items() if name not in _FITTED})
        with single_blas_thread():
            change = trial._join(X, y, sample_weight, None, None, np.zeros(0, np.int64))
        if len(trial.classes_) < 2:
            raise ValueError(f"y holds only one class, {trial.classes_.tolist()[0]!r}: there is nothing to tell apart.")
        return self._accept(trial, change)

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, classes: Any = None, row_ids: Any = None
    ) -> Self:
        """Add rows.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. There may be rows of one class only.
        classes : array of two labels, optional
            Those that will occur, in the first call. Without it they are learned as they come.
        row_ids : array of n integers, optional
            By which the rows are known to `forget`. By default rows are counted up, from one more than the largest id
            so far.
        """
        return self.update(X, y, sample_weight, classes=classes, row_ids=row_ids)

    def forget(self, row_ids: Any) -> Self:
        """Remove rows, as if they had never been given. ``unlearning_`` says what is proved about it."""
        return self.update(forget=row_ids)

    def update(
        self,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        classes: Any = None,
        row_ids: Any = None,
        forget: Any = (),
    ) -> Self:
        """Add rows and remove others in one step, which takes less time than two. All options are as elsewhere.

        After an error or an interruption the model is as it was before.
        """
        if X is None:
            check_is_fitted(self)
        trial = copy_with(self, self.__dict__)
        removed = trial._removed(forget)
        with single_blas_thread():
            if X is None:
                change = trial._leave(removed)
            else:
                change = trial._join(X, y, sample_weight, classes, row_ids, removed)
        return self._accept(trial, change)

    def rescale(self, lam: float | None = None) -> Self:
        """Set the costs to what ``lam`` (by default that of the model) gives with the rows now held."""
        check_is_fitted(self)
        self._check_can_go_on()
        trial = copy_with(self, self.__dict__)
        lam = self.lam if lam is None else lam
        check_params(copy_with(self, {**self.__dict__, "lam": lam}), self._constraints)
        weight = self._held.weights()
        if len(weight) == 0:
            raise ValueError("There are no rows: costs depend on their weight.")
        trial.cost_ = lam / (1.0 - self.theta) ** 2 / float(weight.sum())
        with single_blas_thread():
            change = self._machine.rescaled(row_costs(weight, len(weight), lam, self.theta))
        trial._store(change.rows, self._held)
        return self._accept(trial, change)

    def _accept(self, trial: Self, change: Change) -> Self:
        """Make the change: all of it or, if it is interrupted before, nothing."""
        with uninterrupted():
            trial._machine.apply(change)
            self.__dict__.update(trial.__dict__)
            for name in self.__dict__.keys() - trial.__dict__.keys():
                del self.__dict__[name]
        return self

    # The methods from here to the next heading change a copy of the model, and never the machine.

    def _removed(self, row_ids: Any) -> Array:
        """Positions of rows that are to be forgotten."""
        self._check_can_go_on()
        held = self._held.row_ids() if "_held" in self.__dict__ else np.zeros(0, np.int64)
        return positions_of(row_ids, held)

    def _leave(self, removed: Array) -> Change:
        held, none = self._held, np.zeros(0)
        columns, square = np.zeros((len(held), 0)), np.zeros((0, 0))
        return self._change(held, columns, square, none, none, removed)

    def _join(self, X: Any, y: Any, sample_weight: Any, classes: Any, row_ids: Any, removed: Array) -> Change:
        check_params(self, self._constraints)
        first = "_machine" not in self.__dict__
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        block = checked_block(self, X, y, sample_weight, reset=first)
        assert block.y is not None
        labels = checked_classes(block.y)
        self.classes_, self._flipped = classes_so_far(
            labels, classes, None if first else self.classes_, flipped=not first and self._flipped
        )
        is_last = label_numbers(labels, self.classes_) == len(self.classes_) - 1
        sign = np.where(is_last != self._flipped, 1.0, -1.0)
        known = np.zeros(0, np.int64) if first else np.delete(self._held.row_ids(), removed)
        ids = new_row_ids(row_ids, len(block), known, 0 if first else self._next_id)
        self._next_id = max(0 if first else self._next_id, int(ids.max()) + 1)
        kept = np.flatnonzero(block.weights() > 0.0)
        check_memory(len(known) + len(removed) + len(kept), 1e6 * self.cache_size)
        rows = replace(block.take(kept, block.weights()[kept]), y=sign[kept], indices=ids[kept])
        if first:
            self._start(rows)
        held = joined_rows(self._held, rows)
        self._centre = centre_of(held)
        columns, square = new_kernels(self._fitted_kernel(), held, len(self._held), self._constant)
        cost = np.maximum(self.cost_ * rows.weights(), MIN_COST)
        return self._change(held, columns, square, sign[kept], cost, removed)

    def _start(self, rows: Block) -> None:
        """Fix what the first batch decides."""
        self._machine = ExactMachine(float(self.mu), float(self.theta))
        self._held = rows.take(np.zeros(0, np.int64), np.zeros(0))
        self._gamma = float(training_kernel(self, rows).gamma)
        self._single, self._centre, self._forgotten = False, None, ()
        self._fixed = {name: getattr(self, name) for name in _FIXED}
        self.cost_ = float(self.lam / (1.0 - self.theta) ** 2 / rows.total_weight)

    def _change(self, held: Block, columns: Array, square: Array, sign: Array, cost: Array, removed: Array) -> Change:
        change = self._machine.prepare(columns, square, sign, cost, removed, max_bytes=1e6 * self.cache_size)
        forgotten = held.row_ids()[removed]
        held = held.take(change.order, held.weights()[change.order])
        self._store(change.rows, held, forgotten)
        return change

    def _store(self, rows: Rows, held: Block, forgotten: Array | None = None) -> None:
        """Set all attributes of the solution."""
        self._held, self._centre = held, centre_of(held)
        order = np.argsort(held.row_ids(), kind="stable")
        at = order[rows.gamma[order] != 0.0]
        direction = -1.0 if self._flipped else 1.0
        self.support_, self.support_vectors_ = held.row_ids()[at], held.X[at]
        self.dual_coef_ = direction * rows.coefficients()[at][None]
        self.intercept_ = self._constant * self.dual_coef_.sum(axis=1)
        past = self._forgotten + (() if forgotten is None else tuple(forgotten.tolist()))
        back = set(held.row_ids().tolist()) if past else set()
        self._forgotten = tuple(row for row in dict.fromkeys(past) if row not in back)

    def _check_can_go_on(self) -> None:
        """Refuse a model without its rows, and parameters that changed."""
        if "classes_" in self.__dict__ and "_machine" not in self.__dict__:
            raise RowsNotSavedError(f"{type(self).__name__} cannot add or forget rows (fit starts anew)")
        for name, value in self.__dict__.get("_fixed", {}).items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} was {value!r} for the first rows: set it back, or start anew with fit.")

    def __sklearn_is_fitted__(self) -> bool:
        return "classes_" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_state(self) -> None:
        check_incremental(self)
