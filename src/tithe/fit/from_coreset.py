"""Learners fitted on a coreset of rows that cannot be read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tithe.core.data import Array, Coreset
from tithe.fit.tables import set_schema
from tithe.rows.schema import TableSchema


def fit_on_coreset(learner: Any, coreset: Coreset, labels: Array | None, feature_names: Array | None) -> None:
    """Fit a learner on a coreset of all rows, which it does not reduce again. It has no certificate then.

    ``labels`` are those that the numbers in ``coreset.y`` stand for; None if y holds no classes.
    """
    size = learner.coreset_size
    learner.set_params(coreset_size=len(coreset))
    y = coreset.y if coreset.y is None or labels is None else labels[coreset.y]
    learner.fit(coreset.X, y, sample_weight=coreset.weights())
    learner.set_params(coreset_size=size)._adopt_coreset(coreset, feature_names)


def fit_on_saved_coreset(learner: Any, coreset: Coreset, schema: TableSchema | None) -> None:
    """Fit a learner on a coreset from a file. With its schema the learner takes rows of the original table."""
    labels = None
    if is_classifier(learner) and coreset.y is not None:
        labels, numbers = np.unique(coreset.y, return_inverse=True)
        coreset = replace(coreset, y=numbers, objective=with_classes(coreset.objective, range(len(labels))))
    fit_on_coreset(learner, coreset, labels, None)
    set_schema(learner, schema)


def with_classes(objective: Any, classes: Sequence[Any]) -> Any:
    """The objective for rows with other names of their classes; None if it knows classes by number alone."""
    if objective is None or objective.n_classes == 0:
        return objective
    return replace(objective, classes=tuple(classes)) if objective.classes is not None and len(classes) else None
