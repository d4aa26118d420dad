"""Tree ensembles of LightGBM, XGBoost, CatBoost and scikit-learn: their losses, rounds, and how they stop early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline

from tithe.core.contracts import Objective
from tithe.core.data import Array, Coreset, Rng
from tithe.fit.labels import objective_for, usual_objective
from tithe.meta.boosting import BoostingObjective
from tithe.meta.leaves import mean_loss
from tithe.meta.other_estimators import OuterEstimator, fit_arguments, last_step, library_of, with_categories

_SAME = {"squared_error", "absolute_error", "quantile", "poisson", "gamma"}
# losses by the names of the libraries; any other one is drawn for as least squares
_LOSSES = {
    **{name: name for name in _SAME},
    **dict.fromkeys(("regression_l1", "l1", "mean_absolute_error", "mae", "reg:absoluteerror"), "absolute_error"),
    "reg:quantileerror": "quantile",
    **dict.fromkeys(("count:poisson", "tweedie", "reg:tweedie"), "poisson"),
    "reg:gamma": "gamma",
}
SHARE = 0.25  # of the rows, by default
_ROWS = (5000, 500_000)  # at the least and at the most
_PATIENCE = 20  # rounds without a better loss after which a fit stops, where the learner has no number of its own
_MIN_ROWS_TO_STOP = 100  # with fewer rows aside, the best number of rounds is noise: others are set aside in turn
_RARE = 0.01  # share of a class from which on leaves of LightGBM have enough second derivatives
_CLEARLY = 0.8  # of a loss: less is not chance
_STEADY = {"max_delta_step": 1.0}  # of LightGBM: log-loss of 0.001 where it is 0.05 without, on sets with rare classes
_NO_METRIC = {"none", "na", "null", "custom"}  # of LightGBM
_BOUNDS = {"max_delta_step", "max_tree_output", "max_leaf_output"}


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """What must be known of a library of boosted trees.

    Parameters
    ----------
    loss : tuple of str
        The parameters that name the loss of a regression and its quantile.
    n_rounds : tuple of str
        The names of the parameter that is the number of rounds, the usual one first.
    fixed : dict
        Parameters with which a fit takes all rounds.
    stopping : tuple of str
        Names of parameters that let a fit stop early by itself, which needs rows set aside.
    best_rounds : callable or None
        ``best_rounds(model, train, aside)`` fits to (X, y, weight) and returns the number of rounds that is best on
        the rows aside; ``model`` then predicts with these. None: the library has no weighted early stopping.
    """

    loss: tuple[str, str]
    n_rounds: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    stopping: tuple[str, ...] = ()
    best_rounds: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], int] | None = None


def _lightgbm_rounds(model: Any, train: tuple[Any, ...], aside: tuple[Any, ...]) -> int:
    from lightgbm import early_stopping

    X, y, weight = train
    stop = early_stopping(_PATIENCE, first_metric_only=True, verbose=False)
    if str(model.get_params().get("metric")).lower() in _NO_METRIC:
        model.set_params(metric="")  # that of the objective: without one no round is the best
    known = "eval_X" in signature(model.fit).parameters  # LightGBM 4.7 warns of eval_set
    given = {"eval_X": aside[0], "eval_y": aside[1]} if known else {"eval_set": [aside[:2]]}
    model.fit(X, y, sample_weight=weight, eval_sample_weight=[aside[2]], callbacks=[stop], **given)
    return int(model.best_iteration_ or model.booster_.current_iteration())


def _xgboost_rounds(model: Any, train: tuple[Any, ...], aside: tuple[Any, ...]) -> int:
    X, y, weight = train
    if model.early_stopping_rounds is None:
        model.set_params(early_stopping_rounds=_PATIENCE)
    model.fit(X, y, sample_weight=weight, eval_set=[aside[:2]], sample_weight_eval_set=[aside[2]], verbose=False)
    return int(model.best_iteration) + 1


def _catboost_rounds(model: Any, train: tuple[Any, ...], aside: tuple[Any, ...]) -> int:
    from catboost import Pool

    X, y, weight = train
    pool = Pool(aside[0], aside[1], weight=aside[2], cat_features=model.get_params().get("cat_features"))
    model.fit(X, y, sample_weight=weight, eval_set=pool, early_stopping_rounds=_PATIENCE, verbose=False)
    return int(model.get_best_iteration()) + 1


def _histogram_rounds(model: Any, train: tuple[Any, ...], aside: tuple[Any, ...]) -> int:
    X, y, weight = train
    model.set_params(early_stopping=True, scoring="loss")
    model.fit(X, y, sample_weight=weight, X_val=aside[0], y_val=aside[1], sample_weight_val=aside[2])
    return max(1, int(np.argmax(model.validation_score_)))  # the first one is without trees


def _chances(model: Any, X: Any, rounds: int) -> Array:
    """Chances of the classes by the first rounds of a fitted model."""
    if library_of(model) != "sklearn":
        return np.asarray(model.predict_proba(X))  # of the best round, if the fit stopped early
    return np.asarray(next(islice(model.staged_predict_proba(X), rounds - 1, None)))


_LIGHTGBM = Ensemble(
    loss=("objective", "alpha"),
    n_rounds=(
        *("n_estimators", "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round"),
        *("num_rounds", "nrounds", "num_boost_round", "max_iter"),
    ),
    stopping=("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    best_rounds=_lightgbm_rounds,
)
_XGBOOST = Ensemble(
    loss=("objective", "quantile_alpha"),
    n_rounds=("n_estimators",),
    fixed={"early_stopping_rounds": None},
    best_rounds=_xgboost_rounds,
)
_CATBOOST = Ensemble(
    loss=("loss_function", ""),
    n_rounds=("iterations", "n_estimators", "num_boost_round", "num_trees"),
    stopping=("use_best_model",),
    best_rounds=_catboost_rounds,
)
_HISTOGRAM = Ensemble(
    loss=("loss", "quantile"), n_rounds=("max_iter",), fixed={"early_stopping": False}, best_rounds=_histogram_rounds
)
_PLAIN = Ensemble(loss=("loss", "alpha"), n_rounds=("n_estimators",))


def ensemble_of(estimator: Any) -> Ensemble | None:
    """What is known of an estimator, if it is an ensemble of boosted trees, ends in one or holds one."""
    _, learner = last_step(estimator)
    if isinstance(learner, OuterEstimator):
        return ensemble_of(learner.estimator)
    if not (is_classifier(learner) or is_regressor(learner)):
        return None
    library = library_of(learner)
    if library == "lightgbm":
        return _LIGHTGBM
    if library == "xgboost":
        return None if learner.get_params().get("booster") == "gblinear" else _XGBOOST
    if library == "catboost":
        return _CATBOOST
    if isinstance(learner, (HistGradientBoostingClassifier, HistGradientBoostingRegressor)):
        return _HISTOGRAM
    return _PLAIN if isinstance(learner, (GradientBoostingClassifier, GradientBoostingRegressor)) else None


def learning_objective(estimator: Any, objective: str | Objective, n_classes: int) -> Objective:
    """The objective of a coreset for an estimator, by name or as given; ``"auto"`` is the one that serves it best.

    y holds class numbers below ``n_classes``, which is 0 for a regression.
    """
    if objective == "auto":
        objective = "boosting" if ensemble_of(estimator) is not None else usual_objective(estimator, n_classes)
    return _own_loss(estimator, n_classes) if objective == "boosting" else objective_for(objective, n_classes)


def _own_loss(estimator: Any, n_classes: int) -> BoostingObjective:
    """The objective of the learner's own loss."""
    if is_classifier(estimator):
        return BoostingObjective(classes=tuple(range(n_classes)) or None)
    ensemble, (_, learner) = ensemble_of(estimator), last_step(estimator)
    if ensemble is None:
        return BoostingObjective(loss="squared_error")
    options, library = learner.get_params(deep=False), library_of(learner)
    name, _, details = str(options.get(ensemble.loss[0])).lower().partition(":alpha=")  # CatBoost: Quantile:alpha=0.9
    loss = _LOSSES.get(name.partition(":")[0] if library == "catboost" else name, "squared_error")
    level = details or options.get(ensemble.loss[1])
    if loss != "quantile" or np.ndim(level):  # several quantiles at once
        return BoostingObjective(loss="squared_error" if loss == "quantile" else loss)
    return BoostingObjective(loss=loss, level=float(level or (0.5 if library == "catboost" else 0.9)))


def learning_weights(estimator: Any, coreset: Coreset) -> Array:
    """The weights of a coreset as the estimator takes them.

    Penalties and smallest leaves of boosted trees count weights: those of a coreset then have the mean of all rows.
    """
    weight = coreset.weights()
    if ensemble_of(estimator) is None or coreset.is_whole:
        return weight
    factor = coreset.weight_seen / coreset.n_seen * len(coreset) / float(weight.sum())
    return np.asarray(weight * factor)


def with_class_factors(estimator: Any, coreset: Coreset) -> tuple[Any, Array | float]:
    """The estimator without the class weights that its library would count, and the factors (n,) of the rows instead.

    Rows of a coreset stand for different numbers of rows: only their weights tell how frequent a class is. A row of
    class c, which weighs n_c of n, has the factor n / (k n_c), as in scikit-learn; with LightGBM's ``is_unbalance``
    the largest n_c over n_c. An estimator on all rows is left as it is. y of the coreset holds class numbers.
    """
    if coreset.is_whole or coreset.y is None or not is_classifier(estimator):
        return estimator, 1.0
    prefix, learner = last_step(estimator)
    given = learner.get_params(deep=False)
    mass = np.bincount(coreset.y, weights=coreset.weights())
    mass[mass == 0.0] = np.inf  # classes without a row
    n_classes = int(np.isfinite(mass).sum())
    if given.get("class_weight") in ("balanced", "balanced_subsample"):
        factors = mass[np.isfinite(mass)].sum() / (n_classes * mass)
        return estimator.set_params(**{f"{prefix}class_weight": None}), factors[coreset.y]
    unbalanced = [name for name in ("is_unbalance", "unbalance", "unbalanced_sets") if given.get(name)]
    if library_of(learner) == "lightgbm" and unbalanced and n_classes == 2:
        factors = mass[np.isfinite(mass)].max() / mass
        return estimator.set_params(**{f"{prefix}{name}": False for name in unbalanced}), factors[coreset.y]
    return estimator, 1.0


def ensemble_size(n_rows: int | None) -> int:
    """Rows that boosted trees learn from by default: with a share of 5 % the best leaves and rounds are others."""
    share = SHARE * n_rows if n_rows is not None else 0.0
    return int(np.clip(share, *_ROWS))


# -- early stopping ----------------------------------------------------------------------------


def check_stops_early(estimator: Any) -> None:
    """Refuse an estimator that has no weighted early stopping."""
    ensemble = ensemble_of(estimator)
    if ensemble is None or ensemble.best_rounds is None:
        kind = type(last_step(estimator)[1]).__name__
        raise ValueError(
            f"early_stopping sets the number of rounds of boosted trees (LightGBM, XGBoost, CatBoost, scikit-learn's "
            f"HistGradientBoosting), and {kind} is none of these: set early_stopping=0."
        )


@dataclass(frozen=True)
class EarlyStop:
    """Where a fit stopped: the number of rounds, a mask of the rows set aside, and the log-loss on these rows.

    ``loss`` is that of the model of the other rows after so many rounds; infinity for regressions. ``steadied`` are
    parameters without which these rounds diverge.
    """

    rounds: int
    aside: Array
    loss: float
    steadied: Mapping[str, float] = field(default_factory=dict)


def best_rounds(
    estimator: Any, rows: Callable[[Array], Any], y: Array, weight: Array | None, share: float, rng: Rng
) -> EarlyStop | None:
    """The number of rounds with the smallest weighted loss on a share of the rows, drawn by class for classifiers.

    If that share has few rows, other rows are set aside in turn, and the median of the numbers counts. ``rows`` gives
    rows by position. None if there are too few rows to tell.
    """
    asides = _slices(y if is_classifier(estimator) else np.zeros(len(y)), share, rng)
    ensemble = ensemble_of(estimator)
    rounds_of = None if ensemble is None else ensemble.best_rounds
    if sum(aside.sum() for aside in asides) < _MIN_ROWS_TO_STOP or rounds_of is None:
        return None
    weight = np.ones(len(y)) if weight is None else weight
    y = np.unique(y, return_inverse=True)[1] if is_classifier(estimator) else y

    def stop(aside: Array, **steadied: float) -> EarlyStop:
        model, parts = _prepared(estimator, [(rows(np.flatnonzero(at)), y[at], weight[at]) for at in (~aside, aside)])
        model.set_params(**steadied)
        rounds = rounds_of(model, *parts)
        loss = np.inf
        if is_classifier(model):
            X, numbers, u = parts[1]
            loss = float(log_loss(numbers, _chances(model, X, rounds), sample_weight=u, labels=np.unique(y)))
        return EarlyStop(rounds, aside, loss, steadied)

    found = stop(asides[0])
    if _may_diverge(last_step(estimator)[1], y[~asides[0]], weight[~asides[0]]):
        steady = stop(asides[0], **_STEADY)
        found = steady if steady.loss < _CLEARLY * found.loss else found
    others = [stop(aside, **found.steadied).rounds for aside in asides[1:]]
    return replace(found, rounds=round(float(np.median([found.rounds, *others]))))


def _prepared(estimator: Any, parts: list[tuple[Any, ...]]) -> tuple[Any, list[tuple[Any, ...]]]:
    """A copy of the trees, and (X, y, weight) of both parts as the steps before them, fitted to the first, give it."""
    model = clone(estimator)
    if isinstance(model, Pipeline):
        first, model = model[:-1], last_step(model)[1]
        first.fit(parts[0][0], parts[0][1], **fit_arguments(first, parts[0][2]))
        parts = [(first.transform(X), y, weight) for X, y, weight in parts]
    return with_categories(model, parts[0][0]), parts


def _may_diverge(model: Any, y: Array, weight: Array) -> bool:
    """Whether a class is so rare that leaves of LightGBM, which have no bound, may get huge values."""
    if library_of(model) != "lightgbm" or not is_classifier(model) or _BOUNDS & model.get_params().keys():
        return False
    totals = np.bincount(y, weight)
    return len(totals) > 2 and bool(totals.min() < _RARE * totals.sum())


def diverged(fitted: Any, rows: Callable[[Array], Any], y: Array, weight: Array | None, stop: EarlyStop) -> bool:
    """Whether trees of all rows are worse on the rows set aside, which they learned from, than those of the others."""
    if not np.isfinite(stop.loss):
        return False
    at = np.flatnonzero(stop.aside)
    return mean_loss(fitted, rows(at), y[at], None if weight is None else weight[at]) > stop.loss


def _slices(groups: Array, share: float, rng: Rng) -> list[Array]:
    """Masks of a share of the rows of each group, rounded down so that a group of few rows keeps them.

    One, or if that has too few rows to tell, as many as there are without a row in two of them.
    """
    order = rng.permutation(len(groups))
    slices = np.zeros((int(1.0 / share), len(groups)), bool)
    for group in np.unique(groups):
        members = order[groups[order] == group]
        size = int(share * len(members))
        for number, aside in enumerate(slices):
            aside[members[number * size : (number + 1) * size]] = True
    return list(slices[: 1 if slices[0].sum() >= _MIN_ROWS_TO_STOP else None])


def with_rounds(estimator: Any, rounds: int, steadied: Mapping[str, float] | None = None) -> Any:
    """The estimator with a fixed number of rounds, and the parameters without which they diverge."""
    ensemble = ensemble_of(estimator)
    assert ensemble is not None
    prefix, learner = last_step(estimator)
    given = learner.get_params(deep=False)
    usual, *others = ensemble.n_rounds
    name = next((other for other in others if other in given), usual)
    stopping = {option: False if given[option] is True else 0 for option in ensemble.stopping if option in given}
    fixed = {name: rounds, **stopping, **ensemble.fixed, **(steadied or {})}
    return estimator.set_params(**{f"{prefix}{name}": value for name, value in fixed.items()})


def importances(estimator: Any) -> Array | None:
    """The share of the gain that the splits by each column have; None for an estimator without trees."""
    if library_of(estimator) == "lightgbm":
        gain = estimator.booster_.feature_importance("gain")
    elif isinstance(estimator, (HistGradientBoostingClassifier, HistGradientBoostingRegressor)):
        gain = _histogram_gain(estimator)
    elif hasattr(estimator, "feature_importances_"):
        gain = estimator.feature_importances_
    else:
        return None
    gain = np.asarray(gain, np.float64)
    return gain / gain.sum() if gain.sum() > 0.0 else gain


def _histogram_gain(model: Any) -> Array:
    """The gain by column; columns of categories come first within the model."""
    gain = np.zeros(model.n_features_in_)
    for trees in model._predictors:
        for tree in trees:
            inner = tree.nodes[~tree.nodes["is_leaf"].astype(bool)]
            np.add.at(gain, inner["feature_idx"], inner["gain"])
    is_category = model.is_categorical_
    if is_category is None or not is_category.any():
        return gain
    order = np.argsort(~is_category, kind="stable")
    ordered = np.empty_like(gain)
    ordered[order] = gain
    return ordered
