"""PACO as a clusterer of river, and rows whose features come and go."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tithe.online import PACO

river_base = pytest.importorskip("river.base")
from river import checks, compose, evaluate, metrics, preprocessing  # noqa: E402
from river.checks import common  # noqa: E402


def rows(n: int, names: str = "abcd", seed: int = 0) -> list[dict[str, float]]:
    """Three clusters, 10 apart in every feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(names))) + 10.0 * rng.integers(3, size=(n, 1))
    return [dict(zip(names, x.tolist(), strict=True)) for x in X]


@pytest.mark.slow
def test_it_is_a_clusterer_of_river_whichever_is_imported_first() -> None:
    code = """
import sys
import tithe
tithe.online.PACO
assert "river" not in sys.modules
import river.base
assert isinstance(tithe.online.PACO(), river.base.Clusterer)
for name in [name for name in sys.modules if name.partition(".")[0] == "tithe"]:
    del sys.modules[name]
import tithe  # again, now that river is there
assert isinstance(tithe.online.PACO(), river.base.Clusterer)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not isinstance(PACO(), river_base.Classifier)


def test_the_checks_of_river_pass() -> None:
    checks.check_estimator(PACO(random_state=0))


@pytest.mark.parametrize(
    "check",
    [
        "check_learn_one",
        "check_pickling",
        "check_shuffle_features_no_impact",
        "check_emerging_features",
        "check_disappearing_features",
        "check_radically_disappearing_features",
        "check_clone_is_independent",
        "check_bounded_memory_growth",
    ],
)
def test_the_checks_of_river_that_need_rows_pass(check: str) -> None:
    """`check_estimator` has no rows for clusterers."""
    dataset = [(x, None) for x in rows(100)]
    getattr(common, check)(PACO(6, summary_size=30, random_state=0), dataset=dataset)


def test_input_is_not_kept() -> None:
    common.check_no_state_aliasing_with_input(PACO(summary_size=None), dataset=[(x, None) for x in rows(2)])


@pytest.mark.parametrize("metric", ["Silhouette", "AdjustedRand"])
def test_progressive_validation(metric: str) -> None:
    dataset = [(x, round(x["a"] / 10.0)) for x in rows(200)]
    model = preprocessing.StandardScaler() | PACO(random_state=0)
    score = evaluate.progressive_val_score(dataset, model, getattr(metrics, metric)()).get()
    assert isinstance(model, compose.Pipeline) and model["PACO"].n_rows_ == 200
    assert score < 0.5 if metric == "Silhouette" else score > 0.1  # river's silhouette is better the smaller it is


def test_clone_takes_new_parameters_and_what_was_learned_if_asked() -> None:
    model = PACO(5, random_state=0)
    for x in rows(20):
        model.learn_one(x)
    assert model.clone({"max_clusters": 7}).max_clusters == 7
    assert not hasattr(model.clone(), "n_rows_")
    copied = model.clone(include_attributes=True)
    copied.learn_one(x)
    assert (model.n_rows_, copied.n_rows_) == (20, 21)
    assert model._raw_memory_usage > model.summary_.X.nbytes
    with pytest.raises(ValueError, match="make a clone"):
        model.mutate({"max_clusters": 7})


def test_centers_by_name() -> None:
    model = PACO(random_state=0).partial_fit(pd.DataFrame(rows(100)))
    expected = [dict(zip("abcd", row, strict=True)) for row in model.cluster_centers_]
    assert model.centers == dict(enumerate(expected))
    assert list(PACO(random_state=0).partial_fit(np.ones((5, 2))).centers[0]) == [0, 1]


@pytest.mark.parametrize("kernel", ["birth_death", "symmetric"])
def test_a_new_feature_was_zero_before(kernel: str) -> None:
    model = PACO(5, kernel=kernel, summary_size=40, random_state=0)
    for x in rows(150, "bc"):
        model.learn_one(x)
    model.learn_one({"c": 1.0, "b": 2.0, "a": 3.0})
    assert list(model.feature_names_in_) == ["b", "c", "a"] and model.n_features_in_ == 3
    held = model.summary_
    np.testing.assert_array_equal(held.X[:-1, 2], 0.0)
    np.testing.assert_array_equal(held.X[-1], [2.0, 1.0, 3.0])
    np.testing.assert_allclose(held.sample_weight.sum(), 151)
    model.learn_one({"b": 2.0})
    np.testing.assert_array_equal(model.summary_.X[-1], [2.0, 0.0, 0.0])
    assert model.predict_one({"b": 2.0, "unknown": 5.0}) == model.predict_one({"b": 2.0})


def test_clusters_along_a_new_feature_are_found() -> None:
    model = PACO(random_state=0, summary_size=200)
    rng = np.random.default_rng(0)
    for value in rng.normal(size=300):
        model.learn_one({"a": value})
    assert model.n_clusters_ == 1
    for value in rng.normal(size=300):
        model.learn_one({"a": value, "b": 20.0 + rng.normal()})
    assert model.n_clusters_ == 2
    assert model.predict_one({"a": 0.0}) != model.predict_one({"a": 0.0, "b": 20.0})


def test_a_row_with_a_new_feature_that_is_refused_leaves_nothing_behind() -> None:
    model = PACO(random_state=0)
    for x in rows(10):
        model.learn_one(x)
    for wrong in (1e300, float("nan")):
        with pytest.raises(ValueError, match=r"scale the rows|NaN"):
            model.learn_one({**x, "e": wrong})
    assert model.n_features_in_ == 4 and model.cluster_centers_.shape[1] == 4
    model.learn_one(x)


def test_a_stream_that_got_a_new_feature_is_resumed_bit_by_bit(tmp_path) -> None:
    model = PACO(4, summary_size=30, half_life=50.0, random_state=0)
    for x in rows(100, "ab"):
        model.learn_one(x)
    model.learn_one(rows(1, "abc")[0])
    model.checkpoint(tmp_path / "state")
    resumed = PACO.resume(tmp_path / "state")
    for x in rows(60, "abc", seed=1):
        for one in (model, resumed):
            one.learn_one(x)
    np.testing.assert_array_equal(model.cluster_centers_, resumed.cluster_centers_)
    np.testing.assert_array_equal(model.history_["loss"], resumed.history_["loss"])
