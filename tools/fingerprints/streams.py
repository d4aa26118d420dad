"""Streams: trees of small leaves, windows, fading rows, deletion, forks, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fingerprints import data
from fingerprints.coresets import OBJECTIVES
from fingerprints.table import item, tried
from tithe import CoresetStream
from tithe.objectives import LogisticObjective, MarginObjective

KNOWN: dict[str, Any] = {"logistic": LogisticObjective(classes=(0, 1)), "margin": MarginObjective(classes=(0, 1))}


def stream(objective: str = "kmeans", construction: str = "auto", **options: Any) -> CoresetStream:
    goal = KNOWN.get(objective, OBJECTIVES[objective][0])
    return CoresetStream(goal, construction, **{"coreset_size": 120, "leaf_size": 500, "random_state": 6, **options})


def fed(into: CoresetStream, objective: str = "kmeans", step: int = 370, weighted: bool = False) -> CoresetStream:
    X, y = OBJECTIVES[objective][1]()
    for i in range(0, len(X), step):
        w = data.weights()[i : i + step][: len(X) - i] if weighted else None
        into.push(X[i : i + step], None if y is None else y[i : i + step], w)
    return into


@item("stream/objectives", fast=True)
def of_objectives(folder: Path) -> dict[str, Any]:
    names = [name for name in OBJECTIVES if name != "logistic3"]
    return {name: tried(lambda n=name: fed(stream(n), n).coreset()) for name in names}


@item("stream/constructions")
def of_constructions(folder: Path) -> dict[str, Any]:
    ways = ("uniform", "sensitivity", "lightweight", "rings")
    parts = {way: fed(stream("kmeans", way)).coreset() for way in ways}
    for way in ("uniform", "influence", "leverage", "cablr", "acvs", "regressed"):
        parts[f"logistic_{way}"] = tried(lambda w=way: fed(stream("logistic", w), "logistic").coreset())
    return parts | {"ball_cover": fed(stream("margin", "ball_cover"), "margin").coreset()}


@item("stream/options", fast=True)
def of_options(folder: Path) -> dict[str, Any]:
    choices: dict[str, dict[str, Any]] = {
        "window": {"window": 1200},
        "half_life": {"half_life": 400.0},
        "plain": {"calibrate": False},
        "one_leaf": {"leaf_size": 5000},
        "both": {"window": 1500, "half_life": 700.0},
    }
    parts = {name: tried(lambda o=options: fed(stream(**o)).coreset()) for name, options in choices.items()}
    return parts | {"weighted": fed(stream(), weighted=True).coreset()}


@item("stream/meanwhile")
def meanwhile(folder: Path) -> dict[str, Any]:
    """Coresets of the rows so far, also of fewer than a leaf."""
    X, pushed = data.clouds(), stream()
    parts = {}
    for i, last in enumerate((50, 499, 500, 1001, 2750)):
        pushed.push(X[pushed.n_rows : last])
        parts[f"rows_{i}"] = pushed.coreset()
    return parts


@item("stream/forget")
def forgotten(folder: Path) -> dict[str, Any]:
    kept = fed(stream(keep_leaves=folder / "leaves"))
    n = kept.forget(np.arange(700, 1400, 7))
    parts: dict[str, Any] = {"n": n, "kept": kept.coreset()}
    n = kept.forget(np.arange(0, 20))
    parts |= {"pilot": kept.coreset(), "n_pilot": n}
    last = fed(stream())
    last.forget(np.arange(2600, 2620) if last.n_rows % 500 else np.arange(0))
    return parts


@item("stream/merge")
def merged(folder: Path) -> dict[str, Any]:
    X, first = data.clouds(), fed(stream())
    fork = first.fork(random_state=9).push(X[:1300] + 1.0)
    other = stream(random_state=10).push(X[500:2100] - 1.0)
    parts = {"fork": fork.coreset()}
    parts["with_fork"] = first.merge(fork).coreset()
    return parts | {"with_other": first.merge(other).coreset()}


@item("stream/checkpoint")
def resumed(folder: Path) -> dict[str, Any]:
    parts = {}
    for name in ("kmeans", "logistic", "poisson"):
        X, y = OBJECTIVES[name][1]()
        whole = fed(stream(name), name)
        whole.checkpoint(folder / name)
        again = CoresetStream.resume(folder / name)
        again.push(X[:333], None if y is None else y[:333])
        parts[name] = again.coreset()
    return parts


@item("stream/row_ids")
def named_rows(folder: Path) -> dict[str, Any]:
    X, y = data.two_classes()
    pushed = stream("logistic")
    for i in range(0, 3000, 600):
        pushed.push(X[i : i + 600], y[i : i + 600], row_ids=np.arange(i, i + 600) * 3 + 1)
    return {"coreset": pushed.coreset()}
