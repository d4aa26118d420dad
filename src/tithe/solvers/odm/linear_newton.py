"""Newton's method for the linear problem: the whole curvature, or conjugate gradients where it is too wide."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from tithe.core.data import Array
from tithe.solvers.linear_algebra import conjugate_gradients, growing, jittered_cholesky
from tithe.solvers.odm.linear_problem import LinearProblem, Place, Solution

_DIRECT, _SPARSE_DIRECT = 300, 1000  # coordinates up to which the curvature is factored: of dense, of sparse rows
_SAMPLED = 2000  # ... up to which that of some rows is, to guide conjugate gradients
_ROWS_EACH = 10  # rows for each coordinate that such a curvature is taken from
_FEW = 20_000  # rows from which a solution of some of them is looked for first
_SHARE = 16  # one row in so many
_ARMIJO = 1e-4
_ROUNDING = 1e-12


def factorable(problem: LinearProblem) -> bool:
    """Whether steps of Newton come from a factored curvature, and cost no more than a few looks at the rows."""
    return problem.size <= (_SPARSE_DIRECT if sparse.issparse(problem.X) else _DIRECT)


def newton(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """Newton's method on the primal problem.

    P is quadratic wherever no margin crosses an end of the band, so the method ends after finitely many steps, at
    the minimiser. Up to 300 coordinates the curvature is added up (anew only over rows that changed sides) and
    factored; beyond, steps come from conjugate gradients. Many rows are begun at the solution of one in sixteen.
    It has converged, too, where no step leads on, the last one stayed within a piece and promised next to nothing:
    what is left of the gap is rounding, which columns of a huge scale magnify.
    """
    if start is None and len(problem) >= _FEW:
        start = _rough(problem, rng)
    place = problem.at(np.zeros(problem.size) if start is None else np.asarray(start, np.float64))
    curvature = _curvature(problem, tol, rng)
    curve, settled, number = [place.value], False, 0
    while number < max_iter and not place.gap <= tol * place.value:
        number += 1
        step = curvature.step(place)
        there = problem.at(place.params + step)
        slope = float(step @ place.gradient)
        settled = curvature.exact and -slope <= tol * place.value
        if there.value <= place.value + _ARMIJO * slope:
            settled &= np.array_equal(problem.bends(there.margins), problem.bends(place.margins))
        else:
            there = _searched(problem, place, there, slope)
        if not better(there, place):
            break
        place = there
        curve.append(place.value)
    return Solution(
        place=place,
        duals=problem.duals(place.margins),
        gap=place.gap,
        converged=place.gap <= tol * place.value or settled,
        n_iter=number,
        curve=curve,
        solver="newton",
    )


def _rough(problem: LinearProblem, rng: np.random.Generator) -> Array:
    """The solution of some of the rows, standing for all."""
    n = len(problem)
    size = max(n // _SHARE, min(_ROWS_EACH * problem.size, n // 2))
    rows = np.sort(rng.choice(n, size, replace=False))
    some = replace(
        problem,
        X=problem.X[rows],
        signs=problem.signs[rows],
        cost=problem.cost[rows] * (problem.cost.sum() / problem.cost[rows].sum()),
    )
    return newton(some, tol=problem.size / size, max_iter=50, rng=rng).place.params


def better(there: Place, place: Place) -> bool:
    """Values cannot tell places closer than the root of rounding apart: gradients can."""
    if there.value < place.value:
        return True
    return there.value <= place.value * (1.0 + _ROUNDING) and there.gap < place.gap


def _searched(problem: LinearProblem, place: Place, there: Place, slope: float) -> Place:
    """The best place on the way from one place to another: P is convex and piecewise quadratic along it."""
    change, step = there.margins - place.margins, there.params - place.params
    bend = float(step @ (problem.ridge * step))
    low, high, length = 0.0, 1.0, 1.0
    for _ in range(60):
        margins = place.margins + length * change
        own = float((place.params + length * step) @ (problem.ridge * step))
        rise = own - float(problem.duals(margins) @ change)
        if rise > 0.0:
            high = length
        else:
            low = length
        if abs(rise) <= 1e-3 * abs(slope) or high - low <= 1e-12 * high:
            break
        curved = bend + float(problem.bends(margins) @ (change * change))
        tried = length - rise / curved if curved > 0.0 else 0.5 * (low + high)
        length = tried if low < tried < high else 0.5 * (low + high)
    return problem.at(place.params + length * step)


class _Direct:
    """The curvature itself: added up once, then over rows that change sides, and factored."""

    exact = True

    def __init__(self, problem: LinearProblem) -> None:
        self._problem = problem
        self._bends = np.zeros(len(problem))
        self._sum = np.zeros((problem.size, problem.size))

    def step(self, place: Place) -> Array:
        bends = self._problem.bends(place.margins)
        change = bends - self._bends
        if 3 * np.count_nonzero(change) < np.count_nonzero(bends):
            self._sum += self._problem.hessian(change)
        else:
            self._sum = self._problem.hessian(bends)
        self._bends = bends
        return -Factor(self._sum, self._problem.ridge).solve(place.gradient)


class Factor:
    """A curvature and the penalty that can be divided by, each coordinate in its own scale."""

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
    """Steps by conjugate gradients, which look at all rows in each of theirs."""

    exact = False

    def __init__(self, problem: LinearProblem, tol: float, rng: np.random.Generator) -> None:
        self._problem, self._tol = problem, tol
        n = len(problem)
        self._rows = None
        if problem.size <= _SAMPLED:
            self._rows = np.sort(rng.choice(n, min(n, _ROWS_EACH * problem.size), replace=False))
            self._some = replace(problem, X=problem.X[self._rows])

    def step(self, place: Place) -> Array:
        problem = self._problem
        bends = problem.bends(place.margins)
        if self._rows is not None:
            some = self._some.hessian(bends[self._rows] * (len(problem) / len(self._rows)))
            divide = Factor(some, problem.ridge).solve
        else:
            diagonal = problem.ridge + problem.diagonal(bends)
            inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)

            def divide(gradient: Array) -> Array:
                return inverse * gradient

        small = max(0.3 * np.sqrt(2.0 * self._tol * place.value), 1e-2 * float(np.linalg.norm(place.gradient)))
        step, _ = conjugate_gradients(
            lambda x: problem.curve(bends, x),
            -place.gradient,
            precondition=divide,
            is_small=lambda residual, _: float(np.linalg.norm(residual)) <= small,
            max_steps=problem.size,
        )
        return step


def _curvature(problem: LinearProblem, tol: float, rng: np.random.Generator) -> _Direct | _Conjugate:
    return _Direct(problem) if factorable(problem) else _Conjugate(problem, tol, rng)
