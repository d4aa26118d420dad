"""Where a model is wrong on rows that it has not seen: confusion of classes, reliability of chances, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from tithe.core.data import Array, weighted_quantiles
from tithe.plot.axes import COLOURS, as_png, bare, legend_above, new_axes
from tithe.report.tables import ResultTable, share_of_all

MAX_CONFUSED_CLASSES = 20  # a larger matrix cannot be read
_N_BINS = 10  # of equal weight
_BAND = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of residuals


def confusion(y: Array, predicted: Array, weight: Array, classes: Array) -> dict[str, Any] | None:
    """``weights[i][j]``: the weight of the rows of class i that were taken for class j; None for many classes."""
    if len(classes) > MAX_CONFUSED_CLASSES:
        return None
    weights = confusion_matrix(y, predicted, labels=classes, sample_weight=weight)
    return {"classes": [str(label) for label in classes.tolist()], "weights": weights.astype(float).tolist()}


def reliability(chances: Array, happened: Array, weight: Array) -> list[dict[str, float]]:
    """Rows by their predicted chance, in up to ten groups of equal weight: mean chance, and how often it happened."""
    groups = _groups(chances, weight)
    return [
        {
            "predicted": float(np.average(chances[rows], weights=weight[rows])),
            "observed": float(np.average(happened[rows], weights=weight[rows])),
            "weight": float(weight[rows].sum()),
        }
        for rows in groups
    ]


def residuals(y: Array, predicted: Array, weight: Array) -> list[dict[str, Any]]:
    """Rows by their predicted value, in up to ten groups: mean prediction, and quantiles of y less the prediction."""
    return [
        {
            "predicted": float(np.average(predicted[rows], weights=weight[rows])),
            "residuals": _quantiles(y[rows] - predicted[rows], weight[rows]),
            "weight": float(weight[rows].sum()),
        }
        for rows in _groups(predicted, weight)
    ]


def _groups(values: Array, weight: Array) -> list[Array]:
    """Positions of the rows of each group, which have different values; rows without weight are left out."""
    kept = np.flatnonzero(weight > 0.0)
    order = kept[np.argsort(values[kept], kind="stable")]
    reached = np.cumsum(weight[order]) / weight[order].sum()
    different = np.flatnonzero(np.diff(values[order]) > 0.0) + 1
    # a group ends at the first new value after its share of the weight, so that equal values stay together
    wanted = np.searchsorted(reached, np.arange(1, _N_BINS) / _N_BINS)
    ends = np.searchsorted(different, wanted, side="right")
    cuts = np.unique(different[ends[ends < len(different)]])
    return [rows for rows in np.split(order, cuts) if len(rows)]


def _quantiles(values: Array, weight: Array) -> dict[str, float]:
    quantiles = weighted_quantiles(values, weight, np.array(_BAND)).tolist()
    return {f"{level:g}": value for level, value in zip(_BAND, quantiles, strict=True)}


# -- on a page ---------------------------------------------------------------------------------


def error_tables(details: dict[str, Any]) -> list[ResultTable]:
    """The confusion of classes, in shares of the rows of each class."""
    confused = details.get("confusion")
    if not confused:
        return []
    rows = []
    for name, weights in zip(confused["classes"], confused["weights"], strict=True):
        total = sum(weights)
        rows.append([name, f"{total:,.0f}", *(share_of_all(weight / total) if total else "" for weight in weights)])
    columns = ["true class", "rows, by weight", *(f"predicted {name}" for name in confused["classes"])]
    title = "Classes of the rows held out, and how they were predicted"
    return [ResultTable(title=title, columns=columns, rows=rows, note=_confusion_note(confused))]


def _confusion_note(confused: dict[str, Any]) -> str:
    """How to read the table, and what a model that knows nothing would reach."""
    names, weights = confused["classes"], np.asarray(confused["weights"])
    of_class, right = weights.sum(axis=1), np.diag(weights)
    commonest, rarest = int(of_class.argmax()), int(np.where(of_class > 0.0, of_class, np.inf).argmin())
    return (
        f"Of the rows of class {names[rarest]}, {share_of_all(right[rarest] / of_class[rarest])} were predicted "
        f"{names[rarest]}. In all, {share_of_all(right.sum() / of_class.sum())} were predicted correctly; always to "
        f"say {names[commonest]} would be right for {share_of_all(of_class[commonest] / of_class.sum())}."
    )


def figure_notes(details: dict[str, Any]) -> dict[str, str]:
    """How to read the figures of `error_figures`, by caption."""
    return {
        _reliability_caption(details): (
            "Each point is a group of rows with about the same predicted chance. On the dashed line the chances are "
            "right; above it things happen more often than predicted, below it less often."
        ),
        _RESIDUALS: (
            "Rows from the smallest to the largest prediction. Half of them are off by what the dark band shows, nine "
            "of ten by what the light one does. Where the line is above zero, predictions are too low."
        ),
    }


_RESIDUALS = "How far off are predictions? (rows held out)"


def _reliability_caption(details: dict[str, Any]) -> str:
    return f"Is a predicted chance of {details.get('chance_of')} right? (rows held out)"


def error_figures(details: dict[str, Any]) -> dict[str, bytes]:
    """By caption: reliability of the chances, or residuals."""
    figures = {}
    if details.get("reliability"):
        figures[_reliability_caption(details)] = _reliability_figure(details["reliability"])
    if details.get("residuals"):
        figures[_RESIDUALS] = _residual_figure(details["residuals"])
    return figures


def _reliability_figure(groups: list[dict[str, float]]) -> bytes:
    figure, axis = new_axes(4.6, 3.6)
    axis.plot([0, 1], [0, 1], color=COLOURS[0], linewidth=1.0, linestyle="--", label="a perfect forecast")
    predicted, observed = ([group[name] for group in groups] for name in ("predicted", "observed"))
    axis.plot(predicted, observed, marker="o", color=COLOURS[3], label="this model")
    axis.set_xlabel("predicted chance")
    axis.set_ylabel("share of rows where it happened")
    bare(axis)
    legend_above(axis, columns=2)
    return as_png(figure)


def _residual_figure(groups: list[dict[str, Any]]) -> bytes:
    figure, axis = new_axes(5.2, 3.2)
    predicted = [group["predicted"] for group in groups]
    curve = {level: [group["residuals"][f"{level:g}"] for group in groups] for level in _BAND}
    axis.fill_between(predicted, curve[0.05], curve[0.95], color=COLOURS[2], alpha=0.3, label="nine of ten rows")
    axis.fill_between(predicted, curve[0.25], curve[0.75], color=COLOURS[2], alpha=0.6, label="half of the rows")
    axis.plot(predicted, curve[0.5], color=COLOURS[3], marker="o", label="median")
    axis.axhline(0.0, color=COLOURS[0], linewidth=0.8)
    axis.set_xlabel("prediction")
    axis.set_ylabel("true value less prediction")
    bare(axis)
    legend_above(axis, columns=3)
    return as_png(figure)
