from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tithe.certify.descent import Descent, Metric


@dataclass
class _Point:
    value: float
    gradient: np.ndarray


def _quadratic(H: np.ndarray, best: np.ndarray):
    def evaluate(x: np.ndarray) -> _Point:
        gap = x - best
        return _Point(0.5 * float(gap @ H @ gap) + 1.0, H @ gap)

    return evaluate


@pytest.fixture
def hessian(rng: np.random.Generator) -> np.ndarray:
    A = rng.normal(size=(40, 6)) * 10.0 ** rng.uniform(-3, 3, 6)
    return A.T @ A


def test_the_true_curvature_solves_a_quadratic_in_one_round(hessian, rng) -> None:
    best = rng.normal(size=6)
    metric = Metric(hessian[None], np.diagonal(hessian).copy(), np.zeros(6))
    descent = Descent(_quadratic(hessian, best), np.zeros(6), metric)
    assert metric.decrement(descent.point.gradient) == pytest.approx(descent.point.value - 1.0, rel=1e-5)
    assert descent.round()
    assert descent.point.value == pytest.approx(1.0, rel=1e-9)


def test_memory_makes_up_for_a_poor_metric(hessian, rng) -> None:
    best = rng.normal(size=6)
    descent = Descent(_quadratic(hessian, best), np.zeros(6), Metric(None, np.diagonal(hessian).copy(), np.zeros(6)))
    values = [descent.point.value]
    for _ in range(40):
        if not descent.round():
            break
        values.append(descent.point.value)
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(1.0, rel=1e-6)


def test_a_round_without_gain_changes_nothing() -> None:
    """A metric that is far too flat: every step tried overshoots, or helps."""
    H = np.diag([1.0, 1e12])
    start = np.array([0.0, 1.0])
    descent = Descent(_quadratic(H, np.zeros(2)), start, Metric(None, np.array([1.0, 1e-6]), np.zeros(2)))
    assert not descent.round(most_tries=2)
    assert np.array_equal(descent.params, start) and descent.n_evaluations == 3


def test_columns_that_few_rows_speak_of_lose_their_correlations(hessian) -> None:
    diagonal = np.diagonal(hessian).copy()
    lonely = Metric(hessian[None], diagonal, np.zeros(6), support=np.zeros(6))
    plain = Metric(None, diagonal, np.zeros(6))
    g = np.arange(1.0, 7.0)
    np.testing.assert_allclose(lonely.solve(g), plain.solve(g), rtol=1e-6)
    sure = Metric(hessian[None], diagonal, np.zeros(6), support=np.full(6, 1e12))
    np.testing.assert_allclose(hessian @ sure.solve(g), g, rtol=1e-3)


def test_a_coordinate_without_curvature_is_harmless() -> None:
    metric = Metric(np.diag([2.0, 0.0])[None], np.array([2.0, 0.0]), np.zeros(2))
    assert np.isfinite(metric.solve(np.array([1.0, 0.0]))).all()
