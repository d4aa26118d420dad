"""Poisson regression: counts and rates, with the logarithm as link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.core.data import Array, Block
from tithe.kernels.linear.poisson import poisson_terms
from tithe.objectives.single_score import RowTerms, SingleScoreObjective


@dataclass(frozen=True, kw_only=True)
class PoissonObjective(SingleScoreObjective):
    """f(x, y) = exp(z) - y z + y ln y - y, half the Poisson deviance of the mean exp(z), z = x . w + b.

    The value is the mean of the losses plus alpha / 2 |w|^2: that of `sklearn.linear_model.PoissonRegressor`. Rows
    with exposures e and counts k are rows of target k / e and weight e.

    The second derivative exp(z) has no bound, but it changes by a factor of exp(change of z) only, as that of the
    logistic loss does: steps that go too far are halved, and certificates hold in the same way.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import PoissonObjective
    >>> block = Block(X=np.zeros((4, 1)), y=np.array([1.0, 2.0, 3.0, 2.0]))
    >>> np.exp(PoissonObjective().solve(block, rng=np.random.default_rng(0))[0, -1]).round(3)
    np.float64(2.0)
    """

    name: ClassVar[str] = "poisson"

    def _terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        loss, first, second = poisson_terms(score, y)
        return RowTerms(loss=loss, first=first, second=second)

    def _penalty(self) -> tuple[float, float]:
        return self.alpha, 0.0

    def _unit(self, weight: float) -> float:
        return 1.0 / weight if weight > 0.0 else 0.0

    def flat(self, block: Block) -> Array:
        """The constant that fits best: coefficients 0, and the logarithm of the mean."""
        flat = super().flat(block)
        if self.fit_intercept and block.y is not None:
            weight = block.weights()
            total = max(float(weight @ block.y), 0.5 * float(weight[weight > 0.0].min(initial=np.inf)))
            flat[0, -1] = np.log(total / weight.sum())  # of rows without any count, as if half a count were there
        return flat

    @classmethod
    def check_target(cls, y: Array) -> None:
        if len(y) and y.min() < 0.0:
            raise ValueError(f"Poisson regression needs targets of at least 0, got {y.min():g}.")
