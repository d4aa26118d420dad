"""Leaf values from all rows: those of the libraries, in parts and from sources, and never for the worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from leaf_source import LeafSource
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe import CoresetEstimator, load_model, save_model
from tithe.core.data import Block
from tithe.core.passes import DataPass
from tithe.meta import leaves
from tithe.meta.leaves import leaf_obstacle, mean_loss, refitted_leaves

lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")

TARGETS = ("two", "three", "squared_error", "poisson", "gamma")
OBJECTIVES = {
    "squared_error": ("regression", "reg:squarederror"),
    "poisson": ("poisson", "count:poisson"),
    "gamma": ("gamma", "reg:gamma"),
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    score = X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=3000)
    targets = {
        "two": (score > 0).astype(np.int32),
        "three": np.digitize(score, [-0.5, 0.5]).astype(np.int32),
        "squared_error": score,
        "poisson": rng.poisson(np.exp(X[:, 0])).astype(float),
        "gamma": rng.gamma(2.0, np.exp(X[:, 0])),
    }
    return X, targets, rng.uniform(0.5, 2.0, 3000)


def trees(library: str, target: str, **options: Any) -> Any:
    kind = "Classifier" if target in ("two", "three") else "Regressor"
    options = {"n_estimators": 12, "n_jobs": 1, **options}
    if target in OBJECTIVES:
        options["objective"] = OBJECTIVES[target][library == "xgboost"]
    if library == "lightgbm":
        return getattr(lightgbm, f"LGBM{kind}")(verbosity=-1, **options)
    return getattr(xgboost, f"XGB{kind}")(max_depth=3, **options)


def answers(model: Any, X: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def labels_of(y: np.ndarray) -> np.ndarray | None:
    return np.unique(y) if y.dtype == np.int32 else None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_the_rows_of_the_fit_give_its_own_leaves(library: str, target: str, rows) -> None:
    X, targets, weight = rows
    y = targets[target]
    model = trees(library, target).fit(X[:900], y[:900], sample_weight=weight[:900])
    data = DataPass(Block(X=X[:900], y=y[:900], sample_weight=weight[:900]))
    same = refitted_leaves(model, data, lambda block: block.X, labels_of(y))
    np.testing.assert_allclose(answers(same, X), answers(model, X), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_xgboost_refreshes_to_the_same(target: str, rows) -> None:
    X, targets, weight = rows
    y = targets[target]
    model = trees("xgboost", target).fit(X[:300], y[:300])
    data = DataPass(Block(X=X, y=y, sample_weight=weight))
    ours = refitted_leaves(model, data, lambda block: block.X, labels_of(y))
    params = {name: value for name, value in model.get_xgb_params().items() if value is not None}
    params |= {"process_type": "update", "updater": "refresh", "refresh_leaf": True, "verbosity": 0}
    params |= {"num_class": 3} if target == "three" else {}
    theirs = xgboost.train(params, xgboost.DMatrix(X, y, weight=weight), 12, xgb_model=model.get_booster().copy())
    expected = theirs.predict(xgboost.DMatrix(X))
    got = answers(ours, X)[:, 1] if target == "two" else answers(ours, X)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_parts_of_the_trees_and_of_the_rows_change_nothing(library: str, rows, monkeypatch) -> None:
    X, targets, _ = rows
    y = targets["three"]
    model = trees(library, "three").fit(X[:300], y[:300])
    take = lambda block: block.X  # noqa: E731
    whole = refitted_leaves(model, DataPass(Block(X=X, y=y)), take, np.arange(3))
    monkeypatch.setattr(leaves, "_BYTES", 5 * 3 * len(y))  # five rounds at once
    parts = DataPass(LeafSource.cut(X, y, at=[700, 1500]))
    again = refitted_leaves(model, parts, take, np.arange(3))
    assert parts.n_passes == 1 + 3
    np.testing.assert_array_equal(answers(again, X), answers(whole, X))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_it_is_better_on_rows_set_aside_and_from_a_source_too(library: str, rows, tmp_path) -> None:
    X, targets, _ = rows
    y = np.array(["no", "yes"])[targets["two"]]
    options: dict[str, Any] = {"coreset_size": 400, "validation_fraction": 0.2, "random_state": 0}
    plain = CoresetEstimator(trees(library, "two"), **options).fit(X, y)
    model = CoresetEstimator(trees(library, "two"), polish="leaves", **options).fit(X, y)
    assert plain.leaves_kept_ is None and model.leaves_kept_
    assert model.held_out_scores_[0].value < plain.held_out_scores_[0].value
    assert model.summary()["leaf_values"] == "from all rows"
    aside = model.validation_indices_
    used = np.delete(np.arange(len(y)), aside)  # values are those of the other rows alone
    weight = np.full(len(used), len(y) / len(used))
    block = Block(X=X[used], y=targets["two"][used], sample_weight=weight)
    alone = refitted_leaves(plain.estimator_, DataPass(block), lambda rows: rows.X, model._labels)
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), rtol=1e-5)
    source = LeafSource.cut(X, y, at=[1000])
    read = CoresetEstimator(trees(library, "two"), polish="leaves", **options).fit(source)
    assert read.leaves_kept_ and read.certificate_ == read.certify(source)
    save_model(read, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").predict_proba(X), read.predict_proba(X))


def test_it_is_never_for_the_worse(rows, monkeypatch) -> None:
    X, targets, _ = rows
    options: dict[str, Any] = {"coreset_size": 400, "validation_fraction": 0.2, "random_state": 0}
    plain = CoresetEstimator(trees("lightgbm", "squared_error"), **options).fit(X, targets["squared_error"])
    monkeypatch.setattr(leaves._LightGBM, "rate", property(lambda self: 3.0, lambda self, value: None), raising=False)
    model = CoresetEstimator(trees("lightgbm", "squared_error"), polish="leaves", **options)
    model.fit(X, targets["squared_error"])
    assert model.leaves_kept_ is False and "coreset" in model.summary()["leaf_values"]
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_frames_and_pipelines(rows) -> None:
    X, targets, _ = rows
    frame = pd.DataFrame(X, columns=list("abcd")).assign(city=pd.Categorical(np.where(X[:, 2] > 0, "Graz", "Linz")))
    frame.loc[::11, "b"] = np.nan
    options: dict[str, Any] = {"coreset_size": 400, "validation_fraction": 0.2, "polish": "leaves", "random_state": 0}
    for library in ("lightgbm", "xgboost"):
        model = CoresetEstimator(trees(library, "three", n_estimators=40), **options).fit(frame, targets["three"] + 5)
        assert model.leaves_kept_ and list(model.estimator_.feature_names_in_) == list(frame.columns)
        assert mean_loss(model.estimator_, frame, targets["three"] + 5, None) < 1.0
    pipeline = make_pipeline(StandardScaler(), trees("xgboost", "two"))
    assert CoresetEstimator(pipeline, **options).fit(X, np.where(targets["two"] == 1, "b", "a")).leaves_kept_


def test_what_is_refused(rows) -> None:
    X, targets, _ = rows
    y = targets["squared_error"]
    for estimator, why in (
        (Ridge(), "none of LightGBM"),
        (trees("lightgbm", "two", class_weight="balanced"), "class_weight"),
        (trees("xgboost", "two", booster="dart"), "booster"),
        (lightgbm.LGBMRegressor(objective="quantile"), "quantile"),
    ):
        assert why in str(leaf_obstacle(estimator))
        with pytest.raises(ValueError, match=why):
            CoresetEstimator(estimator, polish="leaves").fit(X, y)
    model = trees("lightgbm", "squared_error")
    with pytest.raises(ValueError, match="validation_fraction"):
        CoresetEstimator(model, polish="leaves", validation_fraction=0.0).fit(X, y)
    with pytest.raises(ValueError, match="partial_fit"):
        CoresetEstimator(model, polish="leaves").partial_fit(X, y)


def test_weights_that_are_all_the_same_are_held_as_one_number(rows) -> None:
    X, targets, weight = rows
    y, numbers = targets["three"], np.array([0, -1, 1])
    same = np.full(len(y), 2.0)
    known, held = leaves._targets(DataPass(LeafSource.cut(X, y, same, at=[700, 1500])), np.arange(3))
    assert held is not None and held.strides == (0,) and (held == 2.0).all()
    assert known.dtype == np.uint8 and (known == y).all()
    _, held = leaves._targets(DataPass(LeafSource.cut(X, y, weight, at=[700, 1500])), np.arange(3))
    np.testing.assert_array_equal(held, weight)
    _, held = leaves._targets(DataPass(LeafSource.cut(X, y, at=[700, 1500])), numbers)
    np.testing.assert_array_equal(held, (y != 1).astype(float))  # a class that the estimator does not know
