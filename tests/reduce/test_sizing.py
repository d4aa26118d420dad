"""How many rows to keep."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import Block, build_coreset, distortion, propose_size
from tithe.objectives import KMeansObjective
from tithe.reduce.distortion import random_queries

KMEANS = KMeansObjective(n_clusters=4)


def test_propose_size_on_few_rows_and_other_objectives(rng: np.random.Generator) -> None:
    X = rng.normal(size=(6000, 3)) + rng.choice([0.0, 9.0], (6000, 1))
    assert propose_size(X[:50], objective=KMEANS, eps=0.01) == (50, 0.0)
    size, measured = propose_size(X[:300], objective=KMEANS, eps=0.01)
    assert 4 <= size <= 300 and measured > 0
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
