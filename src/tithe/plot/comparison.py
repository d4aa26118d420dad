"""Figures of a comparison (`tithe.compare`)."""

from __future__ import annotations

import math
from typing import Any

from tithe.plot.axes import GREY, LINE_COLOURS, MARKERS, axes_or_new, bare, few_log_ticks, legend_above

_LABELS = {
    "excess": "excess loss on all rows learned from",
    "held_out_loss": "loss of a row held out",
    "distortion": "distortion of random solutions",
}
_BAND = 0.18  # opacity


def quality_by_size(comparison: Any, value: str = "excess", ax: Any = None) -> Any:
    """Quality against the number of rows: medians over the repeats, and bands from the smallest to the largest.

    Parameters
    ----------
    comparison : Comparison
        What `tithe.compare` returns.
    value : {"excess", "quality", "held_out_loss", "distortion"}
    ax : Axes, optional
        Those of a new figure if left out.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> result = tithe.compare(X, objective="kmeans", sizes=[100, 400], n_repeats=2)
    >>> ax = tithe.plot.quality_by_size(result)
    >>> ax.get_xlabel()
    'rows kept'
    """
    ax = axes_or_new(ax)
    _lines(comparison, ax, "rows", value, band=True)
    ax.set_xlabel("rows kept")
    return ax


def quality_by_time(comparison: Any, value: str = "excess", ax: Any = None) -> Any:
    """Quality against the seconds of draw, calibration and fit: medians over the repeats, a line for each method.

    Parameters are those of `quality_by_size`.

    Examples
    --------
    >>> import tithe
    >>> X = [[float(i % 7), float(i % 5)] for i in range(2000)]
    >>> result = tithe.compare(X, objective="kmeans", sizes=[100], n_repeats=1)
    >>> tithe.plot.quality_by_time(result).get_xlabel()
    'seconds'
    """
    ax = axes_or_new(ax)
    _lines(comparison, ax, "seconds", value, band=False)
    ax.set_xlabel("seconds")
    return ax


def _lines(comparison: Any, ax: Any, x: str, value: str, *, band: bool) -> None:
    names = ("excess", "quality", "held_out_loss", "distortion")
    if value not in names:
        raise ValueError(f"value must be one of {', '.join(map(repr, names))}, got {value!r}.")
    full, rest = comparison.table[0], comparison.table[1:]
    reference = "largest sample" if full["is_sample"] else full["method"]  # short, for the legend
    methods = list(dict.fromkeys(row["method"] for row in rest))
    for i, method in enumerate(methods):
        rows = [row for row in rest if row["method"] == method]
        colour = LINE_COLOURS[i % len(LINE_COLOURS)]
        at = [row[x] for row in rows]
        ax.plot(at, [row[value] for row in rows], color=colour, marker=MARKERS[i % len(MARKERS)], label=method)
        if band:
            low, high = ([row[f"{value}_{end}"] for row in rows] for end in ("low", "high"))
            ax.fill_between(at, low, high, color=colour, alpha=_BAND, linewidth=0.0)
    if value in ("quality", "held_out_loss"):
        ax.axhline(full[value], color=GREY, linestyle="--", linewidth=1.0, label=reference)
    elif value == "excess":
        ax.axhline(comparison.tol, color=GREY, linestyle="--", linewidth=1.0, label="taken as harmless")
    if x == "seconds":
        ax.axvline(full["seconds"], color=GREY, linestyle=":", linewidth=1.0, label=f"time of {reference}")
    ax.set_xscale("log")
    few_log_ticks(ax.xaxis)
    if value in ("excess", "distortion"):
        _set_log_or_linear(ax, [row[value] for row in rest])
    ax.set_ylabel(_LABELS.get(value, f"{comparison.quality}, rows held out"))
    bare(ax)
    legend_above(ax, columns=2)


def _set_log_or_linear(ax: Any, values: list[float]) -> None:
    """A log scale, which shows gains of orders of magnitude; linear below the smallest if some are not positive.

    Values that are not finite are not shown; if no other is there, the scale stays linear.
    """
    finite = [value for value in values if math.isfinite(value)]
    positive = [value for value in finite if value > 0.0]
    if positive and len(positive) == len(finite):
        ax.set_yscale("log")
        few_log_ticks(ax.yaxis, percent=True)
    elif positive:
        ax.set_yscale("symlog", linthresh=min(positive))
