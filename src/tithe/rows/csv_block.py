"""A block of delimited text, parsed into columns.

Text that does not fit the type of its column becomes a null. A row that has too many or too few values, or is no
UTF-8, is a bad row. Both are found by Arrow over whole columns: a block with such rows takes about twice as long.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.rows.columns import Columns
from tithe.rows.dialect import GAPS, Dialect
from tithe.rows.lines import ambiguous_rows, split_rows
from tithe.rows.rows import BlockBuilder, fault

_PARSE_BYTES = 2**22  # of a block that Arrow parses
_MAX_PARSE_BYTES = 2**31 - 1
_MIN_PARSED = 0.95  # share of the values of a column from which on the others are gaps
_COMMA_NUMBER = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?\s*$"  # such as 7, 1.234,56 and 4,4e-05
_MAY_BE_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"  # such as 4,282: a number of thousands, or of decimals
_GROUPED = r"^\s*[+-]?\d{1,3}(\.\d{3})+(,\d+)?\s*$"  # such as 1.234 and 1.234,56
_UNREADABLE = "\ufdd0"  # stands for bytes that are not UTF-8: no character of any text has this code
_PATTERNS = {  # what Arrow parses to a type, the types in the order in which they are tried
    pa.int64(): r"^-?0*(\d{1,18}|[1-8]\d{18}|[xX][0-9a-fA-F]{1,15})$",
    pa.float64(): r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf(inity)?|nan(\(\w*\))?))$",
    pa.bool_(): r"^(?i:true|false|[01])$",
}
_GAPS = pa.array(GAPS)

codecs.register_error("tithe.unreadable", lambda error: (_UNREADABLE, error.end))  # type: ignore[attr-defined]


def readable(data: bytes) -> bytes:
    """The text with a mark in place of each byte that is not UTF-8; the same object if all of it is."""
    if data.isascii():
        return data
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
        return data
    except pa.ArrowInvalid:
        pieces = (data[start : start + 2**20] for start in range(0, len(data), 2**20))
        return b"".join(text.encode() for text in codecs.iterdecode(pieces, "utf-8", "tithe.unreadable"))


def parse_column(texts: Any, type_: pa.DataType) -> Any:
    """An Arrow array of text as numbers or booleans, as Arrow's reader of CSV parses them; odd values are null.

    >>> parse_column(pa.array(["1", " 2.5 ", "oops", "?"]), pa.float64()).to_pylist()
    [1.0, 2.5, None, None]
    """
    if pa.types.is_string(type_):
        return texts
    try:
        values = texts.cast(type_)
        if not pa.types.is_floating(type_) or not pc.any(pc.is_nan(values)).as_py():
            return values
    except pa.ArrowInvalid:
        pass
    trimmed = pc.utf8_trim(texts, " \t")
    fits = pc.match_substring_regex(trimmed, _PATTERNS[type_])
    fits = pc.and_(fits, pc.invert(pc.is_in(texts, value_set=_GAPS)))
    return pc.if_else(fits, trimmed, pa.scalar(None, pa.string())).cast(type_)


class Probe(NamedTuple):
    """Whole lines of a file from which types are learned."""

    file: str
    dialect: Dialect
    data: bytes


def text_tables(probes: Sequence[Probe]) -> list[Any]:
    """The columns of some lines as tables of text, values of whole files among them.

    Rows that are too long or too short are ignored here and refused when they are read.
    """
    sound: list[Any] = []
    unsound: list[Any] = []
    for probe in probes:
        names = probe.dialect.names
        data = readable(probe.data)
        if not data.strip(b"\r\n"):
            continue
        table, wrong = probe.dialect.read(data, dict.fromkeys(names, pa.string()), names, _block_size(data))
        for name, value in probe.dialect.constants.items():
            table = table.append_column(name, pa.repeat(value, table.num_rows))
        # a block that was cut inside quotes has rows of wrong length; it is used only if there is no better block
        (unsound if wrong and b'"' in data else sound).append(table)
    return sound if any(table.num_rows for table in sound) else unsound


def learn_types(tables: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The types of some columns of text: whole numbers, numbers, booleans, or text.

    It is the first type that all values parse to, gaps aside, or else the first that 95 % parse to.
    """
    columns: dict[str, list[Any]] = {}
    for table in tables:
        for name, texts in zip(table.column_names, table.columns, strict=True):
            if name in names and pa.types.is_string(texts.type):
                columns.setdefault(name, []).extend(texts.chunks)
    return {name: _learn_type(pa.chunked_array(texts, pa.string())) for name, texts in columns.items()}


def _block_size(data: bytes) -> int:
    """Bytes for Arrow to parse at once where any row may be longer than the usual number."""
    return max(1, min(len(data), _MAX_PARSE_BYTES))


def _learn_type(texts: Any) -> pa.DataType:
    type_ = _type_of_all(texts)
    if type_ is not None or not len(texts):
        return type_ or pa.float64()
    trimmed = pc.utf8_trim(texts, " \t")
    values = pc.filter(trimmed, pc.invert(pc.is_in(trimmed, value_set=_GAPS)))
    type_ = _type_of_all(values)
    if type_ is not None or not len(values):
        return type_ or pa.float64()
    for type_, pattern in _PATTERNS.items():
        if _share(pc.match_substring_regex(values, pattern)) >= _MIN_PARSED:
            return type_
    return pa.string()


def _type_of_all(values: Any) -> pa.DataType | None:
    """The first type that all values parse to; None if there is none but text."""
    for type_ in _PATTERNS if len(values) else ():
        try:
            values.cast(type_)
            return type_
        except pa.ArrowInvalid:
            continue
    return None


def comma_columns(probes: Sequence[Probe], tables: Sequence[Any], is_read: Callable[[str], bool]) -> frozenset[str]:
    """The columns of text that are numbers, some with a decimal comma. There are none where commas separate values.

    Columns that are read are refused if commas may group thousands in each of them.
    """
    if all(probe.dialect.delimiter == "," for probe in probes):
        return frozenset()
    columns: dict[str, list[Any]] = {}
    for table in tables:
        for name, texts in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_string(texts.type):
                columns.setdefault(name, []).extend(texts.chunks)
    examples = {name: _comma_numbers(pa.chunked_array(texts, pa.string())) for name, texts in columns.items()}
    with_commas = {name: numbers for name, numbers in examples.items() if len(numbers)}
    if all(pc.all(pc.match_substring_regex(numbers, _MAY_BE_THOUSANDS)).as_py() for numbers in with_commas.values()):
        for name in filter(is_read, with_commas):
            raise ValueError(
                f"Column {name!r} has numbers such as {with_commas[name][0].as_py().strip()!r}, of which the comma may "
                "group thousands or begin decimals. Write them without commas, or leave the column out (exclude)."
            )
    return frozenset(with_commas)


def _comma_numbers(texts: Any) -> Any:
    """The numbers with a comma in a column of numbers; none if it is no such column."""
    values = pc.filter(texts, pc.invert(pc.is_in(pc.utf8_trim(texts, " \t"), value_set=_GAPS)))
    fits = pc.match_substring_regex(values, _COMMA_NUMBER)
    numbers = pc.filter(values, fits)
    return pc.filter(numbers, pc.match_substring(numbers, ",")) if _share(fits) >= _MIN_PARSED else texts[:0]


def with_decimal_points(table: Any, columns: Collection[str]) -> Any:
    """A table of text with the numbers of some columns written with decimal points, and without points in groups.

    >>> with_decimal_points(pa.table({"a": ["1,5", "-1.234,5", "1.234", "7", "4,4e-5"]}), ["a"])["a"].to_pylist()
    ['1.5', '-1234.5', '1234', '7', '4.4e-5']
    """
    for at, name in enumerate(table.column_names):
        texts = table.column(name)
        if name in columns and pa.types.is_string(texts.type):
            whole = pc.if_else(pc.match_substring_regex(texts, _GROUPED), pc.replace_substring(texts, ".", ""), texts)
            table = table.set_column(at, name, _with_point(whole))
    return table


def _with_point(texts: Any) -> Any:
    return pc.replace_substring_regex(texts, r"^(\s*[+-]?\d+),(\d+(?:[eE][+-]?\d+)?\s*)$", r"\1.\2")


def _share(flags: Any) -> float:
    return float(pc.mean(flags).as_py() or 0.0)


@dataclass(frozen=True)
class CsvRows:
    """Blocks of text as rows: the columns, the type that each is parsed to, and those that have decimal commas."""

    columns: Columns
    types: dict[str, Any]
    with_commas: frozenset[str] = frozenset()

    def table(
        self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str], only: Sequence[str]
    ) -> tuple[Any, Array]:
        """Some columns of a block that has ``len(ids)`` rows, and the ids of the rows that are not bad."""
        text = readable(data)
        in_file = [name for name in only if name not in dialect.constants]
        try:
            table, wrong, marked = self._parsed(text, dialect, in_file, marked=text is not data)
        except pa.ArrowException as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}") from error
        if table.num_rows + len(wrong) != len(ids):
            return self._without_ambiguous_rows(data, dialect, ids, locate, only)
        faults = {at: f"it has {n} values instead of {len(dialect.names)}" for at, n in wrong}
        good = np.delete(np.arange(len(ids)), list(faults))
        if marked:
            faults |= {int(good[at]): f"column {name!r} is not text in UTF-8" for at, name in marked.items()}
            is_sound = np.ones(len(good), bool)
            is_sound[list(marked)] = False
            table, good = table.filter(pa.array(is_sound)), good[is_sound]
        self._check(faults, ids, locate)
        for name in only:
            if name in dialect.constants:
                table = table.append_column(name, pa.repeat(dialect.constants[name], len(good)))
        return self._without_empty_target(table.select(only)), ids[good]

    def _without_empty_target(self, table: Any) -> Any:
        """The table with nulls for the empty texts of the target: a class has a name."""
        target = self.columns.choice.target
        if target not in table.column_names or not pa.types.is_string(table.column(target).type):
            return table
        texts = table.column(target)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        return table.set_column(table.column_names.index(target), target, texts)

    def _parsed(
        self, data: bytes, dialect: Dialect, only: Sequence[str], *, marked: bool
    ) -> tuple[Any, list[tuple[int, int]], dict[int, str]]:
        """The table, the wrong rows that it lacks, and those of its rows with bytes that are not UTF-8, by column."""
        with_fractions = {name for name in only if pa.types.is_floating(self.types[name])}
        commas = with_fractions & self.with_commas
        if not marked and (not commas or commas == with_fractions):  # Arrow takes all columns to have commas, or none
            try:
                decimal = "," if commas else "."
                table, wrong = dialect.read(data, self.types, only, _PARSE_BYTES, decimal=decimal)
                return with_decimal_points(table, self.with_commas), wrong, {}
            except pa.ArrowInvalid:
                pass  # a value is no number, or a row is longer than a block
        texts, wrong = dialect.read(data, dict.fromkeys(only, pa.string()), only, _block_size(data))
        texts = with_decimal_points(texts, self.with_commas)
        columns = [parse_column(texts.column(name), self.types[name]) for name in only]
        unreadable: dict[int, str] = {}
        for name, values in zip(only, columns, strict=True) if marked else ():
            odd = np.flatnonzero(pc.is_null(values)) if values.type != pa.string() else np.arange(len(values))
            has_mark = pc.match_substring(texts.column(name).take(pa.array(odd)), _UNREADABLE)
            unreadable |= dict.fromkeys(odd[np.asarray(has_mark)].tolist(), name)
        return pa.table(columns, names=list(only)), wrong, unreadable

    def _without_ambiguous_rows(
        self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str], only: Sequence[str]
    ) -> tuple[Any, Array]:
        """The table of a block in which Arrow finds other rows than were cut."""
        rows = split_rows(data)
        ambiguous = ambiguous_rows(data, dialect.delimiter)
        if len(rows) != len(ids) or not len(ambiguous):
            raise FileFormatError(f"From {locate(int(ids[0]))} on: are quotes where they belong?")
        self._check(dict.fromkeys(ambiguous.tolist(), "it has a quote or a line end inside a value"), ids, locate)
        rest = np.delete(np.arange(len(ids)), ambiguous)
        if not len(rest):
            return pa.schema([(name, self.types[name]) for name in only]).empty_table(), ids[:0]
        return self.table(b"".join([rows[at] for at in rest]), dialect, ids[rest], locate, only)

    def _check(self, faults: dict[int, str], ids: Array, locate: Callable[[int], str]) -> None:
        """Refuse the first bad row, unless such rows are skipped."""
        if faults and self.columns.choice.bad_rows == "error":
            first = min(faults)
            raise fault(locate(int(ids[first])), faults[first])

    def load(self, data: bytes, dialect: Dialect, ids: Array, locate: Callable[[int], str]) -> Block:
        """The rows of a block that has ``len(ids)`` of them, checked."""
        table, ids = self.table(data, dialect, ids, locate, self.columns.read)
        rows = BlockBuilder(self.columns, len(ids))
        try:
            for batch in table.to_batches():
                rows.add(batch)
        except (ValueError, pa.ArrowException) as error:
            raise FileFormatError(f"From {locate(int(ids[0]))} on: {error}") from error
        return rows.block(ids, locate)
