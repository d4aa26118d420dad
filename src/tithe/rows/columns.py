"""Which columns of a table are features, target and weights: what its files agree on, and their schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from operator import eq
from typing import Any, overload

import numpy as np
import pyarrow as pa

from tithe.core.data import Array
from tithe.core.params import Constraint, OneOf, check_params
from tithe.rows.encodings import CategoryEncoding, NumberEncoding
from tithe.rows.learn import learn_schema, uncertain_features
from tithe.rows.schema import TableSchema
from tithe.rows.uses import MEASURED_SCALES, TableOptions, Watch
from tithe.rows.values import is_date, is_text, value_type, vector_item

_CONSTRAINTS: dict[str, Constraint] = {"bad_rows": OneOf("error", "skip"), "missing_target": OneOf("drop", "keep")}
_MAX_NAMES_SHOWN = 30  # columns that a message names


@dataclass(frozen=True, kw_only=True)
class ColumnSelection(TableOptions):
    """The options of the caller, as `tithe.open_dataset` describes them. ``row_id`` is not read with the rows."""

    target: str | None = None
    weight: str | None = None
    row_id: str | None = None
    bad_rows: str = "error"
    missing_target: str = "drop"
    schema: TableSchema | None = None
    watch: Watch | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_params(self, _CONSTRAINTS)
        named = [*(self.columns or ()), *self.special]
        twice = next((name for name, times in Counter(named).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"Column {twice!r} is asked for twice: among columns, target, weight and row_id.")
        if self.schema is not None and self.has_table_options:
            raise ValueError("A schema says what becomes of each column: give it, or options about columns, not both.")

    @cached_property
    def options(self) -> TableOptions:
        """Those about features alone."""
        return TableOptions(**{option.name: getattr(self, option.name) for option in fields(TableOptions)})

    def reads(self, name: str) -> bool:
        """Whether the values of a column are read."""
        named = self.columns is None or name in self.columns or name in self.special
        return named and name not in self.exclude

    @property
    def has_table_options(self) -> bool:
        """Whether anything was said about how columns become features."""
        return self.options != TableOptions()

    @property
    def keeps_gaps(self) -> bool:
        """Whether rows without a target are kept."""
        return self.missing_target == "keep"

    @property
    def special(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (self.target, self.weight, self.row_id) if name is not None]


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


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table as rows of X, by a schema, y and weights."""

    choice: ColumnSelection
    schema: TableSchema
    target_type: pa.DataType | None
    uncertain: Array = field(default_factory=lambda: np.empty(0, np.int64))  # see `uncertain_features`

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.schema.reads, *(name for name in self.choice.special if name != self.choice.row_id))

    @property
    def about(self) -> dict[str, Any]:
        """What rows are made of, for the identity of a source: the same for a schema that was learned and one given."""
        choice = self.choice
        return {
            "target": choice.target,
            "weight": choice.weight,
            "bad_rows": choice.bad_rows,
            "missing_target": choice.missing_target,
            "schema": self.schema.to_json(),
        }

    @property
    def leaves_rows_out(self) -> bool:
        """Whether there may be rows that are not used: bad ones, and those without a target."""
        return self.choice.bad_rows == "skip" or (self.choice.target is not None and not self.choice.keeps_gaps)

    @property
    def number_types(self) -> dict[str, pa.DataType]:
        """The columns of numbers, which text is best parsed to."""
        numbers = ((c.name, c.encoding) for c in self.schema.used if isinstance(c.encoding, NumberEncoding))
        return {name: pa.float64() for name, encoding in numbers if not encoding.form}

    @property
    def repeated(self) -> list[str]:
        """Columns of which each value stands in two rows or more on average, and a target that is text."""
        few = [column.name for column in self.schema.used if 2 * column.n_distinct <= self.schema.n_rows]
        return [*few, *([str(self.choice.target)] if self.target_type == pa.string() else [])]

    @property
    def texts(self) -> list[str]:
        """Columns of categories, and a target that is text: a long text may stand in many rows."""
        categories = [c.name for c in self.schema.used if isinstance(c.encoding, CategoryEncoding)]
        return [*categories, *([str(self.choice.target)] if self.target_type == pa.string() else [])]


def resolve_columns(
    fields: pa.Schema, sample: Iterable[Any], choice: ColumnSelection, sample_fields: pa.Schema | None = None
) -> Columns:
    """The columns of a table.

    Parameters
    ----------
    fields : pyarrow.Schema
        What the files agree on: see `common_fields`.
    sample : iterable of pyarrow.RecordBatch
        Rows from all over the table, from which a schema is learned unless the choice has one.
    choice : ColumnSelection
    sample_fields : pyarrow.Schema or None
        The types of the columns of the sample, if they are others.
    """
    target_type = None if choice.target is None else _target_type(choice.target, fields.field(choice.target).type)
    schema, uncertain = choice.schema, np.empty(0, np.int64)
    if schema is None:
        sample_fields = fields if sample_fields is None else sample_fields
        table = pa.Table.from_batches([_cast(batch, sample_fields) for batch in sample], sample_fields)
        for name in choice.exclude:  # it is not read, but the schema names it
            table = table.append_column(name, pa.nulls(table.num_rows))
        special = {"target": choice.target, "weight": choice.weight, "row_id": choice.row_id}
        schema = learn_schema(table, choice.options, **special)
        if choice.scale in MEASURED_SCALES:
            uncertain = uncertain_features(schema, table)
    return Columns(choice=choice, schema=schema, target_type=target_type, uncertain=uncertain)


def _cast(batch: Any, fields: pa.Schema) -> Any:
    """A batch of one file with the types that all files agree on."""
    arrays = []
    for name, type_ in zip(fields.names, fields.types, strict=True):
        values = batch.column(name)
        if values.type != type_ and pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        arrays.append(values if values.type == type_ else values.cast(type_, safe=False))
    return pa.record_batch(arrays, schema=fields)


def common_fields(schemas: Mapping[str, pa.Schema], choice: ColumnSelection) -> pa.Schema:
    """The columns that are read, and one type for each; ``schemas`` maps the name of a file to its schema.

    Raises ValueError unless every file has them once, and with values of one kind.
    """
    names = _names(schemas, choice)
    fields = pa.schema([(name, _common_type(schemas, name)) for name in names])
    if choice.weight is not None and kind_of(fields.field(choice.weight).type) not in ("number", "nothing"):
        raise ValueError(f"The weight column {choice.weight!r} is not numeric.")
    return fields


def _names_shown(missing: str, names: Sequence[str]) -> str:
    """The names of a file, and one that was perhaps meant."""
    folded = {name.strip().casefold(): name for name in names}
    close = get_close_matches(missing.strip().casefold(), list(folded), n=1)
    meant = f"Did you mean {folded[close[0]]!r}? " if close else ""
    return f"{meant}Its columns are {', '.join(names[:_MAX_NAMES_SHOWN])}{', ...' * (len(names) > _MAX_NAMES_SHOWN)}."


def _names(schemas: Mapping[str, pa.Schema], choice: ColumnSelection) -> list[str]:
    first = next(iter(schemas))
    present = {file: Counter(schema.names) for file, schema in schemas.items()}
    everything = choice.schema is None and choice.columns is None
    if choice.schema is not None:
        names = choice.schema.reads
    else:
        left_out = {*choice.special, *choice.exclude}
        names = list(choice.columns or (name for name in present[first] if name not in left_out))
    if not names:
        raise ValueError(f"{first!r} has no column beside {' and '.join(map(repr, choice.special)) or 'none'}.")
    for file, names_in_file in present.items():
        for name in (*names, *choice.special, *(choice.exclude if file == first else ())):
            if name not in names_in_file:
                raise ValueError(f"{file!r} has no column {name!r}. {_names_shown(name, list(names_in_file))}")
            if names_in_file[name] > 1:
                raise ValueError(f"{file!r} has {names_in_file[name]} columns named {name!r}. Rename them.")
        extra = sorted(set(names_in_file) - set(present[first]) - set(choice.exclude)) if everything else []
        if extra:
            raise ValueError(
                f"{file!r} has a column {extra[0]!r} that {first!r} has not. Name those to use: columns=[...]."
            )
    return [*names, *choice.special]


def kind_of(column: pa.DataType) -> str:
    """``"number"``, ``"text"``, ``"date"``, ``"vector"``, ``"nothing"`` (only nulls), or the name of another type."""
    if pa.types.is_null(column):
        return "nothing"
    if pa.types.is_boolean(column) or pa.types.is_integer(column) or pa.types.is_floating(column):
        return "number"
    if pa.types.is_decimal(column):
        return "number"
    if is_date(column):
        return "date"
    if vector_item(column) is not None:
        return "vector"
    return "text" if pa.types.is_dictionary(column) or is_text(column) else str(column)


def _common_type(schemas: Mapping[str, pa.Schema], name: str) -> pa.DataType:
    """A type that holds the values of a column in every file; they must be of one kind."""
    seen: dict[pa.DataType, str] = {}
    for file, schema in schemas.items():
        seen.setdefault(schema.field(name).type, file)
    if len(seen) == 1:
        return next(iter(seen))
    kinds: dict[str, tuple[pa.DataType, str]] = {}
    for type_, file in seen.items():
        if not pa.types.is_null(type_):
            kinds.setdefault(kind_of(type_), (type_, file))
    if len(kinds) > 1:
        (first, first_file), (other, other_file) = list(kinds.values())[:2]
        raise ValueError(
            f"Column {name!r} is {first} in {first_file!r} and {other} in {other_file!r}. Write it with one type."
        )
    if "number" in kinds:
        return pa.from_numpy_dtype(np.result_type(*(_plain_number(type_) for type_ in seen)))
    if "text" in kinds:
        return pa.string()
    if "vector" in kinds:
        return pa.list_(pa.float64())
    return pa.timestamp("us", "UTC") if "date" in kinds else next(iter(kinds.values()))[0]


def _target_type(name: str, type_: pa.DataType) -> pa.DataType:
    """The type that the target is read as, in every file."""
    kind = kind_of(type_)
    if kind == "text":
        return pa.string()
    if pa.types.is_nested(value_type(type_)):
        raise ValueError(f"The target {name!r} is {type_}; it must be one value a row.")
    return pa.from_numpy_dtype(np.dtype(_plain_number(type_))) if kind == "number" else type_


def _plain_number(column: pa.DataType) -> Any:
    if pa.types.is_null(column):
        return np.dtype(np.bool_)
    return np.dtype(np.float64) if pa.types.is_decimal(column) else np.dtype(column.to_pandas_dtype())
