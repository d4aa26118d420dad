"""Objectives as JSON, from which they are made again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tithe.core.contracts import Objective
from tithe.core.registry import names, resolve
from tithe.core.state_checks import expect


def objective_to_json(objective: Objective | None) -> dict[str, Any] | None:
    """Its name and parameters; None if its class is not registered under its name, or JSON cannot hold them."""
    if objective is None or objective.name not in names("objective"):
        return None
    if resolve("objective", objective.name) is not type(objective):
        return None
    data = {"name": objective.name, "parameters": objective.record()}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=_plain, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return plain


def objective_from_json(data: dict[str, Any] | None) -> Objective | None:
    """What `objective_to_json` gave; None if no such objective is installed. Raises ValueError for damaged data."""
    if data is None:
        return None
    expect(isinstance(data, dict) and isinstance(data.get("parameters"), dict), "its objective is none")
    if data.get("name") not in names("objective"):
        return None
    parameters = {key: tuple(value) if isinstance(value, list) else value for key, value in data["parameters"].items()}
    objective: Objective = resolve("objective", data["name"])(**parameters)
    return objective


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
