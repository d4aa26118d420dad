"""What linear classifiers on a coreset share: classes and their weights, sources and streams, warm starts."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, certify_bound, certify_gap, polish_by_descent, polish_rounds
from tithe.constructions.regressed import Regressed
from tithe.constructions.regressed_model import SensitivityModel
from tithe.core.data import Array, Block, Coreset
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Option, RealNumber
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.learners.base import (
    CoresetLearner,
    auto_size,
    checked_classes,
    encoded_classes,
    is_source,
    read_again,
)
from tithe.learners.bases import ClassifierMixin
from tithe.learners.charts import BarChart, column_names
from tithe.learners.class_weight import class_factors, is_balanced, weights_by_class
from tithe.learners.labels import EncodeLabels, class_masses, known_classes
from tithe.learners.lazy_fit import stream_classes
from tithe.objectives.labels import LabelledObjective
from tithe.reduce.build import resolve_size
from tithe.sources.mapped import MappedSource

TOLERANCE = Option("tol", RealNumber(above=0.0), "Relative excess loss at which --polish auto stops.")


class CoresetLinearClassifier(CoresetLearner, ClassifierMixin, ABC):
    """A classifier whose parameters are (k, d + 1), intercepts last: k = 1 for two classes, else one row a class.

    Subclasses have, besides those of `CoresetLearner`, the parameters ``tol``, ``fit_intercept``, ``class_weight`` and
    ``warm_start``. What makes a new one:

    - ``_objective(classes)`` is what a coreset has to preserve, and what is polished: class numbers for None;
    - ``_fit_all(objective, rows, start, seed)`` gives the parameters where all rows are used, those in ``rows``, or
      in ``coreset_`` where ``rows`` is None or a source; it sets ``certificate_`` and what else there is to say;
    - ``_takes_all(rows)``: whether rows at hand are used as they are, and no coreset is made or kept.
    """

    tol: float
    fit_intercept: bool
    class_weight: Any
    warm_start: bool

    classes_: Array
    coef_: Array
    intercept_: Array
    certificate_: Certificate | None
    loss_curve_: list[float]
    n_iter_: int
    n_passes_: int
    coreset_: Coreset
    sensitivity_model_: SensitivityModel

    @abstractmethod
    def _objective(self, classes: tuple[int, ...] | None = None) -> Any:
        """What a coreset has to preserve."""

    @abstractmethod
    def _fit_all(self, objective: Any, rows: Any, start: Array | None, seed: int) -> Array:
        """The parameters (k, d + 1) where all rows are used."""

    def _takes_all(self, rows: Block) -> bool:
        return False

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Reduce, fit on the coreset, calibrate, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_source`) is read leaf by leaf, once to reduce it and once for every look of
            polish; ``class_weight="balanced"`` takes one look more. One that cannot be read again is fitted
            without polish and certificate, and all classes must be among its first rows; if they are
            not, `partial_fit` can be told of them.
        y : array of shape (n,), of any labels
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        """
        self._check_options()
        before = self._solution() if self.warm_start and hasattr(self, "coef_") else None
        rows = self._given(X, y if is_source(X) else self._required(y), sample_weight, reset=True)
        self._drop_stream()
        rows, looks = (self._encoded(rows), 0) if isinstance(rows, Block) else self._labelled(rows)
        again = read_again(rows, self.polish)
        objective = self._objective()
        seed = as_seed(self.random_state)
        if isinstance(rows, Block) and self._takes_all(rows):
            self._learn(None, rows, seed, before=before)
            return self
        with single_blas_thread():
            construction = self._prepared(rows, objective, seed)
            # what is to be polished is calibrated there, at the first fit: the best place for the totals
            drawn = self.calibrate and again is None
            coreset = self._reduce(rows, objective, seed, construction=construction, calibrate=drawn)
            self._learn(coreset, again, seed, before=before)
        if again is not None and not coreset.is_whole:
            drawn_by = make(
                "construction", coreset.provenance["construction"] if construction == "auto" else construction
            )
            self.n_passes_ += 1 + (drawn_by.n_passes if isinstance(rows, Block) else looks)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Take in more rows, which need not be kept; coefficients are found when they are asked for.

        In which pieces rows come makes no difference. Up to ``coreset_size`` rows (``"auto"``: 10,000, or 20 for
        each column) are all used, as `fit` would use them; of more, a `CoresetStream` keeps a coreset. There
        is no polish and no certificate, the rows being gone: `certify` on rows at hand. The first call
        after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        classes : array, optional
            All labels that will come: needed on the first call, unless a `fit` knew them. A
            solution needs rows of each of them.
        """
        return self._push(X, self._required(y), sample_weight, classes)

    def _piece(self, block: Block, classes: Any) -> Block:
        found = stream_classes(classes, self.__dict__.get("classes_"), first=not self._streams)
        self._note_classes(checked_classes(found))
        factors = None if self.class_weight is None else class_factors(self.class_weight, found, None)
        return EncodeLabels(classes=found, factors=factors)(block)

    def _solution(self) -> tuple[Array, Array]:
        """The classes, and coefficients and intercepts (k, d + 1)."""
        return self.classes_, np.column_stack([self.coef_, self.intercept_]).astype(np.float64)

    def _start(self, before: tuple[Array, Array] | None) -> Array | None:
        """Where the fit ``before`` ended, if that means anything here."""
        if before is None or not np.array_equal(before[0], self.classes_):
            return None
        return before[1] if before[1].shape[1] == self.n_features_in_ + 1 else None

    def _learn(
        self, coreset: Coreset | None, rows: Any, seed: int, *, before: tuple[Array, Array] | None = None
    ) -> None:
        """Fit on the coreset, polish and certify on the rows; None: they are gone, or there is no coreset."""
        objective, start = self._objective(), self._start(before)
        self.certificate_ = None
        self.__dict__.pop("coreset_", None)
        if coreset is not None:
            if not isinstance(rows, Block):
                self._check_classes(coreset)
            self.coreset_ = coreset
        if coreset is None or coreset.is_whole:
            params = self._fit_all(objective, rows, start, seed)
        elif rows is None:
            params, _ = objective.minimise(coreset, init=coreset.pilot)
            self.loss_curve_, self.n_iter_, self.n_passes_ = [objective.evaluate(coreset, params).value], 1, 1
        else:
            params = self._fit_coreset(objective, rows, seed, start)
        self.coef_, self.intercept_ = params[:, :-1].copy(), params[:, -1].copy()

    def _fit_coreset(self, objective: Any, rows: Any, seed: int, start: Array | None) -> Array:
        coreset = self.coreset_
        rng = rng_for(seed, "solve")
        found = polish_by_descent(
            objective,
            rows,
            coreset,
            objective.solve(coreset, rng=rng, init=coreset.pilot if start is None else start),
            polish=self.polish,
            tol=self.tol,
            calibrate=self.calibrate,
            rng=rng,
            engine=self.engine,
        )
        self.coreset_ = found.coreset
        self.loss_curve_ = found.curve
        self.n_iter_ = len(found.curve)
        self.n_passes_ = found.passes
        self.certificate_ = found.gap.certificate(found.n_rows, passes=found.passes)
        return found.params

    def _prepared(self, rows: Any, objective: Any, seed: int) -> Any:
        """The construction; one that learns a model of the sensitivities learns it here, so that it can be kept."""
        if isinstance(self.construction, str) and self.construction == "auto":
            return "auto"
        construction = make("construction", self.construction)
        at_hand = isinstance(rows, Block)
        n_rows = len(rows) if at_hand else rows.n_rows
        few = n_rows is not None and n_rows <= self._size(n_rows, rows.n_features)
        if few or not isinstance(construction, Regressed):
            return construction
        block = rows if at_hand else rows.sample(None, rng=rng_for(seed, "look"))
        construction = construction.prepare(block, objective, rng=rng_for(seed, "prepare"))
        assert construction.sensitivity_model_ is not None
        named = replace(objective, classes=tuple(self.classes_.tolist()))  # new rows come with labels, not with numbers
        self.sensitivity_model_ = replace(construction.sensitivity_model_, objective=named)
        return construction

    # -- checks --------------------------------------------------------------------------------

    def _check_options(self) -> None:
        self._objective(classes=(0, 1))
        self._check_names()
        if not (isinstance(self.polish, str) and self.polish == "auto"):
            polish_rounds(self.polish)
        if not (isinstance(self.tol, numbers.Real) and 0.0 < self.tol < np.inf):
            raise ValueError(f"tol must be a positive number, got {self.tol!r}.")
        for name in ("fit_intercept", "warm_start"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def _required(self, y: Any) -> Any:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        return y

    def _encoded(self, block: Block) -> Block:
        """Classes as numbers, and class weights in the weights of the rows."""
        assert block.y is not None
        classes, codes = encoded_classes(block.y)
        self._note_classes(classes)
        weight = self._weighed(codes, block.sample_weight)
        if weight is not None and not np.bincount(codes, weights=weight, minlength=len(classes)).all():
            raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
        return Block(X=block.X, y=codes, sample_weight=weight, mean=block.mean)

    def _note_classes(self, classes: Array) -> None:
        if len(classes) < 2:
            raise ValueError(f"y holds only one class, {classes.tolist()[0]!r}: there is nothing to tell apart.")
        self.classes_ = classes

    def _labelled(self, source: Any, classes: Array | None = None) -> tuple[MappedSource, int]:
        """The same for every leaf of a source, and how many times it was read for that."""
        looks = 0
        if classes is None:
            self._note_classes(checked_classes(known_classes(source, self.engine)))
            looks += source.replayable and not callable(getattr(source, "classes", None))
        coded = MappedSource(source, EncodeLabels(classes=self.classes_))
        if self.class_weight is None:
            return coded, looks
        mass = None
        if is_balanced(self.class_weight) and source.replayable:
            mass = class_masses(coded, len(self.classes_), self.engine)
            looks += 1
        factors = class_factors(self.class_weight, self.classes_, mass)
        return MappedSource(source, EncodeLabels(classes=self.classes_, factors=factors)), looks

    def _check_classes(self, coreset: Coreset) -> None:
        assert coreset.y is not None
        missing = np.flatnonzero(np.bincount(coreset.y, weights=coreset.weights(), minlength=len(self.classes_)) <= 0)
        if len(missing):
            raise ValueError(
                f"Class {self.classes_.tolist()[missing[0]]!r} has no row of positive weight: give it one, or leave it "
                "out of the classes."
            )

    def _weighed(self, codes: Array, weight: Array | None) -> Array | None:
        """The weights of the rows times those of their classes."""
        return weights_by_class(self.class_weight, self.classes_, codes, weight)

    def _unlabelled_objective(self) -> Any:
        return replace(self._objective((0, 1)), classes=None)

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, and the classes."""
        return {"loss": self.loss_curve_[-1], "classes": self.classes_.tolist()}

    def charts(self) -> list[BarChart]:
        """Coefficients; of more than two classes, the largest of each column."""
        strongest = np.take_along_axis(self.coef_, np.abs(self.coef_).argmax(axis=0)[None], axis=0)[0]
        axis = f"coefficient, towards {self.classes_[-1]!s}" if len(self.coef_) == 1 else "largest over the classes"
        return [BarChart.of_largest("coefficients", column_names(self), strongest, axis)]

    def _size(self, n_rows: int | None, n_features: int) -> int:
        return self._sized(self.coreset_size, n_rows, n_features)

    def _sized(self, wanted: Any, n_rows: int | None, n_features: int) -> int:
        if isinstance(wanted, str) and wanted == "auto":
            return auto_size(n_rows, n_features)
        size = resolve_size(wanted, n_rows)
        if size < len(self.classes_):
            raise ValueError(f"coreset_size={wanted} keeps {size} rows of {len(self.classes_)} classes.")
        return size

    # -- what a fitted model does --------------------------------------------------------------

    def decision_function(self, X: Any) -> Array:
        """Margins: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False).X
        margins: Array = np.asarray(rows @ self.coef_.T.astype(rows.dtype)) + self.intercept_
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> Array:
        """The class of each row: that of the largest margin."""
        margins = self.decision_function(X)
        found: Array = self.classes_[(margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)]
        return found

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """How far the loss on these rows, or those of a source, is from the smallest possible on them, in one pass.

        The weights of ``class_weight`` are applied. The estimate takes its curvature from the coreset;
        without one there is only the bound.
        """
        check_is_fitted(self)
        if is_source(X):
            rows: Any = self._labelled(self._given(X, y, sample_weight, reset=False), self.classes_)[0]
        else:
            block = self._checked(X, self._required(y), sample_weight, reset=False)
            codes = LabelledObjective(classes=tuple(self.classes_.tolist())).codes(block)
            rows = Block(X=block.X, y=codes, sample_weight=self._weighed(codes, block.sample_weight))
        params, coreset = self._solution()[1], getattr(self, "coreset_", None)
        if coreset is None:
            return certify_bound(self._objective(), rows, params, engine=self.engine)
        return certify_gap(self._objective(), rows, params, coreset, engine=self.engine)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
