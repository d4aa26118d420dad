"""The result of a comparison: a table, a recommendation in words, a page."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tithe.core.files import replacing
from tithe.meta.boosting import worth_in_words
from tithe.plot import quality_by_size, quality_by_time
from tithe.plot.axes import drawn
from tithe.report.advice import Recommendation
from tithe.report.run import render, write_folder
from tithe.report.tables import Column, html_table, result_tables, share_text, text_rows, time_text

PHASES = ("draw", "calibrate", "fit", "polish")


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
