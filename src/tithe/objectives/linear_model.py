"""Linear models: the curvature of their losses, and minimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.kernels.parts import column_means
from tithe.objectives.linear_scores import LinearScoresObjective
from tithe.solvers.descent import Descent, Metric
from tithe.solvers.linear_algebra import MAX_COORDINATES, curvature_blocks, curvature_cost, effective_support

_MAX_NEWTON_COORDINATES = 250  # up to which computing the curvature in every round is cheap
_ROUNDS_OF_RENEWAL = (3, 12, 48)  # rounds after which a more expensive curvature is computed again
_CURVATURE_WORK = 10_000_000_000  # products that a curvature may cost
_CHUNK_ROWS = 2048


@dataclass(frozen=True, kw_only=True)
class LinearModelObjective(LinearScoresObjective):
    """A sum of losses of linear scores, and a penalty, with its curvature and a way to minimise it.

    See `LinearScoresObjective` for the parameters and for what a subclass defines, `SingleScoreObjective` for one
    score and an elementwise loss, and `LabelledLinearObjective` for classes.
    """

    def centre(self, block: Block) -> Array | None:
        """The point that columns are centred at before their curvature is taken; None: they are not centred.

        Sparse rows are not centred: they would become dense. Nor are rows if the intercept has a penalty, as this
        depends on the origin.
        """
        if not self.fit_intercept or sparse.issparse(block.X) or self._penalty()[1] > 0.0:
            return None
        return column_means(block)

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> Any:
        return self._loss_pass(block, params, cost=False, diagonal=diagonal, centre=centre)[1]

    def metric(
        self,
        block: Block,
        params: Array,
        *,
        diagonal: Array | None = None,
        centre: Array | None = None,
        caution: float = 1.0,
    ) -> Metric:
        """The curvature of these rows at ``params``, with the exact ``diagonal`` of all rows if given.

        With more ``caution``, correlations between columns are shrunk more where few rows support them.
        """
        k, size = params.shape
        sample = self._thinned(block)
        unit = self._unit(sample.total_weight)
        second, cross = self._hessian_weights(sample, params)
        hessian = curvature_blocks(sample, second, cross, centre)
        if hessian is not None:
            hessian *= unit
        # a curvature of all rows is not shrunk
        drawn = sample is not block or diagonal is not None or caution > 1.0
        if diagonal is None and hessian is not None and not drawn:
            diagonal = np.einsum("bss->bs", hessian).reshape(k, size)
        elif diagonal is None:
            diagonal = unit * self._loss_pass(block, params, cost=False, diagonal=True, centre=centre)[1].diagonal
        assert diagonal is not None
        exact = diagonal.copy()
        free = self._free_coordinates(exact.shape)
        exact[~free] = 0.0
        support = effective_support(sample.X, second, centre).ravel() / caution if drawn else None
        penalties = self._penalties((k, size))
        return Metric(hessian, exact.ravel(), penalties, support, centre, balanced=self._shift_invariant, free=free)

    def keeps_curvature(self, params: Array) -> bool:
        return params.size <= MAX_COORDINATES

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        second, cross = self._hessian_weights(block, params)
        hessian = curvature_blocks(block, second, cross, centre)
        unit = self._unit(block.total_weight if total_weight is None else total_weight)
        return None if hessian is None else unit * hessian

    def metric_of(self, hessian: Array, centre: Array | None = None) -> Metric:
        diagonal = np.einsum("bss->bs", hessian).reshape(self.n_scores, -1).copy()
        free = self._free_coordinates(diagonal.shape)
        diagonal[~free] = 0.0
        penalties = self._penalties(diagonal.shape)
        return Metric(hessian, diagonal.ravel(), penalties, None, centre, balanced=self._shift_invariant, free=free)

    def _penalties(self, shape: tuple[int, ...]) -> Array:
        """The second derivative of the penalty in each coordinate."""
        coefficient, intercept = self._penalty()
        penalty = np.full(shape, coefficient)
        penalty[:, -1] = intercept
        penalty[shape[0] - self.n_scales :] = 0.0
        return penalty.ravel()

    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        second = self._hessian_weights(block, params)[0]
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
        shares = np.empty(len(block))
        for start in range(0, len(block), _CHUNK_ROWS):
            at = slice(start, start + _CHUNK_ROWS)
            rows = block.X[at]
            if sparse.issparse(rows):
                square = rows.multiply(rows)
            else:
                square = np.square(rows - centre if centre is not None else rows, dtype=np.float64)
            shares[at] = np.einsum("ik,ik->i", second[at], square @ inverse[:, :-1].T + inverse[:, -1])
        return shares

    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        support = effective_support(block.X, self._hessian_weights(block, params)[0], centre)
        return float(support[:, : block.n_features].min())

    def solve(self, block: Block, *, rng: np.random.Generator, init: Array | None = None) -> Array:
        """The minimiser (k, d + 1) for the weighted rows, by Newton's method or preconditioned L-BFGS."""
        return self.minimise(block, init=init)[0]

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """The result of `solve`, and its number of passes over the rows."""
        flat = self._flat(block)
        coded, block = self._coded(block)
        start, renewals = flat, 1
        if init is not None:
            candidate = self._balanced(np.array(init, np.float64))
            renewals += 2
            # far away, where all losses are flat, no direction leads down
            if coded.evaluate(block, candidate).value <= coded.evaluate(block, flat).value:
                start = candidate
        centre, least_value = self.centre(block), self._least_value(block)
        with single_blas_thread():
            descent = Descent(lambda p: coded.evaluate(block, p), start, coded.metric(block, start, centre=centre))
            for number in range(1, self.max_iter + 1):
                if descent.metric.decrement(descent.point.gradient) <= self.tol * descent.point.value:
                    break
                if descent.point.value < least_value:
                    break
                if not descent.round():
                    break
                if start.size <= _MAX_NEWTON_COORDINATES or number in _ROUNDS_OF_RENEWAL:
                    descent.renew(coded.metric(block, descent.params, centre=centre))
                    renewals += 1
            # near the optimum values agree to rounding error, so the last step is judged by the gradient
            params = descent.params - descent.metric.solve(descent.point.gradient)
            final = coded.evaluate(block, params)
        better = np.linalg.norm(final.gradient) < np.linalg.norm(descent.point.gradient)
        if not (better and final.value <= descent.point.value * (1.0 + 1e-12)):
            params = descent.params
        return self._balanced(params), descent.n_evaluations + renewals + 1

    def _least_value(self, block: Block) -> float:
        """A value below which the descent would go on for ever, since there is no minimum."""
        return 0.0

    def _thinned(self, block: Block) -> Block:
        """The rows, or evenly spaced ones if the curvature of all would cost too much, reweighted to stand for all."""
        step = -(-curvature_cost(block, self.n_scores) // _CURVATURE_WORK)
        if step <= 1:
            return block
        rows = np.flatnonzero(block.weights() > 0.0)[::step]
        return block.take(rows, block.weights()[rows] * (block.total_weight / block.weights()[rows].sum()))

    def _balanced(self, params: Array) -> Array:
        """Parameters that add up to zero over the scores, where a common shift changes the penalty alone."""
        return params - params.mean(axis=0) if self._shift_invariant else params
