"""Fits candidates on the coresets of folds and scores them on held-out rows, with several workers."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from tithe.core.data import Array, Block
from tithe.core.parallel import available_threads, limit_threads, single_blas_thread
from tithe.fit.base import CoresetLearner
from tithe.meta.other_estimators import fit_arguments, last_step
from tithe.meta.search.folds import Fold
from tithe.meta.search.scoring import Scores, score_rows
from tithe.rows.arrays import plain_weights

Params = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one candidate in one fold. Scores are None if there was an error, whose text is ``error``."""

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
    scorer: Any
    labels: Array | None  # of classifiers, in the order of their numbers
    weighted: bool  # whether the scorer is given weights
    train_scores: bool
    raise_errors: bool
    verbose: int
    n_candidates: int
    n_folds: int
    n_threads: int | None = None  # that kernels may use in one worker

    def run(self, fold: Fold, fold_number: int, candidates: list[tuple[int, Params]]) -> list[Outcome]:
        """The outcomes of candidates in a fold. Each starts from the solution of the one before if it can."""
        outcomes, model = [], None
        # the bits of a BLAS product depend on the number of threads, which depends on the number of workers
        with single_blas_thread(), nullcontext() if self.n_threads is None else limit_threads(self.n_threads):
            for number, params in candidates:
                if self.verbose > 3:
                    print(f"{self._place(fold_number, number)} START {_shown(params)}")
                outcome, model = self._outcome(fold, params, model)
                outcomes.append(outcome)
                self._print(outcome, fold_number, number, params)
        return outcomes

    def _outcome(self, fold: Fold, params: Params, last: Any) -> tuple[Outcome, Any]:
        start = time.perf_counter()
        try:
            model = self._fitted(fold.coreset, params, last)
        except Exception:
            if self.raise_errors:
                raise
            elapsed = time.perf_counter() - start
            return Outcome(fit_time=elapsed, fit_failed=True, error=traceback.format_exc()), last
        middle = time.perf_counter()
        test, error = self._scores(model, fold.held_out)
        score_time = time.perf_counter() - middle
        train = None
        if self.train_scores:
            train, train_error = self._scores(model, fold.coreset)
            error = error or train_error
        return Outcome(test=test, train=train, fit_time=middle - start, score_time=score_time, error=error), model

    def _fitted(self, coreset: Block, params: Params, last: Any) -> Any:
        model = candidate(self.estimator, params)
        prefix, learner = last_step(model)
        if isinstance(learner, CoresetLearner):
            model.set_params(**{f"{prefix}coreset_size": len(coreset)})  # the coreset must not be reduced again
            if last is not None and starts_warm(model):
                model = last.set_params(**{**model.get_params(deep=False), "warm_start": True})
        weight = plain_weights(coreset.sample_weight)
        return model.fit(coreset.X, self._targets(coreset), **fit_arguments(model, weight))

    def _targets(self, block: Block) -> Array | None:
        return block.y if block.y is None or self.labels is None else self.labels[block.y]

    def _scores(self, model: Any, block: Block) -> tuple[Scores | None, str]:
        """The scores on a block, or what went wrong."""
        weight = plain_weights(block.sample_weight) if self.weighted else None
        try:
            scores = score_rows(self.scorer, model, block.X, self._targets(block), weight)
        except Exception:
            if self.raise_errors:
                raise
            return None, traceback.format_exc()
        texts = [score for score in scores.values() if isinstance(score, str)] if isinstance(scores, dict) else []
        return scores, next(iter(texts), "")

    def _place(self, fold_number: int, number: int) -> str:
        which = f"; {number + 1}/{self.n_candidates}" if self.verbose > 3 else ""
        return f"[CV {fold_number + 1}/{self.n_folds}{which}]" if self.verbose > 2 else "[CV]"

    def _print(self, outcome: Outcome, fold_number: int, number: int, params: Params) -> None:
        if self.verbose <= 1:
            return
        text = f"{self._place(fold_number, number)} END {_shown(params)};"
        if self.verbose > 2:
            text += "".join(f" {score}" for score in self._shown_scores(outcome))
        print(f"{text} total time={outcome.fit_time + outcome.score_time:6.1f}s")

    def _shown_scores(self, outcome: Outcome) -> Iterator[str]:
        tests = outcome.test if isinstance(outcome.test, dict) else {"score": outcome.test}
        trains = outcome.train if isinstance(outcome.train, dict) else {"score": outcome.train}
        for name in sorted(tests):
            test = _rounded(tests[name])
            yield f"{name}=(train={_rounded(trains.get(name))}, test={test})" if self.train_scores else f"{name}={test}"


def _shown(params: Params) -> str:
    return ", ".join(f"{key}={params[key]}" for key in sorted(params))


def _rounded(score: Any) -> str:
    return f"{score:.3f}" if isinstance(score, float) else "nan"


def starts_warm(model: Any) -> bool:
    """Whether a candidate can start from the solution of the one before."""
    return isinstance(model, CoresetLearner) and "warm_start" in model.get_params(deep=False)  # type: ignore[attr-defined]


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
