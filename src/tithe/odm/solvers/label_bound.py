"""A proved lower bound on the value of a margin machine over all labelings that are allowed."""

from __future__ import annotations

import numpy as np

from tithe.core.data import Array
from tithe.odm.kernels.signs import turn_vectors
from tithe.odm.solvers.labelings import MAX_LISTED_GROUPS, Labelings
from tithe.odm.solvers.relaxation import MarginProblem

_MAX_SWEEPS = 200
_SWEEP_TOL = 1e-5  # share of the function by which a sweep must raise it, else the search ends
_MAX_PENALTIES = 20  # tried for the balance
_MAX_ROUNDS = 8  # of better multipliers
_MIN_GAIN = 1e-3  # relative gain of the bound below which no other multipliers are tried
_ROUNDING = 1e-10


def lower_bound(
    problem: MarginProblem, labelings: Labelings, gamma: Array, M: Array, rng: np.random.Generator
) -> float:
    """A number that is at most g(y) for every labeling y allowed.

    For any multipliers gamma, g(y) >= -A(gamma) - y^T H y / 2 with H = diag(gamma) K diag(gamma). So what is needed is
    an upper bound on y^T H y: the maximum itself where labelings can be listed, else that of the semi-definite
    relaxation, in which unit vectors take the place of the signs. In the second case ``gamma`` and ``M``, the mixture
    that they belong to, are moved towards the solution of that relaxation as long as the bound rises.
    """
    if len(labelings.free) <= MAX_LISTED_GROUPS:
        every = np.array(list(labelings.every()))
        H = problem.matrix * np.outer(gamma, gamma)
        return _value(problem, gamma, float(np.einsum("ti,ti->t", every @ H, every).max()))
    best, vectors = -np.inf, None
    for _ in range(_MAX_ROUNDS):
        square, vectors = _largest_square(labelings, problem.matrix * np.outer(gamma, gamma), vectors, rng)
        value = _value(problem, gamma, square)
        previous, best = best, max(best, value)
        if not value > previous + _MIN_GAIN * abs(value):
            break
        gamma, M = _towards(problem, gamma, M, _row_products(labelings, vectors))
    return best


def _value(problem: MarginProblem, gamma: Array, square: float) -> float:
    """The bound for the best multiple of gamma."""
    linear, squares = problem.dual_parts(gamma)
    return 0.0 if linear <= 0.0 else linear * linear / (2.0 * (squares + square))


def _towards(problem: MarginProblem, gamma: Array, M: Array, target: Array) -> tuple[Array, Array]:
    """Multipliers and mixture on the way from M to ``target`` with about the smallest value."""
    left, right = 0.0, 1.0
    for _ in range(5):
        middle = 0.5 * (left + right)
        mixed = (1.0 - middle) * M + middle * target
        gamma = problem.solve_mixture(mixed, gamma).gamma
        slope = -float(gamma @ (problem.matrix * (target - M)) @ gamma)
        left, right = (middle, right) if slope < 0.0 else (left, middle)
    return gamma, mixed


def _row_products(labelings: Labelings, vectors: Array) -> Array:
    """Products of the vectors of all rows; the last vector is that of the given labels."""
    groups = labelings.groups
    every = np.outer(groups.fixed, vectors[-1])
    every[labelings.free] = vectors[: len(labelings.free)]
    rows = every[groups.group] * groups.sign[:, None]
    return rows @ rows.T


def _largest_square(
    labelings: Labelings, H: Array, vectors: Array | None, rng: np.random.Generator
) -> tuple[float, Array]:
    """An upper bound on y^T H y, and the unit vectors that gave it.

    For signs t of p groups (the last one is that of the given labels, which is 1) and a balance |a . t| <= h,

        t^T G t <= sum of d + penalty h^2    where diag(d) + penalty a a^T - G is positive semi-definite.

    d comes from unit vectors that maximise the function in place of signs; what is missing for a positive semi-definite
    matrix is added, so that the bound holds for any d.
    """
    G, c, constant = labelings.contract(H)
    G = np.block([[G, c[:, None]], [c[None], np.array([[constant]])]])
    a, half_width = labelings.centred_sizes()
    rank = int(np.sqrt(2.0 * len(G))) + 2
    if vectors is None:
        vectors = rng.normal(size=(len(G), rank))
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    best, penalty, low, high = np.inf, 0.0, 0.0, np.inf
    for _ in range(_MAX_PENALTIES):
        square = _bound_at(G - penalty * np.outer(a, a), vectors) + penalty * half_width**2
        excess = float(np.square(a @ vectors).sum()) - half_width**2
        improved = square < best * (1.0 - 1e-3)
        best = min(best, square)
        if (excess <= 0.0 and penalty == 0.0) or (not improved and penalty > 0.0):
            break
        low, high = (penalty, high) if excess > 0.0 else (low, penalty)
        first = float(np.abs(G).sum()) / max(float(np.abs(a).sum()) ** 2, 1e-300)
        penalty = (first if low == 0.0 else 4.0 * low) if np.isinf(high) else 0.5 * (low + high)
    return best, vectors


def _bound_at(G: Array, vectors: Array) -> float:
    """sum of d with diag(d) - G positive semi-definite."""
    scale = float(np.abs(G).sum())
    lengths = turn_vectors(G, vectors, _MAX_SWEEPS, _SWEEP_TOL * abs(float(np.vdot(vectors, G @ vectors))))
    d = lengths + np.diagonal(G)
    missing = float(np.linalg.eigvalsh(G - np.diag(d))[-1])
    return float(d.sum()) + len(G) * max(missing, 0.0) + _ROUNDING * scale
