"""How many rows to keep: what a comparison recommends, and what it draws before it does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from tithe.report.tables import share_text, time_text

Line = dict[str, Any]  # a row of `Comparison.table`
Verdict = Literal["coreset", "sample", "all rows", "larger size"]

_LARGEST_SHARE = 0.9  # of the rows: keeping more saves nothing
_NOT_FAR = 2.0  # times the excess loss that suffices: more with a larger size makes a smaller one luck
_STEEPEST = 2.5  # fall of the excess by rows: 1 for random samples of many rows, more after calibration
_NO_EXCESS = 1e-9  # excess losses below are called this
_RESERVE = 1.3  # times the excess that is foretold for sizes that were not tried
_LEAST_GROWTH, _MOST_GROWTH = 1.15, 4.0  # of a size after one that did not suffice
_FAR = 1.5  # times the rows that do not suffice: if those that do are more, a size between them is tried
_CLEAR_GAIN = 1.5  # two excess losses are called alike unless one is this number of times the other


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
    tried : bool
        Whether fits with that many rows were made.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = tithe.compare(X, objective="kmeans", sizes=[100], n_repeats=1)
    >>> result.recommendation.verdict in ("coreset", "sample", "all rows", "larger size")
    True
    """

    verdict: Verdict
    method: str
    size: int
    text: str
    tried: bool = True

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Adviser:
    """Looks for the smallest coreset and random sample that suffice, and says what it found.

    ``table`` is that of `Comparison`. ``can_polish``: more passes over all rows could improve a solution.

    Fits on all rows may differ among themselves. A method suffices from the size on at which the excess loss of its
    worst repeat is at most ``tol`` above that of the worst fit on all rows, that of a typical repeat at most ``tol``
    above half way from the typical to the worst one, and larger sizes are not far from it either. The worst repeat
    stands for the limit that one more draw is within in 95 % of draws, if that is larger. The coreset that suffices
    with the fewest rows is compared with the smallest random sample that suffices, by rows and by time.
    """

    table: list[Line]
    tol: float
    n_rows: int
    quality: str
    can_polish: bool = True

    @property
    def full(self) -> Line:
        return self.table[0]

    @property
    def is_all(self) -> bool:
        """Whether there was a fit on all rows."""
        return bool(self.full["size"] == self.n_rows)

    @cached_property
    def _limits(self) -> tuple[float, float]:
        """What the excess losses of nearly all draws, and of a typical one, may be."""
        # a sample in the place of all rows may have lost anything, which is no reason to lose as much
        if not self.is_all or not math.isfinite(self.full["excess_high"]):
            return self.tol, self.tol
        worst = self.full["excess_high"]
        return self.tol + worst, self.tol + (self.full["excess"] + worst) / 2.0

    @cached_property
    def lines(self) -> list[Line]:
        """The lines to choose from. Polish reads all rows many times: it counts only where nothing else suffices."""
        plain = [line for line in self.table[1:] if not line["polished"]]
        return plain if self._sufficient(plain) else self.table[1:]

    def _sufficient(self, lines: list[Line]) -> list[Line]:
        """The lines that suffice. Luck with few rows does not count: with more the loss must not be far above."""
        limit, typical = self._limits
        too_small: dict[str, int] = {}
        for line in lines:
            if not line["excess_limit"] <= _NOT_FAR * limit:
                too_small[line["method"]] = max(line["size"], too_small.get(line["method"], 0))
        return [
            line
            for line in lines
            if line["size"] > too_small.get(line["method"], 0)
            and line["excess_limit"] <= limit
            and line["excess"] <= typical
        ]

    # -- what to draw --------------------------------------------------------------------------

    def next_draws(self, n_draws: int) -> tuple[str, int] | None:
        """The method and size to draw next, until what suffices has ``n_draws`` draws; None then, or if nothing can.

        First come lines whose draws are all good but too few to tell. Where no line suffices, it is the size at which
        the limits of a method, as they fall with the rows, reach what is allowed. Where one suffices and far fewer rows
        do not, it is a size between them.
        """
        advice = self.recommendation() if self._sufficient(self.lines) else None
        methods = [line["method"] for line in self.lines] if advice is None else [advice.method]
        most = self.n_rows if advice is None else advice.size
        failed = {method: self._failed(method, n_draws) for method in methods}
        few = [
            (line["size"], line["method"])
            for line in self.lines
            if line["method"] in methods
            and failed[line["method"]] < line["size"] <= most
            and line["n_repeats"] < n_draws
        ]
        if few:
            size, method = min(few)
        elif advice is None:
            method, size = self._foretold(to_try=True)
        else:
            method, size = advice.method, self._between(advice.method, failed[advice.method], most)
        return None if size == most and not few else (method, size)

    def _is_good(self, line: Line) -> bool:
        """Whether no draw says that these rows do not suffice."""
        limit, typical = self._limits
        return bool(line["excess_high"] <= limit and line["excess"] <= typical)

    def _failed(self, method: str, n_draws: int) -> int:
        """The most rows of a method that do not suffice; 0 if it is none of those tried."""
        lines = [line for line in self.lines if line["method"] == method and not self._sufficient([line])]
        return max(
            (line["size"] for line in lines if line["n_repeats"] >= n_draws or not self._is_good(line)), default=0
        )

    def _between(self, method: str, failed: int, enough: int) -> int:
        """A size that may suffice where ``enough`` rows do and ``failed`` rows do not; ``enough`` if they are near."""
        if not 0 < failed < enough / _FAR:
            return enough
        of_size = {line["size"]: line for line in self.lines if line["method"] == method}
        size = self._reaching([of_size[failed], of_size[enough]], steepest=math.inf)
        size = _rounded(max(size, _LEAST_GROWTH * failed))
        return size if size < enough / _LEAST_GROWTH else enough

    def _foretold(self, *, to_try: bool) -> tuple[str, int]:
        """The method that is expected to suffice with the fewest rows, and these; all rows if none is left to try."""
        methods = {line["method"]: line["is_sample"] for line in self.lines}
        sizes = {method: self._size_within_limit(method, to_try) for method in methods}
        best = min(methods, key=lambda method: (sizes[method], methods[method]))
        return best, sizes[best]

    def _size_within_limit(self, method: str, to_try: bool) -> int:
        """The size above those tried at which the limits of a method should fall to what is allowed.

        Of a size that will be tried the fall is taken as steep, and the step is bounded: a larger one may follow.
        """
        lines = sorted((line for line in self.lines if line["method"] == method), key=lambda line: int(line["size"]))
        tried, largest = int(lines[-1]["size"]), int(_LARGEST_SHARE * self.n_rows)
        if tried >= largest:
            return self.n_rows
        known = [line for line in lines if line["excess_limit"] < math.inf][-2:]
        size = self._reaching(known, steepest=_STEEPEST if to_try else 1.0) if known else math.inf
        most = _MOST_GROWTH * tried if to_try else self.n_rows
        return min(_rounded(min(max(size, _LEAST_GROWTH * tried), most)), largest)

    def _reaching(self, known: list[Line], steepest: float) -> float:
        """Where the limits of one or two lines reach what is allowed: they fall like (1 / m - 1 / n)^slope."""
        logs = [math.log(max(line["excess_limit"], _NO_EXCESS)) for line in known]
        missing = [math.log(1.0 / line["size"] - 1.0 / self.n_rows) for line in known]
        slope = steepest
        if len(known) == 2:
            slope = min(max((logs[0] - logs[1]) / (missing[0] - missing[1]), 1.0), steepest)
        share = math.exp(missing[-1] + (math.log(self._limits[0] / _RESERVE) - logs[-1]) / slope)
        return 1.0 / (share + 1.0 / self.n_rows)

    # -- what to say ---------------------------------------------------------------------------

    def recommendation(self) -> Recommendation:
        """The verdict, and the words for it."""
        enough = self._sufficient(self.lines)
        samples, coresets = ([line for line in enough if line["is_sample"] == sampled] for sampled in (True, False))
        sample = min(samples, key=lambda line: line["size"], default=None)
        coreset = min(coresets, key=lambda line: (line["size"], line["seconds"]), default=None)
        if coreset is not None and (sample is None or sample["size"] > coreset["size"]):
            if sample is None or sample["seconds"] >= coreset["seconds"]:
                return self._use_coreset(coreset, sample)
            return self._use_sample_once(sample, coreset)
        return self._use_more_rows() if sample is None else self._use_sample(sample)

    def _use_sample(self, sample: Line) -> Recommendation:
        same_size = [line for line in self.lines if not line["is_sample"] and line["size"] == sample["size"]]
        best = min(same_size, key=lambda line: line["excess"], default=None)
        text = f"Use a random sample: a coreset brings nothing here. {self._said(sample)}"
        if best is not None and best["excess"] > 0.0 and sample["excess"] >= _CLEAR_GAIN * best["excess"]:
            text += (
                f" As many rows by {best['method']} have {self._excess_text(best)}, which matters only if you need "
                f"less than {share_text(self.tol)}."
            )
        return _of("sample", sample, text)

    def _use_coreset(self, coreset: Line, sample: Line | None) -> Recommendation:
        text = f"Use {coreset['method']}. {self._said(coreset)}"
        if sample is not None:
            text += f" A random sample needs {sample['size']:,} rows for that, and {_time(sample)}."
            return _of("coreset", coreset, text)
        samples = [line for line in self.lines if line["is_sample"] and line["polished"] == coreset["polished"]]
        largest = max(samples, key=lambda line: line["size"])
        same_size = next(line for line in samples if line["size"] == coreset["size"])
        text += f" A random sample of the same size has {self._excess_text(same_size)}"
        text += "." if largest is same_size else f", and one of {largest['size']:,} rows {self._excess_text(largest)}."
        return _of("coreset", coreset, text)

    def _use_sample_once(self, sample: Line, coreset: Line) -> Recommendation:
        """A random sample needs more rows, and is quicker all the same."""
        text = f"For one fit use a random sample, as drawing a coreset takes longer. {self._said(sample)}"
        saved = sample["seconds_fit"] - coreset["seconds_fit"]
        if saved <= 0.0:
            text += f" A coreset saves rows, not time: {_named(coreset)} have {self._excess_text(coreset)}."
            return _of("sample", sample, text)
        drawing = coreset["seconds"] - coreset["seconds_fit"] - sample["seconds_draw"]
        n_fits = max(2, math.ceil(drawing / saved))
        text += (
            f" For {n_fits:,} fits or more, or where few rows are what counts, use {coreset['method']} with "
            f"{coreset['size']:,} rows: {self._excess_text(coreset)}, each fit in {time_text(coreset['seconds_fit'])} "
            f"instead of {time_text(sample['seconds_fit'])}."
        )
        return _of("sample", sample, text)

    def _use_more_rows(self) -> Recommendation:
        """None of the sizes tried suffices."""
        method, wanted = self._foretold(to_try=False)
        best = min(self.lines, key=lambda line: (line["excess_limit"], line["size"]))
        text = (
            f"None of the sizes tried suffices for an excess loss of {share_text(self.tol)}: the best, {_named(best)}, "
            f"has {self._excess_text(best)}."
        )
        if wanted == self.n_rows:
            return Recommendation(verdict="all rows", method="all rows", size=self.n_rows, text=f"Use all rows. {text}")
        polish = ", or polish" if self.can_polish and not best["polished"] else ""
        text += f" Ask for about {wanted:,} rows by {method}{polish}: that size was not tried."
        samples = [line for line in self.lines if line["is_sample"] and line["polished"] == best["polished"]]
        sample = next(line for line in samples if line["size"] == best["size"])
        if best is sample or sample["excess"] < _CLEAR_GAIN * max(best["excess"], 0.0):
            text += " At these sizes a coreset brings nothing over a random sample."
        else:
            text += f" A random sample of the same size has {self._excess_text(sample)}."
        return Recommendation(verdict="larger size", method=method, size=wanted, text=text, tried=False)

    def _said(self, line: Line) -> str:
        """The size of a line, its losses and its time, beside those of a fit on all rows."""
        kept = "" if line["rows"] == line["size"] else f" asked for, {line['rows']:,} different ones kept"
        text = f"{100.0 * line['size'] / self.n_rows:.2g} % of the rows ({line['size']:,}{kept}) suffice: "
        text += f"{self._excess_text(line)}"
        if self.is_all:
            quality = f"{self.quality} {line['quality']:.4g} instead of {self.full['quality']:.4g} on rows held out"
            text += f", {quality}, in {_time(line)} instead of {_time(self.full)} for all rows."
            if self.full["excess_high"] > 0.1 * self.tol:
                worst = f", at worst {share_text(self.full['excess_high'])}" if self.full["n_repeats"] > 1 else ""
                typical = (
                    f"a typical fit on all rows is itself {share_text(self.full['excess'])} above the best of them"
                )
                text += f" (Fits end in different solutions: {typical}{worst}.)"
            if self.full["seconds"] <= line["seconds"]:
                each = time_text(line["seconds_fit"])
                text += f" A single fit is quickest on all rows; once drawn, few rows take {each} a fit."
            return text
        return f"{text}, in {_time(line)}. A fit on all rows was too expensive to compare with."

    def _excess_text(self, line: Line) -> str:
        if line["excess_high"] <= 0.0:
            return "no more loss than a fit on all rows" if self.is_all else "the lowest loss of all"
        if math.isinf(line["excess"]):
            return "a loss where the best fit has none"
        median = share_text(max(line["excess"], 0.0))
        if line["n_repeats"] == 1:
            return f"an excess loss of {median}"
        worst, limit = share_text(line["excess_high"]), share_text(line["excess_limit"])
        return f"an excess loss of {median} (at worst {worst}; within {limit} in 95 % of draws)"


def _of(verdict: Verdict, line: Line, text: str) -> Recommendation:
    return Recommendation(verdict=verdict, method=line["method"], size=line["size"], text=text)


def _named(line: Line) -> str:
    size = f"{line['size']:,} rows"
    return f"a random sample of {size}" if line["is_sample"] else f"{size} by {line['method']}"


def _time(line: Line) -> str:
    return time_text(line["seconds"])


def _rounded(size: float) -> int:
    """The size in two digits, rounded up."""
    unit = math.pow(10.0, len(str(math.ceil(size))) - 2)
    return int(math.ceil(size / unit) * unit)
