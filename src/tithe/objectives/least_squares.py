"""Least squares with a penalty: ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.core.data import Array, Block
from tithe.objectives.single_score import RowTerms, SingleScoreObjective


@dataclass(frozen=True, kw_only=True)
class LeastSquaresObjective(SingleScoreObjective):
    """f(x, y) = (y - x . w - b)^2, with penalty alpha |w|^2 on top of the sum: that of `sklearn.linear_model.Ridge`."""

    name: ClassVar[str] = "least_squares"
    constant_curvature: ClassVar[bool] = True

    def _terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        residual = score - y
        return RowTerms(loss=residual * residual, first=2.0 * residual, second=np.full(len(score), 2.0))

    def _penalty(self) -> tuple[float, float]:
        return 2.0 * self.alpha, 0.0

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        second = 2.0 * block.weights()
        return second[:, None], lambda a, b, at: second[at]

    def curvature_drift(self, block: Block, params: Array, step: Array) -> float:
        return 0.0
