"""The result of a comparison: a table, a recommendation in words, a page."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tithe.core.files import replacing
from tithe.meta.boosting import worth_in_words
from tithe.plot import quality_by_size, quality_by_time
from tithe.plot.axes import drawn
from tithe.report.run import render, write_folder
from tithe.report.tables import Column, html_table, result_tables, share_text, text_rows, time_text

PHASES = ("draw", "calibrate", "fit", "polish")
Line = dict[str, Any]  # a row of `Comparison.table`
Verdict = Literal["coreset", "sample", "all rows", "larger size"]


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


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """What fits on few rows cost, beside a fit on all of them.

    Parameters
    ----------
    objective : str
    parameters : dict
        Of the objective.
    n_rows, n_held_out, n_features : int
        Rows learned from, rows held out, and columns.
    quality : str
        The score on rows held out: ``"accuracy"``, ``"R²"``, ``"explained loss"`` or ``"cost per row"``.
    higher_is_better : bool
    tol : float
        The excess loss that is taken as harmless.
    n_repeats : int
    reference : str
        What the excess loss is above, in words.
    baseline_note : str
        What a classifier would reach that knows nothing, in words; empty for others.
    stopped_note : str
        How far the comparison came before it was stopped, in words; empty if it ended.
    columns : list of dict
        What each column of a table is, what is done with it, and what is lost or to note, such as that it alone
        predicts the target; empty for arrays.
    table : list of dict
        A row for each method and size, the fit on all rows first: ``method``, ``is_sample`` (a random sample whose
        weights are not calibrated), ``drawn_uniformly`` (a uniform draw took the place of the one asked for, as it
        does where it is better with very few rows), ``polished``, ``size`` (rows asked for), ``share``, ``rows`` (kept)
        and ``n_repeats``; ``quality``, ``held_out_loss``, ``excess``, ``distortion`` and ``seconds``, of classifiers
        ``f1`` and ``average_precision`` (of the rarer of two classes), medians over the repeats, with the smallest and
        the largest as ``excess_low``, ``excess_high`` and so on; ``excess_limit``, which the excess of one more draw
        stays below in 95 % of draws; ``largest_distortion``, ``effective_size``, ``seconds_draw``,
        ``seconds_calibrate``, ``seconds_fit`` and ``seconds_polish``.
    runs : list of dict
        The numbers of every repeat.
    recommendation : Recommendation
        ``str(recommendation)`` says it in words.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = tithe.compare(X, objective="kmeans", sizes=[100], n_repeats=1, constructions=["auto"])
    >>> [line["method"] for line in result.table][:3]
    ['all rows', 'weighted uniform', 'calibrated sensitivity']
    >>> page = result.to_html()
    """

    objective: str
    parameters: dict[str, Any]
    n_rows: int
    n_held_out: int
    n_features: int
    quality: str
    higher_is_better: bool
    tol: float
    n_repeats: int
    reference: str
    table: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    recommendation: Recommendation
    baseline_note: str = ""
    stopped_note: str = ""
    columns: list[dict[str, str]] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What has to be known to read the table, in words."""
        notes = (
            *(self.stopped_note, self.baseline_note, self.class_weight_note),
            *(self.reference_note, self.draw_note, self.worth_note),
        )
        return [note for note in notes if note]

    @property
    def class_weight_note(self) -> str:
        """What weights of classes change, in words; empty without any."""
        weight = self.parameters.get("class_weight")
        if weight is None:
            return ""
        return f"Rows have the class weights {weight} in fits and losses; the other scores count them as they are."

    @property
    def reference_note(self) -> str:
        """What took the place of a fit on all rows, in words; empty if there was one."""
        size = int(self.table[0]["size"])
        if size == self.n_rows:
            return ""
        return (
            f"There is no fit on all {self.n_rows:,} rows: time or memory do not suffice. A random sample "
            f"of {size:,} rows, the largest affordable, takes its place. Losses are compared with the lowest one."
        )

    @property
    def draw_note(self) -> str:
        """Which rows were drawn in another way than asked for, in words; empty if none."""
        lines = [line for line in self.table if line["drawn_uniformly"] and not line["polished"]]
        named = ", ".join(f"{line['size']:,} rows by {line['method']}" for line in lines)
        return f"Drawn uniformly, which is better with so few rows: {named}." if lines else ""

    @property
    def worth_note(self) -> str:
        """What a row that was drawn for boosted trees is foretold to be worth, in words; empty for other objectives."""
        worth = [line["row_worth"] for line in self.table if "row_worth" in line]
        return f"By the gradients at a pilot, {worth_in_words(worth[-1])}." if worth else ""

    def __repr__(self) -> str:
        head = f"Comparison of {self.objective} on {self.n_rows:,} rows, {self.n_held_out:,} held out"
        return "\n".join([head, *_aligned(*self.text_rows()), *self.notes, str(self.recommendation)])

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self.recommendation))}</p>{html_table(self._columns(), self.table)}"

    def _columns(self) -> list[Column]:
        """The columns that are shown; that of polish only where there was any."""
        hidden = {"held_out_loss"} if self.quality == "cost per row" else set()  # it is the same number
        if not any(row["seconds_polish"] > 0.0 for row in self.table):
            hidden.add("seconds_polish")
        if any(row["distortion"] != row["distortion"] for row in self.table):
            hidden.add("distortion")  # a learner has no random solutions
        shown = [column for column in _COLUMNS if column[1] in self.table[0] and column[1] not in hidden]
        return [(self.quality if field == "quality" else title, field, form) for title, field, form in shown]

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """The titles and the rows of the table as text, without phases, which would not fit into a line."""
        hidden = (*_ONLY_ON_PAGES, *(("held_out_loss", "distortion") if "f1" in self.table[0] else ()))
        return text_rows([column for column in self._columns() if column[1] not in hidden], self.table)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, as ``results.json`` has them. Those that are not finite are None, as JSON has no infinity."""
        values = asdict(self)
        for lines in (values["table"], values["runs"]):
            for line in lines:
                line |= {name: None for name, value in line.items() if value in (math.inf, -math.inf) or value != value}
        return values

    def to_frame(self) -> Any:
        """The table as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.table)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """The table as CSV: written to a file, or returned if no path is given."""
        buffer = io.StringIO()
        writer = csv.DictWriter(
            buffer, fieldnames=list({name: None for line in self.table for name in line}), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(self.table)
        return _written(buffer.getvalue(), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """All numbers as JSON: written to a file, or returned if no path is given."""
        return _written(json.dumps(self.to_dict(), indent=2) + "\n", path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """A page that needs no other file and no network: written to a file, or returned if no path is given."""
        return _written(self._page(), path)

    def _page(self) -> str:
        title = f"{self.quality[0].upper()}{self.quality[1:]} on rows held out, by rows kept"
        figures = {
            "Excess loss by rows kept": drawn(quality_by_size, self, height=4.0),
            title: drawn(quality_by_size, self, value="quality", height=4.0),
            "Excess loss by time": drawn(quality_by_time, self, height=4.0),
        }
        table, columns = html_table(self._columns(), self.table), result_tables({"columns": self.columns}, most=0)
        return render("compare.html", run=self, table=table, tables=columns, figures=figures)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``table.csv``, ``report.html`` and ``results.json``, and return the path of the page."""
        contents = {"results.json": self.to_json(), "report.html": self.to_html(), "table.csv": self.to_csv()}
        write_folder(Path(folder), contents)
        return Path(folder) / "report.html"


def class_weight_in_words(class_weight: Any) -> str:
    """Weights of classes as the command line takes them.

    >>> class_weight_in_words({"yes": 5, "no": 1.0}), class_weight_in_words("balanced")
    ('yes=5,no=1', 'balanced')
    """
    if isinstance(class_weight, str):
        return class_weight
    return ",".join(f"{label}={weight:g}" for label, weight in class_weight.items())


def _written(text: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return text
    with replacing(path) as file:
        file.write_text(text, encoding="utf8")
    return None


def _aligned(titles: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table in columns of equal width, the first to the left."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    shown = []
    for row in [titles, *rows]:
        cells = [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        shown.append("  ".join(cells).rstrip())
    return shown


_count, _score = "{:,.0f}".format, "{:.4g}".format
_COLUMNS: tuple[Column, ...] = (
    ("method", "method", str),
    ("rows kept", "rows", _count),
    ("quality", "quality", _score),
    ("F1", "f1", _score),
    ("avg. precision", "average_precision", _score),
    ("loss held out", "held_out_loss", _score),
    ("excess loss", "excess", share_text),
    ("worst repeat", "excess_high", share_text),
    ("distortion", "distortion", share_text),
    ("effective rows", "effective_size", _count),
    *((phase, f"seconds_{phase}", time_text) for phase in PHASES),
    ("time", "seconds", time_text),
)
_ONLY_ON_PAGES = ("effective_size", *(f"seconds_{phase}" for phase in PHASES))


# -- the recommendation ------------------------------------------------------------------------

_QUICK = 0.1  # seconds: a fit on all rows that takes no longer leaves nothing to save
_HARDLY_MORE = 1.1  # times the excess loss with many rows: with fewer it is called the same
_LITTLE = 10.0  # times the excess loss that is taken as harmless
_NOT_FAR = 2.0  # times the excess loss that suffices: more with a larger size makes a smaller one luck
_SLOPES = 1.0, 1.5  # of excess by rows: 1 where there are many rows for each parameter, more where there are few
_RESERVE = 1.3  # times the excess that is foretold for sizes that were not tried
_CLEAR_GAIN = 1.5  # two excess losses are called alike unless one is this number of times the other


def recommend(
    table: Sequence[Line],
    *,
    tol: float,
    n_rows: int,
    quality: str,
    one_solution: bool = False,
    can_polish: bool = True,
) -> Recommendation:
    """A recommendation from the rows of `Comparison.table`. ``one_solution``: fits on the same rows are all the same.
    ``can_polish``: more passes over all rows could improve a solution.

    Fits on all rows may differ among themselves. A method suffices from the size on at which the excess loss of its
    worst repeat is at most ``tol`` above that of the worst fit on all rows, that of a typical repeat at most ``tol``
    above half way from the typical to the worst one, and larger sizes are not far from it either. The worst repeat
    stands for the limit that one more draw is within in 95 % of draws, if that is larger. The coreset that
    suffices with the fewest rows is compared with the smallest random sample that suffices, and with a fit on all
    rows, by rows and by time.
    """
    return _Adviser(table, tol, n_rows, quality, one_solution, can_polish).recommendation()


class _Adviser:
    """Looks for the smallest coreset and random sample that suffice, and says what it found."""

    def __init__(
        self, table: Sequence[Line], tol: float, n_rows: int, quality: str, one_solution: bool, can_polish: bool
    ) -> None:
        self.can_polish = can_polish
        self.full, tried = table[0], list(table[1:])
        self.tol, self.n_rows, self.quality, self.one_solution = tol, n_rows, quality, one_solution
        self.is_all = self.full["size"] == n_rows
        self.limit = self.typical_limit = tol
        # a sample in the place of all rows may have lost anything, which is no reason to lose as much
        if self.is_all and math.isfinite(self.full["excess_high"]):
            self.limit += self.full["excess_high"]
            self.typical_limit += (self.full["excess"] + self.full["excess_high"]) / 2.0
        # polish reads all rows again and again: it is recommended only where nothing else suffices
        plain = [line for line in tried if not line["polished"]]
        self.lines = plain if self._sufficient(plain) else tried

    def _sufficient(self, lines: Sequence[Line]) -> list[Line]:
        """The lines that suffice. Luck with few rows does not count: with more the loss must not be far above."""
        too_small: dict[str, int] = {}
        for line in lines:
            if not line["excess_limit"] <= _NOT_FAR * self.limit:
                too_small[line["method"]] = max(line["size"], too_small.get(line["method"], 0))
        return [
            line
            for line in lines
            if line["size"] > too_small.get(line["method"], 0)
            and line["excess_limit"] <= self.limit
            and line["excess"] <= self.typical_limit
        ]

    def recommendation(self) -> Recommendation:
        """The verdict, and the words for it."""
        enough = self._sufficient(self.lines)
        samples, coresets = ([line for line in enough if line["is_sample"] == sampled] for sampled in (True, False))
        sample = min(samples, key=lambda line: line["size"], default=None)
        coreset = min(coresets, key=lambda line: (line["size"], line["seconds"]), default=None)
        quickest = min(enough, key=lambda line: line["seconds"], default=None)
        if quickest is None:
            return self._use_more_rows()
        if self.is_all and self.full["seconds"] <= max(quickest["seconds"], _QUICK):
            return self._use_all_rows(quickest)
        if coreset is None or (sample is not None and sample["size"] <= coreset["size"]):
            assert sample is not None
            return self._use_sample(sample)
        if sample is None or sample["seconds"] >= coreset["seconds"]:
            return self._use_coreset(coreset, sample)
        return self._use_sample_once(sample, coreset)

    def _use_all_rows(self, quickest: Line) -> Recommendation:
        text = (
            f"Use all rows: a fit on them takes {_time(self.full)}, and the quickest way that loses at most "
            f"{share_text(self.tol)}, {_named(quickest)}, takes {_time(quickest)}."
        )
        if 2.0 * quickest["seconds_fit"] < self.full["seconds"]:
            each = time_text(quickest["seconds_fit"])
            text += f" Many fits are quicker on {_named(quickest)}, drawn once: {each} each."
        return _of("all rows", self.full, text)

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
        size = max(line["size"] for line in self.lines)
        largest = [line for line in self.lines if line["size"] == size]
        best = min(largest, key=lambda line: line["excess_limit"])
        sample = next(line for line in largest if line["is_sample"] and line["polished"] == best["polished"])
        fewer = self._as_good_with_fewer_rows(best)
        if fewer is not None:
            return self._use_several_fits(fewer, best)
        wanted = self._size_within_limit(best["method"])
        unit = 10 ** max(0, len(str(wanted)) - 2)  # two digits are enough
        wanted = min(-(-wanted // unit) * unit, self.n_rows)
        few = wanted < self.n_rows // 2
        more = f"about {wanted:,} rows" if few else "nearly all rows"
        polish = ", or polish" if self.can_polish and not best["polished"] else ""
        text = (
            f"None of the sizes tried suffices for an excess loss of {share_text(self.tol)}: the best, {_named(best)}, "
            f"has {self._excess_text(best)}. Ask for {more}{polish}: that size was not tried."
        )
        if best is sample or sample["excess"] < _CLEAR_GAIN * max(best["excess"], 0.0):
            text += " At these sizes a coreset brings nothing over a random sample."
        else:
            text += f" A random sample of the same size has {self._excess_text(sample)}."
        advice = _of("larger size", best, text, size=wanted if few else self.n_rows)
        return replace(advice, tried=not few)  # all rows were

    def _size_within_limit(self, method: str) -> int:
        """Where the limits of the excess of a method fall to what is allowed: they fall like (1 / m - 1 / n)^slope."""
        lines = [line for line in self.lines if line["method"] == method and 0.0 < line["excess_limit"] < math.inf]
        if not lines:
            return self.n_rows
        missing = np.array([1.0 / line["size"] - 1.0 / self.n_rows for line in lines])
        logs = np.log([line["excess_limit"] for line in lines])
        slope = np.polyfit(np.log(missing), logs, 1)[0] if len(lines) > 1 else 1.0
        allowed = self.limit / (_RESERVE * lines[-1]["excess_limit"])
        share = missing[-1] * allowed ** (1.0 / float(np.clip(slope, *_SLOPES)))
        return int(max(lines[-1]["size"] + 1, math.ceil(1.0 / (share + 1.0 / self.n_rows))))

    def _as_good_with_fewer_rows(self, best: Line) -> Line | None:
        """The line of the same coreset with the fewest rows whose worst repeat is no worse than that of the best one.

        It has at most half as many rows: a small difference in size tells nothing.

        None if much is lost, since rows that no draw of these sizes keeps would be a reason as well.
        """
        if self.one_solution or best["is_sample"] or not best["excess_high"] <= _LITTLE * self.limit:
            return None
        same = [line for line in self.lines if line["method"] == best["method"] and line["size"] <= best["size"] // 2]
        enough = [line for line in same if line["excess_high"] <= _HARDLY_MORE * best["excess_high"]]
        return min(enough, key=lambda line: line["size"], default=None)

    def _use_several_fits(self, fewer: Line, best: Line) -> Recommendation:
        """More rows do not lower the loss: what is left comes from the solver, which has several solutions."""
        sample = next(line for line in self.lines if line["is_sample"] and line["size"] == fewer["size"])
        several = (
            "take the best of several fits"
            if best["polished"] or not self.can_polish
            else "polish, or take the best of several fits"
        )
        text = (
            f"Use {fewer['method']} with {fewer['size']:,} rows, and {several}. More rows do not help: "
            f"{_named(fewer)} have {self._excess_text(fewer)}, {best['size']:,} rows {self._excess_text(best)}. What "
            f"exceeds {share_text(self.tol)} is not lost by keeping few rows: fits end in different solutions"
            f"{self._typical_on_all_rows()}. A random sample of {fewer['size']:,} rows has {self._excess_text(sample)}."
        )
        beside = f" instead of {_time(self.full)} for all rows" if self.is_all else ""
        return _of("coreset", fewer, f"{text} A fit takes {_time(fewer)}{beside}.")

    def _said(self, line: Line) -> str:
        """The size of a line, its losses and its time, beside those of a fit on all rows."""
        kept = "" if line["rows"] == line["size"] else f" asked for, {line['rows']:,} different ones kept"
        text = f"{100.0 * line['size'] / self.n_rows:.2g} % of the rows ({line['size']:,}{kept}) suffice: "
        text += f"{self._excess_text(line)}"
        if self.is_all:
            quality = f"{self.quality} {line['quality']:.4g} instead of {self.full['quality']:.4g} on rows held out"
            text += f", {quality}, in {_time(line)} instead of {_time(self.full)} for all rows."
            if self.full["excess_high"] > 0.1 * self.tol:
                text += f" (Fits end in different solutions{self._typical_on_all_rows()}.)"
            return text
        return f"{text}, in {_time(line)}. A fit on all rows was too expensive to compare with."

    def _typical_on_all_rows(self) -> str:
        """How far fits on all rows are above the best of them, as the end of a sentence."""
        if not self.is_all:
            return ""
        worst = f", at worst {share_text(self.full['excess_high'])}" if self.full["n_repeats"] > 1 else ""
        return f": a typical fit on all rows is itself {share_text(self.full['excess'])} above the best of them{worst}"

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


def _of(verdict: Verdict, line: Line, text: str, *, size: int | None = None) -> Recommendation:
    return Recommendation(
        verdict=verdict, method=line["method"], size=line["size"] if size is None else size, text=text
    )


def _named(line: Line) -> str:
    size = f"{line['size']:,} rows"
    return f"a random sample of {size}" if line["is_sample"] else f"{size} by {line['method']}"


def _time(line: Line) -> str:
    return time_text(line["seconds"])
