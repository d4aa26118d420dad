"""The bases of linear models on a coreset: fit, polish, certificates and warm starts; classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import Certificate, certify_bound, certify_gap, polish_by_descent
from tithe.certify.gap import CurvatureRows, Gap, evaluate_all, gap_at
from tithe.certify.newton import NewtonDescent
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset, Rng
from tithe.core.errors import warn_caller
from tithe.core.gram import row_reach
from tithe.core.labels import LabelledObjective
from tithe.core.linear_algebra import MAX_COORDINATES, curvature_cost
from tithe.core.parallel import single_blas_thread
from tithe.core.params import POLISH, Boolean, Constraint, Option, RealNumber
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint
from tithe.core.registry import make
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Instance, Optional, Rows
from tithe.fit.base import FLOATS, CoresetLearner, FittedAttribute, can_read_again
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.fit.collections import lazy_on_collections
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
from tithe.fit.results import BarChart, ClassLabels, collinear_columns, column_names, named_coefficients, strongest
from tithe.linear.inference import Inference, infer
from tithe.linear.objective import LabelledLinearObjective, LinearModelObjective
from tithe.linear.regressed import Bounded, Regressed, SensitivityModel
from tithe.reduce.draws import Uniform, draw_rows
from tithe.reduce.kernels import sample_rows
from tithe.rows.leaves import MappedSource

_MIN_AUTO_ROWS, _AUTO_ROWS_PER_COLUMN = 10_000, 20
_AUTO_SHARE, _MAX_AUTO_SHARE_ROWS = 100, 50_000  # one row in 100 is kept, up to this number
_MANY_NUMBERS = 100  # different numbers in y, which are more often a quantity than classes
_MAX_NEWTON_WORK = 4_000_000_000  # products of a curvature up to which Newton's method on all rows pays
_MAX_WORK_OF_CLASSES = 200_000_000_000  # the same for many classes, of which a row is between few
_START_ROWS, _SECOND_ROWS, _ROUGH = 5000, 20_000, 1e-3  # rows of the fits where it starts, and their tolerance
_MANY_TIMES, _MANY_TIMES_DEAR = 10, 2  # as many rows as the second of these fits there must be, so that it pays
_GRADIENT_SHARE, _REACH_SHARE = 0.5, 0.3  # of a draw of these rows; the others are uniform
_TOL = RealNumber(above=0.0)
CORESET_TOL_RATIO = 0.01  # tolerance of the fit on the coreset over that on all rows
TOLERANCE = Option("tol", _TOL, "Relative excess loss at which --polish auto stops.")


@dataclass(frozen=True, kw_only=True)
class LinearFit:
    """A fit of a linear model."""

    params: Array  # (k, d + 1): one row for each score, intercepts last
    curve: list[float]  # the loss after each step
    n_iter: int
    certificate: Certificate | None = None
    coreset: Coreset | None = None  # None if all rows in memory were used without one
    more: Mapping[str, Any] = field(default_factory=dict)  # further fitted attributes by name


LastFit = tuple[tuple[Any, ...], Array]  # what a warm start needs: the classes, () for a regression, and the parameters


class CoresetLinearModel(CoresetLearner, BaseEstimator, ABC):
    """A model whose parameters are (k, d + 1), one row for each score, intercepts last.

    Subclasses have, besides those of `CoresetLearner`, the parameters ``tol``, ``fit_intercept`` and ``warm_start``.
    They define:

    - ``_objective()``: the loss that a coreset has to preserve;
    - ``_prepare(data, reset)``: rows with the target as the objective reads it. With ``reset`` the classes are stored,
      else they are known from a fit;
    - ``_attributes(params, dtype)`` and ``_params()``: the parameters as ``coef_`` and ``intercept_``, and back.

    They may define ``_fit_all``, ``_completed``, ``_takes_all``, ``_check_rows`` and ``_construction``.
    """

    tol: float
    fit_intercept: bool
    warm_start: bool
    _takes_newton: ClassVar[bool] = False  # whether Newton's method on all rows may take the place of a coreset

    certificate_ = FittedAttribute[Certificate | None]()
    objective_curve_ = FittedAttribute[list[float]]()
    n_iter_ = FittedAttribute[int]()
    n_passes_ = FittedAttribute[int]()
    coreset_ = FittedAttribute[Coreset](Optional(Instance(Coreset)), optional=True, holds_rows=True)
    inference_ = FittedAttribute[Inference](from_stream=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        "polish": POLISH,
        "tol": _TOL,
        "fit_intercept": Boolean(),
        "warm_start": Boolean(),
    }

    @abstractmethod
    def _objective(self) -> LinearModelObjective:
        """The loss that a coreset has to preserve."""

    @abstractmethod
    def _params(self) -> Array:
        """Coefficients and intercepts (k, d + 1) in double precision."""

    @abstractmethod
    def _attributes(self, params: Array, dtype: Any) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` of a model fitted to rows of this type."""

    def _takes_all(self, rows: Block) -> bool:
        """Whether all rows in memory are used, without a coreset."""
        return False

    def _known_classes(self) -> tuple[Any, ...]:
        """The classes of a classifier. A warm start needs the same classes."""
        return ()

    def _check_rows(self, block: Block) -> None:
        """Refuse rows that have no solution."""

    # -- fit -----------------------------------------------------------------------------------

    def _context(self) -> LastFit | None:
        """The last solution, for a warm start. Rows of `partial_fit` that were not solved have none."""
        return (self._known_classes(), self._params()) if self.warm_start and self._fitted_values else None

    def _reduce_and_learn(
        self, data: DataPass, seed: int, context: LastFit | None, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        again = can_read_again(data.rows, self.polish)
        if isinstance(data.rows, Block) and self._takes_all(data.rows):
            return self._learn(None, data, seed, context)
        with single_blas_thread():
            if isinstance(data.rows, Block) and self._newton_pays(data.rows):
                fit = self._fit_newton(self._uniform_rows(data.rows, seed), data, self._start(context), seed)
                return self._values(fit, data)
            construction, more = self._construction(data.rows, seed)
            # polish calibrates as well, and its totals are better: they are taken at the first fit
            options = {"construction": construction, "calibrate": self.calibrate and not again}
            coreset = self._reduce(data, self._objective(), seed, checkpoint=checkpoint, **options)
            return {**more, **self._learn(coreset, data if again else None, seed, context)}

    def _start(self, before: LastFit | None) -> Array | None:
        """The parameters of the fit ``before``, if it had the same columns and classes."""
        if before is None:
            return None
        classes, params = before
        return params if classes == self._known_classes() and params.shape[1] == self.n_encoded_ + 1 else None

    def _learn(
        self, coreset: Coreset | None, data: DataPass | None, seed: int, context: LastFit | None
    ) -> dict[str, Any]:
        """Fit on the coreset, polish and certify on all rows. ``coreset`` is None if all rows in memory are used."""
        objective, start = self._objective(), self._start(context)
        if coreset is not None and (data is None or not isinstance(data.rows, Block)):
            self._check_rows(coreset)
        if coreset is None or coreset.is_whole:
            fit = self._fit_all(coreset, data, start, seed)
        elif data is None:
            params, _ = objective.minimise(coreset, init=coreset.pilot)
            fit = LinearFit(params=params, curve=[objective.evaluate(coreset, params).value], n_iter=1, coreset=coreset)
        else:
            fit = self._fit_coreset(coreset, data, seed, start)
        return self._values(fit, data)

    def _values(self, fit: LinearFit, data: DataPass | None) -> dict[str, Any]:
        """The fitted attributes by name."""
        fit = self._completed(fit, data)
        rows = data.rows if data is not None and fit.coreset is None else fit.coreset
        assert isinstance(rows, Block)
        return {
            **self._attributes(fit.params, rows.X.dtype),
            **({} if fit.coreset is None else {"coreset_": fit.coreset}),
            "certificate_": fit.certificate,
            "objective_curve_": fit.curve,
            "n_iter_": fit.n_iter,
            "n_passes_": 1 if data is None else data.n_passes,
            **fit.more,
        }

    def _completed(self, fit: LinearFit, data: DataPass | None) -> LinearFit:
        """The fit with what a subclass adds to it."""
        return fit

    def _fit_all(self, coreset: Coreset | None, data: DataPass | None, start: Array | None, seed: int) -> LinearFit:
        """A fit on all rows: those of a block in ``data``, or else of the ``coreset``, which then holds all rows."""
        assert coreset is not None
        objective = self._objective()
        in_memory = data if data is not None and isinstance(data.rows, Block) else DataPass(coreset)
        params, n_passes = objective.minimise(coreset, init=start)
        in_memory.n_passes += n_passes
        point = evaluate_all(objective, in_memory, params)
        curvature = CurvatureRows.all_of(objective, coreset, params)
        gap = gap_at(objective, point, curvature, params, objective.centre(in_memory.or_few(coreset)))
        if not (gap.below(self.tol) or self._has_no_minimum(in_memory, params)):
            self._warn_above_tol(gap, objective.max_iter, n_passes)
        certificate = None if data is None else gap.certificate(coreset.n_seen, passes=1)
        return LinearFit(params=params, curve=[point.value], n_iter=1, certificate=certificate, coreset=coreset)

    def _warn_above_tol(self, gap: Gap, max_iter: int, n_passes: int) -> None:
        warn_caller(
            f"The loss may exceed the smallest possible by {gap.largest_text}, more than tol={self.tol:g}: the fit "
            f"stopped after {n_passes} passes. Raise max_iter={max_iter}.",
            ConvergenceWarning,
        )

    def _has_no_minimum(self, data: DataPass, params: Array) -> bool:
        """Whether these parameters show that the loss has no minimum."""
        return False

    def _fit_coreset(self, coreset: Coreset, data: DataPass, seed: int, start: Array | None) -> LinearFit:
        objective = self._objective()
        rng = rng_for(seed, "solve")
        polished = polish_by_descent(
            objective,
            data,
            coreset,
            objective.solve(coreset, rng=rng, init=coreset.pilot if start is None else start),
            polish=self.polish,
            tol=self.tol,
            calibrate=self.calibrate,
            rng=rng,
        )
        return LinearFit(
            params=polished.params,
            curve=polished.curve,
            n_iter=len(polished.curve),
            certificate=polished.gap.certificate(polished.n_rows, passes=polished.passes),
            coreset=polished.coreset,
        )

    def _newton_pays(self, rows: Block) -> bool:
        """Whether Newton's method on all rows is quicker than a coreset, and nothing was asked for that needs one."""
        asked = (self.coreset_size, self.construction, self.polish)
        if not (self._takes_newton and all(isinstance(v, str) for v in asked)):
            return False
        if asked != ("auto",) * 3 or len(rows) <= self._size(len(rows), rows.n_features):
            return False
        k = self._objective().n_scores
        if k == 1:
            return 0 < curvature_cost(rows, 1) <= _MAX_NEWTON_WORK
        return k * (rows.n_features + 1) <= MAX_COORDINATES and curvature_cost(rows, k) <= _MAX_WORK_OF_CLASSES

    def _uniform_rows(self, block: Block, seed: int) -> Coreset:
        """Uniform rows to keep as the coreset of a fit on all rows."""
        objective, size = self._objective(), self._size(len(block), block.n_features)
        rows = sample_rows(block, size, rng_for(seed, "reduce"))
        factor = 1.0 if block.sample_weight is not None else len(block) / size
        return Coreset(
            X=rows.X,
            y=rows.y,
            sample_weight=factor * rows.weights(),
            indices=rows.row_ids(),
            n_seen=len(block),
            weight_seen=block.total_weight,
            objective=objective,
            provenance={"objective": objective.name, "construction": "uniform", "calibrated": 0, "fitted": "all rows"},
        )

    def _fit_newton(self, coreset: Coreset, data: DataPass, start: Array | None, seed: int) -> LinearFit:
        """Newton's method on all rows, from a solution on some of them."""
        objective, block = self._objective(), data.rows
        assert isinstance(block, Block)
        flat = objective.start_params(block)
        usual = objective.evaluate(coreset, flat).value  # about that of all rows
        if start is None and not objective.constant_curvature:
            start = _solved_on_few(objective, block, flat, rng_for(seed, "solve"))
        descent = NewtonDescent(objective, data, flat if start is None else start, block)
        if not descent.point.value <= usual:
            descent = NewtonDescent(objective, data, flat, block)
        passes = data.n_passes
        params, gap = descent.run(self.tol)
        if not (gap.below(self.tol) or self._has_no_minimum(data, params)):
            warn_caller(
                f"The loss may exceed the smallest possible by {gap.largest_text}, more than tol={self.tol:g}, after "
                f"{len(descent.curve)} steps. Raise tol.",
                ConvergenceWarning,
            )
        return LinearFit(
            params=params,
            curve=descent.curve,
            n_iter=len(descent.curve),
            certificate=gap.certificate(data.n_rows, passes=data.n_passes - passes),
            coreset=coreset,
        )

    def _construction(self, rows: Block | Source, seed: int) -> tuple[Any, dict[str, Any]]:
        """The construction that draws the rows, or "auto"; and fitted attributes that it needs."""
        if isinstance(self.construction, str) and self.construction == "auto":
            return "auto", {}
        return make("construction", self.construction), {}

    # -- checks --------------------------------------------------------------------------------

    def _check_options(self) -> None:
        self._unlabelled_objective()  # refuses wrong parameters of the loss
        super()._check_options()

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return linear_auto_size(n_rows, n_features)

    # -- methods of a fitted model -------------------------------------------------------------

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """How far the loss on these rows is from the smallest possible loss on them, in one pass.

        X may be a source. The estimate takes its curvature from these rows and says how uncertain it is. Without a
        coreset there is only the bound.
        """
        rows = self.solve()._validate_rows(X, y, sample_weight, reset=False)
        data = self._prepare(DataPass(rows, self.engine), reset=False)
        params = self._params()
        if "coreset_" not in (*(self._fitted_values or {}), *self._left_out):
            return certify_bound(self._objective(), data, params)
        return certify_gap(self._objective(), data, params, self.coreset_)

    def infer(self, X: Any, y: Any = None, sample_weight: Any = None, *, counts: bool = True) -> Inference:
        """Standard errors and confidence intervals of the coefficients, as ``inference_``: see `Inference`.

        It takes one pass over these rows, which are those of the fit, and more where the coefficients are standard
        errors away from those with the smallest loss, as they may be with a large ``tol``. X may be a source.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        counts : bool
            A row of weight two is two rows. False: it is one row, and its weight is an exposure, that of its class,
            or one of a survey. Robust standard errors are right then, and those by the model for exposures only.

        Examples
        --------
        >>> import numpy as np
        >>> from tithe import CoresetLogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(1000, 2))
        >>> y = X @ [1.0, 0.0] + np.random.default_rng(1).logistic(size=1000) > 0
        >>> found = CoresetLogisticRegression(C=np.inf, random_state=0).fit(X, y).infer(X, y)
        >>> found.z().round(1), found.interval().round(2)[0, 1]
        (array([[12. , -1.4, -1.1]]), array([-0.24,  0.04]))
        """
        rows = self.solve()._validate_rows(X, y, sample_weight, reset=False)
        data = self._prepare(DataPass(rows, self.engine), reset=False)
        few = rows if isinstance(rows, Block) else self.coreset_
        found = infer(self._objective(), data, self._params(), few, counts=counts)
        self._fitted_values = {**(self._fitted_values or {}), "inference_": found}
        return found

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included, the columns that others nearly determine, and what standard errors mean."""
        values = self.solve()._fitted_values or {}
        collinear, found = collinear_columns(self, values.get("coreset_")), values.get("inference_")
        return {
            "loss": self.objective_curve_[-1],
            **({"collinear_columns": collinear} if collinear else {}),
            **({} if found is None else {"standard_errors": found.about()}),
        }

    def _named_coefficients(self, coef: Array, outputs: Sequence[Any]) -> list[dict[str, Any]]:
        """The coefficients (k, d) of each column, with their standard errors where these are known."""
        found = (self._fitted_values or {}).get("inference_")
        return named_coefficients(self, coef, outputs, None if found is None else found.columns())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _solved_on_few(objective: LinearModelObjective, block: Block, flat: Array, rng: Rng) -> Array:
    """A solution on few rows, from the parameters ``flat``.

    The first rows are uniform ones, for which the penalty counts for more. Where a step on all rows costs much, others
    follow that are drawn by the sizes of their gradients and by how far they are out: uniform rows have hardly any
    between two rare classes, or with a value in a rare column, and Newton steps on all rows would take long for those.
    """
    rows = Uniform().reduce(block, objective, _START_ROWS, pilot=None, survey=None, rng=rng)
    rows = replace(rows, sample_weight=rows.weights() * (len(rows) / rows.total_weight))
    params = _rough_solution(objective, rows, flat)
    is_dear = sparse.issparse(block.X) or objective.n_scores > 1
    if len(block) < (_MANY_TIMES_DEAR if is_dear else _MANY_TIMES) * _SECOND_ROWS:
        return params
    weight, gradient = block.weights(), objective.gradient_sizes(block, params, objective.cost(block, params))
    share = np.full(len(block), 1.0 - _GRADIENT_SHARE - _REACH_SHARE)
    for part, size in ((_GRADIENT_SHARE, gradient), (_REACH_SHARE, row_reach(block.X, objective.centre(block)))):
        mean = float(size @ weight) / block.total_weight
        share += part * (size / mean if mean > 0.0 else 1.0)
    drawn = draw_rows(block, weight * share, _SECOND_ROWS, rng, codes=objective.codes(block))
    return _rough_solution(objective, drawn, params)


def _rough_solution(objective: LinearModelObjective, rows: Block, start: Array) -> Array:
    if not objective.can_be_fitted(rows):
        return start
    few = NewtonDescent(objective, DataPass(rows), start, rows)
    few.descend(_ROUGH)
    return few.params


class CoresetLinearClassifier(ClassifierMixin, CoresetLinearModel):
    """A linear model with one score for two classes, else one score for each class.

    Subclasses have, besides those of `CoresetLinearModel`, the parameter ``class_weight``.
    ``_objective(classes)`` uses the numbers of the fitted classes if ``classes`` is None.
    """

    class_weight: Any

    classes_: Annotated[Array, ClassLabels()]
    coef_ = FittedAttribute[Any](Rows("outputs", "d", dtypes=FLOATS))
    intercept_ = FittedAttribute[Array](Floats("outputs", dtypes=FLOATS))
    sensitivity_model_ = FittedAttribute[SensitivityModel](from_stream=False)

    @abstractmethod
    def _objective(self, classes: tuple[int, ...] | None = None) -> LabelledLinearObjective:
        """The loss that a coreset has to preserve."""

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Self:
        """Add rows, which need not be kept. `solve` computes the coefficients, as `predict` does if it was not called.

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
        return self._push(X, y, sample_weight, classes)

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        known = self.classes_ if self.__sklearn_is_fitted__() else None
        classes = stream_classes(classes, known, first=self.stream_ is None)
        self._note_classes(classes)
        factors = None if self.class_weight is None else class_factors(self.class_weight, classes, None)
        return EncodeLabels(classes=classes, factors=factors)(block)

    # -- methods of the base class -------------------------------------------------------------

    def _unlabelled_objective(self) -> Any:
        return replace(self._objective((0, 1)), classes=None)

    def _known_classes(self) -> tuple[Any, ...]:
        return tuple(self.classes_.tolist())

    def _params(self) -> Array:
        return np.column_stack([self._dense_coef(), self.intercept_]).astype(np.float64)

    def _dense_coef(self) -> Array:
        coef: Array = self.coef_.toarray() if sparse.issparse(self.coef_) else self.coef_
        return coef

    def _attributes(self, params: Array, dtype: Any) -> dict[str, Any]:
        return {"coef_": params[:, :-1].copy(), "intercept_": params[:, -1].copy()}

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        """Classes as numbers, and class weights in the weights of the rows."""
        if isinstance(data.rows, Block):
            return data.over(self._prepare_block(data.rows, reset=reset))
        source = data.rows
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

    def _prepare_block(self, block: Block, *, reset: bool) -> Block:
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

    def _construction(self, rows: Block | Source, seed: int) -> tuple[Any, dict[str, Any]]:
        """The construction. A model of the sensitivities is fitted here, so that it can be stored."""
        (construction, more), objective = super()._construction(rows, seed), self._objective()
        if not (isinstance(construction, Regressed) and isinstance(objective, Bounded)):
            return construction, more  # the plan of the reduction refuses what does not fit the objective
        n_rows = len(rows) if isinstance(rows, Block) else rows.n_rows
        if n_rows is not None and n_rows <= self._size(n_rows, rows.n_features):
            return construction, more
        block = rows if isinstance(rows, Block) else rows.sample(None, rng=rng_for(seed, "look"))
        construction = construction.prepare(block, objective, rng=rng_for(seed, "prepare"))
        assert isinstance(construction, Regressed) and construction.sensitivity_model_ is not None
        named = replace(objective, classes=tuple(self.classes_.tolist()))  # new rows have labels, not class numbers
        return construction, {"sensitivity_model_": replace(construction.sensitivity_model_, objective=named)}

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
        loss = super().summary()
        return {
            **loss,
            "classes": self.classes_.tolist(),
            "intercept": self.intercept_.tolist(),
            "coefficients": self._named_coefficients(self._dense_coef(), self.classes_.tolist()),
        }

    def charts(self) -> list[BarChart]:
        """The coefficients; for more than two classes, the largest of each column."""
        coef = self.solve()._dense_coef()
        axis = f"coefficient, towards {self.classes_[-1]!s}" if len(coef) == 1 else "largest over the classes"
        charts = [BarChart.of_largest("coefficients", column_names(self), strongest(coef), axis)]
        scorer = (self._fitted_values or {}).get("sensitivity_model_")
        named, r2 = ([], 0.0) if scorer is None else scorer.named_coefficients(column_names(self))
        if named:
            names, values = zip(*named, strict=True)
            axis = f"coefficient of the sensitivity; R² = {r2:.2f}"
            charts.append(BarChart.of_largest("coefficients of the sensitivity", names, np.array(values), axis))
        return charts

    def sparsify(self) -> Self:
        """Keep ``coef_`` as a CSR matrix, which is small where most columns never occurred: theirs are zeros."""
        return self._with_coef(sparse.csr_matrix(self.solve()._dense_coef()))

    def densify(self) -> Self:
        """Keep ``coef_`` as an array again, as `fit` makes it."""
        return self._with_coef(self.solve()._dense_coef())

    def _with_coef(self, coef: Any) -> Self:
        self._fitted_values = {**(self._fitted_values or {}), "coef_": coef}
        return self

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """Margins: (n,) for two classes, else (n, K); a column ``margin`` of a Spark DataFrame."""
        rows = self.solve()._checked(X, reset=False).X
        products = rows @ self.coef_.T.astype(rows.dtype)
        margins: Array = (products.toarray() if sparse.issparse(products) else np.asarray(products)) + self.intercept_
        return margins[:, 0] if len(self.classes_) == 2 else margins

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The class of each row, that of the largest margin; a column ``prediction`` of a Spark DataFrame."""
        margins = self.decision_function(X)
        classes: Array = self.classes_[(margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)]
        return classes


def linear_auto_size(n_rows: int | None, n_features: int) -> int:
    """Rows that ``coreset_size="auto"`` keeps. The share of the rows is left out if ``n_rows`` is unknown."""
    share = min((n_rows or 0) // _AUTO_SHARE, _MAX_AUTO_SHARE_ROWS)
    return max(_MIN_AUTO_ROWS, _AUTO_ROWS_PER_COLUMN * (n_features + 1), share)
