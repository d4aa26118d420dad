from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from tithe import CoresetEstimator, KMeansObjective


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 5))
    chance = 1 / (1 + np.exp(-(X @ [1.5, -1.0, 0.5, 0.0, 0.2] - 3.5)))
    return X, np.where(rng.random(40_000) < chance, "rare", "usual")


@pytest.fixture(scope="module")
def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40_000, 4))
    return X, X @ [1.0, 2.0, -1.0, 0.0] + 3.0 + rng.normal(size=40_000)


def test_classifier_with_string_labels(classes) -> None:
    X, y = classes
    model = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(X, y)
    assert model.classes_.tolist() == ["rare", "usual"]
    assert set(model.predict(X[:50])) <= {"rare", "usual"}
    assert model.predict_proba(X[:5]).shape == (5, 2)
    assert model.score(X, y) > 0.9
    np.testing.assert_array_equal(model.coreset_.X, X[model.sample_indices_])


def test_regression_is_nearer_the_full_fit_than_uniform(numbers) -> None:
    X, y = numbers
    full = LinearRegression().fit(X, y).coef_

    def error(**options) -> float:
        fits = [
            CoresetEstimator(LinearRegression(), coreset_size=500, random_state=s, **options).fit(X, y).estimator_.coef_
            for s in range(9)
        ]
        return float(np.median([np.linalg.norm(f - full) for f in fits]))

    assert error() < error(construction="uniform", calibrate=False) / 3


def test_polish_raises_the_score_or_changes_nothing(classes, numbers) -> None:
    for (X, y), inner in ((classes, LogisticRegression()), (numbers, LinearRegression())):
        plain = CoresetEstimator(inner, coreset_size=400, random_state=2).fit(X, y)
        polished = CoresetEstimator(inner, coreset_size=400, polish=2, random_state=2).fit(X, y)
        assert polished.score(X, y) >= plain.score(X, y)


def test_certificate_is_an_interval_on_rows_not_seen(classes) -> None:
    X, y = classes
    model = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(X, y)
    certificate = model.certify(X, y)
    assert certificate.kind == "estimate" and certificate.confidence == 0.95
    assert certificate.n_rows == 40_000 - len(model.coreset_)
    fresh = model.certify(X[:20_000], y[:20_000])
    assert fresh.n_rows == 20_000
    with pytest.raises(ValueError, match="too few"):
        model.certify(X[:10], y[:10])


def test_interval_covers(numbers) -> None:
    """The 95 % interval of the score holds the score on fresh rows most of the time."""
    X, y = numbers
    model = CoresetEstimator(LinearRegression(), coreset_size=500, random_state=0).fit(X[:20_000], y[:20_000])
    truth = model.score(X, y)
    inside = 0
    for part in np.array_split(np.arange(20_000, 40_000), 20):
        sentence = model.certify(X[part], y[part]).sentence
        value, half = (float(sentence.split()[i]) for i in (1, 3))
        inside += abs(value - truth) <= half
    assert inside >= 15


def test_unsupervised_estimator_and_an_objective_of_choice(numbers) -> None:
    X, _ = numbers
    model = CoresetEstimator(
        KMeans(3, n_init=2, random_state=0), objective=KMeansObjective(n_clusters=3), coreset_size=500, random_state=0
    ).fit(X)
    assert model.predict(X[:5]).shape == (5,)
    assert model.transform(X[:5]).shape == (5, 3)


def test_only_methods_the_estimator_has(numbers) -> None:
    X, y = numbers
    model = CoresetEstimator(RandomForestRegressor(5, random_state=0), coreset_size=300, random_state=0).fit(X, y)
    assert model.predict(X[:3]).shape == (3,)
    assert not hasattr(model, "predict_proba")


def test_estimator_without_weights_is_refused(classes) -> None:
    with pytest.raises(ValueError, match="takes no sample_weight"):
        CoresetEstimator(KNeighborsClassifier()).fit(*classes)


def test_polish_without_a_target_is_refused(numbers) -> None:
    with pytest.raises(ValueError, match="polish needs"):
        CoresetEstimator(KMeans(2), polish=1, coreset_size=100).fit(numbers[0])
