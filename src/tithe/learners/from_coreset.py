"""Learners fitted on a coreset of rows that cannot be read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from tithe.core.data import Array, Coreset
from tithe.learners.tables import set_schema
from tithe.tables.schema import TableSchema


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
        coreset = replace(coreset, y=numbers)
    fit_on_coreset(learner, coreset, labels, None)
    set_schema(learner, schema)
