"""The choice of a solver for linear machines of many classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.odm.base import MAX_EXACT_MULTIPLIERS, row_costs
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.many_classes import MulticlassSolution, solve_many_classes
from tithe.odm.solvers.many_classes_dual import LinearMulticlassDual

_STIFF_SWEEPS = 50  # sweeps that are tried on few rows although the problem is stiff
_MIN_STIFFNESS = 5.0  # mean of C |x|^2 from which coordinate descent takes too many sweeps (measured)


@dataclass(frozen=True, kw_only=True)
class MulticlassFit:
    """The result of a solver.

    Parameters
    ----------
    params : (K, d + 1)
        Intercepts last.
    value : (n, K) or None
        Dual coefficients of the rows; None if the primal was solved.
    gap : float
        Upper bound of the objective minus its smallest value; of the last convex problem if there are dual
        coefficients.
    curve : list of float
        The objective after each choice of rivals, or at the end.
    n_iter : int
        Sweeps, or passes over all rows.
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
    """Fit all classes together, on rows that all have a positive weight.

    Block coordinate descent on the dual takes a few sweeps if C |x|^2 is small, and thousands if it is large. In the
    second case the smoothed primal is solved instead, whose solution is better than its bound says. The dual is tried
    nevertheless, for a few cheap sweeps, if there are few rows, or no more rows than columns.
    ``nonconvex="fixed_score"`` is available in the dual only.
    """
    tiny = len(block) * objective.n_classes <= MAX_EXACT_MULTIPLIERS
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
    stiff = nonconvex == "cccp" and float(cost * cost @ dual.squares()) / cost.sum() > _MIN_STIFFNESS
    if not free and (not stiff or tiny or len(block) <= block.n_features):
        max_sweeps = min(max_iter, _STIFF_SWEEPS) if stiff else max_iter
        solved = solve_many_classes(
            dual,
            nonconvex=nonconvex,
            tol=sharper,
            asked_tol=tol,
            max_iter=max_sweeps,
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
    params, n_passes = objective.minimise(block, init=start)
    evaluation = objective.evaluate(block, params)
    return MulticlassFit(params=params, value=None, gap=evaluation.bound, curve=[evaluation.value], n_iter=n_passes)


def _of_dual(dual: LinearMulticlassDual, solved: MulticlassSolution, constant: float) -> MulticlassFit:
    params = dual.weights.copy()
    params[:, -1] *= constant
    return MulticlassFit(params=params, value=solved.value, gap=solved.gap, curve=solved.curve, n_iter=solved.n_iter)
