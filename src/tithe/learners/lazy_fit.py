"""Fitted attributes that are found when they are read, not with every call of `partial_fit`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar, get_args, overload

from sklearn.exceptions import NotFittedError

from tithe.core.state_checks import Check, check_of

T = TypeVar("T")


class FittedAttribute(Generic[T]):
    """One attribute of a solution, with its type: ``coef_ = FittedAttribute[Array]()``.

    After `fit` it is what was set. After `partial_fit` the first attribute that is read fits the model to the rows so
    far, and all others come from the same fit. Where these rows give no solution, reading raises `NotFittedError`,
    which is also an AttributeError: ``hasattr`` then answers False.

    Parameters
    ----------
    check : Check or None
        What a value that was read from a file must be; by default what the type says.
    optional : bool
        Whether a fit may leave it out.
    from_stream : bool
        False for what only `fit` can give, such as labels of all rows: it is never there after `partial_fit`, and
        asking for it fits nothing.
    """

    def __init__(self, check: Check | None = None, *, optional: bool = False, from_stream: bool = True) -> None:
        self._check, self.optional, self._from_stream = check, optional or not from_stream, from_stream

    @property
    def check(self) -> Check:
        """What a value that was read from a file must be."""
        if self._check is None:
            (kind,) = get_args(self.__orig_class__)  # type: ignore[attr-defined]
            self._check = check_of(kind)
        return self._check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, learner: None, owner: type) -> Self: ...

    @overload
    def __get__(self, learner: Any, owner: type) -> T: ...

    def __get__(self, learner: Any, owner: type) -> Any:
        if learner is None:
            return self
        if self._from_stream and learner._is_behind:
            learner._catch_up(self._name)
        values = learner._fitted_values
        if values and self._name in values:
            return values[self._name]
        message = f"{owner.__name__!r} object has no attribute {self._name!r}"
        raise AttributeError(message) if values else NotFittedError(f"{message}: it is not fitted yet.")

    def __set__(self, learner: Any, value: T) -> None:
        if learner._fitted_values is None:
            learner._fitted_values = {}
        learner._fitted_values[self._name] = value

    def __delete__(self, learner: Any) -> None:
        if self._name not in (learner._fitted_values or {}):
            raise AttributeError(self._name)
        del learner._fitted_values[self._name]


class LazyFitMixin(ABC):
    """A learner with `partial_fit` that finds its solution when a `FittedAttribute` of it is read.

    `partial_fit` pushes rows into ``stream_`` and sets ``_fitted_values`` to None. ``stream_`` is pickled along, so a
    copy goes on where the original was. To know whether there are rows to learn from without fitting to them, use
    `sklearn.utils.validation.check_is_fitted`.
    """

    _fitted_values: dict[str, Any] | None = None

    @abstractmethod
    def _fit_from_stream(self) -> None:
        """Set all fitted attributes for the rows in ``stream_``."""

    @property
    def _is_streaming(self) -> bool:
        """Whether rows have been pushed."""
        return "stream_" in self.__dict__

    @property
    def _is_behind(self) -> bool:
        """Whether rows have been pushed that no solution was found for yet."""
        return self._is_streaming and self._fitted_values is None

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_streaming or bool(self._fitted_values)

    def __dir__(self) -> Iterable[str]:
        """Without fitted attributes that are yet to be found: tools that read all attributes must not start a fit."""
        if not self._is_behind:
            return super().__dir__()
        descriptors = {name: getattr(type(self), name, None) for name in object.__dir__(self)}
        names = [name for name, what in descriptors.items() if not isinstance(what, (FittedAttribute, property))]
        return [name for name in names if hasattr(self, name)]

    def _start_fit(self) -> None:
        """Forget the rows and the solution of earlier calls."""
        self.__dict__.pop("stream_", None)
        self._fitted_values = {}

    def _catch_up(self, name: str) -> None:
        """Find the solution for all rows that were pushed, because the attribute ``name`` is asked for."""
        self._fitted_values = {}
        try:
            self._fit_from_stream()
        except BaseException as error:
            self._fitted_values = None
            if not isinstance(error, Exception):
                raise
            raise NotFittedError(
                f"{type(self).__name__} has no {name}: the rows that came to partial_fit do not give a solution "
                f"yet. {error}"
            ) from error
