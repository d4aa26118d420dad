"""Copies of objects with other attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def copy_with(thing: T, attributes: Mapping[str, Any]) -> T:
    """An object of the same class with these attributes and no others."""
    copy = object.__new__(type(thing))
    copy.__dict__.update(attributes)
    return copy
