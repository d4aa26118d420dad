"""A linear objective needs no classes, and may have any number of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pytest

from tithe import Block, build_coreset
from tithe.core.data import Array, Evaluation
from tithe.linear.objective import LabelledLinearObjective, LinearModelObjective


class Sums(NamedTuple):
    count: Array
    loss: float
    gradient: Array
    diagonal: Array


@dataclass(frozen=True, kw_only=True)
class TwoSquares(LinearModelObjective):
    """(z_1 - y)^2 / 2 + (z_2 - y^2)^2 / 2, without a penalty."""

    name: ClassVar[str] = "two_squares"

    @property
    def n_scores(self) -> int:
        return 2

    def _residuals(self, block: Block, params: Array) -> Array:
        assert block.y is not None
        return self.margins(block.X, params) - np.column_stack([block.y, block.y**2])

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        return np.repeat(block.weights()[:, None], 2, axis=1), lambda a, b, at: np.zeros(len(block))[at]

    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Array, Sums]:
        residual, weight = self._residuals(block, params), block.weights()
        cost = 0.5 * (residual**2).sum(axis=1)
        rows = np.column_stack([block.X, np.ones(len(block))])
        diagonal = np.tile(weight @ rows**2, (2, 1))
        return cost, Sums(
            np.array([weight.sum()]), float(weight @ cost), (residual * weight[:, None]).T @ rows, diagonal
        )

    def penalty(self) -> tuple[float, float]:
        return 0.0, 0.0

    def evaluation(self, sums: Sums, params: Array) -> Evaluation:
        return Evaluation(
            value=sums.loss, gradient=sums.gradient, bound=sums.loss, diagonal=None, totals=self.totals_of(sums)
        )

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        return (self.margins(block.X, direction) ** 2).sum(axis=1)

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        return np.sqrt(cost)

    def strengthened(self, factor: float) -> Self:
        return self


@pytest.fixture
def block(rng: np.random.Generator) -> Block:
    X = rng.normal(size=(3000, 3))
    return Block(X=X, y=X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=3000), sample_weight=rng.random(3000))


def test_both_scores_are_fitted_without_classes(block, rng) -> None:
    params = TwoSquares().solve(block, rng=rng)
    root = np.sqrt(block.weights())
    rows = np.column_stack([block.X, np.ones(len(block))]) * root[:, None]
    wanted = np.linalg.lstsq(rows, np.column_stack([block.y, block.y**2]) * root[:, None], rcond=None)[0].T
    np.testing.assert_allclose(params, wanted, atol=1e-9)  # scores are not shifted to add up to zero


def test_moments_are_the_count_and_the_gradient(block, rng) -> None:
    objective = TwoSquares()
    at = rng.normal(size=(2, 4))
    moments = objective.moments(block, at)
    assert moments.n_basic == objective.n_basic_moments == 1
    np.testing.assert_allclose(block.weights() @ moments.values, objective.evaluate(block, at).totals[0])
    objective.check_pilot(at, objective.evaluate(block, at).totals, block)


def test_rows_are_drawn_calibrated_and_tried_without_classes(block, rng) -> None:
    coreset = build_coreset(
        block.X, block.y, objective=TwoSquares(), construction="leverage", coreset_size=200, random_state=0
    )
    assert coreset.provenance["calibrated"] == 1
    np.testing.assert_allclose(coreset.weights().sum(), len(block), rtol=1e-4)
    assert all(query.shape == (2, 4) for query in TwoSquares().hard_params(block, rng=rng))
    assert TwoSquares().rows_per_coefficient(block, 40) == 10.0


def test_only_labelled_objectives_know_classes() -> None:
    assert "classes" not in {field.name for field in fields(LinearModelObjective)}
    assert "classes" in {field.name for field in fields(LabelledLinearObjective)}
    with pytest.raises(ValueError, match="max_iter"):
        replace(TwoSquares(), max_iter=0)
