"""Names of objectives, constructions, learners, engines and commands, and what they stand for.

What a name stands for is imported when the name is first resolved. The core is listed here; margin machines,
dictionaries and online clustering register themselves as another package does, in its ``pyproject.toml``::

    [project.entry-points."tithe.learner"]
    quantile = "their_package:QuantileRegressor"

Then ``tithe fit quantile`` works, and files may hold objects of that class. The groups are

- ``tithe.objective``, ``tithe.construction``, ``tithe.learner`` and ``tithe.engine``: classes;
- ``tithe.command``: a click command, ``tithe NAME``;
- ``tithe.fit``: a click command in place of the usual one of a learner, ``tithe fit NAME``;
- ``tithe.report``: a `tithe.report.run.LearnerReport`, what reports of a learner hold besides;
- ``tithe.plot``: a figure, ``tithe.plot.NAME``.
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
        "least_squares": "tithe.linear.regression_objectives:LeastSquaresObjective",
        "poisson": "tithe.linear.regression_objectives:PoissonObjective",
        "huber": "tithe.linear.regression_objectives:HuberObjective",
        "gmm": "tithe.clustering.mixture_objective:GaussianMixtureObjective",
        "generic": "tithe.reduce.generic:GenericObjective",
        "boosting": "tithe.meta.boosting:BoostingObjective",
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
        "pilot_gradient": "tithe.meta.boosting:PilotGradient",
        "ball_cover": "tithe.reduce.ball_cover:BallCover",
    },
    "learner": {
        "kmeans": "tithe.clustering.learners:CoresetKMeans",
        "kmedians": "tithe.clustering.learners:CoresetKMedians",
        "gmm": "tithe.clustering.mixture:CoresetGaussianMixture",
        "logistic": "tithe.linear.logistic:CoresetLogisticRegression",
        "ridge": "tithe.linear.regression:CoresetRidge",
        "poisson": "tithe.linear.regression:CoresetPoissonRegressor",
        "huber": "tithe.linear.regression:CoresetHuberRegressor",
    },
    "engine": {
        "serial": "tithe.core.passes:SerialEngine",
        "threads": "tithe.engines.threads:ThreadEngine",
        "dask": "tithe.engines.dask:DaskEngine",
        "spark": "tithe.engines.spark:SparkEngine",
    },
    "command": {
        "build": "tithe.cli.build:build",
        "choose-k": "tithe.cli.choose_k:choose_k",
        "compare": "tithe.cli.compare:compare",
        "demo": "tithe.cli.compare:demo",
        "fit": "tithe.cli.fit:fit",
        "inspect": "tithe.cli.merge:inspect",
        "merge": "tithe.cli.merge:merge",
        "predict": "tithe.cli.predict:predict",
        "score": "tithe.cli.score:score",
        "size": "tithe.cli.size:size",
        "stream": "tithe.cli.stream:stream",
        "warm-up": "tithe.cli.warm_up:warm_up",
    },
    "fit": {},
    "report": {},
    "plot": {},
}
_ALIASES: dict[str, dict[str, str]] = {
    "objective": {"kmedians": "kmedian", "k-means": "kmeans", "k-median": "kmedian", "ridge": "least_squares"},
    "construction": {"urs": "uniform", "rdsf": "regressed"},
}


@cache
def _installed(kind: str) -> dict[str, EntryPoint]:
    """What the families and other installed packages have registered."""
    return {point.name: point for point in entry_points(group=f"tithe.{kind}")}


def names(kind: str) -> list[str]:
    """Every name that is registered, aliases included. Nothing is imported, so one of them may fail to resolve."""
    return sorted({*_BUILT_IN[kind], *_ALIASES.get(kind, {}), *_installed(kind)})


def resolve(kind: str, name: str) -> Any:
    """What is registered under ``name``."""
    if isinstance(name, str):
        path = _BUILT_IN[kind].get(_ALIASES.get(kind, {}).get(name, name))
        point = _installed(kind).get(name)
        if path is not None and point is not None:
            raise ValueError(
                f"The {kind} {name!r} is tithe's own, and {_package_of(point)} registers {point.value} under this "
                "name as well: uninstall that package, or rename its entry point."
            )
        if path is not None:
            module, attribute = path.split(":")
            return getattr(import_module(module), attribute)
        if point is not None:
            return _loaded(kind, point)
    raise unknown_name(kind, name, names(kind))


def registered_attribute(kind: str, module: str, name: str) -> Any:
    """The class or function called ``name`` in the code of a package that registers it: ``module.name`` stands for it.

    Raises AttributeError, as a module does for what it does not have.
    """
    for point in _installed(kind).values():
        if point.attr == name:
            try:
                return _loaded(kind, point)
            except ValueError as error:
                raise AttributeError(f"module {module!r} has no attribute {name!r}: {error}") from error
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _loaded(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"The {kind} {point.name!r} is registered by {_package_of(point)}, which cannot be loaded: {error}. "
            "Install that package again."
        ) from error


def _package_of(point: EntryPoint) -> str:
    return f"the package {point.module.partition('.')[0] if point.dist is None else point.dist.name}"


def registered_types() -> set[str]:
    """Full names of the classes that other installed packages have registered."""
    kinds = ("objective", "construction", "learner", "engine")
    points = ((kind, point) for kind in kinds for point in _installed(kind).values())
    classes = [_loaded(kind, point) for kind, point in points if not point.value.startswith("tithe.")]
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in classes}


def make(kind: str, what: Any) -> Any:
    """An instance: ``what`` itself, or the class of that name with its defaults."""
    return resolve(kind, what)() if isinstance(what, str) else what
