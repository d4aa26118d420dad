"""The kernel matrix of the rows whose labels are searched for, and the width of the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from tithe.core.data import Array, Block
from tithe.learners.odm.classifier import ODMClassifier
from tithe.solvers.odm.kernel_functions import checked_matrix, training_kernel

_NEIGHBOUR = 10  # whose median distance is the width of the kernel


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
