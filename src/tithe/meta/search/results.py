"""``cv_results_`` as in scikit-learn, and the choice of the best candidate."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import FitFailedWarning

from tithe.core.data import Array
from tithe.core.errors import warn_caller
from tithe.meta.search.evaluate import Outcome, Params
from tithe.meta.search.scoring import Scores

Results = dict[str, Any]


def cv_results(candidates: list[Params], outcomes: list[list[Outcome]], error_score: Any) -> tuple[Results, bool]:
    """``cv_results_`` from the outcomes of each fold, and whether there are several scores.

    Missing scores are ``error_score``, with a warning. It is an error if no candidate could be fitted.
    """
    by_candidate = list(zip(*outcomes, strict=True))
    all_outcomes = [outcome for row in by_candidate for outcome in row]
    names, multimetric = _names(all_outcomes)
    text = _failures(all_outcomes, error_score)
    if all(outcome.fit_failed for outcome in all_outcomes):
        raise ValueError(f"No candidate has a score in every fold: {text}")
    results: Results = {}
    for kind in ("fit_time", "score_time"):
        times = np.array([[getattr(outcome, kind) for outcome in row] for row in by_candidate])
        results |= {f"mean_{kind}": times.mean(axis=1), f"std_{kind}": times.std(axis=1)}
    results |= {f"param_{key}": column for key, column in _param_columns(candidates)}
    results["params"] = candidates
    with_train = any(outcome.train is not None for outcome in all_outcomes)
    for name in names:
        for kind in ("test", "train")[: 1 + with_train]:
            scores = [[_score(getattr(outcome, kind), name, error_score) for outcome in row] for row in by_candidate]
            results |= _summary(np.array(scores), f"{kind}_{name}", ranked=kind == "test")
    if any(outcome.error for outcome in all_outcomes):
        category = FitFailedWarning if any(outcome.fit_failed for outcome in all_outcomes) else UserWarning
        warn_caller(text, category)
    elif not all(np.isfinite(results[f"mean_test_{name}"]).all() for name in names):
        warn_caller("Some scores are not finite: see cv_results_.")
    return results, multimetric


def _names(outcomes: list[Outcome]) -> tuple[list[str], bool]:
    """The names of the scores, "score" if there is only one, and whether there are several."""
    scores = next((outcome.test for outcome in outcomes if outcome.test is not None), None)
    if isinstance(scores, dict):
        return list(scores), True
    return ["score"], False


def _failures(outcomes: list[Outcome], error_score: Any) -> str:
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if not errors:
        return ""
    reason = errors[0].strip().splitlines()[-1]
    return (
        f"{len(errors)} of {len(outcomes)} scores are {error_score}, the first because of {reason}\n\n"
        f"In full, with error_score='raise' to stop there:\n{errors[0]}"
    )


def _score(scores: Scores | None, name: str, error_score: Any) -> float:
    score = scores.get(name) if isinstance(scores, dict) else scores
    return float(error_score) if score is None or isinstance(score, str) else score


def _summary(scores: Array, name: str, *, ranked: bool) -> Results:
    """Scores (candidates, folds) of each fold, and their mean, standard deviation and rank."""
    with np.errstate(invalid="ignore"):  # scores may be infinite
        mean, deviation = scores.mean(axis=1), scores.std(axis=1)
    columns = {f"split{j}_{name}": column for j, column in enumerate(scores.T)}
    columns |= {f"mean_{name}": mean, f"std_{name}": deviation}
    if ranked:
        columns[f"rank_{name}"] = rankdata(np.where(np.isnan(mean), np.inf, -mean), method="min").astype(np.int32)
    return columns


def _param_columns(candidates: list[Params]) -> Iterator[tuple[str, Any]]:
    """The values of each parameter, masked for candidates that do not set it."""
    for key in sorted({key for params in candidates for key in params}):
        chosen = [params[key] for params in candidates if key in params]
        column = np.ma.MaskedArray(np.empty(len(candidates), _dtype(chosen)), mask=True)
        for i, params in enumerate(candidates):
            if key in params:
                column[i] = params[key]
        yield key, column


def _dtype(values: list[Any]) -> Any:
    """The type of numbers and booleans; object for all other values."""
    plain = all(isinstance(value, (numbers.Number, np.bool_)) for value in values)
    return np.array(values).dtype if plain else object


def check_refit(refit: Any, names: list[str]) -> None:
    """Refuse a ``refit`` that does not say which of several scores decides."""
    if refit is not False and not callable(refit) and not (isinstance(refit, str) and refit in names):
        raise ValueError(
            f"With several scores, refit must be one of {sorted(names)}, a callable that takes cv_results_ and gives "
            f"the index of the best candidate, or False; got {refit!r}."
        )


def chosen(results: Results, refit: Any, *, multimetric: bool) -> dict[str, Any]:
    """``best_index_``, ``best_params_`` and ``best_score_``, as far as ``refit`` defines them."""
    metric = "score"
    if multimetric:
        prefix = "mean_test_"
        check_refit(refit, [key.removeprefix(prefix) for key in results if key.startswith(prefix)])
        if not refit:
            return {}
        metric = refit
    if callable(refit):
        index = _called(refit, results)
        return {"best_index_": index, "best_params_": results["params"][index]}
    mean = results[f"mean_test_{metric}"]
    if np.isnan(mean).all():
        raise ValueError(f"No candidate has a {metric} in every fold: all means are nan.")
    index = int(results[f"rank_test_{metric}"].argmin())
    return {"best_index_": index, "best_params_": results["params"][index], "best_score_": float(mean[index])}


def _called(refit: Any, results: Results) -> int:
    """The index that a callable returns."""
    index = refit(results)
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
        raise TypeError(f"refit must give the index of a candidate, an integer, got {index!r}.")
    if not 0 <= index < len(results["params"]):
        raise IndexError(f"refit must give an index below {len(results['params'])}, got {index}.")
    return int(index)
