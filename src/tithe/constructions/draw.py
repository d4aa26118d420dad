"""From scores to weighted rows, and draws that no class vanishes from."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array, Block, Rng, Scores
from tithe.kernels.sampling import draw
from tithe.kernels.strata import draw_in_classes

MIN_DRAWS_OF_A_CLASS = 10  # however small the scores of its rows


def draw_rows(block: Block, scores: Scores | Array, size: int, rng: Rng, *, codes: Array | None = None) -> Block:
    """Rows drawn by scores that contain their weights u, each weighing u / (size p); by class with ``codes``."""
    positions, inverse = draw_by_class(scores, codes, size, rng)
    weight = block.sample_weight
    return block.take(positions, inverse if weight is None else inverse * weight[positions])


def draw_by_class(
    scores: Scores | Array, strata: Array | None, size: int, rng: Rng, *, least: int = MIN_DRAWS_OF_A_CLASS
) -> tuple[Array, Array]:
    """At most ``size`` draws, a number fixed beforehand from each class: distinct positions, ascending, and weights.

    Class c, of total score S_c, gets max(least_c, m S_c / S) of the m draws, the others giving way;
    least_c is ``least`` but no more than the class has rows, nor so much that the least of all
    classes take more than half of the draws. Within a class draws go by score and weights are
    count * S_c / (m_c * score): unbiased for every class, and every class with a positive score is
    there. ``scores`` include the weights of the rows. ``strata`` are class numbers from 0 (n,) int32;
    None draws from all rows together.
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
        floor = np.minimum(np.minimum(least, rows), size // (2 * present))
        return _shares(totals, np.where(totals > 0.0, np.maximum(1, floor), 0), size)

    return draw_in_classes(scores, strata, n_classes, allocate, rng)


def _shares(totals: Array, least: Array, size: int) -> Array:
    """``size`` draws in proportion to the totals, by largest remainders, but ``least`` at the least."""
    fixed = totals <= 0.0
    while True:
        free = np.flatnonzero(~fixed)
        want = (size - least[fixed].sum()) * (totals[free] / totals[free].sum())
        low = want < least[free]
        if not low.any():
            break
        fixed[free[low]] = True
    shares = least.copy()
    shares[free] = np.floor(want)
    spare = size - int(shares.sum())
    shares[free[np.argsort(np.floor(want) - want, kind="stable")[:spare]]] += 1
    return shares
