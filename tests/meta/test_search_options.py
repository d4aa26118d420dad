"""What scikit-learn's searches offer: several scores, errors, train scores, random candidates, jobs, messages."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, make_scorer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tithe import (
    CoresetKMeans,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetSearchCV,
    load_model,
    save_model,
)

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
GRID = {"C": [1e-4, 1e-2, 1.0]}
SCORES = ["neg_log_loss", "accuracy"]


@pytest.fixture(scope="module")
def classes() -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X @ [1.5, -1.0, 0.5, 0.0] + rng.logistic(size=3000) > 0.5
    return X, y.astype(int), rng.exponential(size=3000)


def search_for(inner=None, grid=None, **options) -> CoresetSearchCV:
    options = {"coreset_size": 400, "cv": 3, "random_state": 0, **options}
    return CoresetSearchCV(LogisticRegression() if inner is None else inner, GRID if grid is None else grid, **options)


# -- scores --------------------------------------------------------------------------------------


def test_several_scores_are_those_of_single_searches(classes: Data) -> None:
    several = search_for(scoring=SCORES, refit="accuracy").fit(*classes)
    assert several.multimetric_ and set(several.scorer_) == set(SCORES)
    for name in SCORES:
        one = search_for(scoring=name).fit(*classes)
        assert not one.multimetric_
        for kind in ("split0_test", "mean_test", "std_test", "rank_test"):
            np.testing.assert_array_equal(several.cv_results_[f"{kind}_{name}"], one.cv_results_[f"{kind}_score"])
    assert (several.best_index_, several.best_score_) == (one.best_index_, one.best_score_)
    assert several.score(*classes) == one.score(*classes)
    assert "mean_test_score" not in several.cv_results_


def test_several_scores_by_functions_and_dicts(classes: Data) -> None:
    X, y, weight = classes

    def plain(model, X, y, sample_weight=None) -> float:
        return accuracy_score(y, model.predict(X), sample_weight=sample_weight)

    def cells(model, X, y) -> dict[str, float]:
        (tn, fp), (fn, tp) = confusion_matrix(y, model.predict(X))
        return {"false": fp + fn, "true": tp + tn}

    named = {"plain": plain, "made": make_scorer(accuracy_score)}
    search = search_for(scoring=named, refit="made").fit(X, y, weight)
    np.testing.assert_array_equal(search.cv_results_["mean_test_plain"], search.cv_results_["mean_test_made"])
    assert search.score(X, y, weight) == plain(search, X, y, weight)
    search = search_for(scoring=cells, refit="true").fit(X, y)
    assert search.multimetric_ and search.score(X, y) == cells(search, X, y)["true"]
    total = search.cv_results_["split1_test_false"] + search.cv_results_["split1_test_true"]
    assert total.tolist() == [1000.0] * 3
    with pytest.raises(ValueError, match=r"refit must be one of .'false', 'true'., .*got True"):
        search.set_params(refit=True).fit(X, y)


def test_refit_by_a_callable_and_not_at_all(classes: Data) -> None:
    X, y, _ = classes

    def least_C(results) -> int:
        return int(np.argmin(results["param_C"]))

    search = search_for(scoring=SCORES, refit=least_C).fit(X, y)
    assert search.best_params_ == {"C": 1e-4} == {"C": search.best_estimator_.estimator.C}
    assert not hasattr(search, "best_score_")
    with pytest.raises(ValueError, match="names none"):
        search.score(X, y)
    search.set_params(scoring="accuracy").fit(X, y)
    assert search.best_index_ == 0 and search.score(X, y) > 0.5
    search.set_params(scoring=SCORES, refit=False).fit(X, y)
    for name in ("best_index_", "best_params_", "best_score_", "best_estimator_", "refit_time_", "predict", "classes_"):
        assert not hasattr(search, name), name
    with pytest.raises(AttributeError, match="refit is False"):
        search.score(X, y)
    for wrong, error in ((lambda _: 1.0, TypeError), (lambda _: 3, IndexError), (lambda _: -1, IndexError)):
        with pytest.raises(error, match="refit must give"):
            search_for(refit=wrong).fit(X, y)


def test_scores_without_a_target() -> None:
    X, _ = make_blobs(2000, centers=[[-9, 0], [9, 0], [0, 9]], random_state=0)
    inner, grid = KMeans(n_init=1, random_state=0), {"n_clusters": [1, 2, 3]}

    def negative_distance(model, X) -> float:
        return -float(model.transform(X).min(axis=1).mean())

    for clusters, scoring, refit in (
        (inner, None, True),
        (inner, negative_distance, True),
        (CoresetKMeans(random_state=0), {"distance": negative_distance}, "distance"),
    ):
        search = search_for(clusters, grid, scoring=scoring, refit=refit).fit(X)
        assert search.best_params_ == {"n_clusters": 3}
        expected = search.best_estimator_.score(X) if scoring is None else negative_distance(search, X)
        assert search.score(X) == pytest.approx(expected)
    density = search_for(KernelDensity(), {"bandwidth": [0.01, 0.5, 50.0]}, coreset_size=500).fit(X)
    assert density.best_params_ == {"bandwidth": 0.5}
    assert density.score_samples(X[:4]).shape == (4,) and density.score(X) == density.best_estimator_.score(X)
    full = GridSearchCV(KMeans(n_init=1, random_state=0), grid, cv=3).fit(X)
    ours = search_for(KMeans(n_init=1, random_state=0), grid, coreset_size=5000).fit(X)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], full.cv_results_["mean_test_score"])


def test_train_scores_are_those_of_the_weighted_coreset(classes: Data) -> None:
    X, y, weight = classes
    search = search_for(scoring=SCORES, refit=False, return_train_score=True).fit(X, y, weight)
    coreset = search.coresets_[2]
    rows = coreset.X, y[coreset.row_ids()]
    model = LogisticRegression(C=1e-2).fit(*rows, sample_weight=coreset.weights())
    for name in SCORES:
        expected = search.scorer_[name](model, *rows, sample_weight=coreset.weights())
        assert search.cv_results_[f"split2_train_{name}"][1] == pytest.approx(expected, rel=1e-9)
        assert f"std_train_{name}" in search.cv_results_ and f"rank_train_{name}" not in search.cv_results_
    assert not any("train" in key for key in search_for(refit=False).fit(X, y).cv_results_)


# -- errors --------------------------------------------------------------------------------------


class Moody(ClassifierMixin, BaseEstimator):
    """Fails at will."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def fit(self, X, y, sample_weight=None):
        if self.fails == "fit":
            raise RuntimeError("no mood to fit")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        if self.fails == "score":
            raise RuntimeError("no mood to predict")
        return np.zeros(len(X), int)


@pytest.mark.parametrize(("fails", "category"), [("fit", FitFailedWarning), ("score", UserWarning)])
def test_error_score(classes: Data, fails: str, category) -> None:
    X, y, _ = classes
    grid = {"fails": [fails, ""]}
    with pytest.warns(category, match="3 of 6 scores are nan, the first because of RuntimeError: no mood to"):
        search = search_for(Moody(), grid).fit(X, y)
    assert np.isnan(search.cv_results_["split1_test_score"][0]) and search.best_params_ == {"fails": ""}
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    with pytest.warns(category, match="3 of 6 scores are 7"):
        search = search_for(Moody(), grid, error_score=7, refit=False).fit(X, y)
    assert search.cv_results_["mean_test_score"][0] == 7.0 and search.best_index_ == 0
    with pytest.raises(RuntimeError, match="no mood"):
        search_for(Moody(), grid, error_score="raise").fit(X, y)


def test_one_of_several_scores_fails(classes: Data) -> None:
    X, y, _ = classes

    def broken(model, X, y) -> float:
        raise KeyError("broken")

    scoring = {"good": "accuracy", "broken": broken}
    with pytest.warns(UserWarning, match="9 of 9 scores are nan, the first because of KeyError: 'broken'"):
        search = search_for(scoring=scoring, refit="good").fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_broken"]).all() and search.best_score_ > 0.5
    with pytest.raises(ValueError, match="No candidate has a broken"), pytest.warns(match="9 of 9"):
        search_for(scoring=scoring, refit="broken").fit(X, y)
    with pytest.raises(KeyError, match="broken"):
        search_for(scoring=scoring, refit="good", error_score="raise").fit(X, y)


def test_scores_that_are_no_numbers_or_not_finite(classes: Data) -> None:
    X, y, _ = classes
    with pytest.raises(TypeError, match="scoring must give a number"):
        search_for(scoring=lambda model, X, y: "good", error_score="raise").fit(X, y)
    with pytest.warns(UserWarning, match="not finite"):
        search_for(scoring=lambda model, X, y: np.inf if model.C == 1.0 else 0.5).fit(X, y)


# -- candidates ----------------------------------------------------------------------------------


def test_random_candidates_are_those_of_scikit_learn(classes: Data) -> None:
    X, y, _ = classes
    grid = {"C": loguniform(1e-4, 1e2), "fit_intercept": [True, False]}
    ours = search_for(grid=grid, n_iter=5, coreset_size=5000, random_state=3).fit(X, y)
    theirs = RandomizedSearchCV(LogisticRegression(), grid, n_iter=5, cv=3, random_state=3).fit(X, y)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(ours.cv_results_["param_C"], theirs.cv_results_["param_C"])
    with pytest.warns(UserWarning, match="smaller than n_iter"):
        few = search_for(grid=[{"C": [1.0, 2.0]}, {"C": [3.0]}], n_iter=9, refit=False).fit(X, y)
    assert len(few.cv_results_["params"]) == 3
    stream = search_for(grid=grid, n_iter=4, random_state=None).partial_fit(X, y, classes=[0, 1]).solve()
    first = stream.cv_results_["params"]
    assert len(first) == 4 and stream.partial_fit(X, y).solve().cv_results_["params"] == first


def test_columns_of_parameters_are_those_of_scikit_learn(classes: Data) -> None:
    X, y, _ = (part[:200] for part in classes)
    grid = [
        {"max_depth": [None, 3], "max_features": ["sqrt", 2]},
        {"min_samples_leaf": [1, 0.2], "class_weight": [{0: 1, 1: 2}, "balanced", None]},
        {"ccp_alpha": [0.0, 0.5]},
    ]
    ours = CoresetSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=2).fit(X, y).cv_results_
    theirs = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=2).fit(X, y).cv_results_
    assert ours.keys() == theirs.keys()
    for key in (key for key in theirs if key.startswith("param_")):
        assert ours[key].dtype == theirs[key].dtype, key
        assert ours[key].tolist() == theirs[key].tolist()


# -- jobs and messages ---------------------------------------------------------------------------


def same_scores(search: CoresetSearchCV, other: CoresetSearchCV) -> None:
    for key, column in other.cv_results_.items():
        if key.startswith(("split", "mean_t", "std_t", "rank")):
            np.testing.assert_array_equal(search.cv_results_[key], column, err_msg=key)
    for ours, theirs in zip(search.coresets_, other.coresets_, strict=True):
        np.testing.assert_array_equal(ours.row_ids(), theirs.row_ids())


@pytest.mark.parametrize("inner", [LogisticRegression(), CoresetLogisticRegression(random_state=0)])
def test_the_number_of_threads_changes_no_bit(classes: Data, inner) -> None:
    alone = search_for(inner, return_train_score=True, refit=False).fit(*classes)
    for n_jobs in (2, 5):
        with joblib.parallel_config(backend="threading"):
            search = search_for(inner, return_train_score=True, refit=False, n_jobs=n_jobs).fit(*classes)
        same_scores(search, alone)


@pytest.mark.slow  # processes import all that they need
def test_the_number_of_processes_changes_no_bit(classes: Data) -> None:
    alone = search_for(return_train_score=True, refit=False, scoring=SCORES).fit(*classes)
    same_scores(search_for(return_train_score=True, refit=False, scoring=SCORES, n_jobs=2).fit(*classes), alone)
    broken = search_for(Moody(), {"fails": ["fit", ""]}, n_jobs=2)
    with pytest.warns(FitFailedWarning, match="3 of 6"):
        assert broken.fit(*classes).best_index_ == 1
    with pytest.raises(RuntimeError, match="no mood"):
        broken.set_params(error_score="raise").fit(*classes)


def test_messages(classes: Data, capsys) -> None:
    X, y, _ = classes
    said = {}
    for verbose in range(3):
        search_for(verbose=verbose, refit=False).fit(X, y)
        said[verbose] = capsys.readouterr().out.splitlines()
    assert said[0] == [] and said[1] == ["Fitting 3 folds for each of 3 candidates, totalling 9 fits"]
    assert len(said[2]) == 10 and said[2][4].startswith("[CV 2/3; 1/3] C=0.0001, test score=0.")
    search_for(verbose=2, return_train_score=True, refit=False, scoring=SCORES).fit(X, y)
    assert "train accuracy=0." in capsys.readouterr().out


# -- the object ----------------------------------------------------------------------------------


def test_methods_of_the_winner(classes: Data) -> None:
    X, y, _ = classes
    search = search_for()
    assert hasattr(search, "predict_proba") and not hasattr(search, "transform")
    for method in ("predict", "score"):
        with pytest.raises(NotFittedError):
            getattr(search, method)(X)
    search.fit(X, y)
    np.testing.assert_array_equal(search.predict_log_proba(X), search.best_estimator_.predict_log_proba(X))
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    scaler = search_for(StandardScaler(), {"with_mean": [True, False]}, scoring=lambda model, X: 1.0).fit(X)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X)


def test_a_search_with_several_scores_is_saved_and_loaded(classes: Data, tmp_path) -> None:
    X, y, _ = classes
    search = search_for(scoring=SCORES, refit="accuracy", return_train_score=True).fit(X, y)
    save_model(search, tmp_path / "search.tithe")
    again = load_model(tmp_path / "search.tithe")
    assert again.score(X, y) == search.score(X, y) and again.cv_results_["params"] == search.cv_results_["params"]


# -- further arguments of fit and score --------------------------------------------------------


class Recording(LogisticRegression):
    """Checks that each row comes with its own number, which is that of its first column."""

    def fit(self, X, y, sample_weight=None, number=None):
        np.testing.assert_array_equal(number, X[:, 0])
        self.n_numbers_ = len(number)
        return super().fit(X, y, sample_weight)


def own_number(y, predicted, *, number):
    return float(len(number) == len(y)) + float(np.mean(y == predicted))


def test_arguments_of_rows_follow_them(classes) -> None:
    """Each candidate, and the winner, gets the values of the rows that it learns from."""
    X, y, weight = classes
    search = search_for(Recording(), refit=True).fit(X, y, weight, number=list(X[:, 0]))
    assert search.best_estimator_.estimator_.n_numbers_ == len(search.best_estimator_.coreset_)
    with pytest.raises(ValueError, match=r"score\(\) takes 'number' only with metadata routing"):
        search.score(X, y, number=X[:, 0])


@pytest.mark.parametrize("several", [False, True])
def test_arguments_are_routed_to_fit_and_score(classes, several) -> None:
    """With metadata routing, estimator and scores get what they request, and others are refused."""
    X, y, _ = classes
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(own_number).set_score_request(number=True)
        options = {"scoring": {"own": scorer, "accuracy": "accuracy"} if several else scorer}
        learner = Recording().set_fit_request(number=True, sample_weight=True)
        search = search_for(learner, refit="own" if several else True, **options).fit(X, y, number=X[:, 0])
        assert search.best_score_ > 1.7
        assert search.score(X, y, number=X[:, 0]) > 1.7
        with pytest.raises(TypeError, match="other"):
            search.fit(X, y, number=X[:, 0], other=X[:, 0])


def test_exposures_of_the_rows_reach_the_fit() -> None:
    rng = np.random.default_rng(0)
    X, years = rng.normal(size=(3000, 3)), rng.uniform(0.1, 2.0, 3000)
    y = rng.poisson(years * np.exp(X @ [0.2, -0.5, 0.3]))
    search = search_for(CoresetPoissonRegressor(), {"alpha": [1e-4, 10.0]}).fit(X, y, exposure=years)
    direct = CoresetPoissonRegressor(alpha=1e-4).fit(X, y, exposure=years)
    assert search.best_params_ == {"alpha": 1e-4}
    np.testing.assert_allclose(search.best_estimator_.coef_, direct.coef_, atol=1e-3)
