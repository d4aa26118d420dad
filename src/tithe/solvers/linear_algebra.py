"""Conjugate gradients and a jittered Cholesky factorisation for all solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from tithe.core.data import Array


def growing(first: float, factor: float = 100.0) -> Iterator[float]:
    """first, factor * first, factor^2 * first, ... without end."""
    value = first
    while True:
        yield value
        value *= factor


def jittered_cholesky(matrix: Array, jitters: Iterable[float]) -> Array:
    """The lower Cholesky factor of ``matrix + jitter * identity`` for the first jitter that makes it definite.

    Raises `scipy.linalg.LinAlgError` if none does.
    """
    for jitter in jitters:
        try:
            lower: Array = cholesky(matrix + jitter * np.eye(len(matrix)), lower=True, check_finite=False)
            return lower
        except LinAlgError:
            continue
    raise LinAlgError("The matrix is not positive definite.")


def conjugate_gradients(
    product: Callable[[Array], Array],
    right: Array,
    *,
    precondition: Callable[[Array], Array],
    is_small: Callable[[Array, float], bool],
    max_steps: int,
    start: Array | None = None,
) -> tuple[Array, bool]:
    """x with A x = right for a positive definite A, and whether A was definite along all directions tried.

    Parameters
    ----------
    product : callable
        A times a vector.
    precondition : callable
        An approximate inverse of A times a vector.
    is_small : callable
        Takes the residual r and r . precondition(r); the iteration stops when it returns True.
    """
    if start is None:
        x, residual = np.zeros_like(right), right.copy()
    else:
        x, residual = start.copy(), right - product(start)
    preconditioned = precondition(residual)
    direction, size = preconditioned, float(residual @ preconditioned)
    for _ in range(max_steps):
        if size == 0.0 or is_small(residual, size):
            break
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0.0:
            return x, False
        length = size / curvature
        x += length * direction
        residual -= length * image
        preconditioned = precondition(residual)
        previous, size = size, float(residual @ preconditioned)
        direction = preconditioned + (size / previous) * direction
    return x, True
