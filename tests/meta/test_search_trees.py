"""`CoresetSearchCV` with boosted trees: sizes, nested parts, leaf values from other rows, frames and the last fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from leaf_source import LeafSource
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.stats import randint
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe import CoresetSearchCV, build_coreset
from tithe.meta.search.folds import Fold

FAST: dict[str, Any] = {"n_estimators": 10, "verbosity": -1, "n_jobs": 1, "random_state": 0}
GRID = {"num_leaves": [2, 4, 15, 31]}
OPTIONS: dict[str, Any] = {"cv": 2, "scoring": "neg_log_loss", "random_state": 0}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 4))
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=12_000) > 1.0, "rare", "usual")


def test_a_quarter_of_the_rows_by_default_and_a_warning_below(rows, recwarn) -> None:
    X, y = rows
    X, y, options = np.tile(X, (4, 1)), np.tile(y, 4), {**OPTIONS, "refit": False}
    search = CoresetSearchCV(LGBMClassifier(**FAST), {"num_leaves": [4]}, **options).fit(X, y)
    assert [len(coreset) for coreset in search.coresets_] == pytest.approx([6000, 6000], rel=0.03)
    assert not [warning for warning in recwarn if "less than" in str(warning.message)]  # older LightGBMs warn of names
    with pytest.warns(UserWarning, match="less than 25%"):
        CoresetSearchCV(LGBMClassifier(**FAST), {"num_leaves": [4]}, coreset_size=2000, **options).fit(X, y)


def test_a_larger_part_contains_a_smaller_and_has_the_weight_of_each_class(rows) -> None:
    X, y = rows
    numbers = (y == "rare").astype(np.int32)
    coreset = build_coreset(X, numbers, objective="boosting", coreset_size=1000, random_state=0)
    fold = Fold(coreset=coreset, held_out=coreset)
    before: set[int] = set()
    for share in (0.002, 0.1, 0.5, 1.0):
        at, weight = fold.part(share, by_class=True)
        assert before <= set(at.tolist())
        before = set(at.tolist())
        whole = np.bincount(coreset.y, coreset.weights())
        np.testing.assert_allclose(np.bincount(coreset.y[at], weight), whole)
        assert len(at) == pytest.approx(share * len(coreset), abs=2)


def test_halving_fits_fewer_to_more_rows(rows) -> None:
    X, y = rows
    options = {**OPTIONS, "coreset_size": 4800, "halving": 2, "leaves": True}
    search = CoresetSearchCV(LGBMClassifier(**FAST), GRID, **options).fit(X, y)
    results = search.cv_results_
    assert sorted(results["iter"].tolist()) == [0, 0, 1, 2]
    size = min(len(coreset) for coreset in search.coresets_)
    assert sorted(set(results["n_resources"].tolist())) == [round(size / 4), round(size / 2), size]
    assert results["iter"][search.best_index_] == 2 and sorted(results["rank_test_score"]) == [1, 2, 3, 4]
    assert (
        search.best_params_["num_leaves"] >= 4 and search.best_score_ == results["mean_test_score"][search.best_index_]
    )
    whole = CoresetSearchCV(LGBMClassifier(**FAST), GRID, **{**options, "halving": None, "leaves": False}).fit(X, y)
    best = search.best_index_
    assert whole.cv_results_["mean_test_score"][best] == results["mean_test_score"][best]  # trees of all rows
    with pytest.raises(ValueError, match="halving"):
        CoresetSearchCV(LGBMClassifier(**FAST), GRID, **{**options, "refit": lambda results: 0}).fit(X, y)


@pytest.mark.slow
def test_halving_ranks_trees_by_leaves_of_other_rows_or_warns(rows) -> None:
    X, y = rows
    options = {**OPTIONS, "coreset_size": 4000, "halving": 3}
    found = [
        CoresetSearchCV(LGBMClassifier(**FAST), GRID, **options, **leaves).fit(X, y).cv_results_["mean_test_score"]
        for leaves in ({}, {"leaves": True})
    ]
    np.testing.assert_array_equal(*found)
    for trees, leaves in ((LGBMClassifier(**FAST), False), (HistGradientBoostingClassifier(max_iter=20), "auto")):
        grid = {"learning_rate": [0.1, 0.3, 0.5]}
        with pytest.warns(UserWarning, match="halving ranks boosted trees by fits to few rows"):
            CoresetSearchCV(trees, grid, **options, leaves=leaves).fit(X, y)


def test_leaves_of_other_rows_rank_candidates(rows) -> None:
    X, y = rows
    options = {**OPTIONS, "coreset_size": 4000, "leaves": True}
    search = CoresetSearchCV(LGBMClassifier(**FAST), GRID, **options).fit(X, y)
    plain = CoresetSearchCV(LGBMClassifier(**FAST), GRID, **{**options, "leaves": False}).fit(X, y)
    ours, theirs = (found.cv_results_["mean_test_score"] for found in (search, plain))
    assert (ours != theirs).all() and np.corrcoef(ours, theirs)[0, 1] > 0.9
    pipeline = make_pipeline(StandardScaler(), LGBMRegressor(**FAST))
    grid = {"lgbmregressor__num_leaves": randint(2, 40)}
    found = CoresetSearchCV(pipeline, grid, n_iter=3, leaves=True, coreset_size=3000, cv=2, random_state=1)
    assert found.fit(X, X[:, 0] * X[:, 1]).best_score_ > 0.3
    linear = CoresetSearchCV(LogisticRegression(), {"C": [1.0]}, leaves=True, coreset_size=500, cv=2)
    assert linear.fit(X, y).best_params_ == {"C": 1.0}  # which has none


def test_the_last_fit_is_to_all_rows_or_gets_their_leaves(rows) -> None:
    X, y = rows
    options = {**OPTIONS, "coreset_size": 3000}
    for data in ((X, y), (LeafSource.cut(X, y, at=[5000]),)):
        search = CoresetSearchCV(LGBMClassifier(**FAST), {"num_leaves": [7]}, refit_on="all", **options).fit(*data)
        alone = LGBMClassifier(num_leaves=7, **FAST).fit(X, y)
        np.testing.assert_array_equal(search.predict_proba(X[:50]), alone.predict_proba(X[:50]))
    leaves = CoresetSearchCV(LGBMClassifier(**FAST), {"num_leaves": [7]}, refit_on="leaves", **options).fit(X, y)
    assert leaves.best_estimator_.leaves_kept_ is not None and leaves.best_estimator_.coreset_size == 3000


@pytest.mark.parametrize("from_source", [False, True])
def test_candidates_get_frames(from_source: bool, rows, tmp_path) -> None:
    from tithe import open_dataset

    X, y = rows
    frame = pd.DataFrame(X[:5000], columns=list("abcd"))
    frame["city"] = np.where(frame.pop("a") > 0, "Graz", "Linz")
    frame.loc[::7, "b"] = np.nan
    seen: list[list[str]] = []

    def score(model: Any, X: Any, y: Any) -> float:
        seen.append([str(kind) for kind in X.dtypes])
        return float(model.score(X, y))

    options: dict[str, Any] = {"cv": 2, "scoring": score, "coreset_size": 1300, "random_state": 0}
    search = CoresetSearchCV(LGBMClassifier(**FAST), {"num_leaves": [4]}, **options)
    if from_source:
        frame.assign(y=y[:5000]).to_parquet(tmp_path / "rows.parquet")
        search.fit(open_dataset(tmp_path / "rows.parquet", target="y"))
    else:
        search.fit(frame, y[:5000])
    assert all("category" in kinds and len(kinds) == 4 for kinds in seen) and len(seen) == 2
    assert list(search.best_estimator_.estimator_.feature_names_in_) == ["b", "c", "d", "city"]


def test_leaves_that_cannot_be_refitted_are_refused_before_the_search() -> None:
    search = CoresetSearchCV(HistGradientBoostingClassifier(), {}, refit_on="leaves")
    with pytest.raises(ValueError, match="refit_on='leaves' is not for this estimator"):
        search.fit(np.zeros((10, 1)), np.arange(10) % 2)
