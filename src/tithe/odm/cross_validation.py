"""`ODMClassifierCV`: the kernel machine with parameters chosen by held-out rows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.labels import weights_by_class
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Constraint, Instance, OneOf, WholeNumber, check_params
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Instance as InstanceOf
from tithe.core.state_checks import Integer, Number, Sometimes, expect
from tithe.fit.base import Described, limits_threads
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.fit.results import ClassLabels
from tithe.meta.search.evaluate import Outcome as OfFold
from tithe.meta.search.evaluate import cv_results
from tithe.meta.search.folds import splits_of
from tithe.odm.base import KernelRows, class_numbers, labelled_rows, margins_of, row_costs
from tithe.odm.classifier import ODMClassifier
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual
from tithe.odm.solvers.kernel_matrix import (
    KERNELS_WITH_GAMMA,
    GivenKernel,
    Gram,
    gamma_for,
    training_matrix,
)
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.odm.solvers.path import check_memory, held_out
from tithe.odm.solvers.two_classes import Dual, solve_two_classes

_LAM_STEP, _GAMMA_STEP = 1.5, 1.0  # standard deviations of a step from the best, in powers of two
_STAY_CHANCE = 0.5  # that mu, theta or gamma is that of the best
_MAX_LEFT_OUT = 2000  # rows up to which cv="auto" leaves out one at a time
_AUTO_FOLDS = 5
_SEARCH_TOL = 1e-3  # relative gap of fits in folds: a sharper one changes no score
_SEARCH_ROUNDS = 100  # at most, of fits in folds
_DRAWN_SHARE = 0.5  # of the candidates: from all over the space; the others are near the best so far
_N_REFINEMENTS = 3  # times that the best so far is looked at


@dataclass(eq=False, repr=False)
class ODMClassifierCV(KernelRows, ClassifierMixin, Described, BaseEstimator):
    """`ODMClassifier` with lam, mu, theta and the width of the kernel chosen by rows that it was not fitted to.

    The machine has more to choose than a support vector machine: with margins u = y f(x) and C = lam / (n (1 -
    theta)^2), it minimises |w|^2 / 2 + 1/2 sum of C ([1 - theta - u]+^2 + mu [u - 1 - theta]+^2). Half of the
    candidates come from all over the space below, the others are near the best so far. Each is scored by decision
    values of held-out rows. For two classes these are exact leave-one-out values, which cost about as much as one more
    fit, as no machine is fitted again: r - gamma_i / R_ii where no other row changes sides, R the inverse of the
    matrix of the rows outside the band, and along the path of the solution otherwise. With more classes or many rows
    they come from stratified folds. The best score wins; of equal ones that with the smallest mean of
    log(1 + exp(-2 u)).

    scikit-learn's searches cannot do this: candidates with the same width share a kernel matrix here, fits begin where
    the last one ended, and leave-one-out values come from one fit.

    Parameters
    ----------
    n_candidates : int
    estimator : ODMClassifier or None
        The machine, with all that is not searched for, such as its kernel. None is ``ODMClassifier()``. Its
        ``cache_size`` must hold the kernel matrix of all rows and its copies, 24 bytes for each pair of rows.
    lams : (float, float)
        lam is log-uniform between these.
    mus, thetas : sequences of float
        Values of mu and theta that are tried.
    gammas : (float, float)
        Range of the kernel's gamma, in units of 1 / (d * variance of X), the default "scale" of `ODMClassifier`; powers
        of two within it are tried. Without meaning for kernels that have no gamma.
    cv : {"auto", "loo"}, int, splitter or iterable
        "loo" leaves out one row at a time (two classes and a finite ``intercept_scaling`` only), an int is the number
        of stratified folds, and anything else is as in scikit-learn. "auto" is "loo" up to 2,000 rows where it is
        possible, else 5 folds.
    scoring : str, callable or None
        A scorer of scikit-learn that needs predictions or decision values; None is accuracy. If there are sample
        weights, it must take them.
    refit : bool
        Whether to fit the best on all rows. Without, there are no predictions.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None
        For the candidates and the solver.
    n_jobs : int or None
        Threads; None and -1 are all.
    verbose : int
        1 prints each candidate.

    Attributes
    ----------
    best_params_ : dict
        lam, mu, theta and gamma (a number, not in units of "scale") of the best candidate.
    best_score_ : float
    best_index_ : int
    cv_results_ : dict of arrays
        As in scikit-learn's searches: "params", "param_lam" and so on, "split0_test_score" and so on,
        "mean_test_score", "std_test_score", "rank_test_score", "mean_test_loss", "mean_fit_time".
    best_estimator_ : ODMClassifier
        Fitted on all rows; its attributes are those of the machine.
    refit_time_ : float
    n_iter_ : int
        Rounds of the last fit.
    n_splits_ : int
        Number of folds; with leave-one-out that of the rows.
    classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import ODMClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where((X**2).sum(axis=1) + 0.3 * rng.normal(size=300) < 1.2, "in", "out")
    >>> search = ODMClassifierCV(n_candidates=8, random_state=0).fit(X, y)
    >>> sorted(search.best_params_), len(search.cv_results_["params"])
    (['gamma', 'lam', 'mu', 'theta'], 8)
    >>> search.best_score_ > 0.85, search.score(X, y) > 0.85
    (True, True)
    """

    n_candidates: int = 24
    _: KW_ONLY
    estimator: ODMClassifier | None = None
    lams: tuple[float, float] = (2.0**2, 2.0**16)
    mus: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    thetas: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)
    gammas: tuple[float, float] = (2.0**-4, 2.0**4)
    cv: Any = "auto"
    scoring: Any = None
    refit: bool = True
    encode: bool | str = "auto"
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    classes_: Annotated[Array, ClassLabels()] = field(init=False)
    best_params_: Annotated[dict[str, Any], InstanceOf(dict)] = field(init=False)
    best_score_: Annotated[float, Number()] = field(init=False)
    best_index_: Annotated[int, Integer()] = field(init=False)
    cv_results_: Annotated[dict[str, Any], InstanceOf(dict)] = field(init=False)
    best_estimator_: Annotated[ODMClassifier, Sometimes(InstanceOf(ODMClassifier))] = field(init=False)
    refit_time_: Annotated[float, Sometimes(Number(least=0.0))] = field(init=False)
    n_iter_: Annotated[int, Sometimes(Integer())] = field(init=False)
    n_splits_: Annotated[int, Integer(least=1)] = field(init=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_candidates": WholeNumber(least=1),
        "estimator": OneOf(None) | Instance(ODMClassifier, "an ODMClassifier"),
        "refit": Boolean(),
        "verbose": WholeNumber(),
    }

    @property
    def kernel(self) -> Any:
        """The kernel of the machine."""
        return ODMClassifier().kernel if self.estimator is None else self.estimator.kernel

    @limits_threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Search, and fit the best candidate on all rows. They are as in `ODMClassifier`; scores are weighted too."""
        check_params(self, self._constraints)
        has_gamma = isinstance(self.kernel, str) and self.kernel in KERNELS_WITH_GAMMA
        space = SearchSpace(lams=self.lams, mus=self.mus, thetas=self.thetas, gammas=self.gammas if has_gamma else None)
        seed = as_seed(self.random_state)
        block, codes = labelled_rows(self, X, y, sample_weight)
        with suppress(AttributeError):  # of an earlier fit
            del self.best_estimator_
        machine = ODMClassifier() if self.estimator is None else clone(self.estimator)
        machine._check_options()
        rows, block = self._held_out_rows(machine, block, codes, seed)
        check_memory(len(block), 1e6 * machine.cache_size)
        unit = gamma_for(self.kernel, "scale", block)
        outcomes: list[Outcome] = []
        with single_blas_thread():
            for chosen in self._batches(space, rng_for(seed, "candidates"), outcomes):
                for gamma, group in itertools.groupby(sorted(chosen), key=lambda candidate: candidate.gamma):
                    if gamma is not None:
                        machine.set_params(gamma=gamma * unit)
                    kernel = training_matrix(machine, block) + machine._constant
                    for outcome in rows.outcomes(kernel, group):
                        outcomes.append(outcome)
                        if self.verbose:
                            print(f"[{len(outcomes)}/{self.n_candidates}] {outcome}")
        self.cv_results_ = _search_results(outcomes, unit)
        self.best_index_ = _best_of(outcomes)
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.n_splits_ = len(block) if rows.splits is None else len(rows.splits)
        if self.refit:
            start = time.perf_counter()
            machine.set_params(**self.best_params_, random_state=seed)
            self.best_estimator_ = machine.fit(X, y, sample_weight=sample_weight)
            self.refit_time_ = time.perf_counter() - start
            self.n_iter_ = self.best_estimator_.n_iter_
        return self

    def _batches(
        self, space: SearchSpace, rng: np.random.Generator, outcomes: list[Outcome]
    ) -> Iterator[list[Candidate]]:
        """Candidates from all over the space, and then near the best of those that have an outcome."""
        n_drawn = max(1, round(_DRAWN_SHARE * self.n_candidates))
        yield space.draw(n_drawn, rng)
        n_left = self.n_candidates - n_drawn
        for batch in range(_N_REFINEMENTS):
            n_now = n_left // (_N_REFINEMENTS - batch)
            n_left -= n_now
            yield space.near(outcomes[_best_of(outcomes)].candidate, n_now, rng)

    def _held_out_rows(
        self, machine: ODMClassifier, block: Block, codes: Array, seed: int
    ) -> tuple[HeldOutRows, Block]:
        """What scores the candidates, and the rows in question: without those of no weight if one is left out."""
        assert block.y is not None
        weight = weights_by_class(machine.class_weight, self.classes_, codes, block.sample_weight)
        cv = self._cv(codes, may_leave_out=len(self.classes_) == 2 and not machine._free)
        if cv == "loo" and weight is not None and not weight.all():
            kept = np.flatnonzero(weight)
            columns = kept if self.kernel == "precomputed" else slice(None)
            score_weight = None if block.sample_weight is None else block.sample_weight[kept]
            block = Block(X=block.X[kept][:, columns], y=block.y[kept], sample_weight=score_weight)
            codes, weight = codes[kept], weight[kept]
        rows = HeldOutRows(
            machine=machine,
            codes=codes,
            weight=weight,
            score_weight=block.sample_weight,
            classes=self.classes_,
            splits=None if cv == "loo" else splits_of(cv, block, None, classifier=True),
            scorer=None if self.scoring is None else check_scoring(self, scoring=self.scoring),
            seed=seed,
        )
        return rows, block

    def _cv(self, codes: Array, *, may_leave_out: bool) -> Any:
        """ "loo", or what scikit-learn makes folds of."""
        if not isinstance(self.cv, str):
            return self.cv
        if self.cv == "auto":
            n_folds = max(2, min(_AUTO_FOLDS, int(np.bincount(codes).min())))
            return "loo" if may_leave_out and len(codes) <= _MAX_LEFT_OUT else n_folds
        if self.cv != "loo":
            raise ValueError(f"cv must be 'auto', 'loo', a number of folds or a splitter, got {self.cv!r}.")
        if not may_leave_out:
            raise ValueError("cv='loo' is for two classes and a finite intercept_scaling: give a number of folds.")
        return "loo"

    # -- methods of the best machine -----------------------------------------------------------

    def _best(self) -> ODMClassifier:
        check_is_fitted(self, "cv_results_")
        if not self.refit:
            raise AttributeError("There is no machine fitted on all rows, since refit is False: set it to True.")
        return self.best_estimator_

    def decision_function(self, X: Any) -> Array:
        """The scores f of the best machine: (n,) for two classes, else (n, K)."""
        return self._best().decision_function(X)

    def predict(self, X: Any) -> Array:
        """The class of each row."""
        return self._best().predict(X)

    def margins(self, X: Any, y: Any) -> Array:
        """Margins of rows for the best machine: (n,)."""
        return self._best().margins(X, y)

    def summary(self) -> dict[str, Any]:
        """The best parameters, and what the machine says about itself."""
        best = {"best_params": self.best_params_, "best_score": self.best_score_}
        return best | (self.best_estimator_.summary() if self.refit else {})

    def check_relations(self) -> None:
        if self.refit:
            same = self.best_estimator_.n_encoded_ == self.n_encoded_
            expect(same, "the best machine has other columns")


# -- candidates ----------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Candidate:
    """``gamma`` is in units of 1 / (columns times variance), and None for kernels without it."""

    gamma: float | None
    lam: float
    mu: float
    theta: float


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """lam and gamma are log-uniform within their ranges, gamma a power of two; mu and theta are of some values."""

    lams: tuple[float, float]
    mus: Sequence[float]
    thetas: Sequence[float]
    gammas: tuple[float, float] | None

    def __post_init__(self) -> None:
        for name, given in (("lams", self.lams), ("gammas", self.gammas or (1.0, 1.0))):
            low, high = given
            if not 0.0 < low <= high < np.inf:
                raise ValueError(f"{name} must be two positive numbers, the smaller first; got {given!r}.")
        for name, values, interval in (("mus", self.mus, "[0, 1]"), ("thetas", self.thetas, "[0, 1)")):
            numbers, most = np.asarray(values, np.float64), 1.0 if name == "mus" else np.nextafter(1.0, 0.0)
            if numbers.ndim != 1 or not len(numbers) or not ((numbers >= 0.0) & (numbers <= most)).all():
                raise ValueError(f"{name} must be one or more numbers in {interval}, got {values!r}.")

    def draw(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates from all over the space: each parameter takes its values evenly."""
        low, high = np.log2(self.lams)
        parts = (rng.permutation(n) + rng.random(n)) / max(1, n)  # one in each of n equal parts, in random order
        lams = np.exp2(low + (high - low) * parts)
        gammas: list[float | None] = [None] * n
        if self.gammas is not None:
            powers = self._powers(1.0)
            gammas = np.exp2(powers[_even(len(powers), n, rng)]).tolist()
        mus, thetas = (np.asarray(values)[_even(len(values), n, rng)].tolist() for values in (self.mus, self.thetas))
        return [
            Candidate(gamma=gamma, lam=float(lam), mu=float(mu), theta=float(theta))
            for gamma, lam, mu, theta in zip(gammas, lams, mus, thetas, strict=True)
        ]

    def near(self, best: Candidate, n: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates around the best: lam and gamma a few steps away, mu and theta neighbouring values."""
        return [self._neighbour(best, rng) for _ in range(n)]

    def _neighbour(self, best: Candidate, rng: np.random.Generator) -> Candidate:
        low, high = np.log2(self.lams)
        lam = float(np.exp2(np.clip(np.log2(best.lam) + _LAM_STEP * rng.normal(), low, high)))
        mu, theta = (
            value if rng.random() < _STAY_CHANCE else _next_value(value, values, rng)
            for value, values in ((best.mu, self.mus), (best.theta, self.thetas))
        )
        changed = replace(best, lam=lam, mu=mu, theta=theta)
        if best.gamma is None or rng.random() < _STAY_CHANCE:
            return changed
        powers = self._powers(0.5)
        wanted = np.log2(best.gamma) + _GAMMA_STEP * rng.normal()
        return replace(changed, gamma=float(np.exp2(powers[np.abs(powers - wanted).argmin()])))

    def _powers(self, step: float) -> Array:
        assert self.gammas is not None
        low, high = np.log2(self.gammas)
        return np.linspace(low, high, 1 + round((high - low) / step))


def _even(n_values: int, n: int, rng: np.random.Generator) -> Array:
    """n positions in random order; every value occurs equally often, up to one."""
    rounds = [rng.permutation(n_values) for _ in range(-(-n // n_values))]
    return rng.permutation(np.concatenate(rounds)[:n])


def _next_value(value: float, values: Sequence[float], rng: np.random.Generator) -> float:
    ordered = np.sort(np.asarray(values, np.float64))
    place = int(np.abs(ordered - value).argmin()) + (1 if rng.random() < 0.5 else -1)
    return float(ordered[np.clip(place, 0, len(ordered) - 1)])


# -- scores of held-out rows ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Scores (folds,) of one candidate, the mean smooth loss that decides between equal scores, and the seconds."""

    candidate: Candidate
    scores: Array
    loss: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.candidate}, gamma in units of scale: {self.scores.mean():.4f} ({self.seconds:.2f} s)"


@dataclass(frozen=True, kw_only=True)
class HeldOutRows:
    """Scores candidates by rows that they were not fitted to."""

    machine: ODMClassifier  # whose solver, tolerance and intercept count
    codes: Array  # (n,)
    weight: Array | None  # (n,), in fits, where rows of weight zero have no part
    score_weight: Array | None  # (n,)
    classes: Array  # (K,)
    splits: list[tuple[Array, Array]] | None  # rows that are fitted, and scored, in each fold; None is leave-one-out
    scorer: Any  # of scikit-learn; None is the accuracy
    seed: int

    def outcomes(self, kernel: Array, candidates: Iterable[Candidate]) -> Iterator[Outcome]:
        """Outcomes of candidates with this kernel matrix (n, n), in their order; each fit starts from the last one."""
        starts: dict[int, Array] = {}
        every = np.arange(len(self.codes))
        for candidate in candidates:
            begin = time.perf_counter()
            if self.splits is None:
                cost = row_costs(self.weight, len(every), candidate.lam, candidate.theta)
                dual = self._two(kernel, every, cost, candidate, starts, 0)
                values = held_out(kernel, dual.sign, cost, dual.gamma, mu=candidate.mu, theta=candidate.theta)
                parts = [(every, values)]
            else:
                folds = enumerate(self.splits)
                parts = [(test, self._fold(kernel, candidate, train, test, k, starts)) for k, (train, test) in folds]
            scores = np.array([self._score(rows, values) for rows, values in parts])
            loss = float(np.mean([self._loss(rows, values) for rows, values in parts]))
            yield Outcome(candidate=candidate, scores=scores, loss=loss, seconds=time.perf_counter() - begin)

    def _fold(
        self, kernel: Array, candidate: Candidate, train: Array, test: Array, fold: int, starts: dict[int, Array]
    ) -> Array:
        """Decision values of the rows ``test``: (n,) for two classes, else (n, K)."""
        weight = None if self.weight is None else self.weight[train]
        if weight is not None:
            train, weight = train[weight > 0.0], weight[weight > 0.0]
        cost = row_costs(weight, len(train), candidate.lam, candidate.theta)
        across = kernel[np.ix_(test, train)]
        if len(self.classes) == 2:
            dual = self._two(kernel, train, cost, candidate, starts, fold)
            return np.asarray(across @ (dual.sign * dual.gamma) + dual.intercept)
        options = self._options()
        many = KernelMulticlassDual(
            rng=options.pop("rng"),
            gram=Gram(GivenKernel(matrix=kernel), train, cache_bytes=kernel.nbytes),
            label=self.codes[train].astype(np.int64),
            cost=cost,
            n_classes=len(self.classes),
            mu=candidate.mu,
            theta=candidate.theta,
        )
        solve_many_classes(many, nonconvex=self.machine.nonconvex, asked_tol=options["tol"], **options)
        return np.asarray(across @ many.value)

    def _two(
        self, kernel: Array, rows: Array, cost: Array, candidate: Candidate, starts: dict[int, Array], fold: int
    ) -> Dual:
        """The machine of two classes of some rows."""
        gram = Gram(GivenKernel(matrix=kernel), rows, cache_bytes=kernel.nbytes)
        sign = 2.0 * self.codes[rows] - 1.0
        dual = Dual(gram=gram, sign=sign, cost=cost, mu=candidate.mu, theta=candidate.theta)
        if fold in starts:
            dual.gamma = starts[fold] if candidate.mu > 0.0 else np.maximum(starts[fold], 0.0)
            dual.renew()
        solve_two_classes(dual, free=self.machine._free, **self._options())
        starts[fold] = dual.gamma.copy()
        return dual

    def _options(self) -> dict[str, Any]:
        tol, max_iter = max(self.machine.tol, _SEARCH_TOL), min(self.machine.max_iter, _SEARCH_ROUNDS)
        return {"tol": tol, "max_iter": max_iter, "rng": np.random.default_rng(self.seed)}

    def _score(self, rows: Array, values: Array) -> float:
        weight = None if self.score_weight is None else self.score_weight[rows]
        codes = self.codes[rows]
        if self.scorer is None:
            return float(np.average(class_numbers(values) == codes, weights=weight))
        known = np.zeros((len(self.codes), *values.shape[1:]))
        known[rows] = values
        weights = {} if weight is None else {"sample_weight": weight}
        return float(self.scorer(_KnownDecisions(self.classes, known), rows[:, None], self.classes[codes], **weights))

    def _loss(self, rows: Array, values: Array) -> float:
        """The mean of log(1 + exp(-2 u)) over the margins u, as if f were half the logarithm of the odds."""
        weight = None if self.score_weight is None else self.score_weight[rows]
        margins = margins_of(values, self.codes[rows])
        return float(np.average(np.logaddexp(0.0, -2.0 * margins), weights=weight))


class _KnownDecisions(ClassifierMixin, BaseEstimator):
    """A classifier that knows decision values, for scorers; its X are row numbers."""

    def __init__(self, classes: Any = None, values: Any = None) -> None:
        self.classes_ = self.classes = classes
        self.values = values

    def decision_function(self, X: Array) -> Array:
        return np.asarray(self.values[X[:, 0]])

    def predict(self, X: Array) -> Array:
        codes = class_numbers(self.decision_function(X))
        return np.asarray(self.classes_[codes])


def _best_of(outcomes: list[Outcome]) -> int:
    """The candidate with the best mean score, and of equal ones that with the smallest loss."""
    return max(range(len(outcomes)), key=lambda i: (float(outcomes[i].scores.mean()), -outcomes[i].loss))


def _search_results(outcomes: list[Outcome], unit: float) -> dict[str, Any]:
    """``cv_results_`` as in scikit-learn's searches; ``unit`` is the gamma that widths are multiples of."""
    params = [
        {"lam": c.lam, "mu": c.mu, "theta": c.theta, **({} if c.gamma is None else {"gamma": c.gamma * unit})}
        for c in (outcome.candidate for outcome in outcomes)
    ]
    by_candidate = [
        [OfFold(test=float(score), fit_time=one.seconds / len(one.scores)) for score in one.scores] for one in outcomes
    ]
    results, _ = cv_results(params, [list(fold) for fold in zip(*by_candidate, strict=True)], np.nan)
    return results | {"mean_test_loss": np.array([one.loss for one in outcomes])}
