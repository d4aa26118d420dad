"""Many classes: the multipliers that are not zero are found by block pivots, and solved for directly."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.data import Array
from tithe.odm.solvers.kernel_matrix import Gram
from tithe.odm.solvers.many_classes_dual import KernelMulticlassDual, Multipliers

MAX_FREE = 4000  # multipliers up to which a linear system is solved directly
_MAX_PIVOTS = 60
_MAX_IDLE_PIVOTS = 12  # pivots in a row after which no fewer signs are wrong: the search ends
_MAX_WRONG_SHARE = 0.1  # share of wrong signs from which the gap is computed
_JITTER = 1e-10  # share of the mean diagonal: rows that occur twice make the system singular
_SIGN_TOLERANCE = 1e-10  # of the band: a slope above minus this is not negative


def solve_by_pivots(dual: KernelMulticlassDual, tol: float, rng: np.random.Generator) -> bool:
    """Solve the convex problem of this round to a gap of ``tol``; False if that fails, and nothing has changed.

    The dual is min x H x / 2 - c x over x >= 0 (`Multipliers`). With the others at zero, the free multipliers solve
    H x = c. Those that are then negative become zero, those at zero with a negative slope become free, all at once,
    until no sign is wrong (block principal pivoting, after Judice and Pires). It takes some ten systems where
    coordinate descent takes thousands of sweeps: costs do not enter the number of pivots much.
    """
    at = Multipliers(dual)
    low, goal = at.linear()
    free_a, free_beta = at.a > 0.0, at.beta > 0.0
    may_a = np.ones_like(free_a)
    may_a[at.rows, dual.label] = False
    may_beta, tolerance = np.isfinite(dual.stiff), _SIGN_TOLERANCE * dual.high
    fewest, idle = at.a.size + at.beta.size + 1, 0
    before = dual.value, dual.beta
    for _ in range(_MAX_PIVOTS):
        n_equations = int(free_a.sum() + free_beta.sum())
        if n_equations > MAX_FREE:
            break
        try:
            a, beta, curved = _solution(at, dual.gram, free_a, free_beta)
        except LinAlgError:
            break
        wrong_a = np.where(free_a, a < 0.0, may_a & (curved[0] - low < -tolerance))
        wrong_beta = np.where(free_beta, beta < 0.0, may_beta & (curved[1] - goal < -tolerance))
        n_wrong = int(wrong_a.sum() + wrong_beta.sum())
        if n_wrong <= _MAX_WRONG_SHARE * n_equations:
            gap, primal = _with_multipliers(at, np.maximum(a, 0.0), np.maximum(beta, 0.0))
            if gap <= tol * primal:
                return True
            if n_wrong == 0:
                break  # the system is singular, and its solution is too inexact
        idle = 0 if n_wrong < fewest else idle + 1
        fewest = min(fewest, n_wrong)
        if idle > (_MAX_IDLE_PIVOTS if n_wrong <= _MAX_WRONG_SHARE * n_equations else _MAX_IDLE_PIVOTS // 3):
            break  # a kernel of low rank has no one solution, and signs change for ever
        if idle > 1:  # the same signs come again: a random half of them breaks the cycle
            wrong_a, wrong_beta = (w & (rng.random(w.shape) < 0.5) for w in (wrong_a, wrong_beta))
        free_a, free_beta = free_a ^ wrong_a, free_beta ^ wrong_beta
    dual.value, dual.beta = before
    dual.renew()
    return False


def _with_multipliers(at: Multipliers, a: Array, beta: Array) -> tuple[float, float]:
    """Give these multipliers to the dual: its gap and primal value."""
    at.dual.value, at.dual.beta = at.values(a, beta), beta
    at.dual.renew()
    gap, primal, _ = at.dual.measure()
    return gap, primal


def n_free(dual: KernelMulticlassDual) -> int:
    """The number of multipliers that are not zero, which is that of equations in the first pivot."""
    at = Multipliers(dual)
    return int((at.a > 0.0).sum() + (at.beta > 0.0).sum())


def _solution(at: Multipliers, gram: Gram, free_a: Array, free_beta: Array) -> tuple[Array, Array, tuple[Array, Array]]:
    """a and beta that solve H x = c among the free ones, all others zero, and H x."""
    dual, (low, goal) = at.dual, at.linear()
    row_a, class_a = np.nonzero(free_a)
    row_beta = np.flatnonzero(free_beta)
    order = np.argsort(np.concatenate([row_a, row_beta]), kind="stable")
    system = _system(at, gram, row_a, class_a, row_beta, order)
    factor = cho_factor(system.T, lower=False, overwrite_a=True, check_finite=False)  # by columns: not copied
    a, beta = np.zeros_like(at.a), np.zeros_like(at.beta)
    right = np.concatenate([np.full(len(row_a), low), goal[row_beta]])
    for _ in range(2):  # the second time with the residual, which takes away the jitter and most rounding errors
        x = np.empty(len(order))
        x[order] = cho_solve(factor, right[order], check_finite=False)
        a[row_a, class_a] += x[: len(row_a)]
        beta[row_beta] += x[len(row_a) :]
        curved = at.curve(a, beta, dual.product(at.values(a, beta)))
        right = np.concatenate([low - curved[0][row_a, class_a], (goal - curved[1])[row_beta]])
    return a, beta, curved


def _system(at: Multipliers, gram: Gram, row_a: Array, class_a: Array, row_beta: Array, order: Array) -> Array:
    """H among the free multipliers, in an ``order`` in which their rows ascend; only the lower half is complete.

    The multiplier a_il moves the scores along e_y - e_l, and beta_i along e_q - e_y: H has the kernel of two rows
    times the product of two such directions, and 1 / C for two multipliers a of one row, 1 / (mu C) for a beta.
    """
    dual, n_a = at.dual, len(row_a)
    rows, places = np.concatenate([row_a, row_beta]), np.arange(len(order))
    direction = np.zeros((len(rows), dual.n_classes))
    direction[places, dual.label[rows]] = np.where(places < n_a, 1.0, -1.0)
    direction[places[:n_a], class_a] = -1.0
    if at.with_rival:
        direction[places[n_a:], dual.rival[row_beta]] = 1.0
    rows, direction, is_a = rows[order], direction[order], (places < n_a)[order]
    system = gram.submatrix(rows)
    system *= direction @ direction.T
    system[places, places] += np.where(is_a, dual.soft[rows], at.stiff[rows])
    for apart in range(1, dual.n_classes):  # multipliers of one row follow each other
        later = np.flatnonzero((rows[apart:] == rows[:-apart]) & is_a[apart:] & is_a[:-apart]) + apart
        system[later, later - apart] += dual.soft[rows[later]]
    system[places, places] += _JITTER * float(np.trace(system)) / max(1, len(rows))
    return system
