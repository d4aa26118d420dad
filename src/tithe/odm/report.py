"""What reports of margin machines hold besides: margins of rows, boundaries in the plane, labels of all rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.fit.results import column_names
from tithe.odm.base import margins_of
from tithe.odm.clustering import ODMClustering
from tithe.odm.plot import margins
from tithe.odm.semi_supervised import SemiSupervisedODMClassifier
from tithe.plot.axes import COLOURS_IN_TURN, GREY, as_png, bare, drawn, legend_above, new_axes, plain
from tithe.report.run import LearnerReport, Run
from tithe.report.scores import HeldOut
from tithe.storage.models import model_bytes

_BINS = 60
_GRID = 150  # points on each side of the map of two columns
_MAX_POINTS = 3000  # rows drawn on it
_FOOTER = (
    "<code>labels.parquet</code> holds the {} of each row, <code>model.tithe</code> predicts those of others, "
    "<code>results.json</code> holds these numbers."
)


class MarginReport(LearnerReport):
    """The margins of the rows kept, beside those of a support vector machine."""

    def figures(self, model: Any) -> dict[str, bytes]:
        from sklearn.svm import LinearSVC

        rows, weight = model.coreset_, model.coreset_.weights()
        y = model.classes_[rows.y.astype(np.int64)]
        svm = LinearSVC().fit(rows.X, y, sample_weight=weight / weight.mean())
        with warnings.catch_warnings():
            # they are those of the fit
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            picture = drawn(margins, {"margin distribution": model, "LinearSVC": svm}, rows.X, y, weight, width=5.6)
        return {"Margins of the rows kept, beside those of LinearSVC fitted on the same rows": picture}


def semi_supervised_run(
    model: SemiSupervisedODMClassifier,
    rows: Block,
    labeled: Array,
    *,
    held_out: HeldOut | None,
    n_held_out: int,
    n_skipped: int | None,
    row_names: dict[int, str],
    links: dict[str, int],
    learner: str,
    **facts: Any,
) -> Run:
    """The run of a fit to rows of which only some are labelled: those of the mask ``labeled`` (n,)."""
    import pyarrow as pa

    margin = margins_of(model.decision_function(rows.X), np.searchsorted(model.classes_, model.transduction_))
    groups = {name: mask for name, mask in (("labelled rows", labeled), ("unlabelled rows", ~labeled)) if mask.any()}
    described = {name: _described(margin[mask], rows.weights()[mask]) for name, mask in groups.items()}
    n_labeled, n_unlabeled = int(labeled.sum()), int((~labeled).sum())
    figures = {"Margins of labelled and unlabelled rows": margin_figure(margin, groups)}
    if model.n_encoded_ == 2 and isinstance(rows.X, np.ndarray):
        caption = "Rows and the boundary between classes; labelled rows have a frame"
        figures[caption] = boundary_figure(model, rows.X, model.transduction_, labeled)
    names = {"name": [row_names.get(int(row)) for row in rows.row_ids()]} if row_names else {}
    columns = {"row_id": rows.row_ids(), **names, "label": model.transduction_, "given": labeled, "margin": margin}
    results = {
        "n_skipped": n_skipped,
        "n_held_out": n_held_out,
        "held_out": None if held_out is None else asdict(held_out),
        **links,
        "n_labelled": n_labeled,
        "n_unlabelled": n_unlabeled,
        "rows_kept": len(model.sample_indices_),
        "certificate": None if model.certificate_ is None else asdict(model.certificate_),
        "margins": described,
    }
    return Run(
        learner=learner,
        model=model,
        n_rows=len(rows),
        title=f"{learner} on {len(rows):,} rows, {n_labeled:,} of them labelled",
        sentences=[
            ("", unlabeled_text(model, n_unlabeled)),
            *_certified(model),
            *([] if held_out is None else [("Held-out rows.", str(held_out))]),
        ],
        facts=_semi_supervised_facts(len(rows), results),
        results=results,
        figures=figures,
        footer=_FOOTER.format("label"),
        others={"labels.parquet": _writer(pa.table(columns))},
        model_file=model_bytes(model),
        **facts,
    )


def _semi_supervised_facts(n_rows: int, results: dict[str, Any]) -> list[tuple[str, str]]:
    skipped = [("bad rows left out", f"{results['n_skipped']:,}")] if results["n_skipped"] else []
    margins = [
        (f"mean margin of {name}, share not positive", f"{part['mean']:.4g}, {part['not_positive']:.2%}")
        for name, part in results["margins"].items()
    ]
    return [
        ("rows learned from", f"{n_rows:,}"),
        ("labelled", f"{results['n_labelled']:,}"),
        ("unlabelled", f"{results['n_unlabelled']:,}"),
        ("labelled rows held out", f"{results['n_held_out']:,}"),
        *skipped,
        ("rows kept, labelled and linked ones among them", f"{results['rows_kept']:,}"),
        ("links", _links_text(results)),
        *margins,
    ]


def clustering_run(model: ODMClustering, rows: Block, *, links: dict[str, int], **facts: Any) -> Run:
    """The run of clustering by margins; ``links`` are as in `semi_supervised_run`."""
    import pyarrow as pa

    weights, figures = model.cluster_weights_, {}
    if model.machine_ is not None:
        groups = {f"cluster {k}": model.labels_ == k for k in range(len(weights))}
        margin = margins_of(model.decision_function(rows.X), model.labels_)
        figures["Margins of the rows"] = margin_figure(margin, groups)
        if model.n_encoded_ == 2 and isinstance(rows.X, np.ndarray):
            no_row = np.zeros(len(rows), bool)
            figures["Rows and the boundary between clusters"] = boundary_figure(model, rows.X, model.labels_, no_row)
    return Run(
        model=model,
        n_rows=len(rows),
        title=f"{len(weights)} clusters of {len(rows):,} rows",
        sentences=_certified(model) or [("", "There is no lower bound for more than two clusters.")],
        facts=[
            ("rows", f"{len(rows):,}"),
            ("rows that were clustered", f"{len(model.sample_indices_):,}"),
            ("links", _links_text(links)),
            ("weights of the clusters", ", ".join(f"{weight:g}" for weight in weights)),
            ("objective", f"{model.objective_:.6g}"),
        ],
        results={
            **links,
            "n_clustered": len(model.sample_indices_),
            "certificate": None if model.certificate_ is None else asdict(model.certificate_),
        },
        figures=figures,
        footer=_FOOTER.format("cluster"),
        others={"labels.parquet": _writer(pa.table({"row_id": rows.row_ids(), "cluster": model.labels_}))},
        model_file=model_bytes(model),
        **facts,
    )


def unlabeled_text(model: SemiSupervisedODMClassifier, n_unlabeled: int) -> str:
    """Whether unlabelled rows were used, and why."""
    if not n_unlabeled:
        return "All rows are labelled: the machine is that of a supervised fit."
    if model.left_out_errors_ is None:
        return f"Unlabelled rows were {'' if model.uses_unlabeled_ else 'not '}used."
    without, with_others = (f"{100.0 * error:.3g} %" for error in model.left_out_errors_)
    kept = "are used" if model.uses_unlabeled_ else "are not used, as they do not help"
    return (
        f"Unlabelled rows {kept}: of the labels that were left out, {without} are predicted wrongly from the other "
        f"labelled rows alone, {with_others} with unlabelled rows."
    )


def _certified(model: SemiSupervisedODMClassifier | ODMClustering) -> list[tuple[str, str]]:
    certificate = model.certificate_
    return [] if certificate is None else [(certificate.in_short, certificate.at_length)]


def _links_text(links: dict[str, Any]) -> str:
    return f"{links['n_must_link']} together, {links['n_cannot_link']} apart"


def _writer(table: Any) -> Callable[[Path], object]:
    import pyarrow.parquet

    return lambda path: pyarrow.parquet.write_table(table, path)


def _described(margin: Array, weight: Array) -> dict[str, float]:
    """The mean of margins, their variance, and the share of those that are not positive, by weight."""
    if not weight.any():
        weight = np.ones(len(weight))
    mean = float(np.average(margin, weights=weight))
    return {
        "mean": mean,
        "variance": float(np.average(np.square(margin - mean), weights=weight)),
        "not_positive": float(np.average(margin <= 0.0, weights=weight)),
    }


def margin_figure(margin: Array, groups: dict[str, Array]) -> bytes:
    """Histograms of margins, one for each group of rows, given by masks, as shares of its rows: a PNG."""
    figure, axis = new_axes(5.4, 3.0)
    edges = np.linspace(margin.min(), max(margin.max(), margin.min() + 1e-9), _BINS + 1)
    for k, (name, mask) in enumerate(groups.items()):
        colour = COLOURS_IN_TURN[k % len(COLOURS_IN_TURN)]
        share = np.full(int(mask.sum()), 1.0 / max(int(mask.sum()), 1))
        axis.hist(
            margin[mask], edges, weights=share, histtype="stepfilled", alpha=0.45, color=colour, label=plain(name)
        )
    axis.axvline(0.0, color=GREY, linewidth=0.8)
    axis.set_xlabel("margin")
    axis.set_ylabel("share of these rows")
    bare(axis)
    legend_above(axis)
    return as_png(figure)


def boundary_figure(model: Any, X: Array, labels: Array, marked: Array) -> bytes:
    """Rows of two columns, and where the predicted label changes: a PNG. Those of a mask have a frame."""
    figure, axis = new_axes(5.4, 5.0)
    low, high = X.min(axis=0), X.max(axis=0)
    pad = 0.05 * np.maximum(high - low, 1e-9)
    sides = [np.linspace(low[j] - pad[j], high[j] + pad[j], _GRID) for j in (0, 1)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    predicted = np.unique(model.predict(grid), return_inverse=True)[1].reshape(_GRID, _GRID)
    axis.contour(*sides, predicted, levels=np.arange(predicted.max()) + 0.5, colors="#30343b", linewidths=1.0)
    colours = np.array(COLOURS_IN_TURN)[np.unique(labels, return_inverse=True)[1] % len(COLOURS_IN_TURN)]
    for rows, size, edge in ((np.flatnonzero(~marked), 9, "none"), (np.flatnonzero(marked), 40, "#30343b")):
        shown = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MAX_POINTS)).astype(int)]
        axis.scatter(*X[shown].T, c=colours[shown], s=size, edgecolors=edge)
    for axis_of, name in zip((axis.set_xlabel, axis.set_ylabel), column_names(model), strict=True):
        axis_of(plain(name))
    bare(axis)
    return as_png(figure)
