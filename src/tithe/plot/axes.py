"""Axes, colours and legends that all figures share."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

COLOURS = ("#8a8f98", "#d58a3c", "#6f9bd1", "#2f5d9b")
COLOURS_IN_TURN = (COLOURS[3], COLOURS[1], COLOURS[0], COLOURS[2])  # neighbours that are told apart
# for lines of a comparison, told apart by people with any colour vision (Okabe and Ito)
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#30343b")
MARKERS = "os^Dv<>"
GREY = "#8a8f98"
_MAX_TICKS = 6


def new_axes(width: float, height: float) -> tuple[Any, Any]:
    """A figure for a file, and its axes. No window is opened and no state of pyplot is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def axes_or_new(ax: Any, width: float = 6.4, height: float = 3.6) -> Any:
    """The axes, or those of a new figure of pyplot, which a notebook shows."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def as_png(figure: Any) -> bytes:
    """The figure as the bytes of a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def drawn(plot: Callable[..., Any], *args: Any, width: float = 5.4, height: float = 3.4, **options: Any) -> bytes:
    """What a function of `tithe.plot` draws, as PNG bytes.

    A phone shows it some 360 pixels wide: text of a wider figure is too small there.
    """
    figure, axis = new_axes(width, height)
    plot(*args, ax=axis, **options)
    return as_png(figure)


def plain(text: str) -> str:
    """Text as it is: a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def bare(ax: Any, *sides: str) -> Any:
    """The axes without the lines at some sides; by default at the top and at the right."""
    ax.spines[list(sides or ("top", "right"))].set_visible(False)
    return ax


def few_log_ticks(axis: Any, *, percent: bool = False) -> None:
    """Up to six ticks with plain numbers, or per cent, on an axis that has a log scale and all of its data."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    n_decades = math.log10(high / low) if low > 0.0 else 0.0  # of an axis on which nothing is drawn
    few: Any
    if n_decades < 0.8:
        few = MaxNLocator(4, steps=[1, 2, 5, 10])
    elif n_decades < 2.0:
        few = LogLocator(subs=(1.0, 2.0, 5.0), numticks=_MAX_TICKS)
    else:  # versions of matplotlib differ in how many of many decades they show
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        few = FixedLocator([10.0**n for n in range(first, last + 1, 1 + (last - first) // _MAX_TICKS)])
    axis.set_major_locator(few)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{100.0 * x:,.6g} %" if percent else f"{x:,.6g}"))


def legend_above(ax: Any, columns: int = 1) -> None:
    """A legend above the axes, where no data lies."""
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False, fontsize=9, borderaxespad=0.2)
