"""Scores of a fitted estimator on rows that it was not fitted to, each with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import stats
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier, is_regressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from tithe.core.data import Array, Block
from tithe.core.labels import commonest_class
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Storable
from tithe.meta.other_estimators import last_step

_N_PARTS = 20  # parts of the rows whose scores give the interval
_MAX_AUC_CLASSES = 20
_NAMES = {"log_loss": "log-loss", "roc_auc": "AUC", "r2": "R²"}


@dataclass(frozen=True, kw_only=True)
class HeldOutScore(Storable):
    """One score on rows that were held out, with its 95 % interval.

    Parameters
    ----------
    name : {"log_loss", "roc_auc", "r2"}
    value : float
    interval : (float, float) or None
        None where fewer than two of the parts that give it have a score: they lack a class, or have a single row.
    uniform : float or None
        The same of an estimator that was fitted on a uniform sample of as many rows.
    difference : (float, float) or None
        The 95 % interval of ``value - uniform``: both are of the same rows, so it is narrower than either interval.

    Examples
    --------
    >>> print(HeldOutScore(name="log_loss", value=0.25, interval=(0.24, 0.26)))
    log-loss 0.25 (0.24 to 0.26)
    """

    name: str
    value: float
    interval: tuple[float, float] | None
    uniform: float | None = None
    difference: tuple[float, float] | None = None

    def __str__(self) -> str:
        few = "too few rows for an interval" if self.name == "r2" else "too few rows of a class for an interval"
        within = few if self.interval is None else f"{self.interval[0]:.4g} to {self.interval[1]:.4g}"
        said = f"{_NAMES[self.name]} {self.value:.4g} ({within})"
        if self.uniform is None:
            return said
        if self.difference is None:
            return f"{said}; of a uniform sample {self.uniform:.4g}"
        low, high = self.difference
        return f"{said}; of a uniform sample {self.uniform:.4g}, {low:+.2g} to {high:+.2g} different"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answers:
    """What an estimator says about rows: probabilities (n, K) of all classes, or numbers (n,)."""

    values: Array
    classes: Array | None

    @classmethod
    def of(cls, estimator: Any, X: Any, labels: Array | None) -> Self:
        if labels is None:
            return cls(values=np.asarray(estimator.predict(X), np.float64), classes=None)
        chances = np.asarray(estimator.predict_proba(X), np.float64)
        known = np.searchsorted(labels, estimator.classes_)  # a class that the coreset lacks has no probability
        values = np.zeros((len(chances), len(labels)))
        values[:, known] = chances
        return cls(values=values, classes=labels)

    def scores(self, y: Array, weight: Array | None, rows: Array | slice = slice(None)) -> dict[str, float]:
        """The scores of some rows; NaN for one that they do not have."""
        y, values, weight = y[rows], self.values[rows], None if weight is None else weight[rows]
        if self.classes is None:
            return {"r2": float(r2_score(y, values, sample_weight=weight))}
        tiny = np.finfo(np.float64).eps
        kept = np.clip(values, tiny, 1.0)
        kept /= kept.sum(axis=1, keepdims=True)
        scores = {"log_loss": float(log_loss(y, kept, sample_weight=weight, labels=self.classes))}
        present = np.unique(y)
        if len(self.classes) == 2:
            both = len(present) == 2
            auc = roc_auc_score(y == self.classes[1], values[:, 1], sample_weight=weight) if both else np.nan
            scores["roc_auc"] = float(auc)
        elif len(self.classes) <= _MAX_AUC_CLASSES:
            aucs = [
                roc_auc_score(y == label, values[:, k], sample_weight=weight)
                for k, label in enumerate(self.classes)
                if label in present and len(present) > 1
            ]
            scores["roc_auc"] = float(np.mean(aucs)) if len(aucs) == len(self.classes) else np.nan
        return scores


def held_out_scores(
    estimator: Any, X: Any, y: Array, weight: Array | None, labels: Array | None, uniform: Any = None
) -> list[HeldOutScore]:
    """Log-loss and AUC (the mean over classes) of a classifier, or R2 of a regressor, on rows (X, y, weight).

    ``labels`` are all classes. ``uniform`` is an estimator to compare with. Intervals come from the scores of twenty
    parts of the rows and Student's t. The list is empty for an estimator without probabilities and target.
    """
    if is_classifier(estimator):
        if not hasattr(estimator, "predict_proba"):
            return []
    elif not is_regressor(estimator):
        return []
    known = np.arange(len(y)) if labels is None else np.flatnonzero(np.isin(y, labels))  # others have no probability
    if not len(known):
        return []
    order = known[rng_for(0, "held out").permutation(len(known))]
    parts = [np.sort(part) for part in np.array_split(order, _N_PARTS)]
    answers = [_Answers.of(model, X, labels) for model in (estimator, uniform) if model is not None]
    whole = [answer.scores(y, weight, known) for answer in answers]
    by_part = [[answer.scores(y, weight, part) for part in parts] for answer in answers]
    scores = []
    for name, value in whole[0].items():
        ours = np.array([part[name] for part in by_part[0]])
        if np.isnan(value):
            continue
        score = HeldOutScore(name=name, value=value, interval=_possible(name, _interval(value, ours)))
        if uniform is not None:
            theirs, apart = whole[1][name], ours - np.array([part[name] for part in by_part[1]])
            score = replace(score, uniform=theirs, difference=_interval(value - theirs, apart))
        scores.append(score)
    return scores


def _interval(value: float, parts: Array) -> tuple[float, float] | None:
    """The 95 % interval from the scores of parts of the rows; None where fewer than two of them have one."""
    parts = parts[np.isfinite(parts)]
    if len(parts) < 2:
        return None
    half = float(stats.t.ppf(0.975, len(parts) - 1) * np.std(parts, ddof=1) / np.sqrt(len(parts)))
    return (float(value) - half, float(value) + half)


def _possible(name: str, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """The part of an interval that a score can lie in."""
    if interval is None:
        return None
    low, high = interval
    return (max(low, 0.0) if name != "r2" else low, min(high, 1.0) if name != "log_loss" else high)


def score_in_words(estimator: Any, rows: Block) -> dict[str, str]:
    """What the score of an estimator is called, and what one would reach that knows nothing."""
    _, learner = last_step(estimator)
    if rows.y is None or not len(rows) or type(learner).score not in (ClassifierMixin.score, RegressorMixin.score):
        return {"named": "score", "beside": ""}
    if is_regressor(estimator):
        return {"named": "R²", "beside": ", where always to predict the mean has 0"}
    label, share = commonest_class(rows.y, rows.weights())
    return {"named": "accuracy", "beside": f", where always to say {label} has {share:.4f}"}


def in_words(scores: Sequence[HeldOutScore]) -> str:
    return "".join(f" {str(score)[0].upper()}{str(score)[1:]}." for score in scores)
