"""Promises that take a minute to check: ``make slow``."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from leaf_source import fold

from tithe import Block, CoresetLogisticRegression, build_coreset
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.reduce.draws import Sensitivity
from tithe.reduce.plan import Plan, Reducer
from tithe.testing.checks import small_problem

pytestmark = pytest.mark.slow
KMEANS = KMeansObjective(n_clusters=20)


@pytest.mark.parametrize("construction", ["uniform", "lightweight", "sensitivity", "rings"])
def test_memory_beyond_the_input_is_three_vectors(construction: str) -> None:
    X = np.random.default_rng(0).standard_normal((5_000_000, 20), dtype=np.float32)
    tracemalloc.start()
    build_coreset(X, objective=KMEANS, construction=construction, coreset_size=5000, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 8 * len(X)


def test_error_through_five_levels_falls_like_the_root_of_the_size() -> None:
    objective = KMeansObjective(n_clusters=3)
    block = small_problem(32_000, weighted=False, outlier=False)
    query = block.X[:3]
    cost = objective.cost(block, query)
    parts = [block.take(p) for p in np.array_split(np.arange(len(block)), 32)]
    sizes, rms = (60, 240, 960), []
    for size in sizes:
        errors = []
        for seed in range(120):
            plan = Plan.of(objective, Sensitivity(), size=size, calibrate=False, seed=seed)
            pilot = objective.pilot(parts[0], rng=np.random.default_rng(seed))
            reducer = Reducer(plan=plan, objective=objective, construction=plan.construction, totals=False, pilot=pilot)
            root = fold((reducer.leaf(part, (0, i)) for i, part in enumerate(parts)), reducer.merge)
            assert root.key[0] == 5
            errors.append(cost[root.row_ids()] @ root.weights() / cost.sum() - 1.0)
        assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))
        rms.append(np.sqrt(np.mean(np.square(errors))))
    slope = np.polyfit(np.log(sizes), np.log(rms), 1)[0]
    assert -0.6 < slope < -0.4, (slope, rms)


def test_calibration_wins_over_twenty_seeds(skewed: Block) -> None:
    """Median and largest distortion over random queries, median over 20 seeds: calibrated well below plain."""
    from tithe import distortion
    from tithe.reduce.distortion import random_queries

    objective = KMeansObjective(n_clusters=8)
    queries = {"random": random_queries(skewed, objective, n_bases=6, seed=50)}

    def typical(**options) -> np.ndarray:
        results = [
            distortion(
                skewed,
                build_coreset(skewed.X, objective=objective, coreset_size=1000, random_state=seed, **options),
                objective,
                queries=queries,
            ).summary()["random"]
            for seed in range(20)
        ]
        return np.median(results, axis=0)

    calibrated, plain = typical(), typical(calibrate=False)
    assert calibrated[0] < plain[0] / 4
    assert calibrated[1] < plain[1] / 2


def _rare_columns(n: int = 200_000) -> Block:
    """Dense columns, one-hot ones down to one row in ten thousand, and labels that depend on all of them."""
    rng = np.random.default_rng(0)
    level = np.minimum((rng.pareto(0.8, n) * 3).astype(int), 19)
    X = np.column_stack([rng.normal(size=(n, 6)), np.eye(20)[level]])
    X = np.ascontiguousarray((X - X.mean(axis=0)) / X.std(axis=0))
    margins = X[:, :6] @ rng.normal(size=6) + rng.normal(scale=2.0, size=20)[level]
    return Block(X=X, y=(margins + rng.logistic(size=n) > 0).astype(np.int32))


def test_logistic_coresets_beat_uniform_draws_over_twenty_seeds() -> None:
    block, objective = _rare_columns(), LogisticObjective(classes=(0, 1))
    rng = np.random.default_rng(0)
    best = objective.evaluate(block, objective.solve(block, rng=rng)).value

    def typical(**options) -> float:
        results = []
        for seed in range(20):
            coreset = build_coreset(
                block.X, block.y, objective=objective, coreset_size=2000, random_state=seed, **options
            )
            results.append(objective.evaluate(block, objective.solve(coreset, rng=rng)).value / best - 1.0)
        return float(np.median(results))

    uniform = typical(construction="uniform", calibrate=False)
    assert typical() < uniform / 20
    assert typical(calibrate=False) < uniform


def test_two_million_rows_and_more_are_scored_in_part_and_lose_nothing() -> None:
    """The draw from one row of each run is unbiased: the mean of many estimates of the loss is the loss."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_100_000, 4), dtype=np.float32)
    y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(np.int32)
    y[rng.choice(len(y), 500, replace=False)] = 2
    objective = LogisticObjective(classes=(0, 1, 2))
    query = np.zeros((3, 5))
    query[1, 0] = 1.0
    block = Block(X=X, y=y)
    exact = objective.cost(block, query).sum()
    errors, rare = [], []
    for seed in range(40):
        drawn = build_coreset(X, y, objective=objective, coreset_size=2000, calibrate=False, random_state=seed)
        errors.append(drawn.weights() @ objective.cost(drawn, query) / exact - 1.0)
        rare.append(drawn.weights()[drawn.y == 2].sum() / 500 - 1.0)
    for results in (errors, rare):
        assert abs(np.mean(results)) < 4 * np.std(results) / np.sqrt(len(results)) + 1e-12
    model = CoresetLogisticRegression(tol=1e-6, random_state=0).fit(X, y)
    assert model.certificate_.relative_excess <= 1e-6
