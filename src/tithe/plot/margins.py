"""Distributions of margins, of several classifiers side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.learners.odm.base import margins_of as signed_margins
from tithe.plot.axes import COLOURS_IN_TURN, GREY, axes_or_new, bare, legend_above, plain

_BINS = 80
_TAIL_SHARE = 0.002  # of the rows at either end, which the axis does not show


@dataclass(frozen=True, kw_only=True, eq=False)
class Margins:
    """The margins of rows under a classifier, in units of their mean where that is positive.

    ``spread`` is the standard deviation over the mean, ``wrong`` the share of margins that are not positive; both
    are by weight, and neither changes with the scale of the decision function.
    """

    values: Array
    mean: float
    spread: float
    wrong: float


def margins_of(model: Any, X: Any, y: Array, sample_weight: Array | None = None) -> Margins:
    """The margins of rows under a fitted classifier with a ``decision_function``.

    Two classes: +-f(x), + for the second. More: the row's own score less the largest other one.
    """
    scores = np.asarray(model.decision_function(X), np.float64)
    values = signed_margins(scores, np.searchsorted(model.classes_, y))
    mean = float(np.average(values, weights=sample_weight))
    deviation = float(np.sqrt(np.average((values - mean) ** 2, weights=sample_weight)))
    return Margins(
        values=values / mean if mean > 0.0 else values,
        mean=mean,
        spread=deviation / mean if mean > 0.0 else np.inf,
        wrong=float(np.average(values <= 0.0, weights=sample_weight)),
    )


def margins(models: Mapping[str, Any], X: Any, y: Array, sample_weight: Array | None = None, ax: Any = None) -> Any:
    """Histograms of the margins of the same rows under some fitted classifiers.

    Parameters
    ----------
    models : mapping of names to classifiers
        Each with a ``decision_function``.
    X, y : rows and their labels
    sample_weight : array of shape (n,), optional
    ax : Axes, optional
        Those of a new figure if left out.

    Returns
    -------
    Axes

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
    ax.set_xlabel("margin / mean margin")
    ax.set_ylabel("share of the rows")
    ax.set_yticks([])
    legend_above(ax)
    return bare(ax, "top", "right", "left")
