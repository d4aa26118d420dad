"""Small problems of margins, for the tests of linear machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.odm.solvers.linear_problem import LinearProblem


def margin_rows(n: int = 400, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, signs of a noisy line, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.3
    signs = np.where(X @ rng.normal(size=d) + 0.7 * rng.normal(size=n) > 0.2, 1.0, -1.0)
    return X, signs, rng.uniform(0.2, 3.0, n)


def margin_problem(
    lam: float = 100.0,
    mu: float = 0.5,
    theta: float = 0.2,
    *,
    rows: tuple[Any, np.ndarray, np.ndarray] | None = None,
    **other: Any,
) -> LinearProblem:
    X, signs, weight = margin_rows() if rows is None else rows
    cost = lam * weight / (weight.sum() * (1.0 - theta) ** 2)
    return LinearProblem(X=X, signs=signs, cost=cost, mu=mu, theta=theta, **other)


def dual_value(problem: LinearProblem, gamma: np.ndarray) -> float:
    """D of the dual variables, written down as it stands."""
    low, high = np.maximum(gamma, 0.0), np.maximum(-gamma, 0.0)
    v = problem.combine(gamma)
    linear = (1 - problem.theta) * low.sum() - (1 + problem.theta) * high.sum()
    above = 0.5 * (high**2 / (problem.mu * problem.cost)).sum() if problem.mu else 0.0
    return float(linear - 0.5 * (low**2 / problem.cost).sum() - above - 0.5 * v @ v)


def rings(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two columns; the class depends on their distance from the origin, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, ((X**2).sum(axis=1) + rng.normal(scale=0.5, size=n) > 1.2).astype(int)
