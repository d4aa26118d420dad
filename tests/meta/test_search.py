from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import uniform
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from tithe import CoresetEstimator, CoresetKMeans, CoresetLogisticRegression, CoresetSearchCV
from tithe.objectives import LogisticObjective

GRID = {"C": [1e-5, 1e-3, 1.0]}


@pytest.mark.slow
@parametrize_with_checks([CoresetSearchCV(CoresetLogisticRegression(), {"C": [0.1, 1.0]}, cv=2)])
def test_scikit_learn_checks_of_a_search_of_ours(estimator, check) -> None:
    check(estimator)


@parametrize_with_checks(
    [
        CoresetSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
        CoresetSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    ]
)
def test_scikit_learn_checks(estimator, check) -> None:
    """Nothing is excused."""
    check(estimator)


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 5)) * [1.0, 2.0, 0.5, 1.0, 3.0]
    chance = 1 / (1 + np.exp(-(X @ [1.5, -1.0, 0.5, 0.0, 0.2] - 2.0)))
    return X, np.where(rng.random(30_000) < chance, "rare", "usual"), rng.exponential(size=30_000)


@pytest.fixture(scope="module")
def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 4))
    return X, X @ [1.0, 2.0, -1.0, 0.0] + 3.0 + rng.normal(size=20_000)


def test_candidates_learn_from_one_coreset_and_are_scored_on_all_held_out_rows_with_their_weights(classes) -> None:
    X, y, weight = classes
    cv = StratifiedKFold(3)
    search = CoresetSearchCV(
        LogisticRegression(), GRID, coreset_size=600, scoring="neg_log_loss", cv=cv, random_state=0
    ).fit(X, y, sample_weight=weight)
    assert len(search.coresets_) == search.n_splits_ == 3
    for j, ((train, test), coreset) in enumerate(zip(cv.split(X, y), search.coresets_, strict=True)):
        assert len(coreset) <= 600 and coreset.n_seen == len(train)
        assert not set(coreset.row_ids()) & set(test)
        assert coreset.weights().sum() == pytest.approx(weight[train].sum(), rel=1e-6)
        np.testing.assert_array_equal(coreset.X, X[coreset.row_ids()])
        labels = y[coreset.row_ids()]
        for i, C in enumerate(GRID["C"]):
            model = LogisticRegression(C=C).fit(coreset.X, labels, sample_weight=coreset.weights())
            loss = log_loss(y[test], model.predict_proba(X[test]), sample_weight=weight[test])
            assert search.cv_results_[f"split{j}_test_score"][i] == pytest.approx(-loss)


@pytest.mark.parametrize("inner", [LogisticRegression(), CoresetLogisticRegression(random_state=0)])
def test_the_choice_is_as_good_as_a_search_on_all_rows(classes, inner) -> None:
    X, y, _ = classes
    grid = {"C": np.logspace(-5, 1, 5)}
    full = GridSearchCV(LogisticRegression(), grid, scoring="neg_log_loss", refit=False).fit(X, y)
    small = CoresetSearchCV(inner, grid, coreset_size=1000, scoring="neg_log_loss", random_state=0).fit(X, y)
    loss = -full.cv_results_["mean_test_score"]
    assert loss[small.best_index_] <= loss.min() * 1.001
    np.testing.assert_allclose(small.cv_results_["mean_test_score"], -loss, rtol=0.01)


def test_small_data_gives_what_scikit_learn_gives(classes) -> None:
    X, y = classes[0][:500], classes[1][:500]
    grid = [{"C": [0.01, 1.0]}, {"C": [0.1], "fit_intercept": [False]}]
    ours = CoresetSearchCV(LogisticRegression(), grid, cv=4).fit(X, y)
    theirs = GridSearchCV(LogisticRegression(), grid, cv=4).fit(X, y)
    for key in ("mean_test_score", "std_test_score", "rank_test_score", "split3_test_score"):
        np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key])
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key in ("param_C", "param_fit_intercept"):
        ours_column, their_column = ours.cv_results_[key], theirs.cv_results_[key]
        assert ours_column.dtype == their_column.dtype
        np.testing.assert_array_equal(ours_column.mask, their_column.mask)
        np.testing.assert_array_equal(ours_column.compressed(), their_column.compressed())
    assert (ours.best_params_, ours.best_index_) == (theirs.best_params_, theirs.best_index_)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X, y) == theirs.score(X, y)
    assert ours.certificate_ is None


def test_learners_of_this_package_are_not_reduced_twice(classes, numbers) -> None:
    X, y, weight = classes
    seen = []

    def spy(model, X, y=None, sample_weight=None) -> float:
        seen.append(model)
        return 0.0

    options = {"coreset_size": 700, "scoring": spy, "cv": 2, "refit": False, "random_state": 0}
    for inner, grid, given in (
        (CoresetLogisticRegression(coreset_size=50), {"C": [1.0, 2.0]}, (X, y, weight)),
        (CoresetEstimator(LinearSVC(), coreset_size=50), {"estimator__C": [1.0, 2.0]}, (X, y, weight)),
        (CoresetKMeans(3, coreset_size=50, random_state=0), {"n_clusters": [2, 3]}, (X, None, weight)),
    ):
        seen.clear()
        search = CoresetSearchCV(inner, grid, **options).fit(*given)
        assert len(seen) == 4
        for model, coreset in zip(seen, np.repeat(np.array(search.coresets_, object), 2), strict=True):
            assert len(model.coreset_) == len(coreset) > 500
            np.testing.assert_array_equal(model.coreset_.weights(), coreset.weights())
        assert inner.coreset_size == 50


def test_winner_is_certified_on_all_rows(classes, numbers) -> None:
    X, y, weight = classes
    inner = CoresetLogisticRegression(coreset_size=800, random_state=0)
    search = CoresetSearchCV(inner, GRID, coreset_size=800, cv=3, random_state=0).fit(X, y, weight)
    assert isinstance(search.best_estimator_, CoresetLogisticRegression)
    assert search.best_params_["C"] == search.best_estimator_.C
    assert search.certificate_ is search.best_estimator_.certificate_
    assert search.certificate_.n_rows == len(X) and search.certificate_.relative_excess < 1e-4
    assert search.classes_.tolist() == ["rare", "usual"]
    for inner, grid, given in (
        (LinearSVC(), {"C": [1e-3, 1.0]}, (X, y, weight)),
        (Ridge(), {"alpha": [1.0, 1e6]}, numbers),
    ):
        search = CoresetSearchCV(inner, grid, coreset_size=800, cv=3, random_state=0).fit(*given)
        assert search.certificate_.kind == "estimate" and search.certificate_.n_rows == len(given[0]) // 20
        assert len(search.best_estimator_.coreset_) <= 800
    assert search.best_params_ == {"alpha": 1.0} and not hasattr(search, "predict_proba")


def test_a_class_that_is_held_out_whole_is_not_asked_for(classes) -> None:
    X = classes[0][:12_000]
    y = np.repeat(["a", "b", "a", "b", "a", "c"], 2000)  # "c" only in the last of three folds
    for objective in ("auto", "generic", LogisticObjective(classes=("a", "b", "c"))):
        search = CoresetSearchCV(
            LogisticRegression(), GRID, objective=objective, coreset_size=500, cv=KFold(3), random_state=0
        ).fit(X, y)
        assert np.isfinite(search.best_score_)
        labels = np.array(["a", "b", "c"])
        for coreset, known in zip(search.coresets_, ("abc", "abc", "ab"), strict=True):
            np.testing.assert_array_equal(labels[coreset.y], y[coreset.row_ids()])
            assert set(labels[coreset.y]) == set(known)


def test_groups_masks_and_rows_taken_twice(numbers) -> None:
    X, y = numbers
    groups = np.arange(len(X)) % 7
    options = {"coreset_size": 400, "random_state": 0}
    search = CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=GroupKFold(7), **options).fit(X, y, groups=groups)
    for coreset in search.coresets_:
        assert len(set(groups[coreset.row_ids()])) == 6
    mask = np.arange(len(X)) < 10_000
    by_mask = CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=[(mask, ~mask)], **options).fit(X, y)
    assert by_mask.coresets_[0].row_ids().max() < 10_000
    twice = np.concatenate([np.arange(10_000), np.arange(5000)])
    search = CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=[(twice, np.flatnonzero(~mask))], **options).fit(X, y)
    coreset = search.coresets_[0]
    assert coreset.weights()[coreset.row_ids() < 5000].sum() == pytest.approx(10_000, rel=0.15)
    assert coreset.weight_seen == 15_000


def test_same_seed_same_search_for_dense_and_sparse_rows(classes) -> None:
    X, y, weight = classes
    results = []
    for rows in (X, X, sparse.csr_matrix(X)):
        search = CoresetSearchCV(
            CoresetLogisticRegression(random_state=0),
            GRID,
            coreset_size=500,
            cv=2,
            scoring="neg_log_loss",
            random_state=4,
        ).fit(rows, y, sample_weight=weight)
        results.append(search.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], results[2], rtol=0.02)


def test_frames_keep_their_names(classes) -> None:
    pandas = pytest.importorskip("pandas")
    X, y, _ = classes
    frame = pandas.DataFrame(X[:5000], columns=list("abcde"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = CoresetSearchCV(LogisticRegression(), GRID, coreset_size=500, cv=2, random_state=0)
        search.fit(frame, pandas.Series(y[:5000]))
        search.predict(frame), search.score(frame, y[:5000])
    assert search.feature_names_in_.tolist() == list("abcde") and search.n_features_in_ == 5
    with pytest.raises(ValueError, match="feature names"):
        search.predict(frame.rename(columns={"a": "z"}))


def test_failures_are_said(classes) -> None:
    X, y = classes[0][:3000], classes[1][:3000]
    search = CoresetSearchCV(LogisticRegression(), {"C": [-1.0, 1.0]}, coreset_size=500, cv=2, random_state=0)
    with pytest.warns(FitFailedWarning, match="2 of 4 scores are nan, the first because of .*'C' parameter"):
        search.fit(X, y)
    assert search.best_params_ == {"C": 1.0}
    assert np.isnan(search.cv_results_["mean_test_score"][0])
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    with pytest.raises(ValueError, match="No candidate has a score in every fold: 2 of 2 scores are nan"):
        search.set_params(param_grid={"C": [-1.0]}).fit(X, y)


def test_a_score_that_takes_no_weights_is_said(classes) -> None:
    X, y, weight = (part[:3000] for part in classes)

    def plain(model, X, y) -> float:
        return model.score(X, y)

    search = CoresetSearchCV(LogisticRegression(), GRID, coreset_size=500, scoring=plain, cv=2, random_state=0)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        search.fit(X, y, sample_weight=weight)


def test_without_refit_there_is_a_choice_and_no_model(classes) -> None:
    X, y, _ = classes
    search = CoresetSearchCV(LogisticRegression(), GRID, coreset_size=500, cv=2, refit=False, random_state=0).fit(X, y)
    assert search.best_params_["C"] in GRID["C"]
    assert not hasattr(search, "best_estimator_") and not hasattr(search, "certificate_")
    with pytest.raises(AttributeError, match="predict"):
        search.predict(X)


@pytest.mark.parametrize(
    ("inner", "grid", "options", "message"),
    [
        (KNeighborsClassifier(), {"n_neighbors": [1]}, {}, "takes no sample_weight"),
        (LogisticRegression(), GRID, {"construction": "bogus"}, "no construction"),
        (LogisticRegression(), GRID, {"objective": "bogus"}, "no objective"),
        (LogisticRegression(), GRID, {"coreset_size": "many"}, "coreset_size"),
        (LogisticRegression(), GRID, {"refit": "accuracy"}, "refit names the score 'accuracy', and scoring is None"),
        (LogisticRegression(), GRID, {"refit": 1}, "refit must be True"),
        (LogisticRegression(), GRID, {"scoring": ["accuracy", "f1"]}, "refit must be one of .'accuracy', 'f1'."),
        (LogisticRegression(), GRID, {"scoring": ["accuracy", "f1"], "refit": "recall"}, "got 'recall'"),
        (LogisticRegression(), GRID, {"scoring": []}, "at least one"),
        (LogisticRegression(), GRID, {"error_score": "ignore"}, "error_score must be 'raise' or a number"),
        (LogisticRegression(), GRID, {"return_train_score": "yes"}, "return_train_score must be True or False"),
        (LogisticRegression(), GRID, {"n_jobs": 0}, "n_jobs must be an integer other than 0"),
        (LogisticRegression(), GRID, {"verbose": -1}, "verbose must be"),
        (LogisticRegression(), GRID, {"n_iter": 0}, "n_iter must be"),
        (LogisticRegression(), {"C": uniform(1, 2)}, {}, "C.*n_iter"),
        (LogisticRegression(), {"c": [1.0]}, {}, "Invalid parameter 'c'"),
        (LogisticRegression(), [], {}, "no candidate"),
        (LogisticRegression(), GRID, {"cv": iter([])}, "no folds"),
        (CoresetLogisticRegression(), {"coreset_size": [10, 20]}, {}, "coreset_size of .* cannot be searched"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(classes, inner, grid, options, message) -> None:
    X, y = classes[0][:50], classes[1][:50]
    with pytest.raises(ValueError, match=message):
        CoresetSearchCV(inner, grid, **options).fit(X, y)


def test_a_search_is_saved_and_loaded(tmp_path) -> None:
    from tithe import CoresetLogisticRegression, load_model, save_model

    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    y = (X[:, 0] + rng.logistic(size=2000) > 0).astype(int)
    search = CoresetSearchCV(CoresetLogisticRegression(), {"C": [0.1, 1.0]}, coreset_size=300, cv=3, random_state=0)
    search.set_params(scoring="neg_log_loss").fit(X, y)
    save_model(search, tmp_path / "s.tithe")
    again = load_model(tmp_path / "s.tithe")
    assert again.best_params_ == search.best_params_ and again.score(X, y) == search.score(X, y)


def test_a_regression_is_reduced_for_least_squares(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 3))
    search = CoresetSearchCV(Ridge(), {"alpha": [0.1, 10.0]}, coreset_size=300, cv=2, random_state=0)
    search.fit(X, X @ [1.0, 2.0, 0.0] + rng.normal(size=3000))
    assert search.best_estimator_.coreset_.provenance["objective"] == "least_squares"
