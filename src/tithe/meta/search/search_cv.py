"""`CoresetSearchCV`: parameters chosen by cross-validation on one coreset per fold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.metadata_routing import UNUSED

from tithe.certify import Certificate
from tithe.certify.held_out import MIN_ROWS_TO_CERTIFY
from tithe.core.contracts import Source
from tithe.core.data import Array, Coreset
from tithe.core.parallel import single_blas_thread
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Labels, Optional, Storable, check_fields, expect
from tithe.fit.base import CoresetLearner, check_no_extra_arrays, note_columns
from tithe.fit.bases import BaseEstimator, MetaEstimatorMixin
from tithe.fit.fitted import FittedAttribute, LazyFitMixin, attributes_of, check_learner, probe
from tithe.fit.from_coreset import fit_on_coreset
from tithe.fit.labels import (
    EncodeLabels,
    finite_target,
    require_target,
    stream_classes,
    usual_objective,
    with_class_numbers,
    with_numbers,
)
from tithe.fit.tables import checked_block, schema_of
from tithe.meta.estimator import CoresetEstimator
from tithe.meta.search.candidates import candidates_of, check_options
from tithe.meta.search.evaluate import Evaluator, Params, candidate, evaluate
from tithe.meta.search.folds import (
    Fold,
    FoldReducer,
    FoldStreams,
    RecordedFolds,
    Shares,
    Splits,
    n_folds_by_id,
    splits_of,
)
from tithe.meta.search.results import chosen, cv_results
from tithe.meta.search.scoring import Scoring
from tithe.meta.search.winner import WinnerMethods, winner_of
from tithe.rows.arrays import check_weights
from tithe.rows.schema import TableSchema


class CoresetSearchCV(WinnerMethods, LazyFitMixin, MetaEstimatorMixin, Storable, BaseEstimator):
    """Search a grid of parameters by cross-validation, on one coreset per fold.

    In each fold the training rows are reduced once; each candidate is fitted on this coreset and scored on all
    held-out rows. The winner is fitted again from all rows and certified.

    Parameters
    ----------
    estimator : estimator
        Its ``fit`` must take ``sample_weight``: scikit-learn's, or one of this package. It is cloned. In a
        `sklearn.pipeline.Pipeline` the last step must, as in `CoresetEstimator`; all steps are fitted on the
        coreset of a fold. A precomputed kernel or distance matrix is refused.
    param_grid : dict or list of dicts
        As in `sklearn.model_selection.GridSearchCV`. With ``n_iter``, values may also be distributions, as in
        ``param_distributions`` of `sklearn.model_selection.RandomizedSearchCV`.
    objective : str or objective
        What the coresets preserve. ``"auto"``: as in `CoresetEstimator`.
    coreset_size : int, float or "auto"
        Rows of a coreset, or a fraction of the training rows. ``"auto"``: the largest of 10,000, 20 for each column,
        and one in 100 of the rows up to 50,000. A fold with no more training rows than this uses all of them.
    construction, calibrate, engine
        See `build_coreset`. The engine reads sources; an estimator of this package has its own for the last fit.
    scoring : str, callable, list, tuple, set, dict or None
        One score or several, as in scikit-learn. None: the estimator's own ``score``. A callable is called with
        the fitted estimator, X, and y where there is one, and gives a number or a dict of numbers.
    cv : int, splitter or iterable
        As in scikit-learn.
    refit : bool, str or callable
        Fit the winner from all rows. An estimator of this package uses its own coreset, polish and certificate; any
        other is put in a `CoresetEstimator`. With several scores, the name of the one that decides, or False. A
        callable takes ``cv_results_`` and returns the index of the winner.
    random_state : int, RandomState, Generator or None
        For the coresets and for drawing candidates. Estimator and splitter have their own.
    n_iter : int or None
        Number of candidates that are drawn from ``param_grid`` by `sklearn.model_selection.ParameterSampler`.
        None: all candidates of the grid are tried.
    error_score : "raise" or number
        Score of a candidate that cannot be fitted or scored in a fold, with a warning (``FitFailedWarning`` where
        a fit failed). "raise": the error is raised.
    return_train_score : bool
        Also score each candidate on the coreset it was fitted on, with the weights of the coreset. These scores show
        how far candidates overfit.
    n_jobs : int or None
        Number of jobs to run in parallel. None means 1 unless in a ``joblib.parallel_config`` context, -1 means
        all processors. Estimators of this package run in threads, others in processes unless that context says
        otherwise. BLAS is kept to one thread, so that scores have the same bits for any number of jobs.
    verbose : int
        Above 0, the number of fits is printed; up to 4 shows more of each fit: time, fold and score, start.

    Attributes
    ----------
    best_params_, best_score_, best_index_, cv_results_, n_splits_, scorer_, multimetric_, refit_time_
        As in scikit-learn: with several scores ``mean_test_NAME`` and so on, no ``best_score_`` if ``refit`` is a
        callable, and no ``best_*`` if it is False. It is an error if no candidate has a score.
    best_estimator_ : estimator
        The winner, fitted from all rows; within a `CoresetEstimator` if it is not of this package.
    certificate_ : Certificate or None
        That of the winner: how far its loss on all rows is from the smallest possible (`CoresetLogisticRegression`),
        or its score on rows set aside (`CoresetEstimator`). None if no rows were set aside, and after `partial_fit`.
    coresets_ : list of Coreset
        One per fold. ``indices`` are positions in all rows. For classifiers y holds class numbers.
    reduce_time_ : float
        Seconds spent on building the coresets, which are not part of the fit times in ``cv_results_``.
    classes_, n_features_in_, feature_names_in_
        If the estimator has them.

    Notes
    -----
    scikit-learn's own search works too, with the weights routed to fit *and* score. Each candidate then builds its
    own coreset in each fold and polishes on all training rows: this is slower, and nearer to a full search.

    >>> import numpy as np, sklearn
    >>> from sklearn.model_selection import GridSearchCV
    >>> from tithe import CoresetLogisticRegression, CoresetSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X, weight = rng.normal(size=(30_000, 3)), rng.exponential(size=30_000)
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.logistic(size=30_000) > 0, "yes", "no")
    >>> model = CoresetLogisticRegression(coreset_size=1000, random_state=0)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     routed = model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    ...     slow = GridSearchCV(routed, {"C": [1e-5, 1.0]}, cv=3).fit(X, y, sample_weight=weight)
    >>> slow.best_params_, slow.best_estimator_.certificate_.relative_excess < 1e-4
    ({'C': 1.0}, True)

    Examples
    --------
    The same on one coreset per fold:

    >>> search = CoresetSearchCV(model, {"C": [1e-5, 1.0]}, coreset_size=1000, cv=3, random_state=0)
    >>> search.fit(X, y, sample_weight=weight).best_params_
    {'C': 1.0}

    Candidates drawn at random for a pipeline, with two scores:

    >>> from scipy.stats import loguniform
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> search = CoresetSearchCV(
    ...     make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": loguniform(1e-6, 10)},
    ...     n_iter=4, coreset_size=1000, cv=3, scoring=["neg_log_loss", "accuracy"], refit="neg_log_loss",
    ...     random_state=0).fit(X, y, sample_weight=weight)
    >>> len(search.cv_results_["mean_test_accuracy"]), search.best_score_ > -0.5
    (4, True)
    """

    __metadata_request__fit = {"checkpoint": UNUSED, "progress": UNUSED}
    _labels: Array | None  # of classifiers, in the order of their numbers

    n_features_in_: int
    feature_names_in_: Array
    schema_: TableSchema  # only where the rows came from a table
    stream_: FoldStreams
    best_params_ = FittedAttribute[Params](optional=True)
    best_score_ = FittedAttribute[float](optional=True)
    best_index_ = FittedAttribute[int](optional=True)
    cv_results_ = FittedAttribute[dict[str, Any]]()
    n_splits_ = FittedAttribute[int]()
    refit_time_ = FittedAttribute[float](optional=True)
    reduce_time_ = FittedAttribute[float]()
    certificate_ = FittedAttribute[Certificate | None](optional=True)
    coresets_ = FittedAttribute[list[Coreset]](holds_rows=True)

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
        refit: Any = True,
        random_state: Any = None,
        n_iter: int | None = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
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
        self.n_iter = n_iter
        self.error_score = error_score
        self.return_train_score = return_train_score
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _check_state(self) -> None:
        check_fields(self, {"_labels": Optional(Labels("classes", distinct=True))}, optional=("_labels",))
        sizes = check_learner(self, stream=FoldStreams)
        values = attributes_of(self)
        if "best_estimator_" in values:
            probe(values["best_estimator_"], sizes["d"])
        else:
            expect("cv_results_" not in values or not self.refit, "the best estimator is missing")
        if "stream_" in values:
            like = self.stream_.streams[-1].state.rows.like
            expect(like is not None and like.n_features == sizes["d"], "a stream has other columns")

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Search, fit the winner from all rows, and certify it.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_dataset`) is read leaf by leaf: once to count, once per fold, and by the winner. A hash of
            the row id decides the fold, so ``cv`` must be a number of folds. Candidates are scored on at most 100,000
            rows of a fold, drawn uniformly.
        y : array of shape (n,), optional
            Labels of any kind for classifiers. That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
            Used in reducing, fitting and scoring.
        groups : array of shape (n,), optional
            For the splitter.
        checkpoint, progress
            Keep the state of each reduction in its own folder within the ``path``, and watch the passes over the
            data: see `build_coreset`. The passes of the winner are counted from 1 again.
        """
        check_options(self)
        seed = as_seed(self.random_state)
        candidates = candidates_of(self.estimator, self.param_grid, self.n_iter, seed)
        if isinstance(X, Source):
            data = DataPass(check_no_extra_arrays(X, y, sample_weight, groups), self.engine, progress)
            folds, n_folds = self._source_folds(data, seed, checkpoint)
        else:
            data, splits = self._array_splits(X, y, sample_weight, groups, progress)
            folds, n_folds = self._reducer(seed).array_folds(data, splits, checkpoint), len(splits)
        self._start_fit()
        self._search(candidates, folds, n_folds)
        if self.refit:
            start = time.perf_counter()
            folder, winner = checkpoint and checkpoint.within("winner"), self._winner(data.n_expected, seed)
            winner.fit(X, y, sample_weight=sample_weight, checkpoint=folder, progress=progress)
            self._keep_winner(winner, start)
            has_score = isinstance(winner, CoresetEstimator) and hasattr(winner, "score")
            if has_score and winner.n_set_aside() >= MIN_ROWS_TO_CERTIFY:
                self.certificate_ = winner.certify(X, y, sample_weight)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add rows, which need not be kept. The search runs when an attribute is read.

        ``hasattr`` reads an attribute too: the first call after new rows takes as long as a fit.

        The result does not depend on how rows are split into batches. A hash of the row number decides the fold, so
        ``cv`` must be a number of folds. There is a `CoresetStream` for each fold and one for all rows; at most
        100,000 rows of each fold, drawn uniformly, are kept to score on. The winner is fitted on the coreset of all
        rows, without polish and certificate. The first call after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), optional
        sample_weight : array of shape (n,), optional
        classes : array, optional
            For classifiers, all labels that will ever occur. Needed on the first call, unless `fit` was called before.
        """
        first = not self._is_streaming
        self._refuse_lost_stream()
        check_options(self)
        n_folds = n_folds_by_id(self.cv)
        require_target(self, y)
        checked = checked_block(self, X, y, reset=first)
        block = replace(checked, sample_weight=check_weights(sample_weight, len(checked)), mean=None)
        if is_classifier(self.estimator):
            self._labels = stream_classes(classes, self.__dict__.get("_labels"), first=first)
            block = EncodeLabels(classes=self._labels)(block)
        else:
            self._labels, block = None, finite_target(block)
        if first:
            self._seed = as_seed(self.random_state)
            candidates_of(self.estimator, self.param_grid, self.n_iter, self._seed)  # wrong ones are refused at once
        streams = FoldStreams(self._reducer(self._seed), n_folds) if first else self.stream_
        streams.push(block)
        self.stream_ = streams
        self._fitted_values = None
        return self

    def _fit_from_stream(self) -> None:
        streams = self.stream_
        candidates = candidates_of(self.estimator, self.param_grid, self.n_iter, self._seed)
        self._search(candidates, streams.folds(), streams.shares.n_folds)
        if not self.refit:
            return
        start = time.perf_counter()
        winner = self._winner(None, self._seed)
        fit_on_coreset(winner, streams.coreset(), self._labels, self.__dict__.get("feature_names_in_"))
        self._keep_winner(winner, start)

    def _reducer(self, seed: int) -> FoldReducer:
        n_classes = 0 if self._labels is None else len(self._labels)
        return FoldReducer(
            objective=self.objective,
            usual_objective=usual_objective(self.estimator, n_classes),
            coreset_size=self.coreset_size,
            construction=self.construction,
            calibrate=self.calibrate,
            n_features=self.n_features_in_,
            n_classes=n_classes,
            seed=seed,
        )

    def _array_splits(self, X: Any, y: Any, sample_weight: Any, groups: Any, progress: Any) -> tuple[DataPass, Splits]:
        """The rows in memory, and positions of training and held-out rows."""
        require_target(self, y)
        block = checked_block(self, X, y, sample_weight, reset=True)
        splits = splits_of(self.cv, block, groups, classifier=is_classifier(self.estimator))
        self._labels, numbered = with_numbers(block, classifier=is_classifier(self.estimator))
        return DataPass(numbered, progress=progress), splits

    def _source_folds(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> tuple[Iterator[Fold], int]:
        """The folds of a source, which are reduced one by one. Takes one pass to count their rows and classes."""
        source, n_folds, classifier = data.rows, n_folds_by_id(self.cv), is_classifier(self.estimator)
        assert isinstance(source, Source)
        if not source.replayable:
            raise ValueError("A search reads all rows several times, and these come only once: use partial_fit.")
        note_columns(self, source, reset=True)
        if not classifier:
            require_target(self, source.sample(1, rng=rng_for(seed, "look")).y)
        self._labels, rows = with_class_numbers(data, classifier=classifier)
        data, reducer = data.over(rows), self._reducer(seed)
        shares = Shares(seed=seed, n_folds=n_folds, n_classes=reducer.n_classes)
        shares.count(data)
        return reducer.source_folds(data, shares, checkpoint), n_folds

    def _search(self, candidates: list[Params], folds: Iterator[Fold], n_folds: int) -> None:
        """Evaluate the candidates, and set ``cv_results_`` and the best of them."""
        raises = isinstance(self.error_score, str)
        scoring = Scoring(self.estimator, self.scoring, raise_errors=raises)
        evaluator = Evaluator(
            estimator=self.estimator,
            scorer=scoring.scorer(),
            labels=self._labels,
            weighted=scoring.takes_weights(),
            train_scores=self.return_train_score,
            raise_errors=raises,
            verbose=self.verbose,
            n_candidates=len(candidates),
            n_folds=n_folds,
        )
        recorded = RecordedFolds(folds, scoring, with_train_score=self.return_train_score)
        # kernels of our own learners use all cores, and idle threads of BLAS would slow them down
        with single_blas_thread() if isinstance(self.estimator, CoresetLearner) else nullcontext():
            outcomes = list(evaluate(evaluator, iter(recorded), candidates, self.n_jobs))
        self.coresets_, self.reduce_time_, self.n_splits_ = recorded.coresets, recorded.seconds, n_folds
        results, self.multimetric_ = cv_results(candidates, outcomes, self.error_score)
        for name, value in chosen(results, self.refit, multimetric=self.multimetric_).items():
            setattr(self, name, value)
        self.cv_results_ = results

    def _winner(self, n_rows: int | None, seed: int) -> Any:
        """The best candidate, as a learner on a coreset of all rows."""
        return winner_of(candidate(self.estimator, self.best_params_), self._reducer(seed), n_rows, self.engine)

    def _keep_winner(self, winner: Any, start: float) -> None:
        if schema_of(self) is not None:  # it was fitted on rows that the schema made
            winner.schema_ = self.schema_
            winner.feature_names_in_ = self.feature_names_in_
        self.best_estimator_ = winner
        self.refit_time_ = time.perf_counter() - start
        self.certificate_ = getattr(winner, "certificate_", None)
