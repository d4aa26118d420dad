"""Weights of classes, as in scikit-learn."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from tithe.core.data import Array


def is_balanced(class_weight: Any) -> bool:
    return isinstance(class_weight, str) and class_weight == "balanced"


def class_factors(class_weight: Any, classes: Array, mass: Array | None) -> Array:
    """Factors of the weights of each class. "balanced" needs ``mass``, the total weight of each class."""
    if is_balanced(class_weight):
        if mass is None:
            raise ValueError(
                "class_weight='balanced' needs the weight of every class before the first row is read, and these rows "
                "come only once: give the weights as a dict."
            )
        with np.errstate(divide="ignore"):
            factors: Array = mass.sum() / (len(mass) * mass)
        return np.where(mass > 0, factors, 0.0)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}.")
    known = classes.tolist()
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not a class of y: {known[:5]}.")
    weights = [class_weight.get(label, 1.0) for label in known]
    if not all(isinstance(w, numbers.Real) for w in weights):
        raise ValueError(f"Class weights must be numbers, got {class_weight!r}.")
    factors = np.array(weights, np.float64)
    if not (np.isfinite(factors).all() and (factors >= 0).all()):
        raise ValueError(f"Class weights must be finite and not negative, got {class_weight!r}.")
    return factors


def weights_by_class(class_weight: Any, classes: Array, codes: Array, weight: Array | None) -> Array | None:
    """The weights of rows times those of their classes. ``codes`` are the class numbers of the rows."""
    if class_weight is None:
        return weight
    mass = np.bincount(codes, weights=weight, minlength=len(classes))
    factor = class_factors(class_weight, classes, mass)
    return factor[codes] if weight is None else weight * factor[codes]
