"""The results of a fit as tables of text, for the terminal and for pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from tithe.certify.certificate import share_of_all
from tithe.core.progress import seconds_text
from tithe.rows.schema import TableSchema

MAX_TABLE_COLUMNS = 200  # that are listed with what was done to them; results.json has all
MAX_CENTER_COLUMNS = 4  # that the table of clusters shows; results.json has all
MAX_TYPICAL_COLUMNS = 8  # that the table of typical rows shows


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""  # how to read it
    on_terminal: bool = False  # whether it matters enough to be printed by a command, too
    is_text: bool = False  # whether most cells are words, which a page aligns at the left


def result_tables(results: Mapping[str, Any], *, most: int, typical_rows: bool = False) -> list[ResultTable]:
    """Tables of what a model says about itself (`Described.summary`), each of at most ``most`` rows.

    ``typical_rows``: also the values of the typical row of each cluster, where they are known.
    """
    tables = [_columns(results["columns"])] if results.get("columns") else []
    if results.get("coefficients"):
        table = _coefficients(results["coefficients"], results.get("classes", []), most)
        notes = [_collinear_note(results.get("collinear_columns", []))]
        notes += [results["standard_errors"]["meaning"]] if "standard_errors" in results else []
        tables.append(replace(table, note=" ".join(filter(None, notes))))
    if results.get("clusters"):
        tables.append(_clusters(results["clusters"], most))
    if results.get("centers"):
        tables.append(_centers(results["centers"], most))
    if results.get("atoms"):
        tables.append(_atoms(results["atoms"], most))
    typical = typical_row_table(results, most=most) if typical_rows else None
    if typical is not None:
        tables.append(typical)
    return tables


def _coefficients(coefficients: list[dict[str, Any]], classes: list[Any], most: int) -> ResultTable:
    """The largest coefficients by name; a column for each class if there are more than two."""
    shown = coefficients[:most]
    title = "Coefficients" if len(coefficients) <= most else f"The {most} largest coefficients"
    if "coefficient" in shown[0]:
        known = {field: name for field, name in _OF_COEFFICIENTS.items() if field in shown[0]}
        rows = [[row["column"], number(row["coefficient"]), *(_known(row[field]) for field in known)] for row in shown]
        name = f"coefficient, towards {classes[-1]}" if classes else "coefficient"
        return ResultTable(title=title, columns=["column", name, *known.values()], rows=rows)
    outputs = list(shown[0]["coefficients"])
    errors = "robust_error" in shown[0]
    rows = [
        [
            row["column"],
            *(
                number(row["coefficients"][name])
                + (f" ± {_known(row.get('standard_error', row['robust_error'])[name])}" if errors else "")
                for name in outputs
            ),
        ]
        for row in shown
    ]
    return ResultTable(title=title, columns=["column", *outputs], rows=rows)


_OF_COEFFICIENTS = {  # what is known of coefficients, and the title of its column
    "standard_error": "standard error",
    "robust_error": "robust",
    "z": "z",
    "low": "95 % interval from",
    "high": "to",
}


def _known(value: float | None) -> str:
    return "not determined" if value is None else number(value)


def _collinear_note(columns: list[str]) -> str:
    if not columns:
        return ""
    named = ", ".join(columns[:MAX_TYPICAL_COLUMNS]) + (", ..." if len(columns) > MAX_TYPICAL_COLUMNS else "")
    return (
        f"{named}: the other columns tell nearly all of each of these, so that their coefficients mean nothing one by "
        "one. Leave some of them out to read the others."
    )


def _clusters(clusters: list[dict[str, Any]], most: int) -> ResultTable:
    """The largest clusters: their share, the row nearest to the centre, and the columns that tell clusters apart."""
    shown = sorted(clusters, key=lambda cluster: -cluster["weight"])[:most]
    title = "Clusters" if len(clusters) <= most else f"The {most} largest clusters"
    names = list(shown[0]["center"])[:MAX_CENTER_COLUMNS]
    rows = [
        [
            str(cluster["cluster"]),
            f"{cluster['weight']:,.0f}",
            share_of_all(cluster["share"]),
            "none" if cluster["typical_row"] is None else str(cluster.get("typical_row_name", cluster["typical_row"])),
            *(number(cluster["center"][name]) for name in names),
        ]
        for cluster in shown
    ]
    note = "Values are means of the rows of a cluster, of the columns in which clusters differ most."
    columns = ["cluster", "rows, by weight", "share", "typical row", *names]
    return ResultTable(title=title, columns=columns, rows=rows, note=note)


def typical_row_table(results: Mapping[str, Any], *, most: int) -> ResultTable | None:
    """The values of the typical row of each of the largest clusters; None where they are not known.

    0/1 features of a category are one column again, and features that were added to a table are left out.
    """
    clusters = [cluster for cluster in results.get("clusters", []) if "typical_values" in cluster]
    if not clusters:
        return None
    shown = sorted(clusters, key=lambda cluster: -cluster["weight"])[:most]
    kinds = {row["column"]: row["kind"] for row in results.get("columns", [])}
    readable = [_readable(cluster["typical_values"], kinds) for cluster in shown]
    names = list(readable[0])[:MAX_TYPICAL_COLUMNS]
    rows = [
        [str(cluster["cluster"]), *(values.get(name, "") for name in names)]
        for cluster, values in zip(shown, readable, strict=True)
    ]
    note = "Each is the row nearest to the centre of its cluster, among the rows kept, in the units of the file."
    return ResultTable(title="A typical row of each cluster", columns=["cluster", *names], rows=rows, note=note)


def _readable(values: Mapping[str, float | str], kinds: Mapping[str, str]) -> dict[str, str]:
    """The values of features as text, by the columns that they come from; ``kinds`` is empty for arrays."""
    readable: dict[str, str] = {}
    for name, value in values.items():
        if not kinds or (name in kinds and not kinds[name].startswith("boolean")):
            readable[name] = number(value)
        elif name in kinds:
            readable[name] = "true" if float(value) > 0.5 else "false"
        else:
            column = next((column for column in kinds if name.startswith(f"{column}=")), None)
            if column is not None and float(value) > 0.5:
                readable[column] = name.removeprefix(f"{column}=")
            elif column is not None:
                readable.setdefault(column, "other")
    return readable


def _centers(centers: list[dict[str, float]], most: int) -> ResultTable:
    """Centres whose weights are not known."""
    names = list(centers[0])[:MAX_CENTER_COLUMNS]
    rows = [[str(i), *(number(center[name]) for name in names)] for i, center in enumerate(centers[:most])]
    return ResultTable(title="Centres", columns=["cluster", *names], rows=rows)


def _atoms(atoms: list[dict[str, Any]], most: int) -> ResultTable:
    """The atoms that most rows use, and their largest entries."""
    shown = sorted(atoms, key=lambda atom: -(atom["share"] or 0.0))[:most]
    rows = [
        [
            str(atom["atom"]),
            "not known" if atom["share"] is None else share_of_all(atom["share"]),
            ", ".join(f"{name} {number(value)}" for name, value in list(atom["entries"].items())[:MAX_CENTER_COLUMNS]),
        ]
        for atom in shown
    ]
    title = "Atoms" if len(atoms) <= most else f"The {most} atoms that most rows use"
    return ResultTable(title=title, columns=["atom", "rows that use it", "largest entries"], rows=rows, is_text=True)


def described_columns(schema: TableSchema | None) -> list[dict[str, str]]:
    """What each column of a table is and what is done with it; empty for arrays."""
    if schema is None:
        return []
    uses = {use.name: "; ".join(filter(None, (use.loss, use.note))) for use in schema.uses()}
    rows = schema.describe()
    return [{"column": name, "kind": kind, "treatment": done, "lost": uses.get(name, "")} for name, kind, done in rows]


def _columns(columns: list[dict[str, str]]) -> ResultTable:
    names = {"column": "column", "kind": "what it is", "treatment": "what is done with it", "lost": "lost or to note"}
    rows = [[row[name] for name in names] for row in columns[:MAX_TABLE_COLUMNS]]
    title = "Columns of the table"
    if len(columns) > MAX_TABLE_COLUMNS:
        title = f"The first {MAX_TABLE_COLUMNS} of {len(columns):,} columns of the table"
    return ResultTable(title=title, columns=list(names.values()), rows=rows, is_text=True)


def number(value: float | str) -> str:
    """A number with four digits, or a date as it is.

    >>> number(26437.2), number(2.1834), number(0.05), number(1e-7), number("2024-04-29")
    ('26,440', '2.183', '0.05', '1e-07', '2024-04-29')
    """
    if isinstance(value, str):
        return value
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.4g}"
    digits = 3 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# -- tables of numbers, a line for each method --------------------------------------------------

Column = tuple[str, str, Callable[[Any], str]]  # a title, the field of a line that it shows, and how


def text_rows(columns: Sequence[Column], lines: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The titles, and the cells of each line as text."""
    return [title for title, _, _ in columns], [[form(line[field]) for _, field, form in columns] for line in lines]


def html_table(columns: Sequence[Column], lines: Sequence[Mapping[str, Any]]) -> str:
    """The table in HTML. Every number is a ``data`` element with its exact value; the first column holds names."""
    head = "".join(f"<th>{escape(title)}</th>" for title, _, _ in columns)
    body = []
    for line in lines:
        cells = [f"<td>{escape(line[columns[0][1]])}</td>"]
        for _, field, form in columns[1:]:
            value = line[field]
            cells.append(f'<td><data class="{field}" value="{value!r}">{escape(form(value))}</data></td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


_ROUNDING = 1e-10  # shares up to this are rounding errors


def share_text(share: float) -> str:
    """A share in per cent with two digits. What is within rounding error of zero is zero.

    >>> share_text(0.0123), share_text(0.998), share_text(37.4), share_text(3.6e-7), share_text(-2e-15)
    ('1.2 %', '100 %', '3,740 %', '3.6e-05 %', '0 %')
    """
    if abs(share) < _ROUNDING:
        return "0 %"
    if math.isinf(share):
        return "infinite"
    return f"{100.0 * share:,.0f} %" if abs(share) >= 0.1 else f"{100.0 * share:.2g} %"


def time_text(seconds: float) -> str:
    """A time for a person, two digits below ten seconds.

    >>> time_text(0.0), time_text(0.01234), time_text(3.21), time_text(75)
    ('0 ms', '12 ms', '3.2 s', '1 min')
    """
    if seconds < 0.1:
        return f"{1000.0 * seconds:.0f} ms" if seconds >= 0.01 or seconds == 0.0 else f"{1000.0 * seconds:.1f} ms"
    return f"{seconds:.2g} s" if seconds < 10.0 else seconds_text(seconds)
