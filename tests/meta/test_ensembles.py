"""`CoresetEstimator` with boosted trees of several libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from leaf_source import LeafSource
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import clone
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe import CoresetEstimator, CoresetSearchCV, load_model, save_model
from tithe.meta import ensembles
from tithe.meta.boosting import BoostingObjective
from tithe.meta.ensembles import best_rounds, diverged, ensemble_of, learning_objective, with_rounds
from tithe.meta.other_estimators import last_step

xgboost = pytest.importorskip("xgboost")
FAST: dict[str, Any] = {"n_estimators": 30, "num_leaves": 15, "verbosity": -1, "n_jobs": 1, "random_state": 0}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=20_000) > 1.0, "rare", "usual")


def trees(kind: str, n_rounds: int = 30) -> Any:
    if kind == "lightgbm":
        return LGBMClassifier(**{**FAST, "n_estimators": n_rounds})
    if kind == "xgboost":
        return xgboost.XGBClassifier(n_estimators=n_rounds, max_depth=4, n_jobs=1)
    if kind == "catboost":
        catboost = pytest.importorskip("catboost")
        return catboost.CatBoostClassifier(
            iterations=n_rounds, depth=4, verbose=False, thread_count=1, allow_writing_files=False
        )
    return HistGradientBoostingClassifier(max_iter=n_rounds, max_leaf_nodes=15, random_state=0)


KINDS = ["lightgbm", "xgboost", "histogram", "catboost"]


@pytest.mark.parametrize(
    ("estimator", "objective"),
    [
        (LGBMRegressor(), BoostingObjective(loss="squared_error")),
        (LGBMRegressor(objective="l1"), BoostingObjective(loss="absolute_error")),
        (LGBMRegressor(objective="quantile", alpha=0.7), BoostingObjective(loss="quantile", level=0.7)),
        (LGBMRegressor(objective="quantile"), BoostingObjective(loss="quantile", level=0.9)),
        (LGBMRegressor(objective="tweedie"), BoostingObjective(loss="poisson")),
        (LGBMRegressor(objective="huber"), BoostingObjective(loss="squared_error")),
        (HistGradientBoostingRegressor(loss="gamma"), BoostingObjective(loss="gamma")),
        (HistGradientBoostingRegressor(loss="quantile", quantile=0.2), BoostingObjective(loss="quantile", level=0.2)),
        (GradientBoostingRegressor(loss="quantile", alpha=0.3), BoostingObjective(loss="quantile", level=0.3)),
        (xgboost.XGBRegressor(objective="count:poisson"), BoostingObjective(loss="poisson")),
        (
            xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=0.1),
            BoostingObjective(loss="quantile", level=0.1),
        ),
        (
            xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=[0.1, 0.9]),
            BoostingObjective(loss="squared_error"),
        ),
        (make_pipeline(StandardScaler(), LGBMRegressor(objective="mae")), BoostingObjective(loss="absolute_error")),
    ],
)
def test_the_loss_is_that_of_the_learner(estimator, objective) -> None:
    assert learning_objective(estimator, "auto", 0) == objective


def test_losses_of_catboost() -> None:
    catboost = pytest.importorskip("catboost")
    for name, objective in (
        ("RMSE", BoostingObjective(loss="squared_error")),
        ("Quantile:alpha=0.8", BoostingObjective(loss="quantile", level=0.8)),
        ("Quantile", BoostingObjective(loss="quantile", level=0.5)),
        ("Tweedie:variance_power=1.5", BoostingObjective(loss="poisson")),
    ):
        assert learning_objective(catboost.CatBoostRegressor(loss_function=name), "auto", 0) == objective


def test_auto_is_boosting_for_boosted_trees_alone() -> None:
    assert learning_objective(LGBMClassifier(), "auto", 3) == BoostingObjective(classes=(0, 1, 2))
    assert learning_objective(LogisticRegression(), "auto", 3).name == "logistic"
    assert learning_objective(RandomForestClassifier(), "auto", 3).name == "logistic"
    assert learning_objective(Ridge(), "boosting", 0) == BoostingObjective(loss="squared_error")
    assert ensemble_of(xgboost.XGBClassifier(booster="gblinear")) is None


@pytest.mark.parametrize("kind", KINDS)
def test_weights_have_the_mean_of_all_rows(kind: str, rows) -> None:
    X, y = rows
    model = CoresetEstimator(trees(kind), coreset_size=2000, random_state=0).fit(X, y)
    coreset = model.coreset_
    assert coreset.provenance["construction"] == "pilot_gradient"
    weight = coreset.weights() * (len(coreset) / coreset.weights().sum())
    alone = trees(kind)
    labels = coreset.y if kind == "xgboost" else model.classes_[coreset.y]
    alone.fit(X[model.sample_indices_], labels, sample_weight=weight)
    np.testing.assert_array_equal(model.predict_proba(X[:100]), alone.predict_proba(X[:100]))
    assert model.summary()["row_worth"] > 2.0 and "worth up to" in model.summary()["what_a_row_is_worth"]


def test_it_is_better_than_a_uniform_sample(rows) -> None:
    X, y = rows
    model = CoresetEstimator(
        trees("lightgbm"), coreset_size=1500, validation_fraction=0.4, compare_uniform=True, random_state=0
    ).fit(X, y)
    loss, auc = model.held_out_scores_
    assert loss.value < loss.uniform and loss.difference[0] < loss.value - loss.uniform < loss.difference[1] < 0.0
    aside = model.validation_indices_
    chance = model.predict_proba(X[aside])
    assert loss.value == pytest.approx(log_loss(y[aside], chance))
    assert auc.value == pytest.approx(roc_auc_score(y[aside] == "usual", chance[:, 1]))
    assert loss.interval[0] < loss.value < loss.interval[1]
    assert model.certificate_ == model.certify(X, y) or "uniform" in model.certificate_.sentence
    assert model.certificate_.value == model.score(X[aside], y[aside])
    with pytest.raises(ValueError, match="validation_fraction above 0"):
        CoresetEstimator(Ridge(), compare_uniform=True, validation_fraction=0.0).fit(X, X[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_early_stopping_finds_rounds_on_a_weighted_slice(kind: str, rows) -> None:
    X, _ = rows
    y = np.where(np.random.default_rng(3).random(len(X)) < 1 / (1 + np.exp(-X[:, 0])), "a", "b")  # noisy labels
    options: dict[str, Any] = {"coreset_size": 1500, "random_state": 0}
    model = CoresetEstimator(trees(kind, 300), early_stopping=0.2, **options).fit(X, y)
    long = CoresetEstimator(trees(kind, 300), **options).fit(X, y)
    assert 1 <= model.n_rounds_ < 150 and long.n_rounds_ is None
    assert model.held_out_scores_[0].value < long.held_out_scores_[0].value
    again = CoresetEstimator(trees(kind, model.n_rounds_), **options)
    if kind != "histogram":  # whose own early stopping is off from here on
        np.testing.assert_array_equal(model.predict_proba(X), again.fit(X, y).predict_proba(X))


def test_the_slice_is_weighted_and_keeps_rare_classes() -> None:
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(2000, 1)), rng.integers(0, 2, 2000)
    y = np.where(np.arange(2000) < 1000, (X[:, 0] > 0).astype(int), noise)  # the first half can be learned
    y[-3:] = 2
    weight = np.where(np.arange(2000) < 1000, 1.0, 1e-9)
    found = [
        best_rounds(trees("lightgbm", 200), lambda at: X[at], y, w, 0.3, np.random.default_rng(1)).rounds
        for w in (weight, weight[::-1])
    ]
    assert found[0] > found[1]
    assert best_rounds(trees("lightgbm"), lambda at: X[at], y[:90], None, 0.2, np.random.default_rng(0)) is None


def test_where_a_slice_has_few_rows_others_are_set_aside_in_turn(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)  # nothing can be learned
    asides, counted = [], ensembles._LIGHTGBM.best_rounds

    def best(model: Any, train: tuple[Any, ...], aside: tuple[Any, ...]) -> int:
        asides.append(aside[0][:, 0])
        return counted(model, train, aside)

    monkeypatch.setattr(ensembles, "_LIGHTGBM", replace(ensembles._LIGHTGBM, best_rounds=best))
    stop = best_rounds(trees("lightgbm", 200), lambda at: X[at], y, None, 0.2, np.random.default_rng(0))
    assert stop.rounds < 20 and [len(aside) for aside in asides] in ([59] * 5, [60] * 5)
    assert len(np.unique(np.concatenate(asides))) == sum(map(len, asides))  # no row twice
    np.testing.assert_array_equal(np.sort(X[stop.aside, 0]), np.sort(asides[0]))


def test_trees_that_diverge_are_bounded_or_not_kept() -> None:
    """Leaves of LightGBM for a class of few rows, with small second derivatives, have no bound."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [2600, 1300, 60, 26])
    X = rng.normal(size=(len(y), 6)) + 5.0 * np.eye(6)[y]
    stop = best_rounds(trees("lightgbm", 60), lambda at: X[at], y, None, 0.2, np.random.default_rng(0))
    fitted = with_rounds(trees("lightgbm", 60), stop.rounds, stop.steadied).fit(X, y)
    assert not diverged(fitted, lambda at: X[at], y, None, stop)
    assert diverged(trees("lightgbm", 1).fit(X, y), lambda at: X[at], y, None, stop)

    bounded = trees("lightgbm", 60).set_params(max_delta_step=1.0)
    assert not best_rounds(bounded, lambda at: X[at], y, None, 0.2, np.random.default_rng(0)).steadied


def test_what_is_done_about_trees_that_diverge_is_said(rows, monkeypatch) -> None:
    X, y = rows
    options = {"coreset_size": 1500, "early_stopping": 0.2, "random_state": 0}
    plain = CoresetEstimator(trees("lightgbm", 20), **options).fit(X, y)

    def steadied(*arguments: Any) -> Any:
        return replace(best_rounds(*arguments), steadied={"max_delta_step": 1.0})

    with monkeypatch.context() as patch:
        patch.setattr("tithe.meta.estimator.best_rounds", steadied)
        with pytest.warns(UserWarning, match="bounded by max_delta_step=1"):
            bounded = CoresetEstimator(trees("lightgbm", 20), **options).fit(X, y)
    assert bounded.estimator_.get_params()["max_delta_step"] == 1.0
    monkeypatch.setattr("tithe.meta.estimator.diverged", lambda *arguments: True)
    with pytest.warns(UserWarning, match="Trees of the whole coreset diverge"):
        part = CoresetEstimator(trees("lightgbm", 20), **options).fit(X, y)
    kept = [model.estimator_.booster_.trees_to_dataframe()["count"].iloc[0] for model in (plain, part)]
    assert kept[1] == pytest.approx(0.8 * kept[0], abs=3)  # the rows that were not set aside


def test_pipelines_and_regressors_stop_early_and_others_are_refused(rows) -> None:
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), trees("lightgbm", 200))
    model = CoresetEstimator(pipeline, early_stopping=0.2, coreset_size=1500, random_state=0).fit(X, y)
    assert model.estimator_[-1].n_estimators == model.n_rounds_ < 200
    target = np.exp(X[:, 0]) + 0.1
    for regressor in (LGBMRegressor(**FAST, objective="poisson"), HistGradientBoostingRegressor(loss="gamma")):
        fitted = CoresetEstimator(regressor, early_stopping=0.2, coreset_size=1500, random_state=0).fit(X, target)
        assert fitted.held_out_scores_[0].name == "r2" and fitted.held_out_scores_[0].value > 0.7
    for other in (Ridge(), GradientBoostingRegressor()):
        with pytest.raises(ValueError, match="early_stopping"):
            CoresetEstimator(other, early_stopping=0.2).fit(X, target)


def test_from_a_source_with_a_certificate_and_in_a_file(rows, tmp_path) -> None:
    X, y = rows
    source = LeafSource.cut(X, y, at=[7000, 15_000])
    model = CoresetEstimator(trees("lightgbm"), coreset_size=1500, random_state=0).fit(source)
    assert model.certificate_.n_rows == pytest.approx(1000, rel=0.2)
    assert model.certificate_ == model.certify(source) == model.certify(X, y)
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.held_out_scores_ == model.held_out_scores_ and again.certificate_ == model.certificate_


@pytest.fixture(scope="module")
def frame() -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with gaps, a category, a text of few values and a date."""
    rng = np.random.default_rng(0)
    n = 6000
    city = rng.choice(["Graz", "Linz", "Wien"], n)
    day = pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    age = rng.normal(40.0, 10.0, n)
    score = (age - 40.0) / 5.0 + 2.0 * (city == "Graz") + (day.month > 6) - 1.0
    labels = np.where(score + rng.logistic(size=n) > 0, "yes", "no")
    age[::17] = np.nan
    return pd.DataFrame(
        {"age": age, "city": city, "kind": pd.Categorical(rng.choice(["a", "b"], n)), "day": day}
    ), labels


@pytest.mark.parametrize("kind", KINDS)
def test_frames_with_text_categories_dates_and_gaps(kind: str, frame, tmp_path) -> None:
    rows, labels = frame
    model = CoresetEstimator(trees(kind), coreset_size=1500, random_state=0).fit(rows, labels)
    assert model.held_out_scores_[1].value > 0.8
    names = model.estimator_.feature_names_ if kind == "catboost" else model.estimator_.feature_names_in_
    assert list(names)[:4] == ["age", "city", "kind", "day"]
    np.testing.assert_array_equal(model.predict(rows[["day", "kind", "city", "age"]][:50]), model.predict(rows[:50]))
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    tolerance = 1e-14 if kind == "catboost" else 0.0  # which writes decimal numbers
    np.testing.assert_allclose(again.predict_proba(rows), model.predict_proba(rows), rtol=tolerance, atol=tolerance)
    assert type(again.estimator) is type(model.estimator)
    chart = model.charts()[0]
    assert chart.values.sum() == pytest.approx(1.0) and chart.labels[0] in ("age", "city")


@pytest.mark.parametrize(
    "estimator",
    [
        LGBMClassifier(**FAST, class_weight="balanced"),
        LGBMClassifier(**FAST, is_unbalance=True),
        HistGradientBoostingClassifier(max_iter=30, class_weight="balanced", random_state=0),
        RandomForestClassifier(20, max_depth=5, class_weight="balanced_subsample", n_jobs=1, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")),
    ],
    ids=["lightgbm", "unbalance", "histogram", "forest", "pipeline"],
)
def test_balanced_classes_are_those_of_all_rows(estimator) -> None:
    """A coreset holds more rows of a rare class, of less weight: counting its rows would not make up for the class."""
    rng = np.random.default_rng(0)
    X, others = rng.normal(size=(20_000, 5)), rng.normal(size=(5000, 5))
    y = np.where(X[:, 0] + rng.logistic(size=20_000) > 3.3, "rare", "usual")
    model = CoresetEstimator(estimator, coreset_size=0.25, random_state=0).fit(X, y)
    chances = [fitted.predict_proba(others)[:, 0].mean() for fitted in (model, clone(estimator).fit(X, y))]
    assert chances[0] == pytest.approx(chances[1], abs=0.05)
    assert not last_step(model.estimator_)[1].get_params().get("class_weight")
    search = CoresetSearchCV(estimator, {}, coreset_size=0.25, cv=2, scoring="neg_log_loss", random_state=0).fit(X, y)
    halves = cross_val_score(estimator, X, y, cv=2, scoring="neg_log_loss")
    assert search.best_score_ == pytest.approx(halves.mean(), abs=0.1)


@pytest.mark.parametrize(
    "estimator",
    [
        LGBMClassifier(num_iterations=150, verbosity=-1, n_jobs=1),
        LGBMClassifier(n_estimators=150, metric="None", verbosity=-1, n_jobs=1),
        LGBMClassifier(n_estimators=150, early_stopping_round=5, verbosity=-1, n_jobs=1),
    ],
    ids=["another name", "no metric", "stops by itself"],
)
def test_early_stopping_whatever_the_parameters_are_called(rows, estimator) -> None:
    X, y = rows
    model = CoresetEstimator(estimator, coreset_size=2000, early_stopping=0.2, random_state=0).fit(X, y)
    assert 1 <= model.n_rounds_ < 150 and model.estimator_.booster_.num_trees() == model.n_rounds_


def test_early_stopping_of_catboost_by_another_name(rows) -> None:
    catboost = pytest.importorskip("catboost")
    options: dict[str, Any] = {"use_best_model": True, "early_stopping_rounds": 5}  # which need rows set aside
    estimator = catboost.CatBoostClassifier(
        n_estimators=60, depth=4, verbose=False, thread_count=1, allow_writing_files=False, **options
    )
    model = CoresetEstimator(estimator, coreset_size=2000, early_stopping=0.2, random_state=0).fit(*rows)
    assert model.estimator_.tree_count_ == model.n_rounds_ <= 60


def test_a_search_over_a_learner_of_trees_draws_for_trees(rows) -> None:
    """Early stopping gets into a search that way."""
    X, y = rows
    inner = CoresetEstimator(LGBMClassifier(**FAST), early_stopping=0.2, random_state=0)
    search = CoresetSearchCV(inner, {"estimator__num_leaves": [7, 15]}, cv=2, random_state=0).fit(X, y)
    assert isinstance(search.coresets_[0].objective, BoostingObjective) and 4000 < len(search.coresets_[0]) <= 5000


def test_several_quantiles_at_once_have_no_score(rows) -> None:
    X, _ = rows
    estimator = xgboost.XGBRegressor(objective="reg:quantileerror", quantile_alpha=np.array([0.1, 0.8]), n_estimators=5)
    model = CoresetEstimator(estimator, coreset_size=2000, random_state=0).fit(X, X[:, 0])
    assert model.certificate_ is None and model.predict(X[:3]).shape == (3, 2)
