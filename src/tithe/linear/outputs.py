"""Least squares with several targets for the same rows: one curvature of all rows serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from tithe.certify.gap import CurvatureRows, Gap, evaluate_all, gap_at
from tithe.certify.newton import NewtonDescent
from tithe.core.data import Array, Block, Evaluation
from tithe.core.parallel import single_blas_thread
from tithe.core.passes import DataPass
from tithe.linear.regression_objectives import LeastSquaresObjective

_OF_ROUNDS = 1e-5  # of the tolerance: where a step without a curvature promises that little, the fit ends


def has_several_outputs(y: Any) -> bool:
    """Whether y is a table of targets, a column for each output."""
    return len(np.shape(y) if isinstance(y, (list, tuple)) else getattr(y, "shape", ())) == 2


def checked_targets(y: Any, n_rows: int) -> Array:
    """Finite targets as numbers: (n, m)."""
    targets: Array = check_array(y, dtype=np.float64, input_name="y")
    check_consistent_length(np.empty(n_rows), targets)
    return targets


def penalties(alpha: Any, n_outputs: int) -> list[float]:
    """The penalty of each output."""
    alphas = np.atleast_1d(alpha)
    if alphas.ndim != 1 or len(alphas) not in (1, n_outputs):
        raise ValueError(f"alpha holds {alphas.size} penalties for {n_outputs} outputs: give one, or one for each.")
    return [float(a) for a in np.broadcast_to(alphas, n_outputs)]


class Outputs:
    """The problems of several outputs: the same rows and weights, with a target and a penalty for each.

    The certificate is that of the sum of their losses. The curvature X' U X is taken once.
    """

    def __init__(self, objectives: Sequence[LeastSquaresObjective], block: Block, targets: Array) -> None:
        self.objectives = objectives
        self.rows, self.n_passes = block, 0
        self.blocks = [replace(block, y=np.ascontiguousarray(y)) for y in targets.T]
        first = objectives[0]
        self._centre = first.centre(block)
        self._hessian = first.curvature(self.blocks[0], first.start_params(block), self._centre)

    def fit(self, tol: float) -> Array:
        """Coefficients and intercepts (m, d + 1): exact up to rounding, or with many columns to ``tol`` of the loss."""
        solutions = []
        with single_blas_thread():
            for objective, block in zip(self.objectives, self.blocks, strict=True):
                if self._hessian is None:
                    params, n_passes = replace(objective, tol=_OF_ROUNDS * tol).minimise(block)
                else:
                    data = DataPass(block)
                    descent = NewtonDescent(objective, data, objective.start_params(block), block, self._hessian)
                    (params, _), n_passes = descent.run(tol), data.n_passes
                self.n_passes += n_passes
                solutions.append(params)
        return np.concatenate(solutions)

    def gap(self, params: Array) -> Gap:
        """How far the sum of the losses is from the smallest possible."""
        gaps = [self._gap(*each) for each in zip(self.objectives, self.blocks, params[:, None], strict=True)]
        evaluation = Evaluation(
            value=sum(gap.evaluation.value for gap in gaps),
            gradient=np.concatenate([gap.evaluation.gradient for gap in gaps]),
            bound=sum(gap.evaluation.bound for gap in gaps),
            diagonal=None,
            totals=np.zeros((1, 0)),
        )
        return Gap(
            evaluation=evaluation,
            estimate=sum(gap.estimate for gap in gaps),
            interval=None,
            exact=all(gap.exact for gap in gaps),
            negligible=sum(gap.negligible for gap in gaps),
        )

    def _gap(self, objective: LeastSquaresObjective, block: Block, params: Array) -> Gap:
        rows = CurvatureRows.all_of(objective, block, params)
        rows = rows if self._hessian is None else replace(rows, hessian=self._hessian)
        return gap_at(objective, evaluate_all(objective, DataPass(block), params), rows, params, self._centre)
