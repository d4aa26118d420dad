"""The rows whose labels are searched for, their kernel matrix and its width, and what is certified of the labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from tithe.certify.certificate import Certificate
from tithe.core.data import Array, Block
from tithe.learners.odm.classifier import ODMClassifier
from tithe.objectives.clustering import KMeansObjective
from tithe.reduce.build import build_coreset
from tithe.solvers.odm.kernel_functions import checked_matrix, training_kernel

_NEIGHBOUR = 10  # whose median distance is the width of the kernel
_PILOT_CENTERS = 20  # clusters of the coreset's objective: it should follow the shape of the data


def kernel_matrix(machine: ODMClassifier, block: Block, rows: Array) -> Array:
    """The kernel matrix of some rows, in double precision."""
    if machine.kernel == "precomputed":
        given: Array = checked_matrix(rows_of(machine, block.X, rows)).astype(np.float64)
        return given
    function = replace(training_kernel(machine, block.take(rows, None)), dtype=np.float64)
    prepared = function.prepare(block.X[rows])
    K: Array = function.rectangle(prepared, prepared)
    if not np.isfinite(K).all():
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    symmetric: Array = 0.5 * (K + K.T)
    return symmetric


def rows_of(machine: ODMClassifier, X: Any, rows: Array) -> Any:
    """Rows of X, and for a kernel matrix their columns too."""
    return X[np.ix_(rows, rows)] if machine.kernel == "precomputed" else X[rows]


def neighbour_gamma(X: Any) -> float:
    """1 / (2 s^2), s the median distance of distinct rows to their tenth neighbour."""
    distance = euclidean_distances(X)
    zero = 1e-7 * float(distance.max(initial=0.0))  # what rounding leaves between equal rows
    first = (distance <= zero).argmax(axis=1)
    distinct = np.flatnonzero(first == np.arange(len(first)))
    if len(distinct) < 2 or not np.isfinite(zero):
        return 1.0
    near = np.sort(distance[np.ix_(distinct, distinct)], axis=1)[:, min(_NEIGHBOUR, len(distinct) - 1)]
    gamma = 0.5 / float(np.median(near)) ** 2
    return gamma if np.isfinite(gamma) and gamma > 0.0 else 1.0


def reduced_rows(block: Block, kept: Array, size: int, *, n_clusters: int, seed: int) -> tuple[Array, Array | None]:
    """Rows to search labels for, in their order, and their weights.

    All rows with a weight and those that must be ``kept``; if these are more than ``size``, a coreset of the others.
    """
    others = np.flatnonzero((block.weights() > 0.0) & ~kept)
    n_kept = int(kept.sum())
    if len(others) + n_kept <= size:
        rows = np.union1d(others, np.flatnonzero(kept))
        return rows, None if block.sample_weight is None else block.sample_weight[rows].astype(np.float64)
    coreset = build_coreset(
        block.X[others],
        sample_weight=None if block.sample_weight is None else block.sample_weight[others],
        objective=KMeansObjective(n_clusters=max(_PILOT_CENTERS, n_clusters), n_init=1),
        coreset_size=max(size - n_kept, n_clusters),
        random_state=seed,
    )
    weight = block.weights() * kept
    weight[others[coreset.row_ids()]] = coreset.weights()
    rows = np.flatnonzero(kept | (weight > 0.0))
    return rows, weight[rows]


def label_certificate(value: float, bound: float | None, n_searched: int, n_rows: int) -> Certificate | None:
    """What a lower bound on the objective over all labels says of labels with this value."""
    if bound is None:
        return None
    excess = max(value - bound, 0.0)
    rows = f"all {n_rows} rows" if n_searched == n_rows else f"{n_searched} of {n_rows} rows"
    return Certificate(
        kind="bound",
        quantity="excess_loss",
        value=excess,
        relative_excess=excess / value if value > 0.0 else 0.0,
        bound=excess,
        n_rows=n_searched,
        passes=1,
        sentence=(
            f"The objective of the labels is {value:.6g} on {rows}. No labels that obey the constraints have one below "
            f"{bound:.6g}."
        ),
    )
