"""Distributions of margins, of several classifiers side by side."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.odm.base import QUANTILE_LEVELS, MarginDistribution, labelled_margins
from tithe.plot.axes import COLOURS_IN_TURN, GREY, axes_or_new, bare, legend_above, plain

_BINS = 80
_TAIL_SHARE = 0.002  # of the rows at either end, which the axis does not show


@dataclass(frozen=True, kw_only=True, eq=False)
class Margins:
    """The margins of rows under a classifier, in units of their mean where that is positive.

    ``distribution`` is that of the margins in the units of the decision function. What follows from it by weight, and
    does not change with the scale of the decision function: ``spread``, the standard deviation over the mean,
    ``semi_spread``, the same of margins below the mean, and ``wrong``, the share of margins that are not positive.
    """

    values: Array
    distribution: MarginDistribution
    wrong: float

    @property
    def mean(self) -> float:
        return self.distribution.mean

    @property
    def spread(self) -> float:
        return self._over_mean(self.distribution.variance)

    @property
    def semi_spread(self) -> float:
        return self._over_mean(self.distribution.semi_variance)

    def _over_mean(self, variance: float) -> float:
        return float(np.sqrt(variance)) / self.mean if self.mean > 0.0 else np.inf


def margins_of(
    model: Any, X: Any, y: Any, sample_weight: Array | None = None, *, levels: Sequence[float] = QUANTILE_LEVELS
) -> Margins:
    """The margins of rows under a fitted classifier with a ``decision_function``, and their quantiles of some levels.

    Two classes: +-f(x), + for the second. More: the row's own score less the largest other one.
    """
    scores = np.asarray(model.decision_function(X), np.float64)
    values = labelled_margins(scores, y, model.classes_)
    distribution = MarginDistribution.of(values, sample_weight, levels)
    return Margins(
        values=values / distribution.mean if distribution.mean > 0.0 else values,
        distribution=distribution,
        wrong=float(np.average(values <= 0.0, weights=sample_weight)),
    )


def margins(
    models: Mapping[str, Any],
    X: Any,
    y: Array,
    sample_weight: Array | None = None,
    ax: Any = None,
    *,
    levels: Sequence[float] = (),
) -> Any:
    """Histograms of the margins of the same rows under some fitted classifiers.

    Parameters
    ----------
    models : mapping of names to classifiers
        Each with a ``decision_function``.
    X, y : rows and their labels
    sample_weight : array of shape (n,), optional
    ax : Axes, optional
        Those of a new figure if left out.
    levels : sequence of float
        Levels of quantiles that are marked by dashed lines.

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
    by_name = {name: margins_of(model, X, y, sample_weight, levels=levels) for name, model in models.items()}
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
        for quantile in result.distribution.quantiles:
            ax.axvline(quantile / result.mean if result.mean > 0.0 else quantile, color=colour, linestyle="--")
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    in_units_of_mean = all(result.mean > 0.0 for result in by_name.values())
    ax.set_xlabel("margin / mean margin" if in_units_of_mean else "margin, in units of its mean where that is positive")
    ax.set_ylabel("share of the rows")
    ax.set_yticks([])
    legend_above(ax)
    return bare(ax, "top", "right", "left")
