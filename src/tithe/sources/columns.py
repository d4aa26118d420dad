"""Which columns of a table are features, target and weights, and their types, before the first row is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq
from typing import Any, overload

import numpy as np
import pyarrow as pa

from tithe.core.data import Array
from tithe.core.params import Constraint, OneOf, WholeNumber, check_params
from tithe.sources.categories import HashedText, OneHotText

WIDEST_DENSE = 1000  # encoded columns; with more, rows are mostly zeros and X is sparse

_CONSTRAINTS: dict[str, Constraint] = {
    "categories": OneOf("error", "onehot", "hash"),
    "n_hashes": WholeNumber(least=1),
    "bad_rows": OneOf("error", "skip"),
}
_MAX_NAMES_SHOWN = 30  # columns that a message names
_EXACT_IN_FLOAT32 = (pa.types.is_float16, pa.types.is_float32, pa.types.is_boolean)
_SHORT_INTEGERS = (pa.types.is_int8, pa.types.is_int16, pa.types.is_uint8, pa.types.is_uint16)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The options of the caller about columns and rows.

    Parameters
    ----------
    columns : sequence of str or None
        Features, in this order. None: all but target and weight.
    target, weight : str or None
    categories : {"error", "onehot", "hash"}
        What to do with text among the features.
    n_hashes : int
        Columns that a hashed text column becomes.
    bad_rows : {"error", "skip"}
    """

    columns: Sequence[str] | None = None
    target: str | None = None
    weight: str | None = None
    categories: str = "error"
    n_hashes: int = 32
    bad_rows: str = "error"

    def __post_init__(self) -> None:
        check_params(self, _CONSTRAINTS)
        named = [*(self.columns or ()), *(n for n in (self.target, self.weight) if n is not None)]
        twice = next((name for name, times in Counter(named).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"Column {twice!r} is asked for twice: among columns, target and weight.")
        if self.columns is not None and not self.columns:
            raise ValueError("columns is empty: name at least one, or leave it out for all.")


class Numbered(Sequence[str]):
    """The names ``x0``, ``x1``, ..., made on demand, since there may be very many columns without names.

    >>> names = Numbered(2**31 - 1)
    >>> len(names), names[-1], list(names[2:4])
    (2147483647, 'x2147483646', ['x2', 'x3'])
    """

    def __init__(self, n_columns: int) -> None:
        self._at = range(n_columns)

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        return [f"x{i}" for i in self._at[at]] if isinstance(at, slice) else f"x{self._at[at]}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and (isinstance(other, Numbered) or all(map(eq, self, other)))

    __hash__ = None  # type: ignore[assignment]


def kind_of(column: pa.DataType) -> str:
    """``"number"``, ``"text"``, ``"nothing"`` (only nulls), or the name of a type that is no feature."""
    if pa.types.is_null(column):
        return "nothing"
    if pa.types.is_boolean(column) or pa.types.is_integer(column) or pa.types.is_floating(column):
        return "number"
    if pa.types.is_decimal(column):
        return "number"
    if pa.types.is_dictionary(column) or _is_text(column):
        return "text"
    return str(column)


def _is_text(column: pa.DataType) -> bool:
    return pa.types.is_string(column) or pa.types.is_large_string(column) or pa.types.is_string_view(column)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A column and the ``width`` features from number ``first`` on that it becomes. ``text`` None: a number."""

    name: str
    first: int
    text: OneHotText | HashedText | None = None

    @property
    def width(self) -> int:
        return 1 if self.text is None else self.text.width

    def names(self) -> list[str]:
        return [self.name] if self.text is None else self.text.names(self.name)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table as rows of X, y and weights.

    X is float32 where that holds every value exactly (float16, float32, booleans, integers of at
    most 16 bits), else float64. It is dense up to `WIDEST_DENSE` features, then CSR.
    """

    choice: Choice
    features: tuple[Feature, ...]
    dtype: np.dtype[Any]
    target_type: pa.DataType | None
    read: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        target_and_weight = [n for n in (self.choice.target, self.choice.weight) if n is not None]
        object.__setattr__(self, "read", (*(f.name for f in self.features), *target_and_weight))

    @property
    def n_features(self) -> int:
        return self.features[-1].first + self.features[-1].width

    @property
    def feature_names(self) -> list[str]:
        return [name for feature in self.features for name in feature.names()]

    @property
    def sparse(self) -> bool:
        return self.n_features > WIDEST_DENSE and any(f.text is not None for f in self.features)

    @property
    def row_bytes(self) -> int:
        if self.sparse:
            return len(self.features) * (self.dtype.itemsize + 4) + 4
        return self.n_features * self.dtype.itemsize

    @property
    def texts(self) -> list[str]:
        """Columns of text among the features."""
        return [f.name for f in self.features if f.text is not None]

    def column_of(self, feature: int) -> str:
        """The column that a feature comes from."""
        return next(f.name for f in reversed(self.features) if f.first <= feature)


def resolve_columns(schemas: Mapping[str, pa.Schema], choice: Choice) -> Columns:
    """Features and types from the schemas of all files; ``schemas`` maps the name of a file to its schema.

    One-hot encoders of text have no values yet: see `with_vocabularies`.
    """
    names = _feature_names(schemas, choice)
    types = {name: _common_kind(schemas, name) for name in names}
    for name, (kind, example) in types.items():
        if kind == "text" and choice.categories == "error":
            raise ValueError(
                f"Column {name!r} is text ({example}). Say what to do with it: categories='onehot' (--categories "
                "onehot), categories='hash' for many different values, or leave it out of columns."
            )
        if kind not in ("text", "number", "nothing"):
            raise ValueError(
                f"Column {name!r} is {kind}, which is no feature. Turn it into numbers, or leave it out of columns."
            )
    if choice.weight is not None and _common_kind(schemas, choice.weight)[0] not in ("number", "nothing"):
        raise ValueError(f"The weight column {choice.weight!r} is not numeric.")
    features, first = [], 0
    for name in names:
        text = None
        if types[name][0] == "text":
            text = OneHotText() if choice.categories == "onehot" else HashedText(choice.n_hashes)
        features.append(Feature(name=name, first=first, text=text))
        first += features[-1].width
    numbers = [schema.field(f.name).type for f in features if f.text is None for schema in schemas.values()]
    dtype = np.dtype(np.float32 if all(map(_exact_in_float32, numbers)) else np.float64)
    target_type = None if choice.target is None else _target_type(schemas, choice.target)
    return Columns(choice=choice, features=tuple(features), dtype=dtype, target_type=target_type)


def with_vocabularies(columns: Columns, vocabularies: Mapping[str, Sequence[str]]) -> Columns:
    """The columns with the values of their one-hot encoders."""
    features, first = [], 0
    for feature in columns.features:
        text = OneHotText(tuple(vocabularies[feature.name])) if feature.name in vocabularies else feature.text
        features.append(replace(feature, first=first, text=text))
        first += features[-1].width
    return replace(columns, features=tuple(features))


def _feature_names(schemas: Mapping[str, pa.Schema], choice: Choice) -> list[str]:
    """Names of the feature columns. Raises ValueError unless every file has them, target and weight once."""
    first = next(iter(schemas))
    present = {
        file: Counter(n for n in schema.names if not n.startswith("__index_level_")) for file, schema in schemas.items()
    }
    target_and_weight = [n for n in (choice.target, choice.weight) if n is not None]
    names = list(choice.columns or (name for name in present[first] if name not in target_and_weight))
    if not names:
        raise ValueError(f"{first!r} has no column beside {' and '.join(map(repr, target_and_weight)) or 'none'}.")
    for file, names_in_file in present.items():
        for name in (*names, *target_and_weight):
            if name not in names_in_file:
                shown = ", ".join(list(names_in_file)[:_MAX_NAMES_SHOWN])
                shown += ", ..." * (len(names_in_file) > _MAX_NAMES_SHOWN)
                raise ValueError(f"{file!r} has no column {name!r}. Its columns are {shown}.")
            if names_in_file[name] > 1:
                raise ValueError(f"{file!r} has {names_in_file[name]} columns named {name!r}. Rename them.")
        if choice.columns is None:
            extra = sorted(set(names_in_file) - set(present[first]))
            if extra:
                raise ValueError(
                    f"{file!r} has a column {extra[0]!r} that {first!r} has not. Name those to use: columns=[...]."
                )
    return names


def _common_kind(schemas: Mapping[str, pa.Schema], name: str) -> tuple[str, pa.DataType]:
    """The kind of a column, which must be the same in all files, and an example of its type."""
    first: tuple[str, str, pa.DataType] | None = None
    for file, schema in schemas.items():
        type_ = schema.field(name).type
        kind = kind_of(type_)
        if kind == "nothing":
            continue
        if first is None:
            first = (file, kind, type_)
        elif kind != first[1]:
            raise ValueError(
                f"Column {name!r} is {first[2]} in {first[0]!r} and {type_} in {file!r}. Write it with one type."
            )
    return ("nothing", pa.null()) if first is None else first[1:]


def _exact_in_float32(column: pa.DataType) -> bool:
    return any(test(column) for test in (*_EXACT_IN_FLOAT32, *_SHORT_INTEGERS))


def _target_type(schemas: Mapping[str, pa.Schema], name: str) -> pa.DataType:
    """One type that holds the target of every file."""
    kind, example = _common_kind(schemas, name)
    if kind == "text":
        return pa.string()
    if pa.types.is_nested(example):
        raise ValueError(f"The target {name!r} is {example}; it must be one value a row.")
    if kind != "number":
        return example
    types = {_plain_number(schema.field(name).type) for schema in schemas.values()}
    return pa.from_numpy_dtype(np.result_type(*types))


def _plain_number(column: pa.DataType) -> Any:
    if pa.types.is_null(column):
        return np.dtype(np.bool_)
    return np.dtype(np.float64) if pa.types.is_decimal(column) else column.to_pandas_dtype()


def numbers(column: Any) -> Array:
    """A numeric Arrow array as NumPy, without a copy where there are neither nulls nor booleans; nulls become NaN."""
    type_ = column.type
    if pa.types.is_boolean(type_):
        column = column.cast(pa.uint8())
    elif pa.types.is_null(type_) or pa.types.is_decimal(type_):
        column = column.cast(pa.float64())
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values
