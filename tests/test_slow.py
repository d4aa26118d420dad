"""Promises that take a minute to check: ``make slow``."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tithe import Block, KMeansObjective, build_coreset
from tithe.build import Reducer
from tithe.constructions.sensitivity import Sensitivity
from tithe.core.tree import fold
from tithe.testing.data import small_problem

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
            reducer = Reducer(
                objective=objective,
                construction=Sensitivity(),
                size=size,
                calibrate=False,
                seed=seed,
                pilot=objective.pilot(parts[0], rng=np.random.default_rng(seed)),
            )
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
    from tithe.metrics import random_queries

    objective = KMeansObjective(n_clusters=8)
    queries = {"random": random_queries(skewed, 8, n_bases=6, seed=50)}

    def typical(**options) -> np.ndarray:
        found = [
            distortion(
                skewed,
                build_coreset(skewed.X, objective=objective, coreset_size=1000, random_state=seed, **options),
                objective,
                queries=queries,
            ).summary()["random"]
            for seed in range(20)
        ]
        return np.median(found, axis=0)

    calibrated, plain = typical(), typical(calibrate=False)
    assert calibrated[0] < plain[0] / 4
    assert calibrated[1] < plain[1] / 2
