"""The result of a solver of a kernel machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tithe.core.data import Array


@dataclass(frozen=True, kw_only=True)
class KernelSolution:
    """A machine f_k(x) = sum_i coefficients_ki k(x_i, x) + intercept, and what is proved of it.

    Parameters
    ----------
    coefficients : (k, n)
        k = 1 for two classes, else one row for each class.
    scores : (n, k)
        Of the training rows, the intercept included.
    intercept : float
        That of a free intercept, else 0.
    function : kernel function
        In the precision that the solution took.
    gap, primal : float
        Duality gap and value; with many classes those of the last convex problem.
    curve : list of float
        The objective after each round of rivals, or at the end.
    n_iter : int
    """

    coefficients: Array
    scores: Array
    intercept: float
    function: Any
    gap: float
    primal: float
    curve: list[float]
    n_iter: int
