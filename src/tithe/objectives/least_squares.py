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
    """f(x, y) = (y - x . w - b)^2 / 2.

    The value is twice the sum of the losses, plus alpha |w|^2: that of `sklearn.linear_model.Ridge`.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LeastSquaresObjective
    >>> block = Block(X=np.arange(5.0)[:, None], y=3 * np.arange(5.0) + 1)
    >>> LeastSquaresObjective(alpha=0.0).solve(block, rng=np.random.default_rng(0)).round(6)
    array([[3., 1.]])
    """

    name: ClassVar[str] = "least_squares"
    relative_rounding: ClassVar[float] = 1e-24
    constant_curvature: ClassVar[bool] = True

    def _terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        residual = score - y
        return RowTerms(loss=0.5 * residual * residual, first=residual, second=np.ones(len(score)))

    def _unit(self, weight: float) -> float:
        return 2.0

    def _penalty(self) -> tuple[float, float]:
        return 2.0 * self.alpha, 0.0

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        weight = block.weights()
        return weight[:, None], lambda a, b, at: weight[at]

    def curvature_drift(self, block: Block, params: Array, step: Array) -> float:
        return 0.0
