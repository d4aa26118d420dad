"""Labels as unknowns of a margin machine: the convex relaxation over mixtures of labelings.

g(y) is the smallest value of the machine with labels y. Its dual with labels y has the matrix K o y y^T; the relaxation

    min over mu in the simplex of max over gamma of -gamma (K o M) gamma / 2 - A(gamma),    M = sum_t mu_t y_t y_t^T,

is the machine of two classes with all labels 1 and the kernel K o M. It is at most g(y) for each labeling y allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular
from scipy.optimize import nnls

from tithe.core.data import Array
from tithe.odm.kernels.signs import turn_vectors
from tithe.odm.solvers.kernel_functions import GivenKernel
from tithe.odm.solvers.kernel_matrix import Gram, kernel_not_psd_error
from tithe.odm.solvers.labelings import Labelings
from tithe.odm.solvers.two_classes import Dual, newton_step, solve_two_classes

_MAX_NEWTON_STEPS = 30  # after which coordinate descent is used too
_MAX_SOLVER_ROUNDS = 1000
_MAX_SIMPLEX_STEPS = 200
_SUM_WEIGHT = 1e3  # of the equation sum of mu = 1 in a least squares problem, relative to its other entries
_MIN_SHARE = 1e-9  # of a labeling in the mixture, below which it is left out of it
_MAX_TRIALS = 6  # on the way to a proposal
_MAX_CUT_STEPS = 100
_RANK, _VECTOR_SWEEPS = 12, 20  # of the unit vectors that are rounded to labelings


def margin_loss(margin: Array, cost: Array, mu: float, theta: float) -> Array:
    """C ([1 - theta - u]+^2 + mu [u - 1 - theta]+^2) / 2 for margins u."""
    short, over = np.maximum(1.0 - theta - margin, 0.0), np.maximum(margin - 1.0 - theta, 0.0)
    loss: Array = 0.5 * cost * (short * short + mu * over * over)
    return loss


def costs_without_row(y: Array, rest: Array, own: Array, cost: Array, mu: float, theta: float) -> Array:
    """What label -1 costs more than label 1, from margins without each row and the kernel left for it.

    A margin u costs [low - u]+^2 / (2 (s + 1/C)) or [u - high]+^2 / (2 (s + 1/(mu C))), s = ``own``.
    """
    soft = 1.0 / cost
    stiff = soft / mu if mu > 0.0 else np.full(len(y), np.inf)

    def value(u: Array) -> Array:
        short, over = np.maximum(1.0 - theta - u, 0.0), np.maximum(u - 1.0 - theta, 0.0)
        result: Array = 0.5 * (short * short / (own + soft) + over * over / (own + stiff))
        return result

    difference: Array = y * (value(-rest) - value(rest))
    return difference


class LabelMachine(Protocol):
    """A machine fitted to labels: its labels, scores and multipliers (n,), and its value."""

    @property
    def sign(self) -> Array: ...
    @property
    def score(self) -> Array: ...
    @property
    def gamma(self) -> Array: ...
    @property
    def value(self) -> float: ...
    def margins(self) -> Array: ...


M = TypeVar("M", bound=LabelMachine)


class LabelProblem(Protocol[M]):
    """Machines that differ in their labels only."""

    def solve(self, y: Array, start: LabelMachine | None = None) -> M: ...
    def loss(self, margin: Array) -> Array: ...
    def costs_without(self, machine: M) -> Array: ...


@dataclass(frozen=True, kw_only=True)
class KernelMachine:
    """Labels, scores, multipliers and value of a machine with a kernel."""

    sign: Array
    score: Array
    gamma: Array
    value: float

    def margins(self) -> Array:
        return self.sign * self.score


@dataclass(frozen=True, kw_only=True)
class MarginProblem:
    """Machines of two classes that differ in their labels only.

    Parameters
    ----------
    matrix : (n, n)
        The kernel matrix.
    cost : (n,)
        C of each row.
    mu, theta : float
        Of the band: see `Band`.
    tol : float
        Relative duality gap to which machines are solved.
    """

    matrix: Array
    cost: Array
    mu: float
    theta: float
    tol: float = 1e-8

    @cached_property
    def _gram(self) -> Gram:
        return self._as_gram(self.matrix)

    def _as_gram(self, matrix: Array) -> Gram:
        return Gram(GivenKernel(matrix=matrix), np.arange(len(matrix)), cache_bytes=np.inf)

    def solve(self, y: Array, start: LabelMachine | None = None) -> KernelMachine:
        """The machine with labels y; ``start`` is a machine to begin with."""
        return self._solved(self._gram, y, None if start is None else start.gamma)

    def solve_mixture(self, M: Array, start: Array | None = None) -> KernelMachine:
        """The machine with all labels 1 and the kernel K o M; ``start`` are multipliers to begin with."""
        return self._solved(self._as_gram(self.matrix * M), np.ones(len(M)), start)

    def _solved(self, gram: Gram, sign: Array, start: Array | None) -> KernelMachine:
        dual = self._solved_dual(gram, sign, start)
        return KernelMachine(sign=sign, score=dual.score, gamma=dual.gamma, value=dual.gap()[1])

    def _solved_dual(self, gram: Gram, sign: Array, start: Array | None) -> Dual:
        dual = Dual(gram=gram, sign=sign, cost=self.cost, mu=self.mu, theta=self.theta)
        if start is not None:
            dual.gamma = start.copy()
            dual.renew()
        for _ in range(_MAX_NEWTON_STEPS):
            clipped = dual if self.mu > 0.0 else dual.clipped()
            gap, primal = clipped.gap()
            if gap <= self.tol * primal:
                return clipped
            if not newton_step(dual, None, free=False, accuracy=0.0):
                break
        rng = np.random.default_rng(0)  # the same labels must have the same value whenever they are tried
        solve_two_classes(clipped, tol=self.tol, max_iter=_MAX_SOLVER_ROUNDS, rng=rng, free=False)
        return clipped

    def value(self, y: Array) -> float:
        """g(y), from above."""
        return self.solve(y).value

    def loss(self, margin: Array) -> Array:
        """C l(u) / 2 of each row."""
        return margin_loss(margin, self.cost, self.mu, self.theta)

    def costs_without(self, machine: KernelMachine) -> Array:
        """What each row costs with label -1 minus what it costs with label 1, by the machine of all other rows.

        With R the inverse of Q + D among the rows outside the band, the margin of one of them without itself is
        r - gamma / R_ii, and 1 / R_ii = s + D, s the part of the kernel that the others do not explain.
        """
        y, margin, gamma = machine.sign, machine.margins(), machine.gamma
        Q = self.matrix * np.outer(y, y)
        low, high = 1.0 - self.theta, 1.0 + self.theta
        outside = np.where(gamma > 0.0, margin < low, (gamma < 0.0) & (margin > high))  # gamma may be off by rounding
        rows = np.flatnonzero(outside)
        rest, own = margin.copy(), np.diagonal(Q).copy()
        if len(rows):
            ridge = 1.0 / np.where(gamma[rows] > 0.0, self.cost[rows], self.mu * self.cost[rows])
            inner = Q[np.ix_(rows, rows)]
            inner[np.diag_indices_from(inner)] += ridge
            try:
                factor = cho_factor(inner, lower=True, check_finite=False)
            except LinAlgError:
                raise kernel_not_psd_error() from None
            inverse = np.diagonal(cho_solve(factor, np.eye(len(rows)), check_finite=False))
            own[rows] = 1.0 / inverse - ridge
            rest[rows] = margin[rows] - gamma[rows] * own[rows]
            others = np.flatnonzero(~outside)
            columns = Q[np.ix_(rows, others)]
            own[others] -= np.einsum("ij,ij->j", columns, cho_solve(factor, columns, check_finite=False))
        return costs_without_row(y, rest, np.maximum(own, 0.0), self.cost, self.mu, self.theta)

    def dual_parts(self, gamma: Array) -> tuple[float, float]:
        """The linear part of -A(gamma) and the sum of D gamma^2: -A = linear - squares / 2."""
        plus, minus = np.maximum(gamma, 0.0), np.maximum(-gamma, 0.0)
        linear = (1.0 - self.theta) * float(plus.sum()) - (1.0 + self.theta) * float(minus.sum())
        squares = float((plus * plus / self.cost).sum())
        if minus.any():
            squares += float((minus * minus / (self.mu * self.cost)).sum())
        return linear, squares


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A solution of the relaxation over the labelings at hand.

    Parameters
    ----------
    labels : (T, n)
    share : (T,)
        mu, which sums to 1.
    gamma : (n,)
    value : float
        The value of the mixture, from above.
    """

    labels: Array
    share: Array
    gamma: Array
    value: float

    def matrix(self) -> Array:
        """M: (n, n)."""
        M: Array = (self.labels.T * self.share) @ self.labels
        return M


def squares_of(problem: MarginProblem, labels: Array, gamma: Array) -> Array:
    """q_t = y_t^T H y_t with H = diag(gamma) K diag(gamma): (T,)."""
    scaled = labels * gamma
    squares: Array = np.einsum("ti,ti->t", scaled, scaled @ problem.matrix)
    return squares


def mix(problem: MarginProblem, labels: Array, share: Array, start: Array | None, *, tol: float) -> Mixture:
    """The best shares of some labelings: steps over gamma and over the simplex in turn.

    With q_t = y_t^T H y_t, the value is convex in the shares with gradient -q / 2. So it is within (max q - mu . q) / 2
    of the smallest, which ends the search at a share ``tol`` of the value. Newton's step for the rows now outside the
    band is a least squares problem. Where it fails, mu_t is multiplied by sqrt(q_t) instead, which minimises the sum of
    |w_t|^2 / mu_t and never raises the value.
    """
    current = _solved(problem, labels, share, start)
    for _ in range(_MAX_SIMPLEX_STEPS):
        q = squares_of(problem, labels, current.gamma)
        if 0.5 * (q.max() - current.share @ q) <= tol * current.value:
            break
        proposal = _newton_share(problem, current)
        step = None if proposal is None else _line_search(problem, current, proposal)
        if step is None:
            grown = np.maximum(current.share, _MIN_SHARE) * np.sqrt(np.maximum(q, 0.0))
            step = _solved(problem, labels, grown / grown.sum(), current.gamma)
            if not step.value < current.value * (1.0 - 1e-15):
                break
        current = step
    return current


def _solved(problem: MarginProblem, labels: Array, share: Array, start: Array | None) -> Mixture:
    share = np.maximum(share, 0.0) / np.maximum(share, 0.0).sum()
    machine = problem.solve_mixture((labels.T * share) @ labels, start)
    return Mixture(labels=labels, share=share, gamma=machine.gamma, value=machine.value)


def _line_search(problem: MarginProblem, mixture: Mixture, proposal: Array) -> Mixture | None:
    """The mixture on the way to a proposal at which the value stops falling, roughly; None if it does not fall."""
    direction, best = proposal - mixture.share, None
    first = -0.5 * float(squares_of(problem, mixture.labels, mixture.gamma) @ direction)
    length = 1.0
    for _ in range(_MAX_TRIALS if first < 0.0 else 0):
        trial = _solved(problem, mixture.labels, mixture.share + length * direction, mixture.gamma)
        slope = -0.5 * float(squares_of(problem, mixture.labels, trial.gamma) @ direction)
        if trial.value < (mixture.value if best is None else best.value):
            best = trial
        if slope <= 0.1 * abs(first):
            break
        length *= min(max(first / (first - slope), 0.05), 0.5)  # the value is convex on the way
    return best


def _newton_share(problem: MarginProblem, mixture: Mixture) -> Array | None:
    """The shares with the smallest value while the rows outside the band stay the same; None if they cannot be found.

    The value is then r (K o M + D)^-1 r / 2 of these rows. With L the Cholesky factor, a_t = L^-1 (K o y_t y_t^T) gamma
    and b = L^-1 r, its second order model at mu_0 is |A mu - A mu_0 - b / 2|^2 / 2 up to a constant.
    """
    gamma, labels = mixture.gamma, mixture.labels
    rows = np.flatnonzero(gamma)
    if len(rows) == 0:
        return None
    over = gamma[rows] < 0.0
    ridge = 1.0 / np.where(over, problem.mu * problem.cost[rows], problem.cost[rows])
    tied = labels[:, rows]
    inner = problem.matrix[np.ix_(rows, rows)] * ((tied.T * mixture.share) @ tied)
    inner[np.diag_indices_from(inner)] += ridge
    try:
        low, _ = cho_factor(inner, lower=True, check_finite=False)
    except LinAlgError:
        return None
    goal = np.where(over, 1.0 + problem.theta, 1.0 - problem.theta)
    columns = tied.T * (problem.matrix[rows] @ (labels * gamma).T)
    solved = solve_triangular(low, np.column_stack([columns, goal]), lower=True, check_finite=False)
    A, b = solved[:, :-1], solved[:, -1]
    weight = _SUM_WEIGHT * float(np.abs(A).max(initial=0.0) or 1.0)
    try:
        share, _ = nnls(np.vstack([A, np.full(len(labels), weight)]), np.append(A @ mixture.share + 0.5 * b, weight))
    except RuntimeError:  # too many iterations
        return None
    return share if share.sum() > 0.0 else None


def relax(
    problem: MarginProblem,
    labelings: Labelings,
    labels: Array,
    *,
    tol: float,
    max_cuts: int,
    n_restarts: int,
    rng: np.random.Generator,
) -> Mixture:
    """The relaxation over all labelings allowed, by cutting planes.

    Labelings are added as long as one has a larger y^T H y than all at hand; each of them lowers the value. ``tol`` is
    the relative fall of the value at which the search ends.
    """
    labels = distinct(labels)
    mixture = mix(problem, labels, np.full(len(labels), 1.0 / len(labels)), None, tol=0.1 * tol)
    for _ in range(max_cuts):
        new = cuts(problem, labelings, mixture, n_restarts=n_restarts, tol=tol, rng=rng)
        if len(new) == 0:
            break
        kept = mixture.share > _MIN_SHARE
        old, share = mixture.labels[kept], mixture.share[kept]
        part = 1.0 / (len(old) + len(new))
        share = np.concatenate([share / share.sum() * (1.0 - part * len(new)), np.full(len(new), part)])
        wider = mix(problem, np.vstack([old, new]), share, mixture.gamma, tol=0.1 * tol)
        fall = mixture.value - wider.value
        if wider.value < mixture.value:
            mixture = wider
        if fall <= tol * mixture.value:
            break
    return mixture


def distinct(labels: Array) -> Array:
    """Labelings without those that equal an earlier one up to the sign: y y^T is the same."""
    kept: list[Array] = []
    for y in labels:
        if all(abs(float(y @ other)) < len(y) for other in kept):
            kept.append(y)
    return np.array(kept)


def cuts(
    problem: MarginProblem,
    labelings: Labelings,
    mixture: Mixture,
    *,
    n_restarts: int,
    tol: float,
    rng: np.random.Generator,
) -> Array:
    """Labelings with a larger y^T H y than those of the mixture: (k, n), none if the search meets none.

    From a labeling y, that with the largest y'^T H y has a larger square, as H is positive semi-definite. So it goes up
    from the best labeling at hand, from random ones, and from roundings of unit vectors that maximise the same function
    in place of signs. This is a local search, and may miss a labeling.
    """
    H = problem.matrix * np.outer(mixture.gamma, mixture.gamma)
    q = np.einsum("ti,ti->t", mixture.labels @ H, mixture.labels)
    starts = [mixture.labels[q.argmax()]]
    starts += [labelings.best(v) for v in _rounded_directions(H, n_restarts, rng)]
    starts += [labelings.best(rng.normal(size=len(H))) for _ in range(n_restarts)]
    tops = distinct(np.array([_climb(H, labelings, y) for y in starts]))
    value = np.einsum("ti,ti->t", tops @ H, tops)
    better = np.flatnonzero(value > q.max() + max(tol * mixture.value, 1e-13 * abs(q.max())))
    return tops[better[np.argsort(-value[better], kind="stable")]]


def _rounded_directions(H: Array, n_random: int, rng: np.random.Generator) -> Array:
    """Projections of unit vectors, one for each row, on their main and on random directions: (directions, n)."""
    vectors = rng.normal(size=(len(H), _RANK))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    turn_vectors(H, vectors, _VECTOR_SWEEPS, 0.0)
    main = np.linalg.svd(vectors, full_matrices=False)[2][:3]
    directions: Array = np.vstack([main, rng.normal(size=(n_random, _RANK))]) @ vectors.T
    return directions


def _climb(H: Array, labelings: Labelings, y: Array) -> Array:
    """A labeling that neither the best one for the slope nor a change of one or two groups improves."""
    slope = H @ y
    for _ in range(_MAX_CUT_STEPS):
        better = labelings.best(slope)
        if not better @ slope > (y @ slope) * (1.0 + 1e-12):
            break
        y, slope = better, H @ better
    return labelings.exchange(H, y)
