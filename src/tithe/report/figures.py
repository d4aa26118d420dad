"""Figures of a report, as PNG bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tithe.core.data import Array, Coreset
from tithe.report.collect import Comparison

_COLOURS = ("#8a8f98", "#d58a3c", "#6f9bd1", "#2f5d9b")


def _axes(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def cost_and_passes(comparison: Comparison) -> bytes:
    """Two bar charts: what each method costs on all rows, and how long it took."""
    figure, (left, right) = _axes(9.5, 2.8, 2)
    names = [m.name for m in comparison.methods]
    for axis, values, label in (
        (left, [m.cost_ratio for m in comparison.methods], "cost on all rows / best full fit"),
        (right, [m.passes for m in comparison.methods], "passes over the data (log scale)"),
    ):
        bars = axis.barh(names, values, color=_COLOURS[: len(names)])
        axis.bar_label(bars, fmt="%.3g", padding=3)
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.18)
    low = min(m.cost_ratio for m in comparison.methods)
    left.set_xlim(left=max(0.0, low - 0.05))
    right.set_xscale("log")
    right.set_yticklabels([])
    return _png(figure)


def weight_histogram(coreset: Coreset) -> bytes:
    """How many rows each kept row stands for."""
    figure, axis = _axes(5.5, 2.6)
    weights = coreset.weights()
    edges = np.geomspace(weights.min(), max(weights.max(), weights.min() * 1.001), 40)
    axis.hist(weights, bins=edges, color=_COLOURS[3])
    axis.set_xscale("log")
    axis.set_xlabel("rows that a kept row stands for")
    axis.set_ylabel("kept rows")
    axis.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def pictures(images: dict[str, Array]) -> bytes:
    """Images side by side under their titles."""
    figure, axes = _axes(9.5, 3.6, len(images))
    for axis, (title, image) in zip(axes, images.items(), strict=True):
        axis.imshow(image)
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return _png(figure)
