"""Checks of objects that were read from a file: types, shapes, ranges and indices.

A file may be well formed and lie: an index out of bounds would be written to by a compiled loop. So a class that is
stored declares what its attributes are, and `core.loaded.check_loaded` goes through everything that a file held before
any of it is used. Such a class is `Storable`, and its method ``_check_state`` calls `check_fields` with a table ::

    {
        "max_clusters": Integer(least=1, size="p"),      # its value is the size p from here on
        "centers": Floats("p", "d"),                      # d is whatever the second dimension is
        "labels": Integers("n", least=0, below="p"),
        "scale": Optional(Instance(Scale)),
    }

and then, with `expect`, says what else must hold. Parts are checked before the whole they belong to.
"""

from __future__ import annotations

import functools
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from tithe.core.errors import FileFormatError

Sizes = dict[str, int]
Size = int | str | tuple[str, int]  # a number, the name of one, or a name and what is added to it
LARGEST = 2**62  # the largest count or row id: sums with it must not overflow
PLAIN = (str, int, float, bool, bytes, type(None), np.generic, type, slice)
_MISSING = object()
T = TypeVar("T")


def expect(holds: Any, fault: str) -> None:
    """Raise `FileFormatError` unless ``holds``."""
    if not holds:
        raise FileFormatError(fault)


class Check(ABC):
    """One kind of value. ``Check.check`` refuses any other."""

    @abstractmethod
    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        """Raise FileFormatError unless the value is of this kind."""


@dataclass(frozen=True)
class Integer(Check):
    """A whole number; ``size`` is the name that others know it by."""

    least: int = 0
    most: int = LARGEST
    size: str | None = None

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
        fits = is_integer and self.least <= value <= self.most
        expect(fits, f"{name} is {_short_repr(value)}, not a whole number in range")
        if self.size is not None:
            known = sizes.setdefault(self.size, int(value))
            expect(known == value, f"{name} is {value}, and {known} is needed")


@dataclass(frozen=True)
class Number(Check):
    """A number, finite unless said otherwise."""

    least: float = -math.inf
    most: float = math.inf
    finite: bool = True

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
        fits = real and self.least <= value <= self.most and (math.isfinite(value) or not self.finite)
        expect(fits, f"{name} is {_short_repr(value)}, not a number in range")


@dataclass(frozen=True)
class Flag(Check):
    """True or False."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, (bool, np.bool_)), f"{name} is {_short_repr(value)}, not True or False")


@dataclass(frozen=True)
class Text(Check):
    """A string, one of some if they are given."""

    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        fits = isinstance(value, str) and (not self.choices or value in self.choices)
        expect(fits, f"{name} is {_short_repr(value)}, not {' or '.join(self.choices) or 'a text'}")


class Anything(Check):
    """Any value; it is checked elsewhere."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        return None


class Optional(Check):
    """None, or a value that passes another check."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        if value is not None:
            self._check.check(name, value, sizes)


class Instance(Check):
    """An object of one of the given classes."""

    def __init__(self, *types: type) -> None:
        self._types = types

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, self._types), f"{name} is a {type(value).__name__}")


class Each(Check):
    """A list or tuple with one check for all items."""

    def __init__(self, check: Check, *, least: int = 0, length: Size | None = None) -> None:
        self._check, self._least, self._length = check, least, length

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        fits = isinstance(value, (list, tuple)) and len(value) >= self._least
        expect(fits, f"{name} is {_short_repr(value)}, not a list")
        if self._length is not None:
            _check_size(name, self._length, len(value), sizes)
        for i, item in enumerate(value):
            self._check.check(f"{name}[{i}]", item, sizes)


class Parts(Check):
    """A tuple with a check for each of its items."""

    def __init__(self, *checks: Check) -> None:
        self._checks = checks

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, tuple) and len(value) == len(self._checks), f"{name} is {_short_repr(value)}")
        for i, (check, item) in enumerate(zip(self._checks, value, strict=True)):
            check.check(f"{name}[{i}]", item, sizes)


class _Values(Check):
    """An array in memory as kernels are compiled for: whatever type, shape or order it has otherwise is refused."""

    def __init__(self, *shape: Size, dtypes: Iterable[str], contiguous: bool = True) -> None:
        self._shape, self._dtypes, self._contiguous = shape, tuple(np.dtype(d) for d in dtypes), contiguous

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, np.ndarray), f"{name} is a {type(value).__name__}, not an array")
        expect(value.dtype in self._dtypes and value.dtype.isnative, f"{name} holds {value.dtype}")
        expect(value.ndim == len(self._shape), f"{name} has {value.ndim} dimensions, not {len(self._shape)}")
        for wanted, size in zip(self._shape, value.shape, strict=True):
            _check_size(name, wanted, size, sizes)
        expect(not self._contiguous or value.flags.c_contiguous, f"{name} is not laid out row by row")


class Floats(_Values):
    """An array of floats; ``least`` and ``most`` bound them, and they are finite unless said otherwise.

    ``any_value`` where parts of it were never filled in: whoever declares it checks those that were.
    """

    def __init__(
        self,
        *shape: Size,
        dtypes: Iterable[str] = ("float64",),
        least: float = -math.inf,
        most: float = math.inf,
        finite: bool = True,
        any_value: bool = False,
        contiguous: bool = True,
    ) -> None:
        super().__init__(*shape, dtypes=dtypes, contiguous=contiguous)
        self._least, self._most, self._finite, self._any_value = least, most, finite, any_value

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        super().check(name, value, sizes)
        if self._any_value:
            return
        expect(not self._finite or np.isfinite(value).all(), f"{name} holds values that are not finite")
        expect(not np.isnan(value).any(), f"{name} holds values that are no numbers")
        expect(value.size == 0 or (value.min() >= self._least and value.max() <= self._most), f"{name} is out of range")


class Integers(_Values):
    """An array of whole numbers, at least ``least`` and less than ``below``, a number or the name of a size."""

    def __init__(
        self, *shape: Size, dtypes: Iterable[str] = ("int64",), least: int = -LARGEST, below: Size = LARGEST
    ) -> None:
        super().__init__(*shape, dtypes=dtypes)
        self._least, self._below = least, below

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        super().check(name, value, sizes)
        below = _resolved(self._below, sizes)
        assert below is not None
        inside = value.size == 0 or (value.min() >= self._least and value.max() < below)
        expect(inside, f"{name} holds numbers out of range: {self._least} to {below - 1} are possible")


class Labels(Check):
    """Labels of classes or names of columns: a flat array of texts or numbers."""

    def __init__(self, length: Size, *, distinct: bool = False) -> None:
        self._length, self._distinct = length, distinct

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, np.ndarray) and value.ndim == 1, f"{name} is {_short_repr(value)}, not a flat array")
        expect(value.dtype.kind in "biufOUS" and value.dtype.isnative, f"{name} holds {value.dtype}")
        _check_size(name, self._length, len(value), sizes)
        items = value.tolist()
        expect(all(isinstance(item, (str, int, float, bool, bytes)) for item in items), f"{name} holds no labels")
        expect(not self._distinct or len(set(items)) == len(items), f"{name} holds a label twice")


def check_of(kind: Any) -> Check:
    """The check for values of a type such as ``float``, ``list[float]`` or ``Coreset | None``."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        kinds = [part for part in parts if part is not type(None)]
        return Optional(check_of(kinds[0])) if len(kinds) == 1 else Anything()
    if origin is Literal:
        return Text(parts)
    if origin is list or (origin is tuple and parts[-1] is ...):
        return Each(check_of(parts[0]))
    if origin is tuple:
        return Parts(*map(check_of, parts))
    simple: dict[Any, Check] = {Any: Anything(), float: Number(finite=False), int: Integer(), bool: Flag(), str: Text()}
    return simple[kind] if kind in simple else Instance(origin or kind)


def _resolved(size: Size, sizes: Sizes) -> int | None:
    if isinstance(size, int):
        return size
    name, more = (size, 0) if isinstance(size, str) else size
    return None if name not in sizes else sizes[name] + more


def _check_size(name: str, wanted: Size, size: int, sizes: Sizes) -> None:
    """Compare a size with the wanted one; a name that is not known yet gets this size."""
    known = _resolved(wanted, sizes)
    if known is None:
        label, more = (wanted, 0) if isinstance(wanted, str) else wanted  # type: ignore[misc]
        expect(size >= more, f"{name} is too short")
        sizes[label] = size - more
    else:
        expect(size == known, f"{name} has a length of {size} where {known} is needed")


def _short_repr(value: Any) -> str:
    text = repr(value) if isinstance(value, PLAIN) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."


class Storable:
    """Base of our classes whose objects may be read from a file; no other class of ours is."""

    __slots__ = ()

    def _check_state(self) -> None:
        """Raise `FileFormatError` for a state that no object of this class can have; its parts were checked before."""
        check_fields(self, {})
        check_parameters(self)

    def without_rows(self) -> Any:
        """The object as `save_model` writes it with ``rows=False``: itself where it holds no training rows."""
        return self


def check_fields(
    thing: Any,
    table: Mapping[str, Check],
    *,
    optional: Iterable[str] = (),
    sizes: Sizes | None = None,
    who: str | None = None,
) -> Sizes:
    """Compare the attributes of an object, or the items of a dict, with a table; sizes that turned out are given back.

    All must be there but those that are ``optional``. Fields of a dataclass that the table leaves out are compared
    with their types.
    """
    sizes = {} if sizes is None else sizes
    kind: Any = type(thing)
    who = who or kind.__name__
    for name, check in {**_checks_of_fields(kind), **table}.items():
        value = _attribute(thing, name)
        if value is _MISSING:
            expect(name in optional, f"{who} has no {name}")
        else:
            check.check(f"{who}.{name}", value, sizes)
    return sizes


@functools.cache  # annotations are compiled each time they are asked for: a fifth of the time to resume a stream
def _checks_of_fields(kind: Any) -> dict[str, Check]:
    if not is_dataclass(kind):
        return {}
    hints = get_type_hints(kind)
    return {field.name: check_of(hints[field.name]) for field in fields(kind)}


def _attribute(thing: Any, name: str) -> Any:
    """A stored attribute of the object; properties are not evaluated."""
    if isinstance(thing, Mapping):
        return thing.get(name, _MISSING)
    if hasattr(thing, "__dict__"):
        return thing.__dict__.get(name, _MISSING)
    return getattr(thing, name, _MISSING)


def check_parameters(thing: Any) -> None:
    """Check the parameters of a dataclass as when an object is made."""
    if is_dataclass(thing) and callable(getattr(type(thing), "__post_init__", None)):
        thing.__post_init__()  # type: ignore[union-attr]


def copy_with(thing: T, attributes: Mapping[str, Any]) -> T:
    """An object of the same class with these attributes and no others."""
    copy = object.__new__(type(thing))
    copy.__dict__.update(attributes)
    return copy
