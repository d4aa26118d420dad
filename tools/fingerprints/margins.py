"""Optimal margin distribution machines: kernels, lines, parts, deletion, search, clusters, few labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_moons

from fingerprints import data
from fingerprints.models import fitted, in_batches, saved
from fingerprints.table import item
from tithe.odm import (
    CoresetSVRG,
    IncrementalODMClassifier,
    LabelSearch,
    LinearODMClassifier,
    ODMClassifier,
    ODMClassifierCV,
    ODMClustering,
    PartitionSolver,
    SemiSupervisedODMClassifier,
)

LINEAR: dict[str, dict[str, Any]] = {
    **{f"solver_{s}": {"solver": s} for s in ("newton", "dcd", "svrg", "saga")},
    "solver_coreset_svrg": {"solver": CoresetSVRG()},
    "coreset": {"coreset_size": 300},
    "coreset_polish_0": {"coreset_size": 300, "polish": 0},
    "coreset_sensitivity": {"coreset_size": 300, "construction": "sensitivity"},
    "coreset_ball_cover": {"coreset_size": 300, "construction": "ball_cover"},
    "balanced": {"class_weight": "balanced"},
    "no_intercept": {"fit_intercept": False},
    "exact": {"tol": 1e-8},
}
KERNEL: dict[str, dict[str, Any]] = {
    **{f"kernel_{k}": {"kernel": k} for k in ("linear", "poly", "laplacian")},
    "balanced": {"class_weight": "balanced"},
    "parts": {"solver": PartitionSolver(n_parts=3)},
    "no_intercept": {"fit_intercept": False},
    "gamma": {"gamma": 0.5, "lam": 10.0},
    "small_cache": {"cache_size": 0.5},
}


def moons(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    return make_moons(n, noise=0.2, random_state=0)


def several(n: int = 240) -> tuple[np.ndarray, np.ndarray]:
    X, y = data.three_classes()
    return X[:n], y[:n]


@item("odm/rbf", fast=True)
def rbf(folder: Path) -> dict[str, Any]:
    X, y = moons()
    model = ODMClassifier(random_state=0).fit(X, y)
    parts = fitted(model, X[:50]) | saved(model, X[:50], folder)
    parts |= {"leave_one_out": model.leave_one_out(X, y), "n_fold": model.n_fold(X, y, 4)}
    margins = model.margin_distribution(X, y)
    return parts | {"margins": [margins.mean, margins.variance, margins.semi_variance, margins.quantiles]}


@item("odm/three_classes")
def three(folder: Path) -> dict[str, Any]:
    X, y = several()
    return fitted(ODMClassifier(random_state=0).fit(X, y), X[:50])


@item("odm/weighted")
def weighted(folder: Path) -> dict[str, Any]:
    X, y = moons()
    return fitted(ODMClassifier(random_state=0).fit(X, y, data.weights(200)), X[:50])


def _entered(prefix: str, kind: Any, choices: dict[str, dict[str, Any]], rows: Any) -> None:
    for name, options in choices.items():

        @item(f"{prefix}/{name}")
        def fit(folder: Path, options: dict[str, Any] = options) -> dict[str, Any]:
            X, y = rows()
            return fitted(kind(**{"random_state": 0, **options}).fit(X, y), X[:50])


_entered("odm", ODMClassifier, KERNEL, moons)
_entered("linear_odm", LinearODMClassifier, LINEAR, data.two_classes)


@item("linear_odm/fit", fast=True)
def line(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = LinearODMClassifier(random_state=0).fit(X, y)
    parts = fitted(model, X[:50]) | {"certify": model.certify(X, y)} | saved(model, X[:50], folder)
    margins = model.margin_distribution(X, y)
    return parts | {"margins": [margins.mean, margins.variance, margins.semi_variance, margins.quantiles]}


@item("linear_odm/three_classes")
def lines(folder: Path) -> dict[str, Any]:
    X, y = data.three_classes()
    parts = fitted(LinearODMClassifier(random_state=0).fit(X, y), X[:50])
    few = LinearODMClassifier(coreset_size=300, random_state=0).fit(X, y)
    return parts | {"coreset": [few.coef_, few.intercept_, few.coreset_]}


@item("linear_odm/sparse_and_weighted")
def sparse_lines(folder: Path) -> dict[str, Any]:
    X, y = data.few_entries(), data.two_classes()[1]
    parts = {"sparse": fitted(LinearODMClassifier(random_state=0).fit(X, y), X[:50])}
    X = data.two_classes()[0]
    return parts | {"weighted": fitted(LinearODMClassifier(random_state=0).fit(X, y, data.weights()), X[:50])}


@item("linear_odm/partial_fit")
def lines_in_parts(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    model = LinearODMClassifier(coreset_size=300, polish=0, random_state=0)
    return fitted(in_batches(model, X, y, classes=[0, 1]), X[:50])


@item("incremental_odm", fast=True)
def incremental(folder: Path) -> dict[str, Any]:
    X, y = moons()
    model = IncrementalODMClassifier().fit(X[:100], y[:100])
    parts: dict[str, Any] = {"fit": fitted(model, X[:50])}
    model.partial_fit(X[100:150], y[100:150])
    parts["more"] = {"decisions": model.decision_function(X), "gap": model.gap_, "rows": model.row_ids_}
    model.forget([3, 5, 120])
    parts["less"] = {"decisions": model.decision_function(X), "bound": model.error_bound(X[:20])}
    told = model.unlearning_
    parts["unlearning"] = [told.row_ids, told.n_rows, told.gap, told.tolerance, told.for_all_rows]
    model.update(X[150:], y[150:], forget=[0, 1])
    parts["both"] = model.decision_function(X)
    return parts | {"rescaled": model.rescale(500.0).decision_function(X)}


@item("odm_cv")
def search(folder: Path) -> dict[str, Any]:
    X, y = moons(120)
    parts = {"two": fitted(ODMClassifierCV(5, random_state=0).fit(X, y), X[:50])}
    X, y = several(150)
    return parts | {"three": fitted(ODMClassifierCV(3, cv=3, random_state=0).fit(X, y), X[:50])}


@item("odm_clustering")
def clusters(folder: Path) -> dict[str, Any]:
    X, _ = moons(80)
    few = {"search": LabelSearch(max_cuts=4, n_restarts=2), "random_state": 0}
    parts = {"two": fitted(ODMClustering(**few).fit(X), X[:50])}
    linked = ODMClustering(must_link=[(0, 1), (2, 3)], cannot_link=[(0, 4)], **few).fit(X)
    parts["links"] = fitted(linked, X[:50])
    parts["coreset"] = fitted(ODMClustering(coreset_size=40, kernel="linear", **few).fit(X), X[:50])
    return parts


@item("odm_clustering/three_clusters")
def more_clusters(folder: Path) -> dict[str, Any]:
    X = data.clouds()[:80]
    return fitted(ODMClustering(3, search=LabelSearch(max_cuts=4, n_restarts=2), random_state=0).fit(X), X[:50])


@item("odm_semi")
def few_labels(folder: Path) -> dict[str, Any]:
    X, y = moons(80)
    given = np.where(np.arange(80) < 14, y, -1)
    few = {"search": LabelSearch(max_cuts=4, n_restarts=2), "random_state": 0}
    parts = {"two": fitted(SemiSupervisedODMClassifier(**few).fit(X, given), X[:50])}
    other = SemiSupervisedODMClassifier(safe=False, balance=None, kernel="linear", coreset_size=50, **few)
    return parts | {"unsafe": fitted(other.fit(X, given), X[:50])}


@item("odm_semi/three_classes")
def few_labels_of_three(folder: Path) -> dict[str, Any]:
    X, y = several(45)
    given = np.where(np.arange(45) < 15, np.unique(y, return_inverse=True)[1], -1)
    few = {"search": LabelSearch(max_cuts=2, n_restarts=1), "random_state": 0}
    return fitted(SemiSupervisedODMClassifier(cannot_link=[(30, 31)], **few).fit(X, given), X[:50])
