"""`ODMClassifier`: the optimal margin distribution machine with a kernel."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.labels import label_numbers, weights_by_class
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Constraint, Instance, OneOf, RealNumber, check_params
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Each, Integer, Integers, Number
from tithe.core.state_checks import Instance as IsA
from tithe.fit.base import Described, checked_block
from tithe.fit.bases import BaseEstimator, ClassifierMixin
from tithe.odm.base import (
    EXACT_TOL,
    KERNEL_CONSTRAINTS,
    MAX_EXACT_MULTIPLIERS,
    KernelMachine,
    MarginDistribution,
    labelled_rows,
    margins_of,
    row_costs,
    warn_of_gap,
)
from tithe.odm.kernels.two_classes import margin_gap
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual
from tithe.odm.solvers.kernel_matrix import (
    Gram,
    NotAKernelError,
    check_diagonal,
    training_kernel,
    training_matrix,
)
from tithe.odm.solvers.many_classes import solve_many_classes
from tithe.odm.solvers.partition import PartitionSolver
from tithe.odm.solvers.path import check_memory, held_out, kernel_product
from tithe.odm.solvers.two_classes import Dual, KernelSolution, solve_two_classes

_MAX_WHOLE_ROWS = 10_000  # rows up to which "auto" fits all of them at once
_SINGLE_GAP = 1e-5  # relative gap that single precision may leave
_MAX_GAP_RATIO = 10.0  # times the gap of the fit: beyond, the rows are other ones


@dataclass(eq=False, repr=False)
class ODMClassifier(KernelMachine, ClassifierMixin, Described, BaseEstimator):
    """Optimal margin distribution machine with a kernel: a large mean of the margins and a small variance.

    With margins u_i = y_i f(x_i), f(x) = w . phi(x) + b, weights s_i of sum W and C_i = lam s_i / (W (1 - theta)^2),

        min over w of |w|^2 / 2 + 1/2 sum_i C_i ([1 - theta - u_i]+^2 + mu [u_i - 1 - theta]+^2):

    margins below and above 1 have a cost, except those within theta of it. The cost of an SVM depends on the smallest
    margins only (mu = 0 is an SVM with squared hinge loss). More than two classes are fitted together:
    u = f_y - max over l != y of f_l, one w for each class. After Zhang and Zhou, "Optimal margin distribution
    machine" (TKDE 2020) and "Multi-class optimal margin distribution machine" (ICML 2017).

    Parameters
    ----------
    lam : float
        Weight of the mean loss relative to |w|^2. LIBODM's lambda is half of it.
    mu : float in [0, 1]
        Weight of margins that are too large.
    theta : float in [0, 1)
        Half the width of the band in which margins cost nothing.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable
        As in `sklearn.svm.SVC`. A callable gives the matrix (len(A), len(B)) for rows A and B. The kernel must be
        positive semi-definite; it is refused if it turns out not to be ("sigmoid" may not be).
    gamma : {"scale", "auto"} or float
        Of "rbf", "poly", "sigmoid" and "laplacian"; "scale" is 1 / (d * variance of X), "auto" 1 / d.
    degree, coef0 : float
        Of "poly" and "sigmoid".
    fit_intercept : bool
    intercept_scaling : float
        The intercept is the weight of a constant feature of this value, and penalised like the others. Infinity
        leaves it free (two classes only).
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    nonconvex : {"cccp", "fixed_score"}
        For more than two classes: how the loss of too large margins is made convex. "cccp" fixes each row's strongest
        rival class for a round and never raises the objective; "fixed_score" fixes the rival's score, as in the paper.
    tol : float
        Stop at a duality gap of this share of the objective. On real data the default leaves decision values within
        0.002 of the optimum; 1e-3 leaves them within 0.02, and is up to twice as fast for two classes, and 2 to 14
        times as fast for more.
    solver : {"auto", "direct", "partition"} or PartitionSolver
        For two classes: all rows at once, or machines of parts of the rows that are merged into one of all rows by a
        few products with the kernel matrix (after Wang et al., "Scalable optimal margin distribution machine", IJCAI
        2023). Both give the same machine, to ``tol``. "auto" is "partition" beyond 10,000 rows, unless the intercept
        is free or there are more than two classes, for which there is no "partition". `PartitionSolver` sets the
        number of parts and the engine that solves them.
    max_iter : int
        Maximum number of rounds over all rows.
    cache_size : float
        Megabytes for the kernel matrix: n^2 numbers, of eight bytes up to 4,096 rows, else of four. Rows of the
        matrix that do not fit are computed again in each round.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None
        For the order in which rows are visited.

    Attributes
    ----------
    classes_ : array (K,)
    support_ : array
        Positions of the rows whose margins lie outside the band.
    support_vectors_ : array or CSR matrix
        These rows; empty with a precomputed kernel. They are training rows, and every saved model holds them.
    n_support_ : array (K,)
        The number of these rows in each class.
    dual_coef_ : array (1, n_support), or (K, n_support) for more than two classes
        y_i gamma_i, by which f is a sum of kernels.
    coef_ : array (1, d), or (K, d) for more than two classes
        With ``kernel="linear"`` only: f(x) = ``coef_`` . x + ``intercept_``.
    intercept_ : array (1,) or (K,)
    norm_ : float
        |w|, of all classes together; ``margins(X, y) / norm_`` does not depend on the scale of f.
    objective_curve_ : list of float
        The objective at the end; for more than two classes after each choice of rivals, the last that of this model.
    gap_ : float
        Upper bound of the objective minus its minimum (of the last convex problem, for more than two classes).
    n_iter_ : int
        Rounds over all rows; products with the kernel matrix of all rows if parts were merged.
    margin_distribution_ : MarginDistribution
        Of the training rows: mean, variance and quantiles.
    n_features_in_, feature_names_in_

    Notes
    -----
    The kernel takes a time of order n^2 d, once if the matrix fits into ``cache_size``, and each round n^2.
    There are few rounds unless ``lam`` is large; Newton's method then finishes. Beyond 4,096 rows the matrix is in
    single precision if that is enough to reach ``tol``.

    With parts, there are up to 2,000 numbers for each row besides. Clusters try a part again whose worker dies; if that
    fails too, `fit` raises the error of the engine, and there is no machine.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import ODMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where((X**2).sum(axis=1) < 1.2, "in", "out")
    >>> model = ODMClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> bool(model.gap_ <= 1e-5 * model.objective_curve_[-1])
    True
    """

    _: KW_ONLY
    class_weight: Any = None
    nonconvex: str = "cccp"
    solver: str | PartitionSolver = "auto"
    tol: float = 1e-5
    max_iter: int = 1000
    cache_size: float = 2000
    encode: bool | str = "auto"
    random_state: Any = None

    n_support_: Annotated[Array, Integers("classes", dtypes=("int32", "int64"), least=0)] = field(init=False)
    norm_: Annotated[float, Number(least=0.0)] = field(init=False)
    objective_curve_: Annotated[list[float], Each(Number())] = field(init=False)
    gap_: Annotated[float, Number()] = field(init=False)
    n_iter_: Annotated[int, Integer()] = field(init=False)
    margin_distribution_: Annotated[MarginDistribution, IsA(MarginDistribution)] = field(init=False)

    _constraints: ClassVar[dict[str, Constraint]] = {
        **KernelMachine._margin_constraints,
        **KERNEL_CONSTRAINTS,
        "cache_size": RealNumber(least=0.0),  # megabytes
        "solver": OneOf("auto", "direct", "partition") | Instance(PartitionSolver, "a PartitionSolver"),
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the machine.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d); a kernel matrix (n, n) if it is precomputed
        y : array of shape (n,), of any labels
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows; multiplying all weights changes nothing.
        """
        self._check_options()
        block, codes = labelled_rows(self, X, y, sample_weight)
        weight = weights_by_class(self.class_weight, self.classes_, codes, block.sample_weight)
        present = np.bincount(codes, weights=weight, minlength=len(self.classes_))
        if not present.all():
            raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
        rng = rng_for(as_seed(self.random_state), "solve")
        weighted = np.arange(len(codes)) if weight is None else np.flatnonzero(weight > 0.0)
        try:
            with single_blas_thread():
                self._solve(block, codes, weight, rng.permutation(weighted), rng)
        except BaseException:  # no solution is left behind, neither of this fit nor of an earlier one
            for name in self.stored_checks():
                with suppress(AttributeError):
                    delattr(self, name)
            raise
        return self

    def _check_options(self) -> None:
        check_params(self, self._constraints)

    def _solve(self, block: Block, codes: Array, weight: Array | None, rows: Array, rng: np.random.Generator) -> None:
        free, constant = self._free, self._constant
        function = training_kernel(self, block)
        X = rows if self.kernel == "precomputed" else block.X[rows]
        gram = Gram(function, X, constant=constant, cache_bytes=1e6 * self.cache_size)
        check_diagonal(gram.diagonal())
        row_weights = None if weight is None else weight[rows]
        cost = row_costs(row_weights, len(rows), self.lam, self.theta)
        if free and len(self.classes_) > 2:
            raise ValueError("intercept_scaling=inf, a free intercept, is for two classes only.")
        if self._always_parts and (free or len(self.classes_) > 2):
            needs = "a penalised intercept." if free else "two classes: Only binary classification is supported."
            raise ValueError(f"solver='partition' needs {needs} Take solver='direct' or 'auto' instead.")
        solve = self._solve_two if len(self.classes_) == 2 else self._solve_many
        try:
            solution = solve(gram, codes[rows], cost, rng, free=free)
        except NotAKernelError:
            if function.dtype == np.float64:
                raise
            solution = solve(gram.in_double(), codes[rows], cost, rng, free=free)  # rounding made it indefinite
        if solution.gap > self.tol * solution.primal:
            warn_of_gap(self, solution.gap, solution.primal, solution.n_iter)
        self.gap_, self.n_iter_, self.objective_curve_ = solution.gap, solution.n_iter, solution.curve
        coefficients, scores = solution.coefficients, solution.scores
        self.norm_ = max(0.0, float(np.vdot(coefficients.T, scores - solution.intercept))) ** 0.5
        margins = margins_of(scores[:, 0] if scores.shape[1] == 1 else scores, codes[rows])
        self.margin_distribution_ = MarginDistribution.of(margins, row_weights)
        self._store_support(block, rows, solution, constant)
        self.n_support_ = np.bincount(codes[self.support_], minlength=len(self.classes_)).astype(np.int32)

    def _solve_two(
        self, gram: Gram, codes: Array, cost: Array, rng: np.random.Generator, *, free: bool
    ) -> KernelSolution:
        dual = Dual(gram=gram, sign=2.0 * codes - 1.0, cost=cost, mu=float(self.mu), theta=float(self.theta))
        options: dict[str, Any] = {"tol": self._inner_tol(len(codes)), "max_iter": self.max_iter, "rng": rng}
        # of the time of all rows at once, on ijcnn1 and Covertype with 10,000 rows: 0.8 and 1.4; 0.7 and 0.3 with
        # lam = 10^4 and theta = 0.8; with 20,000 rows: 1.2 and 1.0, and 0.4 and 0.3
        use_parts = self._always_parts or (self.solver == "auto" and len(codes) > _MAX_WHOLE_ROWS and not free)
        if not use_parts:
            return solve_two_classes(dual, free=free, **options)
        solver = self.solver if isinstance(self.solver, PartitionSolver) else PartitionSolver()
        return solver.solve(dual, **options)

    @property
    def _always_parts(self) -> bool:
        return self.solver == "partition" or isinstance(self.solver, PartitionSolver)

    def _solve_many(
        self, gram: Gram, codes: Array, cost: Array, rng: np.random.Generator, *, free: bool
    ) -> KernelSolution:
        n_classes, mu, theta = len(self.classes_), float(self.mu), float(self.theta)
        label = codes.astype(np.int64)
        dual = KernelMulticlassDual(gram=gram, label=label, cost=cost, n_classes=n_classes, mu=mu, theta=theta, rng=rng)
        tol = self._inner_tol(len(codes) * n_classes)
        solved = solve_many_classes(dual, nonconvex=self.nonconvex, tol=tol, asked_tol=self.tol, max_iter=self.max_iter)
        machine: dict[str, Any] = {"coefficients": dual.value.T, "scores": dual.scores(), "function": gram.function}
        return KernelSolution(**machine, **asdict(solved))

    def _inner_tol(self, n_multipliers: int) -> float:
        return min(self.tol, EXACT_TOL) if n_multipliers <= MAX_EXACT_MULTIPLIERS else self.tol

    def _store_support(self, block: Block, rows: Array, solution: KernelSolution, constant: float) -> None:
        """Store the support vectors, in the order of the rows, and their coefficients."""
        coefficients, function = solution.coefficients, solution.function
        order = np.argsort(rows)
        order = order[coefficients[:, order].any(axis=0)]
        self.support_ = rows[order]
        self.dual_coef_ = np.ascontiguousarray(coefficients[:, order])
        self.intercept_ = constant * self.dual_coef_.sum(axis=1) + solution.intercept
        precomputed = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0)) if precomputed else block.X[self.support_]
        self._gamma = 1.0 if precomputed else function.gamma
        self._centre = None if precomputed else function.centre
        self._single = not precomputed and function.dtype == np.float32

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = not self._always_parts
        return tags

    # -- rows left out of a fitted machine -------------------------------------------------------

    def leave_one_out(self, X: Any, y: Any, sample_weight: Any = None) -> Array:
        """The decision value of each training row for the machine fitted without it: (n,).

        They are exact for all rows, and take about as long as two or three fits. The machine without a row keeps the
        costs C of the other rows, as if ``lam`` were (W - s) / W times as large, where s is the weight of the row and
        W that of all. The kernel stays too: "scale" is not computed again. Two classes only; for more, use
        scikit-learn's `cross_val_predict`. Other rows, labels or weights than those of the fit are refused.
        """
        return self._held_out(self._training_rows(X, y, sample_weight), None)

    def n_fold(self, X: Any, y: Any, n: Any = 5, sample_weight: Any = None) -> Array:
        """The decision value of each training row for the machine fitted without the rows of its fold: (n_rows,).

        ``n`` is the number of folds, stratified by class, or a cross-validation splitter of scikit-learn whose test
        folds hold every row once. Everything else is as in `leave_one_out`.
        """
        block = self._training_rows(X, y, sample_weight)
        groups = [test for _, test in check_cv(n, block.y, classifier=True).split(block.X, block.y)]
        if not np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(block))):
            raise ValueError("Every row must be in one test fold, and in no other: take KFold or StratifiedKFold.")
        return self._held_out(block, groups)

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> Block:
        """The rows, with class numbers for y and the weights of the fit."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only for two classes can rows be left out of a fitted machine exactly: with more, the strongest "
                "rivals of the other rows change. Use sklearn.model_selection.cross_val_predict."
            )
        if self._free:
            raise ValueError(
                "intercept_scaling=inf, a free intercept: rows cannot be left out of a fitted machine. Use "
                "sklearn.model_selection.cross_val_predict, or a finite intercept_scaling."
            )
        block = checked_block(self, X, y, sample_weight, reset=False)
        if block.y is None:
            raise ValueError("y is needed: the labels that the machine was fitted to.")
        codes = label_numbers(block.y, self.classes_)
        if codes.min() < 0:
            raise _other_rows()
        weight = weights_by_class(self.class_weight, self.classes_, codes, block.sample_weight)
        check_memory(len(block), 1e6 * self.cache_size)
        return replace(block, y=codes, sample_weight=weight, mean=None)

    def _held_out(self, block: Block, groups: list[Array] | None) -> Array:
        assert block.y is not None
        n = len(block)
        if self.support_.max(initial=-1) >= n:
            raise _other_rows()
        with single_blas_thread():
            kernel = training_matrix(self, block, None if self.kernel == "precomputed" else self._fitted_kernel())
        kernel, sign = kernel + self._constant, 2.0 * block.y - 1.0
        gamma = np.zeros(n)
        gamma[self.support_] = sign[self.support_] * self.dual_coef_[0]
        cost = row_costs(block.sample_weight, n, self.lam, self.theta)
        self._check_is_solution(kernel, sign, cost, gamma)
        return held_out(kernel, sign, cost, gamma, groups, mu=float(self.mu), theta=float(self.theta))

    def _check_is_solution(self, kernel: Array, sign: Array, cost: Array, gamma: Array) -> None:
        """Refuse rows, labels or weights for which the machine is not the solution."""
        margin = sign * kernel_product(kernel, sign * gamma)
        gap, loss = margin_gap(gamma, margin, cost, float(self.mu), 1.0 - self.theta, 1.0 + self.theta)
        primal = loss + 0.5 * float(gamma @ margin)
        reached = max(self.tol, self.gap_ / self.objective_curve_[-1], _SINGLE_GAP)
        if not gap <= _MAX_GAP_RATIO * reached * primal:
            raise _other_rows()


def _other_rows() -> ValueError:
    return ValueError(
        "These are not the rows, labels and weights that the machine was fitted to, or its parameters have changed "
        "since: call fit with them first."
    )
