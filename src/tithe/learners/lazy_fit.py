"""Learning from rows that keep coming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.exceptions import NotFittedError

from tithe.core.data import Array


class Streamed:
    """A solution that is brought up to date when it is asked for, not with every piece of rows.

    A learner with ``partial_fit`` names in ``_fitted`` every attribute that comes from its solution,
    pushes rows into what it keeps as ``stream_``, says `_stale` then, and sets these attributes anew in
    `_settle`. Nothing else is needed: whoever asks for one of them gets it as of now. ``stream_`` is
    pickled along, so a copy goes on where the original was.
    """

    _fitted: ClassVar[tuple[str, ...]] = ()

    def _settle(self) -> None:
        raise TypeError(f"{type(self).__name__} must define _settle().")

    @property
    def _streams(self) -> bool:
        """Whether rows have been pushed."""
        return "stream_" in self.__dict__

    def _stale(self) -> None:
        """Forget the solution: rows have come that it does not know."""
        for name in (*self._fitted, "_settled"):
            self.__dict__.pop(name, None)

    def _drop_stream(self) -> None:
        """A fit starts afresh."""
        self.__dict__.pop("stream_", None)

    def _solved(self, name: str) -> Any:
        """An attribute of the solution for all rows that were pushed, which is computed if it is not known yet.

        Where it cannot be computed the error is a `NotFittedError`: it is also an AttributeError, so that ``hasattr``
        answers False.
        """
        known = self.__dict__
        if name in type(self)._fitted and self._streams and "_settled" not in known:
            known["_settled"] = True  # what is not there afterwards will not be
            try:
                self._settle()
            except BaseException as error:
                self._stale()
                if not isinstance(error, Exception):
                    raise
                raise NotFittedError(
                    f"{type(self).__name__} has no {name}: the rows that came to partial_fit do not give a solution "
                    f"yet. {error}"
                ) from error
            if name in known:
                return known[name]
        computed = getattr(type(self), name, None)
        if isinstance(computed, property) and computed.fget is not None:
            return computed.fget(self)  # Python asks here where a property raised an AttributeError: raise it again
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            return self._solved(name)


def stream_classes(classes: Any, known: Array | None, *, first: bool) -> Array:
    """The classes of a stream: named with the ``first`` piece or ``known`` from a fit, and the same ever after."""
    if classes is None:
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all that will come.")
        return known
    named = np.unique(np.asarray(classes))
    if not first and known is not None and not np.array_equal(named, known):
        raise ValueError(f"classes={classes!r} is not the same as on the first call to partial_fit.")
    return named
