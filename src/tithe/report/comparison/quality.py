"""How well a solution does on rows that were held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.contracts import Objective
from tithe.core.data import Array, Block
from tithe.core.seeding import rng_for
from tithe.linear.objective import LinearModelObjective


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The name of a score on rows held out, and whether more of it is better."""

    name: str
    higher_is_better: bool


def quality_of(objective: Objective) -> Quality:
    """The score that says how well an objective's solutions do their job."""
    if objective.target == "class" and isinstance(objective, LinearModelObjective):
        return Quality(name="accuracy", higher_is_better=True)
    if objective.target == "number":
        name = "R²" if objective.name == "least_squares" else "explained loss"
        return Quality(name=name, higher_is_better=True)
    return Quality(name="cost per row", higher_is_better=False)


class Judge:
    """Scores solutions on rows held out."""

    def __init__(self, objective: Objective, rows: Block) -> None:
        self.objective, self.rows, self._weight = objective, rows, rows.weights()
        self._constant_loss = self._usual_loss = 1.0
        if objective.target == "number":
            # no column says anything: the best constant
            flat = Block(X=np.zeros((len(rows), 1)), y=rows.y, sample_weight=rows.sample_weight)
            constant = objective.solve(flat, rng=rng_for(0, "constant"))
            compared = constant, objective.without_coefficients(constant)
            loss, self._usual_loss = (self._mean(objective.cost(flat, params)) for params in compared)
            self._constant_loss = float(objective.without_rounding(loss, self._usual_loss))

    def _mean(self, values: Array) -> float:
        return float(np.average(values, weights=self._weight))

    def scores(self, params: Any) -> tuple[float, float]:
        """The score of `quality_of`, and the mean loss of a row."""
        loss = self._mean(self.objective.cost(self.rows, params))
        if self.objective.target == "class" and isinstance(self.objective, LinearModelObjective):
            margins = self.objective.margins(self.rows.X, params)
            predicted = margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1)
            return self._mean(predicted.astype(np.int32) == self.objective.codes(self.rows)), loss
        if self.objective.target == "number":
            if self._constant_loss > 0.0:
                return 1.0 - loss / self._constant_loss, loss
            # as scikit-learn scores predictions of a constant: 1 if they are right
            return float(self.objective.without_rounding(loss, self._usual_loss) == 0.0), loss
        return loss, loss
