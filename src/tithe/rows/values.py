"""Arrow arrays of any type as numbers, days or texts, with gaps found in the same way whatever the file was.

The same value must give the same bits whether it came as text from a CSV file or with a type from Parquet or a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tithe.core.data import Array
from tithe.rows.forms import parsed_amounts, parsed_dates

# compared with texts in lower case and without spaces around them
GAP_TEXTS = (
    *("", "?", "-", "na", "n/a", "<na>", "#n/a", "#na", "#n/a n/a", "null", "nan", "-nan", "nat"),
    *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)
TRUE_TEXTS, FALSE_TEXTS = ("true", "yes", "t", "y", "on"), ("false", "no", "f", "n", "off")

_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)$"
_DATE = (
    r"^(?P<day>\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))"
    r"(?:[T ](?P<time>(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?)\d*"
    r"\s?(?P<zone>Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?)?$"
)
_DOTTED_DAY = r"^(0[1-9]|[12]\d|3[01])\.(0[1-9]|1[0-2])\.(\d{4})"  # such as 31.12.2025
_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6}
_TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UTC = pa.timestamp("us", "UTC")
_PUNCTUATION = r"[[:punct:]]+"


def is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def is_date(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


def is_span(type_: pa.DataType) -> bool:
    """Whether it is a time of day or a duration."""
    return bool(pa.types.is_time(type_) or pa.types.is_duration(type_))


def vector_item(type_: pa.DataType) -> pa.DataType | None:
    """The type of the numbers in a column of lists of numbers; None for any other column."""
    type_ = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    lists = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return type_.value_type if lists and is_number(type_.value_type) else None


def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values of a column, also of one that is stored as a dictionary."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def one_array(values: Any) -> Any:
    """An Arrow array in one piece."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


# -- texts -----------------------------------------------------------------------------------------


def coded_texts(values: Any, na: Sequence[str]) -> tuple[Array, list[str]]:
    """Codes (n,) int64 and the texts they stand for, without spaces around them; gaps have code -1.

    The same text may stand there twice, where it was written with different spaces around it.
    """
    if not pa.types.is_dictionary(values.type):
        values = as_text(values).dictionary_encode()
    texts, codes = without_gaps(as_text(values.dictionary), na), codes_of(values)
    if texts.null_count:
        missing = np.append(texts.is_null().to_numpy(zero_copy_only=False), True)  # code -1 reads the last
        codes = np.where(missing[codes], -1, codes)
    return codes, texts.fill_null("").to_pylist()


def codes_of(values: Any) -> Array:
    """The codes of a dictionary array, -1 for nulls."""
    codes: Array = values.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return codes


def as_text(values: Any) -> Any:
    """An array of ``pa.string()``; whole numbers are written without a point, whatever their type."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        numbers = plain_numbers(values)
        present = numbers[np.isfinite(numbers)]
        if (present == np.floor(present)).all() and (np.abs(present) < 2**53).all():
            values = pa.array(np.where(np.isfinite(numbers), numbers, 0).astype(np.int64), mask=~np.isfinite(numbers))
    return values.cast(pa.string())


def without_gaps(texts: Any, na: Sequence[str]) -> Any:
    """Texts without spaces around them, null where they are gaps."""
    texts = pc.utf8_trim_whitespace(texts)
    gaps = pc.is_in(pc.ascii_lower(texts), value_set=pa.array(GAP_TEXTS))
    if na:
        gaps = pc.or_(gaps, pc.is_in(texts, value_set=pa.array([text.strip() for text in na], pa.string())))
    return pc.if_else(gaps, pa.scalar(None, pa.string()), texts)


def words_of(texts: Any) -> tuple[Array, Any]:
    """The lower-case words of an array of texts as one dictionary array, and how many of them each text has: (n,)."""
    plain = pc.replace_substring_regex(pc.utf8_lower(texts), _PUNCTUATION, " ")
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(plain)).fill_null([])
    words = lists.flatten()
    present = pc.not_equal(words, "")
    owners = pc.list_parent_indices(lists).filter(present).to_numpy(zero_copy_only=False)
    counts: Array = np.bincount(owners, minlength=len(texts))
    return counts, words.filter(present).dictionary_encode()


# -- numbers ---------------------------------------------------------------------------------------


def plain_numbers(values: Any) -> Array:
    """A numeric or Boolean Arrow array as NumPy, without a copy where it has no nulls; nulls become NaN."""
    type_ = values.type
    if pa.types.is_boolean(type_):
        values = values.cast(pa.uint8())
    elif pa.types.is_null(type_) or pa.types.is_decimal(type_):
        values = values.cast(pa.float64())
    if values.null_count and not pa.types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    numbers: Array = values.to_numpy(zero_copy_only=False)
    return numbers


def numbers_of(values: Any, na: Sequence[str], form: str = "") -> Array:
    """Any column as float64 with NaN for gaps: nulls, infinities, gap texts and texts that are no numbers.

    ``form`` is that of texts, one of `NUMBER_FORMS`. Times of day and durations are seconds, those in years months.
    """
    if pa.types.is_dictionary(values.type):
        return _decoded(values, numbers_of(values.dictionary, na, form))
    if is_text(values.type):
        if form and (few := few_values(values)) is not None:
            return _decoded(few, numbers_of(few.dictionary, na, form))
        texts = without_gaps(values.cast(pa.string()), na)
        return parsed_amounts(texts, form) if form else parsed_numbers(texts)
    if is_span(values.type):
        ticks = values.cast(pa.int32() if pa.types.is_time32(values.type) else pa.int64())
        ticks = ticks.cast(pa.float64(), safe=False)  # 105 days in nanoseconds are more than 2**53
        seconds: Array = ticks.fill_null(np.nan).to_numpy(zero_copy_only=False) / _TICKS_PER_SECOND[values.type.unit]
        return seconds
    numbers = np.array(plain_numbers(values), np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    excluded = parsed_numbers(pa.array(list(na), pa.string()))
    if na and np.isfinite(excluded).any():
        numbers[np.isin(numbers, excluded[np.isfinite(excluded)])] = np.nan
    return numbers


def _decoded(values: Any, numbers: Array) -> Array:
    """The numbers that the values of a dictionary array stand for, NaN where there is none."""
    decoded: Array = np.append(numbers, np.nan)[codes_of(values)]
    return decoded


def few_values(values: Any) -> Any:
    """The values as a dictionary array if each stands there twice or more on average: reading costs more; else None."""
    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    return coded if 0 < 2 * len(coded.dictionary) <= len(coded) else None


def parsed_numbers(texts: Any) -> Array:
    """Texts without spaces around them as float64; NaN for those that are no finite numbers."""
    try:
        parsed = texts.cast(pa.float64())
    except pa.ArrowInvalid:
        is_one = pc.match_substring_regex(texts, _NUMBER)
        parsed = pc.if_else(is_one, texts, pa.scalar(None, pa.string())).cast(pa.float64())
    numbers = np.array(parsed.to_numpy(zero_copy_only=False), np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def vectors_of(values: Any, size: int) -> Array:
    """Lists of ``size`` numbers as rows (n, size), float64, with NaN for gaps. Raises ValueError for other lengths."""
    storage = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
    present = storage.drop_null()
    lengths = pc.unique(pc.list_value_length(present)).to_pylist()
    if any(length != size for length in lengths):
        found = ", ".join(str(length) for length in sorted(lengths)[:5])
        raise ValueError(f"holds lists of {found} numbers, but one length of {size} is needed")
    numbers = np.asarray(plain_numbers(present.flatten()), np.float64).reshape(len(present), size)
    if not storage.null_count:
        return numbers
    rows = np.full((len(storage), size), np.nan)
    rows[np.asarray(storage.is_valid())] = numbers
    return rows


# -- truth -----------------------------------------------------------------------------------------


def truths_of(values: Any, na: Sequence[str]) -> Array:
    """Any column as 0 and 1, in float64, with NaN for gaps and whatever else."""
    if is_text(value_type(values.type)):
        codes, texts = coded_texts(values, na)
        truths: Array = np.array([*(_truth(text.lower()) for text in texts), np.nan])[codes]
        return truths
    numbers = numbers_of(values, na)
    return np.where((numbers == 0) | (numbers == 1), numbers, np.nan)


def _truth(text: str) -> float:
    return 1.0 if text in (*TRUE_TEXTS, "1") else 0.0 if text in (*FALSE_TEXTS, "0") else np.nan


def are_truths(texts: Sequence[str]) -> bool:
    """Whether every text is a word for true or false."""
    return all(text.lower() in (*TRUE_TEXTS, *FALSE_TEXTS) for text in texts)


# -- dates -----------------------------------------------------------------------------------------


def days_of(values: Any, na: Sequence[str], order: str = "") -> Array:
    """Any column of dates as days since 1970 in UTC, float64, with NaN for gaps and texts that are no dates.

    ``order`` is that of the numbers in texts, one of `DATE_ORDERS`; empty: only ISO 8601 is read.
    """
    if pa.types.is_dictionary(values.type):
        return _decoded(values, days_of(values.dictionary, na, order))
    if is_text(values.type):
        if (few := few_values(values)) is not None:
            return _decoded(few, days_of(few.dictionary, na, order))
        texts = without_gaps(values.cast(pa.string()), na)
        days = parsed_days(texts)
        rest = np.flatnonzero(np.isnan(days) & np.asarray(texts.is_valid()))
        if order and len(rest):
            days[rest] = parsed_dates(texts.take(pa.array(rest)), order)
        return days
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_date32(values.type):
        days = values.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    else:
        unit = "ms" if pa.types.is_date64(values.type) else values.type.unit
        ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if unit == "ns":  # more digits than float64 holds
            ticks, unit = ticks // 1000, "us"
        days = ticks / _TICKS_PER_DAY[unit]
    return np.where(missing, np.nan, days)


def hours_of(values: Any, na: Sequence[str]) -> Array:
    """Any column of times of day as hours, NaN for gaps and for what is no time of a day."""
    hours = numbers_of(values, na, "seconds") / 3600.0
    return np.where((hours >= 0.0) & (hours <= 24.0), hours, np.nan)


def parsed_days(texts: Any) -> Array:
    """ISO 8601 dates and timestamps as days since 1970 in UTC; those without a zone are taken to be in UTC.

    The day may also be written as 31.12.2025.
    """
    texts = pc.replace_substring_regex(texts, _DOTTED_DAY, r"\3-\2-\1")
    parts = pc.extract_regex(texts, _DATE)
    fits = pc.and_(parts.is_valid(), texts.is_valid())
    days, times, zones = (pc.if_else(fits, parts.field(i), pa.scalar(None, pa.string())) for i in range(3))
    times = pc.if_else(pc.equal(times, ""), "00:00", times)
    zones = pc.if_else(pc.is_in(zones, value_set=pa.array(["", "z", "UTC"])), "Z", zones)
    stamps = pc.binary_join_element_wise(days, pc.binary_join_element_wise(times, zones, ""), "T")
    try:
        ticks = stamps.cast(_UTC)
    except pa.ArrowInvalid:  # such as the 30th of February
        ticks = pa.array([_timestamp(stamp) for stamp in stamps.to_pylist()], _UTC)
    missing = ticks.is_null().to_numpy(zero_copy_only=False)
    micros = ticks.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(missing, np.nan, micros / _TICKS_PER_DAY["us"])


def _timestamp(stamp: str | None) -> Any:
    try:
        return pa.scalar(stamp, pa.string()).cast(_UTC)
    except pa.ArrowInvalid:
        return None
