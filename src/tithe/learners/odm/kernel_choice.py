"""The kernel of an `ODMClassifier`, with its parameters and precision chosen for the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.columns import column_means
from tithe.solvers.odm.kernel_functions import GivenKernel, KernelFunction, checked_matrix, entry_variance
from tithe.solvers.odm.kernel_matrix import MAX_SINGLE_SQUARE_ROWS

_SINGLE_TOL = 1e-5  # tolerance from which a kernel matrix of many rows is kept in single precision
_MAX_SINGLE_VALUE = 1e15  # larger kernel values need double precision
_CHUNK_VALUES = 1 << 22  # kernel values computed at a time for new rows
_MAX_CHUNK_ROWS = 1024


def training_kernel(machine: Any, block: Block) -> Any:
    """The kernel for the training rows, in the precision that the tolerance needs."""
    if machine.kernel == "precomputed":
        return GivenKernel(matrix=checked_matrix(block.X))
    function = KernelFunction(
        kernel=machine.kernel,
        gamma=_gamma_for(machine.kernel, machine.gamma, block),
        degree=machine.degree,
        coef0=machine.coef0,
        centre=column_means(block) if isinstance(block.X, np.ndarray) else None,
    )
    if len(block) <= MAX_SINGLE_SQUARE_ROWS or machine.tol < _SINGLE_TOL:
        return function
    if not callable(machine.kernel):
        diagonal = function.diagonal(function.prepare(block.X))
        if np.abs(diagonal).max() > _MAX_SINGLE_VALUE:
            return function
    return function.in_single()


def _gamma_for(kernel: Any, gamma: float | str, block: Block) -> float:
    if kernel == "linear" or callable(kernel):
        return 1.0  # these kernels have no gamma
    if not isinstance(gamma, str):
        return float(gamma)
    if gamma == "auto":
        return 1.0 / block.n_features
    variance = entry_variance(block)
    if not np.isfinite(variance):
        raise ValueError("The variance of X overflows in double precision. Rescale the columns.")
    return 1.0 / (block.n_features * variance) if variance > 0.0 else 1.0


def kernel_scores(function: KernelFunction, X: Any, support_vectors: Any, coefficients: Array) -> Array:
    """Sums of ``coefficients`` (k, s) times the kernel of new rows with support vectors: (n, k)."""
    vectors = function.prepare(support_vectors)
    factors = coefficients.T.astype(function.dtype)
    scores = np.zeros((X.shape[0], len(coefficients)))
    n_rows = max(1, min(_MAX_CHUNK_ROWS, _CHUNK_VALUES // max(1, len(vectors))))

    def work(first: int, last: int) -> None:
        for chunk in range(first, last):
            at = slice(chunk * n_rows, (chunk + 1) * n_rows)
            scores[at] = function.rectangle(function.prepare(X[at]), vectors) @ factors

    if len(vectors):
        with single_blas_thread():
            over_parts(work, -(-len(scores) // n_rows))
    return scores
