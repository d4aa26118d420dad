"""Kinds of columns: how the values of one column become features.

An encoding is learned once (`tithe.rows.learn`) and then applied to any rows. It is a small frozen object that can be
stored with a model, or as JSON. Encodings of numbers, Booleans and dates fill every feature of every row
(`DenseEncoding`); those of categories and texts (`tithe.rows.encodings`) have few entries that are not zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from tithe.core.data import Array, grouped
from tithe.core.state_checks import Each, Integer, Number, Optional, Storable, Text, expect
from tithe.rows.forms import DATE_ORDERS, NUMBER_FORMS
from tithe.rows.interleave import Repeated
from tithe.rows.values import (
    as_text,
    coded_texts,
    codes_of,
    days_of,
    few_values,
    hours_of,
    is_date,
    is_number,
    is_span,
    is_text,
    numbers_of,
    parsed_days,
    parsed_numbers,
    plain_numbers,
    truths_of,
    value_type,
    vector_item,
    vectors_of,
    without_gaps,
    words_of,
)

_LEAST_SPREAD = 1e-290  # its reciprocal is finite
MOST_QUOTED = 60  # characters of a value that a message quotes
_ENOUGH_TO_JUDGE = 20  # values that are no numbers: fewer are odd values, more are another column
_DATE_CYCLES = ("year", "week", "day")


class Entries(NamedTuple):
    """Values that are not zero: row ``rows[i]`` has ``values[i]`` in feature ``places[i]`` of the column."""

    rows: Array
    places: Array
    values: Array


class Faults(NamedTuple):
    """What some values of a column are that those it was learned from were not: see `ColumnWatch`."""

    gaps: int
    unreadable: int = 0
    numbers: Array | None = None  # (n,) or (n, size), in the units of the column; None for categories and texts
    unseen: int = 0


@dataclass(frozen=True, kw_only=True)
class ColumnEncoding(Storable, ABC):
    """How the values of one column become ``width`` features."""

    kind: ClassVar[str]
    use: ClassVar[str]  # the same, for people

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features."""

    @abstractmethod
    def names(self, column: str) -> list[str]:
        """The names of the features of a column of this name."""

    @abstractmethod
    def describe(self) -> str:
        """A short text for people: what is done with the column."""

    @abstractmethod
    def accepts(self, type_: pa.DataType) -> bool:
        """Whether values of an Arrow type can be encoded."""

    @abstractmethod
    def entries(self, values: Any, na: Sequence[str]) -> Entries | Repeated:
        """The features of an Arrow array for the sparse layout; those that are not zero ordered by row and place."""

    @property
    def known(self) -> Sequence[str]:
        """The values of a category that have a feature of their own."""
        return ()

    @property
    def scaling(self) -> list[tuple[float, float]]:
        """Centre and spread of every feature."""
        return [(0.0, 1.0)] * self.width

    @abstractmethod
    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        """What the values are that those it was learned from were not.

        ``noted`` are the CRC-32 of the values and words without a feature of their own, None if not all are known.
        """

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}


# -- numbers, truth and dates: every row has every feature -----------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DenseEncoding(ColumnEncoding):
    """Features that every row has. A gap is filled with ``fill``, and marked by a feature of its own if ``marked``.

    ``fill`` None: the row of a gap is bad; it gets NaN.
    """

    fill: Annotated[float | None, Optional(Number())]
    marked: bool

    @property
    def width(self) -> int:
        return 1 + self.marked

    def names(self, column: str) -> list[str]:
        return [column, f"{column} missing"][: self.width]

    def accepts(self, type_: pa.DataType) -> bool:
        inner = value_type(type_)
        return is_number(inner) or is_text(inner) or pa.types.is_boolean(inner) or pa.types.is_null(inner)

    @abstractmethod
    def read(self, values: Any, na: Sequence[str]) -> Array:
        """The values as numbers (n,), in the units of the column, NaN for gaps and what is not readable."""

    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        numbers = self.read(values, na)
        missing, unreadable = np.flatnonzero(np.isnan(numbers)), 0
        if len(missing) and is_text(value_type(values.type)):
            texts = without_gaps(as_text(values.take(pa.array(missing))), na)
            unreadable = len(texts) - texts.null_count
        return Faults(len(missing), unreadable, numbers=numbers)

    @abstractmethod
    def columns(self, values: Any, na: Sequence[str], *, trusted: bool = False) -> list[Array]:
        """The features before scaling, each (n,). ``trusted``: no value is NaN or infinite, if there is no null."""

    def entries(self, values: Any, na: Sequence[str]) -> Repeated:
        return Repeated(self._scaled(self.columns(values, na)), np.arange(len(values)))

    def _scaled(self, columns: list[Array]) -> Array:
        """Features side by side, in the layout of one row after the other."""
        out = np.empty((len(columns[0]), self.width))
        for j, (column, (center, spread)) in enumerate(zip(columns, self.scaling, strict=True)):
            out[:, j] = (column - center) * (1.0 / spread)
        return out

    def _filled(self, numbers: Array) -> tuple[Array, Array]:
        """Numbers without gaps, and where the gaps are."""
        gaps = np.isnan(numbers)
        return np.where(gaps, np.nan if self.fill is None else self.fill, numbers), gaps

    def _marks(self, gaps: Array) -> list[Array]:
        return [gaps.astype(np.float64)] if self.marked else []

    def _gap_words(self) -> str:
        if self.fill is None:
            return ""
        return f"; gaps become {grouped(self.fill)}{' and are marked' if self.marked else ''}"


@dataclass(frozen=True, kw_only=True)
class NumberEncoding(DenseEncoding):
    """(t(x) - center) / spread, and a feature that marks gaps. ``form``: how numbers are written in texts.

    With a ``reach``, long tails are drawn in: t(x) = middle + reach asinh((x - middle) / reach), which is nearly x
    within the reach of the middle, and grows like a logarithm beyond. Without, t(x) = x.
    """

    center: Annotated[float, Number()]
    spread: Annotated[float, Number(least=_LEAST_SPREAD)]
    form: Annotated[str, Text(NUMBER_FORMS)] = ""
    middle: Annotated[float, Number()] = 0.0
    reach: Annotated[float | None, Optional(Number(least=_LEAST_SPREAD))] = None

    kind: ClassVar[str] = "number"
    use: ClassVar[str] = "number"

    @property
    def scaling(self) -> list[tuple[float, float]]:
        return [(self.center, self.spread), (0.0, 1.0)][: self.width]

    def accepts(self, type_: pa.DataType) -> bool:
        return super().accepts(type_) or (self.form == "seconds" and is_span(type_))

    def read(self, values: Any, na: Sequence[str]) -> Array:
        return numbers_of(values, na, self.form)

    def drawn_in(self, numbers: Array) -> Array:
        """t(x)."""
        if self.reach is None:
            return numbers
        drawn: Array = self.middle + self.reach * np.arcsinh((numbers - self.middle) / self.reach)
        return drawn

    def drawn_out(self, drawn: Array) -> Array:
        """The numbers x whose t(x) are given."""
        if self.reach is None:
            return drawn
        with np.errstate(over="ignore"):
            numbers: Array = self.middle + self.reach * np.sinh((drawn - self.middle) / self.reach)
        return numbers

    def columns(self, values: Any, na: Sequence[str], *, trusted: bool = False) -> list[Array]:
        if trusted and not self.marked and not na and is_number(values.type) and not values.null_count:
            return [self.drawn_in(plain_numbers(values))]
        numbers = self.read(values, na)
        if is_text(value_type(values.type)):
            _check_some_fit(values, na, numbers, "numbers")
        filled, gaps = self._filled(numbers)
        return [self.drawn_in(filled), *self._marks(gaps)]

    def describe(self) -> str:
        scaled = (self.center, self.spread) != (0.0, 1.0)
        words = f"centred at {grouped(self.center)}, divided by {grouped(self.spread)}" if scaled else "as it is"
        tails = ""
        if self.reach is not None:
            away = f"x {'-' if self.middle >= 0.0 else '+'} {grouped(abs(self.middle))}"
            tails = f"long tails drawn in, asinh(({away}) / {grouped(self.reach)}); "
        return _FORM_WORDS[self.form] + tails + words + self._gap_words()


_FORM_WORDS = {
    "": "",
    "point": "written as 1,234.5; ",
    "comma": "written as 1.234,5; ",
    "seconds": "durations in seconds, ",
    "months": "durations in months, ",
}


@dataclass(frozen=True, kw_only=True)
class VectorEncoding(DenseEncoding):
    """A list of ``size`` numbers as that many features, (x - center) / spread with one center and spread for all."""

    size: Annotated[int, Integer(least=1, most=2**20)]
    center: Annotated[float, Number()]
    spread: Annotated[float, Number(least=_LEAST_SPREAD)]

    kind: ClassVar[str] = "vector"
    use: ClassVar[str] = "vector"

    @property
    def width(self) -> int:
        return self.size + self.marked

    def names(self, column: str) -> list[str]:
        return [*(f"{column}[{i}]" for i in range(self.size)), f"{column} missing"][: self.width]

    @property
    def scaling(self) -> list[tuple[float, float]]:
        return [*[(self.center, self.spread)] * self.size, (0.0, 1.0)][: self.width]

    def accepts(self, type_: pa.DataType) -> bool:
        return vector_item(type_) is not None or pa.types.is_null(type_)

    def read(self, values: Any, na: Sequence[str]) -> Array:
        if pa.types.is_null(values.type):
            return np.full((len(values), self.size), np.nan)
        rows = vectors_of(values, self.size)
        return np.where(np.isfinite(rows), rows, np.nan)

    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        rows = self.read(values, na)
        return Faults(int(np.isnan(rows).any(axis=1).sum()), numbers=rows)

    def columns(self, values: Any, na: Sequence[str], *, trusted: bool = False) -> list[Array]:
        if trusted and not self.marked and not values.null_count and not pa.types.is_null(values.type):
            return list(vectors_of(values, self.size).T)
        filled, gaps = self._filled(self.read(values, na))
        return [*filled.T, *self._marks(np.any(gaps, axis=1))]

    def describe(self) -> str:
        scaled = (self.center, self.spread) != (0.0, 1.0)
        words = (
            f", all centred at {grouped(self.center)}, divided by {grouped(self.spread)}" if scaled else ", as they are"
        )
        return f"{self.size} numbers{words}{self._gap_words()}"


@dataclass(frozen=True, kw_only=True)
class BooleanEncoding(DenseEncoding):
    """1 for true and 0 for false, and a feature that marks gaps."""

    kind: ClassVar[str] = "boolean"
    use: ClassVar[str] = "yes/no"

    def read(self, values: Any, na: Sequence[str]) -> Array:
        return truths_of(values, na)

    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        found = super().faults(values, na, noted)
        if not is_number(values.type):
            return found
        others = np.isfinite(numbers_of(values, na)) & np.isnan(self.read(values, na))
        return found._replace(unreadable=int(others.sum()))

    def columns(self, values: Any, na: Sequence[str], *, trusted: bool = False) -> list[Array]:
        truths = self.read(values, na)
        _check_some_fit(values, na, truths, "yes or no")
        filled, gaps = self._filled(truths)
        return [filled, *self._marks(gaps)]

    def describe(self) -> str:
        return "0 for false, 1 for true" + self._gap_words()


@dataclass(frozen=True, kw_only=True)
class DateEncoding(DenseEncoding):
    """The days since 1970, scaled, and waves of the time of the ``cycles``: year, week, day.

    The waves are sine and cosine of h times the angle, divided by h, for h = 1 .. ``harmonics``: with the share t of
    the cycle that is over, sin(2 pi h t) / h and cos(2 pi h t) / h. A gap has waves of 0, which is no time at all.
    ``order``: that of the numbers of dates in texts.
    """

    center: Annotated[float, Number()]
    spread: Annotated[float, Number(least=_LEAST_SPREAD)]
    cycles: Annotated[tuple[str, ...], Each(Text(_DATE_CYCLES))]
    order: Annotated[str, Text(DATE_ORDERS)] = ""
    harmonics: Annotated[int, Integer(least=1, most=24)] = 1

    kind: ClassVar[str] = "date"
    use: ClassVar[str] = "date"
    _unit: ClassVar[str] = "days since 1970"

    @property
    def width(self) -> int:
        return 1 + 2 * self.harmonics * len(self.cycles) + self.marked

    def names(self, column: str) -> list[str]:
        numbers = ["", *(f" {h}" for h in range(2, self.harmonics + 1))]
        waves = [f"{column} {cycle} {wave}{h}" for cycle in self.cycles for h in numbers for wave in ("sin", "cos")]
        return [column, *waves, f"{column} missing"][: self.width]

    @property
    def scaling(self) -> list[tuple[float, float]]:
        return [(self.center, self.spread), *[(0.0, 1.0)] * (self.width - 1)]

    def accepts(self, type_: pa.DataType) -> bool:
        inner = value_type(type_)
        return is_date(inner) or is_text(inner) or pa.types.is_null(inner)

    def read(self, values: Any, na: Sequence[str]) -> Array:
        return days_of(values, na, self.order)

    def _days(self, read: Array) -> Array:
        """What was read, in days."""
        return read

    def columns(self, values: Any, na: Sequence[str], *, trusted: bool = False) -> list[Array]:
        features, codes = self._of_distinct(values, na)
        return [feature[codes] for feature in features]

    def entries(self, values: Any, na: Sequence[str]) -> Repeated:
        features, codes = self._of_distinct(values, na)
        return Repeated(self._scaled(features), codes)

    def _of_distinct(self, values: Any, na: Sequence[str]) -> tuple[list[Array], Array]:
        """The features of the different values before scaling, and which of these each value is: (n,)."""
        coded = few_values(values)
        if coded is None:
            read, codes = self.read(values, na), np.arange(len(values))
        else:
            read = np.append(self.read(coded.dictionary, na), np.nan)
            codes = codes_of(coded)  # -1 reads the last
        if is_text(value_type(values.type)):
            _check_some_fit(values, na, read[codes], f"{self.use}s")
        return self._features(read), codes

    def _features(self, read: Array) -> list[Array]:
        filled, gaps = self._filled(read)
        waves = []
        for cycle in self.cycles:
            angle = 2 * math.pi * _share_of_cycle(self._days(np.where(gaps, 0.0, read)), cycle)
            sines, cosines = np.sin(angle), np.cos(angle)
            sine, cosine = sines, cosines
            for h in range(1, self.harmonics + 1):
                waves += [np.where(gaps, 0.0, sine / h), np.where(gaps, 0.0, cosine / h)]
                sine, cosine = sine * cosines + cosine * sines, cosine * cosines - sine * sines
        return [filled, *waves, *self._marks(gaps)]

    def describe(self) -> str:
        scaled = (self.center, self.spread) != (0.0, 1.0)
        words = f", centred at {grouped(self.center)}, divided by {grouped(self.spread)}" if scaled else ""
        written = {"mdy": ", written month first", "dmy": ", written day first"}.get(self.order, "")
        waves = f"; time of {', '.join(self.cycles)}" if self.cycles else ""
        return f"{self._unit}{written}{words}{waves}{self._gap_words()}"


@dataclass(frozen=True, kw_only=True)
class TimeEncoding(DateEncoding):
    """The hours of the day, scaled, and sine and cosine of the time of day."""

    kind: ClassVar[str] = "time"
    use: ClassVar[str] = "time"
    _unit: ClassVar[str] = "hours of the day"

    def accepts(self, type_: pa.DataType) -> bool:
        inner = value_type(type_)
        return is_span(inner) or is_text(inner) or pa.types.is_null(inner)

    def read(self, values: Any, na: Sequence[str]) -> Array:
        return hours_of(values, na)

    def _days(self, read: Array) -> Array:
        return read / 24.0


def _share_of_cycle(days: Array, cycle: str) -> Array:
    """How much of the year, the week (from Monday on) or the day is over: (n,) in [0, 1)."""
    if cycle == "day":
        return np.mod(days, 1)
    if cycle == "week":
        weeks: Array = np.mod(days + 3, 7) / 7  # 1970-01-01 was a Thursday
        return weeks
    years = np.floor(days).astype(np.int64).view("datetime64[D]").astype("datetime64[Y]")
    first = years.astype("datetime64[D]").astype(np.int64)
    after = (years + np.timedelta64(1, "Y")).astype("datetime64[D]").astype(np.int64)
    share: Array = (days - first) / (after - first)
    return share


def _check_some_fit(values: Any, na: Sequence[str], parsed: Array, what: str) -> None:
    """Refuse many values of which none is what it should be: it is another column, not one with odd values."""
    if len(parsed) < _ENOUGH_TO_JUDGE or not np.isnan(parsed).all():
        return
    texts = without_gaps(as_text(values), na).drop_null()
    if len(texts) >= _ENOUGH_TO_JUDGE:
        raise ValueError(
            f"holds {'text' if is_text(value_type(values.type)) else 'values'} such as "
            f"{texts[0].as_py()[:MOST_QUOTED]!r}, but it held {what} when the schema was learned"
        )


MAX_WIDTH = 2**20  # features of one column: a file that says more is damaged


@dataclass(frozen=True, kw_only=True)
class PlacedEncoding(ColumnEncoding):
    """Features most of which are zero in a row."""

    @abstractmethod
    def may_hold(self, values: Any, na: Sequence[str], noted: Collection[int]) -> bool:
        """Whether dates, or numbers with fractions, may be among the texts that it was learned from."""

    @abstractmethod
    def entries(self, values: Any, na: Sequence[str]) -> Entries:
        """The features that are not zero, ordered by row and place."""

    def encode(self, values: Any, na: Sequence[str], out: Array) -> None:
        """Write the features of an Arrow array of n values into ``out``: (n, width)."""
        entries = self.entries(values, na)
        out[:] = 0
        out[entries.rows, entries.places] = entries.values

    def accepts(self, type_: pa.DataType) -> bool:
        inner = value_type(type_)
        plain = is_text(inner) or is_number(inner) or is_date(inner)
        return plain or pa.types.is_boolean(inner) or pa.types.is_null(inner)


def _with_bad_rows(entries: Entries, gaps: Array) -> Entries:
    """The entries, and NaN for rows that have a gap and hence no entry."""
    bad = np.flatnonzero(gaps)
    rows = np.concatenate([entries.rows, bad])
    order = np.argsort(rows, kind="stable")
    places = np.concatenate([entries.places, np.zeros(len(bad), np.int64)])
    values = np.concatenate([entries.values, np.full(len(bad), np.nan)])
    return Entries(rows[order], places[order], values[order])


@dataclass(frozen=True, kw_only=True)
class CategoryEncoding(PlacedEncoding):
    """A category with one feature for each value, or, if ``n_hashes`` is given, values hashed into that many.

    Parameters
    ----------
    values : tuple of str
        In ascending order. Empty if values are hashed.
    scale : float
        What the feature of a row's value is. Below 1 a penalty counts more: see `tithe.rows.effects`.
    n_hashes : int
        0: values are not hashed. The hash is the CRC-32 of the UTF-8 bytes, the same on every machine.
    other : bool
        Whether there is a feature for all other values. If not, they have zeros everywhere.
    gaps : {"mark", "zeros", "bad"}
        A gap has a feature of its own, or zeros everywhere, or makes its row bad.
    """

    values: tuple[str, ...] = ()
    n_hashes: Annotated[int, Integer(most=MAX_WIDTH)] = 0
    other: bool = False
    gaps: Annotated[str, Text(("mark", "zeros", "bad"))] = "zeros"
    scale: Annotated[float, Number(least=1e-3, most=1.0)] = 1.0

    kind: ClassVar[str] = "category"
    use: ClassVar[str] = "category"

    def check_relations(self) -> None:
        expect(list(self.values) == sorted(set(self.values)), "the values of a category do not ascend")
        expect(len(self.values) <= MAX_WIDTH and self.width, "a category has no features")
        expect(not (self.n_hashes and (self.values or self.other)), "a category is hashed and has values as well")

    @property
    def width(self) -> int:
        return len(self.values) + self.n_hashes + self.other + (self.gaps == "mark")

    def names(self, column: str) -> list[str]:
        names = [f"{column}={value}" for value in self.values] + [f"{column}#{i}" for i in range(self.n_hashes)]
        if self.other:
            names.append(f"{column}=other" if "other" not in self.values else f"{column}=other values")
        return [*names, f"{column} missing"] if self.gaps == "mark" else names

    def entries(self, values: Any, na: Sequence[str]) -> Entries:
        codes, texts = coded_texts(values, na)
        places = np.array([*self._places(texts), self.width - 1], np.int64)  # code -1 reads the last
        placed = places[codes]
        gaps = codes < 0
        rows = np.flatnonzero((placed >= 0) & (~gaps | (self.gaps == "mark")))
        entries = Entries(rows, placed[rows], np.full(len(rows), self.scale))
        return _with_bad_rows(entries, gaps) if self.gaps == "bad" else entries

    @property
    def scaling(self) -> list[tuple[float, float]]:
        return [(0.0, 1.0 / self.scale)] * self.width

    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        codes, texts = coded_texts(values, na)
        times = np.bincount(codes[codes >= 0], minlength=len(texts))
        unseen = 0
        if noted is not None:
            known = _places_of(self.values)
            is_new = [text not in known and crc32(text.encode()) not in noted for text in texts]
            unseen = int(times[np.array(is_new, bool)].sum())
        return Faults(int((codes < 0).sum()), unseen=unseen)

    @property
    def known(self) -> Sequence[str]:
        return self.values

    def may_hold(self, values: Any, na: Sequence[str], noted: Collection[int]) -> bool:
        parsed = parsed_days if is_date(value_type(values.type)) else parsed_numbers
        if np.isfinite(parsed(pa.array(self.values, pa.string()))).any():
            return True
        return any(crc32(text.encode()) in noted for text in coded_texts(values, na)[1])

    def _places(self, texts: Sequence[str]) -> list[int]:
        """The features of values; -1 for those that have none."""
        if self.n_hashes:
            return [crc32(text.encode()) % self.n_hashes for text in texts]
        places, rest = _places_of(self.values), len(self.values) if self.other else -1
        return [places.get(text, rest) for text in texts]

    def describe(self) -> str:
        if self.n_hashes:
            words = f"hashed into {self.n_hashes:,} features"
        else:
            words = f"one feature for each of {len(self.values):,} values" + (" and one for all others" * self.other)
            if self.scale < 1.0:
                words += f", {self.scale:g} instead of 1, as a value tells little of the target"
        return words + ("; gaps are marked" if self.gaps == "mark" else "")


@lru_cache(maxsize=256)
def _places_of(values: tuple[str, ...]) -> dict[str, int]:
    return {value: place for place, value in enumerate(values)}


@dataclass(frozen=True, kw_only=True)
class WordsEncoding(PlacedEncoding):
    """The words of a text, in lower case, hashed.

    With ``weights``, one for each feature, such as the inverse document frequency: (1 + log of the count) times the
    weight, divided by the norm of the row. Else the counts, divided by the square root of the number of words. With
    ``whole``, the text as a whole is one more word. A gap has no words; ``bad`` makes its row bad instead. ``scale`` is
    a factor of all features, see `tithe.rows.effects`.
    """

    n_hashes: Annotated[int, Integer(least=1, most=MAX_WIDTH)]
    bad: bool = False
    whole: bool = False
    weights: Annotated[tuple[float, ...], Each(Number(least=0.0))] = ()
    scale: Annotated[float, Number(least=1e-3, most=1e3)] = 1.0

    kind: ClassVar[str] = "text"
    use: ClassVar[str] = "text"

    def check_relations(self) -> None:
        expect(len(self.weights) in (0, self.n_hashes), "the words of a text have other weights than features")

    @property
    def width(self) -> int:
        return self.n_hashes

    def names(self, column: str) -> list[str]:
        return [f"{column}#{i}" for i in range(self.n_hashes)]

    def entries(self, values: Any, na: Sequence[str]) -> Entries:
        texts = without_gaps(as_text(values), na)
        n_words, places = hashed_words(texts, self.n_hashes, whole=self.whole)
        rows = np.repeat(np.arange(len(texts)), n_words)
        cells, counts = np.unique(rows * self.n_hashes + places, return_counts=True)
        rows, places = np.divmod(cells, self.n_hashes)
        if self.weights:
            found = (1.0 + np.log(counts)) * np.array(self.weights)[places]
            norms = np.sqrt(np.bincount(rows, found * found, len(texts)))
            found /= np.where(norms > 0.0, norms, 1.0)[rows]
        else:
            found = counts / np.sqrt(n_words[rows])
        entries = Entries(rows, places, self.scale * found)
        return _with_bad_rows(entries, texts.is_null().to_numpy(zero_copy_only=False)) if self.bad else entries

    def faults(self, values: Any, na: Sequence[str], noted: Collection[int] | None = None) -> Faults:
        texts = without_gaps(as_text(values), na)
        if noted is None:
            return Faults(texts.null_count)
        coded = texts.dictionary_encode()
        n_words, words = words_of(coded.dictionary)
        is_noted = np.array([crc32(word.encode()) in noted for word in words.dictionary.to_pylist()], bool)
        owners = np.repeat(np.arange(len(n_words)), n_words)
        n_noted = np.bincount(owners, is_noted[words.indices.to_numpy(zero_copy_only=False)], len(n_words))
        is_new = (n_words > 0) & (n_noted == 0)
        unseen = is_new[coded.indices.drop_null().to_numpy(zero_copy_only=False)].sum()
        return Faults(texts.null_count, unseen=int(unseen))

    def may_hold(self, values: Any, na: Sequence[str], noted: Collection[int]) -> bool:
        return False

    def describe(self) -> str:
        scale = "" if self.scale == 1.0 else f", times {self.scale:g} by what they tell of the target"
        return f"words{' and whole texts' * self.whole} hashed into {self.n_hashes:,} features{scale}"


def hashed_words(texts: Any, n_hashes: int, *, whole: bool) -> tuple[Array, Array]:
    """How many words each text has, (n,), and the features of all words, text by text."""
    n_words, words = words_of(texts)
    places = _hashes(words, n_hashes)
    if not whole:
        return n_words, places
    alone = texts.dictionary_encode()
    present = np.flatnonzero(np.asarray(alone.is_valid()))
    ends = np.cumsum(n_words)[present]
    return n_words + np.asarray(alone.is_valid()), np.insert(places, ends, _hashes(alone.drop_null(), n_hashes, "="))


def _hashes(words: Any, n_hashes: int, start: str = "") -> Array:
    """The features of a dictionary array of words."""
    found = [crc32((start + word).encode()) % n_hashes for word in words.dictionary.to_pylist()]
    places: Array = np.array(found, np.int64)[words.indices.to_numpy(zero_copy_only=False)]
    return places
