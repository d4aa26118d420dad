"""Estimators of other libraries, by their dotted names: ``tithe fit sklearn.naive_bayes.GaussianNB``."""

from __future__ import annotations

import ast
from importlib import import_module
from typing import Any

import click


def _as_parameters(context: Any, param: Any, texts: Any) -> dict[str, Any]:
    """``NAME=VALUE`` as parameters; a value that is no Python literal is a text."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
        try:
            values[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            values[name] = value
    return values


parameter_option = click.Option(
    ["-p", "--parameter", "estimator_parameters"],
    multiple=True,
    callback=_as_parameters,
    metavar="NAME=VALUE",
    help="A parameter of the estimator.",
)


def installed_estimator(name: str, *, estimator_parameters: dict[str, Any], random_state: int, **options: Any) -> Any:
    """The estimator with this dotted name on a coreset."""
    from tithe.meta.estimator import CoresetEstimator
    from tithe.meta.other_estimators import check_learns_from_coresets

    module, _, attribute = name.rpartition(".")
    try:
        estimator = getattr(import_module(module), attribute)(**estimator_parameters)
        check_learns_from_coresets(estimator)
    except (ImportError, AttributeError, TypeError) as error:
        raise click.UsageError(f"There is no estimator {name!r}: {error}") from error
    if "random_state" in estimator.get_params() and "random_state" not in estimator_parameters:
        estimator.set_params(random_state=random_state)
    # rows are held out by the command
    return CoresetEstimator(estimator, validation_fraction=0.0, random_state=random_state, **options)
