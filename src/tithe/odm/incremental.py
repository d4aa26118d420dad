"""`IncrementalODMClassifier`: the kernel machine that rows join and leave, exact at every moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tithe.core.data import Array, Block, concat
from tithe.core.errors import RowsNotSavedError
from tithe.core.labels import checked_classes, label_numbers
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Constraint, Function, OneOf, RealNumber, check_params, check_value
from tithe.core.state_checks import (
    LARGEST,
    Each,
    Floats,
    Integer,
    Labels,
    Number,
    Optional,
    Rows,
    Storable,
    expect,
)
from tithe.core.state_checks import Instance as IsA
from tithe.fit.base import Described, checked_block, require_target, set_schema
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.odm.base import EXACT_TOL, KERNEL_CONSTRAINTS, MIN_COST, KernelMachine, row_costs
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_matrix import KERNELS, KernelFunction, training_kernel
from tithe.odm.solvers.path import Change, ExactMachine, check_memory
from tithe.rows.schema import TableSchema

_MAX_IDS = 10  # ids that a sentence names
INCREMENTAL_KERNELS = tuple(name for name in KERNELS if name != "precomputed")


@dataclass(frozen=True, kw_only=True)
class Unlearning(Storable):
    """What is proved of a model from which rows were removed.

    Parameters
    ----------
    row_ids : tuple of int
        The rows that were forgotten, since the first fit and in this order. Rows that came back are not among them.
    n_rows : int
        Rows that the model holds.
    gap : float
        Upper bound of the objective, on the rows held, minus its minimum; rounding included.
    tolerance : float
        A decision value differs at most by this from that of the model trained without the forgotten rows: the root of
        2 ``gap`` k(x, x), with the largest k(x, x) of the rows held, and of any row if ``for_all_rows``.
    for_all_rows : bool
        Whether k(x, x) is the same for all x, as for the Gaussian kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import IncrementalODMClassifier
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> machine = IncrementalODMClassifier().partial_fit(X, X[:, 0] > 0)
    >>> machine.forget([7, 12]).unlearning_.row_ids
    (7, 12)
    >>> machine.unlearning_.tolerance < 1e-3
    True
    """

    row_ids: Annotated[tuple[int, ...], Each(Integer(), least=1)]
    n_rows: int
    gap: Annotated[float, Number(least=0.0)]
    tolerance: Annotated[float, Number(least=0.0)]
    for_all_rows: bool

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """The certificate in words."""
        n = len(self.row_ids)
        named = ", ".join(map(str, self.row_ids[:_MAX_IDS])) + (", ..." if n > _MAX_IDS else "")
        which = f"The row with id {named} was" if n == 1 else f"The {n} rows with ids {named} were"
        where = "No decision value" + ("" if self.for_all_rows else " of a row within the range of those held")
        return (
            f"{which} forgotten: this is the model that training on the other {self.n_rows} rows alone gives. {where} "
            f"differs from that model's by more than {self.tolerance:.1e}, which is proved by a duality gap of "
            f"{self.gap:.1e}, rounding included. The model, and every file saved from it from now on, holds neither "
            "the values of these rows nor their labels or weights; their ids are kept to say so. What was fixed with "
            "the first batch stays as it was: the width of the kernel unless it was given as a number, the cost of a "
            "row, and how columns became numbers. Files and copies made earlier are not covered: delete them."
        )


def _ids(row_ids: Any) -> Array:
    """Row ids as int64 (n,): whole numbers from 0 on, each of them once."""
    ids = np.asarray(column_or_1d(row_ids) if np.size(row_ids) else np.zeros(0, np.int64))
    if ids.dtype.kind not in "iu":
        raise ValueError(f"Row ids must be integers, got {ids.dtype}.")
    if len(ids) and (ids.min() < 0 or ids.max() >= LARGEST):
        raise ValueError(f"Row ids must be between 0 and {LARGEST - 1}.")
    ids = ids.astype(np.int64)
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        raise ValueError(f"Row id {values[counts > 1][0]} is given more than once.")
    return ids


def new_row_ids(row_ids: Any, n_rows: int, known: Array, next_id: int) -> Array:
    """Ids for new rows: those given, or counted up from ``next_id``."""
    if row_ids is None:
        return np.arange(next_id, next_id + n_rows)
    ids = _ids(row_ids)
    if len(ids) != n_rows:
        raise ValueError(f"There are {len(ids)} row_ids for {n_rows} rows.")
    taken = np.isin(ids, known)
    if taken.any():
        raise ValueError(f"Row id {ids[taken][0]} is already taken: forget that row first, or give another id.")
    return ids


def positions_of(row_ids: Any, held: Array) -> Array:
    """Positions of the rows with these ids. An id that is not held is refused."""
    ids = _ids(row_ids)
    unknown = ~np.isin(ids, held)
    if unknown.any():
        raise ValueError(f"There is no row with id {ids[unknown][0]}: it was never added, or forgotten already.")
    order = np.argsort(held, kind="stable")
    return order[np.searchsorted(held[order], ids)] if len(ids) else np.zeros(0, np.int64)


def classes_so_far(y: Array, classes: Any, known: Array | None, *, flipped: bool) -> tuple[Array, bool]:
    """The classes after rows with labels y, and whether the first of them is positive for the machine.

    ``classes`` are those announced, ``known`` those before. The class that was seen alone at first stays positive.
    """
    passed = y if classes is None else np.asarray(classes)
    before = passed[:0] if known is None else known
    if len(before) and (before.dtype.kind in "OUS") != (y.dtype.kind in "OUS"):
        raise ValueError(f"y holds {y.tolist()[0]!r}, a label of another kind than {before.tolist()[0]!r}.")
    together = np.unique(np.concatenate([before, passed]))
    if classes is not None:
        missing = [label for label in before.tolist() if label not in passed.tolist()]
        missing += y[label_numbers(y, together) < 0].tolist()
        if missing:
            raise ValueError(f"classes={classes!r} leaves out {missing[0]!r}.")
    if len(together) > 2:
        raise ValueError(
            f"Only binary classification is supported: the classes are {together.tolist()[:5]}. Use ODMClassifier for "
            "more than two classes."
        )
    if len(before) == 1 and len(together) == 2:
        flipped = bool(together[0] == before[0])
    return together, flipped


def centre_of(held: Block) -> Array | None:
    """The mean of the rows held; kernels are computed from rows around it. It depends on no row that was forgotten."""
    if sparse.issparse(held.X):
        return None
    return np.asarray(held.X.mean(axis=0)) if len(held) else np.zeros(held.n_features)


def new_kernels(function: KernelFunction, held: Block, n_old: int, constant: float) -> tuple[Array, Array]:
    """The kernel of the first rows with the new ones after them (n, k), and of the new ones (k, k), plus a constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = function.prepare(held.X)
        old, new = rows.take(slice(0, n_old)), rows.take(slice(n_old, len(held)))
        square = function.rectangle(new, new)
        diagonal = function.diagonal(new)
        columns = function.rectangle(old, new) if n_old else np.zeros((0, len(new)))
    if diagonal.min() < 0.0:
        raise ValueError("The kernel of a row with itself is negative. Use another kernel.")
    if not (np.isfinite(square).all() and np.isfinite(columns).all()):
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    np.fill_diagonal(square, diagonal)
    return columns + constant, square + constant


_SAME_LENGTHS = ("rbf", "laplacian")  # kernels with k(x, x) = 1 for all x
_FIXED = ("mu", "theta", "kernel", "gamma", "degree", "coef0", "fit_intercept", "intercept_scaling")


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsHeld(Storable):
    """The rows held and their machine: changes give new ones, so that a change that fails changes nothing."""

    machine: ExactMachine  # not changed before all else has succeeded
    held: Block  # the rows with their ids; y are the numbers +1 and -1
    classes: Annotated[Array, Labels("classes", distinct=True)]
    flipped: bool  # whether the first class is +1 for the machine, because it was seen before the second
    cost: Annotated[float, Number(least=0.0)]  # C of a row of weight one
    gamma: Annotated[float, Number(least=0.0)]  # of the kernel
    fixed: Annotated[dict[str, Any], IsA(dict)]  # parameters that may not change
    next_id: int
    forgotten: Annotated[tuple[int, ...], Each(Integer())]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block. Python raises it in the main thread alone, so no other has to wait."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield
        return
    received: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received and callable(previous):
            previous(*received[0])


@dataclass(eq=False, repr=False)
class IncrementalODMClassifier(KernelMachine, ClassifierMixin, Described, BaseEstimator):
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
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.

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

    _: KW_ONLY
    cache_size: float = 2000
    encode: bool | str = "auto"

    classes_: Annotated[Array, Labels("classes", distinct=True)] = field(init=False)
    dual_coef_: Annotated[Array, Floats(1, "support")] = field(init=False)
    intercept_: Annotated[Array, Floats(1)] = field(init=False)
    cost_: Annotated[float, Number(least=0.0)] = field(init=False)
    _rows: Annotated[RowsHeld | None, Optional(IsA(RowsHeld))] = field(default=None, init=False)
    # this and the next are stored in a model without its rows
    _gap: Annotated[float | None, Optional(Number(least=0.0))] = field(default=None, init=False)
    _unlearning: Annotated[Unlearning | None, Optional(IsA(Unlearning))] = field(default=None, init=False)

    tol = EXACT_TOL  # kernels are computed in double precision
    _constraints: ClassVar[dict[str, Constraint]] = {
        **MarginObjective.constraints,
        "intercept_scaling": RealNumber(above=0.0),
        **KERNEL_CONSTRAINTS,
        "kernel": OneOf(*INCREMENTAL_KERNELS) | Function(),
        "cache_size": RealNumber(above=0.0),  # megabytes
    }

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
        with single_blas_thread():
            state, change, schema = self._join(None, X, y, sample_weight, None, None, np.zeros(0, np.int64))
        if len(state.classes) < 2:
            raise ValueError(f"y holds only one class, {state.classes.tolist()[0]!r}: there is nothing to tell apart.")
        return self._accept(state, change, X, schema)

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
        before = self._state()
        removed = positions_of(forget, np.zeros(0, np.int64) if before is None else before.held.row_ids())
        with single_blas_thread():
            if X is not None:
                state, change, schema = self._join(before, X, y, sample_weight, classes, row_ids, removed)
            else:
                assert before is not None
                none, columns, schema = np.zeros(0), np.zeros((len(before.held), 0)), self.schema_
                state, change = self._changed(before, before.held, columns, np.zeros((0, 0)), none, none, removed)
        return self._accept(state, change, X if before is None else None, schema)

    def rescale(self, lam: float | None = None) -> Self:
        """Set the costs to what ``lam`` (by default that of the model) gives with the rows now held."""
        check_is_fitted(self)
        state = self._state()
        assert state is not None
        lam = self.lam if lam is None else lam
        check_params(self, self._constraints)
        check_value("lam", lam, self._constraints["lam"])
        weight = state.held.weights()
        if len(weight) == 0:
            raise ValueError("There are no rows: costs depend on their weight.")
        with single_blas_thread():
            change = state.machine.rescaled(row_costs(weight, len(weight), lam, self.theta))
        cost = lam / (1.0 - self.theta) ** 2 / float(weight.sum())
        return self._accept(replace(state, cost=cost), change, None, self.schema_)

    def _state(self) -> RowsHeld | None:
        """The state, None before any row came. A model without its rows, or with other parameters, is refused."""
        if self._rows is None and self._gap is not None:
            raise RowsNotSavedError(f"{type(self).__name__} cannot add or forget rows (fit starts anew)")
        parameters = self.get_params(deep=False)
        for name, value in ({} if self._rows is None else self._rows.fixed).items():
            if parameters[name] != value:
                raise ValueError(f"{name} was {value!r} for the first rows: set it back, or start anew with fit.")
        return self._rows

    def _join(
        self, before: RowsHeld | None, X: Any, y: Any, sample_weight: Any, classes: Any, row_ids: Any, removed: Array
    ) -> tuple[RowsHeld, Change, TableSchema | None]:
        """The state with new rows, and without those at the positions ``removed``; the schema of first rows."""
        check_params(self, self._constraints)
        require_target(self, y is not None)
        learner = clone(self) if before is None else self  # the columns of first rows are noted when all has succeeded
        block = checked_block(learner, X, y, sample_weight, reset=before is None)
        assert block.y is not None
        labels = checked_classes(block.y)
        known_classes, flipped = (None, False) if before is None else (before.classes, before.flipped)
        all_classes, flipped = classes_so_far(labels, classes, known_classes, flipped=flipped)
        is_last = label_numbers(labels, all_classes) == len(all_classes) - 1
        sign = np.where(is_last != flipped, 1.0, -1.0)
        known = np.zeros(0, np.int64) if before is None else np.delete(before.held.row_ids(), removed)
        next_id = 0 if before is None else before.next_id
        ids = new_row_ids(row_ids, len(block), known, next_id)
        kept = np.flatnonzero(block.weights() > 0.0)
        check_memory(len(known) + len(removed) + len(kept), 1e6 * self.cache_size)
        rows = replace(block.take(kept, block.weights()[kept]), y=sign[kept], indices=ids[kept])
        state = self._first_state(rows, all_classes) if before is None else before
        X = rows.X.toarray() if sparse.issparse(rows.X) and not sparse.issparse(state.held.X) else rows.X
        X = sparse.csr_matrix(X) if sparse.issparse(state.held.X) else X
        held = concat([state.held, replace(rows, X=X.astype(np.float64))])
        function = KernelFunction.of(self, state.gamma, centre_of(held))
        columns, square = new_kernels(function, held, len(state.held), self._constant)
        cost = np.maximum(state.cost * rows.weights(), MIN_COST)
        next_id = max(next_id, int(ids.max()) + 1)
        state = replace(state, classes=all_classes, flipped=flipped, next_id=next_id)
        changed = self._changed(state, held, columns, square, sign[kept], cost, removed)
        return *changed, learner.schema_

    def _first_state(self, rows: Block, classes: Array) -> RowsHeld:
        """No rows, and what the first of them decide."""
        return RowsHeld(
            machine=ExactMachine(float(self.mu), float(self.theta)),
            held=rows.take(np.zeros(0, np.int64), np.zeros(0)),
            classes=classes,
            flipped=False,
            cost=float(self.lam / (1.0 - self.theta) ** 2 / rows.total_weight),
            gamma=float(training_kernel(self, rows).gamma),
            fixed={name: value for name, value in self.get_params(deep=False).items() if name in _FIXED},
            next_id=0,
            forgotten=(),
        )

    def _changed(
        self, state: RowsHeld, held: Block, columns: Array, square: Array, sign: Array, cost: Array, removed: Array
    ) -> tuple[RowsHeld, Change]:
        change = state.machine.prepare(columns, square, sign, cost, removed, max_bytes=1e6 * self.cache_size)
        past = state.forgotten + tuple(held.row_ids()[removed].tolist())
        held = held.take(change.order, held.weights()[change.order])
        back = set(held.row_ids().tolist()) if past else set()
        return replace(state, held=held, forgotten=tuple(row for row in dict.fromkeys(past) if row not in back)), change

    def _accept(self, state: RowsHeld, change: Change, first_rows: Any, schema: TableSchema | None) -> Self:
        """Make the change, and note the columns of first rows: all of it or, if it is interrupted before, nothing."""
        rows, held = change.rows, state.held
        order = np.argsort(held.row_ids(), kind="stable")
        at = order[rows.gamma[order] != 0.0]
        ids, vectors, centre = held.row_ids()[at], held.X[at], centre_of(held)
        coefficients = (-1.0 if state.flipped else 1.0) * rows.coefficients()[at][None]
        intercept = self._constant * coefficients.sum(axis=1)
        with uninterrupted():
            if first_rows is not None and schema is None:
                checked_block(self, first_rows, reset=True)
            set_schema(self, schema)
            state.machine.apply(change)
            self._rows, self._gamma, self._centre, self._single = state, state.gamma, centre, False
            self.classes_, self.cost_ = state.classes, state.cost
            self.support_, self.support_vectors_ = ids, vectors
            self.dual_coef_, self.intercept_ = coefficients, intercept
            if self._gap is not None:
                del self._gap, self._unlearning
        return self

    # -- what is computed from the rows held -----------------------------------------------------

    @property
    def row_ids_(self) -> Array:
        """Ids of the rows held."""
        return np.sort(self._with_rows("row_ids_").held.row_ids())

    @property
    def lam_(self) -> float:
        """The ``lam`` that the costs stand for now."""
        return self.cost_ * (1.0 - self.theta) ** 2 * self._with_rows("lam_").held.total_weight

    @property
    def gap_(self) -> float:
        """Upper bound of the objective minus its minimum."""
        return self._with_rows("gap_").machine.gap_bound() if self._gap is None else self._gap

    @property
    def unlearning_(self) -> Unlearning | None:
        """A certificate for all rows forgotten so far."""
        if self._gap is not None:
            return self._unlearning
        rows = self._with_rows("unlearning_")
        if not rows.forgotten:
            return None
        gap = self.gap_
        return Unlearning(
            row_ids=rows.forgotten,
            n_rows=len(rows.held),
            gap=gap,
            tolerance=float((2.0 * gap * rows.machine.largest()) ** 0.5),
            for_all_rows=self.kernel in _SAME_LENGTHS,
        )

    def _with_rows(self, name: str) -> RowsHeld:
        """The machine and its rows, from which the attribute ``name`` is computed."""
        if self._rows is None:
            if self._gap is not None:
                raise RowsNotSavedError(f"{type(self).__name__} has no {name}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r} before any row came")
        return self._rows

    def summary(self) -> dict[str, Any]:
        """The classes, the number of support vectors, and the certificate for forgotten rows."""
        said = self.unlearning_
        return {**super().summary(), **({} if said is None else {"unlearning": str(said)})}

    def error_bound(self, X: Any) -> Array:
        """How far the decision value of each row may be from that of the exact machine: (n,).

        The root of 2 gap k(x, x), where ``gap_`` is the duality gap.
        """
        check_is_fitted(self)
        function = self._fitted_kernel()
        lengths = function.diagonal(function.prepare(checked_block(self, X, reset=False).X)) + self._constant
        return np.asarray(np.sqrt(2.0 * self.gap_ * lengths))

    def without_rows(self) -> Self:
        """A copy with the support vectors alone. It predicts the same, and no row can join or leave it."""
        if self._rows is None:
            return self
        small = copy(self)
        small._gap, small._unlearning = self.gap_, self.unlearning_
        del small._rows
        return small

    def __sklearn_is_fitted__(self) -> bool:
        return self._rows is not None or self._gap is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def check_relations(self) -> None:
        super().check_relations()
        expect(self.kernel != "precomputed", "there is no such kernel")
        if self._rows is None:
            expect(self._gap is not None, "a machine is missing")
            return
        machine, held = self._rows.machine, self._rows.held
        expect(self._rows.fixed.keys() <= set(_FIXED), "parameters are fixed that are none of these")
        known = len(self.classes_) in (1, 2) and np.array_equal(self.classes_, self._rows.classes)
        expect(known, "there are more than two classes, or others than those of the rows")
        expect(self._gap is None and self._unlearning is None, "a machine comes with a certificate")
        Rows(len(machine), self.n_encoded_).check("rows", held.X, {})
        same = held.y is not None and np.array_equal(held.y, machine.rows.sign)
        expect(same and held.indices is not None, "rows have no ids, or other labels than the machine")
        ids = held.row_ids()
        expect(len(np.unique(ids)) == len(ids) and ids.max(initial=-1) < self._rows.next_id, "ids are not unique")
        expect(machine.rows.mu == self.mu and machine.rows.theta == self.theta, "the machine has another band")
