"""How many rows to keep."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tithe import Block, build_coreset, distortion, open_dataset, propose_size
from tithe.certify import sizing
from tithe.certify.sizing import extrapolate_size
from tithe.core.contracts import Objective
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.reduce.distortion import random_queries
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
    size, measured = propose_size(skewed.X, objective=KMEANS, eps=0.01, promise="costs", pilot_size=400, random_state=3)
    assert measured > 0
    queries = {"random": random_queries(skewed, KMEANS, n_bases=2, seed=77)}
    worst = []
    for seed in range(5):
        coreset = build_coreset(skewed.X, objective=KMEANS, coreset_size=size, random_state=seed)
        worst.append(distortion(skewed, coreset, KMEANS, queries=queries).worst)
    assert np.median(worst) < 0.02


@pytest.mark.parametrize("objective", [KMEANS, LogisticObjective(classes=(False, True))])
def test_fits_on_fresh_draws_cost_no_more_than_was_said(skewed: Block, objective: Objective) -> None:
    """The limit holds for other draws."""
    X = skewed.X[:15_000]
    y = X[:, 0] > np.median(X[:, 0])
    block, size_of = as_block(X, y), partial(propose_size, X, y, objective=objective, eps=0.05)
    size, limit = size_of(pilot_size=400, random_state=3)
    assert 0.0 < limit <= 0.05 and size < 5000
    above = 0
    for seed in range(20):
        coreset = build_coreset(block.X, y, objective=objective, coreset_size=size, random_state=seed)
        solution = objective.solve(coreset, rng=np.random.default_rng(seed))
        best = objective.solve(block, rng=np.random.default_rng(seed), init=solution)
        above += fitted_loss(objective, block, solution) > (1.0 + limit) * fitted_loss(objective, block, best)
    assert above <= 2
    with pytest.raises(ValueError, match="promise must be"):
        size_of(promise="all")


def fitted_loss(objective: Objective, block: Block, params: np.ndarray) -> float:
    """What a fit minimises, penalty included."""
    loss = float(objective.cost(block, params) @ block.weights())
    if isinstance(objective, LogisticObjective):
        loss += 0.5 / objective.C * float(np.square(params[:, :-1]).sum())
    return loss


def test_rows_of_a_source_that_are_not_measured_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes end at a fifth of a sample of the rows, and larger ones are computed: the error falls like 1/m."""
    monkeypatch.setattr(sizing, "_SAMPLE_ROWS", 2000)
    X = np.random.default_rng(0).normal(size=(20_000, 6))
    np.save(tmp_path / "rows.npy", X)
    source = open_dataset(tmp_path / "rows.npy")
    (fewer, limit), (more, _) = (propose_size(source, objective=KMEANS, eps=eps) for eps in (0.02, 0.01))
    assert 400 < fewer < more < 20_000 and limit <= 0.02
    assert more == pytest.approx(2 * fewer, rel=0.01)


def test_errors_of_fits_fall_faster() -> None:
    assert extrapolate_size(measured=0.04, pilot_size=1000, eps=0.01, slope=1.0) == 4000
    assert extrapolate_size(measured=0.04, pilot_size=1000, eps=0.01) == 16_000
