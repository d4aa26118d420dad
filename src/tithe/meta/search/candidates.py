"""The candidates of a search, and checks of its parameters."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import ParameterGrid, ParameterSampler

from tithe.core.params import Boolean, Constraint, Instance, OneOf, WholeNumber, check_params, resolve_size
from tithe.core.registry import make
from tithe.fit.base import CoresetLearner
from tithe.meta.other_estimators import check_learns_from_coresets, last_step
from tithe.meta.search.evaluate import Params, candidate
from tithe.meta.search.results import check_refit
from tithe.meta.search.scoring import Scoring, is_multimetric

_UNUSED = ("coreset_size", "construction", "calibrate")  # parameters without effect in a search


def candidates_of(estimator: Any, param_grid: Any, n_iter: int | None, seed: int) -> list[Params]:
    """All candidates of a grid, or ``n_iter`` drawn at random. Those that cannot learn from a coreset are refused."""
    candidates = list(_chosen(param_grid, n_iter, seed))
    if not candidates:
        raise ValueError("param_grid holds no candidate: name at least one value of a parameter.")
    for params in candidates:
        model = candidate(estimator, params)
        check_learns_from_coresets(model)
        prefix, learner = last_step(model)
        unused = {key for key in params if key in {f"{prefix}{name}" for name in _UNUSED}}
        if unused and isinstance(learner, CoresetLearner):
            reason = "all candidates of a fold learn from one coreset. Leave it out of param_grid."
            raise ValueError(f"{min(unused)} of {type(learner).__name__} cannot be searched: {reason}")
    return candidates


def _chosen(param_grid: Any, n_iter: int | None, seed: int) -> Any:
    if n_iter is not None:
        return ParameterSampler(param_grid, n_iter, random_state=seed % 2**32)
    grids = [param_grid] if isinstance(param_grid, Mapping) else param_grid
    for grid in grids if isinstance(grids, (list, tuple)) else ():
        for key, values in grid.items() if isinstance(grid, Mapping) else ():
            if hasattr(values, "rvs"):
                raise ValueError(f"{key} is a distribution, from which candidates are drawn: set n_iter.")
    return ParameterGrid(param_grid)


_CONSTRAINTS: dict[str, Constraint] = {
    "calibrate": Boolean(),
    "return_train_score": Boolean(),
    "n_iter": OneOf(None) | WholeNumber(least=1),
    "n_jobs": OneOf(None) | Instance(numbers.Integral, "an integer other than 0"),
    "verbose": WholeNumber(),
    "error_score": OneOf("raise") | Instance(numbers.Real, "a number"),
}


def check_options(search: Any) -> None:
    """Refuse wrong parameters of a search before a row is read."""
    check_params(search, _CONSTRAINTS)
    if search.n_jobs == 0:
        raise ValueError("n_jobs must be an integer other than 0, or None; got 0.")
    for kind, what in (
        ("construction", search.construction),
        ("objective", search.objective),
        ("engine", search.engine),
    ):
        if not (isinstance(what, str) and what == "auto"):
            make(kind, what)
    if search.coreset_size != "auto":
        resolve_size(search.coreset_size, 1)
    _check_scores(search.estimator, search.scoring, search.refit)


def _check_scores(estimator: Any, scoring: Any, refit: Any) -> None:
    """Refuse a ``refit`` that does not say which of several scores decides."""
    Scoring(estimator, scoring).scorer()
    if is_multimetric(scoring):
        check_refit(refit, list(scoring))
    elif isinstance(refit, str) and not callable(scoring) and refit != scoring:
        raise ValueError(f"refit names the score {refit!r}, and scoring is {scoring!r}: set refit to True or False.")
    elif not isinstance(refit, (bool, np.bool_, str)) and not callable(refit):
        raise ValueError(f"refit must be True, False, the name of a score or a callable, got {refit!r}.")
