"""Figures of a coreset."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.plot.axes import COLOURS, GREY, axes_or_new, bare, few_log_ticks, legend_above
from tithe.rows.arrays import as_matrix

_BINS = 40
_LARGEST_AREA = 200.0  # of a kept row, in square points
_MAX_SHOWN = 5000  # of the rows behind a coreset


def weights(coreset: Block, ax: Any = None) -> Any:
    """A histogram of the weights of the kept rows.

    Parameters
    ----------
    coreset : Coreset
    ax : Axes, optional
        Those of a new figure if left out.

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
    ax : Axes, optional
        Those of a new figure if left out.

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
