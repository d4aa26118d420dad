"""The problem of a linear optimal margin distribution machine: values, gradients, curvatures, gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import add_parts, over_parts, single_blas_thread
from tithe.odm.kernels.linear import block_rows, column_squares, gram, row_arrays, row_squares
from tithe.odm.kernels.two_classes import epoch, margin_gap, run_csr, run_dense
from tithe.odm.solvers.kernel_matrix import MarginLoss


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Margins (n,), value and gradient (d + 1,) of P at ``params`` (d + 1,), and a proved bound of P(params) - P*."""

    params: Array
    margins: Array
    value: float
    gradient: Array
    gap: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The result of a solver: P <= P* + ``gap`` at ``point``, dual variables (n,), P after rounds."""

    point: Evaluation
    duals: Array
    gap: float
    converged: bool
    n_iter: int
    curve: list[float] = field(default_factory=list)

    @classmethod
    def at(cls, problem: LinearProblem, point: Evaluation, *, tol: float, **others: Any) -> Self:
        """The result of a solver without dual variables of its own."""
        duals, converged = problem.multipliers(point.margins), point.gap <= tol * point.value
        return cls(point=point, duals=duals, gap=point.gap, converged=converged, **others)


@dataclass(kw_only=True, eq=False)
class LinearProblem(MarginLoss):
    """P(v) = |v|^2 / 2 + sum_i C_i l(u_i) / 2, u_i = y_i (x_i . w + k b), v = (w, b).

    Notes
    -----
    Zhang and Zhou, "Optimal Margin Distribution Machine", TKDE 2020. The dual variables at v,

        g_i = C_i (1 - theta - u_i) below the band, -mu C_i (u_i - 1 - theta) above it, 0 within,

    are feasible, sum_i g_i z_i = v - grad P(v) with z_i = y_i (x_i, k), and so P(v) - P* <= |grad P(v)|^2 / 2.
    Where b is free, feasible variables have sum_i y_i g_i = 0: those with y_i g_i of the sign that prevails are
    multiplied by the t <= 1 that makes it so, and P(v) - P* is at most

        |w - sum_i t_i g_i x_i y_i|^2 / 2 + (1 - t)^2 times the loss of the rows multiplied.
    """

    X: Any  # (n, d) float32 or float64, C-ordered, or CSR
    signs: Array  # (n,) float64: y, -1 or 1
    constant: float = 1.0  # k: the value of the constant feature, 0 for none
    free: bool = False  # the last of v carries no penalty; the constant feature is then 1

    @property
    def size(self) -> int:
        """d + 1."""
        return int(self.X.shape[1]) + 1

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def ridge(self) -> Array:
        """The second derivative of the penalty: (d + 1,)."""
        ridge = np.ones(self.size)
        ridge[-1] = 0.0 if self.free else 1.0
        return ridge

    @cached_property
    def squares(self) -> Array:
        """|z_i|^2: (n,)."""
        return np.asarray(row_squares(self.X) + self.constant**2)

    def check(self) -> None:
        """Refuse rows whose squares, in units of the penalty, are beyond double precision."""
        with np.errstate(over="ignore"):
            if not np.isfinite(float(self.cost @ self.squares)):
                raise ValueError("Squares of the rows overflow in double precision. Rescale the columns.")

    # -- rows ----------------------------------------------------------------------------------

    def margins(self, params: Array) -> Array:
        """u at v, or its change along v: (n,)."""
        return self._pass_over(params, None)[0]

    def combine(self, duals: Array) -> Array:
        """sum_i g_i z_i: (d + 1,)."""
        return np.asarray(self._pass_over(None, duals)[1].sum(axis=0))

    def curve(self, curvatures: Array, step: Array) -> Array:
        """H step, H = diag(ridge) + sum_i curvatures_i z_i z_i^T."""
        return np.asarray(self.ridge * step + self._pass_over(step, curvatures)[1].sum(axis=0))

    def hessian(self, curvatures: Array) -> Array:
        """sum_i curvatures_i z_i z_i^T: (d + 1, d + 1); only the lower half is valid."""
        matrix = gram(self.X, curvatures)
        matrix[-1] *= self.constant
        matrix[-1, -1] *= self.constant
        return matrix

    def diagonal(self, curvatures: Array) -> Array:
        """The diagonal of `hessian`: (d + 1,)."""
        return np.append(column_squares(self.X, curvatures), self.constant**2 * curvatures.sum())

    def evaluate(self, params: Array) -> Evaluation:
        """Margins, value, gradient and gap, in one pass over all rows."""
        margins, sums, losses = self._pass_over(params, None, at_duals=True)
        penalty_gradient = params * self.ridge
        gradient = penalty_gradient - sums.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            value = 0.5 * float(penalty_gradient @ params) + float(losses.sum())
            gap = self._free_gap(params, sums, losses) if self.free else 0.5 * float(gradient @ gradient)
        return Evaluation(params=params, margins=margins, value=value, gradient=gradient, gap=min(gap, value))

    def _free_gap(self, params: Array, sums: Array, losses: Array) -> float:
        sizes = np.abs(sums[:, -1])
        share = np.minimum(np.divide(sizes[::-1], sizes, out=np.ones(2), where=sizes > 0.0), 1.0)
        residual = (params - share @ sums)[:-1]
        return 0.5 * float(residual @ residual) + float((1.0 - share) ** 2 @ losses)

    def _pass_over(
        self, params: Array | None, factor: Array | None, *, at_duals: bool = False
    ) -> tuple[Array, Array, Array]:
        """Margins at ``params``; sums of z times a number for each row; losses.

        The number is ``factor``, times the margin where there are ``params``; with ``at_duals`` it is the dual variable
        at the margin, and where b is free, sums (2, d + 1) and losses (2,) are those of y g <= 0 and of y g > 0.
        """
        n, d = self.X.shape
        step = n if sparse.issparse(self.X) else block_rows(d)
        part_rows = -(-n // (32 * step)) * step  # sums do not depend on the number of threads
        n_parts = -(-n // part_rows)
        margins = np.empty(0 if params is None else n)
        sums, losses = np.zeros((n_parts, 2, d + 1)), np.zeros((n_parts, 2))

        def block(at: slice, part: int) -> None:
            rows = self.X if at.stop - at.start == n else self.X[at]
            rows = rows if sparse.issparse(rows) else rows.astype(np.float64, copy=False)
            signs, factors = self.signs[at], np.ones(1) if factor is None else factor[at]
            if params is not None:
                scores = rows @ params[:-1]
                scores += self.constant * params[-1]
                scores *= signs
                margins[at] = scores
                if factor is None and not at_duals:
                    return
                factors = self.multipliers(scores, at) if at_duals else scores * factors
            factors = factors * signs
            groups: list[Any] = [factors <= 0.0, factors > 0.0] if at_duals and self.free else [slice(None)]
            for number, members in enumerate(groups):
                chosen = np.zeros_like(factors)
                chosen[members] = factors[members]
                sums[part, number, :-1] += rows.T @ chosen
                sums[part, number, -1] += self.constant * chosen.sum()
                if at_duals:
                    losses[part, number] += 0.5 * float(chosen @ (signs * (self.bounds(scores) - scores)))

        def run(first: int, last: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # a trial point may lie too far out
                for start in range(first * part_rows, min(n, last * part_rows), step):
                    block(slice(start, min(n, start + step)), start // part_rows)

        with single_blas_thread():
            over_parts(run, n_parts, serial=n * d < 50_000)
        return margins, add_parts(sums), add_parts(losses)

    # -- steps on single rows ------------------------------------------------------------------

    def coordinate_epoch(self, order: Array, gamma: Array, v: Array) -> float:
        """One exact step in the dual variable of each row of ``order``, in place; returns the gap, row by row."""
        args = (self.signs, self.cost, self.squares, order, self.mu, self.theta, self.constant, gamma, v)
        return float(epoch(row_arrays(self.X), *args))

    def walked(
        self, start: Array, draws: Array, share: Array, *, eta: float, follow: bool, table: Array, mean: Array
    ) -> Array:
        """The parameters after steps of length ``eta`` on the rows ``draws``; row i is drawn with chance ``share_i``.

        The gradient is taken as v + mean + (C_i / share_i)(slope_i(v) - table_i) z_i, mean = sum_i C_i table_i z_i.
        """
        v = start.copy()
        band = self.mu, self.theta, self.constant
        args = (self.signs, self.cost, draws, share, eta, *band, follow, table, mean, v)
        if sparse.issparse(self.X):
            run_csr(self.X.data, self.X.indices, self.X.indptr, *args, np.zeros(self.X.shape[1], np.int64))
        else:
            run_dense(self.X, *args)
        return v

    # -- margins -------------------------------------------------------------------------------

    def duality_gap(self, gamma: Array, margins: Array) -> float:
        """P(v) - D(gamma) for v = sum_i gamma_i z_i and its margins, as a sum of terms none of which is negative."""
        return float(margin_gap(gamma, margins, self.cost, self.mu, self.low, self.high)[0])

    def bounds(self, margins: Array) -> Array:
        """The end of the band that each margin is nearest to: (n,)."""
        return np.where(margins < 1.0, 1.0 - self.theta, 1.0 + self.theta)

    def sides(self, margins: Array) -> Array:
        """-1 below the band, 1 above it, 0 within: (n,)."""
        return np.where(margins < self.low, -1, np.where(margins > self.high, 1, 0))
