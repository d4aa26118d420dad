from __future__ import annotations

import numpy as np
import pytest

from tithe import choose_k


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.uniform(-50, 50, size=(11, 3))
    return np.concatenate([c + rng.normal(scale=0.05, size=(1500, 3)) for c in centers])


@pytest.mark.parametrize("objective", ["kmeans", "kmedian"])
def test_budget_is_met_by_the_smallest_k(blobs: np.ndarray, objective: str) -> None:
    noise = len(blobs) * (0.0075 if objective == "kmeans" else 0.08)
    found = choose_k(
        blobs, rule="budget", budget=3 * noise, max_clusters=40, objective=objective, coreset_size=2000, random_state=0
    )
    assert found.k == 11 and found.met
    assert found.curve[11] <= 3 * noise < found.curve[10]


def test_budget_out_of_reach_is_said(blobs: np.ndarray) -> None:
    found = choose_k(blobs, rule="budget", budget=1e-9, max_clusters=6, coreset_size=500, random_state=0)
    assert (found.k, found.met) == (6, False)


def test_relative_rule_stops_when_doubling_brings_little() -> None:
    """Eight corners of a box of sides 200, 60 and 18: each doubling up to eight saves most of the cost."""
    corners = np.array([[x, y, z] for x in (-100, 100) for y in (-30, 30) for z in (-9, 9)], float)
    X = np.concatenate([c + np.random.default_rng(0).normal(size=(1000, 3)) for c in corners])
    found = choose_k(X, rule="relative", eta=0.5, max_clusters=64, coreset_size=2000, random_state=0)
    assert found.k == 8 and found.met
    assert list(found.curve) == [1, 2, 4, 8, 16]


def test_a_last_step_that_is_no_doubling_decides_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 2))
    for most in (32, 33, 63):
        found = choose_k(X, rule="relative", max_clusters=most, coreset_size=1000, random_state=0)
        assert (found.k, found.met) == (32, False)


def test_penalty_finds_the_valley(blobs: np.ndarray) -> None:
    found = choose_k(blobs, rule="penalty", penalty=1000.0, max_clusters=40, coreset_size=2000, random_state=0)
    assert found.k == 11


def test_curve_never_rises_and_solutions_belong_to_it(blobs: np.ndarray) -> None:
    found = choose_k(blobs, rule="penalty", penalty=50.0, max_clusters=30, coreset_size=1000, random_state=1)
    costs = list(found.curve.values())
    assert list(found.curve) == sorted(found.curve)
    assert np.all(np.diff(costs) <= 1e-9 * costs[0])
    assert all(len(found.centers[k]) == k for k in found.curve)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "magic"}, "rule must be"),
        ({"rule": "budget"}, "needs a budget"),
        ({"rule": "penalty"}, "needs a penalty"),
        ({"eta": 2.0}, "eta"),
        ({"max_clusters": 0}, "max_clusters"),
        ({"objective": "generic"}, "objective must be"),
    ],
)
def test_bad_arguments(blobs: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_k(blobs, **options)


def test_all_points_equal() -> None:
    found = choose_k(np.ones((100, 2)), coreset_size=50, random_state=0)
    assert found.k == 1 and found.curve[1] == 0.0
