"""What is measured on twenty random problems is never above the total sensitivity that a size is computed from."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from theory_rows import weighted_rows

from tithe import Block
from tithe.constructions import Cablr, Rings
from tithe.core.data import Scores
from tithe.objectives import (
    DictionaryObjective,
    KMeansObjective,
    KMedianObjective,
    LogisticObjective,
    MarginObjective,
)
from tithe.theory.sizes import measured_total_sensitivity, rows_of_equal_weight, theoretical_size

LOGISTIC, MARGIN = LogisticObjective(classes=(0, 1)), MarginObjective(classes=(0, 1), lam=10.0, theta=0.2)
CLUSTERINGS = [KMeansObjective, KMedianObjective]


def _measured(block: Block, goal: Any, seed: int, **options: Any) -> float:
    given = {"sample_weight": block.sample_weight, "objective": goal, "random_state": seed, **options}
    return measured_total_sensitivity(block.X, block.y, **given)


@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_clusterings(kind: Any) -> None:
    for seed in range(20):
        block = weighted_rows(seed, n=[12, 60, 400][seed % 3])
        goal = kind(n_clusters=[1, 3, 5, 20][seed % 4])
        measured = _measured(block, goal, seed)
        assert measured <= theoretical_size(goal, 0.1, n_features=2).total_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("k", [5, 20, 100])
def test_the_total_is_reached(k: int) -> None:
    goal = KMeansObjective(n_clusters=k)
    X = np.random.default_rng(0).normal(size=(20 * k, 4))
    used = theoretical_size(goal, 0.1, n_features=4).total_sensitivity
    assert measured_total_sensitivity(X, objective=goal) == pytest.approx(used, rel=0.05)


@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_rings(kind: Any) -> None:
    """Their size counts rings. The costs within a ring differ by no more than the formula allows for."""
    largest = 0.0
    for seed in range(20):
        block, rng = weighted_rows(seed, n=300), np.random.default_rng(seed)
        goal, rings = kind(n_clusters=1 + seed % 3), Rings(alpha=[4.0, 1.0, 30.0][seed % 3])
        survey = goal.survey(block, goal.pilot(block, rng=rng))
        ring, _ = rings.ring_of(block, survey, goal.power)
        default_ring, _ = Rings().ring_of(block, survey, goal.power)
        terms = {"n_features": 2, "construction": "rings", "n_rows": rows_of_equal_weight(block)}
        assert len(np.unique(default_ring)) <= theoretical_size(goal, 0.1, **terms).total_sensitivity
        pilot_cost = survey.totals[:, 1].sum()
        for scale in (0.1, 1.0, 10.0, 100.0):
            cost = goal.cost(block, scale * rng.normal(size=(goal.n_clusters, 2)))
            total = float(cost @ block.weights())
            members = [ring == number for number in np.unique(ring)]
            spread = sum(block.weights()[m].sum() * (cost[m].max() - cost[m].min()) for m in members) / total
            largest = max(largest, spread / rings.error_factor(goal.power, pilot_cost / total))
    assert 0.2 < largest <= 1.0


@pytest.mark.parametrize(("kind", "limit"), [(KMeansObjective, 16.0), (KMedianObjective, 4.0)])
def test_lightweight(kind: Any, limit: float) -> None:
    largest = 0.0
    for seed in range(20):
        block, rng, goal = weighted_rows(seed, n=12), np.random.default_rng(seed), kind(n_clusters=2)
        u, at_mean = block.weights(), goal.cost(block, goal.mean_pilot(block))
        p = 0.5 * u / u.sum() + 0.5 * u * at_mean / (u @ at_mean)
        for scale in (0.1, 1.0, 10.0, 1000.0):
            cost = goal.cost(block, scale * rng.normal(size=(2, 2)))
            largest = max(largest, float((u * cost / p).max() / (0.5 * (u @ cost + u @ at_mean))))
    assert largest <= limit
    assert theoretical_size(goal, 0.1, n_features=2, construction="lightweight").total_sensitivity == limit


@pytest.mark.filterwarnings("ignore:The mean sensitivity")  # of 16 rows nearly each matters
def test_logistic() -> None:
    """The shares of rows in the loss, over many parameters within the radius."""
    radius = 1.5
    for seed in range(20):
        block, rng = weighted_rows(seed, n=16), np.random.default_rng(seed)
        used = _measured(block, LOGISTIC, seed, construction=Cablr(n_clusters=3, radius=radius))
        theta = rng.normal(size=(3000, 3))
        theta *= (radius * rng.random(3000) ** 0.2 / np.linalg.norm(theta, axis=1))[:, None]
        z = np.column_stack([block.X, np.ones(16)]) * (2.0 * block.y - 1.0)[:, None]
        losses = np.logaddexp(0.0, -theta @ z.T) * block.weights()
        largest = (losses / losses.sum(axis=1, keepdims=True)).max(axis=0).sum()
        assert 1.0 < largest <= used <= block.total_weight


def test_margin() -> None:
    for seed in range(20):
        block, rng = weighted_rows(seed, n=16), np.random.default_rng(seed)
        used = _measured(block, MARGIN, seed)
        unit = MARGIN.lam / (2.0 * block.total_weight * (1.0 - MARGIN.theta) ** 2)
        z = np.column_stack([block.X, np.ones(16)]) * (2.0 * block.y - 1.0)[:, None]
        w = rng.normal(size=(3000, 3)) * 10.0 ** rng.uniform(-3, 1, (3000, 1))
        u = w @ z.T
        low, high = 1.0 - MARGIN.theta, 1.0 + MARGIN.theta
        losses = np.maximum(0.0, low - u) ** 2 + MARGIN.mu * np.maximum(0.0, u - high) ** 2
        parts = unit * losses * block.weights()
        value = 0.5 * (w * w).sum(axis=1, keepdims=True) + parts.sum(axis=1, keepdims=True)
        assert 0.5 < (parts / value).max(axis=0).sum() <= used


@pytest.mark.slow
def test_three_classes() -> None:
    """The shares of rows in costs of three classes: the loss of logistic regression, and margins to the rival."""
    classes = (0, 1, 2)
    goals = (
        (LogisticObjective(classes=classes), {"construction": Cablr(n_clusters=2, radius=1.5)}, 1.5),
        (MarginObjective(classes=classes, lam=10.0, theta=0.2), {}, np.inf),
    )
    for seed in range(20):
        block, rng = weighted_rows(seed, n=15), np.random.default_rng(seed)
        block = replace(block, y=rng.permutation(np.arange(15, dtype=np.int32) % 3))
        for goal, options, radius in goals:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The mean sensitivity")  # of 15 rows nearly each matters
                used = _measured(block, goal, seed, **options)
            shares = np.zeros(15)
            for _ in range(200):
                params = rng.normal(size=(3, 3)) * 10.0 ** rng.uniform(-2, 1)
                params *= min(1.0, radius / np.linalg.norm(params))
                cost = goal.cost(block, params) * block.weights()
                whole = cost.sum() if radius < np.inf else goal.evaluate(block, params).value
                shares = np.maximum(shares, cost / whole)
            assert 0.3 < shares.sum() <= used


def test_no_row_counts_more_than_once() -> None:
    """Bounds above 1 are cut in what a draw by them is proved for: S = max min(1, s) / p."""
    goal = MarginObjective(classes=(0, 1))  # its defaults have large bounds
    X = np.random.default_rng(0).normal(size=(300, 3))
    block = Block(X=X, y=(X[:, 0] > 0).astype(np.int32))
    pilot = goal.pilot(block, rng=np.random.default_rng(0))
    scores = goal.sensitivity(block, goal.survey(block, pilot))
    bounds = scores.at() if isinstance(scores, Scores) else scores
    assert bounds.min() > 1.0
    expected = (np.minimum(1.0, bounds) / (bounds / bounds.sum())).max()
    assert measured_total_sensitivity(X, block.y, objective=goal) == pytest.approx(expected, rel=0.05)
    assert expected < 0.2 * bounds.sum()


@pytest.mark.parametrize("construction", ["rdsf", "uniform", "sensitivity"])
def test_other_constructions_are_refused(construction: str) -> None:
    block = weighted_rows(0)
    with pytest.raises(ValueError, match="'cablr', 'acvs'"):
        _measured(block, LOGISTIC, 0, construction=construction)


def test_dictionary() -> None:
    """The shares of rows in the error of dictionaries that contain the constant signal, of T = 1."""
    goal = DictionaryObjective(n_components=3, n_nonzero_coefs=1)
    for seed in range(20):
        block, rng = weighted_rows(seed, n=16, d=4), np.random.default_rng(seed)
        constant = goal.pilot(block, rng=rng)
        at_reference = block.weights() * goal.cost(block, constant)
        shares, factor = [np.zeros(16)], 1.0
        for _ in range(30):
            atoms = rng.normal(size=(2, 4))
            atoms = np.vstack([constant, atoms / np.linalg.norm(atoms, axis=1, keepdims=True)])
            error = block.weights() * goal.cost(block, atoms)
            assert (error <= at_reference * (1 + 1e-9)).all()
            factor = max(factor, at_reference.sum() / error.sum())
            shares.append(error / error.sum())
        bound = theoretical_size(goal, 0.1, n_features=4, reference_factor=factor)
        scores = bound.total_sensitivity * goal.sensitivity(block, goal.survey(block, constant)).at()
        assert (np.max(shares, axis=0) <= scores).all() and scores.sum() == pytest.approx(bound.total_sensitivity)
