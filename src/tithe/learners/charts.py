"""What learners show of a solution in a report, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tithe.core.data import Array

MAX_BARS = 20


@dataclass(frozen=True)
class BarChart:
    """Bars with a title; ``axis`` says what the values are."""

    title: str
    labels: list[str]
    values: Array
    axis: str

    @classmethod
    def of_largest(cls, what: str, labels: Sequence[Any], values: Array, axis: str) -> Self:
        """The bars that are largest in absolute value, at most `MAX_BARS`."""
        largest = np.argsort(-np.abs(values), kind="stable")[:MAX_BARS]
        title = what.capitalize() if len(values) <= MAX_BARS else f"The {MAX_BARS} largest {what}"
        return cls(title, [str(labels[i]) for i in largest], values[largest], axis)


def column_names(learner: Any) -> list[str]:
    """Names of the columns that a learner was fitted on; x0, x1, ... where they had none."""
    names = vars(learner).get("feature_names_in_")
    return [f"x{j}" for j in range(learner.n_features_in_)] if names is None else [str(name) for name in names]
