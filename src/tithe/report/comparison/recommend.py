"""The recommendation at the end of a comparison, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tithe.core.progress import seconds_text

Verdict = Literal["coreset", "sample", "all rows", "larger size"]
_ROUNDING = 1e-10
_QUICK = 0.1  # seconds: a fit on all rows that takes no longer leaves nothing to save
_CLEAR_GAIN = 1.5  # times the excess loss of the one method is that of the other, or they are called alike
_NO_GAIN = "Use a random sample: a coreset brings nothing here."


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to use, and why.

    Parameters
    ----------
    verdict : {"coreset", "sample", "all rows", "larger size"}
    method : str
        The method recommended, as the table names it.
    size : int
        Rows to ask for.
    text : str
        The same in words.
    """

    verdict: Verdict
    method: str
    size: int
    text: str

    def __str__(self) -> str:
        return self.text


def recommend(table: Sequence[dict[str, Any]], *, tol: float, n_rows: int) -> Recommendation:
    """A recommendation from the rows of `Comparison.table`.

    A method suffices if its excess loss with the worst seed is at most ``tol`` above that of a typical fit on all rows.
    Of the methods that suffice, the one with the fewest rows is compared with the smallest random sample that suffices,
    and with a fit on all rows, by rows and by time.
    """
    full, tried = table[0], table[1:]
    limit = tol + full["excess"]
    # polish reads all rows again and again: it is recommended only where nothing else suffices
    plain = [row for row in tried if not row["polished"]]
    rest = plain if any(row["excess_high"] <= limit for row in plain) else tried
    enough = [row for row in rest if row["excess_high"] <= limit]
    sample = min((row for row in enough if row["is_sample"]), key=lambda row: row["size"], default=None)
    coreset = min(
        (row for row in enough if not row["is_sample"]), key=lambda row: (row["size"], row["seconds"]), default=None
    )
    chosen = min(filter(None, (sample, coreset)), key=lambda row: row["seconds"], default=None)
    if full["size"] == n_rows and chosen is not None and full["seconds"] <= max(chosen["seconds"], _QUICK):
        return _use_all_rows(full, chosen, tol)
    if sample is not None and (coreset is None or sample["size"] <= coreset["size"]):
        return _use_sample(sample, rest, tol, full, n_rows)
    if coreset is not None:
        return _use_coreset(coreset, sample, rest, full, n_rows)
    return _use_more_rows(rest, tol, limit, n_rows)


def _use_all_rows(full: dict[str, Any], chosen: dict[str, Any], tol: float) -> Recommendation:
    text = (
        f"Use all rows: a fit on them takes {_time(full)}, and the quickest way that loses at most {share_text(tol)}, "
        f"{_named(chosen)}, takes {_time(chosen)}. For many fits on the same rows, {_named(chosen)} save time: each "
        f"fit takes {time_text(chosen['seconds_fit'])} once the rows are drawn."
    )
    if chosen["seconds_fit"] >= full["seconds"]:
        text = text.partition(" For many fits")[0]
    return Recommendation(verdict="all rows", method=full["method"], size=full["size"], text=text)


def _use_sample(
    sample: dict[str, Any], rest: Sequence[dict[str, Any]], tol: float, full: dict[str, Any], n_rows: int
) -> Recommendation:
    text = f"{_NO_GAIN} {_kept(sample, n_rows)} suffices: {_excess_text(sample)}.{_speed(sample, full, n_rows)}"
    best = min(
        (row for row in rest if not row["is_sample"] and row["size"] == sample["size"]),
        key=lambda row: row["excess"],
        default=None,
    )
    if best is not None and best["excess"] > 0.0 and sample["excess"] >= _CLEAR_GAIN * best["excess"]:
        text += (
            f" The same number of rows by {best['method']} has an excess loss of {share_text(best['excess'])} instead "
            f"of {share_text(sample['excess'])}, which matters only if you need less than {share_text(tol)}."
        )
    return Recommendation(verdict="sample", method=sample["method"], size=sample["size"], text=text)


def _use_coreset(
    coreset: dict[str, Any],
    sample: dict[str, Any] | None,
    rest: Sequence[dict[str, Any]],
    full: dict[str, Any],
    n_rows: int,
) -> Recommendation:
    text = f"Use {coreset['method']}. {_kept(coreset, n_rows)} suffices: {_excess_text(coreset)}."
    text += _speed(coreset, full, n_rows)
    if sample is None:
        same_size = next(row for row in rest if row["is_sample"] and row["size"] == coreset["size"])
        text += f" A random sample of the same size has {_excess_text(same_size)}"
        largest = max((row for row in rest if row["is_sample"]), key=lambda row: row["size"])
        if largest is not same_size:
            text += f", and one of {largest['size']:,} rows {_excess_text(largest)}"
        return Recommendation(verdict="coreset", method=coreset["method"], size=coreset["size"], text=text + ".")
    if sample["seconds"] >= coreset["seconds"]:
        text += f" A random sample needs {sample['size']:,} rows for that, and {_time(sample)}."
        return Recommendation(verdict="coreset", method=coreset["method"], size=coreset["size"], text=text)
    once = (
        f"For one fit use a random sample of {sample['size']:,} rows: it takes {_time(sample)}, and has "
        f"{_excess_text(sample)}."
    )
    saved = sample["seconds_fit"] - coreset["seconds_fit"]
    if saved <= 0.0:
        text = f"{once} A coreset saves rows, not time: {coreset['size']:,} rows by {coreset['method']} are as good."
        return Recommendation(verdict="sample", method=sample["method"], size=sample["size"], text=text)
    n_fits = math.ceil((coreset["seconds"] - coreset["seconds_fit"] - sample["seconds_draw"]) / saved) + 1
    text = (
        f"{once} From {n_fits:,} fits on the same rows on, or where few rows are what counts, use {coreset['method']} "
        f"with {coreset['size']:,} rows: {_excess_text(coreset)}, each fit in "
        f"{time_text(coreset['seconds_fit'])} instead of {time_text(sample['seconds_fit'])}."
    )
    return Recommendation(verdict="sample", method=sample["method"], size=sample["size"], text=text)


def _use_more_rows(rest: Sequence[dict[str, Any]], tol: float, limit: float, n_rows: int) -> Recommendation:
    largest = max(row["size"] for row in rest)
    at_largest = [row for row in rest if row["size"] == largest]
    best = min(at_largest, key=lambda row: row["excess_high"])
    sample = next(row for row in at_largest if row["is_sample"] and row["polished"] == best["polished"])
    # the excess of a fit on m rows falls as 1/m
    wanted = math.ceil(largest * best["excess_high"] / limit) if limit > 0 else n_rows
    more = f"about {_two_digits(wanted):,} rows" if wanted < n_rows // 2 else "nearly all rows"
    text = (
        f"None of the sizes tried suffices for an excess loss of {share_text(tol)}: the best, {_named(best)}, has "
        f"{_excess_text(best)}. Ask for {more}{'' if best['polished'] else ', or polish'}."
    )
    if best is sample or sample["excess"] < _CLEAR_GAIN * max(best["excess"], 0.0):
        text += " At these sizes a coreset brings nothing over a random sample."
    else:
        text += f" A random sample of the same size has {_excess_text(sample)}."
    return Recommendation(verdict="larger size", method=best["method"], size=wanted, text=text)


def _named(row: dict[str, Any]) -> str:
    size = f"{row['size']:,} rows"
    return f"a random sample of {size}" if row["is_sample"] else f"{size} by {row['method']}"


def _kept(row: dict[str, Any], n_rows: int) -> str:
    share = 100.0 * row["size"] / n_rows
    return f"A share of {share:.2g} % of the rows ({row['size']:,})"


def _excess_text(row: dict[str, Any]) -> str:
    if row["excess_high"] <= 0.0:
        return "no more loss than a fit on all rows"
    if row["n_repeats"] == 1:
        return f"an excess loss of {share_text(row['excess'])}"
    return f"an excess loss of {share_text(max(row['excess'], 0.0))}, at worst {share_text(row['excess_high'])}"


def _speed(row: dict[str, Any], full: dict[str, Any], n_rows: int) -> str:
    if full["size"] < n_rows:
        return f" It takes {_time(row)}."
    return f" It takes {_time(row)}, a fit on all rows {_time(full)}."


def _time(row: dict[str, Any]) -> str:
    return time_text(row["seconds"])


def share_text(share: float) -> str:
    """A share in per cent with two digits. What is within rounding error of zero is zero.

    >>> share_text(0.0123), share_text(37.4), share_text(3.6e-7), share_text(-2e-15)
    ('1.2 %', '3,740 %', '3.6e-05 %', '0 %')
    """
    if abs(share) < _ROUNDING:
        return "0 %"
    return f"{100.0 * share:,.0f} %" if abs(share) >= 1.0 else f"{100.0 * share:.2g} %"


def time_text(seconds: float) -> str:
    """A time, with two digits below ten seconds.

    >>> time_text(0.01234), time_text(3.21), time_text(75)
    ('0.012 s', '3.2 s', '1 min')
    """
    if seconds < 5e-4:
        return "0 s"
    return f"{seconds:.2g} s" if seconds < 10.0 else seconds_text(seconds)


def _two_digits(number: int) -> int:
    unit = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit
