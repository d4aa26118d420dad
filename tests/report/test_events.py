"""What is said of the rarer of two classes, beside scikit-learn and counts of rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import auc, average_precision_score, f1_score, precision_score, recall_score, roc_auc_score
from sklearn.svm import LinearSVC

from tithe import Block, CoresetLogisticRegression
from tithe.core.passes import DataPass
from tithe.report.scores import HeldOut, error_figures, error_tables, held_out_scores


def rare_rows(rng: np.random.Generator, n: int = 4000, *, labels: tuple[str, str] = ("no", "yes")) -> Block:
    X = rng.normal(size=(n, 2))
    happened = rng.random(n) < 1.0 / (1.0 + np.exp(3.5 - 1.5 * X[:, 0]))
    return Block(X=X, y=np.where(happened, labels[1], labels[0]), sample_weight=rng.integers(1, 3, n).astype(float))


def said_of(model: Any, block: Block) -> HeldOut:
    said = held_out_scores(model, DataPass(block), "some rows")
    assert said is not None
    return said


@pytest.mark.parametrize("labels", [("no", "yes"), ("yes", "no")])  # whichever comes first
def test_scores_and_thresholds_are_of_the_rarer_class(rng: np.random.Generator, labels) -> None:
    rows, new = rare_rows(rng, labels=labels), rare_rows(rng, labels=labels)
    model = CoresetLogisticRegression(coreset_size=3000, random_state=0).fit(rows.X, rows.y, rows.sample_weight)
    said, weight = said_of(model, new), new.weights()
    happened, alarms = new.y == labels[1], model.predict(new.X) == labels[1]
    chance = model.predict_proba(new.X)[:, model.classes_.tolist().index(labels[1])]
    options = {"sample_weight": weight}
    event, scores = said.details["event"], said.scores
    assert event["label"] == labels[1] and scores["baseline"] == pytest.approx(1 - np.average(happened, weights=weight))
    assert scores["auc"] == pytest.approx(roc_auc_score(happened, chance, **options))
    assert scores["average_precision"] == pytest.approx(average_precision_score(happened, chance, **options))
    assert scores["f1"] == pytest.approx(f1_score(happened, alarms, **options))
    assert event["recall"] == pytest.approx(recall_score(happened, alarms, **options))
    for row in event["thresholds"]:
        raised = chance >= row["threshold"]
        assert row["alarms_per_thousand"] == pytest.approx(1000 * np.average(raised, weights=weight))
        assert row["precision"] == pytest.approx(precision_score(happened, raised, **options))
        assert row["recall"] == pytest.approx(recall_score(happened, raised, **options))
    curve = event["curve"]
    assert auc([0, *curve["false_alarms"]], [0, *curve["recall"]]) == pytest.approx(scores["auc"], abs=2e-3)
    tables = error_tables(said.details)
    assert [table.on_terminal for table in tables] == [False, True] and len(tables[1].rows) >= 5
    assert len(error_figures(said.details)) == 3
    assert f"always to say {labels[0]} has {scores['baseline']:.4g}" in str(said) and "it finds" in str(said)


def test_thresholds_without_chances_are_decision_values(rng: np.random.Generator) -> None:
    rows = rare_rows(rng)
    for model, words in ((LinearSVC(), "by the decision value"), (LogisticRegression(), "by the chance")):
        table = error_tables(said_of(model.fit(rows.X, rows.y), rows).details)[1]
        assert words in table.title and "from which on they are raised" in table.title


def test_chances_that_weights_of_classes_raised_are_called_too_high(rng: np.random.Generator) -> None:
    rows, new = rare_rows(rng), rare_rows(rng)
    for class_weight, words in ((None, "right on average"), ("balanced", "too high"), ({"no": 50}, "too low")):
        model = CoresetLogisticRegression(class_weight=class_weight, random_state=0).fit(rows.X, rows.y)
        assert words in str(said_of(model, new))


class Constant(SimpleNamespace):
    """A classifier that says the same of every row."""

    _estimator_type = "classifier"

    def __sklearn_tags__(self) -> Any:
        return CoresetLogisticRegression().__sklearn_tags__()

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[0])

    def predict_proba(self, X: Any) -> Any:
        return np.tile([0.9, 0.1], (len(X), 1))


def test_a_model_that_knows_nothing(rng: np.random.Generator) -> None:
    block = rare_rows(rng)
    model = Constant(classes_=np.array(["no", "yes"]))
    said = said_of(model, block)
    assert said.scores["accuracy"] == pytest.approx(said.scores["baseline"])
    assert said.scores["f1"] == 0.0 and "it finds 0.0 %; it raises no alarm" in str(said)
    assert said.details["event"]["thresholds"][0]["alarms_per_thousand"] == pytest.approx(1000.0)
    of_one_class = said_of(model, replace(block, y=np.full(len(block), "no")))
    assert "auc" not in of_one_class.scores and "average_precision" not in of_one_class.scores
