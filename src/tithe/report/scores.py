"""Scores of a model on rows that it has not seen, and where it is wrong: classes, chances, residuals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_clusterer, is_regressor
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, log_loss, r2_score

from tithe.certify.certificate import share_of_all
from tithe.clustering.learners import CoresetKMedians
from tithe.clustering.mixture import CoresetGaussianMixture
from tithe.core.data import Array, Block, weighted_quantiles
from tithe.core.labels import commonest_class
from tithe.core.passes import DataPass
from tithe.report.events import (
    chances_on_average,
    event_details,
    event_figures,
    event_in_words,
    event_scores,
    rarer_class,
    threshold_table,
)
from tithe.report.svg import DIM, Figure, Scale, around
from tithe.report.tables import ResultTable

MAX_CONFUSED_CLASSES = 20  # a larger matrix cannot be read
_N_BINS = 10  # of equal weight
_BAND = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of residuals


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Scores on rows that were not learned from, and where the model is wrong on them.

    - Classifiers: ``accuracy``, and ``baseline``, that of always saying the ``commonest`` class; ``log_loss`` if there
      are probabilities; ``auc``, ``average_precision`` and ``f1`` of the rarer of two classes (``event``), else ``f1``,
      the mean over the classes; the ``confusion`` of up to 20 classes, and the ``reliability`` of the chance of the
      rarer of two classes, or of the predicted class if there are more (``chance_of`` says which).
    - Regressors: ``r2`` and ``rmse``, the root of the mean squared error; ``residuals`` by predicted value.
    - Clusters: ``cost_per_row``, and ``training_cost_per_row``, that of the rows that were learned from;
      ``largest_share``, that of a single row in the cost.
    - Mixtures: ``log_likelihood`` of a row and ``training_log_likelihood``.
    - Dictionaries: ``mse`` and ``training_mse``, the mean squared error of an entry of a row.
    """

    rows: str  # which rows these are, in words
    n_rows: int
    scores: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    learned_later: bool = False  # whether the model was fitted again after the scores, to these rows as well

    @property
    def note(self) -> str:
        """What makes a score misleading, in words; mostly empty."""
        share = self.details.get("largest_share", 0.0)
        return f" (one row alone has {share_of_all(share)} of the cost)" if share > _LARGE_SHARE else ""

    def __str__(self) -> str:
        named = ", ".join(self._named(name) for name in self.scores if name != "baseline") + self.note
        event = self.details.get("event")
        seen = "had not seen" if self.learned_later else "has not seen"
        later = " Then it was fitted again, to all rows." if self.learned_later else ""
        found = event_in_words(event) if event else ""
        return f"On {self.n_rows:,} rows that the model {seen} ({self.rows}): {named}.{found}{later}"

    def _named(self, name: str) -> str:
        """A score in words, with what would be reached without a model."""
        said, event = f"{SCORE_NAMES[name]} {self.scores[name]:.4g}", self.details.get("event")
        if name == "accuracy" and "baseline" in self.scores:
            return f"{said} (always to say {self.details['commonest']} has {self.scores['baseline']:.4g})"
        if name == "average_precision" and event:
            return f"{said} (at random {event['share']:.4g})"
        return said


_LARGE_SHARE = 0.2  # of the cost in a single row, which makes the mean tell little about the others

SCORE_NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log-loss",
    "auc": "AUC",
    "average_precision": "average precision",
    "f1": "F1",
    "r2": "R²",
    "rmse": "root mean squared error",
    "cost_per_row": "cost per row",
    "training_cost_per_row": "cost per row of the rows learned from",
    "log_likelihood": "mean log-likelihood",
    "training_log_likelihood": "mean log-likelihood of the rows learned from",
    "mse": "mean squared error",
    "training_mse": "mean squared error on the rows learned from",
}


def held_out_scores(fitted: Any, data: DataPass, rows: str) -> HeldOut | None:
    """The scores of a model on the rows of ``data``, in one pass; None if there are no rows or nothing to score.

    Rows of classes that the model does not know count as wrong, and are left out of log-loss and AUC.
    """
    if isinstance(fitted, CoresetGaussianMixture):
        certificate = fitted.certify(data.rows)
        scores = {"log_likelihood": certificate.value, "training_log_likelihood": fitted.lower_bound_}
        return HeldOut(rows=rows, n_rows=certificate.n_rows, scores=scores)
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
        scores, details = _classifier_scores(fitted, weight, **answers)
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
) -> tuple[dict[str, float], dict[str, Any]]:
    """The scores, and where the model is wrong."""
    classes, scores = fitted.classes_, {"accuracy": float(accuracy_score(y, predicted, sample_weight=weight))}
    known = np.isin(y, classes) & (weight > 0)
    y, predicted, weight = y[known], predicted[known], weight[known]
    if not len(y):
        return scores, {}
    commonest, scores["baseline"] = commonest_class(y, weight)
    details: dict[str, Any] = {"commonest": str(commonest), "confusion": confusion(y, predicted, weight, classes)}
    margins = None if margins is None else margins[known]
    if chances is not None:
        chances = chances[known]
        margins = chances[:, 1]
        scores["log_loss"] = float(log_loss(y, chances, sample_weight=weight, labels=classes))
    if len(classes) == 2 and margins is not None:
        k = rarer_class(y == classes[1], weight)
        label, answers = str(classes[k]), (y == classes[k], margins, predicted == classes[k])
        if chances is not None:
            answers = (answers[0], chances[:, k], answers[2])
        elif k == 0:
            answers = (answers[0], -margins, answers[2])
        scores |= event_scores(*answers, weight)
        details["event"] = event_details(label, *answers, weight)
        if chances is not None:
            details["event"]["chances"] = chances_on_average(answers[0], answers[1], weight)
            details |= {"reliability": reliability(answers[1], answers[0], weight), "chance_of": label}
        return scores, details
    scores["f1"] = float(f1_score(y, predicted, sample_weight=weight, average="macro", zero_division=0.0))
    if chances is not None:
        groups = reliability(chances.max(axis=1), y == predicted, weight)
        details |= {"reliability": groups, "chance_of": "the predicted class"}
    return scores, details


def _regressor_scores(weight: Array, y: Array, predicted: Array) -> dict[str, float]:
    y, predicted = y.astype(np.float64), predicted.astype(np.float64)
    rmse = float(np.sqrt(np.average(np.square(y - predicted), weights=weight)))
    return {"r2": float(r2_score(y, predicted, sample_weight=weight)), "rmse": rmse} if len(y) > 1 else {"rmse": rmse}


def confusion(y: Array, predicted: Array, weight: Array, classes: Array) -> dict[str, Any] | None:
    """``weights[i][j]``: the weight of the rows of class i that were taken for class j; None for many classes."""
    if len(classes) > MAX_CONFUSED_CLASSES:
        return None
    weights = confusion_matrix(y, predicted, labels=classes, sample_weight=weight)
    return {"classes": [str(label) for label in classes.tolist()], "weights": weights.astype(float).tolist()}


def reliability(chances: Array, happened: Array, weight: Array) -> list[dict[str, float]]:
    """Rows by their predicted chance, in up to ten groups of equal weight: mean chance, and how often it happened."""
    groups = _groups(chances, weight)
    return [
        {
            "predicted": float(np.average(chances[rows], weights=weight[rows])),
            "observed": float(np.average(happened[rows], weights=weight[rows])),
            "weight": float(weight[rows].sum()),
        }
        for rows in groups
    ]


def residuals(y: Array, predicted: Array, weight: Array) -> list[dict[str, Any]]:
    """Rows by their predicted value, in up to ten groups: mean prediction, and quantiles of y less the prediction."""
    return [
        {
            "predicted": float(np.average(predicted[rows], weights=weight[rows])),
            "residuals": _quantiles(y[rows] - predicted[rows], weight[rows]),
            "weight": float(weight[rows].sum()),
        }
        for rows in _groups(predicted, weight)
    ]


def _groups(values: Array, weight: Array) -> list[Array]:
    """Positions of the rows of each group, which have different values; rows without weight are left out."""
    kept = np.flatnonzero(weight > 0.0)
    order = kept[np.argsort(values[kept], kind="stable")]
    reached = np.cumsum(weight[order]) / weight[order].sum()
    different = np.flatnonzero(np.diff(values[order]) > 0.0) + 1
    # a group ends at the first new value after its share of the weight, so that equal values stay together
    wanted = np.searchsorted(reached, np.arange(1, _N_BINS) / _N_BINS)
    ends = np.searchsorted(different, wanted, side="right")
    cuts = np.unique(different[ends[ends < len(different)]])
    return [rows for rows in np.split(order, cuts) if len(rows)]


def _quantiles(values: Array, weight: Array) -> dict[str, float]:
    quantiles = weighted_quantiles(values, weight, np.array(_BAND)).tolist()
    return {f"{level:g}": value for level, value in zip(_BAND, quantiles, strict=True)}


def error_tables(details: dict[str, Any]) -> list[ResultTable]:
    """The confusion of classes, in shares of the rows of each class, and thresholds for the rarer of two."""
    confused, event = details.get("confusion"), details.get("event", {})
    tables = [threshold_table(event)] if event.get("thresholds") else []
    if not confused:
        return tables
    rows = []
    for name, weights in zip(confused["classes"], confused["weights"], strict=True):
        total = sum(weights)
        rows.append([name, f"{total:,.0f}", *(share_of_all(weight / total) if total else "" for weight in weights)])
    columns = ["true class", "rows, by weight", *(f"predicted {name}" for name in confused["classes"])]
    title = "Classes of the rows held out, and how they were predicted"
    return [ResultTable(title=title, columns=columns, rows=rows, note=_confusion_note(confused)), *tables]


def _confusion_note(confused: dict[str, Any]) -> str:
    """How to read the table, and what a model that knows nothing would reach."""
    names, weights = confused["classes"], np.asarray(confused["weights"])
    of_class, right = weights.sum(axis=1), np.diag(weights)
    commonest, rarest = int(of_class.argmax()), int(np.where(of_class > 0.0, of_class, np.inf).argmin())
    return (
        f"Of the rows of class {names[rarest]}, {share_of_all(right[rarest] / of_class[rarest])} were predicted "
        f"{names[rarest]}. In all, {share_of_all(right.sum() / of_class.sum())} were predicted correctly; always to "
        f"say {names[commonest]} would be right for {share_of_all(of_class[commonest] / of_class.sum())}."
    )


def error_figures(details: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By caption: reliability of the chances, or residuals, each with a note on how to read it."""
    figures = event_figures(details["event"]) if "curve" in details.get("event", {}) else {}
    if details.get("reliability"):
        caption = f"Is a predicted chance of {details['chance_of']} right? (rows held out)"
        figures[caption] = (
            _reliability_figure(details["reliability"]),
            "Each point is a group of rows with about the same predicted chance. On the dashed line the chances are "
            "right; above it things happen more often than predicted, below it less often.",
        )
    if details.get("residuals"):
        figures["How far off are predictions? (rows held out)"] = (
            _residual_figure(details["residuals"]),
            "Rows from the smallest to the largest prediction. Half of them are off by what the dark band shows, nine "
            "of ten by what the light one does. Where the line is above zero, predictions are too low.",
        )
    return figures


def _reliability_figure(groups: list[dict[str, float]]) -> str:
    predicted, observed = ([group[name] for group in groups] for name in ("predicted", "observed"))
    chances = Scale(0.0, 1.0, percent=True)
    figure = Figure(chances, chances, "predicted chance", "share of rows where it happened", height=380.0)
    figure.line([0.0, 1.0], [0.0, 1.0], DIM, label="a perfect forecast", dashed=True)
    figure.line(predicted, observed, label="this model", marked=True)
    return figure.svg()


def _residual_figure(groups: list[dict[str, Any]]) -> str:
    predicted = [group["predicted"] for group in groups]
    curve = {level: [group["residuals"][f"{level:g}"] for group in groups] for level in _BAND}
    figure = Figure(around(predicted), around([0.0], *curve.values()), "prediction", "true value less prediction")
    figure.band(predicted, curve[0.05], curve[0.95], 0.3, "nine of ten rows")
    figure.band(predicted, curve[0.25], curve[0.75], 0.6, "half of the rows")
    figure.line([figure.x.low, figure.x.high], [0.0, 0.0], DIM)
    figure.line(predicted, curve[0.5], label="median", marked=True)
    return figure.svg()
