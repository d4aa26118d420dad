"""Many classes and rows with weights of their columns: Newton's method with multipliers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dpotri

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients, growing, jittered_cholesky
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.odm.kernels.linear import column_squares, row_squares
from tithe.odm.kernels.many_classes import classes_gap, smoothed_curves, smoothed_diagonals, smoothed_rows
from tithe.odm.solvers.many_classes import MulticlassDual

_FIRST_SHARE = 0.1  # of the mean C |x|^2: the first smoothing, at which rows are far from stiff
_SHRINK, _LAST_SMOOTHING = 0.1, 1e-4  # from one smoothing to the next, and the smallest one
_WARM_SMOOTHING = 1.0  # the first one of a start that is near the solution
# a smoothed problem is solved once half |gradient|^2 is this share of what smoothing adds to the gap, and of |W|^2
_SETTLED, _SETTLED_NORM = 0.3, 0.02
_SLOW_RATIO = 0.3  # of the gap that new multipliers leave, beyond which smoothing is lowered too
_ROUGHEST = 0.1  # accuracy of conjugate gradients
_ARMIJO, _MIN_LENGTH = 1e-4, 1e-7
_MAX_IDLE = 2  # smoothings in a row that leave the gap as it is: what is left is rounding
_FEW_COLUMNS = 64  # up to so many, the curvature of each class is factored in every step
_MAX_BLOCK_COLUMNS = 1200  # columns up to which it is factored at all
_MAX_CG_STEPS = 300
_MAX_OLD_STEPS = 25  # of conjugate gradients with blocks of an earlier step, beyond which the next ones are new
_MIN_PART_ROWS, _MAX_PARTS = 1024, 32

_Fixed = tuple[Array, Array, Array, Array, Array, Array, float, float]  # what curvatures of rows depend on


@dataclass(kw_only=True)
class LinearMulticlassDual(MulticlassDual):
    """Weights W (K, d + 1) of rows (x, constant), and their multipliers alpha and beta.

    Notes
    -----
    The lower side of the loss has kinks where two rivals are equally strong. With alpha' the last multipliers of a
    row and sigma = kappa / C, its maximum over alpha less sigma |alpha - alpha'|^2 / 2 is smooth, and quadratic in
    pieces: Newton's method ends after a few steps, each by conjugate gradients with the curvature of every class as
    preconditioner. Then alpha' = alpha, and kappa falls (the method of multipliers; Rockafellar 1976). A row takes
    O(K log K) by sorting, as in coordinate descent. With W' = sum_i v_i (x_i, constant) of the present multipliers,

        P(W) - P* <= |W - W'|^2 / 2 + sum over rows of (loss(f_i) + dual loss(v_i) + f_i . v_i),

    whose terms are not negative, and W - W' is the gradient of the smoothed problem.
    """

    X: Any
    constant: float
    free: bool = False  # the last column of W carries no penalty
    from_rows: bool = False  # the machine is W', not W: the gap is that of W', up to a factor
    alpha: Array = field(init=False)
    weights: Array = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alpha, self._pull, self._scores = np.zeros((3, len(self.label), self.n_classes))
        self.weights = np.zeros((self.n_classes, self.X.shape[1] + 1))
        with np.errstate(over="ignore"):
            stiffness = float(self.cost @ self._squares)
            if not np.isfinite(stiffness):
                raise ValueError("Squares of the rows overflow in double precision. Rescale the columns.")
        self._kappa = max(_WARM_SMOOTHING, _FIRST_SHARE * stiffness / len(self.label))
        self._gradient_share = 1.0 + stiffness / len(self.label) if self.from_rows else 1.0
        self._blocks: Callable[[Array], Array] | None = None
        self._smoothed = np.nan  # the value of the smoothed problem

    @cached_property
    def _squares(self) -> Array:
        return np.asarray(row_squares(self.X) + self.constant**2)

    @cached_property
    def _parts(self) -> list[slice]:
        """Runs of rows; sums belong to them, so that they do not depend on the number of threads."""
        n = len(self.label)
        size = max(_MIN_PART_ROWS, -(-n // _MAX_PARTS))
        return [slice(start, min(n, start + size)) for start in range(0, n, size)]

    @property
    def _ridge(self) -> Array:
        ridge = np.ones(self.weights.shape[1])
        ridge[-1] = 0.0 if self.free else 1.0
        return ridge

    def start_at(self, weights: Array) -> None:
        """Begin near a solution."""
        self.weights = np.array(weights, np.float64)
        self._scores, self._kappa = self._times(self.weights), _WARM_SMOOTHING

    # -- what rounds need ----------------------------------------------------------------------

    def scores(self) -> Array:
        return self._scores

    def renew(self) -> None:
        self._scores = self._times(self.weights)

    def kept(self) -> Any:
        return self.weights, self.alpha.copy(), self.beta.copy()

    def restore(self, kept: Any) -> None:
        self.weights, self.alpha, self.beta = kept
        self.renew()

    def shorten(self, share: float) -> None:
        self.restore((share * self.weights, share * self.alpha, share * self.beta))

    def move_rivals(self, rival: Array) -> None:
        self.rival = rival

    def norm(self) -> float:
        return float(np.vdot(self.weights * self._ridge, self.weights))

    def coefficients(self) -> Array:
        """v (n, K): alpha - beta e_y + beta e_q."""
        values, upper = self.alpha.copy(), np.flatnonzero(self.beta)
        values[upper, self.label[upper]] -= self.beta[upper]
        upper = upper[self.rival[upper] >= 0]
        values[upper, self.rival[upper]] += self.beta[upper]
        return values

    def measure(self) -> tuple[float, float, float]:
        if np.isnan(self._smoothed):
            self._smooth()
        return self._measured(self._gradient(self._active())[0])

    def _measured(self, gradient: Array) -> tuple[float, float, float]:
        fixed, band = (self.label, self.rival, self.level), (self.cost, self.mu_now, self.low, self.high)
        gap, loss, true_loss, _ = classes_gap(self._scores, self.coefficients(), self.beta, *fixed, *band)
        penalty = 0.5 * self.norm()
        if not np.isfinite(gap + penalty):
            raise ValueError("The margins overflow in double precision. Rescale the columns or the kernel.")
        return (
            gap + 0.5 * self._gradient_share * float(np.vdot(gradient, gradient)),
            loss + penalty,
            true_loss + penalty,
        )

    # -- the convex problem of a round ---------------------------------------------------------

    def descend(self, tol: float, final_tol: float, max_iter: int) -> int:
        """Newton steps until the gap is small, or at rounding level; returns their number."""
        with single_blas_thread():
            number, best = self._descend(tol, final_tol, max_iter)
            if best is not None:
                self.restore(best)
            return number

    def _descend(self, tol: float, final_tol: float, max_iter: int) -> tuple[int, Any]:
        """The number of steps, and what was kept if it is better than the end."""
        number, idle, last_gap, before = 0, 0, np.inf, np.inf
        best: tuple[float, Any] = (np.inf, None)
        self._smooth()
        while True:
            rows = self._active()
            gradient, X = self._gradient(rows)
            gap, primal, _ = self._measured(gradient)
            if gap <= tol * primal or number >= max_iter:
                return number, None if gap <= best[0] else best[1]
            if gap <= min(final_tol * primal, best[0]):
                best = gap, self.kept()
            half_square = 0.5 * self._gradient_share * float(np.vdot(gradient, gradient))
            moved = half_square > min(_SETTLED * (gap - half_square), _SETTLED_NORM * self.norm())
            if moved:
                number += 1
                moved = self._step(rows, X, gradient, min(_ROUGHEST, float(np.sqrt(half_square / primal))))
            if not moved:
                idle = idle + 1 if gap > 0.5 * last_gap and self._kappa <= _LAST_SMOOTHING else 0
                if idle > _MAX_IDLE:
                    return number, best[1]
                last_gap = min(gap, last_gap)
                self._pull = self.alpha.copy()
                if gap > _SLOW_RATIO * before:
                    self._kappa = max(_LAST_SMOOTHING, _SHRINK * self._kappa)
                before = gap
                self._smooth()

    def _step(self, rows: Array, X: Any, gradient: Array, accuracy: float) -> bool:
        """A Newton step as long as the smoothed value falls enough; False if it does not."""
        step = self._direction(rows, X, gradient, accuracy)
        start, scores, weights = self._smoothed, self._scores, self.weights
        change, slope = self._times(step), float(np.vdot(gradient, step))
        length = 1.0
        while length >= _MIN_LENGTH:
            self.weights, self._scores = weights + length * step, scores + length * change
            self._smooth()
            lack = self._smoothed - start - length * slope
            if lack <= (_ARMIJO - 1.0) * length * slope:
                return self._smoothed < start
            length *= float(np.clip(-0.5 * length * slope / lack, 0.1, 0.5)) if np.isfinite(lack) else 0.1
        self.weights, self._scores = weights, scores
        self._smooth()
        return False

    def _direction(self, rows: Array, X: Any, gradient: Array, accuracy: float) -> Array:
        """-H^-1 gradient, H the curvature of the penalty and of the smoothed losses of the active ``rows``."""
        fixed = rows, self.label, self.rival, self.alpha, self.beta, self.cost, self._kappa, self.mu_now
        out = np.empty((len(rows), self.n_classes))
        if self._blocks is None:
            self._blocks = self._new_blocks(fixed, X)
        solve, shape, ridge, n_steps = self._blocks, gradient.shape, self._ridge, 0
        assert solve is not None

        def product(flat: Array) -> Array:
            nonlocal n_steps
            n_steps += 1
            step = flat.reshape(shape)
            change = np.asarray(X @ step[:, :-1].T) + self.constant * step[:, -1]
            smoothed_curves(np.ascontiguousarray(change, np.float64), *fixed, out)
            curved = ridge * step
            curved[:, :-1] += np.asarray(X.T @ out).T
            curved[:, -1] += self.constant * out.sum(axis=0)
            return curved.ravel()

        def precondition(flat: Array) -> Array:
            return np.asarray(solve(flat.reshape(shape)).ravel())

        right = -gradient.ravel()
        small = accuracy**2 * float(right @ precondition(right))
        step, _ = conjugate_gradients(
            product,
            right,
            precondition=precondition,
            is_small=lambda _, size: size <= small,
            max_steps=_MAX_CG_STEPS,
        )
        if n_steps > _MAX_OLD_STEPS or X.shape[1] <= _FEW_COLUMNS:
            self._blocks = None
        return step.reshape(shape)

    def _new_blocks(self, fixed: _Fixed, X: Any) -> Callable[[Array], Array]:
        """Multiplies a gradient by the inverse curvature of each class alone, or, if there are many columns, weight."""
        rows, ridge = fixed[0], np.ones(X.shape[1] + 1) if X.shape[1] > _FEW_COLUMNS else self._ridge
        curve, d = np.empty((len(rows), self.n_classes)), X.shape[1]
        smoothed_diagonals(*fixed, curve)
        if d > _MAX_BLOCK_COLUMNS:
            diagonal = np.array([np.append(column_squares(X, w), self.constant**2 * w.sum()) for w in curve.T])
            inverse = 1.0 / (ridge + diagonal)
            return lambda residual: inverse * residual
        factors = []
        for weight in curve.T:
            some = np.flatnonzero(weight)
            scaled = np.empty((len(some), d + 1))
            scaled[:, :-1] = X[some].toarray() if sparse.issparse(X) else X[some]
            scaled[:, -1] = self.constant
            scaled *= np.sqrt(weight[some])[:, None]
            factors.append(scaled)
        if d <= _FEW_COLUMNS or max(map(len, factors)) > d:
            blocks = np.array([_inverse(scaled.T @ scaled + np.diag(ridge)) for scaled in factors])
            return lambda residual: np.matmul(blocks, residual[:, :, None])[:, :, 0]
        inner = [_inverse(scaled @ scaled.T + np.eye(len(scaled))) for scaled in factors]  # after Woodbury

        def solve(residual: Array) -> Array:
            pairs = zip(residual, factors, inner, strict=True)
            return np.array([r - (small @ (scaled @ r)) @ scaled for r, scaled, small in pairs])

        return solve

    # -- passes over the rows ------------------------------------------------------------------

    def _times(self, weights: Array) -> Array:
        """Scores (n, K) of all rows."""
        scores = np.empty((len(self.label), self.n_classes))

        def work(at: slice) -> None:
            rows = self.X[at]
            rows = rows if sparse.issparse(rows) else rows.astype(np.float64, copy=False)
            scores[at] = rows @ weights[:, :-1].T
            scores[at] += self.constant * weights[:, -1]

        self._over(work)
        return scores

    def _smooth(self) -> None:
        """Multipliers and the smoothed value at the present weights and scores."""
        fixed = self.label, self.rival, self.level, self.cost, self._kappa, self.mu_now, self.low, self.high
        sums = np.zeros(len(self._parts))

        def work(at: slice) -> None:
            args = self._scores, self._pull, *fixed, self.alpha, self.beta, at.start, at.stop
            sums[at.start // (self._parts[0].stop or 1)] = smoothed_rows(*args)

        self._over(work)
        self._smoothed = 0.5 * self.norm() + float(sums.sum())

    def _active(self) -> Array:
        """Rows whose multipliers are not zero."""
        lower: Array = self.alpha[np.arange(len(self.label)), self.label] > 0.0
        return np.flatnonzero(lower | (self.beta > 0.0))

    def _gradient(self, rows: Array) -> tuple[Array, Any]:
        """W - W', and the ``rows``, outside which all multipliers are zero."""
        values, X = self.coefficients()[rows], self.X[rows]
        X = X if sparse.issparse(X) else X.astype(np.float64, copy=False)
        gradient = self.weights * self._ridge
        gradient[:, :-1] -= np.asarray(X.T @ values).T
        gradient[:, -1] -= self.constant * values.sum(axis=0)
        return gradient, X

    def _over(self, work: Callable[[slice], None]) -> None:
        def run(first: int, last: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # a trial point may lie too far out
                for at in self._parts[first:last]:
                    work(at)

        over_parts(run, len(self._parts), serial=len(self.label) * self.X.shape[1] < 50_000)


def _inverse(matrix: Array) -> Array:
    """The inverse of a positive definite matrix, each coordinate in its own scale."""
    diagonal = np.diagonal(matrix)
    if not np.isfinite(diagonal).all():
        raise ValueError("The curvature overflows in double precision. Rescale the columns.")
    scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0.0)
    scaled = matrix * scale[:, None] * scale
    np.fill_diagonal(scaled, 1.0)
    inverse = dpotri(jittered_cholesky(scaled, chain((0.0,), growing(1e-14))), lower=1)[0]
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return np.asarray(inverse * scale[:, None] * scale)
