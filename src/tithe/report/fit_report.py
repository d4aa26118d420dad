"""The output of a fit from files: the coreset, the model, a page and the numbers."""

from __future__ import annotations

import json
import warnings
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tithe.certify import Certificate
from tithe.core.data import Coreset
from tithe.core.files import making_folder, replacing
from tithe.core.version import __version__
from tithe.fit.from_coreset import with_classes
from tithe.meta.estimator import CoresetEstimator
from tithe.odm.base import MarginMachine
from tithe.plot import margins
from tithe.report.errors import error_figures, error_tables, figure_notes
from tithe.report.figures import bars, drawn, weight_histogram
from tithe.report.html import in_base64, render
from tithe.report.scores import SCORE_NAMES, HeldOut
from tithe.report.tables import ResultTable, described_columns, result_tables, typical_row_table
from tithe.storage.coresets import free_names, write_coreset
from tithe.storage.models import model_bytes

MAX_TABLE_ROWS = 50  # of a page; results.json has more


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Facts about a fit.

    ``n_skipped`` counts rows that were left out because something was wrong with them, None where it
    is not known how many there were. ``held_out`` are the scores on rows that were not learned from before they were
    made; ``n_held_out`` rows of the files were not learned from afterwards either.
    ``row_names`` are the values of a column that names the rows, for those shown.
    """

    learner: str
    files: list[str]
    n_skipped: int | None
    n_held_out: int
    held_out: dict[str, Any] | None
    row_names: dict[int, str]
    seconds: float
    peak_bytes: int
    parameters: dict[str, Any]


def write_fit(folder: str | Path, model: Any, fit: Fit, *, rows: bool = False) -> dict[str, Any]:
    """Write ``coreset.parquet``, ``model.skops``, ``report.html`` and ``results.json``, the latter last.

    ``rows`` keeps the coreset in the model, too. All files are complete under temporary names before the first gets
    its own. Returns the results. The model of another library that could not be loaded without trusting the file is
    not written, and ``not_saved`` says why.
    """
    folder = Path(folder)
    coreset = labelled_coreset(model)
    contents: dict[str, bytes] = {}
    not_saved = None
    try:
        contents["model.skops"] = model_bytes(model, rows=rows)
    except (TypeError, ValueError) as error:
        if not isinstance(model, CoresetEstimator):
            raise
        not_saved = str(error)
    results = {**_results(model, coreset, fit), "not_saved": not_saved}
    details = (fit.held_out or {}).get("details", {})
    page = render(
        "fit.html",
        run=results,
        tables=_tables(results),
        score_names=SCORE_NAMES,
        certificate=certificate_of(model),
        figures=_figures(model, coreset),
        error_tables=error_tables(details),
        error_figures=in_base64(error_figures(details)),
        held_out_note=HeldOut(**fit.held_out).note if fit.held_out else "",
        notes=figure_notes(details),
    )
    names = vars(model).get("feature_names_in_")
    contents |= {"report.html": page.encode(), "results.json": (json.dumps(results, indent=2) + "\n").encode()}
    with making_folder(folder), ExitStack() as stack:  # what is entered last gets its name first
        for name, content in reversed(contents.items()):
            stack.enter_context(replacing(folder / name)).write_bytes(content)
        parquet = stack.enter_context(replacing(folder / "coreset.parquet"))
        feature_names = None if names is None else free_names(names.tolist())
        write_coreset(coreset, parquet, feature_names=feature_names, schema=vars(model).get("schema_"))
        if not_saved is not None:  # one of an earlier run would be taken for this one
            (folder / "model.skops").unlink(missing_ok=True)
    return results


def _tables(results: dict[str, Any]) -> list[ResultTable]:
    """The tables of the page; what was done to the columns of the file comes last."""
    tables, typical = result_tables(results, most=MAX_TABLE_ROWS), typical_row_table(results, most=MAX_TABLE_ROWS)
    if typical is not None:
        tables.insert(len(tables) - bool(results["columns"]), typical)
    return tables


def certificate_of(model: Any) -> Certificate | None:
    """The certificate of a model; one of another library has only the scores on rows held out."""
    return None if isinstance(model, CoresetEstimator) else model.certificate_


def labelled_coreset(model: Any) -> Coreset:
    """The model's coreset with the labels that the rows came with, not the numbers of their classes."""
    coreset: Coreset = model.coreset_
    if isinstance(model, CoresetEstimator):
        return replace(coreset, y=model.targets_of(coreset), objective=with_classes(coreset.objective, ()))
    if not is_classifier(model) or coreset.y is None:
        return coreset
    labels = model.classes_[coreset.y.astype(np.int64)]
    return replace(coreset, y=labels, objective=with_classes(coreset.objective, model.classes_.tolist()))


def _results(model: Any, coreset: Coreset, fit: Fit) -> dict[str, Any]:
    certificate = certificate_of(model)
    facts, summary = asdict(fit), model.summary()
    names = facts.pop("row_names")
    for cluster in summary.get("clusters", []) if names else ():
        cluster["typical_row_name"] = names.get(cluster["typical_row"])
    return {
        **facts,
        "tithe": __version__,
        "n_rows": coreset.n_seen,
        "n_features": coreset.n_features,
        "columns": described_columns(vars(model).get("schema_")),
        "rows_kept": len(coreset),
        "effective_sample_size": coreset.effective_size,
        "provenance": dict(coreset.provenance),
        "certificate": None if certificate is None else asdict(certificate),
        **summary,
    }


def _figures(model: Any, coreset: Coreset) -> dict[str, bytes]:
    figures = {"Weights of the coreset": weight_histogram(coreset)}
    figures |= {chart.title: bars(chart.labels, chart.values, chart.axis) for chart in model.charts()}
    if isinstance(model, MarginMachine):
        figures["Margins of the rows kept, beside those of LinearSVC fitted on the same rows"] = _margins(model)
    return figures


def _margins(model: Any) -> bytes:
    from sklearn.svm import LinearSVC

    rows, weight = model.coreset_, model.coreset_.weights()
    y = model.classes_[rows.y.astype(np.int64)]
    svm = LinearSVC().fit(rows.X, y, sample_weight=weight / weight.mean())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are those of the fit
        return drawn(margins, {"margin distribution": model, "LinearSVC": svm}, rows.X, y, weight, width=5.6)
