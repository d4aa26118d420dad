"""Figures of margins: their distributions, and the lines that linear classifiers put between two classes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from tithe.core.data import Array
from tithe.odm.base import MarginDistribution, labelled_margins
from tithe.plot.axes import COLOURS_IN_TURN, GREY, axes_or_new, bare, legend_above, plain

_BINS = 80
_TAIL_SHARE = 0.002  # of the rows at either end, which the axis does not show
_MARKERS = ("o", "s")
_FILLS = ("#c9ccd1", "#f1d5b8")  # of the rows of the two classes
_ELLIPSE_DEVIATIONS = 2.0  # radius of an ellipse, in standard deviations
_EDGE = 0.1  # room around the rows, as a share of their range

Normal = tuple[Any, Any]  # mean (2,) and covariance (2, 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Margins:
    """The margins of rows under a classifier, in units of their mean where that is positive.

    ``distribution`` is that of the margins in the units of the decision function. What follows from it by weight, and
    does not change with the scale of the decision function: ``spread``, the standard deviation over the mean, and
    ``wrong``, the share of margins that are not positive.
    """

    values: Array
    distribution: MarginDistribution
    wrong: float

    @property
    def mean(self) -> float:
        return self.distribution.mean

    @property
    def spread(self) -> float:
        return float(np.sqrt(self.distribution.variance)) / self.mean if self.mean > 0.0 else np.inf


def margins_of(model: Any, X: Any, y: Any, sample_weight: Array | None = None) -> Margins:
    """The margins of rows under a fitted classifier with a ``decision_function``, or else of its probabilities.

    Two classes: +-f(x), + for the second. More: the row's own score less the largest other one, as of probabilities.
    """
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), np.float64)
    else:
        scores = np.asarray(model.predict_proba(X), np.float64)
        scores = scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
    values = labelled_margins(scores, y, model.classes_)
    distribution = MarginDistribution.of(values, sample_weight)
    return Margins(
        values=values / distribution.mean if distribution.mean > 0.0 else values,
        distribution=distribution,
        wrong=float(np.average(values <= 0.0, weights=sample_weight)),
    )


def margins(models: Mapping[str, Any], X: Any, y: Array, sample_weight: Array | None = None, ax: Any = None) -> Any:
    """Histograms of the margins of the same rows under some fitted classifiers.

    Parameters
    ----------
    models : mapping of names to classifiers
        Each with a ``decision_function`` or ``predict_proba``.
    X, y : rows and their labels
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> from sklearn.svm import LinearSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=500) > 0).astype(int)
    >>> models = {"ODM": tithe.odm.LinearODMClassifier().fit(X, y), "SVM": LinearSVC().fit(X, y)}
    >>> tithe.plot.margins(models, X, y).get_xlabel()
    'margin / mean margin'
    """
    by_name = {name: margins_of(model, X, y, sample_weight) for name, model in models.items()}
    all_values = np.concatenate([result.values for result in by_name.values()])
    low, high = np.quantile(all_values, [_TAIL_SHARE, 1.0 - _TAIL_SHARE])
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    ax = axes_or_new(ax, 7.5, 3.4)
    for (name, result), colour in zip(by_name.items(), itertools.cycle(COLOURS_IN_TURN)):
        label = plain(f"{name}: deviation / mean {result.spread:.3g}, not positive {result.wrong:.1%}")
        values = np.clip(result.values, edges[0], edges[-1])
        ax.hist(
            values, bins=edges, weights=sample_weight, density=True, histtype="stepfilled", alpha=0.45, color=colour
        )
        ax.hist(values, bins=edges, weights=sample_weight, density=True, histtype="step", color=colour, label=label)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    in_units_of_mean = all(result.mean > 0.0 for result in by_name.values())
    ax.set_xlabel("margin / mean margin" if in_units_of_mean else "margin, in units of its mean where that is positive")
    ax.set_ylabel("share of the rows")
    ax.set_yticks([])
    legend_above(ax)
    return bare(ax, "top", "right", "left")


def geometric_margins(model: Any, X: Any, y: Array, sample_weight: Array | None = None) -> MarginDistribution:
    """The distribution of the signed distances of rows from the boundary of a linear classifier of two classes.

    Its first quantile, of level 0, is the smallest margin, which a support vector machine without errors maximises.
    """
    coef = np.asarray(model.coef_, np.float64)
    if coef.shape[0] != 1 or not coef.any():
        raise ValueError("Distances from a boundary need a linear classifier of two classes with a coef_ of (1, d).")
    margins = margins_of(model, X, y, sample_weight)
    unit = margins.mean if margins.mean > 0.0 else 1.0
    return MarginDistribution.of(margins.values * unit / np.linalg.norm(coef), sample_weight)


def two_boundaries(models: Mapping[str, Any], X: Any, y: Any, ax: Any = None, *, normals: Sequence[Normal] = ()) -> Any:
    """Rows of two classes in the plane, their means, and the boundary of each linear classifier.

    The legend has the smallest margin, the mean and the standard deviation of each, as distances.

    Parameters
    ----------
    models : mapping of str to fitted classifiers
        With ``coef_`` (1, 2), ``intercept_`` (1,), ``classes_`` and ``decision_function``.
    X, y : (n, 2), (n,)
    normals : sequence of (mean, covariance)
        Normal distributions, drawn as dashed ellipses of two standard deviations.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> from sklearn.svm import SVC
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> X = rng.normal(size=(40, 2)) + 6.0 * y[:, None]
    >>> models = {"SVM": SVC(kernel="linear", C=1e6).fit(X, y), "ODM": tithe.odm.LinearODMClassifier().fit(X, y)}
    >>> len(tithe.plot.two_boundaries(models, X, y).get_legend().texts)
    2
    """
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"A picture of boundaries needs rows of two columns, got an array of shape {X.shape}.")
    y = column_or_1d(y)
    classes = np.unique(y)
    if len(classes) != 2 or len(y) != len(X):
        raise ValueError(f"A picture of boundaries needs rows of two classes, got {len(X)} rows, labels {classes}.")
    ax = axes_or_new(ax, 6.0, 5.1)
    for label, marker, fill in zip(classes, _MARKERS, _FILLS, strict=True):
        rows = X[y == label]
        ax.scatter(*rows.T, marker=marker, s=28, facecolor=fill, edgecolor="#5b616b", linewidth=0.7)
        ax.scatter(*rows.mean(axis=0), marker=marker, s=90, color="#24292f", zorder=3)
    ellipses = [_ellipse(np.asarray(mean, np.float64), np.asarray(cov, np.float64)) for mean, cov in normals]
    for ellipse in ellipses:
        ax.plot(*ellipse, "--", color=GREY)
    shown = np.concatenate([X.T, *ellipses], axis=1)
    low, high = shown.min(axis=1), shown.max(axis=1)
    room = _EDGE * np.maximum(high - low, 1e-12)
    ax.set_xlim(low[0] - room[0], high[0] + room[0])
    ax.set_ylim(low[1] - room[1], high[1] + room[1])
    for (name, model), colour in zip(models.items(), itertools.cycle(COLOURS_IN_TURN)):
        margins = geometric_margins(model, X, y)
        about = f"smallest {margins.quantiles[0]:.3g}, mean {margins.mean:.3g}, deviation {margins.variance**0.5:.3g}"
        normal, offset = np.asarray(model.coef_, np.float64)[0], float(np.asarray(model.intercept_).reshape(-1)[0])
        foot, along = -offset * normal / (normal @ normal), np.array([-normal[1], normal[0]])
        ax.axline(foot, foot + along, color=colour, linewidth=1.8, label=plain(f"{name}: {about}"))
    ax.set_aspect("equal", adjustable="box")
    ax.set_xticks([])
    ax.set_yticks([])
    legend_above(ax)
    return ax


def _ellipse(mean: Array, covariance: Array) -> Array:
    """Points (2, 200) of the ellipse at the given number of standard deviations from the mean; a line if it is flat."""
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    squares, axes = np.linalg.eigh(covariance)
    return np.asarray(mean[:, None] + _ELLIPSE_DEVIATIONS * (axes * np.sqrt(np.maximum(squares, 0.0))) @ circle)
