"""Decision values of rows for machines that were trained without them, from one machine that was trained with all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.odm.kernels.path import INSIDE
from tithe.odm.solvers.path import PathError, Rows, Tableau, solved


def leave_one_out(kernel: Array, sign: Array, cost: Array, gamma: Array, *, mu: float, theta: float) -> Array:
    """The decision value of each row for the machine of all other rows: (n,).

    They are exact: the machine is the one that a fit without the row would give, with the costs C of the other rows as
    they are. (A fit with the same ``lam`` has costs n / (n - 1) times as large.)

    Parameters
    ----------
    kernel : (n, n) array, float64
        The kernel matrix, plus the square of a constant feature if there is an intercept.
    sign : (n,) array of +1 and -1
    cost : (n,) array
        C of each row, positive.
    gamma : (n,) array
        Multipliers of a solution. They need not be exact, zeros will do: the solver starts from them.
    mu, theta : float
    """
    return held_out(kernel, sign, cost, gamma, [np.array([i]) for i in range(len(sign))], mu=mu, theta=theta)


def n_fold(kernel: Array, sign: Array, cost: Array, gamma: Array, fold: Array, *, mu: float, theta: float) -> Array:
    """The decision value of each row for the machine without the rows of its fold: (n,).

    ``fold`` (n,) numbers the folds. Everything else is as in `leave_one_out`.
    """
    groups = [np.flatnonzero(fold == number) for number in np.unique(fold)]
    return held_out(kernel, sign, cost, gamma, groups, mu=mu, theta=theta)


def held_out(
    kernel: Array, sign: Array, cost: Array, gamma: Array, groups: Sequence[Array], *, mu: float, theta: float
) -> Array:
    """Decision values of the rows of each group for the machine without them; every row is in one group."""
    side = np.zeros(len(sign), np.int64)
    start = Rows(sign=sign, cost=cost, gamma=gamma, margin=np.zeros(len(sign)), side=side, mu=mu, theta=theta)
    rows, tableau = solved(kernel, start)
    margins = np.empty(len(sign))

    def work(first: int, last: int) -> None:
        overlay = Tableau(tableau.matrix, len(rows))
        for group in groups[first:last]:
            margins[group] = _margins_without(kernel, overlay, rows, group)
            overlay.reset()

    over_parts(work, len(groups))
    return sign * margins


def _margins_without(kernel: Array, overlay: Tableau, rows: Rows, group: Array) -> Array:
    """Margins of the rows of a group for the machine without them.

    If no row changes sides, the path is one step, r - gamma / R_pp for a single row p with threshold r.
    """
    if not (rows.side[group] != INSIDE).any():
        margins: Array = rows.margin[group]
        return margins
    moved = rows.take(np.arange(len(rows)))
    try:
        overlay.release(moved, group)
        overlay.follow(moved, *moved.band())
        margins = moved.margin[group]
    except PathError:
        kept = np.setdiff1d(np.arange(len(rows)), group)
        others, _ = solved(kernel[np.ix_(kept, kept)], rows.take(kept))
        margins = rows.sign[group] * (kernel[np.ix_(group, kept)] @ others.coefficients())
    return margins
