"""The output of a fit to rows of which only some are labelled: the labels, the model, a page and the numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.progress import bytes_text
from tithe.core.version import __version__
from tithe.odm.base import margins_of
from tithe.odm.semi_supervised import SemiSupervisedODMClassifier
from tithe.report.fit_report import MAX_TABLE_ROWS, Fit
from tithe.report.html import render
from tithe.report.labels import boundary_figure, margin_figure, write_label_folder
from tithe.report.tables import described_columns, result_tables


@dataclass(frozen=True, kw_only=True)
class PartlyLabelledFit(Fit):
    """Facts about a fit. ``row_names`` are those of all rows; empty if no column names them."""

    n_must_link: int
    n_cannot_link: int


def sentence_of(model: SemiSupervisedODMClassifier, n_unlabelled: int) -> str:
    """Whether unlabelled rows were used, and why."""
    if not n_unlabelled:
        return "All rows are labelled: the machine is that of a supervised fit."
    if model.left_out_errors_ is None:
        return f"Unlabelled rows were {'' if model.uses_unlabeled_ else 'not '}used."
    without, with_others = (f"{100.0 * error:.3g} %" for error in model.left_out_errors_)
    kept = "are used" if model.uses_unlabeled_ else "are not used, as they do not help"
    return (
        f"Unlabelled rows {kept}: of the labels that were left out, {without} are predicted wrongly from the other "
        f"labelled rows alone, {with_others} with unlabelled rows."
    )


def write_partly_labelled(
    folder: str | Path, model: SemiSupervisedODMClassifier, rows: Block, labelled: Array, fit: PartlyLabelledFit
) -> dict[str, Any]:
    """Write ``labels.parquet``, ``model.skops``, ``report.html`` and ``results.json``, and return the results.

    Parameters
    ----------
    folder : path
    model : SemiSupervisedODMClassifier
    rows : Block
        The rows that were learned from.
    labelled : (n,) bool
        Which of them have a label that was given.
    fit : PartlyLabelledFit
    """
    import pyarrow as pa

    margins = margins_of(model.decision_function(rows.X), np.searchsorted(model.classes_, model.transduction_))
    groups = {"labelled rows": labelled, "unlabelled rows": ~labelled}
    groups = {name: mask for name, mask in groups.items() if mask.any()}
    facts = asdict(fit)
    row_names = facts.pop("row_names")
    results = {
        **facts,
        "tithe": __version__,
        "n_rows": len(rows),
        "n_labelled": int(labelled.sum()),
        "n_unlabelled": int((~labelled).sum()),
        "n_features": model.n_features_in_,
        "columns": described_columns(vars(model).get("schema_")),
        "rows_kept": len(model.sample_indices_),
        "certificate": None if model.certificate_ is None else asdict(model.certificate_),
        "margins": {name: _described(margins[mask], rows.weights()[mask]) for name, mask in groups.items()},
        **model.summary(),
    }
    figures = {"Margins of labelled and unlabelled rows": margin_figure(margins, groups)}
    if model.n_features_in_ == 2 and isinstance(rows.X, np.ndarray):
        caption = "Rows and the boundary between classes; labelled rows have a frame"
        figures[caption] = boundary_figure(model, rows.X, model.transduction_, labelled)
    page = render(
        "labels.html",
        title=f"{fit.learner} on {len(rows):,} rows, {labelled.sum():,} of them labelled",
        sentences=_sentences(model, int((~labelled).sum()), fit),
        facts=_facts(results),
        tables=result_tables(results, most=MAX_TABLE_ROWS),
        figures=figures,
        parameters=fit.parameters,
        label="label",
    )
    names = {"name": [row_names.get(int(row)) for row in rows.row_ids()]} if row_names else {}
    columns = {"row_id": rows.row_ids(), **names, "label": model.transduction_, "given": labelled, "margin": margins}
    write_label_folder(folder, model, pa.table(columns), results, page)
    return results


def _described(margins: Array, weight: Array) -> dict[str, float]:
    """The mean of margins, their variance, and the share of those that are not positive, by weight."""
    if not weight.any():
        weight = np.ones(len(weight))
    mean = float(np.average(margins, weights=weight))
    return {
        "mean": mean,
        "variance": float(np.average(np.square(margins - mean), weights=weight)),
        "not_positive": float(np.average(margins <= 0.0, weights=weight)),
    }


def _sentences(model: SemiSupervisedODMClassifier, n_unlabelled: int, fit: PartlyLabelledFit) -> list[str]:
    sentences = [sentence_of(model, n_unlabelled)]
    if model.certificate_ is not None:
        sentences.append(model.certificate_.sentence)
    if fit.held_out is not None:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in fit.held_out["scores"].items())
        sentences.append(
            f"On {fit.held_out['n_rows']:,} rows that the model has not seen ({fit.held_out['rows']}): {scores}."
        )
    return sentences


def _facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    margins = [
        (f"mean margin of {name}, share not positive", f"{part['mean']:.4g}, {part['not_positive']:.2%}")
        for name, part in results["margins"].items()
    ]
    return [
        ("files", ", ".join(results["files"])),
        ("rows learned from", f"{results['n_rows']:,}"),
        ("labelled, unlabelled", f"{results['n_labelled']:,}, {results['n_unlabelled']:,}"),
        ("rows held out", f"{results['n_held_out']:,}"),
        ("bad rows left out", f"{results['n_skipped'] or 0:,}"),
        ("columns", f"{results['n_features']:,}"),
        ("rows kept, labelled and linked ones among them", f"{results['rows_kept']:,}"),
        ("links: together, apart", f"{results['n_must_link']}, {results['n_cannot_link']}"),
        *margins,
        ("time", f"{results['seconds']:.1f} s"),
        ("peak memory", bytes_text(results["peak_bytes"])),
    ]
