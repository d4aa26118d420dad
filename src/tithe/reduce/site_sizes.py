"""How many rows each of several sites keeps, by what one small coreset of each says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tithe.core.contracts import NearestObjective, SampledObjective
from tithe.core.data import Array, Coreset
from tithe.core.params import OneOf, WholeNumber, check_value
from tithe.core.seeding import as_seed, rng_for
from tithe.reduce.merge_parts import Path, as_parts, check_alike


def site_sizes(
    coresets: Sequence[Coreset | Path], coreset_size: int, *, by: str = "cost", random_state: Any = None
) -> list[int]:
    """The sizes of coresets of several sites that have ``coreset_size`` rows together.

    Each site builds a small coreset first. One number of each decides how many rows it keeps when it builds again:
    with ``by="cost"`` that of its rows at its own pilot, as Balcan, Ehrlich and Liang (2013) share out draws for
    k-means and k-median. Their further points, the local centres with the weight that the draws leave, are not added:
    a part of these weights is negative.

    It is for sites that may send few rows. Coresets of the full size that `merge_coresets` reduces distort costs far
    less (`benchmarks/sites.py`).

    Parameters
    ----------
    coresets : list of Coreset or of paths
        One of each site.
    coreset_size : int
        Of all sites together; at least one row for each.
    by : {"cost", "weight"}
        ``"weight"``: in proportion to the weight of the rows, which is their number if they have none.
    random_state : int, RandomState, Generator or None
        For the pilot of a site whose coreset has none, since it holds all of its rows.

    Returns
    -------
    list of int

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.objectives import KMeansObjective
    >>> from tithe.reduce.site_sizes import site_sizes
    >>> rng = np.random.default_rng(0)
    >>> options = {"objective": KMeansObjective(n_clusters=3), "coreset_size": 200, "random_state": 0}
    >>> small = [build_coreset(scale * rng.normal(size=(5000, 2)), **options) for scale in (1.0, 3.0)]
    >>> sizes = site_sizes(small, 1000)
    >>> sum(sizes), 8 < sizes[1] / sizes[0] < 10
    (1000, True)
    """
    parts = as_parts(coresets)
    check_alike(parts, allow_repeated=True)
    check_value("coreset_size", coreset_size, WholeNumber(least=len(parts)))
    check_value("by", by, OneOf("cost", "weight"))
    if by == "weight":
        shares = np.array([part.coreset.weight_seen for part in parts])
    else:
        seed = as_seed(random_state)
        shares = np.array([_local_cost(part.coreset, seed, number) for number, part in enumerate(parts)])
    return _largest_remainder(shares, coreset_size)


def _local_cost(coreset: Coreset, seed: int, number: int) -> float:
    """The cost of the rows of a site at its own pilot, by its coreset, whose weights are calibrated to it."""
    objective = coreset.objective
    if not (isinstance(objective, NearestObjective) and isinstance(objective, SampledObjective)):
        raise ValueError("by='cost' is for coresets that were built for k-means or k-median: use by='weight'.")
    pilot = coreset.pilot
    if pilot is None:
        pilot = objective.pilot(coreset, rng=rng_for(seed, "pilot", number))
    return float(coreset.weights() @ objective.cost(coreset, pilot))


def _largest_remainder(shares: Array, total: int) -> list[int]:
    """Whole numbers in proportion to the shares that add up to ``total``, none below one."""
    shares = np.maximum(shares, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0.0 else np.full(len(shares), 1.0 / len(shares))
    rest = total - len(shares)  # beside the one that each has
    wanted = np.maximum(shares * total - 1.0, 0.0)
    wanted *= rest / max(wanted.sum(), np.finfo(np.float64).tiny)
    sizes = np.floor(wanted).astype(int)
    left = rest - int(sizes.sum())
    sizes[np.argsort(sizes - wanted, kind="stable")[:left]] += 1
    return [int(size) + 1 for size in sizes]
