"""Parameters chosen by cross-validation on one coreset a fold."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from tithe.build import reduce_source, resolve_size
from tithe.certify import Certificate
from tithe.core.data import Array, Block, Coreset
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.kernels.threads import single_blas_thread
from tithe.learners.base import CoresetLearner, all_rows, auto_size, encoded_classes
from tithe.learners.meta import LEAST_TO_CERTIFY, CoresetEstimator
from tithe.objectives.generic import GenericObjective
from tithe.objectives.labels import LabelledObjective
from tithe.sources.arrays import ArraySource, as_block, check_weights

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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """Checked rows; y holds numbers of the labels where there are labels."""

    block: Block
    labels: Array | None

    @property
    def n_classes(self) -> int:
        return 0 if self.labels is None else len(self.labels)

    def targets(self, part: Block) -> Array | None:
        return part.y if part.y is None or self.labels is None else self.labels[part.y]


class CoresetSearchCV(MetaEstimatorMixin, BaseEstimator):
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
        where all rows were learned from, and none are left to judge by.
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> CoresetSearchCV:
        """Search, fit the winner from all rows, and certify it.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), optional
            Labels of any kind for classifiers.
        sample_weight : array of shape (n,), optional
            Used in reducing, fitting and scoring.
        groups : array of shape (n,), optional
            For the splitter.
        """
        candidates = list(ParameterGrid(self.param_grid))
        self._check_options(candidates, y)
        check_scoring(self.estimator, scoring=self.scoring)
        checked = as_block(X, y, sample_weight)
        validate_data(self, X if hasattr(X, "shape") else checked.X, reset=True, skip_check_array=True)
        rows = self._encoded(checked)
        seed = as_seed(self.random_state)
        cv = check_cv(self.cv, checked.y, classifier=is_classifier(self.estimator))
        order = np.arange(len(checked))  # splitters may give masks
        splits = [(order[train], order[test]) for train, test in cv.split(checked.X, checked.y, groups)]
        self._search(rows, candidates, splits, seed)
        if self.refit:
            self._fit_winner(rows, X, y, sample_weight, seed)
        return self

    # -- checks --------------------------------------------------------------------------------

    def _check_options(self, candidates: list[Params], y: Any) -> None:
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
        if y is None and self.__sklearn_tags__().target_tags.required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")

    def _encoded(self, block: Block) -> _Rows:
        if block.y is None or not is_classifier(self.estimator):
            if block.y is not None and not np.isfinite(block.y.astype(np.float64)).all():
                raise ValueError("Input y contains NaN or infinity.")
            return _Rows(block=block, labels=None)
        labels, codes = encoded_classes(block.y)
        return _Rows(block=replace(block, y=codes), labels=labels)

    # -- the coreset of a fold -----------------------------------------------------------------

    def _size(self, n_rows: int) -> int:
        if self.coreset_size != "auto":
            return resolve_size(self.coreset_size, n_rows)
        return auto_size(n_rows, self.n_features_in_)

    def _objective(self, n_classes: int) -> Any:
        """The objective; y holds numbers below ``n_classes``, or is not a class where that is 0."""
        wanted = self.objective
        if isinstance(wanted, str) and wanted == "auto":
            wanted = "logistic" if n_classes > 1 else "generic"
        if isinstance(wanted, str) and wanted == GenericObjective.name:
            return GenericObjective(n_classes=n_classes)
        objective = make("objective", wanted)
        if n_classes and isinstance(objective, LabelledObjective):
            return replace(objective, classes=tuple(range(n_classes)))
        return objective

    def _coreset(self, rows: _Rows, train: Array, seed: int) -> Coreset:
        """The training rows of a fold, reduced."""
        block, n_classes, size = rows.block, rows.n_classes, self._size(len(train))
        if len(train) <= size:
            return all_rows(block.take(train), self._objective(n_classes).name)
        # as often as a row is in the fold: held-out rows weigh nothing and are never drawn
        weight = np.bincount(train, minlength=len(block)) * block.weights()
        if not weight.any():
            raise ValueError("No training row of a fold has a positive weight: choose another cv, or shuffle.")
        known = None
        if n_classes:
            assert block.y is not None
            # a class that is held out whole must not be asked for; its rows may have any number then
            known = np.flatnonzero(np.bincount(block.y, weights=weight, minlength=n_classes))
            number = np.zeros(n_classes, np.int32)
            number[known] = np.arange(len(known))
            block, n_classes = replace(block, y=number[block.y]), len(known)
        coreset = reduce_source(
            ArraySource(replace(block, sample_weight=weight, mean=None)),
            objective=self._objective(n_classes),
            construction=self.construction,
            coreset_size=size,
            calibrate=self.calibrate,
            random_state=seed,
        )
        return replace(coreset, n_seen=len(train), y=coreset.y if known is None else known[coreset.y])

    # -- the search ----------------------------------------------------------------------------

    def _search(self, rows: _Rows, candidates: list[Params], splits: list[tuple[Array, Array]], seed: int) -> None:
        shape = (len(candidates), len(splits))
        scores, fit_time, score_time = (np.full(shape, np.nan) for _ in range(3))
        failures: list[Exception] = []
        weighted = rows.block.sample_weight is not None and self._scores_weights()
        self.coresets_, self.reduce_time_ = [], 0.0
        # our own learners share the cores among kernels, which idle threads of BLAS would keep from working
        with single_blas_thread() if isinstance(self.estimator, CoresetLearner) else nullcontext():
            for j, (train, test) in enumerate(splits):
                start = time.perf_counter()
                coreset = self._coreset(rows, train, int(rng_for(seed, "fold", j).integers(2**62)))
                self.reduce_time_ += time.perf_counter() - start
                self.coresets_.append(coreset)
                held_out = rows.block.take(test)
                answers = rows.targets(held_out)
                weight = {"sample_weight": held_out.sample_weight} if weighted else {}
                model = None
                for i, params in enumerate(candidates):
                    start = middle = time.perf_counter()
                    try:
                        model = self._fitted(params, coreset, rows, model)
                        middle = time.perf_counter()
                        scores[i, j] = self.scorer_(model, held_out.X, answers, **weight)
                    except Exception as error:
                        failures.append(error)
                    fit_time[i, j], score_time[i, j] = middle - start, time.perf_counter() - middle
        self._rank(candidates, scores, failures)
        for name, values in (("fit_time", fit_time), ("score_time", score_time)):
            self.cv_results_ |= {f"mean_{name}": values.mean(axis=1), f"std_{name}": values.std(axis=1)}
        self.n_splits_ = len(splits)

    def _scores_weights(self) -> bool:
        """Whether the scorer takes weights; said if it does not."""
        accepts = getattr(self.scorer_, "_accept_sample_weight", None)
        takes = accepts() if accepts else "sample_weight" in signature(self.scorer_).parameters
        if not takes:
            warnings.warn("The score takes no sample_weight: held-out rows count alike.", stacklevel=4)
        return bool(takes)

    def _candidate(self, params: Params) -> Any:
        return clone(self.estimator).set_params(**clone(params, safe=False))

    def _fitted(self, params: Params, coreset: Coreset, rows: _Rows, last: Any) -> Any:
        """A candidate fitted on all rows of a coreset, from where the ``last`` one ended if it can start there."""
        model = self._candidate(params)
        if isinstance(self.estimator, CoresetLearner):
            model.set_params(coreset_size=len(coreset))  # reduced already
            if last is not None and "warm_start" in model.get_params(deep=False):
                model = last.set_params(**{**model.get_params(deep=False), "warm_start": True})
        weight = {} if coreset.sample_weight is None else {"sample_weight": coreset.sample_weight}
        return model.fit(coreset.X, rows.targets(coreset), **weight)

    def _rank(self, candidates: list[Params], scores: Array, failures: list[Exception]) -> None:
        mean = scores.mean(axis=1)
        said = f"{np.isnan(scores).sum()} of {scores.size} scores are nan" + (
            f", the first because of {failures[0]!r}" if failures else ""
        )
        if np.isnan(mean).all():
            raise ValueError(f"No candidate has a score in every fold: {said}.") from next(iter(failures), None)
        if failures:
            warnings.warn(f"{said}.", FitFailedWarning, stacklevel=4)
        rank = rankdata(np.where(np.isnan(mean), np.inf, -mean), method="min").astype(np.int32)
        results: dict[str, Any] = {"params": candidates}
        for key in sorted({key for params in candidates for key in params}):
            results[f"param_{key}"] = column = np.ma.MaskedArray(np.empty(len(candidates), object), mask=True)
            for i, params in enumerate(candidates):
                if key in params:
                    column[i] = params[key]
        results |= {f"split{j}_test_score": column for j, column in enumerate(scores.T)}
        results |= {"mean_test_score": mean, "std_test_score": scores.std(axis=1), "rank_test_score": rank}
        self.cv_results_ = results
        self.best_index_ = int(rank.argmin())
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(mean[self.best_index_])

    # -- the winner ----------------------------------------------------------------------------

    def _fit_winner(self, rows: _Rows, X: Any, y: Any, sample_weight: Any, seed: int) -> None:
        start = time.perf_counter()
        winner = self._candidate(self.best_params_)
        if not isinstance(winner, CoresetLearner):
            winner = CoresetEstimator(
                winner,
                objective=self._objective(rows.n_classes),
                coreset_size=self._size(len(rows.block)),
                construction=self.construction,
                calibrate=self.calibrate,
                random_state=int(rng_for(seed, "refit").integers(2**62)),
            )
        self.best_estimator_ = winner.fit(X, y, sample_weight=sample_weight)
        self.refit_time_ = time.perf_counter() - start
        self.certificate_: Certificate | None = getattr(winner, "certificate_", None)
        judged = isinstance(winner, CoresetEstimator) and hasattr(winner, "score")
        if judged and len(winner.validation_indices_) >= LEAST_TO_CERTIFY:
            self.certificate_ = winner.certify(X, y, sample_weight)

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
