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
        "kmeans": "tithe.clustering.objective:KMeansObjective",
        "kmedian": "tithe.clustering.objective:KMedianObjective",
        "logistic": "tithe.linear.logistic_objective:LogisticObjective",
        "margin": "tithe.odm.objective:MarginObjective",
        "least_squares": "tithe.linear.regression_objectives:LeastSquaresObjective",
        "poisson": "tithe.linear.regression_objectives:PoissonObjective",
        "huber": "tithe.linear.regression_objectives:HuberObjective",
        "dictionary": "tithe.dictionary.objective:DictionaryObjective",
        "generic": "tithe.reduce.generic:GenericObjective",
    },
    "construction": {
        "uniform": "tithe.reduce.draws:Uniform",
        "sensitivity": "tithe.reduce.draws:Sensitivity",
        "lightweight": "tithe.reduce.draws:Lightweight",
        "rings": "tithe.clustering.rings:Rings",
        "influence": "tithe.reduce.draws:Influence",
        "leverage": "tithe.reduce.draws:Leverage",
        "cablr": "tithe.linear.cablr:Cablr",
        "acvs": "tithe.linear.cablr:Acvs",
        "regressed": "tithe.linear.regressed:Regressed",
        "ball_cover": "tithe.reduce.ball_cover:BallCover",
    },
    "learner": {
        "kmeans": "tithe.clustering.learners:CoresetKMeans",
        "kmedians": "tithe.clustering.learners:CoresetKMedians",
        "logistic": "tithe.linear.logistic:CoresetLogisticRegression",
        "ridge": "tithe.linear.ridge:CoresetRidge",
        "poisson": "tithe.linear.poisson:CoresetPoissonRegressor",
        "huber": "tithe.linear.huber:CoresetHuberRegressor",
        "odm": "tithe.odm.linear_classifier:LinearODMClassifier",
        "ksvd": "tithe.dictionary.ksvd:KSVD",
    },
    # learners of `tithe fit NAME --semi`, for rows of which only some have a label
    "semi_supervised": {
        "odm": "tithe.odm.semi_supervised:SemiSupervisedODMClassifier",
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
