from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from tithe import CoresetEstimator
from tithe.objectives import KMeansObjective


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
        plain = CoresetEstimator(inner, objective="generic", coreset_size=400, random_state=2).fit(X, y)
        polished = CoresetEstimator(inner, coreset_size=400, polish=2, random_state=2).fit(X, y)
        assert polished.score(X, y) >= plain.score(X, y)


def test_certificate_on_training_data_uses_the_rows_set_aside(classes) -> None:
    X, y = classes
    model = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(X, y)
    assert len(model.validation_indices_) == 2000
    assert not set(model.validation_indices_) & set(model.sample_indices_)
    certificate = model.certify(X, y)
    assert certificate.kind == "estimate" and certificate.confidence == 0.95
    aside = model.validation_indices_
    assert certificate.n_rows == 2000
    assert certificate.value == pytest.approx(model.score(X[aside], y[aside]))
    assert certificate.interval[0] < certificate.value < certificate.interval[1]
    assert model.coreset_.weights().sum() == pytest.approx(40_000, rel=1e-3)


def test_new_rows_are_evidence_as_they_are(classes) -> None:
    X, y = classes
    model = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(X[:20_000], y[:20_000])
    assert model.certify(X[20_000:], y[20_000:]).n_rows == 20_000  # as many rows as were learned from, but others
    with pytest.raises(ValueError, match="too few"):
        model.certify(X[:10], y[:10])
    with pytest.raises(ValueError, match=r"needs score\(\)"):
        CoresetEstimator(StandardScaler(), coreset_size=500).fit(X).certify(X)


@pytest.mark.slow
def test_interval_covers_on_training_data_with_a_rare_class() -> None:
    """The rows a draw leaves over are the easy ones; the rows set aside are not."""
    rng = np.random.default_rng(0)

    def make(n: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, 3))
        return X, rng.random(n) < 1 / (1 + np.exp(-(2.0 * X[:, 0] - 4.0)))

    fresh = make(200_000)
    covered = 0
    for seed in range(20):
        X, y = make(20_000)
        model = CoresetEstimator(LogisticRegression(), coreset_size=5000, random_state=seed).fit(X, y)
        low, high = model.certify(X, y).interval
        covered += low <= model.score(*fresh) <= high
    assert covered >= 16


def test_polish_keeps_coreset_and_estimator_together(classes) -> None:
    X, y = classes
    model = CoresetEstimator(LogisticRegression(), coreset_size=400, polish=2, random_state=2).fit(X, y)
    again = LogisticRegression().fit(
        model.coreset_.X, model.classes_[model.coreset_.y], sample_weight=model.coreset_.weights()
    )
    np.testing.assert_allclose(again.coef_, model.estimator_.coef_, rtol=1e-6)


def test_a_class_the_coreset_missed_is_said_and_columns_agree() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 2)), rng.integers(0, 150, 20_000)
    with pytest.warns(UserWarning, match="classes have no row"):
        model = CoresetEstimator(GaussianNB(), coreset_size=100, random_state=0).fit(X, y)
    assert model.predict_proba(X[:3]).shape == (3, len(model.classes_))


def test_bad_parameters_are_refused_on_small_data_too(classes) -> None:
    X, y = classes[0][:50], classes[1][:50]
    for options, message in (
        ({"construction": "bogus"}, "no construction"),
        ({"engine": "bogus"}, "no engine"),
        ({"calibrate": "maybe"}, "calibrate"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"polish": 2, "calibrate": False}, "calibrate=True"),
        ({"polish": 2, "objective": "kmeans"}, "objective='generic'"),
    ):
        with pytest.raises(ValueError, match=message):
            CoresetEstimator(LogisticRegression(), **options).fit(X, y)


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
    with pytest.raises(ValueError, match="requires y"):
        CoresetEstimator(KMeans(2), polish=1, coreset_size=100).fit(numbers[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_to_all_rows_is_scored_by_a_second_one(weighted) -> None:
    """No row is left to score on where all are learned from: the model is that of all rows, the score another's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=2000)
    weight = rng.exponential(size=2000) if weighted else None
    model = CoresetEstimator(Ridge(), random_state=0).fit(X, y, weight)
    np.testing.assert_array_equal(model.estimator_.coef_, Ridge().fit(X, y, weight).coef_)
    certificate = model.certificate_
    assert certificate.n_rows == 100 and certificate.interval[0] < 0.84 < certificate.interval[1]
    assert "fit to the other rows" in certificate.sentence and model.held_out_scores_
    assert CoresetEstimator(Ridge(), validation_fraction=0.0).fit(X, y).certificate_ is None
    assert CoresetEstimator(Ridge()).fit(X[:300], y[:300]).certificate_ is None  # 15 rows say nothing
