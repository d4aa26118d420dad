"""The base class of linear classifiers on a coreset."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.core.labels import LabelledObjective
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Sizes
from tithe.fit.bases import ClassifierMixin
from tithe.fit.fitted import FLOATS, FittedAttribute, check_classes
from tithe.fit.labels import (
    EncodeLabels,
    checked_classes,
    class_factors,
    class_masses,
    encoded_classes,
    is_balanced,
    known_classes,
    stream_classes,
    weights_by_class,
)
from tithe.fit.results import BarChart, column_names, named_coefficients
from tithe.linear.learner import CoresetLinearModel
from tithe.linear.objective import LabelledLinearObjective
from tithe.linear.regressed import Bounded, Regressed, SensitivityModel
from tithe.rows.leaves import MappedSource

_MANY_NUMBERS = 100  # different numbers in y, which are more often a quantity than classes


class CoresetLinearClassifier(ClassifierMixin, CoresetLinearModel):
    """A linear model with one score for two classes, else one score for each class.

    Subclasses have, besides those of `CoresetLinearModel`, the parameter ``class_weight``.
    ``_objective(classes)`` uses the numbers of the fitted classes if ``classes`` is None.
    """

    class_weight: Any

    classes_: Array
    coef_ = FittedAttribute[Array](Floats("outputs", "d", dtypes=FLOATS))
    intercept_ = FittedAttribute[Array](Floats("outputs", dtypes=FLOATS))
    sensitivity_model_ = FittedAttribute[SensitivityModel](from_stream=False)

    @abstractmethod
    def _objective(self, classes: tuple[int, ...] | None = None) -> LabelledLinearObjective:
        """The loss that a coreset has to preserve."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add rows, which need not be kept. The coefficients are computed when an attribute is read.

        ``hasattr`` reads an attribute too: the first call after new rows takes as long as a fit.

        The result does not depend on how rows are split into batches. Up to ``coreset_size`` rows (``"auto"``: 10,000,
        or 20 for each column) are all used, as in `fit`; beyond that a `CoresetStream` keeps a coreset. There is no
        polish and no certificate, because the rows are not kept: use `certify` on rows that you have. The first call
        after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        classes : array, optional
            All labels that will ever occur. Needed on the first call, unless `fit` was called before. A solution
            needs rows of each of them.
        """
        return self._push(X, self._required(y), sample_weight, classes)

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        classes = stream_classes(classes, self.__dict__.get("classes_"), first=not self._is_streaming)
        self._note_classes(classes)
        factors = None if self.class_weight is None else class_factors(self.class_weight, classes, None)
        return EncodeLabels(classes=classes, factors=factors)(block)

    # -- methods of the base class -------------------------------------------------------------

    def _unlabelled_objective(self) -> Any:
        return replace(self._objective((0, 1)), classes=None)

    def _known_sizes(self) -> Sizes:
        return check_classes(self)

    def _known_classes(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _params(self) -> Array:
        return np.column_stack([self.coef_, self.intercept_]).astype(np.float64)

    def _store(self, params: Array) -> None:
        self.coef_, self.intercept_ = params[:, :-1].copy(), params[:, -1].copy()

    def _prepare_block(self, block: Block, *, reset: bool) -> Block:
        """Classes as numbers, and class weights in the weights of the rows."""
        assert block.y is not None
        if reset:
            classes, codes = encoded_classes(block.y)
            self._note_classes(classes)
        else:
            codes = LabelledObjective(classes=self._known_classes()).codes(block)
        weight = weights_by_class(self.class_weight, self.classes_, codes, block.sample_weight)
        if reset and weight is not None and not np.bincount(codes, weights=weight, minlength=len(self.classes_)).all():
            raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
        return Block(X=block.X, y=codes, sample_weight=weight, mean=block.mean if reset else None)

    def _prepare_source(self, data: DataPass, *, reset: bool) -> DataPass:
        source = data.rows
        assert isinstance(source, Source)
        if reset:
            self._note_classes(checked_classes(known_classes(data)))
        coded = data.over(MappedSource(source, EncodeLabels(classes=self.classes_)))
        if self.class_weight is None:
            return coded
        mass = None
        if is_balanced(self.class_weight) and source.replayable:
            mass = class_masses(coded, len(self.classes_))
        factors = class_factors(self.class_weight, self.classes_, mass)
        return coded.over(MappedSource(source, EncodeLabels(classes=self.classes_, factors=factors)))

    def _construction(self, rows: Any, seed: int) -> Any:
        """The construction. A model of the sensitivities is fitted here, so that it can be stored."""
        construction, objective = super()._construction(rows, seed), self._objective()
        if not (isinstance(construction, Regressed) and isinstance(objective, Bounded)):
            return construction  # the plan of the reduction refuses what does not fit the objective
        in_memory = isinstance(rows, Block)
        n_rows = len(rows) if in_memory else rows.n_rows
        if n_rows is not None and n_rows <= self._size(n_rows, rows.n_features):
            return construction
        block = rows if in_memory else rows.sample(None, rng=rng_for(seed, "look"))
        construction = construction.prepare(block, objective, rng=rng_for(seed, "prepare"))
        assert isinstance(construction, Regressed) and construction.sensitivity_model_ is not None
        named = replace(objective, classes=tuple(self.classes_.tolist()))  # new rows have labels, not class numbers
        self.sensitivity_model_ = replace(construction.sensitivity_model_, objective=named)
        return construction

    def _note_classes(self, classes: Array) -> None:
        if len(classes) < 2:
            raise ValueError(f"y holds only one class, {classes.tolist()[0]!r}: give rows of at least two.")
        if len(classes) > _MANY_NUMBERS and classes.dtype.kind in "iuf":
            warn_caller(
                f"y holds {len(classes)} different numbers, each of which becomes a class; that takes long. If they "
                "are a quantity, take a regressor: CoresetRidge, or tithe fit ridge."
            )
        self.classes_ = classes

    def _check_rows(self, block: Block) -> None:
        assert block.y is not None
        missing = np.flatnonzero(np.bincount(block.y, weights=block.weights(), minlength=len(self.classes_)) <= 0)
        if len(missing):
            raise ValueError(
                f"Class {self.classes_.tolist()[missing[0]]!r} has no row of positive weight: give it one, or leave it "
                "out of the classes."
            )

    def _size(self, n_rows: int | None, n_features: int) -> int:
        size = super()._size(n_rows, n_features)
        if size < len(self.classes_):
            raise ValueError(f"coreset_size={self.coreset_size} keeps {size} rows of {len(self.classes_)} classes.")
        return size

    # -- methods of a fitted model -------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, the classes and the coefficients."""
        coefficients = named_coefficients(self, self.coef_, self.classes_.tolist())
        return {
            **super().summary(),
            "classes": self.classes_.tolist(),
            "intercept": self.intercept_.tolist(),
            "coefficients": coefficients,
        }

    def charts(self) -> list[BarChart]:
        """The coefficients; for more than two classes, the largest of each column."""
        strongest = np.take_along_axis(self.coef_, np.abs(self.coef_).argmax(axis=0)[None], axis=0)[0]
        axis = f"coefficient, towards {self.classes_[-1]!s}" if len(self.coef_) == 1 else "largest over the classes"
        return [BarChart.of_largest("coefficients", column_names(self), strongest, axis)]

    def decision_function(self, X: Any) -> Array:
        """Margins: (n,) for two classes, else (n, K); a column ``margin`` of a Spark DataFrame."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False).X
        margins: Array = np.asarray(rows @ self.coef_.T.astype(rows.dtype)) + self.intercept_
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> Array:
        """The class of each row, that of the largest margin; a column ``prediction`` of a Spark DataFrame."""
        margins = self.decision_function(X)
        classes: Array = self.classes_[(margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)]
        return classes
