"""Models of CatBoost in files: the same predictions, and no damaged trees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe import CoresetEstimator, load_model, save_model
from tithe.core.errors import FileFormatError
from tithe.storage.catboost import catboost_from, catboost_text

catboost = pytest.importorskip("catboost")
OPTIONS: dict[str, Any] = {
    "iterations": 6,
    "depth": 4,
    "thread_count": 1,
    "verbose": False,
    "allow_writing_files": False,
}


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of numbers, of few categories (which are one-hot) and of many (which have tables)."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1500, 2)), columns=["a", "b"])
    many = rng.integers(0, 30, 1500)
    frame["many"], frame["few"] = [f"k{number}" for number in many], rng.choice(["u", "v"], 1500)
    return frame, np.digitize(frame.a + many % 5 + (frame.few == "u"), [1.5, 3.0])


def test_categories_classes_numbers_and_pipelines(rows, tmp_path) -> None:
    frame, y = rows
    models = [
        catboost.CatBoostClassifier(cat_features=["many", "few"], **OPTIONS).fit(frame, y),
        catboost.CatBoostClassifier(cat_features=["many", "few"], **OPTIONS).fit(frame, np.where(y > 0, "x", "y")),
        catboost.CatBoostRegressor(cat_features=["many", "few"], **OPTIONS).fit(frame, frame.a),
    ]
    for model in models:
        again = catboost_from(catboost_text(model))
        method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
        np.testing.assert_allclose(getattr(again, method)(frame), getattr(model, method)(frame), rtol=1e-13, atol=1e-15)
        assert type(again) is type(model) and again.feature_names_ == model.feature_names_
    pipeline = make_pipeline(StandardScaler(), catboost.CatBoostRegressor(**OPTIONS))
    X = frame[["a", "b"]].to_numpy()
    fitted = CoresetEstimator(pipeline, coreset_size=500, random_state=0).fit(X, X[:, 0])
    save_model(fitted, tmp_path / "model.tithe")
    np.testing.assert_allclose(load_model(tmp_path / "model.tithe").predict(X), fitted.predict(X), rtol=1e-13)


def test_damaged_trees_are_refused(rows) -> None:
    frame, y = rows
    content = json.loads(catboost_text(catboost.CatBoostClassifier(cat_features=[2, 3], **OPTIONS).fit(frame, y)))

    def refused(change: Any) -> None:
        damaged = json.loads(json.dumps(content))
        change(damaged, damaged["model"])
        with pytest.raises((FileFormatError, KeyError)):
            catboost_from(json.dumps(damaged).encode())

    splits = [split for tree in content["model"]["oblivious_trees"] for split in tree["splits"]]
    assert {split["split_type"] for split in splits} >= {"FloatFeature", "OnlineCtr"}
    table = next(iter(content["model"]["ctr_data"]))
    refused(lambda content, model: content.update({"class": "CatBoost"}))
    refused(lambda content, model: model["oblivious_trees"][0]["leaf_values"].pop())
    refused(lambda content, model: model["oblivious_trees"][0]["splits"][0].update({"split_index": 10**6}))
    refused(lambda content, model: model["oblivious_trees"][0]["splits"][0].update({"float_feature_index": 2}))
    refused(lambda content, model: model["features_info"]["float_features"].pop())
    refused(lambda content, model: model["ctr_data"][table]["hash_map"].pop())
    refused(lambda content, model: model["ctr_data"].pop(table))
    refused(lambda content, model: model["features_info"]["ctrs"][0].update({"target_border_idx": 9}))
    refused(lambda content, model: model["oblivious_trees"][0]["leaf_values"].__setitem__(0, float("nan")))
    refused(lambda content, model: model.update({"scale_and_bias": [float("inf"), [0.0]]}))


def test_settings_of_the_machine_are_not_those_of_a_file(rows, tmp_path) -> None:
    frame, y = rows
    content = json.loads(catboost_text(catboost.CatBoostClassifier(**OPTIONS).fit(frame[["a", "b"]], y)))
    hostile = {"thread_count": 10**6, "train_dir": str(tmp_path / "written"), "verbose": 1, "task_type": "GPU"}
    hostile |= {"allow_writing_files": True, "save_snapshot": True}
    content["parameters"] |= hostile
    content["model"]["model_info"]["params"]["flat_params"] |= hostile
    content["model"]["model_info"]["params"]["system_options"]["thread_count"] = 10**6
    loaded = catboost_from(json.dumps(content).encode()).get_params()
    assert not loaded["allow_writing_files"] and loaded["logging_level"] == "Silent"
    assert not loaded.keys() & {"thread_count", "train_dir", "save_snapshot", "task_type"}
    assert loaded["iterations"] == OPTIONS["iterations"] and not list(tmp_path.iterdir())


def test_what_cannot_be_checked_is_not_saved(rows) -> None:
    frame, y = rows
    with pytest.raises(ValueError, match="grow_policy"):
        catboost_text(catboost.CatBoostClassifier(grow_policy="Lossguide", **OPTIONS).fit(frame[["a", "b"]], y))
    with pytest.raises(ValueError, match="no number or text"):
        catboost_text(catboost.CatBoostRegressor(loss_function=object(), **OPTIONS))
