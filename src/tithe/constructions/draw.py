"""Weighted rows drawn by their scores, with at least one row of every class."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array, Block, Rng, Scores
from tithe.kernels.sampling import draw
from tithe.kernels.strata import draw_in_classes

MIN_DRAWS_OF_A_CLASS = 10  # even if the scores of its rows are small


def draw_rows(block: Block, scores: Scores | Array, size: int, rng: Rng, *, codes: Array | None = None) -> Block:
    """Rows drawn by scores that contain their weights u, each weighing u / (size p); by class with ``codes``."""
    positions, inverse = draw_by_class(scores, codes, size, rng)
    weight = block.sample_weight
    return block.take(positions, inverse if weight is None else inverse * weight[positions])


def draw_by_class(
    scores: Scores | Array, strata: Array | None, size: int, rng: Rng, *, min_draws: int = MIN_DRAWS_OF_A_CLASS
) -> tuple[Array, Array]:
    """At most ``size`` draws, a number fixed beforehand from each class: distinct positions, ascending, and weights.

    Class c, of total score S_c, gets max(min_c, m S_c / S) of the m draws; the other classes get fewer in return.
    min_c is ``min_draws``, limited by the number of rows of the class and so that these minima take at most half of
    all draws. Within a class rows are drawn by score and weights are count * S_c / (m_c * score). This is unbiased
    for every class, and every class with a positive score is drawn from. ``scores`` include the weights of the rows.
    ``strata`` are class numbers from 0 (n,) int32; None draws from all rows together.
    """
    if strata is None:
        return draw(scores, size, rng)
    n_classes = int(strata.max(initial=0)) + 1

    def allocate(totals: Array, rows: Array) -> Array:
        present = int((totals > 0.0).sum())
        if size < present:
            raise ValueError(
                f"There are {present} classes and only {size} rows may be kept: "
                "ask for at least as many rows as classes."
            )
        floor = np.minimum(np.minimum(min_draws, rows), size // (2 * present))
        return _shares(totals, np.where(totals > 0.0, np.maximum(1, floor), 0), size)

    return draw_in_classes(scores, strata, n_classes, allocate, rng)


def _shares(totals: Array, minimum: Array, size: int) -> Array:
    """``size`` draws in proportion to the totals, by largest remainders, and at least ``minimum`` for each."""
    fixed = totals <= 0.0
    while True:
        free = np.flatnonzero(~fixed)
        wanted = (size - minimum[fixed].sum()) * (totals[free] / totals[free].sum())
        too_few = wanted < minimum[free]
        if not too_few.any():
            break
        fixed[free[too_few]] = True
    shares = minimum.copy()
    shares[free] = np.floor(wanted)
    spare = size - int(shares.sum())
    shares[free[np.argsort(np.floor(wanted) - wanted, kind="stable")[:spare]]] += 1
    return shares
