"""Many classes and linear scores: which way to the solution, and what it solved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.learners.odm.base import TO_ROUNDING, row_costs
from tithe.objectives.margin import MarginObjective
from tithe.solvers.odm.many_classes import MulticlassSolution, solve_many_classes
from tithe.solvers.odm.many_classes_dual import LinearMulticlassDual

_TRIED = 50  # sweeps that few rows are given although they are stiff
_STIFF = 5.0  # mean of C |x|^2 beyond which coordinates are too stiff for descent along them (measured)


@dataclass(frozen=True, kw_only=True)
class MulticlassFit:
    """Where a solver stopped.

    Parameters
    ----------
    params : (K, d + 1)
        Intercepts last.
    value : (n, K) or None
        Coefficients of the rows, whose sum with the rows the parameters are; None where the primal was solved.
    gap : float
        What the objective exceeds its smallest value by, at the most; of the last convex problem where there are
        coefficients.
    curve : list of float
        The objective after each choice of rivals, or at the end.
    n_iter : int
        Sweeps, or looks at all rows.
    """

    params: Array
    value: Array | None
    gap: float
    curve: list[float]
    n_iter: int


def fit_classes(
    objective: MarginObjective,
    block: Block,
    *,
    nonconvex: str,
    tol: float,
    sharper: float,
    max_iter: int,
    start: Array | None,
    rng: np.random.Generator,
) -> MulticlassFit:
    """The machine of all classes for rows that all carry weight.

    Block coordinate descent on the dual takes a few sweeps where C |x|^2 is small. Where it is large, it would take
    thousands: the primal, smoothed and cooled, is solved then, and what it finds is better than what is proved of it.
    Few rows, or no more than columns, hardly get in each other's way: there the dual is tried all the same, for as
    many sweeps as cost next to nothing.
    ``nonconvex="fixed_score"`` is known to the dual alone.
    """
    tiny = len(block) * objective.n_classes <= TO_ROUNDING
    free = objective.fit_intercept and np.isinf(objective.intercept_scaling)
    cost = row_costs(block.sample_weight, len(block), objective.lam, objective.theta)
    assert block.y is not None
    dual = LinearMulticlassDual(
        X=block.X,
        constant=objective.constant,
        label=block.y.astype(np.int64),
        cost=cost,
        n_classes=objective.n_classes,
        mu=float(objective.mu),
        theta=float(objective.theta),
    )
    if free and nonconvex != "cccp":
        raise ValueError(
            f"intercept_scaling=inf, a free intercept of many classes, needs nonconvex='cccp', got {nonconvex!r}."
        )
    stiff = nonconvex == "cccp" and float(cost * cost @ dual.squares()) / cost.sum() > _STIFF
    if not free and (not stiff or tiny or len(block) <= block.n_features):
        most = min(max_iter, _TRIED) if stiff else max_iter
        solved = solve_many_classes(
            dual,
            nonconvex=nonconvex,
            tol=sharper,
            asked_tol=tol,
            max_iter=most,
            rng=rng,
            patient=tiny or not stiff,
        )
        converged = solved.gap <= tol * solved.primal
        if not stiff and not converged:
            warn_caller(
                f"The duality gap is {solved.gap / solved.primal:.2g} of the value after {solved.n_iter} rounds, more "
                f"than tol={tol:g}. Raise max_iter={max_iter}, lower lam, or scale the columns.",
                ConvergenceWarning,
            )
        if not stiff or converged:
            return _of_dual(dual, solved, objective.constant)
    params, looks = objective.minimise(block, init=start)
    there = objective.evaluate(block, params)
    return MulticlassFit(params=params, value=None, gap=there.bound, curve=[there.value], n_iter=looks)


def _of_dual(dual: LinearMulticlassDual, solved: MulticlassSolution, constant: float) -> MulticlassFit:
    params = dual.weights.copy()
    params[:, -1] *= constant
    return MulticlassFit(params=params, value=solved.value, gap=solved.gap, curve=solved.curve, n_iter=solved.n_iter)
