"""Objects in files, as records of values: what a class writes, and the check of each value that is read.

A file is numbers. It holds the name of a class and the values of its stored attributes, and an object is made from it
by the constructor of the class, after each value was checked. A file may be well formed and lie: an index out of
bounds would be written to by a compiled loop. So a class that is stored is `Storable`, and declares the type, shape
and range of an attribute with its annotation ::

    max_clusters: Annotated[int, Integer(least=1, size="p")]    # its value is the size p from here on
    centers: Annotated[Array, Floats("p", "d")]                  # d is whatever the second dimension is
    labels: Annotated[Array, Integers("n", least=0, below="p")]

What a constructor does not check, and concerns several values at once, is said in `Storable.check_relations`.
"""

from __future__ import annotations

import functools
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy import sparse

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

    is_optional: ClassVar[bool] = False  # whether an object may lack the value

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
        held = not isinstance(value, int) or abs(value) < 2**63  # no array of NumPy's numbers holds others
        fits = real and held and self.least <= value <= self.most and (math.isfinite(value) or not self.finite)
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


@dataclass(frozen=True)
class Optional(Check):
    """None, or a value that passes another check."""

    inner: Check

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        if value is not None:
            self.inner.check(name, value, sizes)


@dataclass(frozen=True)
class Sometimes(Check):
    """A value that not every object has."""

    inner: Check
    is_optional: ClassVar[bool] = True

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        self.inner.check(name, value, sizes)


class Either(Check):
    """A value that passes one of two checks."""

    def __init__(self, one: Check, other: Check) -> None:
        self._one, self._other = one, other

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        known = dict(sizes)
        try:
            self._one.check(name, value, known)
        except FileFormatError:
            self._other.check(name, value, sizes)
        else:
            sizes.update(known)


class Instance(Check):
    """An object of one of the given classes."""

    def __init__(self, *types: type) -> None:
        self._types = types

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, self._types), f"{name} is a {type(value).__name__}")


@dataclass(frozen=True)
class Each(Check):
    """A list or tuple with one check for all items."""

    inner: Check
    least: int = 0
    length: Size | None = None

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        fits = isinstance(value, (list, tuple)) and len(value) >= self.least
        expect(fits, f"{name} is {_short_repr(value)}, not a list")
        if self.length is not None:
            check_size(name, self.length, len(value), sizes)
        for i, item in enumerate(value):
            self.inner.check(f"{name}[{i}]", item, sizes)


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
            check_size(name, wanted, size, sizes)
        expect(not self._contiguous or value.flags.c_contiguous, f"{name} is not laid out row by row")


class Floats(_Values):
    """An array of floats; ``least`` and ``most`` bound them, and they are finite unless said otherwise.

    ``empty``: there may be none. ``any_value`` where parts of it were never filled in: whoever declares it checks those
    that were.
    """

    def __init__(
        self,
        *shape: Size,
        dtypes: Iterable[str] = ("float64",),
        least: float = -math.inf,
        most: float = math.inf,
        finite: bool = True,
        any_value: bool = False,
        empty: bool = True,
        contiguous: bool = True,
    ) -> None:
        self._empty = empty
        super().__init__(*shape, dtypes=dtypes, contiguous=contiguous)
        self._least, self._most, self._finite, self._any_value = least, most, finite, any_value

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        super().check(name, value, sizes)
        expect(self._empty or value.size > 0, f"{name} is empty")
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


@dataclass(frozen=True)
class AnyFloats(Check):
    """An array of floats of one to ``most`` dimensions, in any layout, at most ``largest`` on either side of zero."""

    most: int = 3
    largest: float = float(np.finfo(np.float64).max)

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, np.ndarray) and 1 <= value.ndim <= self.most, f"{name} has no such shape")
        floats = Floats(*value.shape, least=-self.largest, most=self.largest, contiguous=False)
        floats.check(name, value, sizes)


class Rows(Check):
    """Finite rows: an array, or a CSR matrix."""

    def __init__(self, n: Size, d: Size, dtypes: Iterable[str] = ("float64", "float32")) -> None:
        self._shape, self._floats = (n, d), Floats(n, d, dtypes=dtypes)

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        if not sparse.issparse(value):
            self._floats.check(name, value, sizes)
            return
        expect(value.format == "csr" and np.isfinite(value.data).all(), f"{name} are not finite rows")
        for wanted, size in zip(self._shape, value.shape, strict=True):
            check_size(name, wanted, size, sizes)


class Notes(Check):
    """A mapping of names to texts and numbers."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        plain = isinstance(value, Mapping) and all(
            isinstance(key, str) and isinstance(item, (str, int, float)) for key, item in value.items()
        )
        expect(plain, f"{name} is no mapping of names to texts and numbers")


@dataclass(frozen=True)
class Labels(Check):
    """Labels of classes or names of columns: a flat array of texts or numbers."""

    length: Size
    distinct: bool = False

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        expect(isinstance(value, np.ndarray) and value.ndim == 1, f"{name} is {_short_repr(value)}, not a flat array")
        expect(value.dtype.kind in "biufOUS" and value.dtype.isnative, f"{name} holds {value.dtype}")
        check_size(name, self.length, len(value), sizes)
        items = value.tolist()
        expect(all(isinstance(item, (str, int, float, bool, bytes)) for item in items), f"{name} holds no labels")
        expect(not self.distinct or len(set(items)) == len(items), f"{name} holds a label twice")


def check_of(kind: Any) -> Check:
    """The check for values of a type such as ``float``, ``list[float]`` or ``Coreset | None``."""
    declared, origin, parts = _check_in(kind), get_origin(kind), get_args(kind)
    if declared is not None:
        return declared
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


def check_size(name: str, wanted: Size, size: int, sizes: Sizes) -> None:
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
    """Base of our classes whose objects are written to files.

    The fields of a dataclass are stored, and of any other class the attributes whose annotation has a check, as they
    are of a dataclass with ``stores_fields`` of False.
    """

    __slots__ = ()
    stores_fields: ClassVar[bool] = True

    @classmethod
    def stored_checks(cls) -> Mapping[str, Check]:
        """The check of each stored attribute, by name."""
        kind: Any = cls
        return _declared_checks(kind)

    def record(self) -> dict[str, Any]:
        """The values of the stored attributes by name, of those that are set and not defaults of the class."""
        values = {name: getattr(self, name, _MISSING) for name in self.stored_checks()}
        fields_only = _stores_fields(type(self))
        defaults = {name: _MISSING if fields_only else getattr(type(self), name, _MISSING) for name in values}
        return {name: value for name, value in values.items() if value is not _MISSING and value is not defaults[name]}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """The object with these values, checked. Raises `FileFormatError`, or `ValueError` from the constructor."""
        kind: Any = cls
        check_fields(record, cls.stored_checks(), optional=_with_defaults(kind), who=cls.__name__)
        given = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
        thing = cls(**{name: value for name, value in record.items() if name in given})
        restore(thing, {name: value for name, value in record.items() if name not in given})
        thing.check_relations()
        return thing

    def check_relations(self) -> None:
        """Raise `FileFormatError` if values that were read do not fit together. Parts were checked before."""

    def without_rows(self) -> Self:
        """The object as `save_model` writes it with ``rows=False``: itself where it holds no training rows."""
        return self


class StoredState(Storable):
    """A class whose objects change: one is made from a file without the constructor, which would start anew."""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        check_fields(record, cls.stored_checks(), who=cls.__name__)
        thing = restore(cls.__new__(cls), record)
        thing.check_relations()
        return thing


StorableT = TypeVar("StorableT", bound=Storable)


def checked(thing: StorableT) -> StorableT:
    """The object, made anew of its values, checked: for one that was put together from parts of several files."""
    return type(thing).from_record(thing.record())


def restore(thing: T, record: Mapping[str, Any]) -> T:
    """Set attributes that were read and checked."""
    for name, value in record.items():
        setattr(thing, name, value)
    return thing


def check_fields(
    record: Mapping[str, Any],
    table: Mapping[str, Check],
    *,
    optional: Iterable[str] = (),
    sizes: Sizes | None = None,
    who: str = "it",
) -> Sizes:
    """Compare values by name with a table of checks, and return the sizes that turned out.

    All must be there except those that are ``optional``, and no others.
    """
    sizes = {} if sizes is None else sizes
    for name in record:
        expect(name in table, f"{who} has an unknown value {_short_repr(name)}")
    for name, check in table.items():
        if name in record:
            check.check(f"{who}.{name}", record[name], sizes)
        else:
            expect(check.is_optional or name in optional, f"{who} has no {name}")
    return sizes


def _stores_fields(kind: Any) -> bool:
    return bool(is_dataclass(kind) and kind.stores_fields)  # type: ignore[union-attr]


@functools.cache  # annotations are compiled each time they are asked for: a fifth of the time to resume a stream
def _declared_checks(kind: Any) -> Mapping[str, Check]:
    hints = get_type_hints(kind, include_extras=True)
    if _stores_fields(kind):
        return {field.name: check_of(hints[field.name]) for field in fields(kind)}
    declared = {name: _check_in(hint) for name, hint in hints.items()}
    return {name: check for name, check in declared.items() if check is not None}


@functools.cache
def _with_defaults(kind: Any) -> frozenset[str]:
    """The fields of a dataclass that have defaults: files of earlier versions may lack them."""
    if not is_dataclass(kind):
        return frozenset()
    given = (field for field in fields(kind) if field.default is not MISSING or field.default_factory is not MISSING)
    return frozenset(field.name for field in given)


def _check_in(hint: Any) -> Check | None:
    """The check in ``Annotated[..., check]``."""
    if get_origin(hint) is not Annotated:
        return None
    return next((part for part in get_args(hint)[1:] if isinstance(part, Check)), None)
