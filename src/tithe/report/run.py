"""What a command did, as a folder: the model, a page that works offline, and the numbers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tithe.certify import Certificate
from tithe.core.data import Coreset
from tithe.core.files import making_folder, replacing
from tithe.core.passes import DataPass
from tithe.core.progress import bytes_text, peak_memory, seconds_text
from tithe.core.registry import names, resolve
from tithe.core.version import __version__
from tithe.fit.base import CoresetLearner, Described, with_classes
from tithe.fit.results import known_names, table_schema
from tithe.meta.estimator import CoresetEstimator
from tithe.report.scores import HeldOut, error_figures, error_tables, held_out_scores
from tithe.report.svg import histogram, named_bars
from tithe.report.tables import ResultTable, described_columns, result_tables
from tithe.storage.coresets import free_names, write_coreset
from tithe.storage.models import model_bytes

MAX_TABLE_ROWS = 50  # of a page; results.json has more
MODEL, NUMBERS, PAGE = "model.tithe", "results.json", "report.html"
Content = bytes | str | Callable[[Path], object] | None
Picture = bytes | str  # a PNG, or SVG


class LearnerReport:
    """What reports of a learner hold besides its `summary` and `charts`.

    A package registers a subclass under the name of its learner, as an entry point of the group ``tithe.report``.
    """

    def held_out(self, model: Any, data: DataPass, rows: str) -> HeldOut | None:
        """Scores on rows that were not learned from, in one pass; ``rows`` says in words which these are."""
        return held_out_scores(model, data, rows)

    def figures(self, model: Any) -> Mapping[str, Picture]:
        """PNGs, or texts of SVG, by caption."""
        return {}


def report_of(learner: str) -> LearnerReport:
    """What is registered for the learner, else the usual report."""
    report: LearnerReport = resolve("report", learner)() if learner in names("report") else LearnerReport()
    return report


@dataclass(frozen=True, kw_only=True)
class Run:
    """A model, its rows, and what is said of it on the terminal, on the page and in ``results.json``."""

    learner: str  # as `tithe fit` names it
    model: Described  # fitted
    files: list[str]
    n_rows: int  # of these files, learned from
    seconds: float
    parameters: dict[str, Any]  # of the model and of the reader
    title: str  # of the page
    sentences: list[tuple[str, str]]  # what is most important: in a few words, or "", and at length
    facts: list[tuple[str, str]]  # names and values
    footer: str  # what the files of the folder are, in HTML
    model_file: bytes | None  # None if the model cannot be saved
    results: dict[str, Any] = field(default_factory=dict)  # of results.json, besides what it has of every run
    tables: list[ResultTable] = field(default_factory=list)  # of the page, before those of the model
    figures: Mapping[str, Picture] = field(default_factory=dict)  # by caption, before those of the model
    notes: dict[str, str] = field(default_factory=dict)  # how to read a figure, by caption
    others: dict[str, Content] = field(default_factory=dict)  # other files of the folder
    without_table: tuple[str, ...] = ()  # entries of the results that are not shown as a table
    last: str = NUMBERS  # the file that gets its name last: where it is, all of them are
    peak_bytes: int = field(default_factory=peak_memory)

    def numbers(self) -> dict[str, Any]:
        """What ``results.json`` has."""
        return {
            "learner": self.learner,
            "files": self.files,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
            "parameters": {name: _as_plain(value) for name, value in self.parameters.items()},
            "tithe": __version__,
            "n_rows": self.n_rows,
            "n_features": self.model.n_encoded_,
            "columns": described_columns(table_schema(self.model)),
            **self.model.summary(),
            **self.results,
        }

    def shown(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The entries of ``results.json`` that tables are made of."""
        return {name: value for name, value in numbers.items() if name not in self.without_table}

    def all_facts(self) -> list[tuple[str, str]]:
        """The facts, and those of every run."""
        return [
            *self.facts,
            ("columns", f"{self.model.n_encoded_:,}"),
            ("time", seconds_text(self.seconds)),
            ("peak memory", bytes_text(self.peak_bytes)),
        ]

    def page(self, numbers: dict[str, Any]) -> str:
        """The page in HTML; ``numbers`` are those of ``results.json``."""
        charts = {
            chart.title: named_bars(chart.labels, [*map(float, chart.values)], chart.axis)
            for chart in self.model.charts()
        }
        return render(
            "run.html",
            run=self,
            facts=[("files", ", ".join(self.files)), *self.all_facts()],
            tables=[*self.tables, *result_tables(self.shown(numbers), most=MAX_TABLE_ROWS, typical_rows=True)],
            figures={**self.figures, **charts},
            notes=self.notes,
        )

    def write(self, folder: str | Path) -> dict[str, Any]:
        """Write the folder, and return what ``results.json`` has."""
        numbers = self.numbers()
        contents: dict[str, Content] = {
            MODEL: self.model_file,
            PAGE: self.page(numbers),
            NUMBERS: _as_json(numbers),
            **self.others,
        }
        write_folder(folder, {self.last: contents[self.last], **contents})
        return numbers


def write_numbers(folder: str | Path, numbers: dict[str, Any]) -> None:
    """Write ``results.json`` of a folder anew."""
    with replacing(Path(folder) / NUMBERS) as path:
        path.write_text(_as_json(numbers), encoding="utf8")


def _as_json(numbers: dict[str, Any]) -> str:
    return json.dumps(numbers, indent=2) + "\n"


def write_folder(folder: str | Path, contents: Mapping[str, Content]) -> None:
    """Write files; all are complete under temporary names before the first gets its own. The first gets it last.

    A file without a content is removed: one of an earlier run would be taken for one of this.
    """
    folder = Path(folder)
    with making_folder(folder), ExitStack() as stack:  # what is entered last gets its name first
        for name, content in contents.items():
            if content is None:
                continue
            path = stack.enter_context(replacing(folder / name))
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        for name in (name for name, content in contents.items() if content is None):
            (folder / name).unlink(missing_ok=True)


def render(template: str, *, figures: Mapping[str, Picture], **values: Any) -> str:
    """A page that works offline: figures, by caption, are part of it."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    pages = Environment(loader=PackageLoader("tithe", "report"), autoescape=select_autoescape())
    images = {caption: _in_page(picture, caption) for caption, picture in figures.items()}
    return pages.get_template(template).render(figures=images, version=__version__, **values)


def _in_page(picture: Picture, caption: str) -> Any:
    from markupsafe import Markup, escape

    if isinstance(picture, str):
        return Markup(picture.replace("<svg ", f'<svg class="chart" aria-label="{escape(caption)}" ', 1))
    source = base64.b64encode(picture).decode()
    return Markup(f'<img class="chart" alt="{escape(caption)}" src="data:image/png;base64,{source}">')


_WEIGHT_BINS = 40


def weights_histogram(coreset: Coreset) -> str:
    """How many kept rows stand for how many rows each."""
    values = coreset.weights()
    edges = np.geomspace(values.min(), max(values.max(), values.min() * 1.001), _WEIGHT_BINS + 1)
    edges[0], edges[-1] = min(edges[0], values.min()), max(edges[-1], values.max())  # they are rounded
    counts = np.histogram(values, edges)[0]
    return histogram(edges.tolist(), counts.tolist(), "rows that a kept row stands for", "kept rows")


def _as_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str, list, tuple)) else repr(value)


# -- a fit on a coreset ------------------------------------------------------------------------


def coreset_run(
    model: CoresetLearner,
    *,
    held_out: HeldOut | None,
    certificate: Certificate | None,
    n_held_out: int,
    n_skipped: int,
    row_names: Mapping[int, str],
    keep_rows: bool,
    learner: str,
    **facts: Any,
) -> Run:
    """The run of a learner on a coreset.

    ``held_out`` are scores on rows that were not learned from before the scores were made; ``n_held_out`` rows of the
    files were not learned from afterwards either. ``row_names`` are the values of a column that names the rows.
    """
    coreset = labelled_coreset(model)
    model_file, not_saved = _saved(model, rows=keep_rows)
    details = {} if held_out is None else held_out.details
    errors = error_figures(details)
    clusters = model.summary().get("clusters")
    if clusters and row_names:
        clusters = [{**cluster, "typical_row_name": row_names.get(cluster["typical_row"])} for cluster in clusters]
    columns = known_names(model)
    feature_names = None if columns is None else free_names(columns)
    return Run(
        learner=learner,
        model=model,
        n_rows=coreset.n_seen,
        title=f"{learner} on {coreset.n_seen:,} rows",
        sentences=_sentences(model, certificate, held_out, not_saved),
        facts=_facts(coreset, certificate, n_held_out=n_held_out, n_skipped=n_skipped),
        results={
            "n_skipped": n_skipped,
            "n_held_out": n_held_out,
            "held_out": None if held_out is None else asdict(held_out),
            "rows_kept": len(coreset),
            "effective_sample_size": coreset.effective_size,
            "provenance": dict(coreset.provenance),
            "certificate": None if certificate is None else asdict(certificate),
            "not_saved": not_saved,
            **({"clusters": clusters} if clusters else {}),
        },
        tables=error_tables(details),
        figures={
            **{caption: picture for caption, (picture, _) in errors.items()},
            "Weights of the coreset": weights_histogram(coreset),
            **report_of(learner).figures(model),
        },
        notes={caption: note for caption, (_, note) in errors.items()},
        footer="The certificate is about all rows learned from, never about the coreset alone. <code>coreset.parquet"
        "</code> holds the rows that were kept, <code>model.tithe</code> the model, <code>results.json</code> these "
        "numbers, and the coefficients or centres of all columns.",
        others={
            "coreset.parquet": lambda path: write_coreset(
                coreset, path, feature_names=feature_names, schema=table_schema(model)
            )
        },
        model_file=model_file,
        **facts,
    )


def _saved(model: CoresetLearner, *, rows: bool) -> tuple[bytes | None, str | None]:
    """The bytes of a model; or why one of another library cannot be loaded without trusting the file."""
    try:
        return model_bytes(model, rows=rows), None
    except (TypeError, ValueError) as error:
        if not isinstance(model, CoresetEstimator):
            raise
        return None, str(error)


def labelled_coreset(model: Any) -> Coreset:
    """The model's coreset with the labels that the rows came with, not the numbers of their classes."""
    coreset: Coreset = model.coreset_
    if isinstance(model, CoresetEstimator):
        return replace(coreset, y=model.targets_of(coreset), objective=with_classes(coreset.objective, ()))
    if not is_classifier(model) or coreset.y is None:
        return coreset
    labels, scorer = model.classes_[coreset.y.astype(np.int64)], coreset.scorer
    if scorer is not None:
        scorer = replace(scorer, objective=with_classes(scorer.objective, model.classes_.tolist()))
    objective = with_classes(coreset.objective, model.classes_.tolist())
    return replace(coreset, y=labels, objective=objective, scorer=scorer)


def _sentences(
    model: CoresetLearner, certificate: Certificate | None, held_out: HeldOut | None, not_saved: str | None
) -> list[tuple[str, str]]:
    sentences = []
    if certificate is not None:
        sentences.append((certificate.in_short, certificate.at_length))
    elif isinstance(model, CoresetEstimator):
        sentences.append(("No certificate.", "An estimator of another library is certified on rows held out."))
    else:
        sentences.append(("No certificate.", "The rows cannot be read again."))
    if isinstance(model, CoresetEstimator) and "what_a_row_is_worth" in model.summary():
        worth = str(model.summary()["what_a_row_is_worth"])
        sentences.append(("The draw.", f"By the gradients of a pilot, {worth}."))
    if not_saved is not None:
        sentences.append(("There is no model.tithe.", f"{not_saved} Predictions: --predict FILE."))
    if held_out is None:
        sentences.append(("No scores.", "No rows were held out: see --holdout and --test."))
    else:
        is_apart = certificate is not None and certificate.quantity != "score"
        about = "The certificate is about the rows learned from; these" if is_apart else "These"
        sentences.append(("Held-out rows.", f"{held_out} {about} scores say what to expect of new rows."))
    return sentences


def _facts(
    coreset: Coreset, certificate: Certificate | None, *, n_held_out: int, n_skipped: int
) -> list[tuple[str, str]]:
    calibrated = ", calibrated" if coreset.provenance.get("calibrated") else ""
    skipped = [("rows left out (bad, or without a target)", f"{n_skipped:,}")] if n_skipped else []
    passes = [] if certificate is None else [("passes of certify and polish", str(certificate.passes))]
    return [
        ("rows learned from", f"{coreset.n_seen:,}"),
        ("rows held out", f"{n_held_out:,}"),
        *skipped,
        ("rows kept", f"{len(coreset):,} ({len(coreset) / coreset.n_seen:.2%})"),
        ("effective sample size", f"{coreset.effective_size:,.0f}"),
        ("chosen by", f"{coreset.provenance['construction']}{calibrated}"),
        *passes,
    ]
