"""Clusters that get no rows any more."""

from __future__ import annotations

import numpy as np
import pytest
from paco_rows import blobs

from tithe.core.data import Block
from tithe.online import PACO
from tithe.online.chain import stale_rows

HALF_LIFE = 100.0
CENTERS = np.array([[0.0], [10.0]])


def past(labels: np.ndarray, numbers: float = 1.0) -> Block:
    """Rows of the two clusters, which stand for ``numbers`` rows each, with the weights of their age."""
    ids = np.arange(len(labels)) * int(numbers)
    age = int(numbers) * len(labels) - 1 - ids
    return Block(X=CENTERS[labels], sample_weight=numbers * 2.0 ** (-age / HALF_LIFE), indices=ids)


def ended(block: Block, n_rows: int) -> list[bool]:
    stale = stale_rows(block, CENTERS, n_rows, HALF_LIFE)
    at = (block.X[:, 0] > 5.0).astype(int)
    return [bool(stale[at == j].all()) if (at == j).any() else False for j in (0, 1)]


@pytest.mark.parametrize(("gap", "over"), [(0, False), (149, False), (150, True), (5000, True)])
def test_a_cluster_without_a_row_for_one_and_a_half_half_lives_has_ended(gap: int, over: bool) -> None:
    labels = np.concatenate([np.tile([0, 1], 200), np.zeros(gap, int)])  # the last row before the gap is of cluster 1
    assert ended(past(labels), len(labels)) == [False, over]


def test_a_small_cluster_may_just_be_late() -> None:
    """Of every 20 rows one is in the small cluster: 12 of them are expected after 240 rows, not after 150."""
    labels = np.tile([1] + [0] * 19, 60)
    labels = labels[: np.flatnonzero(labels)[-1] + 1]
    for gap, over in ((160, False), (200, False), (300, True)):
        rows = np.concatenate([labels, np.zeros(gap, int)])
        assert ended(past(rows), len(rows)) == [False, over]


def test_a_row_of_a_summary_stands_for_several() -> None:
    """With a row kept of every 20, 12 rows of a cluster with half of them are 480 rows of the stream."""
    for gap, over in ((16, False), (26, True)):
        labels = np.concatenate([np.tile([0, 1], 40), np.zeros(gap, int)])
        assert ended(past(labels, 20.0), 20 * len(labels)) == [False, over]


@pytest.mark.parametrize("kernel", ["birth_death", "symmetric"])
def test_rows_of_a_cluster_that_has_ended_have_no_weight_until_it_returns(kernel: str) -> None:
    X = np.concatenate([blobs(300, 3), blobs(160, 1), blobs(130, 3)])
    model = PACO(5, kernel=kernel, half_life=60.0, summary_size=None, random_state=0, n_samples=10)
    model.partial_fit(X[:460])
    weights, by_age = model.summary_.weights(), 0.5 ** (np.arange(459, -1, -1) / 60.0)
    near = np.linalg.norm(X[:460] - X[300:460].mean(axis=0), axis=1) < 5.0
    np.testing.assert_allclose(weights[near], by_age[near], rtol=1e-10)
    assert (weights[~near] == 0.0).all() and model.n_clusters_ == 1
    model.partial_fit(X[460:])
    np.testing.assert_allclose(model.summary_.weights(), 0.5 ** (np.arange(589, -1, -1) / 60.0), rtol=1e-10)
    assert model.n_clusters_ == 3


def test_weights_of_a_summary_are_known_by_age() -> None:
    model = PACO(5, half_life=400.0, summary_size=60, random_state=0, n_samples=5).partial_fit(blobs(200, 3))
    chain = model._chain
    np.testing.assert_allclose(
        chain.past.weights_by_age(chain.state, chain.decay), model.summary_.weights(), rtol=1e-10
    )


def test_other_presets_forget_by_age_alone() -> None:
    X = np.concatenate([blobs(150, 3), blobs(100, 1)])
    for given in ({"preset": "theory", "half_life": 30.0}, {"half_life": None}):
        assert (PACO(4, n_samples=5, random_state=0, **given).partial_fit(X).summary_.weights() > 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 5, 10])
@pytest.mark.parametrize("regimes", [(4, 2, 6), (2, 6, 3)])
def test_k_is_right_700_rows_after_a_change(d: int, regimes: tuple[int, ...]) -> None:
    waits = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        places: list[np.ndarray] = []
        while len(places) < 6:
            place = rng.uniform(-25.0, 25.0, size=d)
            if all(np.linalg.norm(place - other) >= 10.0 for other in places):
                places.append(place)
        X = [np.array(places)[rng.integers(k, size=1500)] + rng.normal(size=(1500, d)) for k in regimes]
        ks = PACO(half_life=300.0, random_state=seed).partial_fit(np.concatenate(X)).history_["k"].reshape(3, -1)
        waits.append([(part[700:1200] == k).mean() for part, k in zip(ks, regimes, strict=True)])
    assert (np.median(waits, axis=0) > 0.9).all()
