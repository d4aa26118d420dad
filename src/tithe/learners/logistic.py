"""Logistic regression on a coreset, polished and certified on all rows."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tithe.build import resolve_size
from tithe.certify import Certificate, certify_gap, gap_at, polish_by_descent, polish_rounds, warn_of_excess
from tithe.core.data import Array, Block
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.kernels.threads import single_blas_thread
from tithe.learners.base import CoresetLearner, all_rows, auto_size, encoded_classes
from tithe.objectives.logistic import LogisticObjective

_SHARPER = 0.01  # the fit on few rows goes on to this share of the tolerance on all


class CoresetLogisticRegression(CoresetLearner, ClassifierMixin, BaseEstimator):
    """Logistic regression (L2) on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i (-ln P(y_i | x_i)) + |coefficients|^2 / (2 C), the intercept free: the same as
    `sklearn.linear_model.LogisticRegression`, in a handful of looks at the data instead of hundreds.
    Two classes have one row of coefficients; more are fitted together (softmax), one row each.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty.
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: 10,000, or 20 for each column,
        or one in 100 of the rows up to 50,000, whichever is most. With no more rows than this, all
        are used.
    construction, calibrate, engine
        See `build_coreset`. ``"auto"`` is `Influence`.
    polish : int or "auto"
        Rounds of descent over all rows after the fit on the calibrated coreset, each accepted only if
        the loss falls. ``"auto"``: until the certificate says that the loss is within ``tol`` of the
        smallest possible; calibration is then skipped too where the first fit is that good.
    tol : float
        The relative excess loss at which ``polish="auto"`` stops. Each round roughly divides what
        is left by ten, and reads the data once.
    fit_intercept : bool
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    max_iter : int
        Rounds of the fit on the coreset, at the most.
    warm_start : bool
        Start where the last fit ended, if it had the same columns and classes.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,) for two classes, else (K, d) and (K,)
    classes_ : array (K,)
    certificate_ : Certificate
        How far the loss on all training rows is from the smallest possible: a bound, or an estimate
        with its confidence that also carries the (looser) bound.
    loss_curve_ : list of float
        Loss on all rows, penalty included, after each step. It never rises.
    n_passes_ : int
        Times the training rows were read, the check of the input included.
    n_iter_ : int
        Steps on all rows.
    coreset_ : Coreset
        Its y holds class numbers.
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    sensitivity_model_ : SensitivityModel
        With ``construction="regressed"``: scores new rows at once.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.logistic(size=100_000) > 0, "yes", "no")
    >>> model = CoresetLogisticRegression(coreset_size=2000, random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist()
    [[1.0, -2.0, 0.5]]
    >>> model.certificate_.relative < 1e-4
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        tol: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 200,
        warm_start: bool = False,
        engine: Any = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.engine = engine
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CoresetLogisticRegression:
        """Reduce, fit on the coreset, calibrate, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), of any labels
        sample_weight : array of shape (n,), optional
        """
        self._check_options()
        known = getattr(self, "classes_", None)
        block = self._encoded(self._checked(X, self._required(y), sample_weight, reset=True))
        objective = self._objective()
        seed = as_seed(self.random_state)
        start = self._start(known, block)
        with single_blas_thread():
            if len(block) <= self._size(block):
                params = self._fit_all(block, objective, start)
            else:
                params = self._fit_coreset(block, objective, seed, start)
        self.coef_, self.intercept_ = params[:, :-1].copy(), params[:, -1].copy()
        return self

    def _start(self, known: Array | None, block: Block) -> Array | None:
        """Where the last fit ended, if that is wanted and means anything here."""
        if not self.warm_start or known is None or not np.array_equal(known, self.classes_):
            return None
        return np.column_stack([self.coef_, self.intercept_]) if self.coef_.shape[1] == block.n_features else None

    def _fit_all(self, block: Block, objective: LogisticObjective, start: Array | None) -> Array:
        self.coreset_ = all_rows(block, objective.name)
        params, looks = objective.minimise(self.coreset_, init=start)
        point = objective.evaluate(block, params)
        metric = objective.metric(self.coreset_, params, centre=objective.centre(block))
        gap = gap_at(objective, point, metric, self.coreset_, params)
        if not gap.below(self.tol):
            warn_of_excess(gap, self.tol, f"the fit stopped after {looks} looks. Raise max_iter={self.max_iter}.")
        self.loss_curve_, self.n_iter_, self.n_passes_ = [point.value], 1, looks + 3
        self.certificate_ = gap.certificate(len(block), passes=1)
        return params

    def _fit_coreset(self, block: Block, objective: LogisticObjective, seed: int, start: Array | None) -> Array:
        construction = self._prepared(block, objective, seed)
        coreset = self._reduce(block, objective, seed, construction=construction, calibrate=False)
        rng = rng_for(seed, "solve")
        found = polish_by_descent(
            objective,
            block,
            coreset,
            objective.solve(coreset, rng=rng, init=coreset.pilot if start is None else start),
            polish=self.polish,
            tol=self.tol,
            calibrate=self.calibrate,
            rng=rng,
        )
        self.coreset_ = found.coreset
        self.loss_curve_ = found.curve
        self.n_iter_ = len(found.curve)
        self.n_passes_ = found.passes + 1 + construction.looks  # and one to check the rows
        self.certificate_ = found.gap.certificate(len(block), passes=found.passes)
        return found.params

    def _prepared(self, block: Block, objective: LogisticObjective, seed: int) -> Any:
        """The construction; one that learns a model of the sensitivities learns it here, so that it can be kept."""
        auto = isinstance(self.construction, str) and self.construction == "auto"
        construction = make("construction", objective.best_construction if auto else self.construction)
        if not hasattr(construction, "sensitivity_model_"):
            return construction
        construction = construction.prepare(block, objective, rng=rng_for(seed, "prepare"))
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
        self.classes_, codes = encoded_classes(block.y)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds only one class, {self.classes_.tolist()[0]!r}: there is nothing to tell apart.")
        weight = self._weighed(codes, block.sample_weight)
        if weight is not None and not np.bincount(codes, weights=weight, minlength=len(self.classes_)).all():
            raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
        return Block(X=block.X, y=codes, sample_weight=weight, mean=block.mean)

    def _weighed(self, codes: Array, weight: Array | None) -> Array | None:
        """The weights of the rows times those of their classes."""
        if self.class_weight is None:
            return weight
        factor = self._class_factors(np.bincount(codes, weights=weight, minlength=len(self.classes_)))
        return factor[codes] if weight is None else weight * factor[codes]

    def _class_factors(self, mass: Array) -> Array:
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            with np.errstate(divide="ignore"):
                factors: Array = mass.sum() / (len(mass) * mass)
            return np.where(mass > 0, factors, 0.0)
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {self.class_weight!r}.")
        known = self.classes_.tolist()
        strange = [label for label in self.class_weight if label not in known]
        if strange:
            raise ValueError(f"class_weight names {strange[0]!r}, which is not a class of y: {known[:5]}.")
        wanted = [self.class_weight.get(label, 1.0) for label in known]
        if not all(isinstance(w, numbers.Real) for w in wanted):
            raise ValueError(f"Class weights must be numbers, got {self.class_weight!r}.")
        factors = np.array(wanted, np.float64)
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise ValueError(f"Class weights must be finite and not negative, got {self.class_weight!r}.")
        return factors

    def _size(self, block: Block) -> int:
        if isinstance(self.coreset_size, str) and self.coreset_size == "auto":
            return auto_size(len(block), block.n_features)
        size = resolve_size(self.coreset_size, len(block))
        if size < len(self.classes_):
            raise ValueError(f"coreset_size={self.coreset_size} keeps {size} rows of {len(self.classes_)} classes.")
        return size

    def _objective(self, classes: tuple[int, ...] | None = None) -> LogisticObjective:
        return LogisticObjective(
            C=self.C,
            fit_intercept=self.fit_intercept,
            classes=tuple(range(len(self.classes_))) if classes is None else classes,
            max_iter=self.max_iter,
            tol=_SHARPER * self.tol,
        )

    # -- what a fitted model does --------------------------------------------------------------

    def decision_function(self, X: Any) -> Array:
        """Margins: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        rows = self._checked(X, reset=False).X
        margins: Array = np.asarray(rows @ self.coef_.T.astype(rows.dtype)) + self.intercept_
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row."""
        margins = self.decision_function(X)
        found: Array = self.classes_[(margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """(n, K), in the order of ``classes_``."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([expit(-margins), expit(margins)])
        chances: Array = softmax(margins, axis=1)
        return chances

    def predict_log_proba(self, X: Any) -> Array:
        """(n, K), without rounding small chances to nothing."""
        margins = self.decision_function(X)
        both = np.column_stack([np.zeros_like(margins), margins]) if margins.ndim == 1 else margins
        logs: Array = log_softmax(both, axis=1)
        return logs

    def certify(self, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
        """How far the loss on these rows is from the smallest possible on them, in one pass.

        The weights of ``class_weight`` are applied. The estimate takes its curvature from the coreset.
        """
        check_is_fitted(self)
        block = self._checked(X, self._required(y), sample_weight, reset=False)
        classes = self.classes_
        objective = self._objective()
        codes = LogisticObjective(classes=tuple(classes.tolist())).codes(block)
        weight = self._weighed(codes, block.sample_weight)
        params = np.column_stack([self.coef_, self.intercept_])
        return certify_gap(objective, Block(X=block.X, y=codes, sample_weight=weight), params, self.coreset_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
