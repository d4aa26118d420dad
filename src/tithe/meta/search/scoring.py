"""The scores that ``scoring`` names."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from sklearn import get_config
from sklearn.metrics import check_scoring
from sklearn.utils.metadata_routing import get_routing_for_object

from tithe.core.data import Array
from tithe.core.errors import warn_caller
from tithe.meta.other_estimators import takes_weights

Scores = float | dict[str, Any]  # a score that raised an error is its text


@dataclass(frozen=True)
class PlainScorer:
    """Wraps a function as one of several scores: scikit-learn needs to know whether it takes weights."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def _accept_sample_weight(self) -> bool:
        return "sample_weight" in signature(self.function).parameters


def is_multimetric(scoring: Any) -> bool:
    """Whether ``scoring`` names several scores. A callable may return several as well."""
    return isinstance(scoring, (list, tuple, set, dict))


def scorers_of(estimator: Any, scoring: Any) -> dict[str, Any]:
    """The scorer of each score, by name."""
    named = scoring if isinstance(scoring, dict) else {name: name for name in scoring}
    return {name: check_scoring(estimator, scoring=score) for name, score in named.items()}


@dataclass(frozen=True)
class Scoring:
    """Makes scorers from ``scoring``.

    Parameters
    ----------
    estimator : estimator
        The estimator of the search, whose ``score`` is used if ``scoring`` is None.
    scoring : str, callable, list, tuple, set, dict or None
    raise_errors : bool
        Whether the error of one of several scores is raised. If not, its text takes the place of the score.
    """

    estimator: Any
    scoring: Any
    raise_errors: bool = True

    def scorer(self) -> Any:
        if not is_multimetric(self.scoring):
            return check_scoring(self.estimator, scoring=self.scoring)
        if not self.scoring:
            raise ValueError("scoring names no score: give at least one.")
        # checks names and types
        check_scoring(self.estimator, scoring=self.scoring)
        scorers = {
            name: scorer if hasattr(scorer, "_accept_sample_weight") else PlainScorer(scorer)
            for name, scorer in scorers_of(self.estimator, self.scoring).items()
        }
        return check_scoring(self.estimator, scoring=scorers, raise_exc=self.raise_errors)

    def takes_weights(self) -> bool:
        """Whether the score, or one of several, takes weights."""
        if self.scoring is None:
            return takes_weights(self.estimator, "score")
        scorer = self.scorer()
        if is_multimetric(self.scoring) and get_config()["enable_metadata_routing"]:
            return bool(get_routing_for_object(scorer).consumes("score", ["sample_weight"]))
        accepts = getattr(scorer, "_accept_sample_weight", None)
        return bool(accepts() if accepts else "sample_weight" in signature(scorer).parameters)

    def uses(self, *weights: Array | None) -> bool:
        """Whether there are weights and the score takes them. Warns if it does not take them."""
        if all(weight is None for weight in weights):
            return False
        if not self.takes_weights():
            warn_caller("The score takes no sample_weight: all rows count the same.")
            return False
        return True


def score_rows(scorer: Any, model: Any, X: Any, y: Array | None, sample_weight: Array | None) -> Scores:
    """The score or scores of a fitted model. y is passed only if there is one."""
    target = () if y is None else (y,)
    weight = {} if sample_weight is None else {"sample_weight": sample_weight}
    scores = scorer(model, X, *target, **weight)
    if isinstance(scores, dict):
        return {name: score if isinstance(score, str) else _number(score, name) for name, score in scores.items()}
    return _number(scores, "score")


def _number(score: Any, name: str) -> float:
    if hasattr(score, "item"):  # an array of one number
        score = score.item()
    if not isinstance(score, numbers.Number) or isinstance(score, complex):
        raise TypeError(f"scoring must give a number, or a dict of numbers; {name} is {score!r} ({type(score)}).")
    return float(score)  # type: ignore[arg-type]
