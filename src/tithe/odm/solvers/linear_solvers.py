"""Solvers of the linear problem: all stop on the same proved gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from tithe.core.data import Array
from tithe.core.parallel import single_blas_thread
from tithe.odm.kernels.coordinate import coordinate_epoch, duality_gap
from tithe.odm.kernels.stochastic import stochastic_run
from tithe.odm.solvers.linear_newton import better, factorable, newton
from tithe.odm.solvers.linear_problem import LinearProblem, Place, Solution

_MAX_EPOCHS_UNCHECKED = 10  # epochs of coordinate descent between two exact gaps
# estimated remaining epochs at which Newton's method takes over: if its steps are cheap, and if they are expensive
_PATIENCE_IF_CHEAP, _PATIENCE_IF_EXPENSIVE = 10, 60
_MAX_STIFFNESS = 100.0  # mean C_i |z_i|^2 beyond which coordinate descent is not tried


def solve(
    problem: LinearProblem,
    *,
    solver: str = "auto",
    tol: float = 1e-4,
    max_iter: int = 1000,
    rng: np.random.Generator,
    start: Array | None = None,
) -> Solution:
    """The minimiser of ``problem`` to a gap of ``tol`` P, from ``start`` where the solver can use it."""
    check_solver(solver, free=problem.free)
    problem.check()
    name = chosen(problem) if solver == "auto" else solver
    with single_blas_thread():  # products are too small for threads of BLAS
        return SOLVERS[name](problem, tol=tol, max_iter=max_iter, rng=rng, start=start)


def check_solver(solver: Any, *, free: bool, more: tuple[str, ...] = ()) -> None:
    """Refuse unknown names, ``more`` being others that are known, and solvers that cannot leave the intercept free."""
    names = ("auto", *SOLVERS, *more)
    if solver not in names:
        raise ValueError(f"solver must be one of {', '.join(map(repr, names))}, got {solver!r}.")
    if free and solver not in ("auto", "newton"):
        raise ValueError(f"solver={solver!r} needs a penalised intercept: intercept_scaling=inf is for 'newton'.")


def chosen(problem: LinearProblem) -> str:
    """The solver that ``"auto"`` stands for.

    Measured: where the curvature can be factored, a step of Newton costs no more than a few epochs and two or three
    are enough for any lam. If it cannot, coordinate descent is faster up to a mean C_i |z_i|^2 of 100.
    """
    if problem.free or factorable(problem):
        return "newton"
    return "dcd" if float(problem.cost @ problem.squares) <= _MAX_STIFFNESS * len(problem) else "newton"


# -- dual coordinate descent -------------------------------------------------------------------


def coordinate_descent(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """Dual coordinate descent with gap-safe shrinking; Newton's method takes over if it is slow.

    Each epoch takes the rows in a new random order. Every few epochs v is recomputed from the dual variables, and so
    is the exact gap G, a sum of terms that are not negative. A row whose margin is farther inside the band than
    sqrt(2 G) |z_i| has a dual variable of zero at the solution, and is dropped.
    """
    cost, squares = problem.cost, problem.squares
    gamma = np.zeros(len(problem)) if start is None else problem.duals(problem.margins(start))
    v = problem.combine(gamma) if start is not None else np.zeros(problem.size)
    options = {"mu": problem.mu, "theta": problem.theta}
    active = np.arange(len(problem))
    patience = _PATIENCE_IF_CHEAP if factorable(problem) else _PATIENCE_IF_EXPENSIVE
    curve: list[float] = []
    previous_gap, n_unchecked, gap = np.inf, 0, np.inf
    for epoch in range(1, max_iter + 1):
        rng.shuffle(active)
        epoch_gap = coordinate_epoch(
            problem.X, problem.signs, cost, squares, active, constant=problem.constant, gamma=gamma, v=v, **options
        )
        n_unchecked += 1
        if curve and epoch_gap > tol * curve[-1] and n_unchecked < _MAX_EPOCHS_UNCHECKED and epoch < max_iter:
            continue
        v = problem.combine(gamma)
        point = problem.at(v)
        gap = duality_gap(gamma, point.margins, cost, **options)
        curve.append(point.value)
        if gap <= tol * point.value:
            return _dual_solution(point, gamma, gap, True, epoch, curve)
        if previous_gap < np.inf and n_unchecked * np.log(gap / (tol * point.value)) > patience * np.log(
            max(previous_gap / gap, 1.0)
        ):
            break
        previous_gap, n_unchecked = gap, 0
        idle = safely_idle(problem, point.margins, gap)
        if gamma[idle].any():
            gamma[idle] = 0.0
            v = problem.combine(gamma)
        active = active[~idle[active]]
    if epoch == max_iter:
        return _dual_solution(point, gamma, gap, False, epoch, curve)
    solution = newton(problem, tol=tol, max_iter=max_iter - epoch, rng=rng, start=v)
    return replace(solution, n_iter=epoch + solution.n_iter, curve=[*curve, *solution.curve[1:]], solver="dcd")


def _dual_solution(point: Place, gamma: Array, gap: float, done: bool, epoch: int, curve: list[float]) -> Solution:
    return Solution(place=point, duals=gamma, gap=gap, converged=done, n_iter=epoch, curve=curve, solver="dcd")


def safely_idle(problem: LinearProblem, margins: Array, gap: float) -> Array:
    """Rows that provably have no dual variable at the solution, which is no farther than sqrt(2 gap): (n,) bool."""
    reach = np.sqrt(2.0 * gap * problem.squares)
    above = margins > 1.0 - problem.theta + reach
    inside: Array = above if problem.mu == 0.0 else above & (margins < 1.0 + problem.theta - reach)
    return inside


# -- stochastic descent and L-BFGS -------------------------------------------------------------


def _stochastic(
    problem: LinearProblem,
    *,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    start: Array | None,
    follow: bool,
) -> Solution:
    """Rounds of steps on drawn rows, with the exact gradient between them; a round that leads uphill is undone."""
    n = len(problem)
    rough = 1.0 + n * problem.cost * problem.squares
    share = rough / rough.sum()
    eta = min(0.5, 1.0 / (3.0 * float(rough.mean())))
    point = problem.at(np.zeros(problem.size) if start is None else np.asarray(start, np.float64))
    curve, epoch, table = [point.value], 0, np.empty(0)
    for epoch in range(1, max_iter + 1):
        if point.gap <= tol * point.value:
            epoch -= 1
            break
        v = point.params.copy()
        if not follow or not len(table):
            table, mean = -problem.duals(point.margins) / problem.cost, point.gradient - point.params
        stochastic_run(
            problem.X,
            problem.signs,
            problem.cost,
            drawn(share, n if follow else 2 * n, rng),
            share,
            eta=eta,
            mu=problem.mu,
            theta=problem.theta,
            constant=problem.constant,
            follow=follow,
            table=table,
            mean=mean,
            v=v,
        )
        candidate = problem.at(v)
        if candidate.value <= point.value:
            point = candidate
        else:
            eta, table = min(0.5 * eta, 0.25 / float(rough.max())) if epoch == 1 else 0.5 * eta, np.empty(0)
        curve.append(point.value)
    return Solution(
        place=point,
        duals=problem.duals(point.margins),
        gap=point.gap,
        converged=point.gap <= tol * point.value,
        n_iter=epoch,
        curve=curve,
        solver="saga" if follow else "svrg",
    )


def drawn(share: Array, size: int, rng: np.random.Generator) -> Array:
    """``size`` rows in random order, each drawn in proportion to its share, rounded up or down at random."""
    edges = np.cumsum(share)
    points = (np.arange(size) + rng.random()) * (edges[-1] / size)
    rows = np.minimum(np.searchsorted(edges, points, side="right"), len(share) - 1)
    rng.shuffle(rows)
    return rows


def svrg(problem: LinearProblem, **options: Any) -> Solution:
    """Stochastic variance reduced gradient (Johnson and Zhang 2013): steps on 2 n rows between two full gradients."""
    return _stochastic(problem, follow=False, **options)


def saga(problem: LinearProblem, **options: Any) -> Solution:
    """SAGA (Defazio, Bach and Lacoste-Julien 2014): the gradient of every row is remembered by one number."""
    return _stochastic(problem, follow=True, **options)


def lbfgs(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """SciPy's L-BFGS, stopped on the gap."""
    best: list[Place] = []
    curve: list[float] = []

    def evaluate(params: Array) -> tuple[float, Array]:
        point = problem.at(params.copy())
        if not best or better(point, best[0]):
            best[:] = [point]
        return point.value, point.gradient

    def stop(intermediate_result: Any) -> None:
        curve.append(float(intermediate_result.fun))
        if best[0].gap <= tol * best[0].value:
            raise StopIteration

    begin = np.zeros(problem.size) if start is None else np.asarray(start, np.float64)
    options = {"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
    result = minimize(evaluate, begin, jac=True, method="L-BFGS-B", callback=stop, options=options)
    point = best[0]
    return Solution(
        place=point,
        duals=problem.duals(point.margins),
        gap=point.gap,
        converged=point.gap <= tol * point.value,
        n_iter=int(result.nit),
        curve=curve,
        solver="lbfgs",
    )


SOLVERS: dict[str, Callable[..., Solution]] = {
    "newton": newton,
    "dcd": coordinate_descent,
    "svrg": svrg,
    "saga": saga,
    "lbfgs": lbfgs,
}
