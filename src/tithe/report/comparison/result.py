"""The result of a comparison: a table, a recommendation, a page."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from tithe.core.files import making_folder, replacing
from tithe.report.comparison.recommend import Recommendation

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
        from tithe.report.comparison.page import text_table

        head = f"Comparison of {self.objective} on {self.n_rows:,} rows, {self.n_held_out:,} held out\n"
        notes = [note for note in (self.reference_note, self.draw_note) if note]
        return "\n".join([f"{head}{text_table(self)}", *notes, str(self.recommendation)])

    def _repr_html_(self) -> str:
        from tithe.report.comparison.page import html_table

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
        from tithe.report.comparison.page import page_of

        return _written(page_of(self), path)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``table.csv``, ``report.html`` and ``results.json``, and return the path of the page.

        All files are complete under temporary names before the first gets its own.
        """
        folder = Path(folder)
        contents = {"results.json": self.to_json(), "report.html": self.to_html(), "table.csv": self.to_csv()}
        with making_folder(folder), ExitStack() as stack:  # what is entered last gets its name first
            for name, text in contents.items():
                stack.enter_context(replacing(folder / name)).write_text(text or "", encoding="utf8")
        return folder / "report.html"


def _written(text: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return text
    with replacing(path) as file:
        file.write_text(text, encoding="utf8")
    return None
