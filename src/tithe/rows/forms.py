"""The forms in which people write numbers, dates and times, and which of them a column of text has.

A form is decided over all values of a column at once: ``1,234`` and ``03/04/2025`` can be read in two ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tithe.core.data import Array
from tithe.rows.doubts import doubts_of_moments, lost_digits

NUMBER_FORMS = ("", "point", "comma", "seconds", "months")  # as Python writes them, amounts with either mark, durations
DATE_ORDERS = ("", "mdy", "dmy")  # of the numbers in 03/04/2025; a year of four digits may come first in each

_MARKS = (
    r"(?:US|CA?|AU?|R|HK|NZ|S|MX)?\$|[€£¥₹₽₩₺₫₴₪฿%‰]|USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|CNY|INR|SEK|NOK|DKK|PLN|CZK"
    r"|HUF|BRL|MXN|ZAR|KRW|SGD|HKD|kr\.?|zł|Rs\.?"
)
_SIGNS = "[-\u2212]"
_SPACES = "'\u2019 \u00a0\u202f"
_AMOUNT = (
    r"^(?P<minus>\(|{signs})?\s*(?P<mark>{marks})?\s*(?P<sign>\+|{signs})?(?P<whole>\d{{1,3}}(?:[{group}]\d{{2,3}})*[{group}]\d{{3}}|\d+)?"
    r"(?:[{point}](?P<part>\d+)|[{point}])?(?P<power>[eE][+-]?\d+)?\s*(?P<times>{times})?\s*(?P<unit>{marks})?\)?$"
)
_TIMES = r"(?i:k|mn?|mio\.?|million|bn?|billion)"  # thousands, millions, billions
_AMOUNTS = {
    "point": _AMOUNT.format(signs=_SIGNS, marks=_MARKS, times=_TIMES, group="," + _SPACES, point="."),
    "comma": _AMOUNT.format(signs=_SIGNS, marks=_MARKS, times=_TIMES, group="." + _SPACES, point=","),
}
_CLOCK = (
    r"^(?P<minus>-)?(?:(?P<days>\d+) ?d(?:ays?)?,? ?)?(?P<hours>\d{1,4}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d(?:\.\d+)?))?(?: ?(?P<half>[aApP])\.?[mM]\.?)?$"
)
_REAL = r"\d+(?:\.\d+)?"
_UNITS = (
    rf"(?i)^(?P<minus>-)?P?(?:(?P<weeks>{_REAL}) ?w(?:(?:ee)?ks?)?[ ,]*)?(?:(?P<days>{_REAL}) ?d(?:ays?)?[ ,]*)?T?"
    rf"(?:(?P<hours>{_REAL}) ?h(?:(?:ou)?rs?)?[ ,]*)?(?:(?P<minutes>{_REAL}) ?m(?:in(?:ute)?s?)?\.?[ ,]*)?"
    rf"(?:(?P<seconds>{_REAL}) ?s(?:ec(?:ond)?s?)?)?$"
)
_UNIT_WORDS = (  # `5m` alone may be anything
    r"(?i)\d ?(?:weeks?|wks?|days?|hours?|hrs?|min|sec)|\d ?h ?\d|\d ?(?-i:[hs])$|^-?PT\d|^-?P\d[^M]*(?:T.*)?$"
)
_MONTHS = (
    rf"(?i)^(?P<minus>-)?P?(?:(?P<years>{_REAL}) ?y(?:(?:ea)?rs?)?\.?[ ,]*)?"
    rf"(?:(?P<months>{_REAL}) ?m(?:o(?:nth)?s?)?\.?)?$"
)
_MONTH_WORDS = r"(?i)\d ?(?:years?|yrs?|months?|mos?\b)|^-?P\d"
DECADES = r"^(?:\d{2})?\d0s$"  # texts that are durations in form

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?i)^(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_DAY = r"(?P<day>\d{1,2})"
_TIME = (
    r"(?:[T\s,]+(?P<hours>\d{1,2}):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:\.\d+)?))?\s*"
    r"(?:(?P<half>[aApP])\.?[mM]\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?(?:\d{2})?)?)?$"
)
_DATES = (  # each can be read in one way
    r"^(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})T(?P<hours>\d{2}):?(?P<minutes>[0-5]\d):?"
    r"(?P<seconds>[0-5]\d(?:\.\d+)?)?(?P<zone>Z|[+-]\d{2}:?(?:\d{2})?)?$",
    rf"(?i)^(?P<year>\d{{4}})[./-](?P<month>\d{{1,2}})(?:[./-]{_DAY})?{_TIME}",
    rf"{_WEEKDAY}{_DAY}(?:st|nd|rd|th)?[\s./-]*{_NAME},?[\s./-]*(?P<year>\d{{4}}|\d{{2}}){_TIME}",
    rf"{_WEEKDAY}{_NAME}[\s-]*{_DAY}(?:st|nd|rd|th)?,?[\s-]+(?P<year>\d{{4}}){_TIME}",
    rf"{_WEEKDAY}{_NAME}\s+{_DAY}\s+(?P<hours>\d{{1,2}}):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d(?:\.\d+)?)"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{4})?\s+(?P<year>\d{4})$",  # as the C library and Twitter write it
    rf"(?i)^{_NAME}[\s,-]*(?P<year>\d{{4}})$",
    rf"(?i)^{_NAME}-(?P<year>\d{{2}})$",
    rf"(?i)^(?P<year>\d{{4}})[\s-]*{_NAME}(?:[\s-]*{_DAY})?$",
    r"(?i)^(?P<year>\d{4})[\s-]*Q(?P<quarter>[1-4])$",
)
_ORDERED = {
    "mdy": rf"(?i)^(?P<month>\d{{1,2}})[/.-]{_DAY}[/.-](?P<year>\d{{4}}|\d{{2}}){_TIME}",
    "dmy": rf"(?i)^{_DAY}[/.-](?P<month>\d{{1,2}})[/.-](?P<year>\d{{4}}|\d{{2}}){_TIME}",
}
_MOST_LOOKED_AT = 4096  # different texts whose form is looked at
_LONGEST = 200  # bytes of an amount, a date or a time: a pattern takes a second for each 8 MB
_SHARE = 0.95
_LIKE = (  # what is said of a column of text that looks like something else
    (r"^\[\s*[-+\d.eE, ]+\]$", 1, "vectors written as text"),
    (r"(?i)\b\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b|\d{4}[\s-]*[WQ]\d|\b(?:" + "|".join(_NAMES) + r")[a-z]*\b.*\d"
     r"|^\d{1,2}\.?\s(?:de\s)?\pL{3,}\.?,?\s(?:de\s)?\d{4}\b", 1, "dates in a form that is not read"),
    (r"(?i)^[+-]?0x[0-9a-f]+$", 1, "hexadecimal numbers"),
    (r"^.{0,12}(?:[$€£¥₹]\s?\d|\d\s?[$€£¥₹]).{0,20}$", 1, "amounts of money in a form that is not read"),
    (r"^\s*[<>~≈]?\s*[+-]?\d[\d.,]*\s*([A-Za-z%°µ\"'/²³+]{1,10})$", 10, "amounts with a unit"),
)  # fmt: skip


class Form(NamedTuple):
    """How the texts of a column are read, and what is uncertain about it."""

    what: str  # "numbers", "dates", "times" or "durations"
    name: str
    parsed: Array  # (n,) what each of the different texts is, NaN where it cannot be read
    share: float  # of the values, by how often they occur
    doubt: str = ""


def _groups(texts: Any, pattern: str) -> tuple[Array, dict[str, Any]]:
    """Where a pattern fits, (n,) bool, and the texts of its groups where it does, "" where a group is empty."""
    texts = pc.if_else(pc.less_equal(pc.binary_length(texts), _LONGEST), texts, pa.scalar(None, texts.type))
    parts = pc.extract_regex(texts, pattern)
    fits = np.asarray(pc.and_(parts.is_valid(), texts.is_valid()).fill_null(False), bool)
    found = parts.filter(pa.array(fits))
    return fits, {field.name: found.field(i) for i, field in enumerate(parts.type)}


def _whole(parts: dict[str, Any], name: str, default: int = 0) -> Array:
    """The whole numbers of a group (n,), ``default`` where it is empty or not part of the pattern."""
    n = len(next(iter(parts.values())))
    texts = parts.get(name)
    if texts is None:
        return np.full(n, default)
    filled = pc.if_else(pc.equal(texts, ""), str(default), texts)
    numbers: Array = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _real(parts: dict[str, Any], name: str) -> Array:
    """The numbers of a group (n,), 0 where it is empty or not part of the pattern."""
    texts = parts.get(name)
    if texts is None:
        return np.zeros(len(next(iter(parts.values()))))
    numbers: Array = np.asarray(pc.if_else(pc.equal(texts, ""), "0", texts).cast(pa.float64()))
    return numbers


# -- numbers ---------------------------------------------------------------------------------------


def parsed_amounts(texts: Any, form: str) -> Array:
    """Texts without spaces around them as float64, NaN for what has another form.

    Signs of currencies, per cent signs and marks between groups of digits are left out; brackets are a minus.

    >>> parsed_amounts(pa.array(["$1,234.50", "(7)", "12 %", "x"]), "point").tolist()
    [1234.5, -7.0, 12.0, nan]
    >>> parsed_amounts(pa.array(["1.234,50 €", "3,5", "1,2 Mio. €"]), "comma").tolist()
    [1234.5, 3.5, 1200000.0]
    """
    if form in ("seconds", "months"):
        return parsed_spans(texts) if form == "seconds" else parsed_months(texts)
    numbers = np.full(len(texts), np.nan)
    fits, parts = _groups(texts, _AMOUNTS[form])
    whole = pc.replace_substring_regex(parts["whole"], r"[^0-9]", "")
    empty = pc.and_(pc.equal(whole, ""), pc.equal(parts["part"], ""))
    has_power, is_plain = pc.not_equal(parts["power"], ""), pc.equal(parts["times"], "")
    # 5 m are metres, and $5 m are millions
    bare = pc.and_(pc.is_in(parts["times"], value_set=pa.array(["m", "b"])), _without_mark(parts))
    empty = pc.or_(empty, pc.or_(pc.and_not(has_power, is_plain), bare))
    power = pc.if_else(is_plain, parts["power"], _zeros(parts["times"]))
    negative = pc.or_(pc.not_equal(parts["minus"], ""), pc.is_in(parts["sign"], value_set=pa.array(["-", "\u2212"])))
    sign = pc.if_else(negative, "-0", "0")
    plain = pc.binary_join_element_wise(sign, whole, ".", parts["part"], "0", power, "")
    numbers[fits] = pc.if_else(empty, pa.scalar(None, pa.string()), plain).cast(pa.float64()).fill_null(np.nan)
    numbers[~np.isfinite(numbers)] = np.nan
    return numbers


def _without_mark(parts: dict[str, Any]) -> Any:
    return pc.and_(pc.equal(parts["mark"], ""), pc.equal(parts["unit"], ""))


def _zeros(times: Any) -> Any:
    """The powers of ten that K, M and B stand for."""
    powers = pc.ascii_lower(times)
    for letter, power in (("k", "e3"), ("m", "e6"), ("b", "e9")):
        powers = pc.replace_substring_regex(powers, f"^{letter}.*", power)
    return powers


def parsed_spans(texts: Any) -> Array:
    """Times of day and durations as seconds (n,), NaN for what is neither.

    >>> parsed_spans(pa.array(["10:30", "1 days 00:00:05", "2:15 pm", "1.5 hours", "90s", "PT1H", "late"])).tolist()
    [37800.0, 86405.0, 51300.0, 5400.0, 90.0, 3600.0, nan]
    """
    seconds = np.full(len(texts), np.nan)
    for pattern in (_CLOCK, _UNITS):
        fits, parts = _groups(texts, pattern)
        spans = 86_400.0 * (7.0 * _real(parts, "weeks") + _real(parts, "days")) + _seconds(parts)
        spans = np.where(np.asarray(pc.equal(parts["minus"], "-"), bool), -spans, spans)
        if pattern is _UNITS:
            spans[~np.asarray(pc.match_substring_regex(texts.filter(pa.array(fits)), _UNIT_WORDS), bool)] = np.nan
        seconds[fits] = spans
    return seconds


def parsed_months(texts: Any) -> Array:
    """Durations in years and months, whose days nobody knows, as months (n,), NaN for what is none.

    >>> parsed_months(pa.array(["36 months", "1 year 6 months", "10 yrs", "5m"])).tolist()
    [36.0, 18.0, 120.0, nan]
    """
    months = np.full(len(texts), np.nan)
    fits, parts = _groups(texts, _MONTHS)
    spans = 12.0 * _real(parts, "years") + _real(parts, "months")
    spans = np.where(np.asarray(pc.equal(parts["minus"], "-"), bool), -spans, spans)
    named = np.asarray(pc.match_substring_regex(texts.filter(pa.array(fits)), _MONTH_WORDS), bool)
    months[fits] = np.where(named, spans, np.nan)
    return months


def _seconds(parts: dict[str, Any]) -> Array:
    """The time in hours, minutes and seconds, of which the halves of the day may be named."""
    hours = _real(parts, "hours")
    if "half" in parts:
        half = pc.ascii_lower(parts["half"])
        named, is_late = (np.asarray(test, bool) for test in (pc.not_equal(half, ""), pc.equal(half, "p")))
        hours = np.where(named, np.where(hours <= 12, hours % 12 + 12 * is_late, 10**6), hours)
    spans = 3600.0 * hours + 60.0 * _real(parts, "minutes") + _real(parts, "seconds")
    seconds: Array = np.where(hours < 10**6, spans, np.nan)
    return seconds


# -- dates -----------------------------------------------------------------------------------------


def parsed_dates(texts: Any, order: str) -> Array:
    """Dates and times as days since 1970 in UTC (n,), NaN for what is none.

    >>> parsed_dates(pa.array(["1/31/2013 10:00", "31 Jan 2013 10:00", "January 31, 2013 10:00 AM"]), "mdy").tolist()
    [15736.416666666666, 15736.416666666666, 15736.416666666666]
    """
    days = _days_of_patterns(texts, np.full(len(texts), np.nan), _DATES)
    return _days_of_patterns(texts, days, [_ORDERED[order]]) if order else days


def _days_of_patterns(texts: Any, known: Array, patterns: Sequence[str]) -> Array:
    """Dates as days since 1970 (n,): those ``known``, and of the others those that one of the patterns fits."""
    days = known.copy()
    for pattern in patterns:
        rest = np.flatnonzero(np.isnan(days))
        if not len(rest):
            break
        fits, parts = _groups(texts.take(pa.array(rest)), pattern)
        if fits.any():
            days[rest[fits]] = _days(parts)
    return days


def _days(parts: dict[str, Any]) -> Array:
    years = _whole(parts, "year")
    years = np.where(years < 70, years + 2000, np.where(years < 100, years + 1900, years))
    if "quarter" in parts:
        months = 3 * _whole(parts, "quarter") - 2
    elif pc.any(pc.match_substring_regex(parts["month"], "[a-zA-Z]")).as_py():
        names = pc.utf8_slice_codeunits(pc.ascii_lower(parts["month"]), 0, 3)
        months = np.asarray(pc.index_in(names, value_set=pa.array(_NAMES)).fill_null(-1)) + 1
    else:
        months = _whole(parts, "month")
    day = _whole(parts, "day", 1)
    first = (12 * (years - 1970) + months - 1).astype("datetime64[M]")
    lengths = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    is_day = (months >= 1) & (months <= 12) & (day >= 1) & (day <= lengths)
    seconds = _seconds(parts) if "hours" in parts else np.zeros(len(day))
    is_day &= seconds < 86_400
    if "zone" in parts:
        zone = pc.if_else(pc.match_substring_regex(parts["zone"], r"^[+-]"), parts["zone"], "+00")
        digits = pc.replace_substring_regex(zone, r"\D", "")
        minutes = _whole({"": pc.utf8_slice_codeunits(digits, 0, 2)}, "") * 60
        minutes = minutes + _whole({"": pc.utf8_slice_codeunits(digits, 2, 4)}, "")
        seconds = seconds - 60.0 * np.where(np.asarray(pc.starts_with(zone, "-"), bool), -minutes, minutes)
    micros = (first.astype("datetime64[D]").astype(np.int64) + day - 1) * 86_400 * 10**6 + np.round(
        np.where(is_day, seconds, 0.0) * 1e6
    ).astype(np.int64)
    return np.where(is_day, micros / (86_400 * 10**6), np.nan)


# -- the form of a column --------------------------------------------------------------------------


def number_form(texts: Any, times: Array, plain: Array) -> Form:
    """The form in which most values are numbers; a text occurs ``times``, and is the number ``plain`` in Python."""
    forms = [Form("numbers", "", plain, _share(plain, times))]
    if forms[0].share < 1.0:
        for name in ("point", "comma"):
            parsed = parsed_amounts(texts, name)
            forms.append(Form("numbers", name, parsed, _share(parsed, times)))
    best = max(forms, key=lambda form: form.share)
    doubts = []
    if best.name == "point" and forms[2].share == best.share and (forms[2].parsed != best.parsed).any():
        if pc.any(pc.match_substring(texts, ",")).as_py():
            doubts.append("its commas are taken to group thousands, but may begin decimals")
        else:
            doubts.append("its points are taken to begin decimals, but may group thousands")
    if pc.any(pc.match_substring_regex(texts, r"^[+-]?0\d")).as_py():
        doubts.append("leading zeros, as codes have them, are left out")
    marks = (
        set(filter(None, pc.extract_regex(texts, rf"(?P<mark>{_MARKS})").field(0).to_pylist())) if best.name else set()
    )
    if len(marks) > 1:
        doubts.append(f"{' and '.join(sorted(marks))} are taken as one unit")
    if "%" in marks and not pc.all(pc.match_substring(texts, "%")).as_py():
        doubts.append("some values have a per cent sign and others do not; all are taken as they are written")
    if best.name:
        parts = _groups(texts, _AMOUNTS[best.name])[1]
        if pc.any(pc.and_(pc.not_equal(parts["times"], ""), _without_mark(parts))).as_py():
            doubts.append("K, M and B are taken as thousands, millions and billions")
    return best._replace(doubt="; ".join([*doubts, *lost_digits(texts, best.parsed)]))


def date_order(texts: Any, times: Array, plain: Array) -> Form:
    """The order in which most values are dates; ``plain`` are the days of those written as ISO 8601 says."""
    if _share(plain, times) == 1.0:
        return Form("dates", "", plain, 1.0, "; ".join(doubts_of_moments(texts, plain)))
    forms, sure = [], _days_of_patterns(texts, plain, _DATES)
    for order in ("mdy", "dmy"):
        parsed = _days_of_patterns(texts, sure, [_ORDERED[order]])
        forms.append(Form("dates", order, parsed, _share(parsed, times)))
    first, second = forms
    differ = np.flatnonzero(np.isfinite(first.parsed) & np.isfinite(second.parsed) & (first.parsed != second.parsed))
    best = first if first.share > second.share or (first.share == second.share and len(differ)) else second
    doubts = []
    if first.share == second.share and len(differ):
        doubts.append(
            f"dates such as {texts[int(differ[0])].as_py()!r} are read with the month first, but may have the day first"
        )
    if best.share and _has_short_years(texts, best.name):
        doubts.append("years of two digits are taken to lie in 1970 to 2069")
    return best._replace(doubt="; ".join([*doubts, *doubts_of_moments(texts, best.parsed)]))


def _has_short_years(texts: Any, order: str) -> bool:
    years = (_groups(texts, pattern)[1]["year"] for pattern in (*_DATES, _ORDERED[order]))
    return any(pc.any(pc.equal(pc.binary_length(found), 2)).as_py() for found in years)


def _share(parsed: Array, times: Array) -> float:
    return float(times[np.isfinite(parsed)].sum() / times.sum())


def looks_like(texts: Sequence[str]) -> str:
    """What different texts look like that they are not read as; empty if they look like words.

    >>> looks_like([f"{i} km" for i in range(20)])
    'amounts with a unit'
    """
    some = pa.array(texts[:_MOST_LOOKED_AT], pa.string())
    for pattern, fewest, what in _LIKE:
        found = pc.match_substring_regex(some, pattern)
        if len(some) >= fewest and pc.mean(found).as_py() >= _SHARE:
            return what
    return ""
