"""The output of clustering by margins: the labels, the model, a page and the numbers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.files import making_folder, replacing
from tithe.core.version import __version__
from tithe.fit.results import column_names
from tithe.odm.base import margins_of
from tithe.odm.clustering import ODMClustering
from tithe.plot.axes import COLOURS_IN_TURN, GREY, as_png, bare, legend_above, new_axes, plain
from tithe.report.html import render
from tithe.storage.models import model_bytes

_BINS = 60
_GRID = 150  # points on each side of the map of two columns
_MAX_POINTS = 3000  # rows drawn on it


@dataclass(frozen=True, kw_only=True)
class LabelRun:
    """Facts about a run."""

    files: list[str]
    n_rows: int
    n_must_link: int
    n_cannot_link: int
    seconds: float
    parameters: dict[str, Any]


def margin_figure(margins: Array, groups: dict[str, Array]) -> bytes:
    """Histograms of margins, one for each group of rows, given by masks, as shares of its rows: a PNG."""
    figure, axis = new_axes(5.4, 3.0)
    edges = np.linspace(margins.min(), max(margins.max(), margins.min() + 1e-9), _BINS + 1)
    for k, (name, mask) in enumerate(groups.items()):
        colour = COLOURS_IN_TURN[k % len(COLOURS_IN_TURN)]
        share = np.full(int(mask.sum()), 1.0 / max(int(mask.sum()), 1))
        axis.hist(
            margins[mask], edges, weights=share, histtype="stepfilled", alpha=0.45, color=colour, label=plain(name)
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


def write_label_folder(folder: str | Path, model: Any, labels: Any, results: dict[str, Any], page: str) -> None:
    """Write ``labels.parquet``, ``model.skops``, ``report.html`` and ``results.json``, the latter last.

    ``labels`` is an Arrow table.
    """
    import pyarrow.parquet

    folder = Path(folder)
    with making_folder(folder), ExitStack() as stack:  # what is entered last gets its name first
        numbers, html, skops, parquet = (
            stack.enter_context(replacing(folder / name))
            for name in ("results.json", "report.html", "model.skops", "labels.parquet")
        )
        pyarrow.parquet.write_table(labels, parquet)
        skops.write_bytes(model_bytes(model))
        html.write_text(page, encoding="utf8")
        numbers.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")


def write_labels(folder: str | Path, model: ODMClustering, rows: Block, run: LabelRun) -> dict[str, Any]:
    """Write the output of clustering by margins, and return the results."""
    import pyarrow as pa

    results = {
        **asdict(run),
        "tithe": __version__,
        "n_features": model.n_features_in_,
        "n_clustered": len(model.sample_indices_),
        "certificate": None if model.certificate_ is None else asdict(model.certificate_),
        **model.summary(),
    }
    no_bound = "There is no lower bound for more than two clusters."
    page = render(
        "labels.html",
        title=f"{len(model.cluster_weights_)} clusters of {run.n_rows:,} rows",
        sentences=[no_bound if model.certificate_ is None else model.certificate_.sentence],
        facts=[
            ("files", ", ".join(run.files)),
            ("columns", f"{model.n_features_in_:,}"),
            ("rows that were clustered", f"{len(model.sample_indices_):,}"),
            ("links: together, apart", f"{run.n_must_link}, {run.n_cannot_link}"),
            *((f"weight of cluster {k}", f"{weight:.6g}") for k, weight in enumerate(model.cluster_weights_)),
            ("objective", f"{model.objective_:.6g}"),
            ("time", f"{run.seconds:.1f} s"),
        ],
        tables=[],
        figures=_figures(model, rows.X),
        parameters=run.parameters,
        label="cluster",
    )
    labels = pa.table({"row_id": rows.row_ids(), "cluster": model.labels_})
    write_label_folder(folder, model, labels, results, page)
    return results


def _figures(model: ODMClustering, X: Any) -> dict[str, bytes]:
    if model.machine_ is None:
        return {}
    margins = margins_of(model.decision_function(X), model.labels_)
    groups = {f"cluster {k}": model.labels_ == k for k in range(len(model.cluster_weights_))}
    figures = {"Margins of the rows": margin_figure(margins, groups)}
    if model.n_features_in_ == 2 and isinstance(X, np.ndarray):
        no_row = np.zeros(len(X), bool)
        figures["Rows and the boundary between clusters"] = boundary_figure(model, X, model.labels_, no_row)
    return figures
