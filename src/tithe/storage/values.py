"""Values in a file: JSON, and an array for each array. No object of any other kind is ever made from a file.

A file is a ZIP archive of members that are not compressed: ``values.json``, ``arrays/0.npy``, ``arrays/1.npy`` and so
on, and ``models/0``, ``models/1``, ... in which other libraries keep their models (`tithe.storage.foreign`). In the
JSON, plain numbers, texts and lists stand for themselves, and everything else is an object with one key:

==============  ====================================================================================
``array``       the number of an array; ``objects``: the same for an array of Python's own objects
``csr``         the numbers of the three arrays of a sparse matrix, and its shape
``masked``      the values and the mask of a masked array
``tuple``       a list of its items; ``dict``: a list of pairs
``scalar``      the number of an array of one item, which is a number of NumPy
``number``      "nan", "inf" or "-inf"
``generator``   the name and the numbers of a generator of random numbers
``record``      the name of a class of ours and the values of its stored attributes
``lightgbm``    the number of a file in the text format of LightGBM; ``xgboost`` and ``catboost``: in their JSON
``skops``       the number of a file of skops, and the values of our objects and boosters in that object
==============  ====================================================================================
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import isabstract
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.core.registry import registered_types
from tithe.core.state_checks import Storable, expect
from tithe.storage.foreign import (
    array_header,
    booster_from,
    booster_library,
    booster_text,
    check_generator,
    shell_bytes,
    shell_from,
    stored_members,
)

_VALUES, _ABOUT = "values.json", "about"
_FORMAT = 1
_MAX_DEPTH = 60  # of values in values
_KINDS = "biufUS"  # of arrays
_NUMBERS = ("nan", "inf", "-inf")
_BITS = {kind.__name__: kind for kind in (np.random.PCG64, np.random.Philox, np.random.MT19937, np.random.SFC64)}


def packed(thing: Any, about: Mapping[str, Any] | None = None, *, rows: bool = True) -> bytes:
    """A file that holds the object; with ``rows=False`` without the training rows of our learners.

    Raises `ValueError` for an object that `unpacked` would refuse. ``about`` is what `about_file` gives.
    """
    writer = _Writer(rows)
    value = writer.value(thing)
    content = {"format": _FORMAT, _ABOUT: {**(about or {}), "n_rows": writer.n_rows}, "value": value}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        members = {_VALUES: json.dumps(content, allow_nan=False).encode(), **writer.members}
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time: equal objects have equal bytes
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """What `packed` was given, checked. Raises `FileFormatError` for anything that it did not write."""
    try:
        members = stored_members(data)
        return _Reader(members).value(_content(members)["value"])
    except FileFormatError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as there are bytes
        raise FileFormatError(f"it cannot be read: {type(error).__name__}: {error}") from error


def about_file(data: bytes) -> dict[str, Any]:
    """What a file says about itself; ``n_rows`` are the training rows in it, in coresets and streams."""
    about: dict[str, Any] = _content(stored_members(data))[_ABOUT]
    return about


def _content(members: Mapping[str, bytes]) -> dict[str, Any]:
    expect(_VALUES in members, "it holds no values")
    content = json.loads(members[_VALUES])
    expect(isinstance(content, dict) and isinstance(content.get(_ABOUT), dict), "its values are none")
    expect(content.get("format") == _FORMAT, f"its format is {content.get('format')!r}, not {_FORMAT}")
    return content  # type: ignore[no-any-return]


def _is_stored(kind: type) -> bool:
    """Whether objects of this class may be read from files: a class of ours, or of a package that registered it."""
    ours = kind.__module__.startswith("tithe.") and not kind.__qualname__.startswith("_")
    known = ours or f"{kind.__module__}.{kind.__qualname__}" in registered_types()
    return known and issubclass(kind, Storable) and not isabstract(kind)


def _class_of(name: str) -> type[Storable]:
    """The class of that full name. Only modules of this package, and of those that registered it, are imported."""
    module, _, attribute = name.rpartition(".")
    kind = None
    if module.startswith("tithe.") or name in registered_types():
        try:
            kind = getattr(import_module(module), attribute, None)
        except (ImportError, ValueError):  # no module has that name
            kind = None
    known = isinstance(kind, type) and _is_stored(kind) and f"{kind.__module__}.{kind.__qualname__}" == name
    expect(known, f"it wants to load {name}, which is not a type of tithe")
    return kind  # type: ignore[return-value]


class _Writer:
    """Gives the JSON of values, and collects the other members of the file."""

    def __init__(self, rows: bool) -> None:
        self.members: dict[str, bytes] = {}
        self.n_rows = 0
        self._rows = rows
        self._numbers: dict[int, tuple[int, Any]] = {}  # of arrays by id; they are kept alive, so that ids are unique

    def value(self, thing: Any) -> Any:
        """The JSON of a value."""
        if thing is None or type(thing) in (bool, int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"number": str(thing)}
        if type(thing) is list:
            return self._items(thing)
        for kind, write in self._kinds.items():
            if isinstance(thing, kind):
                return write(self, thing)
        if sparse.issparse(thing):
            return self._sparse(thing)
        library = booster_library(thing)
        if library is not None:
            return {library: self._file(booster_text(thing))}
        held: list[Any] = []
        number = self._file(shell_bytes(thing, held))
        return {"skops": [number, self._items(held)]}

    def _items(self, items: Any) -> list[Any]:
        return [self.value(item) for item in items]

    def _record(self, thing: Storable) -> dict[str, Any]:
        kind = type(thing)
        if not _is_stored(kind):
            raise ValueError(
                f"{kind.__qualname__} of {kind.__module__} cannot be written to a file, because it could not be read "
                "without trusting the file. A package that registers it as an entry point (see tithe.core.registry) is "
                "trusted."
            )
        thing = thing if self._rows else thing.without_rows()
        self.n_rows += len(thing) if isinstance(thing, Block) else 0
        values = {name: self.value(value) for name, value in thing.record().items()}
        return {"record": [f"{kind.__module__}.{kind.__qualname__}", values]}

    def _masked(self, array: Any) -> dict[str, Any]:
        return {"masked": [self.value(np.asarray(array.data)), self.value(np.ma.getmaskarray(array))]}

    def _array(self, array: Array) -> dict[str, Any]:
        if array.dtype.kind != "O":
            return {"array": self._number(array)}
        items = array.ravel().tolist()
        if items and all(type(item) is str for item in items) and np.array(items).tolist() == items:
            return {"objects": self._number(np.array(items).reshape(array.shape))}
        if not all(item is None or isinstance(item, (str, int, float, np.generic)) for item in items):
            raise ValueError("An array of Python objects other than texts and numbers cannot be written to a file.")
        return {"objects": [list(array.shape), self._items(items)]}

    def _number(self, array: Array) -> int:
        """The number of an array among those of the file; arrays that are one object are written once."""
        if array.dtype.kind not in _KINDS or not array.dtype.isnative:
            raise ValueError(f"An array of {array.dtype} cannot be written to a file.")
        if id(array) not in self._numbers:
            file = io.BytesIO()
            np.save(file, np.asarray(array), allow_pickle=False)
            self._numbers[id(array)] = len(self._numbers), array
            self.members[f"arrays/{len(self._numbers) - 1}.npy"] = file.getvalue()
        return self._numbers[id(array)][0]

    def _sparse(self, matrix: Any) -> dict[str, Any]:
        if matrix.format not in ("csr", "csc"):
            raise ValueError(f"A sparse matrix in the format {matrix.format} cannot be written to a file.")
        arrays = [self._number(array) for array in (matrix.data, matrix.indices, matrix.indptr)]
        return {matrix.format: [*arrays, list(matrix.shape)]}

    def _generator(self, generator: Any) -> dict[str, Any]:
        old = isinstance(generator, np.random.RandomState)
        state = generator.get_state(legacy=False) if old else generator.bit_generator.state
        return {"generator": ["RandomState" if old else "Generator", self.value(state)]}

    def _file(self, data: bytes) -> int:
        number = sum(name.startswith("models/") for name in self.members)
        self.members[f"models/{number}"] = data
        return number

    _kinds: Mapping[Any, Callable[[Any, Any], Any]] = {
        Storable: _record,
        np.ma.MaskedArray: _masked,
        np.ndarray: _array,
        np.generic: lambda writer, scalar: {"scalar": writer._number(np.asarray(scalar))},
        tuple: lambda writer, items: {"tuple": writer._items(items)},
        dict: lambda writer, items: {"dict": [writer._items(pair) for pair in items.items()]},
        (np.random.Generator, np.random.RandomState): _generator,
    }


class _Reader:
    """Makes values of their JSON and the other members of a file."""

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = members
        self._arrays: dict[int, Array] = {}
        self._depth = 0

    def value(self, value: Any) -> Any:
        """The value that the JSON stands for."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        self._depth += 1
        expect(self._depth < _MAX_DEPTH, "values are nested too deeply")
        if isinstance(value, list):
            made = self._items(value)
        else:
            expect(len(value) == 1, "a value is of two kinds")
            ((kind, content),) = value.items()
            expect(kind in self._kinds, f"there is no kind of value called {kind!r}")
            made = self._kinds[kind](self, content)
        self._depth -= 1
        return made

    def _items(self, items: list[Any]) -> list[Any]:
        return [self.value(item) for item in items]

    def _record(self, content: Any) -> Storable:
        name, values = content
        return _class_of(name).from_record({key: self.value(value) for key, value in values.items()})

    def _array(self, number: int) -> Array:
        if number not in self._arrays:
            self._arrays[number] = _array_from(self._members[f"arrays/{number:d}.npy"])
        return self._arrays[number]

    def _objects(self, content: Any) -> Array:
        if isinstance(content, int):
            return self._array(content).astype(object)
        shape, items = content
        expect(
            all(item is None or isinstance(item, (str, int, float, dict)) for item in items), "an array holds objects"
        )
        array = np.empty(len(items), object)
        array[:] = self._items(items)
        return array.reshape(shape)

    def _masked(self, content: Any) -> Any:
        values, mask = self._items(content)
        return np.ma.MaskedArray(values, mask=mask)

    def _sparse(self, content: Any, kind: type) -> Any:
        data, indices, indptr, shape = content
        parts = self._array(data), self._array(indices), self._array(indptr)
        expect(parts[0].ndim == 1 and parts[0].dtype in (np.float32, np.float64), "a matrix holds no floats")
        matrix = kind(parts, shape=tuple(shape))
        matrix.check_format(full_check=True)  # kernels trust column numbers: one out of bounds would be written to
        return matrix

    def _generator(self, content: Any) -> Any:
        kind, state = content[0], self.value(content[1])
        bits = _BITS[state["bit_generator"]]()
        bits.state = state
        generator = np.random.RandomState(bits) if kind == "RandomState" else np.random.Generator(bits)
        check_generator(generator)
        return generator

    def _shell(self, content: Any) -> Any:
        number, held = content
        return shell_from(self._members[f"models/{number:d}"], self._items(held))

    def _booster(self, library: str, number: int) -> Any:
        return booster_from(library, self._members[f"models/{number:d}"])

    _kinds: Mapping[str, Callable[[Any, Any], Any]] = {
        "array": _array,
        "objects": _objects,
        "csr": lambda reader, content: reader._sparse(content, sparse.csr_matrix),
        "csc": lambda reader, content: reader._sparse(content, sparse.csc_matrix),
        "masked": _masked,
        "tuple": lambda reader, items: tuple(reader._items(items)),
        "dict": lambda reader, pairs: dict(map(tuple, map(reader._items, pairs))),
        "scalar": lambda reader, number: reader._array(number)[()],
        "number": lambda _, name: float(_NUMBERS[_NUMBERS.index(name)]),
        "generator": _generator,
        "record": _record,
        "lightgbm": lambda reader, number: reader._booster("lightgbm", number),
        "xgboost": lambda reader, number: reader._booster("xgboost", number),
        "catboost": lambda reader, number: reader._booster("catboost", number),
        "skops": _shell,
    }


def _array_from(data: bytes) -> Array:
    """An array in NumPy's format; what its header promises must be there before memory is taken for it."""
    file = io.BytesIO(data)
    shape, dtype = array_header(file)
    expect(dtype.kind in _KINDS and dtype.isnative, f"an array holds {dtype}")
    expect(math.prod(shape) * dtype.itemsize == len(data) - file.tell(), "an array is of another size")
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array
