"""CoresetSVRG: stochastic descent whose anchor gradients come from a cover of the rows instead of all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tithe.core.data import Array
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value
from tithe.core.state_checks import Integer, Integers, Number, Storable, check_fields
from tithe.odm.kernels.stochastic import stochastic_run
from tithe.odm.solvers.linear_newton import better
from tithe.odm.solvers.linear_problem import LinearProblem, Place, Solution
from tithe.odm.solvers.linear_solvers import drawn
from tithe.reduce.kernels import FarthestFirst

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

    radius: float
    centres: Array
    sizes: tuple[int, ...]
    n_gradients: int
    gradient_norm: float
    gradient_bound: float
    switched: bool

    def _check_state(self) -> None:
        number = Number(least=0.0)
        table = {"radius": number, "gradient_norm": number, "gradient_bound": number}
        check_fields(self, {**table, "centres": Integers("centres", least=0), "n_gradients": Integer()})


@dataclass(frozen=True, kw_only=True, eq=False)
class CoverSolution(Solution):
    """The result of `coreset_svrg`. ``converged`` is about the gap on all rows, not about the one on the cover.

    Parameters
    ----------
    cover : Cover
    cover_converged : bool
        Whether the rounds on the cover ended at a gap of ``tol`` P_C.
    """

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
    """SVRG with the gradients of a weighted cover of the z_i = y_i (x_i, k) as anchors.

    A round takes the gradient of P_C, the problem of k centres each costing as much as the rows nearest to it,
    and 2 k steps on drawn rows. Its fixed point is the minimiser of P_C, which is no farther from that of P than
    |grad P| there, at most r G (`gradient_bound`). If P_C rises in a round, the round is undone and rows are
    drawn from the cover from then on; if they were already, the steps are halved.

    Parameters
    ----------
    radius : float or None
        Of the cover; 0: only equal rows are merged. None: ``size`` decides.
    size : int or None
        The largest number of centres. None with a radius: as many as needed; else one for every 16 rows.
    shrink : float or None
        Rounds begin with a few centres, and the radius is multiplied by this factor after each until ``radius`` is
        reached; centres stay centres. None: all rounds are at that radius.
    everywhere : bool
        Steps are taken on rows drawn from all, as in the paper, each costing two gradients; else on rows of the
        cover, where one of the two is known from the anchor. The fixed point is the same.
    finish : int
        The largest number of rounds at the end whose anchors and steps are those of plain SVRG on all rows.
    tol, max_iter : float, int
        Rounds on the cover stop at a gap of ``tol`` P_C, or after ``max_iter``; those on all rows at ``tol`` P.
    start : (d + 1,) or None
    """
    check_value("radius", radius, OneOf(None) | RealNumber(least=0.0))
    check_value("size", size, OneOf(None) | WholeNumber(least=1))
    check_value("shrink", shrink, OneOf(None) | RealNumber(above=0.0, below=1.0))
    check_value("finish", finish, WholeNumber(least=0))
    if problem.free:
        raise ValueError("coreset_svrg needs a penalised intercept.")
    walk = _Walk(problem, everywhere, rng, np.zeros(problem.size) if start is None else np.array(start, np.float64))
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
    return CoverSolution(
        place=point,
        duals=problem.duals(point.margins),
        gap=point.gap,
        converged=point.gap <= tol * point.value,
        n_iter=len(walk.sizes),
        curve=walk.curve,
        solver="coreset_svrg",
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
    """Rounds of one descent, from anchor to anchor; see `coreset_svrg`."""

    def __init__(self, problem: LinearProblem, everywhere: bool, rng: np.random.Generator, v: Array) -> None:
        self._problem, self._rng = problem, rng
        self.everywhere = everywhere
        self.n_gradients = 0
        self.sizes: list[int] = []
        self.curve: list[float] = []
        self._v, self._caution = v, 1.0
        self._evaluated: tuple[LinearProblem, Place] | None = None

    def evaluate(self, anchor: LinearProblem, *, count: bool = True) -> Place:
        """The anchor's problem at the present parameters; the last evaluation is kept."""
        if self._evaluated is None or self._evaluated[0] is not anchor:
            self._evaluated = anchor, anchor.at(self._v)
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
        rough = 1.0 + len(rows) * rows.cost * max(1.0, rows.mu) * rows.squares
        share = rough / rough.sum()
        draws = drawn(share, 2 * n, self._rng)
        table = self._slopes_at(point, draws) if everywhere else -anchor.duals(point.margins) / anchor.cost
        v = point.params.copy()
        stochastic_run(
            rows.X,
            rows.signs,
            rows.cost,
            draws,
            share,
            eta=self._caution * min(0.5, 1.0 / (3.0 * float(rough.mean()))),
            mu=rows.mu,
            theta=rows.theta,
            constant=rows.constant,
            follow=False,
            table=table,
            mean=point.gradient - point.params,
            v=v,
        )
        candidate = anchor.at(v)
        self.n_gradients += 3 * n
        if better(candidate, point):
            self._v, self._evaluated = v, (anchor, candidate)
        elif everywhere:
            self.everywhere = False
        else:
            self._caution *= 0.5
        self.curve.append(min(candidate.value, point.value))
        return False

    def _slopes_at(self, point: Place, draws: Array) -> Array:
        """Half the derivative of the loss at the anchor, of the rows that will be drawn: (n,), zero elsewhere."""
        problem, rows = self._problem, np.unique(draws)
        sample = replace(problem, X=problem.X[rows], signs=problem.signs[rows], cost=problem.cost[rows])
        table = np.zeros(len(problem))
        table[rows] = -sample.duals(sample.margins(point.params)) / sample.cost
        self.n_gradients += len(rows)
        return table
