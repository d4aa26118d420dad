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
from tithe.core.data import Array, Block, Coreset, all_rows
from tithe.core.errors import warn_caller
from tithe.core.params import Boolean, Constraint, RealNumber
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import HoldOut, as_seed, key_of, rng_for
from tithe.core.state_checks import Each, Integer, Integers, Labels, Number, Optional, Parts, Text, expect
from tithe.fit.base import MIN_AUTO_ROWS, CoresetLearner, FittedAttribute, require_target, set_schema
from tithe.fit.bases import BaseEstimator, MetaEstimatorMixin
from tithe.fit.labels import batch_with_class_numbers, has_target, with_class_numbers
from tithe.fit.results import BarChart, column_names, probe
from tithe.meta.boosting import worth_in_words
from tithe.meta.ensembles import (
    EarlyStop,
    best_rounds,
    check_stops_early,
    diverged,
    ensemble_of,
    ensemble_size,
    importances,
    learning_objective,
    learning_weights,
    with_class_factors,
    with_rounds,
)
from tithe.meta.leaves import leaf_obstacle, mean_loss, refitted_leaves
from tithe.meta.other_estimators import (
    OriginalRows,
    OuterEstimator,
    RowArguments,
    check_learns_from_coresets,
    columns_of,
    fit_arguments,
    fitted_to_labels,
    if_inner_has,
    last_step,
    library_of,
    needs_dense_rows,
    require_method,
    residuals,
    score_of,
    selected,
    with_categories,
)
from tithe.meta.scores import HeldOutScore, held_out_scores, in_words, score_in_words
from tithe.reduce.calibration import recalibrated
from tithe.rows.arrays import as_rows, is_frame
from tithe.rows.leaves import MappedSource
from tithe.rows.schema import TableSchema

_MOST_FITTED_TWICE = 20_000  # rows that are all learned from, up to which a second fit is scored on a share of them


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
        What the coreset preserves. ``"auto"``: ``"boosting"`` for boosted trees (LightGBM, XGBoost, CatBoost,
        scikit-learn's), else ``"logistic"`` for up to 20 classes, ``"least_squares"`` for regressors, and ``"generic"``
        for others and with ``polish``. ``"boosting"`` draws rows by the gradient of the learner's own loss at a small
        boosted model (`PilotGradient`). ``"generic"`` keeps counts, means and second moments of the columns (by class
        for classifiers) and the products with y (for regressors).
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 5,000, and for boosted trees a quarter of the rows,
        from 5,000 to 500,000. All are used if there are no more.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int or "leaves"
        Rounds of re-calibration: residuals of the fitted model are taken on all rows, the weights are calibrated to
        their products with the columns, and the estimator is fitted again. A round is kept only if the score on all
        rises. Needs ``predict``, a y and the generic objective.
        ``"leaves"``, for LightGBM and XGBoost: the splits are those of the coreset, and the leaves get the values that
        the library would give them on all rows (not those set aside), which need not fit into memory. They are kept
        only if the loss on the rows set aside is smaller: ``leaves_kept_``. It takes as long as to predict all rows
        and about as long again, and passes over a source: one for every 0.5 GB of leaf numbers, which are a byte for
        each tree and row.
    validation_fraction : float
        Share of the rows, drawn uniformly, that are not used for the coreset, so that the model can be scored on them:
        ``certificate_``. Rows that are merely not in the coreset are easier than average, since hard rows are drawn
        more often.
    early_stopping : float
        For boosted trees: the share of the coreset whose weighted loss tells the best number of rounds; if that share
        has fewer than 100 rows, others in turn, and the median of their numbers. The model is then fitted to the whole
        coreset with that number. 0: the estimator's own number. With pipelines, the steps before the trees are fitted
        to the other rows first.
    compare_uniform : bool
        Fit to a weighted uniform sample of as many rows too, and say in ``certificate_`` and ``held_out_scores_`` what
        it reaches. It costs one more fit, and one more pass over a source.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None
        For the coreset. The estimator has its own.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on the coreset.
    classes_ : array
        For classifiers: the classes of the coreset, which the estimator was fitted on.
    coreset_ : Coreset
        The rows that ``estimator_`` was fitted on. For classifiers its y holds class numbers. With the objective
        ``"boosting"`` its ``provenance`` has ``row_worth``: see `PilotGradient`.
    certificate_ : Certificate or None
        The score on the rows set aside. None if there are too few, or if the estimator has no score. Where all rows are
        learned from, up to 20,000, it is the score of a second fit, to the other rows.
    held_out_scores_ : list of HeldOutScore
        Log-loss and AUC of classifiers with probabilities, R2 of regressors, on the same rows.
    n_rounds_ : int or None
        The number of rounds that ``early_stopping`` found.
    leaves_kept_ : bool or None
        Whether ``polish="leaves"`` lowered the loss on the rows set aside. None without it.
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
    certificate_ = FittedAttribute[Certificate | None](optional=True)
    held_out_scores_ = FittedAttribute[list[HeldOutScore]](optional=True)
    n_rounds_ = FittedAttribute[int | None](optional=True)
    leaves_kept_ = FittedAttribute[bool | None](optional=True)
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
        "early_stopping": RealNumber(least=0.0, below=1.0),
        "compare_uniform": Boolean(),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        objective: Any = "auto",
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = 0,
        validation_fraction: float = 0.05,
        early_stopping: float = 0.0,
        compare_uniform: bool = False,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        encode: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.compare_uniform = compare_uniform
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.encode = encode
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
            One of scikit-learn that takes no text gets the numbers instead, if there is text; any other, with
            ``encode=True``. A source (`open_dataset`) is read once, leaf by leaf, and needs ``polish=0``. An estimator
            that treats gaps and categories itself (boosted trees), or looks up columns by name
            (`sklearn.compose.ColumnTransformer`), gets its rows as a pandas frame with these, others get numbers.
        y : array of shape (n,), optional
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        **fit_params
            Passed to ``fit`` of the estimator, such as ``eval_set``. Of an array with a value for each row it gets
            those of the rows of the coreset.
        """
        X, y, sample_weight = as_rows(self.framed(X, reset=True), y, sample_weight)
        given = OriginalRows(frame=X if is_frame(X) else None, fit_params=RowArguments(values=fit_params))
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

    def _checked(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
        return super()._checked(self.framed(X, reset=reset), y, sample_weight, reset=reset)

    def _check_options(self) -> None:
        check_learns_from_coresets(self.estimator)
        rounds = self._n_polish_rounds
        super()._check_options()
        if self.polish == "leaves":
            self._check_leaves()
        if self.early_stopping:
            check_stops_early(self.estimator)
        if self.compare_uniform and not self.validation_fraction:
            raise ValueError("compare_uniform scores both on rows set aside: set validation_fraction above 0.")
        by_name = isinstance(self.objective, str) and self.objective in ("auto", "generic")
        if rounds and not (self.calibrate and by_name):
            raise ValueError("polish re-calibrates the weights: it needs calibrate=True and objective='generic'.")

    @property
    def _n_polish_rounds(self) -> int:
        return 0 if self.polish == "leaves" else polish_rounds(self.polish)[0]

    def _check_leaves(self) -> None:
        obstacle = leaf_obstacle(self.estimator)
        if obstacle is not None:
            raise ValueError(f"polish='leaves' is not for this estimator: {obstacle}. Set polish=0.")
        if not self.validation_fraction:
            raise ValueError("polish='leaves' is judged on rows set aside: set validation_fraction above 0.")

    def _refuse_polish(self) -> None:
        if self.polish == "leaves":
            raise ValueError("polish='leaves' reads all rows again, and those of partial_fit are gone: set polish=0.")
        super()._refuse_polish()

    def _objective(self) -> Any:
        n_classes = 0 if self._labels is None else len(self._labels)
        auto = "generic" if self._n_polish_rounds else "auto"
        return learning_objective(self.estimator, auto if self.objective == "auto" else self.objective, n_classes)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return MIN_AUTO_ROWS if ensemble_of(self.estimator) is None else ensemble_size(n_rows)

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        """Passes over the rows with class numbers in place of labels."""
        has_rounds, classifier = self._n_polish_rounds > 0, is_classifier(self.estimator)
        if has_rounds and not isinstance(data.rows, Block):
            raise ValueError("polish compares scores on all rows, which a source does not hold: set polish=0.")
        if self.polish == "leaves" and not (isinstance(data.rows, Block) or data.rows.replayable):
            raise ValueError("polish='leaves' reads all rows again, and these can be read only once: set polish=0.")
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
        """Set rows aside, reduce the others, learn from their coreset, and score it on the rows set aside."""
        context = context.for_learner(self.estimator, self.schema_, self.encode)
        rows = data.rows
        size = self._size(data.n_expected, rows.n_features)
        if isinstance(rows, Source):
            return self._reduce_source(data, size, seed, context, checkpoint)
        context = replace(context, fit_params=replace(context.fit_params, n_rows=len(rows)))
        positions = np.empty(0, np.int64)
        if len(rows) > size:
            positions = draw_validation_rows(len(rows), float(self.validation_fraction), seed)
            data = data.over(without_rows(rows, positions))
        coreset = self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        values = {**self._learn(coreset, data, seed, context), "validation_indices_": positions}
        for _ in range(0 if len(rows) <= size else self._n_polish_rounds):
            better = self._recalibrated(values, data.rows, context, seed)
            if better is None:
                break
            values |= better
        if len(rows) <= size:
            return {**values, **self._scored_apart(values, data, context, seed)}
        return {**values, **self._scored(values, rows.take(positions), context, data, seed)}

    def _scored_apart(self, values: dict[str, Any], data: DataPass, given: OriginalRows, seed: int) -> dict[str, Any]:
        """Certificate and scores where all rows were learned from: those of a fit to all rows but a share."""
        rows = data.rows
        assert isinstance(rows, Block)
        positions = draw_validation_rows(len(rows), float(self.validation_fraction), seed)
        enough = len(positions) >= MIN_ROWS_TO_CERTIFY and len(rows) <= _MOST_FITTED_TWICE
        if not enough or values["_coreset_score"] is None:
            return {}
        rest = rows.take(np.setdiff1d(np.arange(len(rows)), positions))
        others = data.over(rest)
        apart = self._learn(all_rows(rest, self._objective()), others, seed, given)
        scored = self._scored(apart, rows.take(positions), given, others, seed)
        if not scored:
            return {}
        certificate = scored["certificate_"]
        said = f"{certificate.sentence} That is of a fit to the other rows; the model was fitted to these as well."
        return {"certificate_": replace(certificate, sentence=said), "held_out_scores_": scored["held_out_scores_"]}

    def _reduce_source(
        self, data: DataPass, size: int, seed: int, given: OriginalRows, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        """The same for a source. Rows are set aside by their ids if they can be read again."""
        source, objective, coreset, aside, kept = data.rows, self._objective(), None, None, data
        assert isinstance(source, Source)
        is_large = source.n_rows is None or source.n_rows > size
        if is_large and source.replayable and self.validation_fraction > 0.0:
            aside = key_of(seed, "validation"), float(self.validation_fraction)
            kept = data.over(MappedSource(source, HoldOut(*aside)))
            coreset = self._reduce(kept, objective, seed, checkpoint=checkpoint)
            checkpoint = None  # the folder holds the state of this reduction
        if coreset is None or coreset.is_whole:  # too few rows to set some aside
            coreset, aside = self._reduce(data, objective, seed, checkpoint=checkpoint), None
        values = {**self._learn(coreset, data, seed, given), "_aside": aside}
        if aside is None:
            return values
        later = kept.over(source)  # whose passes are counted on
        block, _ = sample_source(later, coreset, aside[0])
        training = later.over(kept.rows)
        return {**values, **self._scored(values, validation_rows(block, None, aside), given, training, seed)}

    def _learn(
        self, coreset: Coreset, data: DataPass | None, seed: int, context: OriginalRows | None
    ) -> dict[str, Any]:
        """Fit on the coreset, without weights if none were given and all rows are used."""
        given = OriginalRows().for_learner(self.estimator, self.schema_) if context is None else context
        weight = (data.rows if data is not None and isinstance(data.rows, Block) else coreset).sample_weight
        fitted, n_rounds = self._fit_to(coreset, given, seed, weighted=weight is not None or not coreset.is_whole)
        return {
            "coreset_": coreset,
            "estimator_": fitted,
            "n_rounds_": n_rounds,
            "leaves_kept_": None,
            "certificate_": None,
            "held_out_scores_": [],
            "validation_indices_": None,
            "_aside": None,
            "_columns": None if given.frame is None else columns_of(given.frame),
            "_is_viewed": given.schema is not None,
            "_coreset_score": self._score(fitted, coreset, given) if self._has_score(fitted, coreset, given) else None,
        }

    def _fit_to_coreset(self, coreset: Coreset, labels: Array | None, schema: TableSchema | None) -> None:
        self._check_options()
        self._validate_rows(coreset.X, coreset.y, reset=True)
        set_schema(self, schema)
        self._labels = labels
        self._start_fit()
        self._fitted_values = self._learn(coreset, None, as_seed(self.random_state), None)

    def _scored(
        self, values: dict[str, Any], aside: Block, given: OriginalRows, training: DataPass, seed: int
    ) -> dict[str, Any]:
        """Certificate and scores on the rows set aside; nothing if there are too few, or the estimator has no score.

        Before that the leaves get values from all rows, if asked for.
        """
        if np.count_nonzero(aside.weights()) < MIN_ROWS_TO_CERTIFY or values["_coreset_score"] is None:
            return {}
        rows, uniform, better = replace(aside, y=self.targets_of(aside)), None, dict[str, Any]()
        if self.compare_uniform:
            drawn = self._reduce(training, self._objective(), seed, construction="uniform", calibrate=False)
            uniform, _ = self._fit_to(drawn, given, seed, weighted=True)
        if self.polish == "leaves":
            fitted, kept = self._with_leaves(values["estimator_"], rows, given, training)
            score = self._score(fitted, values["coreset_"], given)
            better = {"estimator_": fitted, "leaves_kept_": kept, "_coreset_score": score}
            uniform = None if uniform is None else self._with_leaves(uniform, rows, given, training)[0]
        certificate, scores = self._certificate({**values, **better}, rows, given, uniform)
        return {**better, "certificate_": certificate, "held_out_scores_": scores}

    def _with_leaves(self, fitted: Any, aside: Block, given: OriginalRows, training: DataPass) -> tuple[Any, bool]:
        """The estimator with leaf values from all rows if they are better on the rows set aside, and whether so."""
        refitted, X = refitted_leaves(fitted, training, given.of, self._labels), given.of(aside)
        assert aside.y is not None
        before, after = (mean_loss(model, X, aside.y, aside.sample_weight) for model in (fitted, refitted))
        return (refitted, True) if after < before else (fitted, False)

    def _certificate(
        self, values: dict[str, Any], rows: Block, given: OriginalRows, uniform: Any = None
    ) -> tuple[Certificate, list[HeldOutScore]]:
        """The certificate, and further scores, on rows with labels."""
        fitted = values["estimator_"]
        if rows.sample_weight is not None:  # rows of weight zero say nothing, and a part of them has no score
            rows = rows.take(np.flatnonzero(rows.sample_weight))

        def score(block: Block) -> float:
            return score_of(fitted, given.of(block), block.y, block.sample_weight)

        certificate = score_certificate(score, rows, values["_coreset_score"], **score_in_words(fitted, rows))
        if rows.y is None:
            return certificate, []
        scores = held_out_scores(fitted, given.of(rows), rows.y, rows.sample_weight, self._labels, uniform)
        return replace(certificate, sentence=certificate.sentence + in_words(scores)), scores

    def check_relations(self) -> None:
        super().check_relations()
        expect(hasattr(self.estimator, "fit"), "there is no estimator")
        if not self._is_behind and self._columns is None and not self._is_viewed:  # the rows of a frame are not known
            probe(self.estimator_, self.n_encoded_)

    # -- the estimator -------------------------------------------------------------------------

    def targets_of(self, block: Block) -> Array | None:
        """The y of a block with class numbers as the estimator gets it: with labels."""
        return block.y if block.y is None or self._labels is None else self._labels[block.y]

    def _fit_to(self, coreset: Coreset, given: OriginalRows, seed: int, *, weighted: bool) -> tuple[Any, int | None]:
        """The estimator fitted on the coreset, and its number of rounds if early stopping set it."""
        y, stop = self.targets_of(coreset), None
        model, factors = with_class_factors(clone(self.estimator), coreset)
        weight = learning_weights(model, coreset) * factors if weighted else None
        if self.early_stopping and y is not None:
            share, rng = float(self.early_stopping), rng_for(seed, "early stopping")
            stop = best_rounds(model, lambda at: given.of(coreset.take(at)), y, weight, share, rng)
        if stop is None or y is None:
            fitted = self._fitted(model, coreset, given, y, weight)
        else:
            fitted = self._fitted_until(stop, model, coreset, given, y, weight)
        if self._labels is not None and len(fitted.classes_) < len(self._labels):
            missing = [label for label in self._labels.tolist() if label not in fitted.classes_]
            warn_caller(
                f"{len(missing)} classes have no row of positive weight in the coreset, {missing[0]!r} among them: "
                "the estimator does not know them. Ask for a larger coreset.",
            )
        return fitted, None if stop is None else stop.rounds

    def _fitted(self, model: Any, rows: Block, given: OriginalRows, y: Array | None, weight: Array | None) -> Any:
        X = given.of(rows)
        arguments = fit_arguments(model, weight) | given.arguments(rows)
        return fitted_to_labels(with_categories(clone(model), X), X, y, **arguments)

    def _fitted_until(
        self, stop: EarlyStop, model: Any, rows: Block, given: OriginalRows, y: Array, weight: Array | None
    ) -> Any:
        """The estimator with the rounds of an early stop, fitted to all rows unless its trees then diverge."""
        model = with_rounds(model, stop.rounds, stop.steadied)
        if stop.steadied:
            warn_caller(
                "LightGBM's leaves of rare classes diverge on these rows. They are bounded by max_delta_step=1, with "
                "which the loss is smaller on the rows set aside for early stopping."
            )
        fitted = self._fitted(model, rows, given, y, weight)
        if not diverged(fitted, lambda at: given.of(rows.take(at)), y, weight, stop):
            return fitted
        warn_caller(
            "Trees of the whole coreset diverge: on the rows set aside for early stopping they are worse than those of "
            "the other rows, which are kept. max_delta_step=1 or reg_lambda=1 may help."
        )
        at = np.flatnonzero(~stop.aside)
        return self._fitted(model, rows.take(at), given, y[at], None if weight is None else weight[at])

    def _recalibrated(
        self, values: dict[str, Any], block: Any, given: OriginalRows, seed: int
    ) -> dict[str, Any] | None:
        """One round of polish: the coreset and the estimator, or None if the estimator is no better than before."""
        before = values["estimator_"]
        require_method(before, "predict", needed_by="polish")
        unexplained = partial(residuals, before, self._labels, given.of)
        coreset = recalibrated(values["coreset_"], block, self._objective(), unexplained)
        fitted, _ = self._fit_to(coreset, given, seed, weighted=True)
        if not self._score(fitted, block, given) > self._score(before, block, given):
            return None
        return {"coreset_": coreset, "estimator_": fitted, "_coreset_score": self._score(fitted, coreset, given)}

    def _has_score(self, fitted: Any, block: Block, given: OriginalRows) -> bool:
        """Whether the estimator has a score: those of several quantiles at once predict more than there is to score."""
        if not hasattr(fitted, "score") or is_classifier(fitted) or not hasattr(fitted, "predict"):
            return hasattr(fitted, "score")
        predicted = np.shape(fitted.predict(given.of(block.take(np.arange(1)))))
        return len(predicted) == 1 or predicted[1] == 1

    def _score(self, estimator: Any, block: Block, given: OriginalRows) -> float:
        return score_of(estimator, given.of(block), self.targets_of(block), block.sample_weight)

    def _given(self, X: Any) -> OriginalRows:
        """What the estimator gets of X: rows of a frame, if it was fitted on such rows, else numbers."""
        X = self.framed(X, reset=False)
        if self._columns is not None and is_frame(X):
            return OriginalRows(frame=selected(X, self._columns))
        schema = self.schema_ if self._is_viewed else None
        library = library_of(last_step(self.estimator)[1])
        return OriginalRows(schema=schema, library=library, dense=self._needs_dense)

    @property
    def _needs_dense(self) -> bool:
        return needs_dense_rows(self.estimator, self.schema_)

    # -- methods of a fitted model -------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """What a row is worth, the scores on rows set aside, and the columns that matter most to the trees."""
        coreset, values = (self.solve()._fitted_values or {}).get("coreset_"), dict[str, Any]()
        worth = None if coreset is None else coreset.provenance.get("row_worth")  # a saved model has no rows
        if isinstance(worth, float):
            values |= {"row_worth": worth, "what_a_row_is_worth": worth_in_words(worth)}
        if self.n_rounds_ is not None:
            values["rounds"] = self.n_rounds_
        if self.leaves_kept_ is not None:
            values["leaf_values"] = (
                "from all rows" if self.leaves_kept_ else "from the coreset: on held-out rows better"
            )
        if self.held_out_scores_:
            values["held_out_scores"] = [str(score) for score in self.held_out_scores_]
        return values

    def charts(self) -> list[BarChart]:
        """The importances of the columns, if the estimator has them."""
        values = importances(self.estimator_)
        own = "feature_names_" if self._is_viewed and library_of(self.estimator_) == "catboost" else "feature_names_in_"
        names = list(getattr(self.estimator_, own, column_names(self)))
        if values is None or len(values) != len(names):
            return []
        return [BarChart.of_largest("importances of columns", names, values, "share of the gain")]

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
        return self._certificate(self._fitted_values or {}, block, self._given(X))[0]

    @if_inner_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        block = self.solve()._checked(X, y, sample_weight, reset=False)
        given = self._given(X)
        return score_of(self.estimator_, given.of(block), block.y, block.sample_weight)

    def _inner(self) -> Any:
        return self.estimator_ if self._fitted_values else self.estimator

    def _call(self, method: str, X: Any) -> Any:
        given = self.solve()._given(X)
        rows = given.of(self._checked(X, reset=False)) if given.frame is None else given.frame
        answer = getattr(self.estimator_, method)(rows)
        # CatBoost predicts a column (n, 1) if there are many classes
        return np.ravel(answer) if method == "predict" and np.ndim(answer) == 2 and answer.shape[1] == 1 else answer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        _, learner = last_step(self.estimator)  # the tags of a pipeline do not say whether its last step needs y
        tags.target_tags.required = hasattr(learner, "fit") and get_tags(learner).target_tags.required
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags
