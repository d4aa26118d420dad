"""`ODMClassifierCV`: the kernel machine with parameters chosen by held-out rows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Constraint, Function, OneOf, RealNumber, WholeNumber, check_params
from tithe.core.parts import column_means
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Anything, Instance, Integer, Number, Storable, check_fields, expect
from tithe.fit.base import limits_threads
from tithe.fit.bases import BaseEstimator, ClassifierMixin, available_if
from tithe.fit.fitted import COLUMNS, OPTIONAL_COLUMNS, check_schema
from tithe.fit.labels import encoded_classes, weights_by_class
from tithe.fit.results import Described
from tithe.fit.tables import checked_block
from tithe.meta.search.folds import splits_of
from tithe.odm.classifier import ODMClassifier
from tithe.odm.held_out_scores import (
    KERNELS_WITH_GAMMA,
    HeldOutRows,
    Outcome,
    best_of,
    scorer_of,
    search_results,
    unit_of_gamma,
    whole_matrix,
)
from tithe.odm.kernel_machine import KernelRows
from tithe.odm.search_space import GAMMA_RANGE, LAM_RANGE, MUS, THETAS, Candidate, SearchSpace
from tithe.odm.solvers.exact_machine import check_memory
from tithe.odm.solvers.kernel_functions import KERNELS, KernelFunction, checked_matrix

_MAX_LEFT_OUT = 2000  # rows up to which cv="auto" leaves out one at a time
_AUTO_FOLDS = 5
_SEARCH_TOL = 1e-3  # relative gap of fits in folds: a sharper one changes no score
_SEARCH_ROUNDS = 100  # at most, of fits in folds
_DRAWN_SHARE = 0.5  # of the candidates: from all over the space; the others are near the best so far
_N_REFINEMENTS = 3  # times that the best so far is looked at


class ODMClassifierCV(KernelRows, ClassifierMixin, Described, Storable, BaseEstimator):
    """`ODMClassifier` with lam, mu, theta and the width of the kernel chosen by rows that it was not fitted to.

    The machine has more to choose than a support vector machine: with margins u = y f(x) and C = lam / (n (1 -
    theta)^2), it minimises |w|^2 / 2 + 1/2 sum of C ([1 - theta - u]+^2 + mu [u - 1 - theta]+^2). Half of the
    candidates come from all over the space below, the others are near the best so far. Each is scored by decision
    values of held-out rows. For two classes these are exact leave-one-out values, which cost about as much as one more
    fit, as no machine is fitted again: r - gamma_i / R_ii where no other row changes sides, R the inverse of the
    matrix of the rows outside the band, and along the path of the solution otherwise. With more classes or many rows
    they come from stratified folds. The best score wins; of equal ones that with the smallest mean of
    log(1 + exp(-2 u)).

    Parameters
    ----------
    n_candidates : int
    lams : (float, float)
        lam is log-uniform between these.
    mus, thetas : sequences of float
        Values of mu and theta that are tried.
    gammas : (float, float)
        Range of the kernel's gamma, in units of 1 / (d * variance of X), the default "scale" of `ODMClassifier`; powers
        of two within it are tried. Without meaning for kernels that have no gamma.
    kernel, degree, coef0, fit_intercept, intercept_scaling, class_weight, nonconvex, probability, tol, max_iter
        As in `ODMClassifier`.
    cv : {"auto", "loo"}, int, splitter or iterable
        "loo" leaves out one row at a time (two classes and a finite ``intercept_scaling`` only), an int is the number
        of stratified folds, and anything else is as in scikit-learn. "auto" is "loo" up to 2,000 rows where it is
        possible, else 5 folds.
    scoring : str, callable or None
        A scorer of scikit-learn that needs predictions or decision values; None is accuracy. If there are sample
        weights, it must take them.
    refit : bool
        Whether to fit the best on all rows. Without, there are no predictions.
    cache_size : float
        Megabytes for the kernel matrix of all rows and its copies, 24 bytes for each pair of rows.
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

    n_features_in_: int
    feature_names_in_: Array
    classes_: Array
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    cv_results_: dict[str, Any]
    best_estimator_: ODMClassifier
    refit_time_: float
    n_iter_: int
    n_splits_: int

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_candidates": WholeNumber(least=1),
        "kernel": OneOf(*KERNELS) | Function(),
        "cache_size": RealNumber(least=0.0),
        "tol": RealNumber(above=0.0),
        "max_iter": WholeNumber(least=1),
        "refit": Boolean(),
        "verbose": WholeNumber(),
    }

    def __init__(
        self,
        n_candidates: int = 24,
        *,
        lams: tuple[float, float] = LAM_RANGE,
        mus: tuple[float, ...] = MUS,
        thetas: tuple[float, ...] = THETAS,
        gammas: tuple[float, float] = GAMMA_RANGE,
        kernel: Any = "rbf",
        degree: float = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        nonconvex: str = "cccp",
        probability: bool = False,
        cv: Any = "auto",
        scoring: Any = None,
        refit: bool = True,
        tol: float = 1e-5,
        max_iter: int = 1000,
        cache_size: float = 2000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_candidates = n_candidates
        self.lams = lams
        self.mus = mus
        self.thetas = thetas
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.nonconvex = nonconvex
        self.probability = probability
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @limits_threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Search, and fit the best candidate on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d); a kernel matrix (n, n) if it is precomputed
        y : array of shape (n,), of any labels
        sample_weight : array of shape (n,), optional
            Used in fits and scores.
        """
        space, seed = self._space(), as_seed(self.random_state)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        block = checked_block(self, X, y, sample_weight, reset=True)
        self.__dict__.pop("best_estimator_", None)
        rows, block = self._held_out_rows(block, seed)
        check_memory(len(block), 1e6 * self.cache_size)
        unit = unit_of_gamma(self.kernel, block)
        candidates: list[Candidate] = []
        outcomes: list[Outcome] = []
        with single_blas_thread():
            for chosen in self._batches(space, rng_for(seed, "candidates"), candidates, outcomes):
                for gamma, group in itertools.groupby(sorted(chosen), key=lambda candidate: candidate.gamma):
                    together = list(group)
                    kernel = self._kernel_matrix(block, None if gamma is None else gamma * unit)
                    for candidate, outcome in zip(together, rows.outcomes(kernel, together), strict=True):
                        candidates.append(candidate)
                        outcomes.append(outcome)
                        self._show(candidate, outcome, len(outcomes))
        self._keep_results(candidates, outcomes, unit)
        self.n_splits_ = len(block) if rows.splits is None else len(rows.splits)
        if self.refit:
            start = time.perf_counter()
            self.best_estimator_ = self._machine(seed).fit(X, y, sample_weight=sample_weight)
            self.refit_time_ = time.perf_counter() - start
            self.n_iter_ = self.best_estimator_.n_iter_
        return self

    def _space(self) -> SearchSpace:
        check_params(self, self._constraints)
        for name in ("lams", "gammas"):
            low, high = getattr(self, name)
            if not 0.0 < low <= high < np.inf:
                raise ValueError(
                    f"{name} must be two positive numbers, the smaller first; got {getattr(self, name)!r}."
                )
        for name, most in (("mus", 1.0), ("thetas", np.nextafter(1.0, 0.0))):
            values = np.asarray(getattr(self, name), np.float64)
            if values.ndim != 1 or not len(values) or not (values >= 0.0).all() or not (values <= most).all():
                interval = "[0, 1]" if name == "mus" else "[0, 1)"
                raise ValueError(f"{name} must be one or more numbers in {interval}, got {getattr(self, name)!r}.")
        (low, high), (narrow, wide) = self.lams, self.gammas
        has_gamma = self.kernel in KERNELS_WITH_GAMMA
        return SearchSpace(
            lams=(low, high), mus=self.mus, thetas=self.thetas, gammas=(narrow, wide) if has_gamma else None
        )

    def _batches(
        self, space: SearchSpace, rng: np.random.Generator, candidates: list[Candidate], outcomes: list[Outcome]
    ) -> Iterator[list[Candidate]]:
        """Candidates from all over the space, and then near the best of those that have an outcome."""
        n_drawn = max(1, round(_DRAWN_SHARE * self.n_candidates))
        yield space.draw(n_drawn, rng)
        n_left = self.n_candidates - n_drawn
        for batch in range(_N_REFINEMENTS):
            n_now = n_left // (_N_REFINEMENTS - batch)
            n_left -= n_now
            yield space.near(candidates[best_of(outcomes)], n_now, rng)

    def _held_out_rows(self, block: Block, seed: int) -> tuple[HeldOutRows, Block]:
        """What scores the candidates, and the rows in question: without those of no weight if one is left out."""
        assert block.y is not None
        self.classes_, codes = encoded_classes(block.y)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds only one class, {self.classes_.tolist()[0]!r}: there is nothing to tell apart.")
        weight = weights_by_class(self.class_weight, self.classes_, codes, block.sample_weight)
        cv = self._cv(codes)
        if cv == "loo" and weight is not None and not weight.all():
            kept = np.flatnonzero(weight)
            columns = kept if self.kernel == "precomputed" else slice(None)
            score_weight = None if block.sample_weight is None else block.sample_weight[kept]
            block = Block(X=block.X[kept][:, columns], y=block.y[kept], sample_weight=score_weight)
            codes, weight = codes[kept], weight[kept]
        rows = HeldOutRows(
            codes=codes,
            weight=weight,
            score_weight=block.sample_weight,
            classes=self.classes_,
            splits=None if cv == "loo" else splits_of(cv, block, None, classifier=True),
            score=scorer_of(self, self.scoring),
            free=self._is_free(),
            nonconvex=self.nonconvex,
            tol=max(self.tol, _SEARCH_TOL),
            max_iter=min(self.max_iter, _SEARCH_ROUNDS),
            seed=seed,
        )
        return rows, block

    def _is_free(self) -> bool:
        return bool(self.fit_intercept and np.isinf(self.intercept_scaling))

    def _cv(self, codes: Array) -> Any:
        """ "loo", or what scikit-learn makes folds of."""
        may_leave_out = len(self.classes_) == 2 and not self._is_free()
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

    def _kernel_matrix(self, block: Block, gamma: float | None) -> Array:
        """K (n, n) with the square of the constant feature, in double precision."""
        constant = float(self.intercept_scaling) ** 2 if self.fit_intercept and not self._is_free() else 0.0
        if self.kernel == "precomputed":
            return checked_matrix(block.X).astype(np.float64) + constant
        function = KernelFunction(
            kernel=self.kernel,
            gamma=1.0 if gamma is None else gamma,
            degree=self.degree,
            coef0=self.coef0,
            centre=column_means(block) if isinstance(block.X, np.ndarray) else None,
        )
        return whole_matrix(function, block.X) + constant

    def _keep_results(self, candidates: list[Candidate], outcomes: list[Outcome], unit: float) -> None:
        self.cv_results_ = search_results(candidates, outcomes, unit)
        self.best_index_ = best_of(outcomes)
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])

    def _show(self, candidate: Candidate, outcome: Outcome, number: int) -> None:
        if self.verbose:
            what = f"[{number}/{self.n_candidates}] {candidate}"
            print(f"{what}, gamma in units of scale: {outcome.scores.mean():.4f} ({outcome.seconds:.2f} s)")

    def _machine(self, seed: int) -> ODMClassifier:
        params = self.get_params(deep=False)
        shared = {name: params[name] for name in ODMClassifier().get_params() if name in params}
        return ODMClassifier(**{**shared, **self.best_params_, "random_state": seed})

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

    @available_if(lambda self: self.probability)
    def predict_proba(self, X: Any) -> Array:
        """(n, K) in the order of ``classes_``; with ``probability=True``."""
        return self._best().predict_proba(X)

    def margins(self, X: Any, y: Any) -> Array:
        """Margins of rows for the best machine: (n,)."""
        return self._best().margins(X, y)

    def summary(self) -> dict[str, Any]:
        """The best parameters, and what the machine says about itself."""
        machine = self.__dict__.get("best_estimator_")
        best = {"best_params": self.best_params_, "best_score": self.best_score_} if "cv_results_" in vars(self) else {}
        return {**best, **(machine.summary() if machine is not None else {})}

    def _check_state(self) -> None:
        values = self.__dict__
        if "n_features_in_" not in values:
            expect("cv_results_" not in values, "a search has no columns")
            return
        sizes = check_fields(self, COLUMNS, optional=OPTIONAL_COLUMNS)
        check_schema(values, sizes["d"])
        check_fields(self, _RESULTS, optional=("best_estimator_", "refit_time_", "n_iter_"))
        if self.refit:
            expect("best_estimator_" in values, "the best machine is missing")
            expect(self.best_estimator_.n_features_in_ == sizes["d"], "the best machine has other columns")


_RESULTS = {
    "classes_": Anything(),
    "best_params_": Instance(dict),
    "best_score_": Number(),
    "best_index_": Integer(),
    "cv_results_": Instance(dict),
    "best_estimator_": Instance(ODMClassifier),
    "refit_time_": Number(least=0.0),
    "n_iter_": Integer(),
    "n_splits_": Integer(least=1),
}
