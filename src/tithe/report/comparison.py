"""The result of a comparison: a table, a recommendation, a page."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from tithe.core.files import replacing
from tithe.plot import quality_by_size, quality_by_time
from tithe.plot.axes import drawn
from tithe.report.recommend import Recommendation, share_text, time_text
from tithe.report.run import render, write_folder

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
    table : list of dict
        A row for each method and size, the fit on all rows first: ``method``, ``is_sample`` (a random sample whose
        weights are not calibrated), ``drawn_uniformly`` (a uniform draw took the place of the one asked for, as it
        does where it is better with very few rows), ``polished``, ``size`` (rows asked for), ``share``, ``rows`` (kept)
        and ``n_repeats``; ``quality``, ``held_out_loss``, ``excess``, ``distortion`` and ``seconds``, medians over the
        repeats, with the smallest and the largest as ``excess_low``, ``excess_high`` and so on;
        ``largest_distortion``, ``effective_size``, ``seconds_draw``, ``seconds_calibrate``, ``seconds_fit`` and
        ``seconds_polish``.
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
    >>> [line["method"] for line in result.table]
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

    def __repr__(self) -> str:
        head = f"Comparison of {self.objective} on {self.n_rows:,} rows, {self.n_held_out:,} held out\n"
        notes = [note for note in (self.reference_note, self.draw_note) if note]
        return "\n".join([f"{head}{text_table(self)}", *notes, str(self.recommendation)])

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self.recommendation))}</p>{html_table(self)}"

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
        writer = csv.DictWriter(buffer, fieldnames=list(self.table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.table)
        return _written(buffer.getvalue(), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """All numbers as JSON: written to a file, or returned if no path is given."""
        return _written(json.dumps(self.to_dict(), indent=2) + "\n", path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """A page that needs no other file and no network: written to a file, or returned if no path is given."""
        return _written(page_of(self), path)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``table.csv``, ``report.html`` and ``results.json``, and return the path of the page."""
        contents = {"results.json": self.to_json(), "report.html": self.to_html(), "table.csv": self.to_csv()}
        write_folder(Path(folder), contents)
        return Path(folder) / "report.html"


def _written(text: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return text
    with replacing(path) as file:
        file.write_text(text, encoding="utf8")
    return None


# -- the table as text and as HTML, and the page -----------------------------------------------

Format = Callable[[Any], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _score(value: float) -> str:
    return f"{value:.4g}"


# columns of the table, the fields of `Comparison.table` that they show, and how
_COLUMNS: tuple[tuple[str, str, Format], ...] = (
    ("method", "method", str),
    ("rows kept", "rows", _count),
    ("quality", "quality", _score),
    ("loss held out", "held_out_loss", _score),
    ("excess loss", "excess", share_text),
    ("worst repeat", "excess_high", share_text),
    ("distortion", "distortion", share_text),
    ("effective rows", "effective_size", _count),
    ("draw", "seconds_draw", time_text),
    ("calibrate", "seconds_calibrate", time_text),
    ("fit", "seconds_fit", time_text),
    ("polish", "seconds_polish", time_text),
    ("time", "seconds", time_text),
)
_ONLY_ON_PAGES = ("effective_size", *(f"seconds_{phase}" for phase in PHASES))


def _columns(comparison: Comparison) -> list[tuple[str, str, Format]]:
    """The columns that are shown; that of polish only where there was any."""
    polished = any(row["seconds_polish"] > 0.0 for row in comparison.table)
    hidden = () if polished else ("seconds_polish",)
    if comparison.quality == "cost per row":  # the same number
        hidden = (*hidden, "held_out_loss")
    columns = [column for column in _COLUMNS if column[1] not in hidden]
    return [(comparison.quality if field == "quality" else title, field, form) for title, field, form in columns]


def text_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The titles and the rows of the table as text, without phases, which would not fit into a line."""
    columns = [column for column in _columns(comparison) if column[1] not in _ONLY_ON_PAGES]
    rows = [[form(row[field]) for _, field, form in columns] for row in comparison.table]
    return [title for title, _, _ in columns], rows


def text_table(comparison: Comparison) -> str:
    """The table in columns of equal width."""
    titles, rows = text_rows(comparison)
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    lines = []
    for row in [titles, *rows]:
        cells = [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(comparison: Comparison) -> str:
    """The table in HTML; every number is a ``data`` element with its exact value."""
    columns = _columns(comparison)
    head = "".join(f"<th>{escape(title)}</th>" for title, _, _ in columns)
    lines = []
    for row in comparison.table:
        cells = [f"<td>{escape(row['method'])}</td>"]
        for _, field, form in columns[1:]:
            value = row[field]
            cells.append(f'<td><data class="{field}" value="{value!r}">{escape(form(value))}</data></td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def page_of(comparison: Comparison) -> str:
    """The page: the recommendation, the table, figures, and what the numbers mean."""
    title = f"{comparison.quality[0].upper()}{comparison.quality[1:]} on rows held out, by rows kept"
    figures = {
        "Excess loss by rows kept": drawn(quality_by_size, comparison, height=4.0),
        title: drawn(quality_by_size, comparison, value="quality", height=4.0),
        "Excess loss by time": drawn(quality_by_time, comparison, height=4.0),
    }
    return render("compare.html", run=comparison, table=html_table(comparison), figures=figures)
