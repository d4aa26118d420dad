"""What values lose when they become numbers of type float64 and moments in UTC, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tithe.core.data import Array

_LARGEST_WHOLE = 2**53  # which 2**53 + 1 is read as
_SURE_DIGITS = 15  # float64 holds every number of so many digits
_MOST_LOOKED_AT = 4096  # texts of many digits that floats are not written as
_WHOLE = "whole numbers above 2**53 are rounded"
_DIGITS = "numbers with more digits than float64 holds are rounded"
_CLOSE = "moments less than a microsecond apart are taken as one"
_MANY_DIGITS = rf"\d(?:\D?\d){{{_SURE_DIGITS}}}"
_EXPONENT = re.compile(r"(?<=[\d.])[eE][+-]?\d+")
_UTC_ZONES = {"UTC", "GMT", "Z", "Etc/UTC", "Zulu", "Universal", "+00:00", "-00:00", "+0000", "+00"}
_ZONE = r"(?::\d{2}|T\d{4}|T\d{6})(?:\.\d+)?\s*(?:[aApP]\.?[mM]\.?\s*)?(?P<zone>[+-]\d{2}(?::?\d{2})?)(?:\s+\d{4})?$"
_BELOW_MICROSECONDS = r":\d{2}\.\d{6}0*[1-9]"


def doubts_of_values(values: Any, n_distinct: int, largest: float) -> list[str]:
    """What typed numbers, dates and categories lose: their ``largest`` is read as a number, ``n_distinct`` differ."""
    if pa.types.is_dictionary(values.type):
        # a category of two values has no order to lose
        ordered = values.type.ordered and n_distinct > 2
        return ["the order of its categories is not used"] if ordered else []
    if pa.types.is_floating(values.type):
        wide = values.cast(pa.float32()) if pa.types.is_float16(values.type) else values  # which older pyarrows ask for
        n_infinite = pc.sum(pc.is_inf(wide)).as_py() or 0
        return [f"{n_infinite:,} infinite values became gaps"] if n_infinite else []
    if pa.types.is_integer(values.type):
        return [_WHOLE] if largest >= _LARGEST_WHOLE else []
    if pa.types.is_decimal(values.type):
        present = values.drop_null()
        return lost_digits(present.cast(pa.string()), present.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type) or pa.types.is_time(values.type):
        zone = getattr(values.type, "tz", None)
        doubts = [] if zone is None or zone in _UTC_ZONES else [f"times of the zone {zone} are taken in UTC"]
        return doubts + ([_CLOSE] if pc.count_distinct(values).as_py() > n_distinct else [])
    return []


def lost_digits(texts: Any, numbers: Array) -> list[str]:
    """What is said of texts with more digits than the numbers that they were read as.

    >>> lost_digits(pa.array(["9007199254740993", "0.5"]), np.array([9007199254740992.0, 0.5]))
    ['whole numbers above 2**53 are rounded']
    """
    many = np.asarray(pc.match_substring_regex(texts, _MANY_DIGITS).fill_null(False), bool) & np.isfinite(numbers)
    places = np.flatnonzero(many)
    as_floats_are = np.asarray(
        pc.equal(texts.take(pa.array(places)), pa.array(numbers[places]).cast(pa.string())), bool
    )
    places = places[~as_floats_are]
    places = places[:: -(-len(places) // _MOST_LOOKED_AT) or 1]
    pairs = zip(texts.take(pa.array(places)).to_pylist(), numbers[places].tolist(), strict=True)
    rounded = np.array([abs(number) for text, number in pairs if _is_rounded(text, number)])
    found = [(_WHOLE, (rounded >= _LARGEST_WHOLE).any()), (_DIGITS, (rounded < _LARGEST_WHOLE).any())]
    return [doubt for doubt, is_found in found if is_found]


def _is_rounded(text: str, number: float) -> bool:
    """Whether a number, written with as many digits as a text has, has others."""
    written = re.sub(r"\D", "", _EXPONENT.sub("", text)).strip("0")
    if not written:
        return False
    return f"{abs(number):.{len(written) - 1}e}".partition("e")[0].replace(".", "") != written


def doubts_of_moments(texts: Any, days: Array) -> list[str]:
    """What is said of zones and of the smallest digits of dates and times in texts, which were read as ``days``."""
    doubts = []
    zones = pc.extract_regex(texts, _ZONE).field(0).drop_null().to_pylist()
    others: Sequence[str] = sorted({zone for zone in zones if zone and zone.strip("+-0:")})
    if others:
        doubts.append(f"times of another zone, such as {others[0]}, are taken in UTC")
    fine = np.asarray(pc.match_substring_regex(texts, _BELOW_MICROSECONDS).fill_null(False), bool)
    if fine.any() and len(np.unique(days[fine])) < fine.sum():
        doubts.append(_CLOSE)
    return doubts
