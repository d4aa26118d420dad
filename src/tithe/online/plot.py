"""The number of clusters of a stream, over its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tithe.plot.axes import COLOURS, axes_or_new, bare


def k_over_time(history: Any, ax: Any = None) -> Any:
    """The number of clusters over a stream of rows.

    Parameters
    ----------
    history : PACO or mapping
        A clusterer of a stream, or its ``history_``.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = tithe.online.PACO(max_clusters=3, random_state=0).partial_fit(X)
    >>> tithe.plot.k_over_time(model).get_ylabel()
    'clusters'
    """
    ax = axes_or_new(ax, 6.4, 2.8)
    entries = history if isinstance(history, Mapping) else history.history_
    ax.step(entries["row"], entries["k"], where="post", color=COLOURS[3], linewidth=1.2)
    ax.set_ylim(0, entries["k"].max() + 1)
    ax.yaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("rows")
    ax.set_ylabel("clusters")
    return bare(ax)
