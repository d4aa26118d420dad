"""`CoresetEstimator`: any estimator with ``sample_weight``, on a coreset."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags

from tithe.certify import Certificate, polish_rounds
from tithe.certify.held_out import (
    MIN_ROWS_TO_CERTIFY,
    draw_validation_rows,
    n_coreset_rows_in,
    sample_source,
    score_certificate,
    validation_rows,
    without_rows,
)
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import Constraint, RealNumber
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import HoldOut, key_of
from tithe.core.state_checks import Each, Integer, Integers, Labels, Number, Optional, Parts, Text
from tithe.fit.base import CoresetLearner, FittedAttribute, require_target
from tithe.fit.bases import BaseEstimator, MetaEstimatorMixin
from tithe.fit.labels import (
    batch_with_class_numbers,
    has_target,
    objective_for,
    usual_objective,
    with_class_numbers,
)
from tithe.fit.results import probe
from tithe.meta.other_estimators import (
    OriginalRows,
    OuterEstimator,
    check_learns_from_coresets,
    columns_of,
    fit_arguments,
    fitted_to_labels,
    if_inner_has,
    last_step,
    require_method,
    residuals,
    score_of,
    selected,
    takes_categories,
)
from tithe.reduce.calibration import recalibrated
from tithe.rows.arrays import is_frame
from tithe.rows.clusters import as_rows
from tithe.rows.leaves import MappedSource
from tithe.rows.schema import can_view


class CoresetEstimator(OuterEstimator, CoresetLearner, MetaEstimatorMixin, BaseEstimator):
    """Fit any scikit-learn estimator that takes ``sample_weight`` on a calibrated coreset.

    Parameters
    ----------
    estimator : estimator
        Its ``fit`` must take ``sample_weight``. It is cloned, not changed. Of a `sklearn.pipeline.Pipeline` the
        last step must, and gets the weights, as does every other step that takes them: `StandardScaler` then
        scales as on all rows (exactly so with ``objective="generic"``), while a step that takes none (`PCA`) sees the
        rows of the coreset as they are.
        With metadata routing enabled, pipelines and other meta-estimators route the weights as their steps
        request. An estimator of a precomputed kernel or distance matrix is refused.
    objective : str or objective
        What the coreset preserves. ``"auto"``: ``"logistic"`` for up to 20 classes, ``"least_squares"`` for regressors,
        and ``"generic"`` for others and with ``polish``. ``"generic"`` keeps counts, means and second moments of the
        columns (by class for classifiers) and the products with y (for regressors).
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows; ``"auto"``: 5,000. All are used if there are no more.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int
        Rounds of re-calibration: residuals of the fitted model are taken on all rows, the weights are calibrated to
        their products with the columns, and the estimator is fitted again. A round is kept only if the score on all
        rows rises. Needs ``predict``, a y and the generic objective.
    validation_fraction : float
        Share of the rows, drawn uniformly, that are not used for the coreset, so that `certify` can score the model
        on them. Rows that are merely not in the coreset are easier than average, since hard rows are drawn more often.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None
        For the coreset. The estimator has its own.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on the coreset.
    classes_ : array
        For classifiers: the classes of the coreset, which the estimator was fitted on.
    coreset_ : Coreset
        The rows that ``estimator_`` was fitted on. For classifiers its y holds class numbers.
    validation_indices_ : array or None
        Positions in the training data of the rows set aside. None after a fit from a source, where a hash of the row
        id decides; `certify` finds these rows again. No rows are set aside if a source can be read only once.
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream or None
        After `partial_fit`: the stream that keeps the coreset.

    Read what else a fit gives from ``estimator_``. What is about single rows (``support_`` of an SVM, ``labels_``) is
    about the rows of ``coreset_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from tithe import CoresetEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=50_000)
    >>> model = CoresetEstimator(Ridge(), coreset_size=1000, random_state=0).fit(X, y)
    >>> model.estimator_.coef_.round(1).tolist()
    [1.0, -2.0, 0.5]
    """

    coreset_ = FittedAttribute[Coreset](holds_rows=True)
    estimator_ = FittedAttribute[Any]()
    validation_indices_ = FittedAttribute[Array | None](Optional(Integers("aside", least=0)))
    _aside = FittedAttribute[tuple[int, float] | None](
        Optional(Parts(Integer(most=2**64), Number(least=0.0, most=1.0)))
    )
    _coreset_score = FittedAttribute[float | None](Optional(Number()))
    _columns = FittedAttribute[list[str] | None](Optional(Each(Text())))  # of the frame that was fitted on
    _is_viewed = FittedAttribute[bool]()  # whether it was fitted on a frame that was made from numeric rows
    _labels: Annotated[Array | None, Optional(Labels("classes", distinct=True))] = (
        None  # of classifiers, in the order of their numbers
    )

    _constraints: ClassVar[dict[str, Constraint]] = {
        "validation_fraction": RealNumber(least=0.0, below=1.0),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        objective: Any = "auto",
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int = 0,
        validation_fraction: float = 0.05,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.validation_fraction = validation_fraction
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
        **fit_params: Any,
    ) -> Self:
        """Reduce, and fit the estimator on the coreset.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            Rows of a frame are scored as numbers (text, dates and gaps become numbers by a schema), and the estimator
            gets the chosen rows of the frame itself: with names, categories and gaps, as it gets those of ``predict``.
            A source (`open_dataset`) is read once, leaf by leaf, and needs ``polish=0``. An estimator that treats gaps
            and categories itself (boosted trees), or looks up columns by name (`sklearn.compose.ColumnTransformer`),
            gets its rows as a pandas frame with these, others get numbers.
        y : array of shape (n,), optional
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        **fit_params
            Passed to ``fit`` of the estimator, such as ``eval_set``.
        """
        X, y, sample_weight = as_rows(X, y, sample_weight)
        given = OriginalRows(frame=X if is_frame(X) else None, fit_params=fit_params)
        return self._fit(X, y, sample_weight, given, checkpoint, progress)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add rows, which need not be kept. `solve` fits the estimator, and so does `predict` if it was not called.

        The result does not depend on how rows are split into batches. Up to ``coreset_size`` rows are all used; beyond
        that a `CoresetStream` keeps a coreset. No rows are set aside: use `certify` with rows that were not passed
        here. The first call after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), optional
        sample_weight : array of shape (n,), optional
        classes : array, optional
            For classifiers, all labels that will ever occur. Needed on the first call, unless `fit` was called before.
        """
        return self._push(X, y, sample_weight, classes)

    # -- methods of the base class -------------------------------------------------------------

    def _check_options(self) -> None:
        check_learns_from_coresets(self.estimator)
        rounds, _ = polish_rounds(self.polish)
        super()._check_options()
        by_name = isinstance(self.objective, str) and self.objective in ("auto", "generic")
        if rounds and not (self.calibrate and by_name):
            raise ValueError("polish re-calibrates the weights: it needs calibrate=True and objective='generic'.")

    def _objective(self) -> Any:
        n_classes = 0 if self._labels is None else len(self._labels)
        name = self.objective
        if isinstance(name, str) and name == "auto":
            name = "generic" if self.polish else usual_objective(self.estimator, n_classes)
        return objective_for(name, n_classes)

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        """Passes over the rows with class numbers in place of labels."""
        has_rounds, classifier = polish_rounds(self.polish)[0] > 0, is_classifier(self.estimator)
        if has_rounds and not isinstance(data.rows, Block):
            raise ValueError("polish compares scores on all rows, which a source does not hold: set polish=0.")
        if isinstance(data.rows, Block) or not classifier:
            require_target(self, has_target(data.rows), anyway=has_rounds)
        self._labels, data = with_class_numbers(data, classifier=classifier)
        return data

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        options = {"classifier": is_classifier(self.estimator), "first": self.stream_ is None}
        self._labels, block = batch_with_class_numbers(block, classes, self._labels, **options)
        return block

    def _reduce_and_learn(
        self, data: DataPass, seed: int, context: OriginalRows, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        """Set rows aside, reduce the others and learn from their coreset."""
        block, fraction = data.rows, float(self.validation_fraction)
        size = self._size(block.n_rows if isinstance(block, Source) else len(block), block.n_features)
        if isinstance(block, Source):
            return self._reduce_source(data, size, seed, context, checkpoint)
        is_small, positions = len(block) <= size, np.empty(0, np.int64)
        if not is_small:
            positions = draw_validation_rows(len(block), fraction, seed)
            data = data.over(without_rows(block, positions))
        coreset = self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        values = {**self._learn(coreset, data, seed, context), "validation_indices_": positions}
        for _ in range(0 if is_small else polish_rounds(self.polish)[0]):
            better = self._recalibrated(values, data.rows, context)
            if better is None:
                break
            values |= better
        return values

    def _reduce_source(
        self, data: DataPass, size: int, seed: int, given: OriginalRows, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        """The same for a source. Rows are set aside by their ids if they can be read again."""
        source, objective, coreset, aside = data.rows, self._objective(), None, None
        assert isinstance(source, Source)
        is_large = source.n_rows is None or source.n_rows > size
        if is_large and source.replayable and self.validation_fraction > 0.0:
            aside = key_of(seed, "validation"), float(self.validation_fraction)
            kept = data.over(MappedSource(source, HoldOut(*aside)))
            coreset = self._reduce(kept, objective, seed, checkpoint=checkpoint)
            checkpoint = None  # the folder holds the state of this reduction
        if coreset is None or coreset.is_whole:  # too few rows to set some aside
            coreset, aside = self._reduce(data, objective, seed, checkpoint=checkpoint), None
        if takes_categories(self.estimator) and can_view():
            given = replace(given, schema=self.schema_)
        return {**self._learn(coreset, data, seed, given), "_aside": aside}

    def _learn(
        self, coreset: Coreset, data: DataPass | None, seed: int, context: OriginalRows | None
    ) -> dict[str, Any]:
        """Fit on the coreset, without weights if none were given and all rows are used."""
        given = OriginalRows() if context is None else context
        weight = (data.rows if data is not None and isinstance(data.rows, Block) else coreset).sample_weight
        fitted = self._fit_to(coreset, given, weighted=weight is not None or not coreset.is_whole)
        score = None
        if given.frame is not None and hasattr(fitted, "score"):  # these rows cannot be had later
            score = self._score(fitted, coreset, given)
        return {
            "coreset_": coreset,
            "estimator_": fitted,
            "validation_indices_": None,
            "_aside": None,
            "_columns": None if given.frame is None else columns_of(given.frame),
            "_is_viewed": given.schema is not None,
            "_coreset_score": score,
        }

    def check_relations(self) -> None:
        super().check_relations()
        if not self._is_behind and self._columns is None and not self._is_viewed:  # the rows of a frame are not known
            probe(self.estimator_, self.n_features_in_)

    # -- the estimator -------------------------------------------------------------------------

    def targets_of(self, block: Block) -> Array | None:
        """The y of a block with class numbers as the estimator gets it: with labels."""
        return block.y if block.y is None or self._labels is None else self._labels[block.y]

    def _fit_to(self, coreset: Coreset, given: OriginalRows, *, weighted: bool) -> Any:
        """The estimator fitted on the coreset."""
        model = clone(self.estimator)
        weight = fit_arguments(model, coreset.weights() if weighted else None)
        fitted = fitted_to_labels(model, given.of(coreset), self.targets_of(coreset), **weight, **given.arguments())
        if self._labels is not None and len(fitted.classes_) < len(self._labels):
            missing = [label for label in self._labels.tolist() if label not in fitted.classes_]
            warn_caller(
                f"{len(missing)} classes have no row of positive weight in the coreset, {missing[0]!r} among them: "
                "the estimator does not know them. Ask for a larger coreset.",
            )
        return fitted

    def _recalibrated(self, values: dict[str, Any], block: Any, given: OriginalRows) -> dict[str, Any] | None:
        """One round of polish: the coreset and the estimator, or None if the estimator is no better than before."""
        before = values["estimator_"]
        require_method(before, "predict", needed_by="polish")
        unexplained = partial(residuals, before, self._labels, given.of)
        coreset = recalibrated(values["coreset_"], block, self._objective(), unexplained)
        fitted = self._fit_to(coreset, given, weighted=True)
        if not self._score(fitted, block, given) > self._score(before, block, given):
            return None
        return {"coreset_": coreset, "estimator_": fitted}

    def _score(self, estimator: Any, block: Block, given: OriginalRows) -> float:
        return score_of(estimator, given.of(block), self.targets_of(block), block.sample_weight)

    def _plain_score(self, given: OriginalRows, block: Block) -> float:
        return score_of(self.estimator_, given.of(block), block.y, block.sample_weight)

    def _given(self, X: Any) -> OriginalRows:
        """What the estimator gets of X: rows of a frame, if it was fitted on such rows, else numbers."""
        if self._columns is not None and is_frame(X):
            return OriginalRows(frame=selected(X, self._columns))
        return OriginalRows(schema=self.schema_ if self._is_viewed else None)

    # -- methods of a fitted model -------------------------------------------------------------

    @property
    def classes_(self) -> Array:
        classes: Array = self.estimator_.classes_
        return classes

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The estimator's score on rows it has not seen, with a 95 % interval.

        If X is the training data, only the rows that were set aside are used. The training data is recognised by
        its number of rows and by the rows of the coreset at their positions. All rows of other data are used. Of a
        source, at most 200,000 rows, drawn uniformly by their ids, are gathered in one pass. The interval comes from
        the scores of twenty parts of the rows and Student's t.
        """
        require_method(self.solve().estimator_, "score", needed_by="certify")
        X, y, sample_weight = as_rows(X, y, sample_weight, schema=self.schema_)
        rows = self._validate_rows(X, y, sample_weight, reset=False)
        if isinstance(rows, Source):
            # rows set aside have the smallest hashes, so they are gathered first
            key = key_of(0, "certify") if self._aside is None else self._aside[0]
            block, is_training_data = sample_source(DataPass(rows, self.engine), self.coreset_, key)
        else:
            block = rows
            same_length = len(block) == self.coreset_.n_seen
            is_training_data = same_length and n_coreset_rows_in(block, self.coreset_) == len(self.coreset_)
        if is_training_data:
            block = validation_rows(block, self.validation_indices_, self._aside)
        on_coreset = self._coreset_score
        if on_coreset is None:
            on_coreset = self._score(self.estimator_, self.coreset_, OriginalRows())
        return score_certificate(partial(self._plain_score, self._given(X)), block, on_coreset)

    def can_certify(self) -> bool:
        """Whether the estimator has a score, and rows enough were set aside; of a source this is an estimate."""
        if self._aside is not None:
            n_rows = int(self._aside[1] * self.coreset_.n_seen)
        else:
            n_rows = 0 if self.validation_indices_ is None else len(self.validation_indices_)
        return n_rows >= MIN_ROWS_TO_CERTIFY and hasattr(self.estimator_, "score")

    @if_inner_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        block = self.solve()._checked(X, y, sample_weight, reset=False)
        return self._plain_score(self._given(X), block)

    def _inner(self) -> Any:
        return self.estimator_ if self._fitted_values else self.estimator

    def _call(self, method: str, X: Any) -> Any:
        given = self.solve()._given(X)
        rows = given.of(self._checked(X, reset=False)) if given.frame is None else given.frame
        return getattr(self.estimator_, method)(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        _, learner = last_step(self.estimator)  # the tags of a pipeline do not say whether its last step needs y
        tags.target_tags.required = hasattr(learner, "fit") and get_tags(learner).target_tags.required
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags
