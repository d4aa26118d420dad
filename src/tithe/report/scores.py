"""Scores of a model on rows that it has not seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_clusterer, is_regressor
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from tithe.clustering.learners import CoresetKMedians
from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.dictionary.ksvd import KSVD
from tithe.report.errors import confusion, reliability, residuals
from tithe.report.tables import share_of_all


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Scores on rows that were not learned from.

    Parameters
    ----------
    rows : str
        Which rows these are, in words.
    n_rows : int
    scores : dict
        Classifiers: ``accuracy``, ``log_loss`` if there are probabilities, and ``auc`` if there are two classes.
        Regressors: ``r2`` and ``rmse``, the root of the mean squared error. Clusters: ``cost_per_row``, and
        ``training_cost_per_row``, the same of the rows that were learned from. Dictionaries: ``mse`` and
        ``training_mse``, the mean squared error of an entry of a row.
    details : dict
        Where the model is wrong. Classifiers: ``confusion`` of up to 20 classes, and ``reliability`` of the chance of
        the second of two classes, or of the predicted class if there are more (``chance_of`` says which). Regressors:
        ``residuals`` by predicted value. Clusters: ``largest_share``, that of a single row in the cost.
    learned_later : bool
        Whether the model was fitted again after the scores, to these rows as well.
    """

    rows: str
    n_rows: int
    scores: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    learned_later: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def note(self) -> str:
        """What makes a score misleading, in words; mostly empty."""
        share = self.details.get("largest_share", 0.0)
        return f" (one row alone has {share_of_all(share)} of the cost)" if share > _LARGE_SHARE else ""

    def __str__(self) -> str:
        named = ", ".join(f"{SCORE_NAMES[name]} {value:.4g}" for name, value in self.scores.items()) + self.note
        seen = "had not seen" if self.learned_later else "has not seen"
        later = " Then it was fitted again, to all rows." if self.learned_later else ""
        return f"On {self.n_rows:,} rows that the model {seen} ({self.rows}): {named}.{later}"


_LARGE_SHARE = 0.2  # of the cost in a single row, which makes the mean tell little about the others

SCORE_NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "auc": "AUC",
    "r2": "R²",
    "rmse": "root mean squared error",
    "cost_per_row": "cost per row",
    "training_cost_per_row": "cost per row of the rows learned from",
    "mse": "mean squared error",
    "training_mse": "mean squared error on the rows learned from",
}


def held_out_scores(fitted: Any, data: DataPass, rows: str) -> HeldOut | None:
    """The scores of a model on the rows of ``data``, in one pass; None if there are no rows or nothing to score.

    Rows of classes that the model does not know count as wrong, and are left out of log-loss and AUC.
    """
    if isinstance(fitted, KSVD):
        return _dictionary_scores(fitted, data, rows)
    if not (is_classifier(fitted) or is_regressor(fitted) or (is_clusterer(fitted) and hasattr(fitted, "inertia_"))):
        return None
    parts = [part for part in data.each(lambda leaf: _answers(fitted, leaf)) if part is not None]
    if not parts:
        return None
    answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    weight = answers.pop("weight")
    if not weight.any():
        return None
    details: dict[str, Any] = {}
    if is_classifier(fitted):
        scores, details = _classifier_scores(fitted, weight, **answers), _confusions(fitted, weight, **answers)
    elif is_regressor(fitted):
        scores = _regressor_scores(weight, **answers)
        y, predicted = (answers[name].astype(np.float64) for name in ("y", "predicted"))
        details = {"residuals": residuals(y, predicted, weight)} if y.ndim == 1 else {}
    else:
        training = {"training_cost_per_row": fitted.inertia_ / fitted.coreset_.weight_seen}
        total = float(answers["cost"].sum())
        scores = {"cost_per_row": total / float(weight.sum()), **training}
        details = {"largest_share": float(answers["largest"].max()) / total} if total > 0.0 else {}
    n_rows = len(weight) if "cost" not in answers else data.n_rows
    return HeldOut(rows=rows, n_rows=n_rows, scores=scores, details=details)


def _dictionary_scores(fitted: KSVD, data: DataPass, rows: str) -> HeldOut | None:
    certificate = fitted.certify(data.rows)
    scores = {"mse": certificate.value, "training_mse": fitted.summary()["mean_squared_error"]}
    return HeldOut(rows=rows, n_rows=certificate.n_rows, scores=scores)


def _answers(fitted: Any, leaf: Block) -> dict[str, Array] | None:
    """What the scores are computed from, for the rows of one leaf."""
    if is_clusterer(fitted):
        distances = np.asarray(fitted.transform(leaf.X), np.float64).min(axis=1)
        cost = leaf.weights() * (distances if isinstance(fitted, CoresetKMedians) else distances**2)
        sums = {"weight": np.array([leaf.weights().sum()]), "cost": np.array([cost.sum()])}
        return {**sums, "largest": cost.max(keepdims=True)}
    if leaf.y is None:
        return None
    answers = {"weight": leaf.weights(), "y": leaf.y, "predicted": fitted.predict(leaf.X)}
    if not is_classifier(fitted):
        return answers
    if hasattr(fitted, "predict_proba"):
        answers["chances"] = fitted.predict_proba(leaf.X)
    elif len(fitted.classes_) == 2:
        answers["margins"] = fitted.decision_function(leaf.X)
    return answers


def _classifier_scores(
    fitted: Any, weight: Array, y: Array, predicted: Array, chances: Array | None = None, margins: Array | None = None
) -> dict[str, float]:
    scores = {"accuracy": float(accuracy_score(y, predicted, sample_weight=weight))}
    known = np.isin(y, fitted.classes_) & (weight > 0)
    y, weight = y[known], weight[known]
    if chances is not None and len(y):
        scores["log_loss"] = float(log_loss(y, chances[known], sample_weight=weight, labels=fitted.classes_))
        margins = chances[:, 1]
    if margins is not None and len(fitted.classes_) == 2 and len(np.unique(y)) == 2:
        scores["auc"] = float(roc_auc_score(y == fitted.classes_[1], margins[known], sample_weight=weight))
    return scores


def _confusions(
    fitted: Any, weight: Array, y: Array, predicted: Array, chances: Array | None = None, margins: Array | None = None
) -> dict[str, Any]:
    known = np.isin(y, fitted.classes_) & (weight > 0)
    y, predicted, weight = y[known], predicted[known], weight[known]
    if not len(y):
        return {}
    details: dict[str, Any] = {"confusion": confusion(y, predicted, weight, fitted.classes_)}
    if chances is None:
        return details
    if len(fitted.classes_) == 2:
        groups = reliability(chances[known, 1], y == fitted.classes_[1], weight)
        return {**details, "reliability": groups, "chance_of": str(fitted.classes_[1])}
    groups = reliability(chances[known].max(axis=1), y == predicted, weight)
    return {**details, "reliability": groups, "chance_of": "the predicted class"}


def _regressor_scores(weight: Array, y: Array, predicted: Array) -> dict[str, float]:
    y, predicted = y.astype(np.float64), predicted.astype(np.float64)
    rmse = float(np.sqrt(np.average(np.square(y - predicted), weights=weight)))
    return {"r2": float(r2_score(y, predicted, sample_weight=weight)), "rmse": rmse} if len(y) > 1 else {"rmse": rmse}
