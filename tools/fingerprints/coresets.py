"""Constructions with the objectives that they work with, merging, sizes and distortion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import tithe
from fingerprints import data
from fingerprints.table import item, tried
from tithe import build_coreset, constructions, objectives, theory

OBJECTIVES: dict[str, Any] = {
    "kmeans": (objectives.KMeansObjective(n_clusters=4), lambda: (data.clouds(), None)),
    "kmedian": (objectives.KMedianObjective(n_clusters=4), lambda: (data.clouds(), None)),
    "logistic": (objectives.LogisticObjective(), data.two_classes),
    "logistic3": (objectives.LogisticObjective(), data.three_classes),
    "margin": (objectives.MarginObjective(), data.two_classes),
    "least_squares": (objectives.LeastSquaresObjective(), data.numbers),
    "huber": (objectives.HuberObjective(), data.numbers),
    "poisson": (objectives.PoissonObjective(), data.counts),
    "dictionary": (objectives.DictionaryObjective(n_components=6), lambda: (data.signals(), None)),
    "generic": (objectives.GenericObjective(), data.numbers),
}
CONSTRUCTIONS: dict[str, Any] = {
    "auto": "auto",
    "uniform": constructions.Uniform(),
    "sensitivity": constructions.Sensitivity(),
    "lightweight": constructions.Lightweight(),
    "rings": constructions.Rings(),
    "influence": constructions.Influence(),
    "leverage": constructions.Leverage(),
    "cablr": constructions.Cablr(),
    "acvs": constructions.Acvs(),
    "regressed": constructions.Regressed(),
    "ball_cover": constructions.BallCover(),
}
VARIANTS: dict[str, tuple[str, Any]] = {
    "regressed_ridge": ("logistic", constructions.Regressed(regressor="ridge", norm_feature=True)),
    "regressed_log": ("kmeans", constructions.Regressed(log=True, mix=0.3)),
    "cablr_radius": ("logistic", constructions.Cablr(radius=2.0, n_clusters=3, certified=False)),
    "acvs_sample": ("logistic", constructions.Acvs(sample_size=400, radius=3.0)),
    "ball_cover_leader": ("margin", constructions.BallCover(radius=2.0, leader=True)),
    "rings_each": ("kmeans", constructions.Rings(per_ring=5, alpha=2.0)),
}


def built(objective: str, construction: Any, **options: Any) -> tithe.Coreset:
    goal, rows = OBJECTIVES[objective]
    X, y = rows()
    options = {"coreset_size": 150, "random_state": 3, **options}
    return build_coreset(X, y, objective=goal, construction=construction, **options)


def built_of_each(construction: Any, goals: Iterable[str], **options: Any) -> dict[str, Any]:
    """A coreset for each objective; those that the construction refuses make one part."""
    results = {goal: tried(lambda goal=goal: built(goal, construction, **options)) for goal in goals}
    refused = {goal: result for goal, result in results.items() if isinstance(result, str)}
    return {goal: result for goal, result in results.items() if goal not in refused} | {"refused": refused}


def _enter(name: str, construction: Any) -> None:
    @item(f"build/{name}", fast=name in ("auto", "uniform", "sensitivity"))
    def builds(folder: Path) -> dict[str, Any]:
        return built_of_each(construction, OBJECTIVES)

    @item(f"build-plain/{name}")
    def plain_builds(folder: Path) -> dict[str, Any]:
        goals = [goal for goal in OBJECTIVES if goal != "logistic3"]
        return built_of_each(construction, goals, calibrate=False, random_state=11)


for _name, _construction in CONSTRUCTIONS.items():
    _enter(_name, _construction)


@item("build/variants")
def variants(folder: Path) -> dict[str, Any]:
    return {name: tried(lambda g=goal, c=construction: built(g, c)) for name, (goal, construction) in VARIANTS.items()}


@item("build/weighted")
def weighted(folder: Path) -> dict[str, Any]:
    goals = [goal for goal in OBJECTIVES if goal != "dictionary"]
    return built_of_each("auto", goals, sample_weight=data.weights())


@item("build/sparse")
def of_sparse_rows(folder: Path) -> dict[str, Any]:
    X, y = data.few_entries(), data.two_classes()[1]
    options: dict[str, Any] = {"coreset_size": 200, "random_state": 5}
    ways = ("auto", "uniform", "leverage", "influence", "cablr")
    parts = {
        way: tried(lambda w=way: build_coreset(X, y, objective="logistic", construction=w, **options)) for way in ways
    }
    goal = OBJECTIVES["kmeans"][0]
    for way in ("auto", "sensitivity", "lightweight", "rings"):
        parts[f"kmeans_{way}"] = tried(lambda w=way: build_coreset(X, objective=goal, construction=w, **options))
    return parts


@item("build/single_precision")
def of_single_precision(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    X32 = X.astype(np.float32)
    parts = {goal: build_coreset(X32, y, objective=goal, coreset_size=100, random_state=1) for goal in ("logistic",)}
    return parts | {"kmeans": build_coreset(X32, objective="kmeans", coreset_size=100, random_state=1)}


@item("build/many_leaves")
def of_many_leaves(folder: Path) -> dict[str, Any]:
    """Rows of several leaves of the tree, by two engines, with one and two threads."""
    X = data.clouds(300_000, 3)
    goal = objectives.KMeansObjective(n_clusters=5)
    options: dict[str, Any] = {"objective": goal, "coreset_size": 300, "random_state": 7}
    serial, threads = tithe.engines.SerialEngine(), tithe.engines.ThreadEngine(2)
    parts = {
        "serial": build_coreset(X, engine=serial, **options),
        "threads": build_coreset(X, engine=threads, **options),
    }
    return parts | {way: build_coreset(X, construction=way, **options) for way in ("uniform", "lightweight", "rings")}


@item("build/sizes_and_seeds", fast=True)
def sizes_and_seeds(folder: Path) -> dict[str, Any]:
    parts = {f"size_{size}": built("kmeans", "auto", coreset_size=size) for size in (1, 20, 0.1, 2999, 4000)}
    parts |= {f"seed_{seed}": built("logistic", "auto", random_state=seed) for seed in (0, 1, 12345)}
    pilot = built("kmeans", "auto").pilot
    return parts | {"pilot": built("kmeans", "auto", pilot=pilot, random_state=8)}


@item("merge", fast=True)
def merged(folder: Path) -> dict[str, Any]:
    goal, X = objectives.KMeansObjective(n_clusters=4), data.clouds()
    first = build_coreset(X[:2000], objective=goal, coreset_size=200, random_state=1)
    other = build_coreset(X[2000:], objective=goal, coreset_size=100, random_state=2)
    same = build_coreset(X[2000:], objective=goal, coreset_size=100, random_state=2, pilot=first.pilot)
    parts = {"all": tithe.merge_coresets([first, other], random_state=4)}
    parts["reduced"] = tithe.merge_coresets([first, other], coreset_size=120, random_state=3)
    parts["same_pilot"] = tithe.merge_coresets([first, same], coreset_size=120, random_state=3)
    tithe.save_coreset(first, folder / "first.parquet")
    tithe.save_coreset(other, folder / "other.parquet")
    return parts | {"files": tithe.merge_coresets([folder / "first.parquet", folder / "other.parquet"], random_state=4)}


@item("distortion")
def distortions(folder: Path) -> dict[str, Any]:
    parts = {}
    for name in ("kmeans", "logistic", "least_squares", "poisson", "huber", "margin", "dictionary"):
        goal, rows = OBJECTIVES[name]
        X, y = rows()
        full = tithe.Block(X=X, y=None if y is None else y.astype(np.float64))
        coreset = built(name, "auto")
        options = {"n_bases": 2, "n_fits": 1, "climb": 5}
        parts[name] = tried(lambda f=full, c=coreset, g=goal, o=options: dict(tithe.distortion(f, c, g, **o).values))
    return parts


@item("propose_size")
def proposed(folder: Path) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name in ("kmeans", "logistic", "least_squares"):
        goal, rows = OBJECTIVES[name]
        X, y = rows()
        for promise in ("costs", "fit"):
            options = {"objective": goal, "eps": 0.1, "promise": promise, "pilot_size": 500}
            parts[f"{name}_{promise}"] = tried(lambda X=X, y=y, o=options: tithe.propose_size(X, y, **o))
    return parts


@item("theory", fast=True)
def theoretical_sizes(folder: Path) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for goal in ("kmeans", "kmedian", "logistic", "margin", "dictionary"):
        for way in CONSTRUCTIONS:
            for queries in ("all", "one"):
                parts[f"{goal}_{way}_{queries}"] = tried(lambda g=goal, w=way, q=queries: _theory_of(g, w, q))
    X, y = data.two_classes()
    total = theory.measured_total_sensitivity(X, y, objective="logistic")
    equal = theory.rows_of_equal_weight(tithe.Block(X=X))
    return {"sizes": parts, "measured": total, "equal": equal}


def _theory_of(goal: str, way: str, queries: str) -> Any:
    options: dict[str, Any] = {"n_features": 6, "construction": way, "n_rows": 10_000, "queries": queries}
    if goal in ("logistic", "margin"):
        options["total_sensitivity"] = 40.0
    bound = theory.theoretical_size(goal, 0.2, **options)
    return {"size": bound.size, "constant": bound.constant, "eps": theory.eps_for(goal, 5000, **options)}


@item("choose_k")
def choices(folder: Path) -> dict[str, Any]:
    X, parts = data.clouds(), {}
    rules: dict[str, dict[str, Any]] = {
        "separation": {},
        "relative": {"rule": "relative", "eta": 0.1},
        "budget": {"rule": "budget", "budget": 20_000.0},
        "penalty": {"rule": "penalty", "penalty": 500.0},
        "median": {"rule": "penalty", "penalty": 500.0, "objective": "kmedian"},
        "weighted": {"sample_weight": data.weights()},
    }
    for name, options in rules.items():
        curve = tithe.choose_k(X, max_clusters=8, coreset_size=400, random_state=4, **options)
        centers = curve.centers[curve.k]
        parts[name] = {"k": curve.k, "costs": curve.curve, "centers": centers, "coreset": curve.coreset}
    return parts


@item("compare")
def comparison(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    results = tithe.compare(X, y, objective="logistic", sizes=(50, 200), n_repeats=2, random_state=1)
    rows = [{k: v for k, v in row.items() if "second" not in k and "time" not in k} for row in results.table]
    return {"keys": sorted({k for row in results.table for k in row}), "table": rows}
