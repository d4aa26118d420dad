"""`CoresetSearchCV`: parameters chosen by cross-validation on one coreset per fold."""

from __future__ import annotations

import numbers
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing

from tithe.certify import Certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Coreset
from tithe.core.errors import warn_caller
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Constraint, Instance, OneOf, WholeNumber, check_params, resolve_size
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Instance as IsA
from tithe.core.state_checks import Labels, Optional, expect
from tithe.fit.base import (
    CoresetLearner,
    Described,
    FittedAttribute,
    check_no_extra_arrays,
    checked_block,
    fit_on_coreset,
    note_columns,
    require_target,
    set_schema,
)
from tithe.fit.bases import BaseEstimator, MetaEstimatorMixin
from tithe.fit.labels import (
    batch_with_class_numbers,
    has_target,
    with_class_numbers,
)
from tithe.fit.results import probe
from tithe.meta.ensembles import ensemble_of, learning_objective
from tithe.meta.estimator import CoresetEstimator
from tithe.meta.leaves import leaf_obstacle
from tithe.meta.other_estimators import (
    NO_ARGUMENTS,
    OriginalRows,
    OuterEstimator,
    RowArguments,
    check_learns_from_coresets,
    last_step,
    takes_categories,
)
from tithe.meta.search.evaluate import (
    Evaluator,
    Params,
    Rungs,
    Scoring,
    candidate,
    check_refit,
    chosen,
    cv_results,
    evaluate,
    is_multimetric,
)
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
from tithe.rows.arrays import as_rows, check_weights, is_frame

_CONSTRAINTS: dict[str, Constraint] = {
    "return_train_score": Boolean(),
    "n_iter": OneOf(None) | WholeNumber(least=1),
    "refit_on": OneOf("coreset", "all", "leaves"),
    "halving": OneOf(None) | WholeNumber(least=2),
    "leaves": OneOf("auto") | Boolean(),
    "n_jobs": OneOf(None) | Instance(numbers.Integral, "an integer other than 0"),
    "verbose": WholeNumber(),
    "error_score": OneOf("raise") | Instance(numbers.Real, "a number"),
}
_ALL_ROWS = 2**62  # of a source whose rows are not counted
_UNUSED = ("coreset_size", "construction", "calibrate")  # parameters without effect in a search


def candidates_of(estimator: Any, param_grid: Any, n_iter: int | None, seed: int) -> list[Params]:
    """All candidates of a grid, or ``n_iter`` drawn at random. Those that cannot learn from a coreset are refused."""
    try:
        sampler = partial(ParameterSampler, n_iter=n_iter, random_state=seed % 2**32)
        candidates = list(ParameterGrid(param_grid) if n_iter is None else sampler(param_grid))
    except TypeError as error:  # a distribution, for one
        raise ValueError(f"{error} To draw candidates from distributions, set n_iter.") from error
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


class CoresetSearchCV(OuterEstimator, Described, MetaEstimatorMixin, BaseEstimator):
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
        and one in 100 of the rows up to 50,000; for boosted trees a quarter of the rows, from 5,000 to 500,000, as on
        fewer other leaves and rounds are best. A fold with no more training rows than this uses all of them.
    construction, engine
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
    refit_on : {"coreset", "all", "leaves"}
        What the winner is fitted to if it is not of this package: a coreset of all rows, all rows (in memory), or a
        coreset with leaf values from all rows (see ``polish`` of `CoresetEstimator`).
    halving : int or None
        If not None, candidates are first fitted to a small part of the coreset of a fold. One in ``halving`` of them,
        the best, go on to a part that is ``halving`` times as large and contains it, until the whole coreset is used.
        ``cv_results_`` has the last scores of each, with ``iter`` and ``n_resources``, and ranks by ``iter`` first.
        Scores on the way are of a part of the rows held out, at least 2,500.
    leaves : {"auto", True, False}
        Rank candidates of LightGBM and XGBoost by trees that are grown on a fifth of the rows, and whose leaves get
        values from the other rows. ``"auto"``: with ``halving``, where trees of few rows alone rank wrongly; those of
        the whole coreset, at the end, need no such values.
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
        Above 0, the number of fits is printed; above 1 also the scores and the time of each fit.

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

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetLogisticRegression, CoresetSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X, weight = rng.normal(size=(30_000, 3)), rng.exponential(size=30_000)
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.logistic(size=30_000) > 0, "yes", "no")
    >>> model = CoresetLogisticRegression(coreset_size=1000, random_state=0)
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
    _labels: Annotated[Array | None, Optional(Labels("classes", distinct=True))] = (
        None  # of classifiers, in the order of their numbers
    )

    # None unless rows came by `partial_fit`
    stream_: Annotated[FoldStreams, IsA(FoldStreams)] = None  # type: ignore[assignment]
    best_params_ = FittedAttribute[Params](optional=True)
    best_score_ = FittedAttribute[float](optional=True)
    best_index_ = FittedAttribute[int](optional=True)
    best_estimator_ = FittedAttribute[Any](optional=True)
    cv_results_ = FittedAttribute[dict[str, Any]]()
    multimetric_ = FittedAttribute[bool]()
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
        scoring: Any = None,
        cv: Any = 5,
        refit: Any = True,
        refit_on: str = "coreset",
        halving: int | None = None,
        leaves: bool | str = "auto",
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
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.refit_on = refit_on
        self.halving = halving
        self.leaves = leaves
        self.random_state = random_state
        self.n_iter = n_iter
        self.error_score = error_score
        self.return_train_score = return_train_score
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def frame_encoding(self) -> Any:
        """How frames become features: the parameter ``encode`` of the estimator, if it has it."""
        return self.estimator.get_params(deep=False).get("encode", "auto")

    def check_relations(self) -> None:
        values = self._fitted_values or {}
        expect(hasattr(self.estimator, "fit"), "there is no estimator")
        if "best_estimator_" in values:
            probe(values["best_estimator_"], self.n_encoded_)
        else:
            expect(self._is_behind or not self.refit, "the best estimator is missing")
        if self.stream_ is not None:
            like = self.stream_.streams[-1].state.rows.like
            expect(like is not None and like.n_features == self.n_encoded_, "a stream has other columns")

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
        **params: Any,
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
        **params
            Passed to ``fit`` of each candidate and of the winner; with metadata routing, what they request, and to the
            scores what these request. Of an array with a value for each row they get those of their rows.
        """
        self._check_options()
        seed = as_seed(self.random_state)
        candidates = candidates_of(self.estimator, self.param_grid, self.n_iter, seed)
        X, y, sample_weight = as_rows(self.framed(X, reset=True), y, sample_weight)
        if isinstance(X, Source):
            data = DataPass(check_no_extra_arrays(X, y, sample_weight, groups), self.engine, progress)
            folds, n_folds = self._source_folds(data, seed, checkpoint)
        else:
            data, splits = self._array_splits(X, y, sample_weight, groups, progress)
            folds, n_folds = self._reducer(seed).array_folds(data, splits, checkpoint), len(splits)
        to_fit, to_score = self._routed(params, data.n_expected)
        self._start_fit()
        values = self._search(candidates, folds, n_folds, X if is_frame(X) else None, to_fit, to_score)
        if self.refit:
            start = time.perf_counter()
            folder = checkpoint and checkpoint.within("winner")
            winner = self._winner(values["best_params_"], data.n_expected, seed)
            options = {"sample_weight": sample_weight, "checkpoint": folder, "progress": progress}
            winner.fit(X, y, **options, **to_fit.values)
            values |= self._kept(winner, start)
        self._fitted_values = values
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add rows, which need not be kept. `solve` runs the search, and so does `predict` if it was not called.

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
        first = self.stream_ is None
        self._refuse_lost_stream()
        self._check_options()
        n_folds = n_folds_by_id(self.cv)
        require_target(self, y is not None)
        checked = checked_block(self, self.framed(X, reset=first), y, reset=first)
        block = replace(checked, sample_weight=check_weights(sample_weight, len(checked)), mean=None)
        options = {"classifier": is_classifier(self.estimator), "first": first}
        self._labels, block = batch_with_class_numbers(block, classes, self._labels, **options)
        if first:
            self._seed = as_seed(self.random_state)
            candidates_of(self.estimator, self.param_grid, self.n_iter, self._seed)  # wrong ones are refused at once
        streams = FoldStreams(self._reducer(self._seed), n_folds) if first else self.stream_
        streams.push(block)
        self.stream_ = streams
        self._fitted_values = None
        return self

    def _solve_stream(self) -> dict[str, Any]:
        streams = self.stream_
        if self.refit and self.refit_on != "coreset":
            raise ValueError(f"refit_on={self.refit_on!r} reads all rows again, and those of partial_fit are gone.")
        candidates = candidates_of(self.estimator, self.param_grid, self.n_iter, self._seed)
        values = self._search(candidates, streams.folds(), streams.shares.n_folds)
        if not self.refit:
            return values
        start = time.perf_counter()
        winner = self._winner(values["best_params_"], None, self._seed)
        names = None if self.feature_names is None else np.array(self.feature_names, dtype=object)
        fit_on_coreset(winner, streams.coreset(), self._labels, names, self.schema_)
        return values | self._kept(winner, start)

    # -- the search ----------------------------------------------------------------------------

    def _check_options(self) -> None:
        """Refuse wrong parameters before a row is read."""
        check_params(self, _CONSTRAINTS)
        if self.n_jobs == 0:
            raise ValueError("n_jobs must be an integer other than 0, or None; got 0.")
        named = {"construction": self.construction, "objective": self.objective, "engine": self.engine}
        for kind, what in named.items():
            if not (isinstance(what, str) and what == "auto"):
                make(kind, what)
        if self.coreset_size != "auto":
            resolve_size(self.coreset_size, 1)
        Scoring(self.estimator, self.scoring).scorer()
        scoring, refit = self.scoring, self.refit
        if self.halving is not None and (callable(refit) or (is_multimetric(scoring) and not refit)):
            raise ValueError("halving lets the best go on: let refit be True, or the name of the score that decides.")
        if self.refit_on != "coreset" and isinstance(last_step(self.estimator)[1], CoresetLearner):
            raise ValueError(f"refit_on={self.refit_on!r} is for estimators of other libraries: leave it out.")
        obstacle = leaf_obstacle(self.estimator) if self.refit and self.refit_on == "leaves" else None
        if obstacle is not None:
            raise ValueError(f"refit_on='leaves' is not for this estimator: {obstacle}. Choose 'coreset' or 'all'.")
        if is_multimetric(scoring):
            check_refit(refit, list(scoring))
        elif isinstance(refit, str) and not callable(scoring) and refit != scoring:
            raise ValueError(
                f"refit names the score {refit!r}, and scoring is {scoring!r}: set refit to True or False."
            )
        elif not isinstance(refit, (bool, np.bool_, str)) and not callable(refit):
            raise ValueError(f"refit must be True, False, the name of a score or a callable, got {refit!r}.")

    def _reducer(self, seed: int) -> FoldReducer:
        n_classes = 0 if self._labels is None else len(self._labels)
        return FoldReducer(
            objective=learning_objective(self.estimator, self.objective, n_classes),
            coreset_size=self.coreset_size,
            construction=self.construction,
            n_features=self.n_encoded_,
            n_classes=n_classes,
            seed=seed,
            of_ensembles=ensemble_of(self.estimator) is not None,
        )

    def _array_splits(self, X: Any, y: Any, sample_weight: Any, groups: Any, progress: Any) -> tuple[DataPass, Splits]:
        """The rows in memory, and positions of training and held-out rows."""
        require_target(self, y is not None)
        block = checked_block(self, X, y, sample_weight, reset=True)
        splits = splits_of(self.cv, block, groups, classifier=is_classifier(self.estimator))
        data = DataPass(block, progress=progress)
        self._labels, data = with_class_numbers(data, classifier=is_classifier(self.estimator))
        return data, splits

    def _source_folds(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> tuple[Iterator[Fold], int]:
        """The folds of a source, which are reduced one by one. Takes one pass to count their rows and classes."""
        source, n_folds = data.rows, n_folds_by_id(self.cv)
        assert isinstance(source, Source)
        if not source.replayable:
            raise ValueError("A search reads all rows several times, and these come only once: use partial_fit.")
        note_columns(self, source, reset=True)
        classifier = is_classifier(self.estimator)
        if not classifier:
            require_target(self, has_target(source))
        self._labels, data = with_class_numbers(data, classifier=classifier)
        reducer = self._reducer(seed)
        shares = Shares(seed=seed, n_folds=n_folds, n_classes=reducer.n_classes)
        shares.count(data)
        return reducer.source_folds(data, shares, checkpoint), n_folds

    def _ranks_by_leaves(self) -> bool:
        """Whether leaves get values from other rows. A warning says where ranks would need it, and it cannot be."""
        asked = self.halving is not None if self.leaves == "auto" else bool(self.leaves)
        if self.halving is not None and ensemble_of(self.estimator) is not None:
            obstacle = leaf_obstacle(self.estimator) if asked else "leaves=False"
            if obstacle is not None:
                warn_caller(
                    f"halving ranks boosted trees by fits to few rows, on which other candidates are best than on all "
                    f"rows, and their leaves get no values from further rows ({obstacle}): leave halving out."
                )
        return asked

    def _routed(self, params: Params, n_rows: int | None) -> tuple[RowArguments, RowArguments]:
        """Further arguments of ``fit`` for the estimator, and for the scores."""
        if not get_config()["enable_metadata_routing"]:
            return RowArguments(values=params, n_rows=n_rows), NO_ARGUMENTS
        routed = process_routing(self, "fit", **params)
        return (
            RowArguments(values=routed.estimator.fit, n_rows=n_rows),
            RowArguments(values=routed.scorer.score, n_rows=n_rows),
        )

    def get_metadata_routing(self) -> MetadataRouter:
        """What the estimator and the scores request, for scikit-learn's routing of metadata."""
        scoring = Scoring(self.estimator, self.scoring)
        to_scores = MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        return router.add(scorer=scoring.together(), method_mapping=to_scores)

    def _search(
        self,
        candidates: list[Params],
        folds: Iterator[Fold],
        n_folds: int,
        frame: Any = None,
        to_fit: RowArguments = NO_ARGUMENTS,
        to_score: RowArguments = NO_ARGUMENTS,
    ) -> dict[str, Any]:
        """Evaluate the candidates: the fitted attributes but those of the winner. ``frame`` holds the original rows."""
        raises = isinstance(self.error_score, str)
        evaluator = Evaluator(
            estimator=self.estimator,
            scoring=Scoring(self.estimator, self.scoring, raise_errors=raises),
            labels=self._labels,
            train_scores=self.return_train_score,
            raise_errors=raises,
            verbose=self.verbose,
            n_candidates=len(candidates),
            n_folds=n_folds,
            leaves=self._ranks_by_leaves(),
            fit_params=to_fit,
            score_params=to_score,
        )
        given = OriginalRows(frame=frame if takes_categories(self.estimator) else None)
        given = given.for_learner(self.estimator, self.schema_)
        recorded = RecordedFolds(folds)
        viewed = (fold.viewed(given) for fold in recorded)
        # kernels of our own learners use all cores, and idle threads of BLAS would slow them down
        with single_blas_thread() if isinstance(self.estimator, CoresetLearner) else nullcontext():
            if self.halving is None:
                outcomes = list(evaluate(evaluator, viewed, candidates, self.n_jobs))
                results, multimetric = cv_results(candidates, outcomes, self.error_score)
            else:
                rungs = Rungs(self.halving, self.refit, self.error_score)
                results, multimetric = rungs.results(evaluator, list(viewed), candidates, self.n_jobs)
        return {
            "coresets_": recorded.coresets,
            "reduce_time_": recorded.seconds,
            "n_splits_": n_folds,
            "multimetric_": multimetric,
            **chosen(results, self.refit, multimetric=multimetric),
            "cv_results_": results,
        }

    # -- the winner ----------------------------------------------------------------------------

    def _winner(self, params: Params, n_rows: int | None, seed: int) -> CoresetLearner:
        """The best candidate as a learner on a coreset of all rows, which are reduced as those of the folds."""
        best, reducer = candidate(self.estimator, params), self._reducer(seed)
        if isinstance(best, CoresetLearner):
            return best
        size = reducer.size(n_rows) if self.refit_on != "all" else n_rows or _ALL_ROWS
        prefix, learner = last_step(best)
        if isinstance(learner, CoresetLearner):
            best.set_params(**{f"{prefix}coreset_size": size})  # its rows are a coreset, not to be reduced again
        return CoresetEstimator(
            best,
            objective=reducer.objective_for(reducer.n_classes),
            coreset_size=size,
            construction=reducer.construction,
            polish="leaves" if self.refit_on == "leaves" else 0,
            engine=self.engine,
            random_state=int(rng_for(seed, "refit").integers(2**62)),
        )

    def _kept(self, winner: CoresetLearner, start: float) -> dict[str, Any]:
        """The fitted attributes of the winner."""
        if self.schema_ is not None:  # it was fitted on rows that the schema made
            set_schema(winner, self.schema_)
        seconds = time.perf_counter() - start
        return {"best_estimator_": winner, "refit_time_": seconds, "certificate_": winner.certificate_}

    def _inner(self) -> Any:
        self._require_refit("The methods of the winner need it")
        return self.best_estimator_ if self._fitted_values else self.estimator

    def _require_refit(self, what: str) -> None:
        if not self.refit:
            raise AttributeError(f"{what} fitted on all rows, and refit is False: set it to True.")

    def _call(self, method: str, X: Any) -> Any:
        return getattr(self.solve().best_estimator_, method)(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **params: Any) -> float:
        """The score of the winner by ``scoring``; of several scores, the one that ``refit`` names.

        Further arguments are routed to the score as it requests, if metadata routing is enabled.
        """
        if params and not get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"score() takes {min(params)!r} only with metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True), and set_score_request on the scorer."
            )
        routed = process_routing(self, "score", **params).scorer.score if params else {}
        self._require_refit("score() needs the winner")
        self.solve()
        if self.multimetric_ and not isinstance(self.refit, str):
            raise ValueError("Several scores were taken, and refit is a callable that names none: use scorer_.")
        scoring = self.scorer_[self.refit] if is_multimetric(self.scoring) else self.scoring
        weight = check_weights(sample_weight, X.shape[0] if hasattr(X, "shape") else len(X))
        scores, weighted = Scoring(self.estimator, scoring)(self.best_estimator_, X, y, weight, **routed)
        if weight is not None and not weighted:
            warn_caller("The score takes no sample_weight: all rows count the same.")
        return float(scores[self.refit] if isinstance(scores, dict) else scores)

    def summary(self) -> dict[str, Any]:
        """The best parameters, and what the winner says about itself."""
        values = self.solve()._fitted_values or {}
        best = {name: values[f"{name}_"] for name in ("best_params", "best_score") if f"{name}_" in values}
        winner = values.get("best_estimator_")
        return {**best, **(winner.summary() if isinstance(winner, Described) else {})}

    @property
    def scorer_(self) -> Any:
        """The scorer, or a dict of scorers by name.

        It is made from ``scoring`` each time, because a saved model must not contain functions.
        """
        return Scoring(self.estimator, self.scoring).scorer()

    @property
    def classes_(self) -> Array:
        self._require_refit("classes_ needs the winner")
        classes: Array = self.best_estimator_.classes_
        return classes

    def __sklearn_tags__(self) -> Any:
        return CoresetEstimator(self.estimator).__sklearn_tags__()
