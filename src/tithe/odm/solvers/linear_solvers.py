"""Solvers of the linear problem: all stop on the same proved gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Annotated, Any

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients, growing, jittered_cholesky
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Constraint, Instance, OneOf, RealNumber, WholeNumber, check_params, check_value
from tithe.core.state_checks import Integers, Number, Storable
from tithe.odm.solvers.kernel_matrix import step_length
from tithe.odm.solvers.linear_problem import Evaluation, LinearProblem, Solution
from tithe.reduce.kernels import FarthestFirst

_MAX_DIRECT_DENSE = 300  # coordinates up to which the curvature of dense rows is factored
_MAX_DIRECT_SPARSE = 1000  # the same for sparse rows
_MIN_ROWS_FOR_START = 20_000  # rows from which the start is the solution of a sample
_ROWS_PER_START_ROW = 16  # that sample is one row in 16
_ROWS_PER_COORDINATE = 10  # rows of that sample for each coordinate, at least
_ARMIJO = 1e-4
_ROUNDING = 1e-12
_MAX_GAIN_STEPS, _GAIN_TOL = 20, 0.01  # of Newton's method for a gain, and the share of it that may be left
_LEFT_AT_MOST = 4.0  # times what the next step promises: on sets where it was too little, up to 1.5 times was left


def factorable(problem: LinearProblem) -> bool:
    """Whether Newton steps use a factored curvature, and cost no more than a few passes over the rows."""
    return problem.size <= (_MAX_DIRECT_SPARSE if sparse.issparse(problem.X) else _MAX_DIRECT_DENSE)


def newton(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """Newton's method on the primal problem, which is quadratic in pieces, so that it ends after finitely many steps.

    It has also converged if no step improves and the last one stayed within a piece and promised less than the
    tolerance: the remaining gap is rounding, which columns of a huge scale magnify.
    """
    if start is None and len(problem) >= _MIN_ROWS_FOR_START:
        start = _rough(problem, rng)
    point = problem.evaluate(np.zeros(problem.size) if start is None else np.asarray(start, np.float64))
    curvature = _Direct(problem) if factorable(problem) else _Conjugate(problem, tol)
    curve, at_minimum, number = [point.value], False, 0
    while number < max_iter and not point.gap <= tol * point.value:
        number += 1
        step = curvature.step(point)
        candidate = problem.evaluate(point.params + step)
        slope = float(step @ point.gradient)
        at_minimum = curvature.exact and -slope <= tol * point.value
        if candidate.value <= point.value + _ARMIJO * slope:
            at_minimum &= np.array_equal(problem.curvatures(candidate.margins), problem.curvatures(point.margins))
        else:
            candidate = _searched(problem, point, candidate)
        if not better(candidate, point):
            break
        point = candidate
        curve.append(point.value)
    solution = Solution.at(problem, point, tol=tol, n_iter=number, curve=curve)
    return replace(solution, converged=solution.converged or at_minimum)


def _rough(problem: LinearProblem, rng: np.random.Generator) -> Array:
    """The solution of a sample of the rows."""
    n = len(problem)
    size = max(n // _ROWS_PER_START_ROW, min(_ROWS_PER_COORDINATE * problem.size, n // 2))
    rows = np.sort(rng.choice(n, size, replace=False))
    sample = replace(
        problem,
        X=problem.X[rows],
        signs=problem.signs[rows],
        cost=problem.cost[rows] * (problem.cost.sum() / problem.cost[rows].sum()),
    )
    return newton(sample, tol=problem.size / size, max_iter=50, rng=rng).point.params


def better(candidate: Evaluation, point: Evaluation) -> bool:
    """Whether ``candidate`` is better: by value or, where values agree to rounding error, by the gap."""
    if candidate.value < point.value:
        return True
    return candidate.value <= point.value * (1.0 + _ROUNDING) and candidate.gap < point.gap


def _searched(problem: LinearProblem, point: Evaluation, candidate: Evaluation) -> Evaluation:
    """Line search between two points: P is convex and piecewise quadratic along the line."""
    change, step = candidate.margins - point.margins, candidate.params - point.params

    def slope(t: float) -> float:
        pull = problem.multipliers(point.margins + t * change) @ change
        return float((point.params + t * step) @ (problem.ridge * step) - pull)

    return problem.evaluate(point.params + step_length(slope, xtol=1e-12, rtol=1e-3) * step)


def gain_of_step(problem: LinearProblem, params: Array, step: Array) -> tuple[float, float, float, float]:
    """What a Newton step promises, what it leads to, what there is to gain at least, and at most.

    All of P plus the linear function with which its gradient at ``params`` is H step: the whole as a sample sees it.
    Differences of losses follow the trapezoidal rule, so a small gain is not lost in rounding. What a step leads to is
    -inf if it is too long, and the last number inf if no end was found.
    """
    start, ridge = problem.margins(params), problem.ridge
    curvatures = problem.curvatures(start)
    first = problem.curve(curvatures, step)
    linear = first - ridge * params + problem.combine(problem.multipliers(start))
    led_to, gain, at, now, gradient, direction = -np.inf, 0.0, params, start, first, -step
    for number in range(_MAX_GAIN_STEPS):
        change = problem.margins(direction)

        def slope(t: float, v: Array = at, u: Array = now, d: Array = direction, along: Array = change) -> float:
            return float((ridge * (v + t * d) + linear) @ d - problem.multipliers(u + t * along) @ along)

        length = step_length(slope)
        at, now = at + length * direction, now + length * change
        curvatures, duals = problem.curvatures(now), problem.multipliers(now)
        gradient = ridge * at + linear - problem.combine(duals)
        crossed = np.flatnonzero(problem.sides(now) != problem.sides(start))
        missed = problem.loss(start) - problem.loss(now) + 0.5 * (problem.multipliers(start) + duals) * (start - now)
        gain = 0.5 * float((first + gradient) @ (params - at)) + float(missed[crossed].sum())
        direction = -Factor(problem.hessian(curvatures), ridge).solve(gradient)
        if length == 1.0:
            led_to = gain if number == 0 else led_to
            left = -0.5 * float(gradient @ direction)
            if left <= _GAIN_TOL * gain:
                return 0.5 * float(first @ step), led_to, gain, gain + _LEFT_AT_MOST * left
    return 0.5 * float(first @ step), led_to, gain, np.inf


class _Direct:
    """Steps by the factored curvature: summed over all rows once, then updated by rows that change sides."""

    exact = True

    def __init__(self, problem: LinearProblem) -> None:
        self._problem = problem
        self._curvatures = np.zeros(len(problem))
        self._sum = np.zeros((problem.size, problem.size))

    def step(self, point: Evaluation) -> Array:
        curvatures = self._problem.curvatures(point.margins)
        change = curvatures - self._curvatures
        if 3 * np.count_nonzero(change) < np.count_nonzero(curvatures):
            self._sum += self._problem.hessian(change)
        else:
            self._sum = self._problem.hessian(curvatures)
        self._curvatures = curvatures
        return -Factor(self._sum, self._problem.ridge).solve(point.gradient)


class Factor:
    """The factored sum of a curvature and the penalty, each coordinate in its own scale."""

    def __init__(self, curvature: Array, ridge: Array) -> None:
        total = np.diagonal(curvature) + ridge
        if not np.isfinite(total).all():
            raise ValueError("The curvature overflows in double precision. Rescale the columns.")
        self._scale = np.where(total > 0.0, 1.0 / np.sqrt(np.where(total > 0.0, total, 1.0)), 0.0)
        scaled = curvature * self._scale[:, None] * self._scale
        np.fill_diagonal(scaled, 1.0)
        self._factor = jittered_cholesky(scaled, chain((0.0,), growing(1e-14)))

    def solve(self, gradient: Array) -> Array:
        return np.asarray(self._scale * cho_solve((self._factor, True), self._scale * gradient, check_finite=False))


class _Conjugate:
    """Steps by conjugate gradients, each iteration a pass over all rows."""

    exact = False

    def __init__(self, problem: LinearProblem, tol: float) -> None:
        self._problem, self._tol = problem, tol

    def step(self, point: Evaluation) -> Array:
        problem = self._problem
        curvatures = problem.curvatures(point.margins)
        diagonal = problem.ridge + problem.diagonal(curvatures)
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
        small = max(0.3 * np.sqrt(2.0 * self._tol * point.value), 1e-2 * float(np.linalg.norm(point.gradient)))
        step, _ = conjugate_gradients(
            lambda x: problem.curve(curvatures, x),
            -point.gradient,
            precondition=lambda x: inverse * x,
            is_small=lambda residual, _: float(np.linalg.norm(residual)) <= small,
            max_steps=problem.size,
        )
        return step


_MAX_EPOCHS_UNCHECKED = 10  # epochs of coordinate descent between two exact gaps
# estimated remaining epochs at which Newton's method takes over: if its steps are cheap, and if they are expensive
_PATIENCE_IF_CHEAP, _PATIENCE_IF_EXPENSIVE = 10, 60
_MAX_STIFFNESS = 100.0  # mean C_i |z_i|^2 beyond which coordinate descent is not tried


def solve(
    problem: LinearProblem,
    *,
    solver: str | CoresetSVRG = "auto",
    tol: float = 1e-4,
    max_iter: int = 1000,
    rng: np.random.Generator,
    start: Array | None = None,
) -> Solution:
    """The minimiser of ``problem`` to a gap of ``tol`` P, from ``start`` where the solver can use it."""
    check_solver(solver, free=problem.free)
    problem.check()
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "rng": rng, "start": start}
    if isinstance(solver, CoresetSVRG):
        options["finish"] = max_iter if isinstance(solver.finish, str) else solver.finish
        return coreset_svrg(problem, radius=solver.radius, everywhere=solver.step_rows == "all", **options)
    name = chosen(problem) if solver == "auto" else solver
    with single_blas_thread():  # products are too small for threads of BLAS
        return SOLVERS[name](problem, **options)


def check_solver(solver: Any, *, free: bool) -> None:
    """Refuse what is no solver, and solvers that cannot leave the intercept free."""
    names = ("auto", *SOLVERS)
    check_value("solver", solver, OneOf(*names) | Instance(CoresetSVRG, "a CoresetSVRG"))
    if free and solver not in ("auto", "newton"):
        raise ValueError(f"solver={solver!r} needs a penalised intercept: intercept_scaling=inf is for 'newton'.")


def chosen(problem: LinearProblem) -> str:
    """What ``auto`` stands for: Newton's method where cheap, else dual descent up to a stiffness of 100."""
    if problem.free or factorable(problem):
        return "newton"
    return "dcd" if float(problem.cost @ problem.squares) <= _MAX_STIFFNESS * len(problem) else "newton"


# -- dual coordinate descent -------------------------------------------------------------------


def coordinate_descent(
    problem: LinearProblem, *, tol: float, max_iter: int, rng: np.random.Generator, start: Array | None = None
) -> Solution:
    """Dual coordinate descent; Newton's method takes over if it is slow."""
    gamma = np.zeros(len(problem)) if start is None else problem.multipliers(problem.margins(start))
    v = problem.combine(gamma) if start is not None else np.zeros(problem.size)
    order = np.arange(len(problem))
    patience = _PATIENCE_IF_CHEAP if factorable(problem) else _PATIENCE_IF_EXPENSIVE
    curve: list[float] = []
    previous_gap, n_unchecked, gap = np.inf, 0, np.inf
    for epoch in range(1, max_iter + 1):
        rng.shuffle(order)
        epoch_gap = problem.coordinate_epoch(order, gamma, v)
        n_unchecked += 1
        if curve and epoch_gap > tol * curve[-1] and n_unchecked < _MAX_EPOCHS_UNCHECKED and epoch < max_iter:
            continue
        v = problem.combine(gamma)
        point = problem.evaluate(v)
        gap = problem.duality_gap(gamma, point.margins)
        curve.append(point.value)
        if gap <= tol * point.value:
            return Solution(point=point, duals=gamma, gap=gap, converged=True, n_iter=epoch, curve=curve)
        if previous_gap < np.inf and n_unchecked * np.log(gap / (tol * point.value)) > patience * np.log(
            max(previous_gap / gap, 1.0)
        ):
            break
        previous_gap, n_unchecked = gap, 0
    if epoch == max_iter:
        return Solution(point=point, duals=gamma, gap=gap, converged=False, n_iter=epoch, curve=curve)
    solution = newton(problem, tol=tol, max_iter=max_iter - epoch, rng=rng, start=v)
    return replace(solution, n_iter=epoch + solution.n_iter, curve=[*curve, *solution.curve[1:]])


# -- stochastic descent ------------------------------------------------------------------------


def _stochastic(
    problem: LinearProblem,
    *,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    start: Array | None,
    follow: bool,
) -> Solution:
    """Rounds of steps on drawn rows, with the exact gradient between them; a round that leads uphill is undone."""
    walk = _Walk(problem, False, rng, np.zeros(problem.size) if start is None else start, follow=follow)
    first = walk.evaluate(problem).value
    while len(walk.sizes) < max_iter and not walk.round(problem, tol):
        pass
    point = walk.evaluate(problem)
    return Solution.at(problem, point, tol=tol, n_iter=len(walk.sizes), curve=[first, *walk.curve])


def drawn(share: Array, size: int, rng: np.random.Generator) -> Array:
    """``size`` rows in random order, each drawn in proportion to its share, rounded up or down at random."""
    edges = np.cumsum(share)
    points = (np.arange(size) + rng.random()) * (edges[-1] / size)
    rows = np.minimum(np.searchsorted(edges, points, side="right"), len(share) - 1)
    rng.shuffle(rows)
    return np.asarray(rows)


svrg = partial(_stochastic, follow=False)  # Johnson and Zhang 2013: steps on 2 n rows between two full gradients
# Defazio, Bach and Lacoste-Julien 2014: the gradient of every row is remembered by one number
saga = partial(_stochastic, follow=True)

SOLVERS: dict[str, Callable[..., Solution]] = {
    "newton": newton,
    "dcd": coordinate_descent,
    "svrg": svrg,
    "saga": saga,
}


_INITIAL_CENTRES = 250  # centres that a shrinking radius starts with


@dataclass(frozen=True, kw_only=True, eq=False)
class Cover(Storable):
    """The cover that `coreset_svrg` took its anchors from, and what it cost and proves.

    Parameters
    ----------
    radius : float
        r, the largest distance of a z_i = y_i (x_i, k) from its centre, at the end.
    centres : (k,) int
        Positions of the centres among the rows, in the order in which they were found.
    sizes : tuple of int
        Centres in each round; the number of rows if the anchor used all of them.
    n_gradients : int
        Gradients of single rows that were computed, without the last pass, which is for the gap on all rows.
    gradient_norm : float
        |grad P(v)| on all rows, at the solution v: v is no farther than this from the minimiser of P, and
        P(v) - P* is at most half its square.
    gradient_bound : float
        r G(v) of `gradient_bound`, which |grad P(v) - grad P_C(v)| cannot exceed. It is known before all rows are
        read, and is far larger than ``gradient_norm`` as a rule.
    switched : bool
        Whether steps were taken on rows of the cover in the end although ``everywhere`` was set.
    """

    radius: Annotated[float, Number(least=0.0)]
    centres: Annotated[Array, Integers("centres", least=0)]
    sizes: tuple[int, ...]
    n_gradients: int
    gradient_norm: Annotated[float, Number(least=0.0)]
    gradient_bound: Annotated[float, Number(least=0.0)]
    switched: bool


@dataclass(frozen=True, kw_only=True)
class CoresetSVRG(Storable):
    """SVRG whose full gradients are those of a cover of the rows (see `coreset_svrg`).

    Parameters
    ----------
    radius : float or None
        Radius of the cover. None: one centre for every 16 rows.
    step_rows : {"cover", "all"}
        Rows that steps are taken on: those of the cover, or, as in the paper, rows drawn from all. Both have the same
        limit, the solution on the cover; only for the first is it proved to be reached.
    finish : int or "auto"
        Rounds of SVRG on all rows after those on the cover, at most; ``"auto"``: up to ``max_iter``.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import CoresetSVRG, LinearODMClassifier
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> solver = CoresetSVRG(radius=0.5, finish="auto")
    >>> model = LinearODMClassifier(100.0, solver=solver, random_state=0).fit(X, X[:, 0] > 0)
    >>> bool(model.cover_.radius <= 0.5)
    True
    """

    radius: float | None = None
    step_rows: str = "cover"
    finish: int | str = 0

    def __post_init__(self) -> None:
        check_params(self, _COVER_CONSTRAINTS)


_COVER_CONSTRAINTS: dict[str, Constraint] = {
    "radius": OneOf(None) | RealNumber(least=0.0),
    "step_rows": OneOf("cover", "all"),
    "finish": OneOf("auto") | WholeNumber(least=0),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class CoverSolution(Solution):
    """The result of `coreset_svrg`. ``converged`` is about the gap on all rows, ``cover_converged`` on the cover."""

    cover: Cover
    cover_converged: bool


def gradient_bound(problem: LinearProblem, params: Array, radius: float) -> float:
    """r G(v) >= |grad P(v) - grad P_C(v)| for every cover C of the given radius r.

    G = sum C_i (R |v| + max(1 - theta + R |v|, mu [R |v| - 1 - theta]_+)), R the largest |z_i|: moving z by at most r
    moves the margin by r |v|, hence the slope by as much, and turns z itself, whose slope is at most the maximum.
    """
    score_bound = float(np.sqrt(problem.squares.max())) * float(np.linalg.norm(params))
    slope = max(1.0 - problem.theta + score_bound, problem.mu * max(score_bound - 1.0 - problem.theta, 0.0))
    return radius * float(problem.cost.sum()) * (score_bound + slope)


def coreset_svrg(
    problem: LinearProblem,
    *,
    radius: float | None = None,
    size: int | None = None,
    shrink: float | None = 0.75,
    everywhere: bool = False,
    finish: int = 0,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    start: Array | None = None,
) -> CoverSolution:
    """SVRG with the gradients of a weighted cover of the z_i = y_i (x_i, k) as anchors; see `CoresetSVRG`.

    A round takes the gradient of P_C, the problem of k centres each costing as much as the rows nearest to it, and 2 k
    steps on drawn rows. A round in which P_C rises is undone. There are at most ``size`` centres; the radius is
    multiplied by ``shrink`` after each round until ``radius`` is reached.
    """
    if problem.free:
        raise ValueError("coreset_svrg needs a penalised intercept.")
    walk = _Walk(problem, everywhere, rng, np.zeros(problem.size) if start is None else start)
    max_centres = size if size is not None else len(problem) if radius is not None else max(1, -(-len(problem) // 16))
    final_radius = 0.0 if radius is None else float(radius)
    cover = FarthestFirst(problem.X, signs=problem.signs, constant=problem.constant, weight=problem.cost)
    cover.grow(size=min(_INITIAL_CENTRES, max_centres) if shrink is not None else max_centres, radius=final_radius)
    cover_problem, done = _covered(problem, cover), False
    for _ in range(max_iter):
        done = walk.round(cover_problem, tol, everywhere=walk.everywhere)
        if cover.radius > final_radius and len(cover.centres) < max_centres:
            assert shrink is not None
            cover.grow(size=max_centres, radius=max(final_radius, shrink * cover.radius))
            cover_problem, done = _covered(problem, cover), False
        elif done:
            break
    for _ in range(finish):
        if walk.round(problem, tol):
            break
    point = walk.evaluate(problem, count=False)
    return CoverSolution.at(
        problem,
        point,
        tol=tol,
        n_iter=len(walk.sizes),
        curve=walk.curve,
        cover=Cover(
            radius=cover.radius,
            centres=np.asarray(cover.centres),
            sizes=tuple(walk.sizes),
            n_gradients=walk.n_gradients,
            gradient_norm=float(np.linalg.norm(point.gradient)),
            gradient_bound=gradient_bound(problem, point.params, cover.radius),
            switched=everywhere and not walk.everywhere,
        ),
        cover_converged=done,
    )


def _covered(problem: LinearProblem, cover: FarthestFirst) -> LinearProblem:
    """The problem of the centres: P_C."""
    order = np.argsort(cover.centres)  # where all rows are centres, this is the problem itself
    rows = np.asarray(cover.centres)[order]
    return replace(problem, X=problem.X[rows], signs=problem.signs[rows], cost=cover.weights()[order])


class _Walk:
    """Rounds of one descent, from anchor to anchor; see `coreset_svrg`. With ``follow`` gradients are kept (SAGA)."""

    def __init__(
        self, problem: LinearProblem, everywhere: bool, rng: np.random.Generator, v: Array, *, follow: bool = False
    ) -> None:
        self._problem, self._rng, self._follow = problem, rng, follow
        self._memory: tuple[Array, Array] | None = None  # the table and the mean of the last round
        self.everywhere = everywhere
        self.n_gradients = 0
        self.sizes: list[int] = []
        self.curve: list[float] = []
        self._v, self._caution = np.array(v, np.float64), 1.0
        self._evaluated: tuple[LinearProblem, Evaluation] | None = None

    def evaluate(self, anchor: LinearProblem, *, count: bool = True) -> Evaluation:
        """The anchor's problem at the present parameters; the last evaluation is kept."""
        if self._evaluated is None or self._evaluated[0] is not anchor:
            self._evaluated = anchor, anchor.evaluate(self._v)
            self.n_gradients += len(anchor) if count else 0
        return self._evaluated[1]

    def round(self, anchor: LinearProblem, tol: float, *, everywhere: bool = False) -> bool:
        """One anchor and its steps; True if the gap of the anchor's problem is small enough without any."""
        point = self.evaluate(anchor)
        if point.gap <= tol * point.value:
            return True
        n = len(anchor)
        self.sizes.append(n)
        rows = self._problem if everywhere else anchor
        rough = 1.0 + len(rows) * rows.cost * rows.squares
        share = rough / rough.sum()
        draws = drawn(share, n if self._follow else 2 * n, self._rng)
        if self._memory is None or not self._follow:
            slopes = self._slopes_at(point, draws) if everywhere else -anchor.multipliers(point.margins) / anchor.cost
            self._memory = slopes, point.gradient - point.params
        eta, (table, mean) = self._caution * min(0.5, 1.0 / (3.0 * float(rough.mean()))), self._memory
        v = rows.walked(point.params, draws, share, eta=eta, follow=self._follow, table=table, mean=mean)
        candidate = anchor.evaluate(v)
        self.n_gradients += 3 * n
        if better(candidate, point):
            self._v, self._evaluated = v, (anchor, candidate)
        elif everywhere:
            self.everywhere = False
        else:
            self._memory = None
            self._caution *= 0.5 if len(self.sizes) > 1 else min(0.5, 0.25 / float(rough.max()) / eta)
        self.curve.append(min(candidate.value, point.value))
        return False

    def _slopes_at(self, point: Evaluation, draws: Array) -> Array:
        """Half the derivative of the loss at the anchor, of the rows that will be drawn: (n,), zero elsewhere."""
        problem, rows = self._problem, np.unique(draws)
        sample = replace(problem, X=problem.X[rows], signs=problem.signs[rows], cost=problem.cost[rows])
        table = np.zeros(len(problem))
        table[rows] = -sample.multipliers(sample.margins(point.params)) / sample.cost
        self.n_gradients += len(rows)
        return table
