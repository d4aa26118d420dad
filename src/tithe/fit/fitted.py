"""Fitted attributes, and learners whose rows come in batches and are solved when a solution is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar, get_args, overload

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Coreset
from tithe.core.errors import RowsNotSavedError
from tithe.core.state_checks import (
    Check,
    Instance,
    Integer,
    Labels,
    Optional,
    Sizes,
    check_fields,
    check_of,
    copy_with,
    expect,
)
from tithe.reduce.stream import CoresetStream
from tithe.rows.schema import TableSchema

T = TypeVar("T")
FLOATS = ("float64", "float32")
_METHODS = ("predict", "predict_proba", "decision_function", "transform")


class FittedAttribute(Generic[T]):
    """A fitted attribute with its type: ``coef_ = FittedAttribute[Array]()``.

    It has the value that the last fit found. While rows of `partial_fit` wait for ``solve()``, reading it raises
    `NotFittedError`, which is also an AttributeError, so that ``hasattr`` is False. Reading never starts a fit.

    Parameters
    ----------
    check : Check or None
        The check of a value that was read from a file. By default it follows from the type.
    optional : bool
        Whether a fit may leave the attribute out.
    from_stream : bool
        False for attributes that only `fit` sets, such as labels of all rows. They are missing after `partial_fit`.
    holds_rows : bool
        Whether the value holds training rows, which a model file leaves out unless it is told to keep them.
    """

    _name: str

    def __init__(
        self,
        check: Check | None = None,
        *,
        optional: bool = False,
        from_stream: bool = True,
        holds_rows: bool = False,
    ) -> None:
        self._check, self.optional, self._from_stream = check, optional or not from_stream, from_stream
        self.holds_rows = holds_rows

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def check(self) -> Check:
        """The check of a value that was read from a file."""
        if self._check is None:
            (kind,) = get_args(self.__orig_class__)  # type: ignore[attr-defined]
            self._check = check_of(kind)
        return self._check

    @overload
    def __get__(self, learner: None, owner: type) -> Self: ...

    @overload
    def __get__(self, learner: StreamLearner, owner: type) -> T: ...

    def __get__(self, learner: StreamLearner | None, owner: type) -> Any:
        if learner is None:
            return self
        values = learner._fitted_values
        if values and self._name in values:
            return values[self._name]
        if self._name in learner._left_out:
            raise RowsNotSavedError(f"{owner.__name__} has no {self._name}")
        message = f"{owner.__name__!r} object has no attribute {self._name!r}"
        if values or (learner._is_behind and not self._from_stream):
            raise AttributeError(message)
        if learner._is_behind:
            raise NotFittedError(
                f"{message} yet: rows came by partial_fit since the last solution. Call solve(), or a method that "
                "needs the solution, such as predict(X), first."
            )
        raise NotFittedError(f"{message}: it is not fitted yet.")

    def __set__(self, learner: StreamLearner, value: T) -> None:
        learner._fitted_values = {**(learner._fitted_values or {}), self._name: value}

    def __delete__(self, learner: StreamLearner) -> None:
        values = dict(learner._fitted_values or {})
        if self._name not in values:
            raise AttributeError(self._name)
        del values[self._name]
        learner._fitted_values = values


def fitted_attributes(learner: type) -> dict[str, FittedAttribute[Any]]:
    """The fitted attributes that a class and its bases declare, by name."""
    return {
        name: attribute
        for base in reversed(learner.__mro__)
        for name, attribute in vars(base).items()
        if isinstance(attribute, FittedAttribute)
    }


class StreamLearner(ABC):
    """A learner with fitted attributes, and with a `partial_fit` that only takes rows.

    `partial_fit` pushes rows into ``stream_`` and sets ``_fitted_values`` to None; `solve` fits to all rows so far.
    `predict` and the other methods that need a solution call it. ``stream_`` is pickled too, so a copy can go on.
    """

    stream_: Any = None  # a CoresetStream, or the streams of all folds; None unless rows came by `partial_fit`
    _fitted_values: dict[str, Any] | None = None
    _left_out: tuple[str, ...] = ()  # attributes that were not saved because they hold training rows

    @abstractmethod
    def _solve_stream(self) -> dict[str, Any]:
        """All fitted attributes by name, for the rows in ``stream_``."""

    @property
    def _is_behind(self) -> bool:
        """Whether rows have been pushed that the model was not fitted to yet."""
        return self.stream_ is not None and self._fitted_values is None

    def __sklearn_is_fitted__(self) -> bool:
        return self.stream_ is not None or bool(self._fitted_values)

    def solve(self) -> Self:
        """Fit to all rows that were passed to `partial_fit` so far, and set the fitted attributes.

        Nothing happens if the solution is that of these rows already. It takes as long as a fit on the coreset.
        Raises `NotFittedError` if there are no rows, or if these rows have no solution.
        """
        check_is_fitted(self)
        if self._is_behind:
            try:
                self._fitted_values = self._solve_stream()
            except Exception as error:
                raise NotFittedError(
                    f"{type(self).__name__} has no solution: the rows passed to partial_fit have none yet. {error}"
                ) from error
        return self

    def _start_fit(self) -> None:
        """Forget the rows and the solution of earlier calls."""
        if self.stream_ is not None:
            del self.stream_
        if self._left_out:
            del self._left_out
        self._fitted_values = {}

    def without_rows(self) -> Self:
        """A copy without coresets and stream. It predicts the same, and cannot go on with `partial_fit`."""
        if self._is_behind:
            try:
                self.solve()
            except NotFittedError as error:
                raise ValueError(f"{error} To save the rows themselves, set rows=True.") from error
        values = dict(self._fitted_values or {})
        names = [name for name, attribute in fitted_attributes(type(self)).items() if attribute.holds_rows]
        left_out = [name for name in names if values.get(name) is not None]
        left_out += ["stream_"] if self.stream_ is not None else []
        if not left_out:
            return self
        kept = {name: value for name, value in self.__dict__.items() if name not in left_out}
        kept["_fitted_values"] = {name: value for name, value in values.items() if name not in left_out}
        return copy_with(self, {**kept, "_left_out": (*self._left_out, *left_out)})

    def _refuse_lost_stream(self) -> None:
        """Refuse to go on with a stream that was not saved: its rows would silently be missing."""
        if "stream_" in self._left_out:
            raise RowsNotSavedError(f"{type(self).__name__} cannot go on with partial_fit (fit starts anew)")


COLUMNS: dict[str, Check] = {
    "n_features_in_": Integer(least=1, size="d"),
    "feature_names_in_": Labels("d"),
    "schema_": Optional(Instance(TableSchema)),
}
OPTIONAL_COLUMNS = ("feature_names_in_", "schema_")


def check_learner(learner: Any, *, sizes: Sizes | None = None, stream: type = CoresetStream) -> Sizes:
    """Check columns, coreset, stream and fitted attributes of a learner, and return the sizes found.

    All fitted attributes must be present except the optional ones. There may be none before a fit, and after
    `partial_fit` as long as the model was not fitted to the new rows.
    """
    values, who = attributes_of(learner), type(learner).__name__
    fitted = fitted_attributes(type(learner))
    if "n_features_in_" not in values:
        expect(not any(name in values for name in fitted), "a solution has no columns")
        return {}
    sizes = check_fields(values, COLUMNS, optional=OPTIONAL_COLUMNS, sizes=sizes, who=who)
    check_schema(values, sizes["d"])
    if "stream_" in values:
        check_fields(values, {"stream_": Instance(stream), "_seed": Integer(most=2**64)}, who=who)
        if stream is CoresetStream:
            _check_stream_of(learner, sizes["d"])
    is_behind = "stream_" in values and learner._fitted_values is None
    left_out = _names_left_out(learner, fitted)
    optional = [name for name, attribute in fitted.items() if attribute.optional or is_behind or name in left_out]
    table = {name: attribute.check for name, attribute in fitted.items()}
    check_fields(values, table, optional=optional, sizes=sizes, who=who)
    coreset = values.get("coreset_")
    expect(not isinstance(coreset, Coreset) or coreset.n_features == sizes["d"], "a coreset has other columns")
    return sizes


def _names_left_out(learner: Any, fitted: Mapping[str, FittedAttribute[Any]]) -> tuple[str, ...]:
    """The attributes that were not saved with the learner. Only those that hold training rows may be missing."""
    names: tuple[str, ...] = learner._left_out
    expect(isinstance(names, tuple), "the attributes left out are no tuple")
    for name in names:
        expect(name == "stream_" or (name in fitted and fitted[name].holds_rows), f"{name!r} cannot be left out")
    return names


def check_schema(values: dict[str, Any], n_features: int) -> None:
    """Refuse a schema that makes other features than those of the fit."""
    schema = values.get("schema_")
    expect(schema is None or schema.n_features == n_features, "a schema has other features")


def check_classes(learner: Any) -> Sizes:
    """The number of classes, and of outputs: one for two classes, else one for each."""
    if "n_features_in_" not in learner.__dict__:
        return {}
    sizes = check_fields(learner, {"classes_": Labels("classes", distinct=True)})
    expect(sizes["classes"] >= 2, "there are fewer than two classes")
    return {**sizes, "outputs": 1 if sizes["classes"] == 2 else sizes["classes"]}


def attributes_of(learner: Any) -> dict[str, Any]:
    """All attributes that are stored with a learner, fitted ones included. None of them is computed."""
    values = learner.__dict__.get("_fitted_values")
    expect(values is None or isinstance(values, dict), "fitted attributes are not a dict")
    return {**learner.__dict__, **(values or {})}


def _check_stream_of(learner: Any, d: int) -> None:
    """Check that the stream has the columns and the objective of the learner."""
    like = learner.stream_.state.rows.like
    expect(like is not None and like.n_features == d, "a stream has other columns")
    objective, stored = learner._objective(), learner.stream_.plan.objective
    same = type(objective) is type(stored) and objective.classes == stored.classes
    expect(same, "a stream is for another learner")
    n_classes = objective.n_classes
    for block in [*learner.stream_.state.rows.parts, *learner.stream_.state.tree.slots] if n_classes else []:
        numbers = block.y is not None and block.y.dtype.kind in "iu"
        expect(numbers and block.y.min() >= 0 and block.y.max() < n_classes, "rows have no class numbers")


def probe(estimator: Any, d: int) -> None:
    """Call an estimator of another package with one row, so that errors show up at once."""
    row = np.zeros((1, d))
    for method in _METHODS:
        if hasattr(estimator, method):
            answer = getattr(estimator, method)(row)
            expect(len(answer) == 1 if isinstance(answer, np.ndarray) else sparse.issparse(answer), f"{method} fails")
