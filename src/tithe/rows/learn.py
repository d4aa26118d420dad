"""Learn what each column of a table is: from a sample of its rows, then from all of them what a sample cannot tell."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from tithe.core.data import Array, grouped
from tithe.core.errors import NoRowsError
from tithe.core.parallel import available_threads
from tithe.rows.doubts import doubts_of_values
from tithe.rows.effects import effect_scale, words_scale
from tithe.rows.encodings import (
    MOST_QUOTED,
    BooleanEncoding,
    CategoryEncoding,
    DateEncoding,
    NumberEncoding,
    TimeEncoding,
    VectorEncoding,
    WordsEncoding,
    hashed_words,
)
from tithe.rows.forms import DECADES, Form, date_order, looks_like, number_form, parsed_months, parsed_spans
from tithe.rows.interleave import sparse_rows
from tithe.rows.leaks import leak, target_kinds
from tithe.rows.schema import MOST_RARE, Column, TableSchema
from tithe.rows.uses import MEASURED_SCALES, TableOptions
from tithe.rows.values import (
    are_truths,
    coded_texts,
    days_of,
    few_values,
    hours_of,
    is_date,
    is_number,
    is_span,
    is_text,
    numbers_of,
    one_array,
    parsed_days,
    parsed_numbers,
    truths_of,
    value_type,
    vector_item,
    vectors_of,
    words_of,
)


def with_odd_values(column: Column, distinct: Any, times: Array, parsed: Array) -> Column:
    """The column, with the number of its texts that were not parsed. ``times`` is how often each of them occurs."""
    odd = np.flatnonzero(np.isnan(parsed))
    if not len(odd):
        return column
    return replace(column, n_odd=int(times[odd].sum()), odd_value=distinct[int(odd[0])].as_py()[:MOST_QUOTED])


SAMPLE_ROWS = 65_536
SAMPLE_RUNS = 64  # neighbouring rows are kept together: whether a column counts up can be seen only there

_PARSED_SHARE = 0.95  # of the texts of a column that must be numbers or dates
_PARTLY = 0.5  # of the texts: if as many are numbers or dates, but fewer than that, it is said
_MOST_PROBED = 256  # rows of the different texts, to see whether they may be numbers or dates at all
_ROWS_PER_TEXT = 10  # texts of several words that occur as often on average are values of a category
_REPEATED = 1.5  # rows of a text on average: with more, whole texts are words too
_FEWEST_HASHES, _MOST_HASHES = 64, 2**16
_MOST_NUMBERS = 2**22  # of vectors that their spread is taken from
_FEWEST_ROWS = 20  # with fewer, nothing is rare, and counting up is chance
_COVERED_SHARE = 0.9  # of the rows: if the values of a category that have a feature cover fewer, all are hashed
_STEP_SHARE = 0.98  # of the neighbours: between two runs of a sample there is a jump
_LEAST_SPREAD = 1e-280
_LEAST_OF_YEAR = 91.0  # days from which on the time of the year is told
_NEARLY = 0.999  # of the rows have one value, or all but one
_ROWS_TO_NOTE = 100
_LONG_TAILS = 4.0  # kurtosis: 3 for a normal distribution, 9 for an exponential one
_REACH = 3.0  # standard deviations of the middle half: within it, numbers hardly change
_HARMONICS = 3  # of each cycle of dates: with those of the week, each of its days can have an effect of its own
_INDEX_NAME = re.compile(r"__index_level_\d+__")
_UNNAMED = re.compile(r"(Unnamed: \d+)?")
_ID_NAME = re.compile(r"(.*[_\-. ])?(id|ids|idx|index|uuid|guid|key|rowid|row_?(no|nr|num|number)?)", re.IGNORECASE)
_CAMEL_ID_NAME = re.compile(r".*[a-z](ID|Id|UUID|Key)")
_ID_LOSS = "left out: every row has a value of its own; columns=[...] uses it all the same"
_WORDS_LOSS = "its words are hashed, without their order"
_WITH_UNITS = r"(?i)[\d ][dhms]\b|^-|week|wks?|day|min|sec|h(?:ou)?rs?"  # of durations, not the m of pm
_INDEX_LOSS = "left out: it is the index of a frame"
_CONSTANT_LOSS = "left out: every row has the same value; columns=[...] uses it all the same"
_GAPS_LOSS = "left out: no row has a value"
_FLOAT32_TYPES = (pa.float16(), pa.float32(), pa.bool_(), pa.int8(), pa.int16(), pa.uint8(), pa.uint16())


def learn_schema(
    table: pa.Table,
    options: TableOptions | None = None,
    *,
    target: str | None = None,
    weight: str | None = None,
    row_id: str | None = None,
    labels: Any = None,
) -> TableSchema:
    """Learn what each column of a table is and how it becomes features.

    Parameters
    ----------
    table : pyarrow.Table
        Rows from all over, in order. Of more than 65,536 rows that many are used: 64 runs of neighbours.
    options : TableOptions, optional
    target, weight, row_id : str, optional
        Columns that are no features.
    labels : pyarrow.Array, optional
        The target, if it is no column of the table.

    Returns
    -------
    TableSchema

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"age": ["31", "?", "47"], "colour": ["red", "blue", "red"]})
    >>> schema = learn_schema(table, TableOptions(scale="none"))
    >>> schema.feature_names
    ['age', 'age missing', 'colour=blue', 'colour=red']
    >>> schema.encode(pa.table({"colour": ["red", "green"], "age": [20, 50]})).tolist()
    [[20.0, 0.0, 0.0, 1.0], [50.0, 0.0, 0.0, 0.0]]
    """
    options = TableOptions() if options is None else options
    if not table.num_rows:
        raise NoRowsError("There are no rows to learn a schema from.")
    if table.num_rows > SAMPLE_ROWS:
        runs = spread_rows(table.num_rows)
        labels = None if labels is None else pa.concat_arrays([labels.slice(a, b - a) for a, b in runs])
        table = pa.concat_tables([table.slice(a, b - a) for a, b in runs])
    table = table.unify_dictionaries()
    special = [name for name in (target, weight, row_id) if name is not None]
    names = _names(table.schema.names, options, special)
    learner = _Learner(options, explicit=options.columns is not None)
    with ThreadPoolExecutor(available_threads(), thread_name_prefix="tithe-schema") as pool:
        columns = list(pool.map(lambda name: learner.column(name, one_array(table.column(name))), names))
    left_out = [name for name in table.schema.names if name not in (*names, *special)]
    columns += [Column(name=name, what="excluded" if name in options.exclude else "not asked for") for name in left_out]
    if not any(column.encoding is not None for column in columns):
        shown = "; ".join(f"{column.name!r}: {column.what}" for column in columns[:10])
        raise ValueError(f"No column is left as a feature ({shown}). Name those to use: columns=[...].")
    dtype = "float32" if all(_exact_in_float32(c, table.schema.field(c.name).type) for c in columns) else "float64"
    schema = TableSchema(
        columns=tuple(columns),
        target=target,
        weight=weight,
        row_id=row_id,
        dtype=dtype,
        na=tuple(options.na),
        n_rows=table.num_rows,
    )
    schema.check_relations()
    labels = labels if target is None else one_array(table.column(target))
    return schema if labels is None else with_target(schema, table, labels)


def with_target(schema: TableSchema, table: pa.Table, labels: Any) -> TableSchema:
    """The schema with what its columns say about the target, in rows of a table.

    A column that alone predicts it nearly without error gets a note, categories and texts the scale of their effects.
    """
    kinds, columns = target_kinds(labels, schema.na), []
    for column in schema.columns:
        encoding, found = column.encoding, ""
        if encoding is not None:
            values = one_array(table.column(column.name))
            coded = few_values(values) if is_text(values.type) else None
            values = values if coded is None else coded
            found = leak(values, encoding, kinds, schema.na)
            if isinstance(encoding, CategoryEncoding) and encoding.values:
                codes = coded_texts(values, schema.na)[0]
                encoding = replace(encoding, scale=effect_scale(codes, kinds[0], is_class=kinds[1]))
            if isinstance(encoding, WordsEncoding):
                entries = replace(encoding, bad=False).entries(values, schema.na)
                Z = sparse_rows([entries], [0], (len(values), encoding.width), np.dtype("float64"))
                encoding = replace(encoding, scale=words_scale(Z, kinds[0], is_class=kinds[1]))
        notes = [column.note] if column.note else []
        notes += [f"{found}: a probable leak"] if found else []
        columns.append(replace(column, encoding=encoding, note="; ".join(notes)))
    return replace(schema, columns=tuple(columns))


def spread_rows(n_rows: int) -> list[tuple[int, int]]:
    """Where the rows of a sample stand in a table: first and last + 1 of each run of neighbours."""
    if n_rows <= SAMPLE_ROWS:
        return [(0, n_rows)] if n_rows else []
    size = SAMPLE_ROWS // SAMPLE_RUNS
    firsts = [(n_rows - size) * run // (SAMPLE_RUNS - 1) for run in range(SAMPLE_RUNS)]
    return [(first, first + size) for first in firsts]


def _names(present: Sequence[str], options: TableOptions, special: Sequence[str]) -> list[str]:
    """The columns that may become features, in order."""
    twice = next((name for name, times in Counter(present).items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"{present.count(twice)} columns are named {twice!r}. Rename them.")
    if options.columns is not None:
        return list(options.columns)
    return [name for name in present if name not in (*options.exclude, *special)]


def _nearly_constant(value: Any, times: int, n_values: int) -> str:
    """What to note of a column whose most frequent value, quoted, stands in nearly all of its rows; else empty."""
    n_others = n_values - times
    if n_values < _ROWS_TO_NOTE or not 0 < n_others <= max(1.0, (1.0 - _NEARLY) * n_values):
        return ""
    shown = grouped(value) if isinstance(value, float) else repr(value)[:MOST_QUOTED]
    return f"nearly constant, {n_others:,} of {n_values:,} values {'is' if n_others == 1 else 'are'} not {shown}"


def _with_tails_drawn_in(encoding: NumberEncoding, present: Array) -> NumberEncoding:
    """The encoding of numbers, ascending, with a reach if their tails are long: the kurtosis is above that of most."""
    low, middle, high = (float(q) for q in np.quantile(present, [0.25, 0.5, 0.75]))
    away = np.abs(present - middle)
    spread = (high - low) / 1.349 or float(np.median(away[away > 0.0]))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        shares = (present - present.mean()) / away.max()
        kurtosis = np.mean(shares**4) / np.mean(shares**2) ** 2
    reach = _REACH * spread
    is_long = kurtosis > _LONG_TAILS and reach > _LEAST_SPREAD and away.max() / reach < np.inf
    return replace(encoding, middle=middle, reach=reach) if is_long else encoding


def _exact_in_float32(column: Column, type_: pa.DataType) -> bool:
    """Whether the numbers of a column fit into float32 as they are; one-hot and hashed features always do."""
    if isinstance(column.encoding, (NumberEncoding, VectorEncoding)):
        return (vector_item(type_) or value_type(type_)) in _FLOAT32_TYPES
    return not isinstance(column.encoding, DateEncoding)


@dataclass(frozen=True)
class _Learner:
    """Tells what one column is. ``explicit``: the caller named it, so it is used, also if it tells little."""

    options: TableOptions
    explicit: bool

    def column(self, name: str, values: Any) -> Column:
        return _with_doubts(self._typed(name, values), values)

    def _typed(self, name: str, values: Any) -> Column:
        type_ = value_type(values.type)
        if pa.types.is_null(type_) or values.null_count == len(values):
            return self._all_gaps(name, len(values))
        if is_date(type_):
            return self._date(name, days_of(values, self.options.na))
        if pa.types.is_boolean(type_):
            return self._truth(name, truths_of(values, self.options.na))
        if vector_item(type_) is not None:
            return self._vector(name, values)
        if pa.types.is_time(type_):
            return self._clock(name, hours_of(values, self.options.na))
        if is_span(type_):
            return self._number(name, numbers_of(values, self.options.na), "seconds")
        if is_number(type_) and not pa.types.is_dictionary(values.type):
            return self._number(name, numbers_of(values, self.options.na))
        if is_text(type_) or is_number(type_):
            return self._text(name, values)
        if self.explicit:
            raise ValueError(f"Column {name!r} is {values.type}, which is no feature. Leave it out of columns.")
        what = f"{values.type}, which is no feature"
        return Column(name=name, what=what, n_gaps=values.null_count, loss=f"left out: it holds {what}")

    def _all_gaps(self, name: str, n_gaps: int) -> Column:
        """A column without values. If rows with gaps are bad, it makes all of them bad."""
        fill = None if self.options.impute == "none" else 0.0
        used = self.explicit or fill is None
        encoding = NumberEncoding(center=0.0, spread=1.0, fill=fill, marked=False) if used else None
        return Column(name=name, what="all gaps", encoding=encoding, n_gaps=n_gaps, loss="" if used else _GAPS_LOSS)

    # -- numbers, truth and dates ----------------------------------------------------------------

    def _number(self, name: str, numbers: Array, form: str = "", *, draw_in: bool = True) -> Column:
        present, n_gaps, n_distinct = _present(numbers)
        if not len(present):
            return self._all_gaps(name, n_gaps)
        least, most = float(present[0]), float(present[-1])
        column = partial(Column, name=name, n_gaps=n_gaps, n_distinct=n_distinct, least=least, most=most)
        if not self.explicit and _is_index(name, numbers, n_distinct):
            return column(what="identifier", loss=_INDEX_LOSS)
        if not self.explicit and self.options.scale != "none":
            if n_distinct == 1 and not n_gaps:
                return column(what="constant", loss=_CONSTANT_LOSS)
            if _is_identifier(name, numbers, n_distinct):
                return column(what="identifier", loss=_ID_LOSS)
        fill, marked = self._fill(present), self._marks(n_gaps)
        encoding = NumberEncoding(center=0.0, spread=1.0, fill=fill, marked=marked, form=form)
        if self.options.scale == "auto" and draw_in and n_distinct > 2:
            encoding = _with_tails_drawn_in(encoding, present)
        center, spread = self._scaling(encoding.drawn_in(present))
        encoding = replace(encoding, center=center, spread=spread)
        doubt = "whole numbers such as 20130131 look like dates, but are taken as numbers" if _are_days(present) else ""
        middle = present[len(present) // 2]
        n_same = int(np.searchsorted(present, middle, "right") - np.searchsorted(present, middle))
        return column(
            what="number", encoding=encoding, doubt=doubt, note=_nearly_constant(middle, n_same, len(present))
        )

    def _vector(self, name: str, values: Any) -> Column:
        """Lists of numbers of one length, with one center and spread, so that no coordinate outweighs another."""
        lengths = pc.list_value_length(values.storage if isinstance(values.type, pa.BaseExtensionType) else values)
        shortest, longest = pc.min_max(lengths).values()
        if shortest != longest or not longest.as_py():
            raise ValueError(
                f"Column {name!r} holds lists of {shortest} to {longest} numbers. A vector has one length in every "
                f"row: make them equal, or leave the column out: exclude=[{name!r}]."
            )
        size = longest.as_py()
        some = values.take(pa.array(np.arange(0, len(values), -(-len(values) * size // _MOST_NUMBERS))))
        present = np.sort(vectors_of(some, size), axis=None)
        present = present[np.isfinite(present)]
        if not len(present):
            return self._all_gaps(name, len(values))
        n_gaps = int(np.isnan(vectors_of(values, size)).any(axis=1).sum())
        center, spread = self._scaling(present)
        fill, marked = None if self.options.impute == "none" else center, self._marks(n_gaps)
        encoding = VectorEncoding(size=size, center=center, spread=spread, fill=fill, marked=marked)
        least, most = float(present[0]), float(present[-1])
        return Column(name=name, what="vector", encoding=encoding, n_gaps=n_gaps, least=least, most=most)

    def _truth(self, name: str, truths: Array) -> Column:
        present, n_gaps, n_distinct = _present(truths)
        column = partial(Column, name=name, n_gaps=n_gaps, n_distinct=n_distinct)
        if n_distinct == 1 and not n_gaps and not self.explicit:
            return column(what="constant", loss=_CONSTANT_LOSS)
        encoding = BooleanEncoding(fill=self._fill(present), marked=self._marks(n_gaps))
        n_true = int(present.sum())
        most = (True, n_true) if 2 * n_true > len(present) else (False, len(present) - n_true)
        return column(what="boolean", encoding=encoding, note=_nearly_constant(*most, len(present)))

    def _date(self, name: str, days: Array, order: str = "") -> Column:
        present, n_gaps, n_distinct = _present(days)
        least, most = (float(present[0]), float(present[-1])) if len(present) else (None, None)
        column = partial(Column, name=name, n_gaps=n_gaps, n_distinct=n_distinct, least=least, most=most)
        if self.options.dates == "error":
            raise ValueError(f"Column {name!r} holds dates. Say what to do with them: dates='parts', dates='drop'.")
        if self.options.dates == "drop":
            return column(what="date, to be dropped")
        if n_distinct == 1 and not n_gaps and not self.explicit:
            return column(what="constant", loss=_CONSTANT_LOSS)
        cycles: tuple[str, ...] = ()
        if self.options.dates == "parts":
            span, times = np.ptp(present), present - np.floor(present)
            # in a small part of a cycle its waves are no more than the number of days again
            is_seen = {"year": span >= _LEAST_OF_YEAR, "week": span >= 7.0, "day": (times != times[0]).any()}
            cycles = tuple(cycle for cycle, seen in is_seen.items() if seen)
        center, spread = self._scaling(present)
        fill, marked = self._fill(present), self._marks(n_gaps)
        encoding = DateEncoding(
            center=center, spread=spread, fill=fill, marked=marked, order=order, cycles=cycles, harmonics=_HARMONICS
        )
        return column(what="date", encoding=encoding)

    def _clock(self, name: str, hours: Array) -> Column:
        column = self._number(name, hours, draw_in=False)
        if not isinstance(column.encoding, NumberEncoding):
            return column
        old = column.encoding
        encoding = TimeEncoding(
            center=old.center,
            spread=old.spread,
            fill=old.fill,
            marked=old.marked,
            cycles=("day",),
            harmonics=_HARMONICS,
        )
        return replace(column, what="time", encoding=encoding)

    def _marks(self, n_gaps: int) -> bool:
        return n_gaps > 0 and self.options.impute != "none"

    def _fill(self, present: Array) -> float | None:
        """What gaps become, in the units of the column; ``present`` ascends."""
        if self.options.impute == "none":
            return None
        if self.options.impute == "zero":
            return 0.0
        if self.options.impute == "median":
            return float(present[(len(present) - 1) // 2 : len(present) // 2 + 1].mean())
        return _mean_and_deviation(present)[0]

    def _scaling(self, present: Array) -> tuple[float, float]:
        """Centre and spread."""
        if self.options.scale == "none":
            return 0.0, 1.0
        center, spread = _mean_and_deviation(present)
        if self.options.scale == "robust":
            low, center, high = (float(q) for q in np.quantile(present, [0.25, 0.5, 0.75]))
            spread = (high - low) / 1.349 or spread
        return center, spread if _LEAST_SPREAD < spread < np.inf else 1.0

    # -- text ------------------------------------------------------------------------------------

    def _text(self, name: str, values: Any) -> Column:
        codes, texts = coded_texts(values, self.options.na)
        counts = dict(sorted(text_counts(codes, texts).items()))
        n_present = sum(counts.values())
        n_gaps = len(codes) - n_present
        column = partial(Column, name=name, n_gaps=n_gaps, n_distinct=len(counts))
        if not counts:
            return self._all_gaps(name, n_gaps)
        if is_text(value_type(values.type)) and are_truths(list(counts)):
            return self._truth(name, truths_of(values, self.options.na))
        read, doubt = self._read_text(name, values, counts) if is_text(value_type(values.type)) else (None, "")
        if read is not None:
            return read
        if len(counts) == 1 and not n_gaps and not self.explicit:
            return column(what="constant", loss=_CONSTANT_LOSS)
        several_words = np.array([len(text.split()) > 1 for text in counts])
        enough = n_present >= _FEWEST_ROWS
        if not self.explicit and (
            _INDEX_NAME.fullmatch(name) or (enough and len(counts) == n_present and not several_words.any())
        ):
            return column(what="identifier", loss=_ID_LOSS)
        if self.options.categories == "error":
            raise ValueError(
                f"Column {name!r} is text. Say what to do with it: categories='auto', categories='onehot' or "
                f"categories='hash'; or leave it out: exclude=[{name!r}]."
            )
        n_several = np.array(list(counts.values()))[several_words].sum()
        if enough and _ROWS_PER_TEXT * len(counts) > n_present and 2 * n_several > n_present:
            encoding = self._words(counts)
            return column(what="text", encoding=encoding, doubt=doubt, loss=_WORDS_LOSS, rare=_noted_words(counts))
        return replace(self._categorical(name, counts, n_gaps), doubt=doubt)

    def _read_text(self, name: str, values: Any, counts: dict[str, int]) -> tuple[Column | None, str]:
        """A column of texts that are numbers, dates or times; else None, and what they look like nevertheless."""
        distinct, times = pa.array(list(counts)), np.array(list(counts.values()))
        probed, weights = _spread_over(times)
        partly = ""
        for kind in (_numbers_in, _dates_in, _times_in, _months_in):
            if kind(distinct.take(pa.array(probed)), weights).share < _PARTLY / 2:
                continue
            form = kind(distinct, times)
            if pa.types.is_dictionary(values.type) and form.what == "numbers" and not form.name:
                continue  # categories such as 1, 2 and 3 are meant as names
            if form.share >= _PARSED_SHARE:
                column = self._of_form(name, values, form)
                doubts = "; ".join(filter(None, (column.doubt, form.doubt)))
                return with_odd_values(replace(column, doubt=doubts), distinct, times, form.parsed), ""
            if form.share >= _PARTLY:
                odd = list(counts)[int(np.flatnonzero(np.isnan(form.parsed))[0])][:MOST_QUOTED]
                partly = (
                    f"{form.share:.0%} of the texts are {form.what}, others are such as {odd!r}: it is not read as "
                    f"{form.what} (na=[...] makes these gaps)"
                )
        likeness = looks_like(list(counts)) if not partly else ""
        return None, partly or (f"it looks like {likeness}" if likeness else "")

    def _of_form(self, name: str, values: Any, form: Form) -> Column:
        if form.what == "dates":
            return self._date(name, days_of(values, self.options.na, form.name), form.name)
        if form.what == "times":
            return self._clock(name, hours_of(values, self.options.na))
        return self._number(name, numbers_of(values, self.options.na, form.name), form.name)

    def _words(self, counts: dict[str, int]) -> WordsEncoding:
        """Hashed words with the inverse document frequency ln((1 + n) / (1 + n with the word)) + 1 of each feature."""
        texts, times = pa.array(list(counts)), np.array(list(counts.values()))
        whole = bool(times.sum() >= _REPEATED * len(times))
        n_hashes = self._n_hashes(len(words_of(texts)[1].dictionary) + whole * len(times))
        n_words, places = hashed_words(texts, n_hashes, whole=whole)
        owners = np.repeat(np.arange(len(texts)), n_words)
        cells = np.unique(owners * n_hashes + places)
        frequency = np.bincount(cells % n_hashes, times[cells // n_hashes], n_hashes)
        weights = np.round(np.log((1.0 + times.sum()) / (1.0 + frequency)) + 1.0, 3)
        return WordsEncoding(
            n_hashes=n_hashes, bad=self.options.impute == "none", whole=whole, weights=tuple(weights.tolist())
        )

    def _n_hashes(self, n_values: int) -> int:
        if self.options.n_hashes is not None:
            return self.options.n_hashes
        return min(max(_FEWEST_HASHES, 1 << (2 * n_values - 1).bit_length()), _MOST_HASHES)

    def _categorical(self, name: str, counts: dict[str, int], n_gaps: int) -> Column:
        encoding, loss = self.category(counts, n_gaps)
        rare = sorted(crc32(text.encode()) for text in counts.keys() - set(encoding.values))
        most = max(counts, key=lambda text: counts[text])
        note = _nearly_constant(most, counts[most], sum(counts.values()))
        about: dict[str, Any] = {"n_gaps": n_gaps, "n_distinct": len(counts), "loss": loss, "note": note}
        column = Column(name=name, what="category", encoding=encoding, **about)
        return replace(column, rare=tuple(rare)) if len(rare) <= MOST_RARE else column

    def of_all_rows(self, column: Column, counts: dict[str, int]) -> Column:
        """A category, or a column constant in the sample, by the counts of its values in all rows."""
        if column.is_constant and len(counts) > 1:
            return self.counted(column.name, counts)
        if column.encoding is None or not counts:
            return column
        learned = self._categorical(column.name, counts, column.n_gaps)
        new, old = learned.encoding, column.encoding
        if isinstance(new, CategoryEncoding) and new.values and isinstance(old, CategoryEncoding):
            new = replace(new, scale=old.scale)
        return replace(learned, encoding=new, doubt=column.doubt, note=column.note)

    def counted(self, name: str, counts: dict[str, int]) -> Column:
        """A column of which the counts of its values are known, one of them by far the most frequent."""
        times = np.array(list(counts.values()))
        shown = np.maximum(1, times * SAMPLE_ROWS // times.sum())
        column = self._text(name, pa.array(np.repeat(np.array(list(counts), dtype=object), shown)))
        if not isinstance(column.encoding, NumberEncoding) or self.options.scale not in MEASURED_SCALES:
            return column
        numbers = numbers_of(pa.array(list(counts)), (), column.encoding.form)
        numbers = np.where(np.isfinite(numbers), numbers, column.encoding.fill or 0.0)  # an odd value is a gap
        center = float(np.average(numbers, weights=times))
        spread = float(np.sqrt(np.average((numbers - center) ** 2, weights=times)))
        return replace(column, encoding=replace(column.encoding, center=center, spread=spread or 1.0))

    def category(self, counts: dict[str, int], n_gaps: int) -> tuple[CategoryEncoding, str]:
        """The encoding of a category by the counts of its values, and what it loses."""
        n_rows = sum(counts.values()) + n_gaps
        fewest = 2 if n_rows >= _FEWEST_ROWS else 1  # a value seen once falls under the others
        frequent = [text for text, times in counts.items() if times >= fewest]
        kept = sorted(frequent, key=lambda text: (-counts[text], text))[: self.options.max_categories]
        covered = sum(counts[text] for text in kept)
        gaps = "bad" if self.options.impute == "none" else "mark" if n_gaps else "zeros"
        too_many = len(counts) > self.options.max_categories and covered < _COVERED_SHARE * sum(counts.values())
        if self.options.categories == "hash" or not kept or (self.options.categories == "auto" and too_many):
            n_hashes = self._n_hashes(len(counts))
            loss = f"hashed: {len(counts):,} values share {n_hashes:,} features"
            return CategoryEncoding(n_hashes=n_hashes, gaps=gaps), loss
        n_rare, n_rows = len(counts) - len(kept), sum(counts.values())
        share = 1.0 - covered / n_rows
        loss = f"{n_rare:,} rare values, {share:.2%} of the rows, share one feature" if n_rare > 1 else ""
        return CategoryEncoding(values=tuple(sorted(kept)), other=n_rare > 0, gaps=gaps), loss


def _spread_over(times: Array) -> tuple[Array, Array]:
    """Some of the different texts of a column, those of rows spread over all of it: indices, and how much each counts.

    ``times`` is how often each of the texts, in ascending order, occurs.
    """
    if len(times) <= _MOST_PROBED:
        return np.arange(len(times)), times
    ends = np.cumsum(times)
    rows = (np.arange(_MOST_PROBED) + 0.5) * (ends[-1] / _MOST_PROBED)
    return np.searchsorted(ends, rows, side="right"), np.ones(_MOST_PROBED)


def _noted_words(counts: dict[str, int]) -> tuple[int, ...]:
    """The CRC-32 of the words of some texts, none if they are too many."""
    words = words_of(pa.array(list(counts)))[1].dictionary.to_pylist()
    return tuple(sorted({crc32(word.encode()) for word in words})) if len(words) <= MOST_RARE else ()


def _numbers_in(texts: Any, times: Array) -> Form:
    return number_form(texts, times, parsed_numbers(texts))


def _dates_in(texts: Any, times: Array) -> Form:
    return date_order(texts, times, parsed_days(texts))


def _times_in(texts: Any, times: Array) -> Form:
    """Times of day, or durations if one is longer than a day or is written with units."""
    parsed = parsed_spans(texts)
    if pc.all(pc.match_substring_regex(texts, DECADES)).as_py():
        parsed = np.full(len(texts), np.nan)
    share = float(times[np.isfinite(parsed)].sum() / times.sum())
    hours = hours_of(texts, ())
    clock = share > 0.0 and np.isfinite(hours[np.isfinite(parsed)]).all()
    if clock and not pc.any(pc.match_substring_regex(texts, _WITH_UNITS)).as_py():
        return Form("times", "", parsed, share)
    return Form("durations", "seconds", parsed, share)


def _months_in(texts: Any, times: Array) -> Form:
    parsed = parsed_months(texts)
    return Form("durations", "months", parsed, float(times[np.isfinite(parsed)].sum() / times.sum()))


def _are_days(present: Array) -> bool:
    """Whether whole numbers, ascending, are written like 20130131."""
    if len(present) < _FEWEST_ROWS or present[0] < 18_000_101 or present[-1] > 22_001_231:
        return False
    months, days = present // 100 % 100, present % 100
    return bool(((present % 1 == 0) & (months >= 1) & (months <= 12) & (days >= 1) & (days <= 31)).all())


def _with_doubts(column: Column, values: Any) -> Column:
    """The column, with what its values lose by their type."""
    if column.encoding is None and not column.is_constant:
        return column
    if pa.types.is_dictionary(values.type) and not isinstance(column.encoding, CategoryEncoding):
        values = values.dictionary_decode()
    largest = 0.0 if column.least is None or column.most is None else max(column.most, -column.least)
    doubts = doubts_of_values(values, column.n_distinct, largest)
    return replace(column, doubt="; ".join(filter(None, (column.doubt, *doubts)))) if doubts else column


def text_counts(codes: Array, texts: Sequence[str]) -> dict[str, int]:
    """How often each text occurs."""
    times = np.bincount(codes + 1, minlength=len(texts) + 1)[1:]  # without gaps, whose code is -1
    present = [(text, n) for text, n in zip(texts, times.tolist(), strict=True) if n]
    counts = dict(present)
    if len(counts) < len(present):  # a text stands there twice
        counts = Counter()
        for text, n in present:
            counts[text] += n
    return counts


def _is_index(name: str, numbers: Array, n_distinct: int) -> bool:
    """An index of a frame that was written as a column."""
    return bool(_INDEX_NAME.fullmatch(name) or (_UNNAMED.fullmatch(name) and _counts_up(numbers, n_distinct)))


def _is_identifier(name: str, numbers: Array, n_distinct: int) -> bool:
    """Whole numbers, all different, that are named like an identifier or count up from row to row."""
    if n_distinct < max(2, len(numbers)) or (numbers != np.floor(numbers)).any():
        return False
    if _ID_NAME.fullmatch(name) or _CAMEL_ID_NAME.fullmatch(name):
        return True
    return len(numbers) >= _FEWEST_ROWS and _counts_up(numbers, n_distinct)


def _counts_up(numbers: Array, n_distinct: int) -> bool:
    """Whether whole numbers ascend by a constant step, but for jumps between the runs of a sample."""
    if n_distinct < max(2, len(numbers)) or (numbers != np.floor(numbers)).any():
        return False
    steps, times = np.unique(np.diff(numbers), return_counts=True)
    return bool(steps[0] > 0 and times.max() >= _STEP_SHARE * (len(numbers) - 1))


def _present(numbers: Array) -> tuple[Array, int, int]:
    """The finite numbers, ascending, the number of gaps and that of different numbers."""
    present = np.sort(numbers[np.isfinite(numbers)])
    n_distinct = int(np.count_nonzero(np.diff(present))) + 1 if len(present) else 0
    return present, len(numbers) - len(present), n_distinct


def _mean_and_deviation(numbers: Array) -> tuple[float, float]:
    """Mean and standard deviation, also of numbers whose squares are too large or too small for float64."""
    largest = float(np.abs(numbers).max())
    unit = 2.0 ** int(np.frexp(largest)[1]) if 0 < largest < 2.0**1023 else 1.0
    scaled = numbers / unit
    mean = float(scaled.mean())
    return mean * unit, float(np.sqrt(np.mean((scaled - mean) ** 2))) * unit


_N_RUNS = 64
_MAX_ERROR = 0.02  # of a standard deviation that is taken from the sample

_MAX_VALUES = 100_000  # of a category that are counted; with more, those of the sample are kept

Sums = tuple[int, Array, Array]  # rows, and the sums of their features and of the squares
ValueCounts = dict[str, dict[str, int]]  # how often each value of some columns stands there


def learn_from_all_rows(
    schema: TableSchema,
    options: TableOptions,
    uncertain: Array,
    sums_of: Callable[[Array], Iterable[Sums]],
    counts_of: Callable[[Collection[str], Sequence[str]], Iterable[ValueCounts]],
) -> TableSchema:
    """The schema, learned from a sample, with what a sample cannot tell.

    Parameters
    ----------
    schema : TableSchema
    options : TableOptions
    uncertain : array of int
        Features whose spread is measured.
    sums_of : callable
        The sums of some features over parts of all rows, in order: see `feature_sums`.
    counts_of : callable
        The counts of the values of some columns in parts of all rows, by columns and gaps: see `value_counts`. A column
        with too many values leaves the collection of columns.
    """
    if len(uncertain):
        schema = _rescaled(schema, uncertain, sums_of(uncertain))
    counts: dict[str, Counter[str]] = {column.name: Counter() for column in schema.columns if _is_counted(column)}
    if not counts:
        return schema
    for part in counts_of(counts.keys(), schema.na):
        for name in counts.keys() & part.keys():
            counts[name].update(part[name])
            if len(counts[name]) > _MAX_VALUES:
                del counts[name]
    learner = _Learner(options, explicit=True)
    columns = (
        learner.of_all_rows(column, dict(sorted(counts.get(column.name, {}).items()))) for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def _is_counted(column: Column) -> bool:
    """Whether it is a category with a feature for each value, or constant in the sample."""
    return column.is_constant or (isinstance(column.encoding, CategoryEncoding) and not column.encoding.n_hashes)


def value_counts(batch: Any, names: Iterable[str], na: Sequence[str]) -> ValueCounts:
    """How often each value of some columns stands in some rows."""
    return {name: text_counts(*coded_texts(one_array(batch.column(name)), na)) for name in names}


def scaled_features(schema: TableSchema) -> Array:
    """The features that are centred and divided by their spread: indices."""
    columns = zip(schema.first_features, schema.used, strict=True)
    scaled = [
        first
        for first, column in columns
        if isinstance(column.encoding, (NumberEncoding, DateEncoding))
        and (column.encoding.center, column.encoding.spread) != (0.0, 1.0)
    ]
    return np.array(scaled, np.int64)


def scaled_numbers(schema: TableSchema, table: Any, features: Array) -> Array:
    """Some scaled features of the rows of a table, as in X, without the features beside them: (n, len(features))."""
    columns = []
    for first, column in zip(schema.first_features, schema.used, strict=True):
        encoding = column.encoding
        if first in features and isinstance(encoding, (NumberEncoding, DateEncoding)):
            numbers = encoding.read(one_array(table.column(column.name)), schema.na)
            fill = np.nan if encoding.fill is None else encoding.fill
            filled = np.where(np.isnan(numbers), fill, numbers)
            if isinstance(encoding, NumberEncoding):
                filled = encoding.drawn_in(filled)
            columns.append(((filled - encoding.center) * (1.0 / encoding.spread)).astype(schema.dtype))
    return np.column_stack(columns).astype(np.float64)


def uncertain_features(schema: TableSchema, sample: Any) -> Array:
    """The scaled features whose standard deviation in the sample has a relative standard error above 2 %: indices.

    The error is that of the jackknife over 64 runs of neighbouring rows. So it is large if few rows have large values,
    and if rows come in bursts.
    """
    features = scaled_features(schema)
    if len(features) == 0 or len(sample) < _N_RUNS:
        return features[:0]
    rows = scaled_numbers(schema, sample, features)
    edges = np.linspace(0, len(rows), _N_RUNS + 1).astype(np.int64)[:-1]
    counts = np.diff(np.append(edges, len(rows)))[:, None]
    sums, squares = np.add.reduceat(rows, edges), np.add.reduceat(rows * rows, edges)
    n_left, sums_left, squares_left = (part.sum(axis=0) - part for part in (counts, sums, squares))
    spreads = np.sqrt(np.maximum(squares_left / n_left - (sums_left / n_left) ** 2, 0.0))
    errors = np.sqrt((_N_RUNS - 1) * spreads.var(axis=0))
    uncertain: Array = features[errors > _MAX_ERROR * spreads.mean(axis=0)]
    return uncertain


def sums_in_threads(tasks: Iterable[Callable[[], Any]], features: Array) -> Iterator[Sums]:
    """The sums of features over the rows of X that each task makes, in order."""

    def sums(task: Callable[[], Any]) -> Sums:
        return feature_sums(task(), features)

    n_threads = available_threads()
    waiting: deque[Future[Sums]] = deque()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="tithe-scales") as pool:
        for task in tasks:
            waiting.append(pool.submit(sums, task))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def feature_sums(X: Any, features: Array) -> Sums:
    """The number of rows, and the sums of some features and of their squares."""
    chosen = X[:, features]
    return sums_of(np.asarray(chosen.toarray() if sparse.issparse(chosen) else chosen, np.float64))


def sums_of(rows: Array) -> Sums:
    """The number of rows, their sum, and that of their squares."""
    with np.errstate(over="ignore"):  # a feature whose squares overflow keeps its scale
        return len(rows), rows.sum(axis=0), np.square(rows).sum(axis=0)


def total_sums(parts: Iterable[Sums], features: Array) -> Sums:
    """The sums of all parts, added up in order."""
    n_rows, sums, squares = 0, np.zeros(len(features)), np.zeros(len(features))
    for n_more, more, more_squares in parts:
        n_rows, sums, squares = n_rows + n_more, sums + more, squares + more_squares
    return n_rows, sums, squares


def _rescaled(schema: TableSchema, features: Array, parts: Iterable[Sums]) -> TableSchema:
    """The schema with means and standard deviations of features by their sums over all rows, gaps filled."""
    n_rows, sums, squares = total_sums(parts, features)
    if n_rows == 0:
        return schema
    means = sums / n_rows
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = np.sqrt(np.maximum(squares / n_rows - means * means, 0.0))
    change = dict(zip(features.tolist(), zip(means.tolist(), deviations.tolist(), strict=True), strict=True))
    columns = {column.name: column for column in schema.columns}
    for first, column in zip(schema.first_features, schema.used, strict=True):
        mean, deviation = change.get(first, (0.0, 0.0))
        if np.isfinite(mean) and 0.0 < deviation < np.inf:
            old = column.encoding
            assert isinstance(old, (NumberEncoding, DateEncoding))
            new = replace(old, center=old.center + mean * old.spread, spread=deviation * old.spread)
            columns[column.name] = replace(column, encoding=new)
    return replace(schema, columns=tuple(columns.values()))
