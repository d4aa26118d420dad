"""Figures of coresets, of comparisons (`tithe.compare`), and of costs by clusters or rounds of polish."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.plot.axes import COLOURS, GREY, LINE_COLOURS, MARKERS, axes_or_new, bare, few_log_ticks, legend_above
from tithe.rows.arrays import as_matrix

_BINS = 40
_LARGEST_AREA = 200.0  # of a kept row, in square points
_MAX_SHOWN = 5000  # of the rows behind a coreset


def weights(coreset: Block, ax: Any = None) -> Any:
    """A histogram of the weights of the kept rows.

    Parameters
    ----------
    coreset : Coreset

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", coreset_size=200, random_state=0)
    >>> ax = tithe.plot.weights(coreset)
    >>> int(sum(bar.get_height() for bar in ax.patches)) == len(coreset)
    True
    """
    ax = axes_or_new(ax, 5.5, 2.6)
    values = coreset.weights()
    edges = np.geomspace(values.min(), max(values.max(), values.min() * 1.001), _BINS)
    edges[0], edges[-1] = min(edges[0], values.min()), max(edges[-1], values.max())  # they are rounded
    ax.hist(values, bins=edges, color=COLOURS[3])
    ax.set_xscale("log")
    few_log_ticks(ax.xaxis)
    ax.set_xlabel("rows that a kept row stands for")
    ax.set_ylabel("kept rows")
    return bare(ax)


def projection(coreset: Block, X: Any = None, ax: Any = None) -> Any:
    """The rows of a coreset in two dimensions, their weights as areas, over some of all rows.

    Rows of two columns are shown as they are, others by the first two principal components of the coreset.

    Parameters
    ----------
    coreset : Coreset
    X : array, CSR matrix or frame, optional
        All rows, of which at most 5,000 are shown in grey.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(5000, 3))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", coreset_size=100, random_state=0)
    >>> tithe.plot.projection(coreset, X).get_xlabel()
    'first principal component'
    """
    ax = axes_or_new(ax, 5.5, 5.0)
    centre, directions = _plane(coreset)
    if X is not None:
        rows = as_matrix(X)
        shown = rows[np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], _MAX_SHOWN)).astype(int)]
        ax.scatter(*_within(shown, centre, directions), s=3, color=GREY, alpha=0.4, linewidths=0, label="all rows")
    weight = coreset.weights()
    areas = _LARGEST_AREA * weight / weight.max()
    ax.scatter(
        *_within(coreset.X, centre, directions),
        s=areas,
        color=COLOURS[3],
        alpha=0.45,
        edgecolors="white",
        linewidths=0.4,
        label="kept rows, area by weight",
    )
    names = _COMPONENTS if coreset.n_features > 2 else ("first column", "second column")[: coreset.n_features]
    ax.set(**dict(zip(("xlabel", "ylabel"), names, strict=False)))
    legend_above(ax, columns=2)
    return bare(ax)


_COMPONENTS = ("first principal component", "second principal component")


def _plane(coreset: Block) -> tuple[Array, Array]:
    """The centre of the rows and two directions (d, 2): the columns themselves if there are two of them."""
    d = coreset.n_features
    if d <= 2:
        return np.zeros(d), np.eye(d, 2)
    weight = coreset.weights() / coreset.weights().sum()
    X = coreset.X.toarray() if sparse.issparse(coreset.X) else np.asarray(coreset.X, np.float64)
    centre = weight @ X
    first = np.linalg.svd((X - centre) * np.sqrt(weight)[:, None], full_matrices=False)[2][:2]
    return centre, np.pad(first, ((0, 2 - len(first)), (0, 0))).T  # a single row has no second direction


def _within(X: Any, centre: Array, directions: Array) -> tuple[Array, Array]:
    points = np.asarray(X @ directions) - centre @ directions
    return points[:, 0], points[:, 1]


# -- comparisons --------------------------------------------------------------------------------

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


# -- curves of costs ----------------------------------------------------------------------------


def k_curve(curve: Any, ax: Any = None) -> Any:
    """The cost for each number of clusters that was tried, and the number chosen.

    Parameters
    ----------
    curve : KCurve
        What `tithe.choose_k` returns.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.01, size=(500, 2)) for c in range(3)])
    >>> ax = tithe.plot.k_curve(tithe.choose_k(X, random_state=0))
    >>> ax.get_legend().get_texts()[1].get_text()
    'chosen: 3'
    """
    ax = axes_or_new(ax)
    tried = sorted(curve.curve)
    ax.plot(tried, [curve.curve[k] for k in tried], color=COLOURS[3], marker="o", label="cost on the coreset")
    ax.axvline(curve.k, color=COLOURS[1], linestyle="--", label=f"chosen: {curve.k}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(tried, [str(k) for k in tried])
    ax.minorticks_off()
    if min(curve.curve.values()) > 0.0:
        ax.set_yscale("log")
    ax.set_xlabel("clusters")
    ax.set_ylabel("cost")
    legend_above(ax, columns=2)
    return bare(ax)


def polish_curve(model: Any, ax: Any = None) -> Any:
    """The loss or cost on all rows after each round of polish, above that of the last.

    Parameters
    ----------
    model : learner on a coreset
        A fitted one with ``objective_curve_``, such as `CoresetKMeans`.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> model = tithe.CoresetKMeans(5, coreset_size=200, polish=3, random_state=0).fit(X)
    >>> len(tithe.plot.polish_curve(model).lines[0].get_xdata()) == len(model.objective_curve_)
    True
    """
    ax = axes_or_new(ax)
    curve = np.asarray(model.objective_curve_)
    rounds = np.arange(len(curve))
    ax.plot(rounds, curve, color=COLOURS[3], marker="o")
    ax.axhline(curve[-1], color=GREY, linewidth=0.8)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("rounds of polish")
    ax.set_ylabel("cost on all rows")
    return bare(ax)
