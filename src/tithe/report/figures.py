"""Figures of a report, as PNG bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tithe.core.data import Array, Coreset
from tithe.report.compare_clustering import Comparison

COLOURS = ("#8a8f98", "#d58a3c", "#6f9bd1", "#2f5d9b")
COLOURS_IN_TURN = (COLOURS[3], COLOURS[1], COLOURS[0], COLOURS[2])  # neighbours that are told apart


def new_axes(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns)


def as_png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def cost_and_passes(comparison: Comparison) -> bytes:
    """The cost of each method on all rows, and its time: points, as neither scale starts at zero."""
    figure, axes = new_axes(9.5, 2.6, 2)
    names = [m.name for m in comparison.methods]
    colours = COLOURS[: len(names)]
    for axis, values, form, label in (
        (axes[0], [m.cost_ratio for m in comparison.methods], "{:.3f}", "cost on all rows / best full fit"),
        (axes[1], [m.passes for m in comparison.methods], "{:,.0f}", "passes over the data (log scale)"),
    ):
        axis.scatter(values, names, color=colours, s=70, zorder=2)
        for value, name in zip(values, names, strict=True):
            axis.annotate(form.format(value), (value, name), xytext=(8, 0), textcoords="offset points", va="center")
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(axis="y", color="#e4e7ec")
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.2, y=0.15)
    axes[1].set_xscale("log")
    axes[1].set_yticklabels([])
    return as_png(figure)


def weight_histogram(coreset: Coreset) -> bytes:
    """A histogram of the weights of the kept rows."""
    figure, axis = new_axes(5.5, 2.6)
    weights = coreset.weights()
    edges = np.geomspace(weights.min(), max(weights.max(), weights.min() * 1.001), 40)
    axis.hist(weights, bins=edges, color=COLOURS[3])
    axis.set_xscale("log")
    axis.set_xlabel("rows that a kept row stands for")
    axis.set_ylabel("kept rows")
    axis.spines[["top", "right"]].set_visible(False)
    return as_png(figure)


def bars(names: list[str], values: Array, label: str) -> bytes:
    """A bar for each name, from the top."""
    figure, axis = new_axes(7.5, 0.8 + 0.26 * len(names))
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names]
    axis.barh(range(len(names)), values, color=COLOURS[3])
    # text from a file is shown as it is: a dollar sign begins no formula
    axis.set_yticks(range(len(names)), [name.replace("$", r"\$") for name in shown])
    axis.invert_yaxis()
    axis.set_xlabel(label.replace("$", r"\$"))
    axis.axvline(0.0, color="#8a8f98", linewidth=0.8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    return as_png(figure)


def online_curves(history: dict[str, Array], hindsight: Array | None) -> bytes:
    """The number of clusters over the stream, and beside it the regret, or the cumulative loss where none is known."""
    figure, axes = new_axes(9.5, 2.8, 2)
    axes[0].step(history["row"], history["k"], where="post", color=COLOURS[3], linewidth=1.2)
    axes[0].set_ylabel("clusters")
    axes[0].set_ylim(0, history["k"].max() + 1)
    axes[0].yaxis.get_major_locator().set_params(integer=True)
    if hindsight is None:
        axes[1].plot(history["row"], history["cumulative_loss"], color=COLOURS[3], linewidth=1.2)
        axes[1].set_ylabel("cumulative loss")
    else:
        axes[1].plot(history["row"], history["cumulative_loss"] - hindsight, color=COLOURS[3], linewidth=1.2)
        axes[1].set_ylabel("regret (loss above hindsight)")
        axes[1].axhline(0.0, color=COLOURS[0], linewidth=0.8)
    for axis in axes:
        axis.set_xlabel("rows")
        axis.spines[["top", "right"]].set_visible(False)
    return as_png(figure)


def pictures(images: dict[str, Array]) -> bytes:
    """Images side by side under their titles."""
    figure, axes = new_axes(9.5, 3.6, len(images))
    for axis, (title, image) in zip(axes, images.items(), strict=True):
        axis.imshow(image)
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return as_png(figure)
