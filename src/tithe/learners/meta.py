"""Any estimator with ``sample_weight``, on a coreset."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, polish_rounds
from tithe.certify.held_out import n_coreset_rows_in, sample_source, score_certificate
from tithe.core.checkpoint import Checkpoint
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.hashing import HoldOut, key_of, uniform_of
from tithe.core.params import Constraint, RealNumber, check_params
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Integer, Integers, Labels, Number, Optional, Parts, Sizes, check_fields
from tithe.learners.base import (
    CoresetLearner,
    limits_threads,
    objective_for,
)
from tithe.learners.bases import BaseEstimator, MetaEstimatorMixin, available_if
from tithe.learners.labels import (
    EncodeLabels,
    checked_classes,
    encoded_classes,
    finite_target,
    known_classes,
    stream_classes,
)
from tithe.learners.lazy_fit import FittedAttribute
from tithe.learners.recalibrate import recalibrated, residuals
from tithe.learners.sample_weight import check_learns_from_coresets, fit_arguments, last_step, takes_weights
from tithe.learners.stored import probe
from tithe.sources.mapped import MappedSource


def _has(method: str) -> Any:
    def check(self: CoresetEstimator) -> bool:
        getattr(self.estimator_ if self._fitted_values else self.estimator, method)
        return True

    return available_if(check)


def _require(estimator: Any, method: str, *, needed_by: str) -> None:
    """Refuse an estimator of another library that lacks a method."""
    if not hasattr(estimator, method):
        raise ValueError(f"{needed_by} needs {method}(), which {type(estimator).__name__} does not have.")


def _from_estimator(name: str) -> Any:
    """A fitted attribute of the estimator inside."""
    return property(lambda self: getattr(self.estimator_, name), doc=f"``{name}`` of ``estimator_``.")


class CoresetEstimator(CoresetLearner, MetaEstimatorMixin, BaseEstimator):
    """Fit any scikit-learn estimator that takes ``sample_weight`` on a calibrated coreset.

    Parameters
    ----------
    estimator : estimator
        Its ``fit`` must take ``sample_weight``. It is cloned, not changed. Of a `sklearn.pipeline.Pipeline` the
        last step must, and gets the weights, as does every other step that takes them: `StandardScaler` then
        scales as on all rows, while a step that takes none (`PCA`) sees the rows of the coreset as they are.
        With metadata routing enabled, pipelines and other meta-estimators route the weights as their steps
        request. An estimator of a precomputed kernel or distance matrix is refused.
    objective : str or objective
        What the coreset preserves. ``"generic"`` keeps counts, means and second moments of the
        columns (by class for classifiers) and the products with y (for regressors).
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 5,000. With no more rows than this, all are used.
    construction, calibrate, engine
        See `build_coreset`.
    polish : int
        Rounds of re-calibration: residuals of the fitted model are taken on all rows, the weights
        are calibrated to their products with the columns, and the estimator is fitted again. Kept
        only if the score on all rows rises. Needs ``predict``, a y and the generic objective.
    validation_fraction : float
        Share of the rows, drawn uniformly, that the coreset is not built from, so that `certify` has
        rows to judge by. Rows left over by a draw will not do: the draw takes the hard ones.
    n_jobs : int or None
        Threads. None uses those that the process has; -1 as well.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None
        Of the coreset; the estimator has its own.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on the coreset.
    classes_ : array
        For classifiers: the classes the estimator knows, which are those of the coreset.
    coreset_ : Coreset
        What ``estimator_`` was fitted on. Its y holds class numbers for classifiers.
    validation_indices_ : array or None
        Positions in the training data of the rows set aside. None after a fit from a source, where a hash
        of the row's id decides and `certify` finds them again; none are set aside of rows that come only once.
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream
        After `partial_fit`: what keeps the coreset up to date.
    coef_, intercept_, feature_importances_, n_iter_
        Those of ``estimator_``, where it has them. All others are read from ``estimator_``; where they count rows
        (``support_`` of an SVM), they count those of ``coreset_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from tithe import CoresetEstimator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=50_000)
    >>> model = CoresetEstimator(Ridge(), coreset_size=1000, random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist()
    [1.0, -2.0, 0.5]
    """

    coreset_ = FittedAttribute[Coreset]()
    estimator_ = FittedAttribute[Any]()
    validation_indices_ = FittedAttribute[Array | None](Optional(Integers("aside", least=0)))
    _aside = FittedAttribute[tuple[int, float] | None](
        Optional(Parts(Integer(most=2**64), Number(least=0.0, most=1.0)))
    )
    _labels: Array

    classes_: Any = _from_estimator("classes_")
    coef_: Any = _from_estimator("coef_")
    intercept_: Any = _from_estimator("intercept_")
    feature_importances_: Any = _from_estimator("feature_importances_")
    n_iter_: Any = _from_estimator("n_iter_")

    _constraints: ClassVar[dict[str, Constraint]] = {
        "validation_fraction": RealNumber(least=0.0, below=1.0),
    }

    def __init__(
        self,
        estimator: Any,
        *,
        objective: Any = "generic",
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

    @limits_threads
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Reduce, and fit the estimator on the coreset.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_dataset`) is read once, leaf by leaf; polish is not for sources.
        y : array of shape (n,), optional
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        rounds = self._check_options()
        if isinstance(X, Source):
            if rounds:
                raise ValueError("polish compares scores on all rows, which a source does not hold: set polish=0.")
            source = self._given(X, y, sample_weight, reset=True)
            return self._fit_source(self._passes(source, progress), checkpoint)
        self._require_target(y, rounds)
        block = self._checked(X, y, sample_weight, reset=True)
        self._start_fit()
        if is_classifier(self.estimator):
            block = self._encoded(block)
        else:
            finite_target(block)
        objective, seed = self._objective(), as_seed(self.random_state)
        self.validation_indices_ = np.empty(0, np.int64)
        self._aside = None
        few = len(block) <= self._size(len(block), block.n_features)
        if not few:
            block = self._set_aside(block, seed)
        data = self._passes(block, progress)
        self._learn(self._reduce(data, objective, seed, checkpoint=checkpoint), data, seed)
        for _ in range(0 if few else rounds):
            if not self._recalibrate(block):
                break
        return self

    def _check_state(self) -> None:
        check_fields(self, {"_labels": Optional(Labels("classes", distinct=True))}, optional=("_labels",))
        super()._check_state()

    def _check_solution(self, sizes: Sizes) -> None:
        probe(self.estimator_, sizes["d"])

    def _check_options(self) -> int:
        """The rounds of polish, all else being right."""
        check_learns_from_coresets(self.estimator)
        rounds, _ = polish_rounds(self.polish)
        self._check_names()
        check_params(self, self._constraints)
        if rounds and not (self.calibrate and isinstance(self.objective, str) and self.objective == "generic"):
            raise ValueError("polish re-calibrates the weights: it needs calibrate=True and objective='generic'.")
        return rounds

    def _require_target(self, y: Any, rounds: int = 0) -> None:
        if y is None and (rounds or self.__sklearn_tags__().target_tags.required):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")

    def _fit_source(self, data: DataPass, checkpoint: Checkpoint | None) -> Self:
        """From a source: rows are set aside by their ids, if they can be read again to judge by."""
        source = data.rows
        assert isinstance(source, Source)
        self._start_fit()
        seed = as_seed(self.random_state)
        if is_classifier(self.estimator):
            self._labels = checked_classes(known_classes(data))
            rows = MappedSource(source, EncodeLabels(classes=self._labels))
        else:
            self._require_target(source.sample(1, rng=rng_for(seed, "look")).y)
            rows = MappedSource(source, finite_target)
        objective = self._objective()
        self.validation_indices_, self._aside = None, None
        coreset = None
        n_rows = source.n_rows
        large = n_rows is None or n_rows > self._size(n_rows, source.n_features)
        if large and source.replayable and self.validation_fraction > 0.0:
            self._aside = key_of(seed, "validation"), float(self.validation_fraction)
            data = data.over(MappedSource(rows, HoldOut(*self._aside)))
            coreset = self._reduce(data, objective, seed, checkpoint=checkpoint)
            checkpoint = None  # it holds the state of this reduction
        data = data.over(rows)
        if coreset is None or coreset.is_whole:  # so few rows, as it turns out, that none can be spared
            coreset, self._aside = self._reduce(data, objective, seed, checkpoint=checkpoint), None
        self._learn(coreset, data, seed)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Take in more rows, which need not be kept; the estimator is fitted when it is asked for.

        In which pieces rows come makes no difference. Up to ``coreset_size`` rows are all used; of more, a
        `CoresetStream` keeps a coreset. No rows are set aside, since they would be gone: `certify` on rows that
        were not learned from. The first call after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), optional
        sample_weight : array of shape (n,), optional
        classes : array, optional
            For classifiers, all labels that will come: needed on the first call, unless a `fit` knew them.
        """
        self._require_target(y)
        return self._push(X, y, sample_weight, classes)

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        if not is_classifier(self.estimator):
            return finite_target(block)
        self._labels = stream_classes(classes, self.__dict__.get("_labels"), first=not self._is_streaming)
        return EncodeLabels(classes=self._labels)(block)

    def _learn(self, coreset: Coreset, data: DataPass | None, seed: int) -> None:
        """Fit on the coreset, without weights if none were given and none were needed; the estimator has a seed."""
        if data is None:
            self.validation_indices_, self._aside = None, None
        given = (data.rows if data is not None and isinstance(data.rows, Block) else coreset).sample_weight
        self.coreset_ = coreset
        self.estimator_ = self._fit_to(coreset, coreset.is_whole and given is None)

    def _set_aside(self, block: Block, seed: int) -> Block:
        """The block with the weight of the validation rows moved to the others."""
        n = len(block)
        size = round(self.validation_fraction * n)
        self.validation_indices_ = np.sort(rng_for(seed, "validation").choice(n, size, replace=False))
        if not size:
            return block
        weight = block.weights().copy()
        total = weight.sum()
        weight[self.validation_indices_] = 0.0
        if not weight.any():
            raise ValueError("All rows that carry weight were set aside. Set validation_fraction=0.")
        return Block(X=block.X, y=block.y, sample_weight=weight * (total / weight.sum()))

    def _encoded(self, block: Block) -> Block:
        assert block.y is not None
        self._labels, numbers = encoded_classes(block.y)
        return Block(X=block.X, y=numbers, sample_weight=block.sample_weight, mean=block.mean)

    def _objective(self) -> Any:
        return objective_for(self.objective, len(self._labels) if is_classifier(self.estimator) else 0)

    def _targets(self, block: Block) -> Array | None:
        return block.y if block.y is None or not is_classifier(self.estimator) else self._labels[block.y]

    def _fit_to(self, coreset: Coreset, plain: bool) -> Any:
        """The estimator fitted on the coreset, ``plain`` without weights."""
        model = clone(self.estimator)
        weight = fit_arguments(model, None if plain else coreset.weights())
        fitted = model.fit(coreset.X, self._targets(coreset), **weight)
        if is_classifier(self.estimator) and len(fitted.classes_) < len(self._labels):
            lost = [label for label in self._labels.tolist() if label not in fitted.classes_]
            warn_caller(
                f"{len(lost)} classes have no row of positive weight in the coreset, {lost[0]!r} among them: "
                "the estimator does not know them. Ask for a larger coreset.",
            )
        return fitted

    # -- polish ------------------------------------------------------------------------------

    def _recalibrate(self, block: Block) -> bool:
        """One round: calibrate to the residuals of the fitted model on all rows, fit again, keep if better."""
        _require(self.estimator_, "predict", needed_by="polish")
        labels = self._labels if is_classifier(self.estimator) else None
        tried = recalibrated(self.coreset_, block, self._objective(), partial(residuals, self.estimator_, labels))
        fitted = self._fit_to(tried, False)
        if not self._score(fitted, block) > self._score(self.estimator_, block):
            return False
        self.coreset_, self.estimator_ = tried, fitted
        return True

    def _score(self, estimator: Any, block: Block) -> float:
        return float(estimator.score(block.X, self._targets(block), **self._weights_of(block)))

    # -- certify -----------------------------------------------------------------------------

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """The estimator's score on rows it has not seen, with a 95 % interval.

        With the training data the rows that were set aside are used; it is recognised by its number
        of rows and by the rows of the coreset standing where they stood. Any other data is taken for
        what it is: new rows, all of them evidence. Of a source, at most 200,000 such rows, drawn
        uniformly by their ids, are gathered in one look. The interval comes from the scores of twenty
        parts of the rows and Student's t.
        """
        check_is_fitted(self)
        _require(self.estimator_, "score", needed_by="certify")
        if isinstance(X, Source):
            # those set aside have the smallest hashes, so they are among the first to be gathered
            key = key_of(0, "certify") if self._aside is None else self._aside[0]
            data = DataPass(self._given(X, y, sample_weight, reset=False), self.engine)
            block, known = sample_source(data, self.coreset_, key)
        else:
            block = self._checked(X, y, sample_weight, reset=False)
            n_known = n_coreset_rows_in(block, self.coreset_)
            known = len(block) == self.coreset_.n_seen and n_known == len(self.coreset_)
        if known:
            block = self._set_aside_of(block)
        return score_certificate(self._plain_score, block, self._score(self.estimator_, self.coreset_))

    def n_set_aside(self) -> int:
        """Rows of the training data that were not learned from; of a source, about so many."""
        if self._aside is not None:
            return int(self._aside[1] * self.coreset_.n_seen)
        return 0 if self.validation_indices_ is None else len(self.validation_indices_)

    def _set_aside_of(self, block: Block) -> Block:
        """The rows of the training data that were set aside, as far as they are in the block."""
        if self._aside is not None:
            key, share = self._aside
            return block.take(np.flatnonzero(uniform_of(block.row_ids(), key) < share))
        aside = np.empty(0, np.int64) if self.validation_indices_ is None else self.validation_indices_
        return block.take(np.flatnonzero(np.isin(block.row_ids(), aside)))

    def _plain_score(self, block: Block) -> float:
        return float(self.estimator_.score(block.X, block.y, **self._weights_of(block)))

    def _weights_of(self, block: Block) -> dict[str, Array]:
        if block.sample_weight is None or not takes_weights(self.estimator_, "score"):
            return {}
        return {"sample_weight": block.sample_weight}

    # -- the estimator's own methods -----------------------------------------------------------

    def _ask(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._checked(X, reset=False).X)

    @_has("predict")
    def predict(self, X: Any) -> Any:
        return self._ask("predict", X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        return self._ask("predict_proba", X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        return self._ask("predict_log_proba", X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        return self._ask("decision_function", X)

    @_has("score_samples")
    def score_samples(self, X: Any) -> Any:
        return self._ask("score_samples", X)

    @_has("transform")
    def transform(self, X: Any) -> Any:
        return self._ask("transform", X)

    @_has("inverse_transform")
    def inverse_transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.estimator_.inverse_transform(X)

    @_has("score")
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        check_is_fitted(self)
        return self._plain_score(self._checked(X, y, sample_weight, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        _, learner = last_step(self.estimator)  # whose need of y a pipeline does not tell
        tags.target_tags.required = hasattr(learner, "fit") and get_tags(learner).target_tags.required
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags
