"""Name to class: ours by module string, other people's by entry point.

A third party adds an objective by declaring, in its own ``pyproject.toml``::

    [project.entry-points."tithe.objective"]
    huber = "their_package:HuberObjective"
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tithe.core.errors import unknown_name

_OURS: dict[str, dict[str, str]] = {
    "objective": {
        "kmeans": "tithe.objectives.clustering:KMeansObjective",
        "kmedian": "tithe.objectives.clustering:KMedianObjective",
        "logistic": "tithe.objectives.logistic:LogisticObjective",
        "margin": "tithe.objectives.margin:MarginObjective",
        "dictionary": "tithe.objectives.dictionary:DictionaryObjective",
        "generic": "tithe.objectives.generic:GenericObjective",
    },
    "construction": {
        "uniform": "tithe.constructions.uniform:Uniform",
        "sensitivity": "tithe.constructions.sensitivity:Sensitivity",
        "lightweight": "tithe.constructions.lightweight:Lightweight",
        "rings": "tithe.constructions.rings:Rings",
        "influence": "tithe.constructions.influence:Influence",
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
        "odm": "tithe.learners.odm.linear_classifier:LinearODMClassifier",
    },
    "engine": {
        "serial": "tithe.engines.serial:SerialEngine",
        "threads": "tithe.engines.threads:ThreadEngine",
    },
}
_ALIASES: dict[str, dict[str, str]] = {
    "objective": {"kmedians": "kmedian", "k-means": "kmeans", "k-median": "kmedian", "odm": "margin"},
    "construction": {"urs": "uniform", "rdsf": "regressed"},
    "learner": {},
    "engine": {},
}


@cache
def _theirs(kind: str) -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=f"tithe.{kind}")}


def names(kind: str) -> list[str]:
    """Every name that `resolve` answers to, aliases included."""
    return sorted({*_OURS[kind], *_ALIASES[kind], *_theirs(kind)})


def resolve(kind: str, name: str) -> Any:
    """The class (or function) registered under ``name``."""
    own = _OURS[kind].get(_ALIASES[kind].get(name, name)) if isinstance(name, str) else None
    if own is not None:
        module, attribute = own.split(":")
        return getattr(import_module(module), attribute)
    if isinstance(name, str) and name in _theirs(kind):
        return _theirs(kind)[name].load()
    raise unknown_name(kind, name, names(kind))


def registered_types() -> set[str]:
    """Full names of the classes that other installed packages have registered."""
    classes = (point.load() for kind in _OURS for point in _theirs(kind).values())
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}


def make(kind: str, what: Any) -> Any:
    """An instance: ``what`` itself, or the class of that name with its defaults."""
    return resolve(kind, what)() if isinstance(what, str) else what
