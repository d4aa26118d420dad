"""k-means, k-medians and online clustering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fingerprints import data
from fingerprints.models import fitted, in_batches, saved
from fingerprints.table import item, tried
from tithe import CoresetKMeans, CoresetKMedians, open_dataset
from tithe.online import PACO

SMALL: dict[str, Any] = {"coreset_size": 200, "random_state": 3}
KINDS: dict[str, Any] = {"kmeans": CoresetKMeans, "kmedians": CoresetKMedians}
CHOICES: dict[str, dict[str, Any]] = {
    "polish_0": {"polish": 0},
    "polish_3": {"polish": 3},
    "plain": {"calibrate": False},
    "all_rows": {"coreset_size": 5000},
    "random": {"init": "random", "n_init": 2},
    "rings": {"construction": "rings"},
    "uniform": {"construction": "uniform"},
    "lightweight": {"construction": "lightweight"},
    "given": {"init": data.clouds()[:4]},
    "serial": {"engine": "serial"},
}


def solution(model: Any) -> dict[str, Any]:
    parts = {"centers": model.cluster_centers_, "certificate": model.certificate_}
    return parts | {"inertia": model.inertia_, "coreset": model.coreset_}


def _enter(name: str) -> None:
    kind = KINDS[name]

    @item(f"{name}/fit", fast=True)
    def fit(folder: Path) -> dict[str, Any]:
        X = data.clouds()
        model = kind(4, **SMALL).fit(X)
        return fitted(model, X[:50]) | {"certify": model.certify(X)} | saved(model, X[:50], folder)

    @item(f"{name}/options")
    def of_options(folder: Path) -> dict[str, Any]:
        X, parts = data.clouds(), {}
        for key, options in CHOICES.items():
            parts[key] = tried(lambda o=options: solution(kind(4, **{**SMALL, **o}).fit(X)))
        return parts

    @item(f"{name}/weighted")
    def weighted(folder: Path) -> dict[str, Any]:
        X = data.clouds()
        model = kind(4, **SMALL).fit(X, sample_weight=data.weights())
        return fitted(model, X[:50]) | {"certify": model.certify(X, sample_weight=data.weights())}

    @item(f"{name}/partial_fit")
    def in_parts(folder: Path) -> dict[str, Any]:
        X = data.clouds()
        model = in_batches(kind(4, **SMALL, polish=0), X)
        return fitted(model, X[:50])

    @item(f"{name}/sparse")
    def of_sparse_rows(folder: Path) -> dict[str, Any]:
        X = data.few_entries()
        return fitted(kind(4, **SMALL).fit(X), X[:50])

    @item(f"{name}/file")
    def of_a_file(folder: Path) -> dict[str, Any]:
        data.table().to_parquet("rows.parquet", index=False, row_group_size=400)
        model = kind(3, **SMALL).fit(open_dataset("rows.parquet", weight="w"))
        return fitted(model) | {"predict": model.predict(data.table()[:50])}


for _name in KINDS:
    _enter(_name)


@item("kmeans/single_precision")
def single(folder: Path) -> dict[str, Any]:
    X = data.clouds().astype(np.float32)
    return fitted(CoresetKMeans(4, **SMALL).fit(X), X[:50])


@item("paco/presets")
def presets(folder: Path) -> dict[str, Any]:
    X, parts = data.clouds(300), {}
    for preset in ("practical", "theory"):
        for key, value in fitted(PACO(8, preset=preset, random_state=1).partial_fit(X), X[:50]).items():
            parts[f"{preset}_{key}"] = value
    return parts


@item("paco/options", fast=True)
def of_options(folder: Path) -> dict[str, Any]:
    X, parts = data.clouds(800), {}
    choices: dict[str, dict[str, Any]] = {
        "half_life": {"half_life": 200.0},
        "radius": {"radius": 60.0},
        "small_summary": {"summary_size": 50},
        "scale": {"temperature": 0.2},
    }
    for name, options in choices.items():
        model = PACO(10, random_state=2, **options).partial_fit(X)
        parts[name] = {"centers": model.cluster_centers_, "predict": model.predict(X[:50]), "n": model.n_clusters_}
    return parts


@item("paco/row_by_row")
def row_by_row(folder: Path) -> dict[str, Any]:
    X, model, seen = data.clouds(300), PACO(8, random_state=3), []
    for row in X:
        x = {f"c{j}": float(v) for j, v in enumerate(row)}
        seen.append(model.predict_one(x))
        model.learn_one(x)
    return {"predicted": seen, "centers": model.cluster_centers_}


@item("paco/checkpoint")
def resumed(folder: Path) -> dict[str, Any]:
    X = data.clouds(800)
    PACO(8, random_state=4).partial_fit(X[:500]).checkpoint(folder / "state")
    model = PACO.resume(folder / "state").partial_fit(X[500:])
    return fitted(model, X[:50]) | {"regret": tried(model.regret_bound)}
