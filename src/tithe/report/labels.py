"""The output of clustering by margins: the labels, the model, a page and the numbers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe import __version__
from tithe.core.data import Array
from tithe.core.files import making_folder, replacing
from tithe.learners.odm.base import margins_of
from tithe.learners.odm.clustering import ODMClustering
from tithe.report.figures import COLOURS, as_png, new_axes
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
    """Histograms of margins, one for each group of rows, given by masks: a PNG."""
    figure, axis = new_axes(7.5, 3.0)
    edges = np.linspace(margins.min(), max(margins.max(), margins.min() + 1e-9), _BINS + 1)
    for k, (name, mask) in enumerate(groups.items()):
        colour = COLOURS[(3 - k) % len(COLOURS)]
        axis.hist(margins[mask], bins=edges, histtype="stepfilled", alpha=0.45, color=colour, label=name)
    axis.axvline(0.0, color="#8a8f98", linewidth=0.8)
    axis.set_xlabel("margin")
    axis.set_ylabel("rows")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return as_png(figure)


def boundary_figure(model: Any, X: Array, labels: Array, names: list[str]) -> bytes:
    """Rows of two columns, and where the predicted label changes: a PNG."""
    figure, axis = new_axes(5.5, 5.0)
    low, high = X.min(axis=0), X.max(axis=0)
    pad = 0.05 * np.maximum(high - low, 1e-9)
    sides = [np.linspace(low[j] - pad[j], high[j] + pad[j], _GRID) for j in (0, 1)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    predicted = np.unique(model.predict(grid), return_inverse=True)[1].reshape(_GRID, _GRID)
    axis.contour(*sides, predicted, levels=np.arange(predicted.max()) + 0.5, colors="#30343b", linewidths=1.0)
    shown = np.linspace(0, len(X) - 1, min(len(X), _MAX_POINTS)).astype(int)
    numbers = np.unique(labels, return_inverse=True)[1][shown]
    axis.scatter(*X[shown].T, c=[COLOURS[(3 - k) % len(COLOURS)] for k in numbers], s=9)
    for axis_of, name in ((axis.set_xlabel, names[0]), (axis.set_ylabel, names[1])):
        axis_of(name.replace("$", r"\$"))
    axis.spines[["top", "right"]].set_visible(False)
    return as_png(figure)


def write_labels(folder: str | Path, model: ODMClustering, X: Any, run: LabelRun) -> dict[str, Any]:
    """Write ``labels.parquet``, ``model.skops``, ``report.html`` and ``results.json``, the latter last."""
    import pyarrow as pa
    import pyarrow.parquet

    folder = Path(folder)
    results = {
        **asdict(run),
        "tithe": __version__,
        "n_features": model.n_features_in_,
        "n_clustered": len(model.sample_indices_),
        "certificate": None if model.certificate_ is None else asdict(model.certificate_),
        **model.summary(),
    }
    page = render("labels.html", run=results, figures=_figures(model, X))
    with making_folder(folder), ExitStack() as stack:  # what is entered last gets its name first
        numbers, html, skops, parquet = (
            stack.enter_context(replacing(folder / name))
            for name in ("results.json", "report.html", "model.skops", "labels.parquet")
        )
        labels = model.labels_
        pyarrow.parquet.write_table(pa.table({"row_id": np.arange(len(labels)), "cluster": labels}), parquet)
        skops.write_bytes(model_bytes(model))
        html.write_text(page, encoding="utf8")
        numbers.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")
    return results


def _figures(model: ODMClustering, X: Any) -> dict[str, bytes]:
    if model.machine_ is None:
        return {}
    margins = margins_of(model.decision_function(X), model.labels_)
    groups = {f"cluster {k}": model.labels_ == k for k in range(len(model.cluster_weights_))}
    figures = {"Margins of the rows": margin_figure(margins, groups)}
    if model.n_features_in_ == 2 and isinstance(X, np.ndarray):
        columns = vars(model).get("feature_names_in_")
        names = ["x0", "x1"] if columns is None else [str(name) for name in columns]
        figures["Rows and the boundary between clusters"] = boundary_figure(model, X, model.labels_, names)
    return figures
