"""Curves of costs: by the number of clusters, and over the rounds of polish."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.plot.axes import COLOURS, GREY, axes_or_new, bare, legend_above


def k_curve(curve: Any, ax: Any = None) -> Any:
    """The cost for each number of clusters that was tried, and the number chosen.

    Parameters
    ----------
    curve : KCurve
        What `tithe.choose_k` returns.
    ax : Axes, optional
        Those of a new figure if left out.

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
    ax : Axes, optional
        Those of a new figure if left out.

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
