"""Labels as unknowns of a margin machine: the convex relaxation over mixtures of labelings, and a local search.

g(y) is the smallest value of the machine with labels y. Its dual with labels y has the matrix K o y y^T; the relaxation

    min over mu in the simplex of max over gamma of -gamma (K o M) gamma / 2 - A(gamma),    M = sum_t mu_t y_t y_t^T,

is the machine of two classes with all labels 1 and the kernel K o M. It is at most g(y) for each labeling y allowed.
More than two classes have no relaxation: their labels are searched for locally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, eigh, solve_triangular
from scipy.optimize import nnls
from sklearn.cluster import KMeans

from tithe.core.data import Array
from tithe.core.params import Constraint, RealNumber, WholeNumber, check_params
from tithe.core.state_checks import Storable
from tithe.odm.kernels.signs import turn_vectors
from tithe.odm.solvers.kernel_matrix import label_losses
from tithe.odm.solvers.label_machines import LabelMachine, LabelProblem, ManyProblem, MarginProblem
from tithe.odm.solvers.labelings import MAX_LISTED_GROUPS, Assignments, Labelings

_MAX_SIMPLEX_STEPS = 200
_SUM_WEIGHT = 1e3  # of the equation sum of mu = 1 in a least squares problem, relative to its other entries
_MIN_SHARE = 1e-9  # of a labeling in the mixture, below which it is left out of it
_MAX_TRIALS = 6  # on the way to a proposal
_MAX_CUT_STEPS = 100
_RANK, _VECTOR_SWEEPS = 12, 20  # of the unit vectors that are rounded to labelings


@dataclass(frozen=True, kw_only=True)
class LabelSearch(Storable):
    """How long labels are searched for.

    Parameters
    ----------
    max_cuts : int
        Maximum number of rounds of cutting planes.
    n_restarts : int
        Searches for a cutting plane from random labels, in each round.
    tol : float
        The relaxation ends where a cutting plane lowers its value by less than this share.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import LabelSearch, ODMClustering
    >>> X = np.random.default_rng(0).normal(size=(40, 2)) + 6.0 * (np.arange(40) % 2)[:, None]
    >>> model = ODMClustering(search=LabelSearch(max_cuts=2, n_restarts=1), random_state=0).fit(X)
    >>> bool((model.labels_ == np.arange(40) % 2).all())
    True
    """

    max_cuts: int = 20
    n_restarts: int = 5
    tol: float = 1e-3

    def __post_init__(self) -> None:
        check_params(self, _SEARCH_CONSTRAINTS)


_SEARCH_CONSTRAINTS: dict[str, Constraint] = {
    "max_cuts": WholeNumber(),
    "n_restarts": WholeNumber(),
    "tol": RealNumber(above=0.0),
}


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The relaxation over ``labels`` (T, n): shares mu (T,) of sum 1, multipliers (n,), and its value from above."""

    labels: Array
    share: Array
    gamma: Array
    value: float

    def matrix(self) -> Array:
        """M: (n, n)."""
        return np.asarray((self.labels.T * self.share) @ self.labels)


def squares_of(problem: MarginProblem, labels: Array, gamma: Array) -> Array:
    """q_t = y_t^T H y_t with H = diag(gamma) K diag(gamma): (T,)."""
    scaled = labels * gamma
    return np.asarray(np.einsum("ti,ti->t", scaled, scaled @ problem.matrix))


def mix(problem: MarginProblem, labels: Array, share: Array, start: Array | None, *, tol: float) -> Mixture:
    """The best shares of some labelings: steps over gamma and over the simplex in turn.

    With q_t = y_t^T H y_t the value is convex in the shares, gradient -q / 2, and within (max q - mu . q) / 2 of the
    smallest. Where Newton's step fails, mu_t is multiplied by sqrt(q_t), which never raises the value.
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
    search: LabelSearch,
    rng: np.random.Generator,
) -> Mixture:
    """The relaxation over all labelings allowed, by cutting planes, from the labelings ``labels`` on."""
    labels = distinct(labels)
    mixture = mix(problem, labels, np.full(len(labels), 1.0 / len(labels)), None, tol=0.1 * search.tol)
    for _ in range(search.max_cuts):
        new = cuts(problem, labelings, mixture, search, rng)
        if len(new) == 0:
            break
        kept = mixture.share > _MIN_SHARE
        old, share = mixture.labels[kept], mixture.share[kept]
        part = 1.0 / (len(old) + len(new))
        share = np.concatenate([share / share.sum() * (1.0 - part * len(new)), np.full(len(new), part)])
        wider = mix(problem, np.vstack([old, new]), share, mixture.gamma, tol=0.1 * search.tol)
        fall = mixture.value - wider.value
        if wider.value < mixture.value:
            mixture = wider
        if fall <= search.tol * mixture.value:
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
    problem: MarginProblem, labelings: Labelings, mixture: Mixture, search: LabelSearch, rng: np.random.Generator
) -> Array:
    """Labelings with a larger y^T H y than those of the mixture: (k, n), none if the local search meets none.

    It goes up from the best labeling so far, from random ones, and from roundings of unit vectors in place of signs.
    """
    H = problem.matrix * np.outer(mixture.gamma, mixture.gamma)
    q = np.einsum("ti,ti->t", mixture.labels @ H, mixture.labels)
    starts = [mixture.labels[q.argmax()]]
    starts += [labelings.best(v) for v in _rounded_directions(H, search.n_restarts, rng)]
    starts += [labelings.best(rng.normal(size=len(H))) for _ in range(search.n_restarts)]
    tops = distinct(np.array([_climb(H, labelings, y) for y in starts]))
    value = np.einsum("ti,ti->t", tops @ H, tops)
    better = np.flatnonzero(value > q.max() + max(search.tol * mixture.value, 1e-13 * abs(q.max())))
    return tops[better[np.argsort(-value[better], kind="stable")]]


def _rounded_directions(H: Array, n_random: int, rng: np.random.Generator) -> Array:
    """Projections of unit vectors, one for each row, on their main and on random directions: (directions, n)."""
    vectors = rng.normal(size=(len(H), _RANK))
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    turn_vectors(H, vectors, _VECTOR_SWEEPS, 0.0)
    main = np.linalg.svd(vectors, full_matrices=False)[2][:3]
    return np.asarray(np.vstack([main, rng.normal(size=(n_random, _RANK))]) @ vectors.T)


def _climb(H: Array, labelings: Labelings, y: Array) -> Array:
    """A labeling that neither the best one for the slope nor a change of one or two groups improves."""
    slope = H @ y
    for _ in range(_MAX_CUT_STEPS):
        better = labelings.best(slope)
        if not better @ slope > (y @ slope) * (1.0 + 1e-12):
            break
        y, slope = better, H @ better
    return labelings.exchange(H, y)


_MAX_SWEEPS = 200
_SWEEP_TOL = 1e-5  # share of the function by which a sweep must raise it, else the search ends
_MAX_PENALTIES = 20  # tried for the balance
_MAX_BOUND_ROUNDS = 8  # of better multipliers
_MIN_GAIN = 1e-3  # relative gain of the bound below which no other multipliers are tried
_ROUNDING = 1e-10


def lower_bound(
    problem: MarginProblem, labelings: Labelings, gamma: Array, M: Array, rng: np.random.Generator
) -> float:
    """A number that is at most g(y) for every labeling y allowed.

    For any gamma, g(y) >= -A(gamma) - y^T H y / 2, H = diag(gamma) K diag(gamma): the maximum of y^T H y where
    labelings can be listed, else that of the semi-definite relaxation, towards whose solution ``gamma`` and ``M`` are
    moved.
    """
    if len(labelings.free) <= MAX_LISTED_GROUPS:
        every = np.array(list(labelings.every()))
        H = problem.matrix * np.outer(gamma, gamma)
        return _value(problem, gamma, float(np.einsum("ti,ti->t", every @ H, every).max()))
    best, vectors = -np.inf, None
    for _ in range(_MAX_BOUND_ROUNDS):
        square, vectors = _largest_square(labelings, problem.matrix * np.outer(gamma, gamma), vectors, rng)
        value = _value(problem, gamma, square)
        previous, best = best, max(best, value)
        if not value > previous + _MIN_GAIN * abs(value):
            break
        every = np.outer(labelings.groups.fixed, vectors[-1])  # the last vector is that of the given labels
        every[labelings.free] = vectors[: len(labelings.free)]
        of_rows = every[labelings.groups.group] * labelings.groups.sign[:, None]
        gamma, M = _towards(problem, gamma, M, of_rows @ of_rows.T)
    return best


def _value(problem: MarginProblem, gamma: Array, square: float) -> float:
    """The bound for the best multiple of gamma: -A(gamma) is linear, less half of the sum of D gamma^2."""
    linear = problem.low * float(np.maximum(gamma, 0.0).sum()) + problem.high * float(np.minimum(gamma, 0.0).sum())
    squares = float((gamma**2 / np.where(gamma < 0.0, problem.mu * problem.cost, problem.cost)).sum())
    return 0.0 if linear <= 0.0 else linear * linear / (2.0 * (squares + square))


def _towards(problem: MarginProblem, gamma: Array, M: Array, target: Array) -> tuple[Array, Array]:
    """Multipliers and mixture on the way from M to ``target`` with about the smallest value."""
    left, right = 0.0, 1.0
    for _ in range(5):
        middle = 0.5 * (left + right)
        mixed = (1.0 - middle) * M + middle * target
        gamma = problem.solve_mixture(mixed, gamma).gamma
        slope = -float(gamma @ (problem.matrix * (target - M)) @ gamma)
        left, right = (middle, right) if slope < 0.0 else (left, middle)
    return gamma, mixed


def _largest_square(
    labelings: Labelings, H: Array, vectors: Array | None, rng: np.random.Generator
) -> tuple[float, Array]:
    """An upper bound on y^T H y, and the unit vectors that gave it.

    For signs t of p groups (the last one is that of the given labels, which is 1) and a balance |a . t| <= h, t^T G t
    <= sum of d + penalty h^2 where diag(d) + penalty a a^T - G is positive semi-definite.
    """
    G, c, constant = labelings.contract(H)
    G = np.block([[G, c[:, None]], [c[None], np.array([[constant]])]])
    a, half_width = labelings.centred_sizes()
    rank = int(np.sqrt(2.0 * len(G))) + 2
    if vectors is None:
        vectors = rng.normal(size=(len(G), rank))
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    best, penalty, low, high = np.inf, 0.0, 0.0, np.inf
    for _ in range(_MAX_PENALTIES):
        square = _bound_at(G - penalty * np.outer(a, a), vectors) + penalty * half_width**2
        excess = float(np.square(a @ vectors).sum()) - half_width**2
        improved = square < best * (1.0 - 1e-3)
        best = min(best, square)
        if (excess <= 0.0 and penalty == 0.0) or (not improved and penalty > 0.0):
            break
        low, high = (penalty, high) if excess > 0.0 else (low, penalty)
        first = float(np.abs(G).sum()) / max(float(np.abs(a).sum()) ** 2, 1e-300)
        penalty = (first if low == 0.0 else 4.0 * low) if np.isinf(high) else 0.5 * (low + high)
    return best, vectors


def _bound_at(G: Array, vectors: Array) -> float:
    """sum of d with diag(d) - G positive semi-definite."""
    scale = float(np.abs(G).sum())
    lengths = turn_vectors(G, vectors, _MAX_SWEEPS, _SWEEP_TOL * abs(float(np.vdot(vectors, G @ vectors))))
    d = lengths + np.diagonal(G)
    missing = float(np.linalg.eigvalsh(G - np.diag(d))[-1])
    return float(d.sum()) + len(G) * max(missing, 0.0) + _ROUNDING * scale


_MAX_STEPS = 100  # of a local search
_SPREADING = 0.99  # share of a row's label that comes from its neighbours
_POWERS = (1, 4)  # of the entries of a kernel matrix
_N_DIRECTIONS = 3  # eigenvectors whose signs are tried as labels
_N_RANDOM = 3  # random labelings that are tried
_MAX_CANDIDATES = 8  # labelings of the mixture that are refined
_MIN_FALL = 1e-9  # relative fall of the value below which a step is not taken
_MAX_HALVINGS = 8  # of the number of rows that change their label in one step


@dataclass(frozen=True, kw_only=True)
class FoundLabels:
    """Class numbers of the rows searched, the scores of their machine, and its value g.

    No labels that are allowed have a g below ``bound``; ``relaxed`` is the value of the relaxation over the labelings
    that the search met. Both are None where there is no relaxation.
    """

    codes: Array
    scores: Array
    value: float
    bound: float | None = None
    relaxed: float | None = None

    @classmethod
    def of(cls, machine: LabelMachine, bound: float | None = None, relaxed: float | None = None) -> FoundLabels:
        """The labels of a machine of two classes."""
        codes = (machine.sign > 0.0).astype(np.int64)
        return cls(codes=codes, scores=machine.score, value=machine.value, bound=bound, relaxed=relaxed)


def search_labels(
    problem: MarginProblem,
    labelings: Labelings,
    starts: Array,
    search: LabelSearch,
    rng: np.random.Generator,
) -> FoundLabels:
    """The labels with the smallest value that the relaxation and the local search find, from labelings (k, n) on.

    The leading eigenvector of the relaxation, and the labelings that it is a mixture of, are rounded and refined
    again.
    """
    random = [labelings.best(rng.normal(size=len(problem.cost))) for _ in range(_N_RANDOM)]
    refined = [refine(problem, labelings, y) for y in distinct(np.vstack([*starts, *random]))]
    labels = distinct(np.array([machine.sign for machine in refined]))
    mixture = relax(problem, labelings, labels, search, rng)
    leading = eigh(mixture.matrix(), subset_by_index=[len(labels[0]) - 1] * 2)[1][:, 0]
    likely = mixture.labels[np.argsort(-mixture.share, kind="stable")[:_MAX_CANDIDATES]]
    known = {_key(machine.sign) for machine in refined}
    signs = (1.0, -1.0) if labelings.groups.fixed.any() else (1.0,)  # the opposite differs where labels are given
    for y in distinct(np.vstack([*(labelings.best(sign * leading) for sign in signs), likely])):
        if _key(y) not in known:
            refined.append(refine(problem, labelings, y))
    best = min(refined, key=lambda machine: machine.value)
    bound = lower_bound(problem, labelings, mixture.gamma, mixture.matrix(), rng)
    return FoundLabels.of(best, min(bound, best.value), mixture.value)


def _key(y: Array) -> bytes:
    """The same for a labeling and its opposite."""
    result: bytes = (y * y[0]).astype(np.int8).tobytes()
    return result


def spectral_starts(labelings: Labelings, K: Array, weight: Array) -> Array:
    """Labelings from the leading eigenvectors of the matrices that `smooth_matrices` gives: (s, n)."""
    root, starts = np.sqrt(weight), []
    for matrix in smooth_matrices(K, weight):
        first = max(0, len(K) - _N_DIRECTIONS)
        vectors = eigh(matrix * np.outer(root, root), subset_by_index=[first, len(K) - 1])[1]
        starts += [labelings.best(v / root) for v in vectors.T[::-1]]
    return np.array(starts)


def smooth_matrices(K: Array, weight: Array) -> list[Array]:
    """Matrices (n, n) whose leading eigenvectors are smooth functions of the rows and not constant.

    K centred and, where no entry is negative, its powers normalised by row sums as in spectral clustering.
    """
    degree = K @ weight
    matrices = [K - degree - degree[:, None] + float(weight @ degree)]
    for power in _POWERS if K.min() >= 0.0 else ():
        narrow = K**power
        degree = narrow @ weight
        if degree.min() > 0.0:  # the first eigenvector, which is the root of the row sums, is taken away
            root = np.sqrt(degree)
            matrices.append(narrow / np.outer(root, root) - np.outer(root, root) / float(weight @ degree))
    return matrices


def spreading_factors(K: Array, weight: Array) -> list[tuple[Array, bool]]:
    """Cholesky factors of I - a S, one for each width of the neighbourhood, S the normalised kernel matrix."""
    factors = []
    for power in _POWERS if K.min() >= 0.0 else ():
        narrow = K**power * np.sqrt(np.outer(weight, weight))
        root = np.sqrt(np.maximum(narrow.sum(axis=1), 1e-300))
        matrix = narrow * (-_SPREADING / np.outer(root, root))
        matrix[np.diag_indices_from(matrix)] += 1.0
        factors.append(cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False))
    return factors


def refine(problem: LabelProblem, labelings: Labelings, y: Array) -> LabelMachine:
    """The machine of labels whose value no step of the local search makes smaller.

    A row's label is judged by the machine that is fitted without this row: its own label would speak for itself.
    """
    machine = problem.solve(y)
    for _ in range(_MAX_STEPS):
        step = _step(problem, labelings, machine)
        if step is None:
            break
        machine = step
    return machine


def _step(problem: LabelProblem, labelings: Labelings, machine: LabelMachine) -> LabelMachine | None:
    y, margin = machine.sign, machine.margins()
    tried = {y.tobytes()}
    alone = y * (problem.loss(-margin) - problem.loss(margin))
    without = problem.costs_without(machine)
    for c in (without, alone):
        for proposal in _proposals(labelings, y, c):
            if proposal.tobytes() not in tried:
                tried.add(proposal.tobytes())
                trial = problem.solve(proposal, machine)
                if trial.value < machine.value * (1.0 - _MIN_FALL):
                    return trial
    return None


def _proposals(labelings: Labelings, y: Array, c: Array) -> list[Array]:
    """The best labeling for c, and ones nearer to y: ever fewer rows, those that gain most, may change."""
    proposals = [labelings.best(c)]
    changed = np.flatnonzero(proposals[0] != y)
    large = 2.0 * float(np.abs(c).sum()) + 1.0
    order = changed[np.argsort(y[changed] * c[changed], kind="stable")]
    count = len(order)
    for _ in range(_MAX_HALVINGS):
        count //= 2
        if count == 0:
            break
        kept = np.ones(len(y), bool)
        kept[order[:count]] = False
        proposals.append(labelings.best(np.where(kept, large * y, c)))
    return proposals


_MAX_ASSIGNMENTS = 30
_N_PARTS = 5  # rows of a part are judged by the machine that is fitted to the other parts
_N_INIT = 5  # searches of k-means for each start


def search_assignment(
    problem: ManyProblem, assignments: Assignments, starts: list[Array], rng: np.random.Generator
) -> FoundLabels:
    """The labels with the smallest value that a local search from each start finds."""
    parts = rng.permutation(len(problem.cost)) % _N_PARTS
    results, known = [], set()
    for labels in starts:
        if labels.tobytes() not in known:
            known.add(labels.tobytes())
            results.append(_local_search(problem, assignments, labels, parts))
    return min(results, key=lambda result: result.value)


def _local_search(problem: ManyProblem, assignments: Assignments, labels: Array, parts: Array) -> FoundLabels:
    """Assign and fit in turn, as long as the value falls."""
    value, scores = problem.solve(labels)
    for _ in range(_MAX_ASSIGNMENTS):
        for judged in (problem.scores_without(labels, parts), scores):
            proposal = assignments.cheapest(label_losses(judged, problem.cost, problem.mu, problem.theta))
            if np.array_equal(proposal, labels):
                continue
            trial, trial_scores = problem.solve(proposal)
            if trial < value * (1.0 - 1e-6):
                labels, value, scores = proposal, trial, trial_scores
                break
        else:
            break
    return FoundLabels(codes=labels, scores=scores, value=value)


def clustering_starts(assignments: Assignments, K: Array, weight: Array, rng: np.random.Generator) -> list[Array]:
    """k-means on the leading eigenvectors of the kernel matrix, centred and normalised by its row sums."""
    k, n, root, starts = assignments.n_classes, len(K), np.sqrt(weight), []
    for matrix in smooth_matrices(K, weight):
        values, vectors = eigh(matrix * np.outer(root, root), subset_by_index=[max(0, n - k + 1), n - 1])
        points = vectors / root[:, None] * np.sqrt(np.maximum(values, 0.0))
        seed = int(rng.integers(2**31 - 1))
        model = KMeans(k, n_init=_N_INIT, random_state=seed).fit(points, sample_weight=weight)
        starts.append(assignments.cheapest(weight[:, None] * model.transform(points) ** 2))
    return starts
