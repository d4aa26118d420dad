"""Names of objectives, constructions, learners and engines, and the classes that they stand for.

A class is imported when its name is first resolved. Another package adds one in its ``pyproject.toml``::

    [project.entry-points."tithe.learner"]
    quantile = "their_package:QuantileRegressor"

Then ``tithe fit quantile`` works, and files may hold objects of that class. The groups are ``tithe.objective``,
``tithe.construction``, ``tithe.learner``, ``tithe.semi_supervised`` and ``tithe.engine``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tithe.core.errors import unknown_name

_BUILT_IN: dict[str, dict[str, str]] = {
    "objective": {
        "kmeans": "tithe.objectives.clustering:KMeansObjective",
        "kmedian": "tithe.objectives.clustering:KMedianObjective",
        "logistic": "tithe.objectives.logistic:LogisticObjective",
        "margin": "tithe.objectives.margin:MarginObjective",
        "least_squares": "tithe.objectives.least_squares:LeastSquaresObjective",
        "poisson": "tithe.objectives.poisson:PoissonObjective",
        "huber": "tithe.objectives.huber:HuberObjective",
        "dictionary": "tithe.objectives.dictionary:DictionaryObjective",
        "generic": "tithe.objectives.generic:GenericObjective",
    },
    "construction": {
        "uniform": "tithe.constructions.draw:Uniform",
        "sensitivity": "tithe.constructions.draw:Sensitivity",
        "lightweight": "tithe.constructions.draw:Lightweight",
        "rings": "tithe.constructions.rings:Rings",
        "influence": "tithe.constructions.leverage:Influence",
        "leverage": "tithe.constructions.leverage:Leverage",
        "cablr": "tithe.constructions.cablr:Cablr",
        "acvs": "tithe.constructions.cablr:Acvs",
        "regressed": "tithe.constructions.regressed:Regressed",
        "ball_cover": "tithe.constructions.ball_cover:BallCover",
    },
    "learner": {
        "kmeans": "tithe.learners.cluster:CoresetKMeans",
        "kmedians": "tithe.learners.cluster:CoresetKMedians",
        "logistic": "tithe.learners.logistic:CoresetLogisticRegression",
        "ridge": "tithe.learners.ridge:CoresetRidge",
        "poisson": "tithe.learners.poisson:CoresetPoissonRegressor",
        "huber": "tithe.learners.huber:CoresetHuberRegressor",
        "odm": "tithe.learners.odm.linear_classifier:LinearODMClassifier",
        "ksvd": "tithe.learners.dictionary.ksvd:KSVD",
    },
    # learners of `tithe fit NAME --semi`, for rows of which only some have a label
    "semi_supervised": {
        "odm": "tithe.learners.odm.semi_supervised:SemiSupervisedODMClassifier",
    },
    "engine": {
        "serial": "tithe.core.engine:SerialEngine",
        "threads": "tithe.engines.threads:ThreadEngine",
        "dask": "tithe.engines.dask:DaskEngine",
        "spark": "tithe.engines.spark:SparkEngine",
    },
}
_ALIASES: dict[str, dict[str, str]] = {
    "objective": {
        **{"kmedians": "kmedian", "k-means": "kmeans", "k-median": "kmedian"},
        **{"odm": "margin", "ridge": "least_squares"},
    },
    "construction": {"urs": "uniform", "rdsf": "regressed"},
    "learner": {},
    "semi_supervised": {},
    "engine": {},
}


@cache
def _installed(kind: str) -> dict[str, EntryPoint]:
    """What other installed packages have registered."""
    return {point.name: point for point in entry_points(group=f"tithe.{kind}")}


def names(kind: str) -> list[str]:
    """Every name that `resolve` answers to, aliases included."""
    return sorted({*_BUILT_IN[kind], *_ALIASES[kind], *_installed(kind)})


def resolve(kind: str, name: str) -> Any:
    """The class registered under ``name``."""
    if isinstance(name, str):
        path = _BUILT_IN[kind].get(_ALIASES[kind].get(name, name))
        if path is not None:
            module, attribute = path.split(":")
            return getattr(import_module(module), attribute)
        if name in _installed(kind):
            return _installed(kind)[name].load()
    raise unknown_name(kind, name, names(kind))


def registered_types() -> set[str]:
    """Full names of the classes that other installed packages have registered."""
    classes = (point.load() for kind in _BUILT_IN for point in _installed(kind).values())
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}


def make(kind: str, what: Any) -> Any:
    """An instance: ``what`` itself, or the class of that name with its defaults."""
    return resolve(kind, what)() if isinstance(what, str) else what
