"""Linear optimal margin distribution machine: on all rows, or on a coreset, polished and certified on all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import bound_certificate
from tithe.core.checkpoint import Checkpoint
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Integers, Number, Sizes
from tithe.learners.lazy_fit import FittedAttribute
from tithe.learners.linear_classifier import CoresetLinearClassifier
from tithe.learners.linear_model import TOLERANCE
from tithe.learners.odm.base import ROUNDING, TO_ROUNDING, MarginDistribution, MarginMachine, row_costs
from tithe.learners.odm.strategy import fit_classes
from tithe.learners.stored import FLOATS
from tithe.objectives.margin import MarginObjective
from tithe.solvers.odm.coreset_svrg import coreset_svrg
from tithe.solvers.odm.linear_problem import LinearProblem, Solution
from tithe.solvers.odm.linear_solvers import check_solver, solve

_SHARPER = 0.01  # the fit on few rows goes on to this share of the tolerance on all


class LinearODMClassifier(MarginMachine, CoresetLinearClassifier):
    """Linear optimal margin distribution machine: margins y f(x) near 1, neither far below nor far above.

    Minimises, for weights s_i of the rows, W = sum_i s_i, and f(x) = x . w + b,

        |w|^2 / 2 + (b / intercept_scaling)^2 / 2
            + lam / (2 W (1 - theta)^2) sum_i s_i ([1 - theta - u_i]_+^2 + mu [u_i - 1 - theta]_+^2),

    u_i = y_i f(x_i) for two classes, y_i = 1 for the second, and f_y(x_i) - max over l != y of f_l(x_i) for more.
    Where an SVM looks at the smallest margins, all margins count here, and their variance falls. With ``mu=0`` it is
    `sklearn.svm.LinearSVC` at C = lam / (2 W (1 - theta)^2), up to the factor 1 - theta; with ``mu=1`` it is
    `sklearn.svm.LinearSVR` of the labels -1 and 1, and with ``theta=0`` besides, `sklearn.linear_model.Ridge`.

    The defaults of lam, mu and theta were chosen for test accuracy beside that of `LinearSVC()`. For margins that vary
    less, take a larger mu and a smaller theta, such as .5 and .2, the defaults of `ODMClassifier`.

    Parameters
    ----------
    lam : float
        > 0: how much the margins count beside the penalty. It is twice that of LIBODM. As in `LinearSVC`, what it
        means depends on the scale of the columns; unlike there, it does not depend on the number of rows.
    mu : float
        In [0, 1]: how much a margin above the band counts beside one below. The more it counts, the less margins
        vary, and the more rows with far values turn the line, which costs accuracy where columns are skewed.
    theta : float
        In [0, 1): half the width of the band 1 +- theta in which margins cost nothing.
    solver : {"auto", "newton", "dcd", "svrg", "saga", "lbfgs", "coreset_svrg"}
        For all rows and two classes. ``"auto"``: Newton's method where its curvature can be factored (300 columns,
        1000 of sparse rows), else dual coordinate descent, unless lam is so large that it would take long.
        ``"coreset_svrg"`` finds the solution on a cover of the rows, and ``gap_`` says what that cost.
    tol : float
        All solvers stop when the loss, penalty included, provably exceeds the smallest one by no more than this
        share of itself.
    fit_intercept : bool
    intercept_scaling : float
        > 0: the intercept is the coefficient of a constant feature of this value, and penalised like the others, as
        in `LinearSVC`. Infinity: it carries no penalty (``"newton"`` only).
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    nonconvex : {"cccp", "fixed_score"}
        With more than two classes: how margins above the band, whose loss is not convex, are dealt with: by a rival
        that stays for a round, which never makes the loss worse, or by its score that stays, as in the paper. These
        solve the dual by coordinates; where those are stiff (a large lam), "cccp" gives way to descent on the loss.
    radius : float or None
        Of the cover that ``solver="coreset_svrg"`` takes its anchors from. None: one centre for every 16 rows.
    coreset_size : int, float, "auto" or None
        None: all rows are used; of those of a source, and of those that come to `partial_fit`, as many as ``"auto"``
        says. Else the rows to learn from, or a fraction of them; ``"auto"``: 10,000, or 20 for each column, or one
        in 100 of the rows up to 50,000, whichever is most. With no more rows than this, all are used.
    construction, calibrate, engine
        Of a coreset; see `build_coreset`. ``"auto"`` is `Influence`.
    polish : int or "auto"
        Rounds of descent over all rows after the fit on a coreset; ``"auto"``: until the certificate says that the
        loss is within ``tol`` of the smallest possible.
    max_iter : int
        Rounds of the solver, at the most: steps of Newton, epochs, or steps of L-BFGS.
    probability : bool
        Whether `predict_proba` is wanted: it takes six more fits.
    warm_start : bool
        Start where the last fit ended, if it had the same columns and classes.
    n_jobs : int or None
        Threads. None uses those that the process has; -1 as well.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,) for two classes, else (K, d) and (K,)
    classes_ : array (K,)
    gap_ : float
        What the loss on the fitted rows, penalty included, provably exceeds the smallest one by, at the most: not
        relative. After a fit on a coreset, that on all rows; infinity where these are gone. With more than two
        classes, that of the last convex problem, where there was one; ``certificate_`` is about the true one.
    certificate_ : Certificate or None
        The same for a person, on all training rows; after a fit on a coreset an estimate that carries the bound.
        None where the rows could be read only once: see ``certify``.
    objective_curve_ : list of float
        Loss on all rows, penalty included, after each round; coordinate descent takes it now and then.
    n_iter_ : int
        Rounds of the solver, or steps on all rows after a fit on a coreset.
    support_ : array (n_support,)
        Positions of the training rows with a dual variable: those whose margin lies outside the band. Two classes,
        all rows used.
    dual_coef_ : array (1, n_support)
        y_i times the dual variable of each: ``coef_`` is ``dual_coef_ @ X[support_]``, up to what ``gap_`` allows.
    norm_ : float
        |w|, the penalised intercept included; ``margins(X, y) / norm_`` does not depend on the scale of f.
    margin_distribution_ : MarginDistribution
        Of the training rows: mean, variance and quantiles; of the coreset where the rows are not at hand.
    coreset_, sample_indices_, stream_, n_passes_
        With a coreset; see `CoresetLogisticRegression`.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import LinearODMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.normal(size=20_000) > 0, "yes", "no")
    >>> model = LinearODMClassifier(lam=100).fit(X, y)
    >>> (model.coef_ / model.coef_[0, 0]).round(1).tolist()
    [[1.0, -2.0, 0.5]]
    >>> model.gap_ <= 1e-4 * model.objective_curve_[-1]
    True
    """

    options = (*MarginObjective.options, TOLERANCE)

    gap_ = FittedAttribute[float](Number(least=0.0, finite=False))
    support_ = FittedAttribute[Array](Integers("support", least=0), optional=True)
    dual_coef_ = FittedAttribute[Array](Floats("machines", "support", dtypes=FLOATS, contiguous=False), optional=True)
    norm_ = FittedAttribute[float](Number(least=0.0))
    margin_distribution_ = FittedAttribute[MarginDistribution]()
    calibrated_ = FittedAttribute[Any](from_stream=False)

    def __init__(
        self,
        lam: float = 1000.0,
        mu: float = 0.05,
        theta: float = 0.8,
        *,
        solver: str = "auto",
        tol: float = 1e-4,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        nonconvex: str = "cccp",
        radius: float | None = None,
        coreset_size: int | float | str | None = None,
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        max_iter: int = 1000,
        probability: bool = False,
        warm_start: bool = False,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.solver = solver
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.nonconvex = nonconvex
        self.radius = radius
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.max_iter = max_iter
        self.probability = probability
        self.warm_start = warm_start
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
    ) -> Self:
        """Fit on all rows, or reduce, fit on the coreset, calibrate, polish and certify on all rows.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), or a source
            See `CoresetLogisticRegression.fit` for sources. ``probability=True`` needs rows at hand.
        y : array of shape (n,), of any labels
        sample_weight : array of shape (n,), optional
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        if self.probability and isinstance(X, Source):
            raise ValueError("probability=True holds rows out, which those of a source cannot be: give arrays.")
        super().fit(X, y, sample_weight, checkpoint=checkpoint, progress=progress)
        if self.probability:
            block = self._prepare_block(self._checked(X, y, sample_weight, reset=False), reset=True)
            labelled = replace(block, y=self.classes_[block.y], mean=None)
            self._calibrate_probabilities(labelled.take(np.flatnonzero(block.weights())))
        return self

    def _check_solution(self, sizes: Sizes) -> None:
        self._check_calibrated(self._fitted_values or {})

    # -- what the base asks --------------------------------------------------------------------

    def _objective(self, classes: tuple[int, ...] | None = None) -> MarginObjective:
        return MarginObjective(
            lam=self.lam,
            mu=self.mu,
            theta=self.theta,
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
            classes=tuple(range(len(self.classes_))) if classes is None else classes,
            max_iter=self.max_iter,
            tol=_SHARPER * self.tol,
        )

    def _check_options(self) -> None:
        super()._check_options()
        check_solver(self.solver, free=self._free, more=("coreset_svrg",))
        self._check_margin_parameters()

    @property
    def _free(self) -> bool:
        return bool(self.fit_intercept and np.isinf(self.intercept_scaling))

    def _takes_all(self, rows: Block) -> bool:
        return self.coreset_size is None

    def _learn(self, coreset: Any, data: DataPass | None, seed: int, **other: Any) -> None:
        self.gap_ = np.nan
        super()._learn(coreset, data, seed, **other)
        if np.isnan(self.gap_):  # no solver has set it
            certificate = self.certificate_
            self.gap_ = np.inf if certificate is None or certificate.bound is None else float(certificate.bound)
        seen = data.rows if data is not None and isinstance(data.rows, Block) else self.coreset_
        objective = self._objective()
        margins = objective.row_margins(seen, self._params())
        self.margin_distribution_ = MarginDistribution.of(margins, seen.sample_weight)
        # the intercepts are coefficients of a constant feature, unless they are free
        beside = 0.0 if self._free or objective.constant == 0.0 else 1.0 / objective.constant
        self.norm_ = float(np.hypot(np.linalg.norm(self.coef_), beside * np.linalg.norm(self.intercept_)))

    def _fit_all(self, objective: MarginObjective, data: DataPass | None, start: Array | None, seed: int) -> Array:
        block = data.rows if data is not None and isinstance(data.rows, Block) else self.coreset_
        n_rows = block.n_seen if isinstance(block, Coreset) else len(block)
        places = np.arange(len(block))
        if block.sample_weight is not None and not block.sample_weight.all():
            places = np.flatnonzero(block.sample_weight)
            block = block.take(places)
        if len(self.classes_) > 2:
            params = self._fit_classes(objective, block, places, start, seed)
        else:
            params = self._fit_two(block, places, start, seed)
        if data is not None:
            # with more classes the gap is that of a convex problem, and the objective is not convex
            bound = self.gap_ if len(self.classes_) == 2 else objective.evaluate(block, params).bound
            self.certificate_ = bound_certificate(self.objective_curve_[-1], bound, n_rows, passes=1)
        return params

    def _fit_two(self, block: Block, places: Array, start: Array | None, seed: int) -> Array:
        problem = self._problem(block)
        scale = 0.0 if problem.constant == 0.0 else 1.0 / problem.constant
        options: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "rng": rng_for(seed, "solve"),
            "start": None if start is None else start[0] * np.append(np.ones(problem.size - 1), scale),
        }
        if self.solver == "coreset_svrg":
            problem.check()
            found: Solution = coreset_svrg(problem, radius=self.radius, **options)
        else:
            found = solve(problem, solver=self.solver, **options)
        self._warn(found)
        self.gap_, self.n_iter_, self.objective_curve_ = found.gap, found.n_iter, [*found.curve[:-1], found.place.value]
        seen = np.flatnonzero(found.duals)
        self.support_ = places[seen]
        self.dual_coef_ = (problem.signs[seen] * found.duals[seen])[None]
        return np.append(found.place.params[:-1], problem.constant * found.place.params[-1])[None]

    def _fit_classes(
        self, objective: MarginObjective, block: Block, places: Array, start: Array | None, seed: int
    ) -> Array:
        """More than two classes: (K, d + 1)."""
        exact = len(block) * len(self.classes_) <= TO_ROUNDING
        found = fit_classes(
            objective,
            block,
            nonconvex=self.nonconvex,
            tol=self.tol,
            sharper=min(self.tol, ROUNDING) if exact else self.tol,
            max_iter=self.max_iter,
            start=start,
            rng=rng_for(seed, "solve"),
        )
        self.gap_, self.n_iter_, self.objective_curve_ = found.gap, found.n_iter, found.curve
        if found.value is not None:
            seen = np.flatnonzero(found.value.any(axis=1))
            self.support_, self.dual_coef_ = places[seen], np.ascontiguousarray(found.value[seen].T)
        return found.params

    def _problem(self, block: Block) -> LinearProblem:
        assert block.y is not None
        return LinearProblem(
            X=block.X,
            signs=2.0 * block.y - 1.0,
            cost=row_costs(block.sample_weight, len(block), self.lam, self.theta),
            mu=float(self.mu),
            theta=float(self.theta),
            constant=self._objective().constant,
            free=self._free,
        )

    def _warn(self, found: Solution) -> None:
        if not found.converged:
            warn_caller(
                f"The loss may exceed the smallest possible by {found.gap / found.place.value:.2g} of itself, more "
                f"than tol={self.tol:g}, after {found.n_iter} rounds. Raise max_iter={self.max_iter}, or take another "
                "solver.",
                ConvergenceWarning,
            )
