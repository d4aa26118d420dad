from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.cluster import KMeans

from tithe import Block
from tithe.objectives import (
    DictionaryObjective,
    GenericObjective,
    KMeansObjective,
    KMedianObjective,
    LogisticObjective,
)
from tithe.testing import objective_checks
from tithe.testing.checks import small_problem

OURS = [
    KMeansObjective(n_clusters=3),
    KMedianObjective(n_clusters=3),
    GenericObjective(),
    GenericObjective(n_classes=2),
]
CHECKS = [
    pytest.param(check, id=f"{objective.name}-{getattr(objective, 'n_classes', '')}-{name}")
    for objective in OURS
    for name, check in objective_checks(objective)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


@pytest.mark.parametrize("kind", [KMeansObjective, KMedianObjective])
def test_sensitivity_is_an_upper_bound(kind) -> None:
    """sup over many queries of u f / cost never exceeds the score on tiny weighted problems."""
    rng = np.random.default_rng(0)
    for _ in range(15):
        X, u = rng.normal(size=(12, 2)) * rng.choice([1, 10], (12, 1)), rng.integers(1, 6, 12).astype(float)
        block = Block(X=X, sample_weight=u)
        objective = kind(n_clusters=2, n_init=1)
        pilot = objective.pilot(block, rng=rng)
        score = objective.sensitivity(block, objective.survey(block, pilot)).at()
        queries = [X[rng.choice(12, 2)] for _ in range(40)]
        queries += [rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-1, 4) for _ in range(200)]
        queries += [objective.solve(block.take(rng.choice(12, 6, replace=False)), rng=rng) for _ in range(40)]
        costs = np.array([u * objective.cost(block, q) for q in queries])
        share = (costs / np.maximum(costs.sum(axis=1, keepdims=True), 1e-300)).max(axis=0)
        assert (share <= score * (1 + 1e-9)).all()


@pytest.mark.parametrize(("kind", "total"), [(KMeansObjective, (6, 4)), (KMedianObjective, (2, 1))])
def test_total_sensitivity_is_the_formula(kind, total) -> None:
    """Sum of s = 2 alpha + p for k-median and 6 alpha + 4 p for k-means, exactly."""
    block = small_problem()
    objective = kind(n_clusters=3)
    pilot = objective.pilot(block, rng=np.random.default_rng(0))
    score = objective.sensitivity(block, objective.survey(block, pilot)).at()
    alpha = 8 * (math.log(3) + 2)
    assert score.sum() == pytest.approx(total[0] * alpha + total[1] * len(pilot))


def test_kmeans_equals_scikit_learn_from_the_same_start(skewed: Block) -> None:
    rows = skewed.X[:4000]
    weight = np.random.default_rng(1).random(4000)
    start = rows[:6].copy()
    ours = replace(KMeansObjective(n_clusters=6), tol=0.0, max_iter=300).solve(
        Block(X=rows, sample_weight=weight), rng=np.random.default_rng(0), init=start
    )
    theirs = KMeans(6, init=start, n_init=1, tol=0.0, max_iter=300, algorithm="lloyd").fit(rows, sample_weight=weight)
    np.testing.assert_allclose(ours, theirs.cluster_centers_, rtol=1e-8, atol=1e-8)


def test_one_median_equals_a_general_minimiser(rng: np.random.Generator) -> None:
    X, u = rng.normal(size=(80, 3)) ** 3, rng.random(80)
    objective = replace(KMedianObjective(n_clusters=1), tol=0.0, max_iter=5000, n_init=1)
    median = objective.solve(Block(X=X, sample_weight=u), rng=rng)[0]
    best = minimize(lambda c: u @ np.linalg.norm(X - c, axis=1), X.mean(axis=0), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(median, best.x, atol=1e-4)


def test_a_median_on_a_heavy_row_stays_there_and_leaves_a_light_one(rng: np.random.Generator) -> None:
    """Vardi and Zhang: a row that outweighs the pull of all others is the median; otherwise the step leaves it."""
    X = rng.normal(size=(21, 2))
    heavy = Block(X=X, sample_weight=np.where(np.arange(21) == 4, 100.0, 1.0))
    objective = KMedianObjective(n_clusters=1)
    np.testing.assert_array_equal(objective.step(objective.evaluate_for_step(heavy, X[4:5]), X[4:5])[0], X[4:5])
    evaluation = objective.evaluate_for_step(Block(X=X), X[4:5])
    moved, _ = objective.step(evaluation, X[4:5])
    assert not np.array_equal(moved, X[4:5])
    assert objective.cost(Block(X=X), moved).sum() < evaluation.total


@pytest.mark.parametrize("objective", OURS[:2])
def test_a_step_promises_no_more_than_it_gains(objective, skewed: Block) -> None:
    params = objective.pilot(skewed, rng=np.random.default_rng(0))[:3]
    for _ in range(4):
        evaluation = objective.evaluate_for_step(skewed, params)
        moved, gain = objective.step(evaluation, params)
        saved = evaluation.total - objective.cost(skewed, moved).sum()
        assert saved >= gain - 1e-12 * evaluation.total and gain >= 0.0
        params = moved


@pytest.mark.parametrize("objective", OURS[:2])
def test_looks_at_parts_add_up(objective, skewed: Block) -> None:
    params = objective.pilot(skewed, rng=np.random.default_rng(0))[:3]
    whole = objective.evaluate_for_step(skewed, params)
    parts = objective.evaluate_for_step(skewed.cut(0, 777), params) + objective.evaluate_for_step(
        skewed.cut(777, len(skewed)), params
    )
    assert parts.labels is None and parts.total == pytest.approx(whole.total, rel=1e-13)
    np.testing.assert_allclose(parts.sums, whole.sums, rtol=1e-9, atol=1e-7)
    assert objective.evaluate_for_step(skewed, params, last=True).sums is None


@pytest.mark.parametrize("objective", OURS[:2])
def test_fewer_distinct_points_than_centres(objective) -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 1.0]], 10, axis=0)
    centers = replace(objective, n_clusters=5).solve(Block(X=X), rng=np.random.default_rng(0))
    assert centers.shape == (5, 2)
    assert objective.cost(Block(X=X), centers).sum() == 0.0
    assert sorted(map(tuple, np.unique(centers, axis=0))) == [(0.0, 0.0), (1.0, 1.0)]


@pytest.mark.parametrize("objective", OURS[:2])
def test_csr_equals_dense(objective) -> None:
    block = small_problem()
    rows = Block(X=sparse.csr_matrix(block.X), sample_weight=block.sample_weight)
    a = objective.solve(block, rng=np.random.default_rng(0))
    b = objective.solve(rows, rng=np.random.default_rng(0))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    pilot = objective.pilot(block, rng=np.random.default_rng(1))
    np.testing.assert_allclose(objective.moments(rows, pilot).values, objective.moments(block, pilot).values, atol=1e-6)


def test_an_empty_cluster_is_given_work() -> None:
    X = np.concatenate([np.zeros((50, 2)), np.full((50, 2), 1.0), np.full((50, 2), 9.0)])
    start = np.array([[0.0, 0.0], [0.5, 0.5], [500.0, 500.0]])
    centers = KMeansObjective(n_clusters=3).solve(Block(X=X), rng=np.random.default_rng(0), init=start)
    assert KMeansObjective(n_clusters=3).cost(Block(X=X), centers).sum() == pytest.approx(0.0)


@pytest.mark.parametrize("bad", [0, -1, 2.5, "x", True])
def test_bad_number_of_clusters(bad) -> None:
    with pytest.raises(ValueError, match="n_clusters"):
        KMeansObjective(n_clusters=bad)


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (KMeansObjective, {"tol": True}, "tol must be a number of at least 0, got True"),
        (KMedianObjective, {"n_init": 0}, "n_init must be a whole number of at least 1, got 0"),
        (GenericObjective, {"n_classes": -1}, "n_classes must be a whole number of at least 0, got -1"),
        (DictionaryObjective, {"positive": "no"}, "positive must be True or False, got 'no'"),
        (LogisticObjective, {"C": True}, "C must be a positive number or infinity, got True"),
    ],
)
def test_bad_parameters_are_refused_by_name(objective, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        objective(**options)


def test_generic_refuses_unknown_classes() -> None:
    block = Block(X=np.zeros((3, 1)), y=np.array([0, 1, 2]))
    with pytest.raises(ValueError, match=r"0 \.\. 1"):
        GenericObjective(n_classes=2).survey(block, np.zeros((3, 2)))


def test_the_checks_run_on_an_objective_that_is_not_registered() -> None:
    """Files may not hold such an objective, so no checkpoint is tried."""

    @dataclass(frozen=True, kw_only=True)
    class Renamed(KMeansObjective):
        name = "renamed"

    for name, check in objective_checks(Renamed(n_clusters=2)):
        if "checkpointed" in name:
            check()
