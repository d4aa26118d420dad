"""The page of a comparison, and its table as text and as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from tithe.plot import quality_by_size, quality_by_time
from tithe.report.comparison.recommend import share_text, time_text
from tithe.report.comparison.result import PHASES, Comparison
from tithe.report.figures import drawn
from tithe.report.html import render

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
