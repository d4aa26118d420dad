"""The objective of a coreset as notes in its provenance, from which it can be made again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tithe.core.contracts import Objective
from tithe.core.registry import names, resolve

Notes = dict[str, str | int | float]
_NAME, _PARAMETERS = "objective", "objective_parameters"


def objective_notes(objective: Objective) -> Notes:
    """Its name, and its parameters as JSON; only the name if JSON cannot hold them."""
    parameters = parameters_of(objective)
    try:
        return {_NAME: objective.name, _PARAMETERS: json.dumps(parameters, default=_plain, allow_nan=False)}
    except (TypeError, ValueError):
        return {_NAME: objective.name}


def noted_objective(notes: Mapping[str, Any]) -> Objective | None:
    """The objective that `objective_notes` describes; None if it is not among the registered ones, or not described."""
    name, text = notes.get(_NAME), notes.get(_PARAMETERS)
    if name not in names("objective") or not isinstance(text, str):
        return None
    try:
        parameters = json.loads(text)
        objective: Objective = resolve("objective", str(name))(
            **{key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
        )
    except (TypeError, ValueError, AttributeError):  # of a newer version, or damaged
        return None
    return objective


def with_classes(notes: Mapping[str, Any], classes: Sequence[Any]) -> Notes:
    """The notes after the class numbers in y have been replaced by these labels.

    An objective that knows classes by number alone has no parameters for such rows.
    """
    changed: Notes = dict(notes)
    objective = noted_objective(notes)
    if objective is None or "n_classes" in parameters_of(objective):
        changed.pop(_PARAMETERS, None)
    elif "classes" in parameters_of(objective):
        parameters = {**parameters_of(objective), "classes": list(classes)}
        changed[_PARAMETERS] = json.dumps(parameters, default=_plain)
    return changed


def parameters_of(objective: Objective) -> dict[str, Any]:
    """The parameters of an objective, which is a dataclass."""
    if not is_dataclass(objective):
        return {}
    return {field.name: getattr(objective, field.name) for field in fields(objective) if field.init}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
