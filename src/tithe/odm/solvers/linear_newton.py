"""Newton's method for the linear problem: the full curvature, or conjugate gradients if it is too large."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients, growing, jittered_cholesky
from tithe.odm.solvers.linear_problem import LinearProblem, Place, Solution

_MAX_DIRECT_DENSE = 300  # coordinates up to which the curvature of dense rows is factored
_MAX_DIRECT_SPARSE = 1000  # the same for sparse rows
_MAX_SAMPLED = 2000  # coordinates up to which the curvature of a sample preconditions conjugate gradients
_ROWS_PER_COORDINATE = 10  # rows of that sample for each coordinate
_MIN_ROWS_FOR_START = 20_000  # rows from which the start is the solution of a sample
_ROWS_PER_START_ROW = 16  # that sample is one row in 16
_ARMIJO = 1e-4
_ROUNDING = 1e-12


def factorable(problem: LinearProblem) -> bool:
    """Whether Newton steps use a factored curvature, and cost no more than a few passes over the rows."""
    return problem.size <= (_MAX_DIRECT_SPARSE if sparse.issparse(problem.X) else _MAX_DIRECT_DENSE)


def newton(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """Newton's method on the primal problem.

    P is quadratic wherever no margin crosses an end of the band, so the method ends after finitely many steps, at
    the minimiser. Up to 300 coordinates the curvature is summed (later only over rows that changed sides) and
    factored; beyond, steps come from conjugate gradients. With many rows, the start is the solution of a sample.
    It has also converged if no step improves and the last one stayed within a quadratic piece and promised less than
    the tolerance: the remaining gap is rounding, which columns of a huge scale magnify.
    """
    if start is None and len(problem) >= _MIN_ROWS_FOR_START:
        start = _rough(problem, rng)
    point = problem.at(np.zeros(problem.size) if start is None else np.asarray(start, np.float64))
    curvature = _curvature(problem, tol, rng)
    curve, at_minimum, number = [point.value], False, 0
    while number < max_iter and not point.gap <= tol * point.value:
        number += 1
        step = curvature.step(point)
        candidate = problem.at(point.params + step)
        slope = float(step @ point.gradient)
        at_minimum = curvature.exact and -slope <= tol * point.value
        if candidate.value <= point.value + _ARMIJO * slope:
            at_minimum &= np.array_equal(problem.curvatures(candidate.margins), problem.curvatures(point.margins))
        else:
            candidate = _searched(problem, point, candidate, slope)
        if not better(candidate, point):
            break
        point = candidate
        curve.append(point.value)
    return Solution(
        place=point,
        duals=problem.duals(point.margins),
        gap=point.gap,
        converged=point.gap <= tol * point.value or at_minimum,
        n_iter=number,
        curve=curve,
        solver="newton",
    )


def _rough(problem: LinearProblem, rng: np.random.Generator) -> Array:
    """The solution of a sample of the rows."""
    n = len(problem)
    size = max(n // _ROWS_PER_START_ROW, min(_ROWS_PER_COORDINATE * problem.size, n // 2))
    rows = np.sort(rng.choice(n, size, replace=False))
    sample = replace(
        problem,
        X=problem.X[rows],
        signs=problem.signs[rows],
        cost=problem.cost[rows] * (problem.cost.sum() / problem.cost[rows].sum()),
    )
    return newton(sample, tol=problem.size / size, max_iter=50, rng=rng).place.params


def better(candidate: Place, point: Place) -> bool:
    """Whether ``candidate`` is better: by value or, where values agree to rounding error, by the gap."""
    if candidate.value < point.value:
        return True
    return candidate.value <= point.value * (1.0 + _ROUNDING) and candidate.gap < point.gap


def _searched(problem: LinearProblem, point: Place, candidate: Place, slope: float) -> Place:
    """Line search between two points: P is convex and piecewise quadratic along the line."""
    change, step = candidate.margins - point.margins, candidate.params - point.params
    penalty_curvature = float(step @ (problem.ridge * step))
    low, high, length = 0.0, 1.0, 1.0
    for _ in range(60):
        margins = point.margins + length * change
        penalty_slope = float((point.params + length * step) @ (problem.ridge * step))
        rise = penalty_slope - float(problem.duals(margins) @ change)
        if rise > 0.0:
            high = length
        else:
            low = length
        if abs(rise) <= 1e-3 * abs(slope) or high - low <= 1e-12 * high:
            break
        curved = penalty_curvature + float(problem.curvatures(margins) @ (change * change))
        trial = length - rise / curved if curved > 0.0 else 0.5 * (low + high)
        length = trial if low < trial < high else 0.5 * (low + high)
    return problem.at(point.params + length * step)


class _Direct:
    """Steps by the factored curvature: summed over all rows once, then updated by rows that change sides."""

    exact = True

    def __init__(self, problem: LinearProblem) -> None:
        self._problem = problem
        self._curvatures = np.zeros(len(problem))
        self._sum = np.zeros((problem.size, problem.size))

    def step(self, point: Place) -> Array:
        curvatures = self._problem.curvatures(point.margins)
        change = curvatures - self._curvatures
        if 3 * np.count_nonzero(change) < np.count_nonzero(curvatures):
            self._sum += self._problem.hessian(change)
        else:
            self._sum = self._problem.hessian(curvatures)
        self._curvatures = curvatures
        return -Factor(self._sum, self._problem.ridge).solve(point.gradient)


class Factor:
    """The factored sum of a curvature and the penalty, each coordinate in its own scale."""

    def __init__(self, curvature: Array, ridge: Array) -> None:
        total = np.diagonal(curvature) + ridge
        if not np.isfinite(total).all():
            raise ValueError("The curvature overflows in double precision. Rescale the columns.")
        self._scale = np.where(total > 0.0, 1.0 / np.sqrt(np.where(total > 0.0, total, 1.0)), 0.0)
        scaled = curvature * self._scale[:, None] * self._scale
        np.fill_diagonal(scaled, 1.0)
        self._factor = jittered_cholesky(scaled, chain((0.0,), growing(1e-14)))

    def solve(self, gradient: Array) -> Array:
        solution: Array = self._scale * cho_solve((self._factor, True), self._scale * gradient, check_finite=False)
        return solution


class _Conjugate:
    """Steps by conjugate gradients, each iteration a pass over all rows."""

    exact = False

    def __init__(self, problem: LinearProblem, tol: float, rng: np.random.Generator) -> None:
        self._problem, self._tol = problem, tol
        n = len(problem)
        self._rows = None
        if problem.size <= _MAX_SAMPLED:
            self._rows = np.sort(rng.choice(n, min(n, _ROWS_PER_COORDINATE * problem.size), replace=False))
            self._sample = replace(problem, X=problem.X[self._rows])

    def step(self, point: Place) -> Array:
        problem = self._problem
        curvatures = problem.curvatures(point.margins)
        if self._rows is not None:
            sample_hessian = self._sample.hessian(curvatures[self._rows] * (len(problem) / len(self._rows)))
            divide = Factor(sample_hessian, problem.ridge).solve
        else:
            diagonal = problem.ridge + problem.diagonal(curvatures)
            inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)

            def divide(gradient: Array) -> Array:
                return inverse * gradient

        small = max(0.3 * np.sqrt(2.0 * self._tol * point.value), 1e-2 * float(np.linalg.norm(point.gradient)))
        step, _ = conjugate_gradients(
            lambda x: problem.curve(curvatures, x),
            -point.gradient,
            precondition=divide,
            is_small=lambda residual, _: float(np.linalg.norm(residual)) <= small,
            max_steps=problem.size,
        )
        return step


def _curvature(problem: LinearProblem, tol: float, rng: np.random.Generator) -> _Direct | _Conjugate:
    return _Direct(problem) if factorable(problem) else _Conjugate(problem, tol, rng)
