"""The posterior of logistic regression: numerical integration, weights, coresets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from tithe import CoresetLogisticRegression


def test_samples_have_the_density_that_numerical_integration_gives() -> None:
    """Few rows, so that the posterior is skewed, and the Laplace approximation wrong."""
    X = np.array([[-1.0], [0.2], [0.7], [1.5], [2.0], [2.2]])
    y = np.array([0, 1, 0, 1, 1, 1])
    weight = np.array([1.0, 1.0, 2.0, 1.0, 1.0, 3.0])
    model = CoresetLogisticRegression(C=4.0).fit(X, y, weight)
    found = model.posterior(X, y, weight, n_samples=1500)
    w, b = np.meshgrid(np.linspace(-8, 12, 401), np.linspace(-15, 15, 401), indexing="ij")
    score = w[..., None] * X[:, 0] + b[..., None]
    log = (weight * (y * score - np.logaddexp(0.0, score))).sum(axis=-1) - w**2 / 8.0
    density = np.exp(log - log.max())
    density /= density.sum()
    for values, at in ((w, 0), (b, 1)):
        mean = float((density * values).sum())
        deviation = float(np.sqrt((density * (values - mean) ** 2).sum()))
        assert found.mean[0, at] == pytest.approx(mean, abs=0.12 * deviation)
        assert found.deviation[0, at] == pytest.approx(deviation, rel=0.1)
    low, high = found.interval()[0, 0]
    below = np.cumsum(density.sum(axis=1))
    assert np.interp(low, w[:, 0], below) == pytest.approx(0.025, abs=0.015)
    assert np.interp(high, w[:, 0], below) == pytest.approx(0.975, abs=0.015)
    assert found.accepted > 0.7


def test_with_many_rows_it_is_the_laplace_approximation_and_weights_are_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)) * [1.0, 30.0, 0.1] + [0.0, 1000.0, 5.0]
    scores = (X - X.mean(axis=0)) @ np.array([[0.5, 0.02, 2.0], [0.0, -0.02, 0.0], [-0.5, 0.0, 1.0]]).T
    weight = rng.integers(1, 3, 4000).astype(float)
    often = np.repeat(np.arange(4000), weight.astype(int))
    for y in (rng.random(4000) < expit(scores[:, 0]), (scores + rng.gumbel(size=(4000, 3))).argmax(axis=1)):
        model = CoresetLogisticRegression(C=10.0, tol=1e-10).fit(X, y, weight)
        found = model.posterior(X, y, weight, n_samples=250)
        deviation = np.sqrt(np.diag(found.laplace)).reshape(found.mode.shape)
        np.testing.assert_allclose(found.deviation, deviation, rtol=0.25)
        np.testing.assert_allclose(found.mean, found.mode, atol=0.3 * deviation.max())
        twice = model.posterior(X[often], y[often], n_samples=2)
        scale = np.outer(deviation, deviation)
        np.testing.assert_allclose(twice.laplace / scale, found.laplace / scale, atol=1e-6)
        if len(found.mode) == 1:  # the covariance of the Fisher information, with the prior
            np.testing.assert_allclose(model.infer(X, y, weight).standard_error, deviation, rtol=0.05)
        same = model.posterior(X, y, weight, n_samples=2)
        np.testing.assert_array_equal(same.samples, found.samples[:2])


def test_the_posterior_of_a_coreset_is_near_that_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.logistic(size=20_000) > 0
    model = CoresetLogisticRegression(coreset_size=2000, polish=0, random_state=0).fit(X, y)
    small, full = model.posterior(n_samples=200), model.posterior(X, y, n_samples=200)
    np.testing.assert_allclose(small.deviation, full.deviation, rtol=0.25)
    assert (np.abs(small.mode - full.mode) < 2.0 * full.deviation).all()
    with pytest.raises(ValueError, match="n_samples"):
        model.posterior(n_samples=1)
