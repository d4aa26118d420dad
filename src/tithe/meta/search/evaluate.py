"""Fits candidates on the coresets of folds with several workers, scores them, and tells the best."""

from __future__ import annotations

import numbers
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from itertools import islice
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.stats import rankdata
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.parallel import Parallel, delayed

from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.core.parallel import available_threads, limit_threads, single_blas_thread
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for
from tithe.fit.base import CoresetLearner
from tithe.meta.ensembles import learning_weights, with_class_factors
from tithe.meta.leaves import leaf_obstacle, refitted_leaves
from tithe.meta.other_estimators import (
    NO_ARGUMENTS,
    RowArguments,
    fit_arguments,
    fitted_to_labels,
    last_step,
    rows_of,
    takes_weights,
    with_categories,
)
from tithe.meta.search.folds import Fold
from tithe.rows.arrays import plain_weights

Params = dict[str, Any]
Results = dict[str, Any]
Scores = float | dict[str, Any]  # a score that raised an error is its text
_LEAST_SCORED = 2500  # rows held out that candidates are scored on
GROWN = 0.2  # of the rows that trees grow on, where the others give the values of the leaves


# -- scores ------------------------------------------------------------------------------------


def is_multimetric(scoring: Any) -> bool:
    """Whether ``scoring`` names several scores. A callable may return several as well."""
    return isinstance(scoring, (list, tuple, set, dict))


@dataclass(frozen=True)
class Scoring:
    """The score or scores of a fitted model that ``scoring`` names.

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
        """The scorer, or a dict of scorers by name. scikit-learn refuses names and types that it does not know."""
        if not is_multimetric(self.scoring):
            return check_scoring(self.estimator, scoring=self.scoring)
        if not self.scoring:
            raise ValueError("scoring names no score: give at least one.")
        check_scoring(self.estimator, scoring=self.scoring)
        named = self.scoring if isinstance(self.scoring, dict) else {name: name for name in self.scoring}
        return {name: check_scoring(self.estimator, scoring=score) for name, score in named.items()}

    def together(self) -> Any:
        """One scorer of all scores."""
        named = self.scorer()
        return check_scoring(self.estimator, scoring=named) if is_multimetric(self.scoring) else named

    def __call__(
        self, model: Any, X: Any, y: Array | None, sample_weight: Array | None, **params: Any
    ) -> tuple[Scores, bool]:
        """The scores, and whether they took the weights. y is passed only if there is one."""
        rows = (X,) if y is None else (X, y)
        if is_multimetric(self.scoring):
            scores, weighted = self._several(model, rows, sample_weight, params)
        else:
            scores, weighted = self._one(model, rows, sample_weight, params)
        if isinstance(scores, Mapping):
            numbers = {name: s if isinstance(s, str) else _number(s, name) for name, s in scores.items()}
            return numbers, weighted
        return _number(scores, "score"), weighted

    def _one(self, model: Any, rows: tuple[Any, ...], weight: Array | None, params: Params) -> tuple[Any, bool]:
        scorer = self.scorer()
        weighted = weight is not None
        if self.scoring is None:
            weighted = weighted and takes_weights(self.estimator, "score")
        elif not _is_scorer(scorer):
            weighted = weighted and "sample_weight" in signature(scorer).parameters
        if not weighted:
            return scorer(model, *rows, **params), False
        try:
            return scorer(model, *rows, sample_weight=weight, **params), True
        except TypeError as error:  # only a call shows whether a metric of scikit-learn takes weights
            if "sample_weight" not in str(error):
                raise
        return scorer(model, *rows, **params), False

    def _several(
        self, model: Any, rows: tuple[Any, ...], weight: Array | None, params: Params
    ) -> tuple[dict[str, Any], bool]:
        """Several scores. scikit-learn computes those of its own together, each with weights if it takes them."""
        named = self.scorer()
        scores: dict[str, Any] = dict.fromkeys(named)
        together = {name: scorer for name, scorer in named.items() if _is_scorer(scorer)}
        if together:
            scorer = check_scoring(self.estimator, scoring=together, raise_exc=self.raise_errors)
            routed = bool(get_config()["enable_metadata_routing"])
            takes = not routed or get_routing_for_object(scorer).consumes("score", ["sample_weight"])
            weights = {"sample_weight": weight} if weight is not None and takes else {}
            scores |= scorer(model, *rows, **weights, **params)
        for name in named.keys() - together.keys():
            options = {"sample_weight": weight} if "sample_weight" in signature(named[name]).parameters else {}
            try:
                scores[name] = named[name](model, *rows, **({} if weight is None else options))
            except Exception:
                if self.raise_errors:
                    raise
                scores[name] = traceback.format_exc()
        return scores, weight is not None


def _is_scorer(scorer: Any) -> bool:
    """Whether a scorer is of scikit-learn, not a plain function."""
    return hasattr(scorer, "set_score_request")


def _number(score: Any, name: str) -> float:
    if hasattr(score, "item"):  # an array of one number
        score = score.item()
    if not isinstance(score, numbers.Number) or isinstance(score, complex):
        raise TypeError(f"scoring must give a number, or a dict of numbers; {name} is {score!r} ({type(score)}).")
    return float(score)  # type: ignore[arg-type]


# -- candidates in folds -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one candidate in one fold. Scores are None if there was an error, whose text is ``error``."""

    unweighted: bool = False  # whether there were weights that the score does not take
    test: Scores | None = None
    train: Scores | None = None
    fit_time: float = 0.0
    score_time: float = 0.0
    fit_failed: bool = False
    error: str = ""


def candidate(estimator: Any, params: Params) -> Any:
    """A new estimator with the parameters of a candidate."""
    return clone(estimator).set_params(**clone(params, safe=False))


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Fits and scores a candidate in a fold. It is sent to workers, so all of it can be pickled."""

    estimator: Any
    scoring: Scoring
    labels: Array | None  # of classifiers, in the order of their numbers
    train_scores: bool
    raise_errors: bool
    verbose: int
    n_candidates: int
    n_folds: int
    n_threads: int | None = None  # that kernels may use in one worker
    share: float = 1.0  # of the rows of a coreset that candidates learn from
    fit_params: RowArguments = NO_ARGUMENTS
    score_params: RowArguments = NO_ARGUMENTS
    leaves: bool = False  # whether trees grow on a part of these rows, and leaves get values from the others

    def run(self, fold: Fold, fold_number: int, candidates: list[tuple[int, Params]]) -> list[Outcome]:
        """The outcomes of candidates in a fold. Each starts from the solution of the one before if it can."""
        outcomes, model = [], None
        # the bits of a BLAS product depend on the number of threads, which depends on the number of workers
        with single_blas_thread(), nullcontext() if self.n_threads is None else limit_threads(self.n_threads):
            for number, params in candidates:
                outcome, model = self._outcome(fold, params, model)
                outcomes.append(outcome)
                if self.verbose > 1:
                    self._print(outcome, fold_number, number, params)
        return outcomes

    def _outcome(self, fold: Fold, params: Params, last: Any) -> tuple[Outcome, Any]:
        start = time.perf_counter()
        try:
            model = self._fitted(fold, params, last)
        except Exception:
            if self.raise_errors:
                raise
            elapsed = time.perf_counter() - start
            return Outcome(fit_time=elapsed, fit_failed=True, error=traceback.format_exc()), last
        middle = time.perf_counter()
        test, weighted, error = self._scores(model, *self._scored_on(fold))
        score_time = time.perf_counter() - middle
        train = None
        if self.train_scores:
            train, train_weighted, train_error = self._scores(model, fold.coreset, fold.X)
            weighted, error = weighted and train_weighted, error or train_error
        scores = Outcome(test=test, train=train, error=error, unweighted=not weighted)
        return replace(scores, fit_time=middle - start, score_time=score_time), model

    def _fitted(self, fold: Fold, params: Params, last: Any) -> Any:
        model, coreset, share = candidate(self.estimator, params), fold.coreset, self.share
        leaves = self.leaves and leaf_obstacle(model) is None
        model, factors = with_class_factors(model, coreset)
        prefix, learner = last_step(model)
        if isinstance(learner, CoresetLearner):
            model.set_params(**{f"{prefix}coreset_size": len(coreset)})  # the coreset must not be reduced again
            if last is not None and starts_warm(model):
                model = last.set_params(**{**model.get_params(deep=False), "warm_start": True})
        weight = None if coreset.sample_weight is None else learning_weights(model, coreset) * factors
        X, y, more = fold.X, self._targets(coreset), self.fit_params.of(coreset)
        if leaves or share < 1.0:
            at, weight = fold.part(share * (GROWN if leaves else 1.0), by_class=self.labels is not None)
            weight = weight * np.broadcast_to(factors, len(coreset))[at]
            weight *= len(at) / weight.sum()
            X, y, more = rows_of(fold.X, at), None if y is None else y[at], self.fit_params.of(coreset.take(at))
        arguments = fit_arguments(model, plain_weights(weight)) | more
        fitted = fitted_to_labels(with_categories(model, X), X, y, **arguments)
        return self._with_leaves(fitted, fold) if leaves else fitted

    def _with_leaves(self, fitted: Any, fold: Fold) -> Any:
        """The trees with leaf values from the rows of the coreset that they did not grow on."""
        by_class = self.labels is not None
        grown, all_of_it = (fold.part(share, by_class=by_class)[0] for share in (self.share * GROWN, self.share))
        others = np.setdiff1d(all_of_it, grown)
        block = fold.coreset.take(others, fold.coreset.weights()[others])
        take = lambda block: rows_of(fold.X, others)  # noqa: E731
        return refitted_leaves(fitted, DataPass(block), take, self.labels, copy=False)

    def _scored_on(self, fold: Fold) -> tuple[Block, Any]:
        """The rows held out; a part of them, the same for all candidates, where these learn from a part as well."""
        n = len(fold.held_out)
        size = max(min(n, _LEAST_SCORED), round(self.share * n))
        if size == n:
            return fold.held_out, fold.X_held_out
        at = np.sort(rng_for(0, "held out").permutation(n)[:size])
        return fold.held_out.take(at), rows_of(fold.X_held_out, at)

    def _targets(self, block: Block) -> Array | None:
        return block.y if block.y is None or self.labels is None else self.labels[block.y]

    def _scores(self, model: Any, block: Block, X: Any) -> tuple[Scores | None, bool, str]:
        """The scores on a block, whether weights were used if there are any, and what went wrong."""
        weight = plain_weights(block.sample_weight)
        try:
            scores, weighted = self.scoring(model, X, self._targets(block), weight, **self.score_params.of(block))
        except Exception:
            if self.raise_errors:
                raise
            return None, True, traceback.format_exc()
        texts = [score for score in scores.values() if isinstance(score, str)] if isinstance(scores, dict) else []
        return scores, weighted or weight is None, next(iter(texts), "")

    def _print(self, outcome: Outcome, fold_number: int, number: int, params: Params) -> None:
        place = f"[CV {fold_number + 1}/{self.n_folds}; {number + 1}/{self.n_candidates}]"
        shown = [f"{key}={params[key]}" for key in sorted(params)]
        for kind, scores in (("test", outcome.test), ("train", outcome.train)):
            named = scores if isinstance(scores, dict) else {"score": scores}
            shown += [f"{kind} {name}={score:.3f}" for name, score in named.items() if isinstance(score, float)]
        print(f"{place} {', '.join(shown)}; total time={outcome.fit_time + outcome.score_time:6.1f}s")


def starts_warm(model: Any) -> bool:
    """Whether a candidate can start from the solution of the one before."""
    return isinstance(model, CoresetLearner) and "warm_start" in model.get_params(deep=False)


def evaluate(
    evaluator: Evaluator, folds: Iterator[Fold], candidates: list[Params], n_jobs: int | None
) -> Iterator[list[Outcome]]:
    """The outcomes of all candidates, fold by fold.

    Candidates that start from the solution of another one are fitted one after the other, so that scores have the
    same bits for any number of workers. No more folds are held in memory than are needed to keep all workers busy.
    """
    if evaluator.verbose > 0:
        n_folds, n_fits = evaluator.n_folds, evaluator.n_folds * len(candidates)
        print(f"Fitting {n_folds} folds for each of {len(candidates)} candidates, totalling {n_fits} fits")
    n_workers = effective_n_jobs(n_jobs)
    numbered = list(enumerate(candidates))
    in_turn = n_workers == 1 or starts_warm(evaluator.estimator)
    tasks = [numbered] if in_turn else [[one] for one in numbered]
    n_together = -(-n_workers // len(tasks))
    if n_workers > 1:
        evaluator = replace(evaluator, n_threads=max(1, available_threads() // n_workers))
    # kernels of this package release the interpreter lock, and new processes would have to compile or load them
    ours = isinstance(last_step(evaluator.estimator)[1], CoresetLearner)
    with Parallel(n_jobs=n_jobs, prefer="threads" if ours else None) as parallel:
        first = 0
        while together := list(islice(folds, n_together)):
            jobs = [(fold, first + k, task) for k, fold in enumerate(together) for task in tasks]
            done = iter(parallel(delayed(evaluator.run)(*job) for job in jobs))
            for _ in together:
                yield [outcome for part in islice(done, len(tasks)) for outcome in part]
            first += len(together)


# -- results -----------------------------------------------------------------------------------

_LEAST_ROWS = 700  # of the smallest part that candidates learn from


@dataclass(frozen=True, kw_only=False)
class Rungs:
    """Successive halving: the best ``factor``-th of the candidates go on to ``factor`` times as many rows."""

    factor: int
    refit: Any
    error_score: Any

    def results(
        self, evaluator: Evaluator, folds: list[Fold], candidates: list[Params], n_jobs: int | None
    ) -> tuple[Results, bool]:
        """``cv_results_`` of the last scores of each candidate, and whether there are several scores."""
        size = min(len(fold.coreset) for fold in folds)
        n_rungs, left = 1, len(candidates)
        while left > 1 and size // self.factor**n_rungs >= _LEAST_ROWS:
            n_rungs, left = n_rungs + 1, -(-left // self.factor)
        last: list[list[Outcome]] = [[Outcome()] * len(candidates) for _ in folds]
        rung_of, rows = np.zeros(len(candidates), np.int64), np.zeros(len(candidates), np.int64)
        alive = list(range(len(candidates)))
        for rung in range(n_rungs):
            share = float(self.factor) ** (rung + 1 - n_rungs)
            some = [candidates[number] for number in alive]
            # the whole coreset ranks as well without leaf values from a part of it
            ranking = replace(evaluator, share=share, leaves=evaluator.leaves and rung + 1 < n_rungs)
            for j, outcomes in enumerate(evaluate(ranking, iter(folds), some, n_jobs)):
                for number, outcome in zip(alive, outcomes, strict=True):
                    last[j][number] = outcome
            rung_of[alive], rows[alive] = rung, round(share * size)
            results, multimetric = cv_results(some, [[row[n] for n in alive] for row in last], self.error_score)
            if rung + 1 < n_rungs:
                score = results[f"rank_test_{self.refit if multimetric else 'score'}"]
                best = np.argsort(score, kind="stable")[: -(-len(alive) // self.factor)]
                alive = sorted(alive[k] for k in best)
        results, multimetric = cv_results(candidates, last, self.error_score)
        for name in [name for name in results if name.startswith("rank_test_")]:
            mean = results[name.replace("rank_", "mean_")]
            order = np.lexsort((np.where(np.isnan(mean), np.inf, -mean), -rung_of))
            results[name] = np.empty(len(order), np.int32)
            results[name][order] = np.arange(1, len(order) + 1)
        return {**results, "iter": rung_of, "n_resources": rows}, multimetric


def cv_results(candidates: list[Params], outcomes: list[list[Outcome]], error_score: Any) -> tuple[Results, bool]:
    """``cv_results_`` from the outcomes of each fold, and whether there are several scores.

    Missing scores are ``error_score``, with a warning. It is an error if no candidate could be fitted.
    """
    by_candidate = list(zip(*outcomes, strict=True))
    all_outcomes = [outcome for row in by_candidate for outcome in row]
    if any(outcome.unweighted for outcome in all_outcomes):
        warn_caller("The score takes no sample_weight: all rows count the same.")
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
