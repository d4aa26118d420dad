"""Columns of every kind: what is not said to be lost can be told apart in the features."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tithe.rows.learn import learn_schema
from tithe.rows.schema import frame_table
from tithe.rows.values import GAP_TEXTS

Rng = np.random.Generator
DAY = datetime.datetime(2001, 1, 1)
WORDS = [
    "late",
    "fine",
    "red",
    "blue",
    "cheap",
    "Graz",
    "Ž",
    "x1",
    "7",
    "nan",
    "NA",
    "-",
    "?",
    "true",
    "3.5",
    "2001-01-02",
]


def _moments(rng: Rng, n: int) -> list[datetime.datetime]:
    return [DAY + datetime.timedelta(minutes=int(m)) for m in rng.integers(0, 10**7, n)]


def _words(rng: Rng, n: int, most: int) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(1, most + 1))) for _ in range(n)]


def _zones(rng: Rng, n: int) -> list[str]:
    return rng.choice(["Z", "+02:00", "-0530"], n).tolist()


def _repeated(rng: Rng, values: list[Any], n: int) -> list[Any]:
    return [values[i] for i in rng.integers(0, len(values), n)]


def _patterned(pattern: str) -> Callable[[Rng, int], Any]:
    return lambda rng, n: [moment.strftime(pattern) for moment in _moments(rng, n)]


def _written(write: Callable[[float], str]) -> Callable[[Rng, int], Any]:
    return lambda rng, n: [write(float(x)) for x in np.round(np.exp(rng.normal(6, 3, n)), 2)]


KINDS: dict[str, Callable[[Rng, int], Any]] = {
    "floats": lambda rng, n: rng.normal(size=n) * 10.0 ** rng.integers(-20, 20),
    "floats and infinity": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
    "whole numbers": lambda rng, n: rng.integers(-5, 50, n),
    "ids": lambda rng, n: rng.permutation(n) + 10**9,
    "counting": lambda rng, n: np.arange(n),
    "large whole numbers": lambda rng, n: rng.integers(2**62, 2**63 - 1, n),
    "days as numbers": lambda rng, n: [int(f"{m:%Y%m%d}") for m in _moments(rng, n)],
    "decimals": lambda rng, n: [decimal.Decimal(int(i)) / 100 for i in rng.integers(0, 999, n)],
    "truth": lambda rng, n: rng.random(n) < 0.3,
    "bytes": lambda rng, n: [bytes(rng.integers(0, 255, 4, dtype=np.uint8)) for _ in range(n)],
    "records": lambda rng, n: [{"a": int(i)} for i in rng.integers(0, 9, n)],
    "vectors": lambda rng, n: rng.normal(size=(n, 4)).tolist(),
    "lists of words": lambda rng, n: [_words(rng, 2, 1) for _ in range(n)],
    "vectors in text": lambda rng, n: [str(row) for row in rng.normal(size=(n, 3)).tolist()],
    "days": lambda rng, n: [moment.date() for moment in _moments(rng, n)],
    "moments": _moments,
    "clock": lambda rng, n: [moment.time() for moment in _moments(rng, n)],
    "durations": lambda rng, n: [datetime.timedelta(seconds=int(s)) for s in rng.integers(0, 10**6, n)],
    "few words": lambda rng, n: _repeated(rng, _words(rng, 4, 1), n),
    "many words": lambda rng, n: _words(rng, n, 2),
    "prose": lambda rng, n: [f"{text} {i} and more" for i, text in enumerate(_words(rng, n, 6))],
    "codes": lambda rng, n: [f"c{i}" for i in rng.integers(0, 2 * n, n)],
    "leading zeros": lambda rng, n: [f"{i:05}" for i in rng.integers(0, 9999, n)],
    "yes and no": lambda rng, n: _repeated(rng, ["yes", "no", "", "?"], n),
    "numbers in text": _written(repr),
    "numbers and odd text": lambda rng, n: _repeated(rng, ["1", "2.5", "3", "none", "unknown"], n),
    "few odd texts": lambda rng, n: [*map(str, rng.normal(size=n - 1)), "oops"],
    "dollars": _written(lambda x: f"${x:,.2f}"),
    "euros": _written(lambda x: f"{x:,.2f} €".translate(str.maketrans(",.", ".,"))),
    "thousands": _written(lambda x: f"{x:,.0f}"),
    "kilometres": _written(lambda x: f"{x:.1f} km"),
    "percent": _written(lambda x: f"{x:.2f}%"),
    "month first": _patterned("%m/%d/%Y %H:%M"),
    "day first": _patterned("%d.%m.%Y"),
    "two digits": _patterned("%m/%d/%y"),
    "month names": _patterned("%d %B %Y %H:%M"),
    "weeks": _patterned("%G W%V"),
    "odd dates": _patterned("%H:%M on %d/%m in %Y"),
    "ambiguous": lambda rng, n: [f"{a:02}/{b:02}/2020" for a, b in rng.integers(1, 13, (n, 2))],
    "hours and minutes": lambda rng, n: [f"{m // 60}:{m % 60:02}" for m in rng.integers(0, 1440, n)],
    "one number": lambda rng, n: [3.5] * n,
    "one word": lambda rng, n: ["red"] * n,
    "nothing": lambda rng, n: [None] * n,
    "large whole numbers in text": lambda rng, n: [str(i) for i in rng.integers(2**60, 2**60 + 999, n)],
    "huge whole numbers": lambda rng, n: [2**70 + int(i) for i in rng.integers(0, 10**6, n)],
    "long decimals": lambda rng, n: [decimal.Decimal(10**25 + int(i)) / 10**20 for i in rng.integers(0, 999, n)],
    "long decimals in text": lambda rng, n: [f"0.7{'3' * 18}{i}" for i in rng.integers(0, 999, n)],
    "all digits of floats": lambda rng, n: [f"{x:.17g}" for x in rng.normal(size=n)],
    "halves of the day": _patterned("%I:%M %p"),
    "halves of the day with seconds": lambda rng, n: [f"{m:%I:%M:%S %p}".lower() for m in _moments(rng, n)],
    "numbers and moments": lambda rng, n: _repeated(rng, [1.5, 2, *_moments(rng, 3)], n),
    "days and moments": lambda rng, n: _repeated(rng, [DAY.date(), *_moments(rng, 9)], n),
    "zones in text": lambda rng, n: [
        f"{m:%Y-%m-%d %H:%M}{z}" for m, z in zip(_moments(rng, n), _zones(rng, n), strict=True)
    ],
    "moments of a zone": _moments,
    "names of months and two digits": _patterned("%d-%b-%y"),
    "nanoseconds": lambda rng, n: [10**18 + int(i) for i in rng.integers(0, 99, n)],
    "nanoseconds in text": lambda rng, n: [f"2001-01-01 10:00:00.{i:09}" for i in rng.integers(0, 9999, n)],
    "sizes in order": lambda rng, n: _repeated(rng, ["S", "M", "L", "XL"], n),
    "millions": lambda rng, n: [f"${x:.3f}M" for x in np.exp(rng.normal(size=n))],
    "thousands and millions": lambda rng, n: [f"{i}.5{'KM'[j]}" for i, j in rng.integers((1, 0), (99, 2), (n, 2))],
    "hexadecimal": lambda rng, n: [hex(i) for i in rng.integers(0, 10**6, n)],
    "compact moments": _patterned("%Y%m%dT%H%M%S"),
    "months of another language": lambda rng, n: [f"{m:%d}. März {m:%Y}" for m in _moments(rng, n)],
    "categories of dollars": _written(lambda x: f"${x:,.2f}"),
    "categories of days": _patterned("%m/%d/%Y"),
    "durations in seconds": lambda rng, n: [f"{i}s" for i in rng.integers(0, 9999, n)],
    "durations in weeks": lambda rng, n: [f"{i / 4} weeks" for i in rng.integers(0, 99, n)],
    "durations in months": lambda rng, n: [f"{i} months" for i in rng.integers(0, 999, n)],
    "moments of C": _patterned("%a %b %d %H:%M:%S %Y"),
    "months of two digits": _patterned("%b-%y"),
}


def _categories(values: list[Any]) -> Any:
    return pa.array(pd.Categorical(values))


def _objects(values: list[Any]) -> Any:
    return frame_table(pd.DataFrame({"x": pd.Series(values, dtype=object)})).column("x")


ARRAYS: dict[str, Callable[[list[Any]], Any]] = {  # of kinds that a list of Python objects does not tell
    "huge whole numbers": _objects,
    "numbers and moments": _objects,
    "days and moments": _objects,
    "moments of a zone": lambda values: pa.array(values, pa.timestamp("us", "Asia/Tokyo")),
    "nanoseconds": lambda values: pa.array(values, pa.timestamp("ns")),
    "sizes in order": lambda values: pa.array(pd.Categorical(values, ["S", "M", "L", "XL"], ordered=True)),
    "categories of dollars": _categories,
    "categories of days": _categories,
}
# what is uncertain or taken in another way, although values can be told apart
SAID = {
    "moments of a zone": "are taken in UTC",
    "names of months and two digits": "years of two digits",
    "months of two digits": "years of two digits",
    "sizes in order": "order of its categories",
    "large whole numbers in text": r"above 2\*\*53",
    "thousands and millions": "K, M and B",
    "hexadecimal": "hexadecimal|left out",
    "months of another language": "looks like dates|left out",
    "one number": "left out",
    "one word": "left out",
    "nothing": "left out",
}
_GAP_TYPES = (str, float, int, datetime.date, datetime.timedelta, datetime.time)


def _with_gaps(values: Any, rng: Rng) -> list[Any]:
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [None if gap else value for value, gap in zip(values, rng.random(len(values)) < 0.1, strict=True)]


def _key(value: Any) -> str:
    """What a value is, one text for all gaps."""
    if value is None or value != value or str(value).strip().lower() in GAP_TEXTS:
        return ""
    return str(value).strip()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_rows", [12, 90, 400])
def test_values_can_be_told_apart_or_it_is_said(kind: str, n_rows: int) -> None:
    rng = np.random.default_rng([n_rows, list(KINDS).index(kind)])
    for has_gaps in (False, True):
        values = KINDS[kind](rng, n_rows)
        values = _with_gaps(values, rng) if has_gaps else values
        made = values if isinstance(values, np.ndarray) else ARRAYS.get(kind, pa.array)(values)
        table = pa.table({"x": made, "y": np.arange(n_rows) ** 0.5})
        schema = learn_schema(table)
        use = schema.uses()[0]
        width = schema.columns[0].width
        X = schema.encode(table)
        rows = (X.toarray() if schema.sparse else X)[:, :width]
        assert np.isfinite(rows).all()
        found = {
            key: tuple(row) for key, row in zip(map(_key, table.column("x").to_pylist()), rows.tolist(), strict=True)
        }
        if use.loss is None and len(found) > 1:
            assert len(set(found.values())) == len(found), (kind, use)
        if use.use == "left out" or kind in SAID:
            has_two_values = kind.startswith("one ") and has_gaps
            assert has_two_values or (use.loss and re.search(SAID.get(kind, ""), use.loss)), (kind, use)
        if any(word in use.detail for word in ("hash", "for all others")) and len(found) > 2:
            singles = schema.columns[0].n_distinct - len(getattr(schema.columns[0].encoding, "values", ()))
            assert use.loss is not None or singles == 1, (kind, use)
