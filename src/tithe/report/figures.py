"""Figures of a report, as PNG bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tithe.core.data import Array, Coreset
from tithe.plot import k_over_time, weights
from tithe.plot.axes import COLOURS, GREY, LINE_COLOURS, as_png, bare, legend_above, new_axes, plain
from tithe.report.payments import N_ORDINARY, Payments

REGRET = "Regret over the stream"  # the caption of a figure of `online_figures`
_FOUND, _LOST = LINE_COLOURS[2], LINE_COLOURS[1]
_MAX_ORDINARY = 4000  # ordinary payments that are drawn: more make no other picture


def drawn(plot: Callable[..., Any], *args: Any, width: float = 5.4, height: float = 3.4, **options: Any) -> bytes:
    """What a function of `tithe.plot` draws, as PNG bytes.

    A phone shows it some 360 pixels wide: text of a wider figure is too small there.
    """
    figure, axis = new_axes(width, height)
    plot(*args, ax=axis, **options)
    return as_png(figure)


def weight_histogram(coreset: Coreset) -> bytes:
    """A histogram of the weights of the kept rows."""
    return drawn(weights, coreset, height=2.6)


def bars(names: list[str], values: Array, label: str) -> bytes:
    """A bar for each name, from the top."""
    figure, axis = new_axes(5.6, 0.8 + 0.26 * len(names))
    shown = [name if len(name) <= 40 else f"{name[:37]}..." for name in names]
    axis.barh(range(len(names)), values, color=COLOURS[3])
    axis.set_yticks(range(len(names)), [plain(name) for name in shown])
    axis.invert_yaxis()
    axis.set_xlabel(plain(label))
    axis.axvline(0.0, color=GREY, linewidth=0.8)
    bare(axis, "top", "right", "left")
    axis.tick_params(axis="y", length=0)
    return as_png(figure)


def online_figures(history: dict[str, Array], hindsight: Array | None) -> dict[str, bytes]:
    """By caption: the number of clusters over the stream, and the regret, or the loss where no regret is known."""
    figure, axis = new_axes(5.4, 3.0)
    if hindsight is None:
        caption = "Loss over the stream"
        axis.plot(history["row"], history["cumulative_loss"], color=COLOURS[3], linewidth=1.2)
        axis.set_ylabel("cumulative loss")
    else:
        caption = REGRET
        axis.plot(history["row"], history["cumulative_loss"] - hindsight, color=COLOURS[3], linewidth=1.2)
        axis.set_ylabel("loss above that in hindsight")
        axis.axhline(0.0, color=COLOURS[0], linewidth=0.8)
    axis.set_xlabel("rows")
    bare(axis)
    return {"Clusters over the stream": drawn(k_over_time, history, height=3.0), caption: as_png(figure)}


def rare_groups(payments: Payments, coreset: Coreset, found: Array) -> bytes:
    """Payments in grey, the rows kept of them in blue, and a ring around each rare group, which was found or lost."""
    figure, axis = new_axes(5.0, 5.0)
    ordinary = payments.X[payments.group < N_ORDINARY][:_MAX_ORDINARY]
    behind = np.concatenate([ordinary, payments.X[payments.group >= N_ORDINARY]])
    axis.scatter(*behind.T, s=4, color=GREY, alpha=0.3, linewidths=0)
    axis.scatter(*coreset.X.T, s=9, color=LINE_COLOURS[0], linewidths=0)
    axis.plot([], [], marker=".", color=LINE_COLOURS[0], linestyle="none", label="rows kept")
    middles = payments.middles[N_ORDINARY:]
    for wanted, colour, line, label in ((True, _FOUND, "-", "rare group, found"), (False, _LOST, ":", "lost")):
        x, y = middles[found == wanted].T
        axis.scatter(x, y, s=520, facecolors="none", edgecolors=colour, linestyles=line, linewidths=2.0)
        axis.plot([], [], marker="o", markersize=8, markerfacecolor="none", color=colour, linestyle="none", label=label)
    axis.scatter(*middles[~found].T, s=60, marker="x", color=_LOST, linewidths=2.0)
    axis.set(xlim=(-40, 1040), ylim=(-40, 1040), xlabel="amount, euros", ylabel="distance from home, kilometres")
    bare(axis)
    legend_above(axis, columns=3)
    return as_png(figure)
