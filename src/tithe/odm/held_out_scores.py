"""Decision values of held-out rows for candidates that share a kernel matrix, and their scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import check_scoring

from tithe.core.data import Array, Block
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.odm.base import margins_of, row_costs
from tithe.odm.search_space import Candidate
from tithe.odm.solvers.kernel_functions import GivenKernel, KernelFunction, entry_variance
from tithe.odm.solvers.kernel_matrix import Gram
from tithe.odm.solvers.leave_one_out import leave_one_out
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.odm.solvers.many_classes_dual import KernelMulticlassDual
from tithe.odm.solvers.two_classes import Dual, solve_two_classes

KERNELS_WITH_GAMMA = ("rbf", "poly", "sigmoid", "laplacian")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Scores (folds,) of one candidate, the mean smooth loss that decides between equal scores, and the seconds."""

    scores: Array
    loss: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class HeldOutRows:
    """Scores candidates by rows that they were not fitted to.

    Parameters
    ----------
    codes : (n,)
        Class numbers.
    weight : (n,) or None
        Of each row in the fits; rows of weight zero are in no fit.
    score_weight : (n,) or None
        Of each row in the scores.
    classes : (K,)
    splits : list of pairs of row numbers, or None
        Those that are fitted and those that are scored, for each fold. None is leave-one-out.
    score : callable or None
        (decided, row numbers, labels, weights) to a score; None is the accuracy.
    free : bool
        Whether the intercept is free.
    nonconvex, tol, max_iter, seed
        Of the solvers.
    """

    codes: Array
    weight: Array | None
    score_weight: Array | None
    classes: Array
    splits: list[tuple[Array, Array]] | None
    score: Callable[..., float] | None
    free: bool
    nonconvex: str
    tol: float
    max_iter: int
    seed: int

    def outcomes(self, kernel: Array, candidates: list[Candidate]) -> Iterator[Outcome]:
        """Outcomes of candidates with this kernel matrix (n, n), in their order; each fit starts from the last one."""
        starts: dict[int, Array] = {}
        for candidate in candidates:
            begin = time.perf_counter()
            if self.splits is None:
                parts = [(np.arange(len(self.codes)), self._left_out(kernel, candidate, starts))]
            else:
                parts = [
                    (test, self._fold(kernel, candidate, train, test, fold, starts))
                    for fold, (train, test) in enumerate(self.splits)
                ]
            scores = np.array([self._score(rows, values) for rows, values in parts])
            loss = float(np.mean([self._loss(rows, values) for rows, values in parts]))
            yield Outcome(scores=scores, loss=loss, seconds=time.perf_counter() - begin)

    def _left_out(self, kernel: Array, candidate: Candidate, starts: dict[int, Array]) -> Array:
        sign = 2.0 * self.codes - 1.0
        cost = row_costs(self.weight, len(sign), candidate.lam, candidate.theta)
        gram = Gram(GivenKernel(matrix=kernel), np.arange(len(sign)), cache_bytes=kernel.nbytes)
        gamma = self._solved_two(gram, sign, cost, candidate, starts, 0).gamma
        return leave_one_out(kernel, sign, cost, gamma, mu=candidate.mu, theta=candidate.theta)

    def _solved_two(
        self, gram: Gram, sign: Array, cost: Array, candidate: Candidate, starts: dict[int, Array], fold: int
    ) -> Dual:
        dual = Dual(gram=gram, sign=sign, cost=cost, mu=candidate.mu, theta=candidate.theta)
        if fold in starts:
            dual.gamma = starts[fold] if candidate.mu > 0.0 else np.maximum(starts[fold], 0.0)
            dual.renew()
        rng = np.random.default_rng(self.seed)
        solve_two_classes(dual, tol=self.tol, max_iter=self.max_iter, rng=rng, free=self.free)
        starts[fold] = dual.gamma.copy()
        return dual

    def _fold(
        self, kernel: Array, candidate: Candidate, train: Array, test: Array, fold: int, starts: dict[int, Array]
    ) -> Array:
        """Decision values of the rows ``test``: (n,) for two classes, else (n, K)."""
        weight = None if self.weight is None else self.weight[train]
        if weight is not None:
            train, weight = train[weight > 0.0], weight[weight > 0.0]
        cost = row_costs(weight, len(train), candidate.lam, candidate.theta)
        gram = Gram(GivenKernel(matrix=kernel), train, cache_bytes=kernel.nbytes)
        across = kernel[np.ix_(test, train)]
        if len(self.classes) == 2:
            dual = self._solved_two(gram, 2.0 * self.codes[train] - 1.0, cost, candidate, starts, fold)
            values: Array = across @ (dual.sign * dual.gamma) + dual.intercept
            return values
        many = KernelMulticlassDual(
            gram=gram,
            label=self.codes[train].astype(np.int64),
            cost=cost,
            n_classes=len(self.classes),
            mu=candidate.mu,
            theta=candidate.theta,
        )
        solve_many_classes(
            many,
            nonconvex=self.nonconvex,
            tol=self.tol,
            asked_tol=self.tol,
            max_iter=self.max_iter,
            rng=np.random.default_rng(self.seed),
        )
        scores: Array = across @ many.value
        return scores

    def _score(self, rows: Array, values: Array) -> float:
        weight = None if self.score_weight is None else self.score_weight[rows]
        codes = self.codes[rows]
        if self.score is None:
            return float(np.average(_predicted(values) == codes, weights=weight))
        decided = _KnownDecisions(self.classes, values, rows)
        return float(self.score(decided, rows[:, None], self.classes[codes], weight))

    def _loss(self, rows: Array, values: Array) -> float:
        """The mean of log(1 + exp(-2 u)) over the margins u, as if f were half the logarithm of the odds."""
        weight = None if self.score_weight is None else self.score_weight[rows]
        margins = margins_of(values, self.codes[rows])
        return float(np.average(np.logaddexp(0.0, -2.0 * margins), weights=weight))


def _predicted(values: Array) -> Array:
    codes: Array = (values > 0.0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
    return codes


class _KnownDecisions(ClassifierMixin, BaseEstimator):
    """A classifier that knows the decision values of some rows, for scorers; its X are the numbers of these rows."""

    def __init__(self, classes: Any = None, values: Any = None, rows: Any = None) -> None:
        self.classes_ = self.classes = classes
        self.values = values
        self.rows = rows

    def decision_function(self, X: Array) -> Array:
        order = np.argsort(self.rows)
        values: Array = self.values[order[np.searchsorted(self.rows[order], X[:, 0])]]
        return values

    def predict(self, X: Array) -> Array:
        labels: Array = self.classes_[_predicted(self.decision_function(X))]
        return labels


def scorer_of(search: BaseEstimator, scoring: Any) -> Any:
    """A function of known decisions, their rows, labels and weights; None for accuracy."""
    if scoring is None:
        return None
    scorer = check_scoring(search, scoring=scoring)

    def score(decided: _KnownDecisions, X: Array, y: Array, weight: Array | None) -> float:
        weights = {} if weight is None else {"sample_weight": weight}
        return float(scorer(decided, X, y, **weights))

    return score


def unit_of_gamma(kernel: Any, block: Block) -> float:
    """The gamma that widths are multiples of: 1 / (d * variance of X), or 1 for kernels without a width."""
    if kernel not in KERNELS_WITH_GAMMA:
        return 1.0
    variance = entry_variance(block)
    if not np.isfinite(variance):
        raise ValueError("The variance of X overflows in double precision. Rescale the columns.")
    return 1.0 / (block.n_features * variance) if variance > 0.0 else 1.0


def whole_matrix(function: KernelFunction, X: Any) -> Array:
    """The kernel matrix (n, n), symmetric and finite, in double precision."""
    rows = function.prepare(X)
    kernel = function.rectangle(rows, rows)
    kernel = 0.5 * (kernel + kernel.T)
    if not np.isfinite(kernel).all():
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    return kernel


def best_of(outcomes: list[Outcome]) -> int:
    """The candidate with the best mean score, and of equal ones that with the smallest loss."""
    return max(range(len(outcomes)), key=lambda i: (float(outcomes[i].scores.mean()), -outcomes[i].loss))


def search_results(candidates: list[Candidate], outcomes: list[Outcome], unit: float) -> dict[str, Any]:
    """``cv_results_`` as in scikit-learn's searches; ``unit`` is the gamma that widths are multiples of."""
    params = [
        {"lam": c.lam, "mu": c.mu, "theta": c.theta, **({} if c.gamma is None else {"gamma": c.gamma * unit})}
        for c in candidates
    ]
    scores = np.array([outcome.scores for outcome in outcomes])
    mean = scores.mean(axis=1)
    results: dict[str, Any] = {f"split{k}_test_score": column for k, column in enumerate(scores.T)}
    results |= {f"param_{name}": np.array([p[name] for p in params]) for name in params[0]}
    results["params"] = params
    results["mean_test_score"], results["std_test_score"] = mean, scores.std(axis=1)
    results["mean_test_loss"] = np.array([outcome.loss for outcome in outcomes])
    results["rank_test_score"] = rankdata(-mean, method="min").astype(np.int32)
    results["mean_fit_time"] = np.array([outcome.seconds / len(outcome.scores) for outcome in outcomes])
    return results
