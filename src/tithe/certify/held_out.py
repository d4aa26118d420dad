"""Rows that are set aside before a fit, and certificates from rows that the model was not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from tithe.certify.certificate import Certificate
from tithe.certify.cost import coreset_clause, relative_error
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset, grouped
from tithe.core.errors import NoRowsError
from tithe.core.passes import DataPass
from tithe.core.seeding import Reservoir, Split, hash_limit, key_of, rng_for, uniform_of

_N_PARTS = 20  # parts of the rows whose scores give the interval
MIN_ROWS_TO_CERTIFY = 2 * _N_PARTS
_MAX_SOURCE_ROWS = 200_000  # rows of a source that are held in memory
_RISK = 1e-6  # that all rows of a class are held out
_CONFIDENCE, _NORMAL_QUANTILE = 0.95, 1.959964


def score_certificate(
    score: Callable[[Block], float], block: Block, coreset_score: float, *, named: str, beside: str
) -> Certificate:
    """The score on held-out rows of positive weight, with an interval from the scores of twenty parts of them.

    ``beside`` says in words what a model would reach that knows nothing; it may be empty.
    """
    if len(block) < MIN_ROWS_TO_CERTIFY:
        raise NoRowsError(f"{len(block)} rows that were not learned from are too few to certify by: give new rows.")
    order = rng_for(0, "certify").permutation(len(block))
    scores = [score(block.take(np.sort(rows))) for rows in np.array_split(order, _N_PARTS)]
    value = score(block)
    half = float(stats.t.ppf(0.975, _N_PARTS - 1) * np.std(scores, ddof=1) / np.sqrt(_N_PARTS))
    low, high = value - half, value + half
    if named != "score":  # accuracy and R² are at most 1
        high = min(1.0, high)
    return Certificate(
        kind="estimate",
        quantity="score",
        value=value,
        coreset_error=relative_error(coreset_score, value),
        confidence=_CONFIDENCE,
        interval=(low, high),
        n_rows=len(block),
        passes=2,
        sentence=(
            f"The {named} is {value:.4f} on {len(block):,} rows that were not learned from (95 %: {low:.4f} "
            f"to {high:.4f}){beside}; on the coreset itself, which it was fitted to, it is {coreset_score:.4f}."
        ),
    )


def mean_certificate(sums: Array, scale: float, n_rows: int, training_error: float) -> Certificate:
    """From sums of u, u e, u^2, u^2 e and u^2 e^2 over the rows, e the error of a row as a multiple of ``scale``."""
    weight, total, w2, w2e, w2ee = sums
    mean = total / weight
    spread = max(0.0, w2ee - 2.0 * mean * w2e + mean * mean * w2) ** 0.5 / weight
    mean, spread = mean * scale, spread * scale
    low, high = max(0.0, mean - _NORMAL_QUANTILE * spread), mean + _NORMAL_QUANTILE * spread
    return Certificate(
        kind="estimate",
        quantity="mse",
        value=float(mean),
        coreset_error=float(relative_error(training_error, mean)),
        confidence=_CONFIDENCE,
        interval=(float(low), float(high)),
        n_rows=n_rows,
        passes=1,
        sentence=(
            f"The mean squared error is {grouped(mean)} on these {n_rows:,} rows (95 % for rows of their kind: "
            f"{grouped(low)} to {grouped(high)}){coreset_clause(training_error, mean, said_by='training ended with')}."
        ),
    )


def exact_mean_certificate(error: float, n_rows: int) -> Certificate:
    """Of a mean squared error on all rows, which were all learned from."""
    return Certificate(
        kind="exact",
        quantity="mse",
        value=error,
        coreset_error=0.0,
        n_rows=n_rows,
        passes=1,
        sentence=f"The mean squared error is exactly {grouped(error)} on all {n_rows:,} rows, which were all learned "
        "from.",
    )


def n_coreset_rows_in(block: Block, coreset: Coreset) -> int:
    """The number of coreset rows that the block holds under the same row id."""
    block_ids, coreset_ids = block.row_ids(), coreset.row_ids()
    positions = np.minimum(np.searchsorted(block_ids, coreset_ids), len(block_ids) - 1)
    same_id = np.flatnonzero(block_ids[positions] == coreset_ids)
    unequal = block.X[positions[same_id]] != coreset.X[same_id]
    differs = unequal.getnnz(axis=1) if hasattr(unequal, "getnnz") else unequal.any(axis=1)
    return int(len(same_id) - np.count_nonzero(differs))


def sample_source(data: DataPass, coreset: Coreset, key: int) -> tuple[Block, bool]:
    """In one pass, the rows with the smallest hashes, and whether the coreset was drawn from this source."""
    for limit in (hash_limit(_MAX_SOURCE_ROWS, data.n_expected), hash_limit(_MAX_SOURCE_ROWS, None)):
        reservoir, n_known = Reservoir(size=_MAX_SOURCE_ROWS, key=key, limit=limit), 0
        for rows, n_known_in_leaf in data.each(partial(_known_and_drawn, reservoir, coreset)):
            reservoir.keep(rows)
            n_known += n_known_in_leaf
        if not reservoir.lacks_rows:  # else there are fewer rows than expected
            break
    return reservoir.rows(), n_known == len(coreset)


def _known_and_drawn(reservoir: Reservoir, coreset: Coreset, leaf: Block) -> tuple[Block, int]:
    return reservoir.among(leaf), n_coreset_rows_in(leaf, coreset)


def draw_validation_rows(n_rows: int, fraction: float, seed: int) -> Array:
    """Positions of a share of the rows, drawn uniformly, in ascending order."""
    return np.sort(rng_for(seed, "validation").choice(n_rows, round(fraction * n_rows), replace=False))


def without_rows(block: Block, positions: Array) -> Block:
    """The block with weight 0 at ``positions`` and the other weights scaled up to the same total."""
    if not len(positions):
        return block
    weight = block.weights().copy()
    total = weight.sum()
    weight[positions] = 0.0
    if not weight.any():
        raise ValueError("All rows that carry weight were set aside. Set validation_fraction=0.")
    return Block(X=block.X, y=block.y, sample_weight=weight * (total / weight.sum()))


def validation_rows(block: Block, positions: Array | None, by_hash: tuple[int, float] | None) -> Block:
    """The rows of a block of training data that were set aside.

    ``positions`` are those of rows in memory. ``by_hash`` are the key and the share for rows of a source, which are
    set aside by a hash of their ids.
    """
    if by_hash is not None:
        key, share = by_hash
        return block.take(np.flatnonzero(uniform_of(block.row_ids(), key) < share))
    ids = np.empty(0, np.int64) if positions is None else positions
    return block.take(np.flatnonzero(np.isin(block.row_ids(), ids)))


def held_out_split(rows: Block | Source, share: float, seed: int, *, has_classes: bool) -> tuple[Split, Split]:
    """The rows to learn from and those to score on, by a hash of their ids; rare classes are all learned from."""
    key, rare = key_of(seed, "held out"), _rare_classes(rows, share, seed) if has_classes else ()
    return Split(key, share, held_out=False, rare=rare), Split(key, share, held_out=True, rare=rare)


def _rare_classes(rows: Block | Source, share: float, seed: int) -> tuple[Any, ...]:
    """The classes with so few rows that all of them might be held out; those of a source are judged by a sample."""
    if isinstance(rows, Block):
        classes, seen = None if rows.y is None else np.unique(rows.y), rows.y
    else:
        classes, seen = rows.classes(), rows.sample(None, rng=rng_for(seed, "rare")).y
    if classes is None or seen is None:
        return ()
    enough = math.log(_RISK) / math.log(share)
    labels, counts = np.unique(seen, return_counts=True)
    frequent = set(labels[counts >= enough].tolist())
    return tuple(label for label in classes.tolist() if label not in frequent)
