"""Fixed inverse temperatures, and the bounds on the regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from paco_rows import blobs
from sklearn.cluster import KMeans

from tithe.online import PACO
from tithe.online.paco import regret_bounds

GRID = np.linspace(-2.0, 2.0, 41)  # of centres in one dimension


def theory(p: int = 3, **given: object) -> PACO:
    given = {"preset": "theory", "radius": 20.0, "n_samples": 5, "random_state": 0, **given}
    return PACO(p, **given)  # type: ignore[arg-type]


# -- fixed lambda ---------------------------------------------------------------------------------


def test_lambda_is_fixed_in_the_temperature_and_in_the_curb() -> None:
    X = blobs(30, 3)
    by_horizon = 4 / (2 * 20.0**2 * math.sqrt(30))
    cases = ({"horizon": 30}, {"horizon": 30, "temperature": 2.0}, {"inverse_temperature": 0.7})
    for given, rate in zip(cases, (by_horizon, by_horizon / 2, 0.7), strict=True):
        chain = theory(**given).partial_fit(X)._chain
        assert chain._temperature()[0] == pytest.approx(rate, rel=1e-12)
        np.testing.assert_allclose(chain.past.columns[2, :30], rate, rtol=1e-12)
    falling = theory().partial_fit(X)._chain
    np.testing.assert_allclose(
        falling.past.columns[2, :30], 4 / (2 * 20.0**2 * np.sqrt(np.maximum(1, np.arange(30)))), rtol=1e-12
    )


def algorithm_1(rows: np.ndarray, rate: float, eta: float, rng: np.random.Generator) -> tuple[float, float]:
    """Loss and sum of k of the paper's Algorithm 1 with centres on a grid: d = 1, p = 2, exact draws."""
    one, two = np.meshgrid(GRID, GRID)
    S = np.zeros(len(GRID) + one.size)
    prior = np.concatenate([np.full(len(GRID), 1.0 / len(GRID)), np.full(one.size, math.exp(-eta) / one.size)])
    loss = ks = 0.0
    for x in rows:
        law = prior * np.exp(-rate * (S - S.min()))
        at = rng.choice(len(law), p=law / law.sum())
        losses = np.concatenate([(GRID - x) ** 2, np.minimum((one - x) ** 2, (two - x) ** 2).ravel()])
        S += losses + rate / 2 * (losses - losses[at]) ** 2
        loss, ks = loss + losses[at], ks + (1 if at < len(GRID) else 2)
    return loss, ks


def test_a_fixed_lambda_is_algorithm_1() -> None:
    rows = np.array([0.9, -0.8, 0.7, -0.9, 0.8, 1.0, -0.7, 0.9, -1.0, 0.8])
    rng, rate = np.random.default_rng(0), 0.8
    exact = np.array([algorithm_1(rows, rate, 0.5, rng) for _ in range(200)])
    ours = []
    for seed in range(50):
        model = PACO(2, preset="theory", radius=1.0, inverse_temperature=rate, eta=0.5, n_samples=40, random_state=seed)
        history = model.partial_fit(rows[:, None]).history_
        ours.append((history["loss"].sum(), history["k"].sum()))
    error = 3.5 * np.hypot(exact.std(axis=0) / math.sqrt(200), np.std(ours, axis=0) / math.sqrt(50))
    assert (np.abs(exact.mean(axis=0) - np.mean(ours, axis=0)) < error).all()
    hot = np.array([algorithm_1(rows, 0.0, 0.5, rng) for _ in range(200)]).mean(axis=0)
    assert np.mean(ours, axis=0)[0] < 0.7 * hot[0]  # where rows do not count, the loss is another one


# -- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "T", "R", "p", "eta"), [(2, 100, 3.0, 5, 1.0), (7, 2500, 0.4, 20, 0.0)])
def test_bounds_are_those_of_the_corollaries(d: int, T: int, R: float, p: int, eta: float) -> None:
    k, C, root = np.arange(1, p + 1), (2 * R + R) ** 2, math.sqrt(T)
    rate = 3.0 * (d + 2) / (2 * T * R**2)
    first = d * k / (2 * rate) * np.log(8 * R**2 * rate * T / (d + 2)) + eta / rate * k
    first = first + np.log(p) / rate + d / (2 * rate) + rate * T * C**2 / 2
    np.testing.assert_allclose(regret_bounds(p, d, T, R, rate, eta, falling=False), first, rtol=1e-12)
    both = k * d * R**2 / (d + 2) * root * np.log(4 * root) + k * 2 * R**2 * eta / (d + 2) * root
    both = both + (2 * R**2 * np.log(p) / (d + 2) + d * R**2 / (d + 2)) * root
    rate = (d + 2) / (2 * root * R**2)
    second, third = both + (d + 2) * C**2 / (4 * R**2) * root, both + (d + 2) * C**2 / (2 * R**2) * root
    np.testing.assert_allclose(regret_bounds(p, d, T, R, rate, eta, falling=False), second, rtol=1e-12)
    np.testing.assert_allclose(regret_bounds(p, d, T, R, rate, eta, falling=True), third, rtol=1e-12)


def test_a_model_knows_its_bound(rng) -> None:
    X = blobs(40, 3)
    rate = 4 / (2 * 20.0**2 * math.sqrt(40))
    at_40 = {"max_clusters": 3, "d": 2, "n_rows": 40, "radius": 20.0, "rate": rate, "eta": 1.0}
    np.testing.assert_allclose(theory(horizon=40).partial_fit(X).regret_bound(), regret_bounds(**at_40, falling=False))
    np.testing.assert_allclose(theory().partial_fit(X).regret_bound(), regret_bounds(**at_40, falling=True))
    fixed = theory(inverse_temperature=0.3, eta=0.2).partial_fit(X).regret_bound()
    np.testing.assert_allclose(fixed, regret_bounds(**{**at_40, "rate": 0.3, "eta": 0.2}, falling=False))
    assert np.isinf(theory(temperature=np.inf).partial_fit(X).regret_bound()).all()
    model = theory().partial_fit(X).set_params(horizon=40)
    with pytest.raises(ValueError, match="parameters have changed"):
        model.regret_bound()
    for given in ({"preset": "practical"}, {"half_life": 30.0}, {"radius": "auto"}, {"radius": 0.1}):
        with pytest.raises(ValueError, match="is bounded for preset='theory'"):
            theory(**given).partial_fit(X).regret_bound()
    with pytest.raises(AttributeError, match="before any row"):
        theory().regret_bound()


@pytest.mark.parametrize("rate", [0.002, 0.05])  # tau = R, and tau < R
def test_bounds_follow_from_the_theorem(rate: float, rng) -> None:
    """The right side of Theorem 1 for centres that are uniform round the best ones, with the largest variance."""
    d, k, p, eta, T, R = 3, 2, 5, 0.7, 300, 1.0
    X = rng.normal(size=(T, d))
    X *= rng.random((T, 1)) ** (1 / d) / np.linalg.norm(X, axis=1, keepdims=True)
    best = KMeans(k, n_init=5, random_state=0).fit(X)
    tau = min(R, math.sqrt((d + 2) / (2 * rate * T)))
    noise = rng.normal(size=(400, k, d))
    noise *= tau * rng.random((400, k, 1)) ** (1 / d) / np.linalg.norm(noise, axis=2, keepdims=True)
    centers = best.cluster_centers_ + noise
    assert np.linalg.norm(centers, axis=2).max() <= 2 * R  # the prior has them all
    loss = np.mean([((X[:, None] - c) ** 2).sum(axis=2).min(axis=1).sum() for c in centers])
    weights = np.exp(-eta * np.arange(1, p + 1))
    divergence = k * d * math.log(2 * R / tau) - math.log(weights[k - 1] / weights.sum())
    right = loss - best.inertia_ + divergence / rate + rate / 2 * T * (3 * R) ** 4
    bound = regret_bounds(p, d, T, R, rate, eta, falling=False)[k - 1]
    assert 0.7 * bound < right <= bound


@pytest.mark.parametrize("given", [{"horizon": 400}, {"inverse_temperature": 0.02}, {}])
def test_the_bound_holds_where_rows_surprise(given: dict) -> None:
    """Rows on alternating sides of the origin. A bound of a fortieth would not hold."""
    X = np.resize([[0.999], [-0.999]], (400, 1))
    runs = [
        PACO(1, preset="theory", radius=1.0, eta=0.0, n_samples=20, random_state=s, **given).partial_fit(X)
        for s in range(3)
    ]
    regret = np.mean([run.history_["cumulative_loss"][-1] for run in runs]) - ((X - X.mean()) ** 2).sum()
    bound = runs[0].regret_bound()[0]
    assert 0.02 * bound < regret < bound


# -- the first prediction -------------------------------------------------------------------------


def test_without_a_radius_the_origin_predicts_the_first_row() -> None:
    for seed in range(3):
        model = PACO(preset="theory", n_samples=5, random_state=seed)
        history = model.partial_fit([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]).history_
        assert history["k"][:2].tolist() == [1, 1] and history["loss"][:2].tolist() == [0.0, 25.0]
        assert model.radius_ == 5.0 and history["restarts"] == []
