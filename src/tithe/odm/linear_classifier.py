"""`LinearODMClassifier`: on all rows, or on a coreset, polished and certified on all rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import bound_certificate
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import check_params
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Integers, Number
from tithe.fit.base import FLOATS, FittedAttribute
from tithe.linear.learner import TOLERANCE, CoresetLinearClassifier, LinearFit
from tithe.odm.base import EXACT_TOL, MAX_EXACT_MULTIPLIERS, MarginDistribution, MarginMachine, row_costs, warn_of_gap
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.linear_problem import LinearProblem, Solution
from tithe.odm.solvers.linear_solvers import CoresetSVRG, Cover, CoverSolution, check_solver, solve

_CORESET_TOL_RATIO = 0.01  # tolerance of the fit on the coreset over that on all rows


@dataclass(eq=False, repr=False)
class LinearODMClassifier(CoresetLinearClassifier, MarginMachine):
    """Linear optimal margin distribution machine: margins y f(x) near 1, neither far below nor far above.

    Minimises, for weights s_i of the rows, W = sum_i s_i, and f(x) = x . w + b,

        |w|^2 / 2 + (b / intercept_scaling)^2 / 2
            + lam / (2 W (1 - theta)^2) sum_i s_i ([1 - theta - u_i]_+^2 + mu [u_i - 1 - theta]_+^2),

    u_i = y_i f(x_i) for two classes, y_i = 1 for the second, and f_y(x_i) - max over l != y of f_l(x_i) for more.
    The loss of an SVM depends on the smallest margins; here all margins count, so they vary less. With ``mu=0`` it is
    `sklearn.svm.LinearSVC` at C = lam / (2 W (1 - theta)^2), up to the factor 1 - theta; with ``mu=1`` it is
    `sklearn.svm.LinearSVR` of the labels -1 and 1, and with ``theta=0`` besides, `sklearn.linear_model.Ridge`.

    The defaults of lam, mu and theta were chosen for test accuracy beside that of `LinearSVC()`. For margins that vary
    less, take a larger mu and a smaller theta, such as 0.5 and 0.2, the defaults of `ODMClassifier`.

    Parameters
    ----------
    lam : float
        > 0: weight of the loss relative to the penalty, twice that of LIBODM. As in `LinearSVC`, a good value depends
        on the scale of the columns; unlike there, it does not depend on the number of rows.
    mu : float
        In [0, 1]: weight of margins above the band relative to those below. With a larger mu margins vary less, and
        outliers have more influence, which costs accuracy if columns are skewed.
    theta : float
        In [0, 1): half the width of the band 1 +- theta in which margins cost nothing.
    solver : {"auto", "newton", "dcd", "svrg", "saga"} or CoresetSVRG
        For all rows and two classes. ``"auto"``: Newton's method if its Hessian can be factored (up to 300 columns,
        1000 of sparse rows), else dual coordinate descent, unless lam is so large that it would take long.
        `CoresetSVRG` solves the problem on a cover of the rows, and then, with its ``finish``, on all of them.
    tol : float
        All solvers stop when the loss, penalty included, provably exceeds the smallest one by no more than this
        share of itself. There is a `ConvergenceWarning` if that is not reached: by `CoresetSVRG` it rarely is
        without ``finish``.
    fit_intercept : bool
    intercept_scaling : float
        > 0: the intercept is the coefficient of a constant feature of this value, and penalised like the others, as
        in `LinearSVC`. Infinity: it carries no penalty (``"newton"`` only).
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    nonconvex : {"cccp", "fixed_score"}
        For more than two classes: how the loss of margins above the band is made convex. "cccp" fixes each row's
        strongest rival class for a round and never raises the loss; "fixed_score" fixes the rival's score, as in the
        paper. Both use Newton's method with multipliers.
    coreset_size : int, float, "auto" or None
        Rows to learn from, or a fraction of the rows. ``"auto"``: the largest of 10,000, 20 for each column, and one
        in 100 of the rows up to 50,000. If there are no more rows than this, all are used. None uses all rows of an
        array, and the same as ``"auto"`` for a source and in `partial_fit`.
    construction, engine
        Of a coreset; see `build_coreset`. ``"auto"`` is `Influence`.
    polish : int or "auto"
        Rounds of descent over all rows after the fit on a coreset; ``"auto"``: until the certificate says that the
        loss is within ``tol`` of the smallest possible. There is a `ConvergenceWarning` if the certificate does not
        say so in the end.
    max_iter : int
        Maximum number of rounds of the solver: steps of Newton's method, or epochs.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,) for two classes, else (K, d) and (K,)
    classes_ : array (K,)
    gap_ : float
        Upper bound of the loss on all rows, penalty included, minus the smallest loss: not relative. Infinity if the
        rows of a coreset could be read only once. For more than two classes, that of the last convex problem;
        ``certificate_`` is about the true loss.
    certificate_ : Certificate or None
        The same bound in words; after a fit on a coreset, an estimate together with the bound. None if the rows could
        be read only once: see ``certify``.
    objective_curve_ : list of float
        Loss on all rows, penalty included, after each round; after some rounds only of coordinate descent. Of
        `CoresetSVRG`, the loss on the cover, but for the last.
    n_iter_ : int
        Rounds of the solver, or steps on all rows after a fit on a coreset.
    support_ : array (n_support,)
        Positions of the training rows with a nonzero dual variable, whose margin lies outside the band. Only if all
        rows were used.
    dual_coef_ : array (1, n_support)
        y_i times the dual variable of each: ``coef_`` is ``dual_coef_ @ X[support_]``, up to the tolerance.
    norm_ : float
        |w|, the penalised intercept included; ``margins(X, y) / norm_`` does not depend on the scale of f.
    margin_distribution_ : MarginDistribution
        Mean, variance, semi-variance and quantiles of the margins of the training rows, or of the coreset if they
        were not in memory.
    cover_ : Cover
        After a `CoresetSVRG` with two classes: the radius and the centres of the cover, the gradients that
        were computed, and a bound on the gradient that the cover leaves out.
    coreset_, sample_indices_, stream_, n_passes_
        If there is a coreset; see `CoresetLogisticRegression`.

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

    lam: float = 1000.0
    mu: float = 0.05
    theta: float = 0.8
    _: KW_ONLY
    solver: str | CoresetSVRG = "auto"
    tol: float = 1e-4
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    class_weight: Any = None
    nonconvex: str = "cccp"
    coreset_size: int | float | str | None = None
    construction: Any = "auto"
    polish: int | str = "auto"
    max_iter: int = 1000
    engine: Any = "auto"
    n_jobs: int | None = None
    verbose: int = 0
    encode: bool | str = "auto"
    random_state: Any = None

    options = (*MarginObjective.options, TOLERANCE)

    gap_ = FittedAttribute[float](Number(least=0.0, finite=False))
    support_ = FittedAttribute[Array](Integers("support", least=0), optional=True)
    dual_coef_ = FittedAttribute[Array](Floats("machines", "support", dtypes=FLOATS, contiguous=False), optional=True)
    norm_ = FittedAttribute[float](Number(least=0.0))
    margin_distribution_ = FittedAttribute[MarginDistribution]()
    cover_ = FittedAttribute[Cover](optional=True)

    warm_start = False

    # -- methods of the base class -------------------------------------------------------------

    def _objective(self, classes: tuple[int, ...] | None = None) -> MarginObjective:
        return MarginObjective(
            lam=self.lam,
            mu=self.mu,
            theta=self.theta,
            fit_intercept=self.fit_intercept,
            intercept_scaling=self.intercept_scaling,
            classes=tuple(range(len(self.classes_))) if classes is None else classes,
            max_iter=self.max_iter,
            tol=_CORESET_TOL_RATIO * self.tol,
        )

    def _check_options(self) -> None:
        super()._check_options()
        check_solver(self.solver, free=self._free)
        check_params(self, self._margin_constraints)

    def _takes_all(self, rows: Block) -> bool:
        return self.coreset_size is None

    def _completed(self, fit: LinearFit, data: DataPass | None) -> LinearFit:
        certificate = fit.certificate
        bound = np.inf if certificate is None or certificate.bound is None else float(certificate.bound)
        rows = data.rows if data is not None and isinstance(data.rows, Block) else fit.coreset
        assert isinstance(rows, Block)
        objective, params = self._objective(), np.ascontiguousarray(fit.params, np.float64)
        margins = objective.row_margins(rows, params)
        # an intercept with a penalty is the coefficient of a constant feature
        intercept_factor = 0.0 if self._free or objective.constant == 0.0 else 1.0 / objective.constant
        coef, intercept = params[:, :-1].copy(), params[:, -1].copy()
        more = {
            "gap_": bound,  # unless a solver gave one
            **fit.more,
            "margin_distribution_": MarginDistribution.of(margins, rows.sample_weight),
            "norm_": float(np.hypot(np.linalg.norm(coef), intercept_factor * np.linalg.norm(intercept))),
        }
        return replace(fit, more=more)

    def _fit_all(self, coreset: Coreset | None, data: DataPass | None, start: Array | None, seed: int) -> LinearFit:
        objective = self._objective()
        block = data.rows if data is not None and isinstance(data.rows, Block) else coreset
        assert isinstance(block, Block)
        n_rows = block.n_seen if isinstance(block, Coreset) else len(block)
        places = np.arange(len(block))
        if block.sample_weight is not None and not block.sample_weight.all():
            places = np.flatnonzero(block.sample_weight)
            block = block.take(places)
        if len(self.classes_) > 2:
            fit = self._fit_classes(objective, block, places, start)
        else:
            fit = self._fit_two(block, places, start, seed)
        certificate = None
        if data is not None:
            # for more than two classes gap_ is that of a convex problem, and the objective is not convex
            bound = fit.more["gap_"] if len(self.classes_) == 2 else objective.evaluate(block, fit.params).bound
            certificate = bound_certificate(fit.curve[-1], bound, n_rows, passes=1)
        return replace(fit, certificate=certificate, coreset=coreset)

    def _fit_two(self, block: Block, places: Array, start: Array | None, seed: int) -> LinearFit:
        assert block.y is not None
        problem = LinearProblem(
            X=block.X,
            signs=2.0 * block.y - 1.0,
            cost=row_costs(block.sample_weight, len(block), self.lam, self.theta),
            mu=float(self.mu),
            theta=float(self.theta),
            constant=self._objective().constant,
            free=self._free,
        )
        scale = 0.0 if problem.constant == 0.0 else 1.0 / problem.constant
        first = None if start is None else start[0] * np.append(np.ones(problem.size - 1), scale)
        rng = rng_for(seed, "solve")
        solution = solve(problem, solver=self.solver, tol=self.tol, max_iter=self.max_iter, rng=rng, start=first)
        more: dict[str, Any] = {}
        if isinstance(solution, CoverSolution):
            more["cover_"] = replace(solution.cover, centres=places[solution.cover.centres])
        self._warn(solution)
        support = np.flatnonzero(solution.duals)
        more |= {
            "gap_": solution.gap,
            "support_": places[support],
            "dual_coef_": (problem.signs[support] * solution.duals[support])[None],
        }
        return LinearFit(
            params=np.append(solution.point.params[:-1], problem.constant * solution.point.params[-1])[None],
            curve=[*solution.curve[:-1], solution.point.value],
            n_iter=solution.n_iter,
            more=more,
        )

    def _fit_classes(self, objective: MarginObjective, block: Block, places: Array, start: Array | None) -> LinearFit:
        """More than two classes, together, on rows that all have a positive weight."""
        tiny = len(block) * objective.n_classes <= MAX_EXACT_MULTIPLIERS
        objective = replace(objective, tol=self.tol)
        tol = min(self.tol, EXACT_TOL) if tiny else self.tol
        solved, dual = objective.machine(block, start, nonconvex=self.nonconvex, tol=tol)
        if solved.gap > self.tol * solved.primal:
            warn_of_gap(self, solved.gap, solved.primal, solved.n_iter)
        values, params = dual.coefficients(), objective.scaled(dual.weights)
        support = np.flatnonzero(values.any(axis=1))
        more = {
            # multipliers of a free intercept are feasible but for the tolerance
            "gap_": objective.evaluate(block, params).bound if self._free else solved.gap,
            "support_": places[support],
            "dual_coef_": np.ascontiguousarray(values[support].T),
        }
        return LinearFit(params=params, curve=solved.curve, n_iter=solved.n_iter, more=more)

    def _warn(self, solution: Solution) -> None:
        if not solution.converged:
            advice = f"Raise max_iter={self.max_iter}, or take another solver."
            on_cover = isinstance(solution, CoverSolution) and solution.cover_converged
            if on_cover and isinstance(self.solver, CoresetSVRG) and self.solver.finish != "auto":
                advice = f"It is solved on the cover: raise finish={self.solver.finish}, or take a smaller radius."
            warn_caller(
                f"The loss may exceed the smallest possible by {solution.gap / solution.point.value:.2g} of itself, "
                f"more than tol={self.tol:g}, after {solution.n_iter} rounds. {advice}",
                ConvergenceWarning,
            )
