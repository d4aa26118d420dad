"""Rows to judge an estimator by, and what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from tithe.certify.certificate import Certificate, relative_error
from tithe.core.data import Block, Coreset
from tithe.core.hashing import Reservoir
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for

_BATCHES = 20
LEAST_TO_CERTIFY = 2 * _BATCHES  # rows
MOST_TO_CERTIFY = 200_000  # rows of a source, which are held in memory for that


def score_certificate(score: Callable[[Block], float], block: Block, small: float) -> Certificate:
    """The score on rows that were not learned from, with an interval from its parts; ``small`` on those that were."""
    if len(block) < LEAST_TO_CERTIFY:
        raise ValueError(f"{len(block)} rows that were not learned from are too few to certify by: give new rows.")
    order = rng_for(0, "certify").permutation(len(block))
    scores = [score(block.take(np.sort(rows))) for rows in np.array_split(order, _BATCHES)]
    value = score(block)
    half = float(stats.t.ppf(0.975, _BATCHES - 1) * np.std(scores, ddof=1) / np.sqrt(_BATCHES))
    return Certificate(
        kind="estimate",
        quantity="score",
        value=value,
        coreset_error=relative_error(small, value),
        confidence=0.95,
        interval=(value - half, value + half),
        n_rows=len(block),
        passes=2,
        sentence=(
            f"Score {value:.4f} +- {half:.4f} (95 %) on {len(block)} rows that were not learned from; "
            f"{small:.4f} on the coreset itself, which it was fitted to."
        ),
    )


def n_recognised(block: Block, coreset: Coreset) -> int:
    """Rows of the coreset that stand in the block where they stood in the training data."""
    ids, own = block.row_ids(), coreset.row_ids()
    at = np.minimum(np.searchsorted(ids, own), len(ids) - 1)
    here = np.flatnonzero(ids[at] == own)
    other = block.X[at[here]] != coreset.X[here]
    differs = other.getnnz(axis=1) if hasattr(other, "getnnz") else other.any(axis=1)
    return int(len(here) - np.count_nonzero(differs))


def gathered(data: DataPass, coreset: Coreset, key: int) -> tuple[Block, bool]:
    """The rows with the smallest hashes, and whether the coreset was drawn from these rows: one pass."""
    kept, known = Reservoir(size=MOST_TO_CERTIFY, key=key), 0
    for rows, n_known in data.each(lambda leaf: (kept.among(leaf), n_recognised(leaf, coreset))):
        kept.keep(rows)
        known += n_known
    return kept.rows(), known == len(coreset)
