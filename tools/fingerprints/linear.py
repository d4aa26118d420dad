"""Logistic regression, ridge, Poisson and Huber regression; wrapped estimators and searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import tithe
from fingerprints import data
from fingerprints.models import fitted, in_batches, saved
from fingerprints.table import item, tried
from tithe import (
    CoresetEstimator,
    CoresetHuberRegressor,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
    CoresetSearchCV,
    open_dataset,
)

SMALL: dict[str, Any] = {"coreset_size": 200, "random_state": 3}
REGRESSIONS: dict[str, Any] = {
    "ridge": (CoresetRidge, data.numbers),
    "huber": (CoresetHuberRegressor, data.numbers),
    "poisson": (CoresetPoissonRegressor, data.counts),
}
LOGISTIC: dict[str, dict[str, Any]] = {
    "polish_0": {"polish": 0},
    "polish_3": {"polish": 3},
    "weak_penalty": {"C": 100.0},
    "no_intercept": {"fit_intercept": False},
    "balanced": {"class_weight": "balanced"},
    "plain": {"calibrate": False, "polish": 0},
    "all_rows": {"coreset_size": 5000},
    "exact": {"tol": 1e-8, "polish": 30},
    "uniform": {"construction": "uniform"},
    "influence": {"construction": "influence"},
    "leverage": {"construction": "leverage"},
    "cablr": {"construction": "cablr", "polish": 0},
    "acvs": {"construction": "acvs", "polish": 0},
    "regressed": {"construction": "regressed", "polish": 0},
    "serial": {"engine": "serial", "n_jobs": 1},
}


def logistic(**options: Any) -> CoresetLogisticRegression:
    return CoresetLogisticRegression(**{**SMALL, **options})


def solution(model: Any) -> dict[str, Any]:
    parts = {"coef": model.coef_, "intercept": model.intercept_, "n_iter": model.n_iter_}
    return parts | {"certificate": model.certificate_, "coreset": model.coreset_}


@item("logistic/two_classes", fast=True)
def two(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = logistic().fit(X, y)
    return fitted(model, X[:50]) | {"certify": model.certify(X, y)} | saved(model, X[:50], folder)


@item("logistic/three_classes", fast=True)
def three(folder: Path) -> dict[str, Any]:
    X, y = data.three_classes()
    model = logistic().fit(X, y)
    return fitted(model, X[:50]) | {"certify": model.certify(X, y)} | saved(model, X[:50], folder)


@item("logistic/sparse")
def of_sparse_rows(folder: Path) -> dict[str, Any]:
    X, y = data.few_entries(), data.two_classes()[1]
    return fitted(logistic().fit(X, y), X[:50])


@item("logistic/weighted")
def weighted(folder: Path) -> dict[str, Any]:
    X, y = data.three_classes()
    model = logistic().fit(X, y, data.weights())
    return fitted(model, X[:50]) | {"certify": model.certify(X, y, data.weights())}


@item("logistic/options")
def of_options(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    parts = {}
    for name, options in LOGISTIC.items():
        parts[name] = tried(lambda o=options: solution(logistic(**o).fit(X, y)))
    return parts


@item("logistic/options_of_three_classes")
def of_options_of_three(folder: Path) -> dict[str, Any]:
    X, y = data.three_classes()
    parts = {}
    for name in ("polish_0", "polish_3", "no_intercept", "balanced", "all_rows", "influence", "exact"):
        parts[name] = tried(lambda o=LOGISTIC[name]: solution(logistic(**o).fit(X, y)))
    return parts


@item("logistic/warm_start")
def warm(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = logistic(warm_start=True).fit(X, y)
    return fitted(model.set_params(C=10.0).fit(X, y), X[:50])


@item("logistic/partial_fit", fast=True)
def in_parts(folder: Path) -> dict[str, Any]:
    X, y = data.three_classes()
    model = in_batches(logistic(polish=0), X, y, classes=np.unique(y))
    parts = fitted(model, X[:50])
    return parts | {"goes_on": fitted(in_batches(model, X[:900] + 1.0, y[:900]), X[:50])["coef_"]}


@item("logistic/file")
def of_a_file(folder: Path) -> dict[str, Any]:
    data.table().to_csv("rows.csv", index=False)
    source = open_dataset("rows.csv", target="label", weight="w")
    model = logistic().fit(source)
    return fitted(model) | {"predict": model.predict(data.table()[:50])}


@item("logistic/frame")
def of_a_frame(folder: Path) -> dict[str, Any]:
    frame = data.table(gaps=False)
    rows = frame[["a", "b", "n"]]
    return fitted(logistic().fit(rows, frame["label"]), rows[:50])


def _regression(name: str) -> None:
    kind, rows = REGRESSIONS[name]

    @item(f"{name}/fit", fast=True)
    def fit(folder: Path) -> dict[str, Any]:
        X, y = rows()
        model = kind(**SMALL).fit(X, y)
        return fitted(model, X[:50]) | {"certify": model.certify(X, y)} | saved(model, X[:50], folder)

    @item(f"{name}/options")
    def of_options(folder: Path) -> dict[str, Any]:
        X, y = rows()
        parts: dict[str, Any] = {"weighted": kind(**SMALL).fit(X, y, data.weights()).coef_}
        choices: dict[str, dict[str, Any]] = {
            "polish_0": {"polish": 0},
            "polish_3": {"polish": 3},
            "strong": {"alpha": 10.0},
            "no_intercept": {"fit_intercept": False},
            "all_rows": {"coreset_size": 5000},
            "uniform": {"construction": "uniform", "calibrate": False},
            "leverage": {"construction": "leverage"},
            "influence": {"construction": "influence"},
        }
        for key, options in choices.items():
            parts[key] = tried(lambda o=options: solution(kind(**{**SMALL, **o}).fit(X, y)))
        return parts

    @item(f"{name}/partial_fit")
    def in_parts(folder: Path) -> dict[str, Any]:
        X, y = rows()
        return fitted(in_batches(kind(**SMALL, polish=0), X, y), X[:50])

    @item(f"{name}/sparse")
    def of_sparse_rows(folder: Path) -> dict[str, Any]:
        X = data.few_entries()
        return fitted(kind(**SMALL).fit(X, rows()[1]), X[:50])


for _name in REGRESSIONS:
    _regression(_name)


@item("huber/epsilon")
def epsilons(folder: Path) -> dict[str, Any]:
    X, y = data.numbers()
    models = {f"{e}": CoresetHuberRegressor(e, **SMALL).fit(X, y) for e in (1.01, 1.5, 3.0)}
    return {name: [model.coef_, model.intercept_] for name, model in models.items()}


WRAPPED: dict[str, Any] = {
    "logistic": (lambda: LogisticRegression(), "classes", {"objective": "logistic"}),
    "ridge": (lambda: Ridge(), "numbers", {"objective": "least_squares"}),
    "tree": (lambda: DecisionTreeClassifier(max_depth=4, random_state=0), "classes", {}),
    "boosting": (lambda: HistGradientBoostingClassifier(max_iter=3, random_state=0), "classes", {}),
    "forest": (lambda: RandomForestRegressor(10, max_depth=5, random_state=0), "numbers", {}),
    "bayes": (lambda: GaussianNB(), "classes", {"objective": "generic"}),
    "kmeans": (lambda: KMeans(3, n_init=2, random_state=0), "classes", {"objective": "kmeans"}),
    "pipeline": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), "classes", {}),
}
OF_ESTIMATOR = ("coreset_", "classes_", "validation_indices_", "n_features_in_")


def _wrapped(name: str) -> None:
    make, rows, options = WRAPPED[name]

    @item(f"estimator/{name}")
    def fit(folder: Path) -> dict[str, Any]:
        X, y = data.two_classes() if rows == "classes" else data.numbers()
        model = CoresetEstimator(make(), **{**SMALL, **options}).fit(X, y)
        return fitted(model, X[:50], OF_ESTIMATOR)


for _name in WRAPPED:
    _wrapped(_name)


@item("estimator/partial_fit")
def wrapped_in_parts(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = CoresetEstimator(LogisticRegression(), **SMALL)
    return fitted(in_batches(model, X, y, classes=[0, 1]), X[:50], OF_ESTIMATOR)


@item("estimator/certify")
def wrapped_certified(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = CoresetEstimator(LogisticRegression(), objective="logistic", **SMALL).fit(X, y)
    held = CoresetEstimator(LogisticRegression(), validation_fraction=0.2, **SMALL).fit(X, y, data.weights())
    return {"logistic": model.certify(X, y), "held_out": fitted(held, X[:50], OF_ESTIMATOR)}


SEARCHED = ("best_index_", "best_score_", "best_params_", "n_splits_", "coresets_", "certificate_")


def searched(model: CoresetSearchCV, rows: Any) -> dict[str, Any]:
    results = {k: v for k, v in model.cv_results_.items() if "time" not in k and k != "params"}
    return fitted(model, rows, SEARCHED) | {"results": results}


@item("search/logistic")
def search_logistic(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = CoresetSearchCV(CoresetLogisticRegression(), {"C": [0.01, 1.0, 100.0]}, cv=3, **SMALL)
    return searched(model.fit(X, y), X[:50])


@item("search/other")
def search_others(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    trees = {"max_depth": [2, 5], "min_samples_leaf": [1, 20]}
    model = CoresetSearchCV(DecisionTreeClassifier(random_state=0), trees, cv=3, return_train_score=True, **SMALL)
    parts = {"tree": searched(model.fit(X, y), X[:50])}
    model = CoresetSearchCV(LogisticRegression(), {"C": [0.1, 10.0]}, scoring=["accuracy", "roc_auc"], refit="roc_auc")
    parts["metrics"] = searched(model.set_params(**SMALL).fit(X, y, data.weights()), X[:50])
    X, y = data.numbers()
    drawn = CoresetSearchCV(CoresetRidge(), {"alpha": np.logspace(-3, 3, 20)}, n_iter=4, cv=3, **SMALL)
    return parts | {"drawn": searched(drawn.fit(X, y), X[:50])}


@item("search/kmeans")
def search_kmeans(folder: Path) -> dict[str, Any]:
    X = data.clouds()
    model = CoresetSearchCV(tithe.CoresetKMeans(random_state=0), {"n_clusters": [2, 4, 6]}, cv=3, **SMALL)
    return searched(model.fit(X), X[:50])
