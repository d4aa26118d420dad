"""Figures of a report, as PNG bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tithe.core.data import Array, Coreset
from tithe.plot import k_over_time, weights
from tithe.plot.axes import COLOURS, GREY, LINE_COLOURS, as_png, bare, new_axes, plain
from tithe.report.comparison.recommend import share_text, time_text
from tithe.report.comparison.result import Comparison


def drawn(plot: Callable[..., Any], *args: Any, width: float = 7.5, height: float = 3.4, **options: Any) -> bytes:
    """What a function of `tithe.plot` draws, as PNG bytes."""
    figure, axis = new_axes(width, height)
    plot(*args, ax=axis, **options)
    return as_png(figure)


def excess_and_seconds(comparison: Comparison) -> bytes:
    """The excess loss of each method, and its time: points, as neither scale starts at zero."""
    figure, axes = new_axes(9.5, 0.8 + 0.4 * len(comparison.table), 2)
    names = [row["method"] for row in comparison.table]
    colours = [LINE_COLOURS[i % len(LINE_COLOURS)] for i in range(len(names))]
    for axis, field, form, label in (
        (axes[0], "excess", share_text, "excess loss on all rows"),
        (axes[1], "seconds", time_text, "seconds (log scale)"),
    ):
        values = [row[field] for row in comparison.table]
        axis.scatter(values, names, color=colours, s=70, zorder=2)
        for value, name in zip(values, names, strict=True):
            axis.annotate(form(value), (value, name), xytext=(8, 0), textcoords="offset points", va="center")
        axis.invert_yaxis()
        axis.set_xlabel(label)
        axis.grid(axis="y", color="#e4e7ec")
        bare(axis, "top", "right", "left")
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.2, y=0.15)
    axes[1].set_xscale("log")
    axes[1].set_yticklabels([])
    return as_png(figure)


def weight_histogram(coreset: Coreset) -> bytes:
    """A histogram of the weights of the kept rows."""
    return drawn(weights, coreset, width=5.5, height=2.6)


def bars(names: list[str], values: Array, label: str) -> bytes:
    """A bar for each name, from the top."""
    figure, axis = new_axes(7.5, 0.8 + 0.26 * len(names))
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names]
    axis.barh(range(len(names)), values, color=COLOURS[3])
    axis.set_yticks(range(len(names)), [plain(name) for name in shown])
    axis.invert_yaxis()
    axis.set_xlabel(plain(label))
    axis.axvline(0.0, color=GREY, linewidth=0.8)
    bare(axis, "top", "right", "left")
    axis.tick_params(axis="y", length=0)
    return as_png(figure)


def online_curves(history: dict[str, Array], hindsight: Array | None) -> bytes:
    """The number of clusters over the stream, and beside it the regret, or the cumulative loss where none is known."""
    figure, axes = new_axes(9.5, 2.8, 2)
    k_over_time(history, ax=axes[0])
    if hindsight is None:
        axes[1].plot(history["row"], history["cumulative_loss"], color=COLOURS[3], linewidth=1.2)
        axes[1].set_ylabel("cumulative loss")
    else:
        axes[1].plot(history["row"], history["cumulative_loss"] - hindsight, color=COLOURS[3], linewidth=1.2)
        axes[1].set_ylabel("regret (loss above hindsight)")
        axes[1].axhline(0.0, color=COLOURS[0], linewidth=0.8)
    axes[1].set_xlabel("rows")
    bare(axes[1])
    return as_png(figure)


def pictures(images: dict[str, Array]) -> bytes:
    """Images side by side under their titles."""
    figure, axes = new_axes(9.5, 3.6, len(images))
    for axis, (title, image) in zip(axes, images.items(), strict=True):
        axis.imshow(image)
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()
    return as_png(figure)
