"""The base class of linear models on a coreset: fit, polish, certificates and warm starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate, certify_bound, certify_gap, polish_by_descent
from tithe.certify.gap import CurvatureRows, evaluate_all, gap_at
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.parallel import single_blas_thread
from tithe.core.params import POLISH, Boolean, Constraint, Option, RealNumber, check_params
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Instance, Optional
from tithe.fit.base import CoresetLearner, can_read_again, limits_threads
from tithe.fit.bases import BaseEstimator
from tithe.fit.fitted import FittedAttribute
from tithe.linear.objective import LinearModelObjective

_MIN_AUTO_ROWS, _AUTO_ROWS_PER_COLUMN = 10_000, 20
_AUTO_SHARE, _MAX_AUTO_SHARE_ROWS = 100, 50_000  # one row in 100 is kept, up to this number
_TOL = RealNumber(above=0.0)
TOLERANCE = Option("tol", _TOL, "Relative excess loss at which --polish auto stops.")


class CoresetLinearModel(CoresetLearner, BaseEstimator, ABC):
    """A model whose parameters are (k, d + 1), one row for each score, intercepts last.

    Subclasses have, besides those of `CoresetLearner`, the parameters ``tol``, ``fit_intercept`` and ``warm_start``.
    They define:

    - ``_objective()``: the loss that a coreset has to preserve;
    - ``_prepare_block(block, reset)`` and ``_prepare_source(data, reset)``: rows with the target as the objective
      reads it. With ``reset`` the classes are stored, else they are known from a fit;
    - ``_params()`` and ``_store(params)``: the parameters from and into ``coef_`` and ``intercept_``.

    They may define ``_fit_all``, ``_takes_all``, ``_check_rows`` and ``_construction``.
    """

    tol: float
    fit_intercept: bool
    warm_start: bool

    certificate_ = FittedAttribute[Certificate | None]()
    objective_curve_ = FittedAttribute[list[float]]()
    n_iter_ = FittedAttribute[int]()
    n_passes_ = FittedAttribute[int]()
    coreset_ = FittedAttribute[Coreset](Optional(Instance(Coreset)), optional=True, holds_rows=True)

    _linear_constraints: ClassVar[dict[str, Constraint]] = {
        "polish": POLISH,
        "tol": _TOL,
        "fit_intercept": Boolean(),
        "warm_start": Boolean(),
    }

    @abstractmethod
    def _objective(self) -> LinearModelObjective:
        """The loss that a coreset has to preserve."""

    @abstractmethod
    def _prepare_block(self, block: Block, *, reset: bool) -> Block:
        """The rows with the target as the objective reads it."""

    @abstractmethod
    def _prepare_source(self, data: DataPass, *, reset: bool) -> DataPass:
        """`_prepare_block` for each leaf of a source."""

    @abstractmethod
    def _params(self) -> Array:
        """Coefficients and intercepts (k, d + 1) in double precision."""

    @abstractmethod
    def _store(self, params: Array) -> None:
        """Set ``coef_`` and ``intercept_``."""

    def _takes_all(self, rows: Block) -> bool:
        """Whether all rows in memory are used, without a coreset."""
        return False

    def _known_classes(self) -> tuple[Any, ...]:
        """The classes of a classifier. A warm start needs the same classes."""
        return ()

    def _check_rows(self, block: Block) -> None:
        """Refuse rows that have no solution."""

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
        """Reduce, fit on the coreset, calibrate, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            A source (`open_dataset`) is read leaf by leaf, once to reduce it and once for each pass of polish; a
            classifier's ``class_weight="balanced"`` takes one more pass. A source that cannot be read again is fitted
            without polish and certificate, and all classes must be among its first rows; if not, use `partial_fit`
            with ``classes``.
        y : array of shape (n,), of numbers for a regression, of any labels for a classifier
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        self._check_options()
        before = (self._known_classes(), self._params()) if self.warm_start and hasattr(self, "coef_") else None
        rows = self._validate_rows(X, y if isinstance(X, Source) else self._required(y), sample_weight, reset=True)
        self._start_fit()
        data = self._prepare(self._passes(rows, progress), reset=True)
        again = can_read_again(data.rows, self.polish)
        objective = self._objective()
        seed = as_seed(self.random_state)
        if isinstance(data.rows, Block) and self._takes_all(data.rows):
            self._learn(None, data, seed, before=before)
            self.n_passes_ = data.n_passes
            return self
        with single_blas_thread():
            construction = self._construction(data.rows, seed)
            # polish calibrates as well, and its totals are better: they are taken at the first fit
            options = {"construction": construction, "calibrate": self.calibrate and not again}
            coreset = self._reduce(data, objective, seed, checkpoint=checkpoint, **options)
            self._learn(coreset, data if again else None, seed, before=before)
        self.n_passes_ = data.n_passes
        return self

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        """Passes over the rows with the target as the objective reads it."""
        if isinstance(data.rows, Block):
            return data.over(self._prepare_block(data.rows, reset=reset))
        return self._prepare_source(data, reset=reset)

    def _start(self, before: tuple[tuple[Any, ...], Array] | None) -> Array | None:
        """The parameters of the fit ``before``, if it had the same columns and classes."""
        if before is None:
            return None
        classes, params = before
        same = classes == self._known_classes() and params.shape[1] == self.n_features_in_ + 1
        return params if same else None

    def _learn(
        self,
        coreset: Coreset | None,
        data: DataPass | None,
        seed: int,
        *,
        before: tuple[tuple[Any, ...], Array] | None = None,
    ) -> None:
        """Fit on the coreset, polish and certify on all rows.

        ``coreset`` is None if all rows in memory are used, ``data`` if the rows cannot be read again.
        """
        objective, start = self._objective(), self._start(before)
        self.certificate_ = None
        if data is None:
            self.n_passes_ = 1
        if coreset is not None:
            if data is None or not isinstance(data.rows, Block):
                self._check_rows(coreset)
            self.coreset_ = coreset
        if coreset is None or coreset.is_whole:
            params = self._fit_all(data, start, seed)
        elif data is None:
            params, _ = objective.minimise(coreset, init=coreset.pilot)
            self.objective_curve_, self.n_iter_ = [objective.evaluate(coreset, params).value], 1
        else:
            params = self._fit_coreset(data, seed, start)
        self._store(params)

    def _fit_all(self, data: DataPass | None, start: Array | None, seed: int) -> Array:
        """The parameters of a fit on all rows: a block in ``data``, or else ``coreset_``, which then holds all rows.

        Sets ``certificate_``, ``objective_curve_`` and ``n_iter_``.
        """
        objective = self._objective()
        in_memory = data if data is not None and isinstance(data.rows, Block) else DataPass(self.coreset_)
        params, n_passes = objective.minimise(self.coreset_, init=start)
        in_memory.n_passes += n_passes
        point = evaluate_all(objective, in_memory, params)
        curvature = CurvatureRows.all_of(objective, self.coreset_, params)
        gap = gap_at(objective, point, curvature, params, objective.centre(in_memory.or_few(self.coreset_)))
        if not (gap.below(self.tol) or self._has_no_minimum(in_memory, params)):
            warn_caller(
                f"The loss may exceed the smallest possible by {gap.largest_text}, more than "
                f"tol={self.tol:g}: the fit stopped after {n_passes} passes. Raise max_iter={objective.max_iter}.",
                ConvergenceWarning,
            )
        self.objective_curve_, self.n_iter_ = [point.value], 1
        if data is not None:
            self.certificate_ = gap.certificate(self.coreset_.n_seen, passes=1)
        return params

    def _has_no_minimum(self, data: DataPass, params: Array) -> bool:
        """Whether these parameters show that the loss has no minimum."""
        return False

    def _fit_coreset(self, data: DataPass, seed: int, start: Array | None) -> Array:
        objective, coreset = self._objective(), self.coreset_
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
        self.coreset_ = polished.coreset
        self.objective_curve_ = polished.curve
        self.n_iter_ = len(polished.curve)
        self.certificate_ = polished.gap.certificate(polished.n_rows, passes=polished.passes)
        return polished.params

    def _construction(self, rows: Any, seed: int) -> Any:
        """The construction that draws the rows, or "auto"."""
        if isinstance(self.construction, str) and self.construction == "auto":
            return "auto"
        return make("construction", self.construction)

    # -- checks --------------------------------------------------------------------------------

    def _check_options(self) -> None:
        self._unlabelled_objective()  # refuses wrong parameters of the loss
        self._check_names()
        check_params(self, self._linear_constraints)

    def _required(self, y: Any) -> Any:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        return y

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return linear_auto_size(n_rows, n_features)

    # -- methods of a fitted model -------------------------------------------------------------

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """How far the loss on these rows is from the smallest possible loss on them, in one pass.

        X may be a source. The estimate takes its curvature from these rows and says how uncertain it is. Without a
        coreset there is only the bound.
        """
        check_is_fitted(self)
        rows = self._validate_rows(X, y if isinstance(X, Source) else self._required(y), sample_weight, reset=False)
        data = self._prepare(DataPass(rows, self.engine), reset=False)
        params = self._params()
        if self._fitted_values and "coreset_" not in (*self._fitted_values, *self._left_out):
            return certify_bound(self._objective(), data, params)
        return certify_gap(self._objective(), data, params, self.coreset_)

    def summary(self) -> dict[str, Any]:
        """The loss, penalty included."""
        return {"loss": self.objective_curve_[-1]}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def linear_auto_size(n_rows: int | None, n_features: int) -> int:
    """Rows that ``coreset_size="auto"`` keeps. The share of the rows is left out if ``n_rows`` is unknown."""
    share = min((n_rows or 0) // _AUTO_SHARE, _MAX_AUTO_SHARE_ROWS)
    return max(_MIN_AUTO_ROWS, _AUTO_ROWS_PER_COLUMN * (n_features + 1), share)
