"""Distributions of margins, of several classifiers side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.learners.odm.base import margins_of as signed_margins
from tithe.report.figures import COLOURS_IN_TURN, as_png, new_axes

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


def margin_histograms(models: Mapping[str, Any], X: Any, y: Array, sample_weight: Array | None = None) -> bytes:
    """Histograms of the margins of the same rows under some fitted classifiers, by name: a PNG.

    >>> import numpy as np
    >>> from sklearn.svm import LinearSVC
    >>> from tithe.odm import LinearODMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=500) > 0).astype(int)
    >>> models = {"ODM": LinearODMClassifier().fit(X, y), "SVM": LinearSVC().fit(X, y)}
    >>> margin_histograms(models, X, y)[1:4]
    b'PNG'
    """
    by_name = {name: margins_of(model, X, y, sample_weight) for name, model in models.items()}
    all_values = np.concatenate([margins.values for margins in by_name.values()])
    low, high = np.quantile(all_values, [_TAIL_SHARE, 1.0 - _TAIL_SHARE])
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    figure, axis = new_axes(7.5, 3.4)
    for (name, margins), colour in zip(by_name.items(), itertools.cycle(COLOURS_IN_TURN)):
        label = f"{name}: deviation / mean {margins.spread:.3g}, not positive {margins.wrong:.1%}".replace("$", r"\$")
        values = np.clip(margins.values, edges[0], edges[-1])
        axis.hist(
            values, bins=edges, weights=sample_weight, density=True, histtype="stepfilled", alpha=0.45, color=colour
        )
        axis.hist(values, bins=edges, weights=sample_weight, density=True, histtype="step", color=colour, label=label)
    axis.axvline(0.0, color="#8a8f98", linewidth=0.8)
    axis.set_xlabel("margin / mean margin")
    axis.set_ylabel("share of the rows")
    axis.set_yticks([])
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper right")
    return as_png(figure)
