"""How many rows to keep."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import Block, build_coreset, distortion, propose_size
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.reduce.distortion import random_queries, total_costs
from tithe.reduce.sizing import extrapolate_size
from tithe.rows.arrays import as_block

KMEANS = KMeansObjective(n_clusters=4)


def test_propose_size_on_few_rows_and_other_objectives(rng: np.random.Generator) -> None:
    X = rng.normal(size=(6000, 3)) + rng.choice([0.0, 9.0], (6000, 1))
    assert propose_size(X[:50], objective=KMEANS, eps=0.01) == (50, 0.0)
    size, measured = propose_size(X[:300], objective=KMEANS, eps=0.01)
    assert 4 <= size <= 300 and (measured > 0) == (size < 300)  # all rows have no error
    with pytest.raises(ValueError, match="'generic'"):
        propose_size(X, objective="generic", eps=0.1)


def test_propose_size_keeps_its_word(skewed: Block) -> None:
    size, measured = propose_size(skewed.X, objective=KMEANS, eps=0.01, pilot_size=400, random_state=3)
    assert measured > 0
    queries = {"random": random_queries(skewed, KMEANS, n_bases=2, seed=77)}
    worst = []
    for seed in range(5):
        coreset = build_coreset(skewed.X, objective=KMEANS, coreset_size=size, random_state=seed)
        worst.append(distortion(skewed, coreset, KMEANS, queries=queries).worst)
    assert np.median(worst) < 0.02


@pytest.mark.slow
def test_a_fit_takes_fewer_rows_than_the_costs_of_all_solutions(skewed: Block) -> None:
    y = skewed.X[:, 0] > np.median(skewed.X[:, 0])
    for objective, labels in ((KMEANS, None), (LogisticObjective(classes=(False, True)), y)):
        options = {"objective": objective, "pilot_size": 400, "random_state": 3}
        (for_costs, _), (for_fit, limit) = (
            propose_size(skewed.X, labels, eps=0.05, promise=promise, **options) for promise in ("costs", "fit")
        )
        assert for_fit < 0.7 * for_costs and limit <= 0.05
        goal = objective.for_rows(as_block(skewed.X, labels))
        rows = as_block(skewed.X, labels)
        excess = []
        for seed in range(5):
            coreset = build_coreset(skewed.X, labels, objective=objective, coreset_size=for_fit, random_state=seed)
            solution = goal.solve(coreset, rng=np.random.default_rng(seed))
            best = goal.solve(rows, rng=np.random.default_rng(seed), init=solution)
            cost, least = total_costs(rows, goal, [solution, best])
            excess.append(cost / least - 1.0)
        assert max(excess) <= 0.05
    with pytest.raises(ValueError, match="promise must be"):
        propose_size(skewed.X, objective=KMEANS, eps=0.1, promise="all")


def test_errors_of_fits_fall_faster() -> None:
    assert extrapolate_size(measured=0.04, pilot_size=1000, eps=0.01, slope=1.0) == 4000
    assert extrapolate_size(measured=0.04, pilot_size=1000, eps=0.01) == 16_000
