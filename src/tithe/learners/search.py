"""Parameters chosen by cross-validation on one coreset a fold."""

from __future__ import annotations

import numbers
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from tithe.build import resolve_size
from tithe.certify import Certificate
from tithe.core.data import Array, Block, Coreset
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.kernels.threads import single_blas_thread
from tithe.learners.base import (
    CoresetLearner,
    checked_classes,
    encoded_classes,
    is_source,
    note_columns,
    opened,
)
from tithe.learners.bases import BaseEstimator, MetaEstimatorMixin, available_if
from tithe.learners.evidence import LEAST_TO_CERTIFY
from tithe.learners.folds import Fold, FoldReducer, FoldStreams, Shares
from tithe.learners.leaves import Changed, Coded, finite_target, known_classes
from tithe.learners.meta import CoresetEstimator
from tithe.learners.ranking import ranked
from tithe.learners.stored import check_search
from tithe.learners.streaming import Streamed, stream_classes
from tithe.sources.arrays import as_block, check_weights

Params = dict[str, Any]
_IDLE = ("coreset_size", "construction", "calibrate")  # of a learner that is given its coreset


def _passed_on(method: str) -> Any:
    """A method that the winner answers, and that is there only if the estimator has it."""

    def has(self: Any) -> bool:
        if not self.refit:
            raise AttributeError(f"{method}() needs the winner fitted on all rows: search with refit=True.")
        getattr(self.best_estimator_ if hasattr(self, "best_estimator_") else self.estimator, method)
        return True

    def ask(self: Any, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method)(X)

    ask.__name__, ask.__doc__ = method, f"What the winner's ``{method}`` says."
    return available_if(has)(ask)


class CoresetSearchCV(Streamed, MetaEstimatorMixin, BaseEstimator):
    """Search a grid of parameters by cross-validation, on one coreset a fold.

    In every fold the training rows are reduced once, and every candidate is fitted on that one
    coreset and scored on all held-out rows. The winner is fitted again from all rows and certified.

    Parameters
    ----------
    estimator : estimator
        Its ``fit`` must take ``sample_weight``: scikit-learn's, or one of this package. It is cloned.
    param_grid : dict or list of dicts
        As in `sklearn.model_selection.GridSearchCV`.
    objective : str or objective
        What the coresets preserve. ``"auto"``: `LogisticObjective` for classifiers, else
        `GenericObjective`.
    coreset_size : int, float or "auto"
        Rows of a coreset, or a fraction of the training rows. ``"auto"``: 10,000, or 20 for each
        column, or one in 100 of the rows up to 50,000, whichever is most. A fold with no more
        training rows than this uses them all.
    construction, calibrate
        See `build_coreset`.
    scoring : str, callable or None
        One score, as in scikit-learn. None: the estimator's own ``score``.
    cv : int, splitter or iterable
        As in scikit-learn.
    refit : bool
        Fit the winner from all rows. An estimator of this package goes its own way there (its
        coreset, polish and certificate), any other is put in a `CoresetEstimator`.
    random_state : int, RandomState, Generator or None
        Of the coresets; estimator and splitter have their own.

    Attributes
    ----------
    best_params_, best_score_, best_index_, cv_results_, n_splits_, scorer_, refit_time_
        As in scikit-learn. What cannot be fitted or scored is nan, with a warning; an error if that is all.
    best_estimator_ : estimator
        The winner, fitted from all rows. A `CoresetEstimator` around it where it is not of this package.
    certificate_ : Certificate or None
        The winner's on all rows: how far its loss is from the smallest possible
        (`CoresetLogisticRegression`), or its own score on rows set aside (`CoresetEstimator`). None
        where all rows were learned from, and none are left to judge by, and after `partial_fit`.
    coresets_ : list of Coreset
        One a fold, ``indices`` counting in all rows. For classifiers y holds class numbers.
    reduce_time_ : float
        Seconds spent on building the coresets; fit times in ``cv_results_`` do not contain it.
    classes_, n_features_in_, feature_names_in_
        Where the estimator has them.

    Notes
    -----
    Held-out rows have weight 0 while a coreset is built, so the training rows are never copied.

    scikit-learn's own search will also do, with the weights routed to fit *and* score. Then every
    candidate builds a coreset of its own in every fold, and polishes on all training rows: slower,
    and nearer to a full search.

    >>> import numpy as np
    >>> import sklearn
    >>> from sklearn.model_selection import GridSearchCV
    >>> from tithe import CoresetLogisticRegression, CoresetSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X, weight = rng.normal(size=(30_000, 3)), rng.exponential(size=30_000)
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.logistic(size=30_000) > 0, "yes", "no")
    >>> model = CoresetLogisticRegression(coreset_size=1000, random_state=0)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     routed = model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    ...     slow = GridSearchCV(routed, {"C": [1e-5, 1.0]}, cv=3).fit(X, y, sample_weight=weight)
    >>> slow.best_params_, slow.best_estimator_.certificate_.relative < 1e-4
    ({'C': 1.0}, True)

    Examples
    --------
    The same on one coreset a fold:

    >>> search = CoresetSearchCV(model, {"C": [1e-5, 1.0]}, coreset_size=1000, cv=3, random_state=0)
    >>> search.fit(X, y, sample_weight=weight).best_params_
    {'C': 1.0}
    >>> search.certificate_.relative < 1e-4
    True
    """

    _labels: Array | None  # of classifiers, in the order of their numbers
    _fitted = (
        "best_params_",
        "best_score_",
        "best_index_",
        "cv_results_",
        "n_splits_",
        "refit_time_",
        "reduce_time_",
        "best_estimator_",
        "certificate_",
        "coresets_",
    )

    n_features_in_: int
    feature_names_in_: Array
    best_params_: Params
    best_score_: float
    best_index_: int
    cv_results_: dict[str, Any]
    n_splits_: int
    refit_time_: float
    reduce_time_: float
    best_estimator_: Any
    certificate_: Certificate | None
    coresets_: list[Coreset]
    stream_: FoldStreams

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        objective: Any = "auto",
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        scoring: Any = None,
        cv: Any = 5,
        refit: bool = True,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.objective = objective
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.random_state = random_state

    def _check_state(self) -> None:
        check_search(self)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Search, fit the winner from all rows, and certify it.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_source`) is read leaf by leaf: once to look, once a fold, and by the winner.
            Its folds are decided by a hash of the row's id, so ``cv`` must be a number of folds, and
            candidates are scored on at most 100,000 rows of a fold, drawn uniformly.
        y : array of shape (n,), optional
            Labels of any kind for classifiers. That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
            Used in reducing, fitting and scoring.
        groups : array of shape (n,), optional
            For the splitter.
        """
        candidates = self._check_options()
        seed = as_seed(self.random_state)
        self._drop_stream()
        if is_source(X):
            self._search(candidates, *self._source_folds(opened(X, y, sample_weight, groups), seed))
        else:
            self._require_target(y)
            checked = as_block(X, y, sample_weight)
            validate_data(self, X if hasattr(X, "shape") else checked.X, reset=True, skip_check_array=True)
            cv = check_cv(self.cv, checked.y, classifier=is_classifier(self.estimator))
            order = np.arange(len(checked))  # splitters may give masks
            splits = [(order[train], order[test]) for train, test in cv.split(checked.X, checked.y, groups)]
            rows = self._encoded(checked)
            self._search(candidates, self._reducing(seed).array_folds(rows, splits), len(splits))
        if self.refit:
            start = time.perf_counter()
            n_rows = X.n_rows if is_source(X) else len(order)
            winner = self._winner(n_rows, seed).fit(X, y, sample_weight=sample_weight)
            self._keep_winner(winner, start)
            judged = isinstance(winner, CoresetEstimator) and hasattr(winner, "score")
            if judged and winner.n_set_aside() >= LEAST_TO_CERTIFY:
                self.certificate_ = winner.certify(X, y, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Take in more rows, which need not be kept; the search is made when its result is asked for.

        In which pieces rows come makes no difference. Every row is given to a fold by a hash of its number,
        so ``cv`` must be a number of folds; a `CoresetStream` for each fold, and one for all rows, keep
        what is learned from, and at most 100,000 rows of each fold, drawn uniformly, are kept to score on.
        The winner learns from the coreset of all rows, without polish and certificate. The first call
        after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), optional
        sample_weight : array of shape (n,), optional
        classes : array, optional
            For classifiers, all labels that will come: needed on the first call, unless a `fit` knew them.
        """
        first = not self._streams
        self._check_options()
        n_folds = self._n_folds()
        self._require_target(y)
        checked = as_block(X, y)
        validate_data(self, X if hasattr(X, "shape") else checked.X, reset=first, skip_check_array=True)
        block = replace(checked, sample_weight=check_weights(sample_weight, len(checked)), mean=None)
        if is_classifier(self.estimator):
            self._labels = checked_classes(stream_classes(classes, self.__dict__.get("_labels"), first=first))
            block = Coded(classes=self._labels)(block)
        else:
            self._labels, block = None, finite_target(block)
        if first:
            self._seed = as_seed(self.random_state)
        streams = FoldStreams(self._reducing(self._seed), n_folds) if first else self.stream_
        streams.push(block)
        self.stream_ = streams
        self._stale()
        return self

    def _settle(self) -> None:
        streams = self.stream_
        self._search(self._check_options(), streams.folds(), streams.shares.n_folds)
        if not self.refit:
            return
        start = time.perf_counter()
        coreset, winner = streams.coreset(), self._winner(None, self._seed)
        size = winner.coreset_size
        winner.set_params(coreset_size=len(coreset))  # reduced already
        winner.fit(coreset.X, self._targets(coreset), sample_weight=coreset.weights())
        winner.set_params(coreset_size=size).stand_for(coreset, self)
        self._keep_winner(winner, start)

    # -- checks --------------------------------------------------------------------------------

    def _check_options(self) -> list[Params]:
        """The candidates, all else being right."""
        candidates = list(ParameterGrid(self.param_grid))
        name = type(self.estimator).__name__
        if not has_fit_parameter(self.estimator, "sample_weight"):
            said = "Search the last step of a pipeline, on rows that went through the others."
            raise ValueError(f"{name}.fit() takes no sample_weight, so it cannot learn from a coreset. {said}")
        if isinstance(self.scoring, (list, tuple, set, dict)):
            raise ValueError(f"scoring must be one score, a name or a callable, got {self.scoring!r}.")
        for option in ("calibrate", "refit"):
            if not isinstance(getattr(self, option), (bool, np.bool_)):
                raise ValueError(f"{option} must be True or False, got {getattr(self, option)!r}.")
        for kind, what in (("construction", self.construction), ("objective", self.objective)):
            if not (isinstance(what, str) and what == "auto"):
                make(kind, what)
        if self.coreset_size != "auto":
            resolve_size(self.coreset_size, 1)
        idle = {key for params in candidates for key in params} & set(_IDLE)
        if idle and isinstance(self.estimator, CoresetLearner):
            said = "all candidates of a fold learn from one coreset. Leave it out of param_grid."
            raise ValueError(f"{min(idle)} of {name} cannot be searched: {said}")
        check_scoring(self.estimator, scoring=self.scoring)
        return candidates

    def _require_target(self, y: Any) -> None:
        if y is None and self.__sklearn_tags__().target_tags.required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")

    def _encoded(self, block: Block) -> Block:
        """Class numbers for classifiers; the labels are noted."""
        self._labels = None
        if block.y is None or not is_classifier(self.estimator):
            return finite_target(block)
        self._labels, codes = encoded_classes(block.y)
        return replace(block, y=codes)

    def _targets(self, block: Block) -> Array | None:
        return block.y if block.y is None or self._labels is None else self._labels[block.y]

    def _n_folds(self) -> int:
        """Where rows are given to folds by their ids."""
        n_folds = 5 if self.cv is None else self.cv
        if isinstance(n_folds, bool) or not isinstance(n_folds, numbers.Integral) or n_folds < 2:
            raise ValueError(f"cv must be a number of folds, at least 2, for rows not in memory; got {self.cv!r}.")
        return int(n_folds)

    # -- the folds -----------------------------------------------------------------------------

    def _reducing(self, seed: int) -> FoldReducer:
        return FoldReducer(
            objective=self.objective,
            coreset_size=self.coreset_size,
            construction=self.construction,
            calibrate=self.calibrate,
            n_features=self.n_features_in_,
            n_classes=0 if self._labels is None else len(self._labels),
            seed=seed,
        )

    def _source_folds(self, source: Any, seed: int) -> tuple[Iterator[Fold], int]:
        """One look at all rows to know the folds, which are then reduced one by one."""
        n_folds = self._n_folds()
        if not source.replayable:
            raise ValueError("A search reads all rows several times, and these come only once: use partial_fit.")
        note_columns(self, source, reset=True)
        self._labels = None
        change: Any = finite_target
        if is_classifier(self.estimator):
            self._labels = checked_classes(known_classes(source, "auto"))
            change = Coded(classes=self._labels)
        else:
            self._require_target(source.sample(1, rng=rng_for(seed, "look")).y)
        rows, reducing = Changed(source, change), self._reducing(seed)
        shares = Shares(seed=seed, n_folds=n_folds, n_classes=reducing.n_classes)
        shares.look(rows)
        return reducing.source_folds(rows, shares), n_folds

    # -- the search ----------------------------------------------------------------------------

    def _search(self, candidates: list[Params], folds: Iterator[Fold], n_folds: int) -> None:
        shape = (len(candidates), n_folds)
        scores, fit_time, score_time = (np.full(shape, np.nan) for _ in range(3))
        failures: list[Exception] = []
        weighted: bool | None = None
        self.coresets_, self.reduce_time_, self.n_splits_ = [], 0.0, n_folds
        # our own learners share the cores among kernels, which idle threads of BLAS would keep from working
        with single_blas_thread() if isinstance(self.estimator, CoresetLearner) else nullcontext():
            for j in range(n_folds):
                start = time.perf_counter()
                fold = next(folds)
                self.reduce_time_ += time.perf_counter() - start
                self.coresets_.append(fold.coreset)
                held_out = fold.held_out
                answers = self._targets(held_out)
                if weighted is None:
                    weighted = held_out.sample_weight is not None and self._scores_weights()
                weight = {"sample_weight": held_out.sample_weight} if weighted else {}
                model = None
                for i, params in enumerate(candidates):
                    start = middle = time.perf_counter()
                    try:
                        model = self._fit_to(fold.coreset, params, model)
                        middle = time.perf_counter()
                        scores[i, j] = self.scorer_(model, held_out.X, answers, **weight)
                    except Exception as error:
                        failures.append(error)
                    fit_time[i, j], score_time[i, j] = middle - start, time.perf_counter() - middle
        self.cv_results_ = ranked(candidates, scores, failures)
        for name, values in (("fit_time", fit_time), ("score_time", score_time)):
            self.cv_results_ |= {f"mean_{name}": values.mean(axis=1), f"std_{name}": values.std(axis=1)}
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])

    def _scores_weights(self) -> bool:
        """Whether the scorer takes weights; said if it does not."""
        accepts = getattr(self.scorer_, "_accept_sample_weight", None)
        takes = accepts() if accepts else "sample_weight" in signature(self.scorer_).parameters
        if not takes:
            warnings.warn("The score takes no sample_weight: held-out rows count alike.", stacklevel=4)
        return bool(takes)

    def _candidate(self, params: Params) -> Any:
        return clone(self.estimator).set_params(**clone(params, safe=False))

    def _fit_to(self, coreset: Coreset, params: Params, last: Any) -> Any:
        """A candidate fitted on all rows of a coreset, from where the ``last`` one ended if it can start there."""
        model = self._candidate(params)
        if isinstance(self.estimator, CoresetLearner):
            model.set_params(coreset_size=len(coreset))  # reduced already
            if last is not None and "warm_start" in model.get_params(deep=False):
                model = last.set_params(**{**model.get_params(deep=False), "warm_start": True})
        weight = {} if coreset.sample_weight is None else {"sample_weight": coreset.sample_weight}
        return model.fit(coreset.X, self._targets(coreset), **weight)

    # -- the winner ----------------------------------------------------------------------------

    def _winner(self, n_rows: int | None, seed: int) -> Any:
        """The best candidate, as a learner that learns from a coreset of all rows."""
        winner = self._candidate(self.best_params_)
        if isinstance(winner, CoresetLearner):
            return winner
        reducing = self._reducing(seed)
        return CoresetEstimator(
            winner,
            objective=reducing.objective_for(reducing.n_classes),
            coreset_size=reducing.size(n_rows),
            construction=self.construction,
            calibrate=self.calibrate,
            random_state=int(rng_for(seed, "refit").integers(2**62)),
        )

    def _keep_winner(self, winner: Any, start: float) -> None:
        self.best_estimator_ = winner
        self.refit_time_ = time.perf_counter() - start
        self.certificate_ = getattr(winner, "certificate_", None)

    @property
    def scorer_(self) -> Any:
        """Made anew from ``scoring``: a file with functions in it could not be loaded without trusting it."""
        return check_scoring(self.estimator, scoring=self.scoring)

    @property
    def classes_(self) -> Array:
        classes: Array = self.best_estimator_.classes_
        return classes

    predict = _passed_on("predict")
    predict_proba = _passed_on("predict_proba")
    predict_log_proba = _passed_on("predict_log_proba")
    decision_function = _passed_on("decision_function")
    transform = _passed_on("transform")

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The winner's score, by ``scoring``."""
        check_is_fitted(self, "best_estimator_")
        weight = check_weights(sample_weight, X.shape[0] if hasattr(X, "shape") else len(X))
        extra = {} if weight is None or not self._scores_weights() else {"sample_weight": weight}
        return float(self.scorer_(self.best_estimator_, X, y, **extra))

    def __sklearn_tags__(self) -> Any:
        return CoresetEstimator(self.estimator).__sklearn_tags__()  # what it says of the estimator holds here too
