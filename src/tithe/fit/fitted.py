"""Fitted attributes, and learners whose rows come in batches and are solved when a solution is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from functools import cache
from inspect import getmembers_static
from typing import Annotated, Any, Generic, Self, TypeVar, get_args, overload

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from tithe.core.errors import RowsNotSavedError
from tithe.core.state_checks import Check, Each, Instance, Integer, Sometimes, Text, check_of, expect
from tithe.fit.stored import StoredEstimator
from tithe.reduce.stream import CoresetStream

T = TypeVar("T")
FLOATS = ("float64", "float32")


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


@cache
def fitted_attributes(learner: type) -> dict[str, FittedAttribute[Any]]:
    """The fitted attributes that a class and its bases declare, by name."""
    return dict(getmembers_static(learner, lambda member: isinstance(member, FittedAttribute)))


class StreamLearner(StoredEstimator, ABC):
    """A learner with fitted attributes, and with a `partial_fit` that only takes rows.

    `partial_fit` pushes rows into ``stream_`` and sets ``_fitted_values`` to None; `solve` fits to all rows so far.
    `predict` and the other methods that need a solution call it. ``stream_`` is pickled too, so a copy can go on.
    """

    # a CoresetStream, or the streams of all folds; None unless rows came by `partial_fit`
    stream_: Annotated[Any, Instance(CoresetStream)] = None
    _seed: Annotated[int, Sometimes(Integer(most=2**64))]
    _fitted_values: dict[str, Any] | None = None
    # attributes that were not saved because they hold training rows
    _left_out: Annotated[tuple[str, ...], Each(Text())] = ()

    @abstractmethod
    def _solve_stream(self) -> dict[str, Any]:
        """All fitted attributes by name, for the rows in ``stream_``."""

    @classmethod
    def stored_checks(cls) -> Mapping[str, Check]:
        fitted = {name: attribute.check for name, attribute in fitted_attributes(cls).items()}
        return {**super().stored_checks(), **fitted}

    @classmethod
    def optional_values(cls, record: Mapping[str, Any]) -> frozenset[str]:
        """What need not be there: optional attributes, rows that were left out, and all while rows wait for `solve`."""
        attributes = fitted_attributes(cls)
        left_out = record.get("_left_out", ())
        for name in left_out:
            rows = name == "stream_" or (name in attributes and attributes[name].holds_rows)
            expect(rows, f"{name!r} cannot be left out")
        is_behind = "stream_" in record and not any(name in record for name in attributes)
        optional = {name for name, attribute in attributes.items() if attribute.optional or is_behind}
        declared = frozenset(super().stored_checks()) & super().optional_values(record)
        return declared | optional | set(left_out)

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
        slim = copy(self)
        slim._fitted_values = {name: value for name, value in values.items() if name not in left_out}
        slim._left_out = (*self._left_out, *left_out)
        if self.stream_ is not None:
            del slim.stream_
        return slim

    def _refuse_lost_stream(self) -> None:
        """Refuse to go on with a stream that was not saved: its rows would silently be missing."""
        if "stream_" in self._left_out:
            raise RowsNotSavedError(f"{type(self).__name__} cannot go on with partial_fit (fit starts anew)")
