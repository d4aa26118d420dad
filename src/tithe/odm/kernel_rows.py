"""The rows whose labels are searched for, their kernel matrix and its width, and what is certified of the labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from tithe.certify.certificate import Certificate
from tithe.clustering.objective import KMeansObjective
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.fit.base import check_no_extra_arrays, note_columns
from tithe.fit.tables import checked_block
from tithe.odm.classifier import ODMClassifier
from tithe.odm.solvers.feature_problem import landmark_features
from tithe.odm.solvers.kernel_functions import checked_matrix, training_kernel
from tithe.reduce.build import build_coreset

_NEIGHBOUR = 10  # whose median distance is the width of the kernel
_MAX_LANDMARKS = 300  # rows that stand for a kernel in the search
_PILOT_CENTERS = 20  # clusters of the coreset's objective: it should follow the shape of the data


def rows_in_memory(learner: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Block, Any]:
    """All rows as a checked block, and y. A source is read as a whole; y and weights come with it."""
    if not isinstance(X, Source):
        return checked_block(learner, X, None, sample_weight, reset=True), y
    note_columns(learner, check_no_extra_arrays(X, y, sample_weight), reset=True)
    block = concat([task() for task in X.tasks()])
    return replace(block, y=None), block.y


def kernel_matrix(machine: ODMClassifier, block: Block, rows: Array) -> Array:
    """The kernel matrix of some rows, in double precision."""
    if machine.kernel == "precomputed":
        given: Array = checked_matrix(rows_of(machine.kernel, block.X, rows)).astype(np.float64)
        return given
    function = replace(training_kernel(machine, block.take(rows, None)), dtype=np.float64)
    prepared = function.prepare(block.X[rows])
    K: Array = function.rectangle(prepared, prepared)
    if not np.isfinite(K).all():
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    symmetric: Array = 0.5 * (K + K.T)
    return symmetric


def search_features(machine: ODMClassifier, block: Block, rows: Array, constant: float, rng: Any) -> Array:
    """Features (n, r) whose products are close to the kernel plus a constant: columns, or landmarks of the kernel."""
    if machine.kernel == "linear" and isinstance(block.X, np.ndarray):
        features = block.X[rows].astype(np.float64)
    else:
        landmarks = np.sort(rng.permutation(len(rows))[:_MAX_LANDMARKS])
        if machine.kernel == "precomputed":
            columns = block.X[np.ix_(rows, rows[landmarks])].astype(np.float64)
        else:
            function = replace(training_kernel(machine, block.take(rows, None)), dtype=np.float64)
            columns = function.rectangle(function.prepare(block.X[rows]), function.prepare(block.X[rows[landmarks]]))
        features = landmark_features(columns, landmarks)
    return np.column_stack([features, np.full(len(rows), constant**0.5)])


def rows_of(kernel: Any, X: Any, rows: Array) -> Any:
    """Rows of X, and for a kernel matrix their columns too."""
    return X[np.ix_(rows, rows)] if isinstance(kernel, str) and kernel == "precomputed" else X[rows]


def neighbour_gamma(kernel: Any, X: Any, rows: Array) -> float:
    """1 / (2 s^2), s the median distance of distinct rows to their tenth neighbour; 1 for kernels without a width."""
    if kernel not in ("rbf", "poly", "sigmoid", "laplacian"):
        return 1.0
    distance = euclidean_distances(X[rows])
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
    size = max(size - n_kept, n_clusters)
    if len(others) <= size:
        rows = np.union1d(others, np.flatnonzero(kept))
        return rows, None if block.sample_weight is None else block.sample_weight[rows].astype(np.float64)
    coreset = build_coreset(
        block.X[others],
        sample_weight=None if block.sample_weight is None else block.sample_weight[others],
        objective=KMeansObjective(n_clusters=max(_PILOT_CENTERS, n_clusters), n_init=1),
        coreset_size=size,
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
    searched_all = n_searched == n_rows
    rows = f"all {n_rows} rows" if searched_all else f"{n_searched} of {n_rows} rows"
    return Certificate(
        kind="bound",
        quantity="excess_loss",
        value=excess,
        relative_excess=excess / value if value > 0.0 else 0.0,
        bound=excess,
        n_rows=n_searched,
        passes=1,
        compared_on="all rows" if searched_all else f"the {n_searched} rows that labels were searched for",
        sentence=(
            f"The objective of the labels is {value:.6g} on {rows}. No labels that obey the constraints have one below "
            f"{bound:.6g}."
        ),
    )
