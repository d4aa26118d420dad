"""ODMClassifierCV: parameters chosen by held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from tithe import load_model, save_model
from tithe.core.parallel import limit_threads
from tithe.odm import ODMClassifier, ODMClassifierCV
from tithe.odm.cross_validation import Candidate, SearchSpace


def rings(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X**2).sum(axis=1) + 0.4 * rng.normal(size=n) < 1.2


def test_scores_are_those_of_machines_fitted_without_the_row() -> None:
    X, y = rings(40)
    search = ODMClassifierCV(4, random_state=0).fit(X, y)
    assert search.n_splits_ == 40
    for params, score, loss in zip(
        search.cv_results_["params"],
        search.cv_results_["mean_test_score"],
        search.cv_results_["mean_test_loss"],
        strict=True,
    ):
        values = ODMClassifier(**params).fit(X, y).leave_one_out(X, y)
        margins = np.where(y, values, -values)
        assert score == pytest.approx((margins > 0).mean())
        assert loss == pytest.approx(np.logaddexp(0.0, -2.0 * margins).mean(), rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_folds(n_classes) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < n_classes][::2], y[y < n_classes][::2]
    X = X + np.random.default_rng(0).normal(size=X.shape)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = ODMClassifierCV(3, cv=folds, random_state=0).fit(X, y)
    for k, params in enumerate(search.cv_results_["params"]):
        wanted = cross_val_score(ODMClassifier(**params, tol=1e-3), X, y, cv=folds)
        ours = [search.cv_results_[f"split{fold}_test_score"][k] for fold in range(3)]
        np.testing.assert_allclose(ours, wanted, atol=1.01 / 20)  # a row at the border


def test_the_best_has_the_best_score_and_of_equal_ones_the_smallest_loss() -> None:
    X, y = rings()
    search = ODMClassifierCV(12, random_state=0).fit(X, y)
    results = search.cv_results_
    best = np.flatnonzero(results["mean_test_score"] == results["mean_test_score"].max())
    assert search.best_index_ == best[results["mean_test_loss"][best].argmin()]
    assert search.best_params_ == results["params"][search.best_index_]
    assert search.best_score_ == results["mean_test_score"].max()
    assert results["rank_test_score"][search.best_index_] == 1
    assert search.best_estimator_.get_params()["lam"] == search.best_params_["lam"]
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    assert search.margins(X, y).shape == (len(y),)


def test_a_search_near_the_best_beats_draws_alone() -> None:
    gains = []
    for seed in range(4):
        X, y = rings(150, seed)
        near = ODMClassifierCV(16, refit=False, random_state=seed).fit(X, y)
        drawn = near.cv_results_["mean_test_score"][:8].max()
        gains.append(near.best_score_ - drawn)
    assert min(gains) >= 0.0 and max(gains) > 0.0


def test_the_same_seed_gives_the_same_on_any_number_of_threads() -> None:
    X, y = rings()
    first = ODMClassifierCV(6, random_state=3).fit(X, y)
    with limit_threads(1):
        second = ODMClassifierCV(6, random_state=3).fit(X, y)
    assert first.best_params_ == second.best_params_
    np.testing.assert_array_equal(first.cv_results_["mean_test_loss"], second.cv_results_["mean_test_loss"])
    assert ODMClassifierCV(6, random_state=4).fit(X, y).best_params_ != first.best_params_


def test_weights_count_in_fits_and_scores() -> None:
    X, y = rings(60)
    times = np.random.default_rng(1).integers(0, 3, 60)
    folds = [(np.arange(30, 60), np.arange(30)), (np.arange(30), np.arange(30, 60))]
    weighted = ODMClassifierCV(4, cv=folds, random_state=0).fit(X, y, times)
    rows = np.repeat(np.arange(60), times)
    more = [
        (np.flatnonzero(rows >= 30), np.flatnonzero(rows < 30)),
        (np.flatnonzero(rows < 30), np.flatnonzero(rows >= 30)),
    ]
    repeated = ODMClassifierCV(4, cv=more, random_state=0).fit(X[rows], y[rows])
    np.testing.assert_allclose(
        weighted.cv_results_["mean_test_loss"], repeated.cv_results_["mean_test_loss"], rtol=1e-2
    )
    without = ODMClassifierCV(4, random_state=0).fit(X, y, np.where(times > 0, 1.0, 0.0))
    kept = ODMClassifierCV(4, random_state=0).fit(X[times > 0], y[times > 0])
    np.testing.assert_allclose(without.cv_results_["mean_test_loss"], kept.cv_results_["mean_test_loss"])
    assert without.n_splits_ == (times > 0).sum()


def test_other_scores_and_kernels() -> None:
    X, y = rings(80)
    for scoring in ("roc_auc", "balanced_accuracy", lambda machine, X, y: machine.score(X, y)):
        search = ODMClassifierCV(3, scoring=scoring, random_state=0).fit(X, y)
        assert 0.5 < search.best_score_ <= 1.0
    linear = ODMClassifierCV(3, estimator=ODMClassifier(kernel="linear"), random_state=0).fit(X, y)
    assert set(linear.best_params_) == {"lam", "mu", "theta"}
    K = rbf_kernel(X)
    machine = ODMClassifier(kernel="precomputed")
    given = ODMClassifierCV(3, estimator=machine, random_state=0).fit(K, y, np.arange(80) % 5 > 0)
    assert given.predict(K).shape == (80,)
    free = ODMClassifier(intercept_scaling=np.inf)
    assert ODMClassifierCV(3, estimator=free, random_state=0).fit(X, y).n_splits_ == 5
    thin = ODMClassifierCV(3, random_state=0).fit(sparse.csr_matrix(X), y)
    assert thin.predict(sparse.csr_matrix(X)).shape == (80,)


def test_it_is_saved_cloned_and_searched(tmp_path) -> None:
    X, y = rings(60)
    search = ODMClassifierCV(3, random_state=0).fit(X, np.where(y, "in", "out"))
    save_model(search, tmp_path / "search.tithe")
    again = load_model(tmp_path / "search.tithe")
    np.testing.assert_array_equal(again.decision_function(X), search.decision_function(X))
    assert again.best_params_ == search.best_params_ and again.summary()["best_score"] == search.best_score_
    inner = ODMClassifierCV(2, estimator=ODMClassifier(), random_state=0)
    outer = GridSearchCV(inner, {"estimator__kernel": ["rbf", "linear"]}, cv=2).fit(X, y)
    assert outer.best_params_["estimator__kernel"] == "rbf"


def test_without_refit_there_are_results_only() -> None:
    X, y = rings(50)
    search = ODMClassifierCV(2, refit=False, random_state=0).fit(X, y)
    assert not hasattr(search, "best_estimator_") and search.best_params_
    with pytest.raises(AttributeError, match="refit"):
        search.predict(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_candidates": 0}, "n_candidates"),
        ({"lams": (10.0, 1.0)}, "lams"),
        ({"gammas": (0.0, 1.0)}, "gammas"),
        ({"mus": (0.5, 1.5)}, "mus"),
        ({"thetas": ()}, "thetas"),
        ({"thetas": (1.0,)}, "thetas"),
        ({"cv": "all"}, "cv"),
        ({"cv": "loo", "estimator": ODMClassifier(intercept_scaling=np.inf)}, "loo"),
        ({"estimator": ODMClassifier(cache_size=0.01)}, "cache_size"),
        ({"estimator": ODMClassifier(kernel="none")}, "kernel"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        ODMClassifierCV(**options).fit(*rings(50))


def test_draws_cover_the_space_and_neighbours_stay_in_it() -> None:
    space = SearchSpace(lams=(1.0, 1024.0), mus=(0.1, 0.5, 1.0), thetas=(0.0, 0.4), gammas=(0.25, 4.0))
    drawn = space.draw(20, np.random.default_rng(0))
    assert {c.mu for c in drawn} == {0.1, 0.5, 1.0} and {c.theta for c in drawn} == {0.0, 0.4}
    assert {c.gamma for c in drawn} == {0.25, 0.5, 1.0, 2.0, 4.0}
    lams = np.sort(np.log2([c.lam for c in drawn]))
    assert (np.floor(lams * 2) == np.arange(20)).all()  # one in each part
    for near in space.near(Candidate(gamma=4.0, lam=1024.0, mu=1.0, theta=0.0), 50, np.random.default_rng(1)):
        assert near.lam <= 1024.0 and near.gamma is not None and 0.25 <= near.gamma <= 4.0
        assert near.mu in (0.5, 1.0) and near.theta in (0.0, 0.4)
