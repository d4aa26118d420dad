"""Scores on rows held out, and the intervals that they have or lack."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor

from tithe.meta.scores import held_out_scores


@pytest.mark.parametrize("uniform", [False, True])
def test_where_the_parts_lack_a_class_there_is_no_interval(rng: np.random.Generator, uniform: bool) -> None:
    X, y = rng.normal(size=(100, 1)), np.repeat(["often", "rare"], [99, 1])
    model = DummyClassifier().fit(X, y)
    loss, auc = held_out_scores(model, X, y, None, model.classes_, model if uniform else None)
    assert loss.interval is not None and loss.interval[0] < loss.value < loss.interval[1]
    assert auc.interval is None and auc.difference is None and auc.value == 0.5
    assert str(auc).startswith("AUC 0.5 (too few rows of a class for an interval)")
    assert str(auc).endswith("of a uniform sample 0.5") == uniform


@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
def test_parts_of_a_single_row_give_no_interval(rng: np.random.Generator) -> None:
    X = rng.normal(size=(20, 1))
    (r2,) = held_out_scores(DummyRegressor().fit(X, X[:, 0]), X, X[:, 0], None, None)
    assert str(r2) == "R² 0 (too few rows for an interval)"
