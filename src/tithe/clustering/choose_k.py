"""`choose_k`: the number of clusters, by one of four rules.

For the rule "separation", small pieces of the rows are joined until those that are left are separated, on several
coresets, which have to agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tithe.clustering.kernels import assign
from tithe.clustering.objective import ClusteringObjective, KMeansObjective, KMedianObjective
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset, effective_sample_size
from tithe.core.errors import warn_caller
from tithe.core.parallel import single_blas_thread
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value, resolve_size
from tithe.core.passes import DataPass
from tithe.core.seeding import as_seed, rng_for
from tithe.fit.base import check_no_extra_arrays
from tithe.reduce.plan import Plan, reduce_rows
from tithe.rows.arrays import as_block

_AUTO_ROWS = 5000  # of a coreset, whatever max_clusters is
_N_TRIALS, _MIN_AGREEING = 8, 7  # coresets that the rule "separation" is tried on, and that have to agree
RULES = ("separation", "relative", "budget", "penalty")
_MIN_PIECES, _MAX_PIECES = 16, 128  # the maximum is larger if max_clusters needs it
_MIN_ROWS_PER_PIECE = 4  # effective rows: the variance of fewer is too uncertain
_MAX_DIRECTIONS = 64  # directions in which pieces are compared
_ENTROPY_FACTOR = 1.1  # cells of a uniform cloud gain nearly the entropy of a cut
_SPLIT = 2.0 / math.pi  # share of the variance in a direction that cutting a Gaussian in two saves
_NOISE_SPLIT = 0.763  # the same share for variance that is only noise, since signs fit it (Parisi 1980)
_CUT_PARAMETERS = 3  # the share of one side, one more mean and one more variance
_MIN_VARIANCE = 1e-6  # over the mean variance of pieces, because the variance of equal rows is 0


@dataclass(frozen=True, kw_only=True, repr=False)
class KCurve:
    """Costs for several numbers of clusters, and the number that a rule chose.

    ``k`` is the choice of the rule on this data, not "the true k". ``curve`` maps each k that was tried to its cost
    Phi(k) on the coreset, which never rises in k, and ``centers`` to its solution. ``met`` says whether the ``rule``
    was satisfied within ``max_clusters``; `choose_k` warns if not. ``votes`` maps each answer to the number of
    coresets that gave it, the most frequent one first. For the rule "separation" there are eight. If fewer than seven
    agree there is no clear number: ``met`` is False, and ``k`` is the answer of most of them.

    >>> import numpy as np
    >>> from tithe import choose_k
    >>> X = np.repeat([[1.0], [5.0], [9.0]], 500, axis=0) + np.random.default_rng(0).normal(0.0, 0.1, size=(1500, 1))
    >>> result = choose_k(X, rule="penalty", penalty=100.0, max_clusters=8, random_state=0)
    >>> result.k, sorted(result.centers[3].round().ravel().tolist())
    (3, [1.0, 5.0, 9.0])
    """

    k: int
    curve: dict[int, float]
    centers: dict[int, Array]
    rule: str
    met: bool
    coreset: Coreset
    votes: dict[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        tried = ", ".join(map(str, self.curve))
        return f"KCurve(k={self.k}, rule={self.rule!r}, met={self.met}, votes={self.votes}, tried={{{tried}}})"


class _Costs:
    """Phi(k) on one coreset, computed when it is needed. It never rises in k, whatever the solver finds.

    A solution of fewer centres, the last one repeated, is a solution of k centres of the same cost. It is taken where
    the search found nothing better, from other starts or from these centres and new ones. A k that turns out to cost
    less than a larger one that was tried before improves that one in the same way.
    """

    def __init__(self, objective: ClusteringObjective, coreset: Coreset, seed: int) -> None:
        self.objective, self.coreset, self.seed = objective, coreset, seed
        self.curve: dict[int, float] = {}
        self.centers: dict[int, Array] = {}

    def __call__(self, k: int, init: Array | None = None) -> float:
        if k not in self.curve:
            self._try(k, self._solution(k, "k"))
            smaller = max((j for j in self.curve if j < k), default=None)
            if smaller is not None:
                self._try(k, self._solution(k, "warm", self.centers[smaller]))
                self._inherit(k, smaller)
            if init is not None:
                self._try(k, self._solution(k, "given", init))
            for larger in sorted(j for j in self.curve if j > k):
                if self.curve[larger] > self.curve[k]:
                    self._try(larger, self._solution(larger, "warm", self.centers[k]))
                    self._inherit(larger, k)
        return self.curve[k]

    def _solution(self, k: int, word: str, init: Array | None = None) -> Array:
        objective = replace(self.objective, n_clusters=k)
        return objective.solve(self.coreset, rng=rng_for(self.seed, word, k), init=init)

    def _try(self, k: int, centers: Array) -> None:
        """Keep the centres if none of lower cost are known."""
        cost = float(self.objective.cost(self.coreset, centers) @ self.coreset.weights())
        if k not in self.curve or cost < self.curve[k]:
            self.curve[k], self.centers[k] = cost, centers

    def _inherit(self, k: int, smaller: int) -> None:
        """Take the solution of fewer centres if it costs less."""
        if self.curve[smaller] < self.curve[k]:
            centers = self.centers[smaller]
            self.curve[k] = self.curve[smaller]
            self.centers[k] = np.concatenate([centers, np.repeat(centers[-1:], k - len(centers), axis=0)])


@single_blas_thread()
def choose_k(
    X: Any,
    *,
    sample_weight: Any = None,
    rule: str = "separation",
    budget: float | None = None,
    eta: float = 0.05,
    penalty: float | None = None,
    max_clusters: int = 64,
    objective: str = "kmeans",
    coreset_size: int | float | str = "auto",
    construction: Any = "auto",
    random_state: Any = None,
) -> KCurve:
    """Choose a number of clusters on coresets of one draw, by doubling and then by bisection.

    Parameters
    ----------
    X : array, CSR matrix, frame or source
        A source (`open_dataset`) is read once, its weights with its rows.
    sample_weight : array of shape (n,), optional
    rule : {"separation", "relative", "budget", "penalty"}
        ``"separation"``: the number of clusters with gaps between them. The rows are cut into 16, 32, 64 and 128
        pieces, or up to twice ``max_clusters``, and pieces are joined unless they are about four standard deviations
        apart along the line between their means (see `tithe.clustering.choose_k`). The answer is the number of
        clusters that is the same for twice as many pieces. It can be 1. Clusters that touch count as one, and clusters
        that are much longer than the gaps between them may too. Seven of eight coresets have to give the same answer,
        or there is no clear number.
        ``"budget"``: the smallest k with Phi(k) <= ``budget``. ``"relative"``: the smallest power of two after which
        doubling k saves less than a share ``eta`` of the cost, which is rare for rows without clusters.
        ``"penalty"``: the k tried with the smallest Phi(k) + ``penalty`` * k.
    budget, penalty : float
        For the rules of these names, in the unit of the cost.
    eta : float
        In (0, 1), for the rule ``"relative"``.
    max_clusters : int
        The largest answer. A coreset for this many serves all smaller k.
    objective : {"kmeans", "kmedian"}
    coreset_size : int, float or "auto"
        Rows of a coreset, or a fraction of the rows. ``"auto"``: 5,000. The eight of the rule ``"separation"`` are
        drawn as one, and are its parts.
    construction
        See `build_coreset`.

    Returns
    -------
    KCurve
        With the costs of each k tried, on the coreset: certify the solution that you choose. If no k up to
        ``max_clusters`` satisfies the rule, ``met`` is False and there is a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import choose_k
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(c, 0.01, size=(2000, 2)) for c in range(6)])
    >>> choose_k(X, random_state=0)
    KCurve(k=6, rule='separation', met=True, votes={6: 8}, tried={6, 16, 32, 64, 128})
    >>> choose_k(X, rule="budget", budget=20.0, max_clusters=16, random_state=0).k
    6
    """
    types = {"kmeans": KMeansObjective, "kmedian": KMedianObjective, "kmedians": KMedianObjective}
    check_value("objective", objective, OneOf(*types))
    check_value("max_clusters", max_clusters, WholeNumber(least=1))
    decide = _decision(rule, budget=budget, eta=eta, penalty=penalty)
    data = DataPass(
        check_no_extra_arrays(X, sample_weight) if isinstance(X, Source) else as_block(X, None, sample_weight)
    )
    goal = types[objective](n_clusters=min(max_clusters, data.n_expected or max_clusters))
    seed = as_seed(random_state)
    size = resolve_size(_AUTO_ROWS if coreset_size == "auto" else coreset_size, data.n_expected)
    n_trials = _N_TRIALS if rule == "separation" else 1
    reduce_seed = int(rng_for(seed, "reduce").integers(2**62))
    drawn = reduce_rows(data, Plan.of(goal, construction, n_trials * size, calibrate=True, seed=reduce_seed))
    costs, answers = [], []
    for number, coreset in enumerate(_parts(drawn, size, n_trials, seed)):
        # more clusters than rows in the coreset cost nothing there, which says nothing of all rows
        few = replace(goal, n_clusters=min(goal.n_clusters, len(coreset)))
        if number > 0:  # it only votes
            few = replace(few, n_init=1)
        costs.append(_Costs(few, coreset, int(rng_for(seed, "start", number).integers(2**62)) if number else seed))
        answers.append(decide(costs[-1], few.n_clusters))
    votes = Counter(k for k, _ in answers)
    k = max(votes, key=lambda k: (votes[k], -k))
    first = next(number for number, (other, _) in enumerate(answers) if other == k)
    met = all(met for other, met in answers if other == k)
    phi, clear = costs[first], votes[k] >= min(n_trials, _MIN_AGREEING)
    if not met:
        limit = phi.objective.n_clusters
        warn_caller(
            f"No number of clusters up to {limit} satisfies rule={rule!r}; the answer is {k}. "
            f"Raise {'max_clusters' if limit == max_clusters else 'coreset_size'}, or take another rule.",
        )
    elif not clear:
        found = ", ".join(f"{n} of {n_trials} coresets have {other}" for other, n in votes.most_common())
        warn_caller(
            f"There is no clear number of clusters: {found}. Take another rule, or a k that serves your purpose."
        )
    return KCurve(
        k=k,
        curve=dict(sorted(phi.curve.items())),
        centers=phi.centers,
        rule=rule,
        met=met and clear,
        coreset=phi.coreset,
        votes=dict(votes.most_common()),
    )


def _parts(drawn: Coreset, size: int, n_parts: int, seed: int) -> list[Coreset]:
    """Coresets of about ``size`` of the rows that were drawn: parts of them where there are enough for all."""
    n = len(drawn)
    if n_parts == 1 or n <= size:
        return [drawn] * n_parts
    order = rng_for(seed, "parts").permutation(n)
    take = min(n, max(size, -(-n // n_parts)))
    parts = []
    for number in range(n_parts):
        rows = np.sort(np.take(order, np.arange(take) + number * n // n_parts, mode="wrap"))
        weight = drawn.weights()[rows]
        part = drawn.take(rows, weight * (drawn.total_weight / weight.sum()))
        values = {"X": part.X, "y": part.y, "sample_weight": part.sample_weight, "indices": part.row_ids()}
        parts.append(replace(drawn, **values, mean=None, is_whole=False))
    return parts


def _decision(
    rule: str, *, budget: float | None, eta: float, penalty: float | None
) -> Callable[[_Costs, int], tuple[int, bool]]:
    """The function of costs and the largest k that a rule stands for; checked before a row is read."""
    check_value("rule", rule, OneOf(*RULES))
    if rule == "budget":
        check_value("budget, the cost to get below,", budget, RealNumber(least=0.0))
        assert budget is not None
        return partial(_within_budget, budget=budget)
    if rule == "relative":
        check_value("eta", eta, RealNumber(above=0.0, below=1.0))
        return partial(_until_flat, eta=eta)
    if rule == "penalty":
        check_value("penalty, the cost of one more cluster,", penalty, RealNumber(least=0.0))
        assert penalty is not None
        return partial(_penalised, penalty=penalty)
    return _separated


def _doublings(max_k: int) -> list[int]:
    ks = [1]
    while 2 * ks[-1] < max_k:
        ks.append(2 * ks[-1])
    return ks if max_k == 1 else [*ks, max_k]


def _separated(phi: _Costs, max_k: int) -> tuple[int, bool]:
    """Join the pieces of the rows, for an increasing number of pieces.

    A number of clusters is chosen if twice as many pieces give the same. It is dropped if still more pieces give more
    than twice as many clusters: the earlier pieces then held several clusters each, which looks like a uniform cloud.
    """
    limit = max(1, min(max(2 * max_k, _MAX_PIECES), int(phi.coreset.effective_size / _MIN_ROWS_PER_PIECE)))
    n_pieces, last, chosen = min(limit, _MIN_PIECES), 0, None
    while True:
        phi(n_pieces)
        clusters = separated_clusters(phi.coreset, phi.centers[n_pieces])
        if chosen is not None and len(clusters) > 2 * len(chosen):
            chosen = None
        if chosen is None and len(clusters) == last and 2 * last <= n_pieces:
            chosen = clusters
        if n_pieces == limit:
            break
        last, n_pieces = len(clusters), min(limit, 2 * n_pieces)
    if chosen is None:
        chosen = clusters
    k = min(len(chosen), max_k)
    phi(k, init=chosen if len(chosen) == k else None)
    return k, len(chosen) <= max_k and (len(chosen) < limit or limit == 1)


def _within_budget(phi: _Costs, max_k: int, *, budget: float) -> tuple[int, bool]:
    low = 0
    for k in _doublings(max_k):
        if phi(k) <= budget:
            high = k
            break
        low = k
    else:
        return max_k, False
    while high - low > 1:
        middle = (low + high) // 2
        if phi(middle) <= budget:
            high = middle
        else:
            low = middle
    return high, True


def _until_flat(phi: _Costs, max_k: int, *, eta: float) -> tuple[int, bool]:
    k = 1
    while 2 * k <= max_k:
        if phi(k) == 0.0 or phi(2 * k) / phi(k) > 1.0 - eta:
            return k, True
        k *= 2
    return k, phi(k) == 0.0


def _penalised(phi: _Costs, max_k: int, *, penalty: float) -> tuple[int, bool]:
    """Doubling brackets the minimum of Phi(k) + penalty k, and bisection on both sides of it narrows the bracket."""
    tried = _doublings(max_k)
    while True:
        for k in tried:
            phi(k)
        value = {k: phi(k) + penalty * k for k in tried}  # a smaller k may have improved larger ones
        at = tried.index(min(value, key=value.__getitem__))
        gaps = [
            (a + b) // 2 for a, b in zip(tried[max(0, at - 1) : at + 1], tried[at : at + 2], strict=False) if b - a > 1
        ]
        if not gaps:
            return tried[at], tried[at] < max_k
        tried = sorted({*tried, *gaps})


def separated_clusters(block: Block, centers: Array) -> Array:
    """Means (k, d) of the clusters that are left after the pieces, the rows nearest to each centre, are joined.

    Take two pieces of weights n_a and n_b, n = n_a + n_b, with variances v_a and v_b, and v of their union, along the
    line between their means. They are separated, two normal distributions without overlap instead of one, if

        n / 2 ln v - n_a / 2 ln v_a - n_b / 2 ln v_b  >  1.1 n H(n_a / n) + 3 / 2 ln N + n (g(d / n) - g(0)),

    H(p) = -p ln p - (1 - p) ln(1 - p). The left side is 0.51 n for halves of a normal cloud and 0.69 n for those of a
    uniform one, whatever its shape in other directions; H is 0.69, so clouds of equal weight are separated from 3.8
    standard deviations on. g is the apparent gain for halves of a normal cloud of few rows in d dimensions, since the
    line fits noise. The pair that gains most is joined, repeatedly, as long as it is not separated.

    N is the effective number of rows, the square of the sum of the weights over the sum of their squares, and weights
    are counted in this unit.
    """
    pieces = _Pieces(block, centers)
    while pieces.join():
        pass
    return pieces.means[pieces.alive]


class _Pieces:
    """Weights (K,), means (K, d), their coordinates (K, q), scatter about them (K, q, q), and gains of joining (K, K).

    The q coordinates span the means: a line between two of them has no other directions.
    """

    def __init__(self, block: Block, centers: Array) -> None:
        weight = block.weights()
        labels, _, sums = assign(block.X, centers, weight=weight, power=2, with_sums=True)
        assert sums is not None
        used = np.flatnonzero(sums[:, 0] > 0.0)
        unit = effective_sample_size(weight) / weight.sum()
        self.mass = unit * sums[used, 0]
        self.means = centers[used] + sums[used, -block.n_features :] / sums[used, :1]
        self.n_features = block.n_features
        self.price = 0.5 * _CUT_PARAMETERS * np.log(self.mass.sum())
        middle = np.average(self.means, axis=0, weights=self.mass)
        axes = np.linalg.svd((self.means - middle) * np.sqrt(self.mass)[:, None], full_matrices=False)[2]
        axes = axes[:_MAX_DIRECTIONS].T
        self.places = (self.means - middle) @ axes
        rows = np.asarray(block.X @ axes) - middle @ axes
        order = np.argsort(labels, kind="stable")
        bounds = np.searchsorted(labels[order], [used, used + 1]).T
        self.scatter = np.empty((len(used), axes.shape[1], axes.shape[1]))
        for piece, (start, stop) in enumerate(bounds):
            at = order[start:stop]
            gap = rows[at] - self.places[piece]
            self.scatter[piece] = (gap * (unit * weight[at])[:, None]).T @ gap
        spread = float(np.einsum("ijj->", self.scatter)) / (axes.shape[1] * self.mass.sum())
        self.least = max(_MIN_VARIANCE * spread, np.finfo(float).tiny)
        self.alive = np.ones(len(used), dtype=bool)  # False for pieces that were joined to another
        self.gains = np.empty((len(used), len(used)))
        for piece in range(len(used)):
            self._compare(piece)

    def _compare(self, piece: int) -> None:
        """Compute the gain of joining a piece with each of the others."""
        line = self.places - self.places[piece]
        square = np.einsum("ij,ij->i", line, line)
        line = np.divide(line, np.sqrt(square)[:, None], out=np.zeros_like(line), where=square[:, None] > 0.0)
        scatter_a = np.einsum("ij,ij->i", line @ self.scatter[piece], line)
        scatter_b = np.einsum("ij,ij->i", np.einsum("ij,ijk->ik", line, self.scatter), line)
        n_a, n_b = self.mass[piece], self.mass
        n = n_a + n_b
        # one more row of the pooled variance is added to each piece, because the variance of few rows is uncertain
        pooled = (scatter_a + scatter_b) / n + self.least

        def fit(mass: Array | float, scatter: Array) -> Array:
            value: Array = 0.5 * mass * np.log((scatter + pooled) / (mass + 1.0))
            return value

        entropy = n * np.log(n) - n_a * np.log(n_a) - n_b * np.log(n_b)
        cut = fit(n, scatter_a + scatter_b + n_a * n_b / n * square) - fit(n_a, scatter_a) - fit(n_b, scatter_b)
        gain = _ENTROPY_FACTOR * entropy + self.price + n * _from_noise(n, self.n_features) - cut
        gain[piece] = -np.inf
        gain[~self.alive] = -np.inf
        self.gains[piece] = self.gains[:, piece] = gain

    def join(self) -> bool:
        """Join the pair that gains most. Returns False if no pair gains."""
        a, b = (int(i) for i in np.unravel_index(int(self.gains.argmax()), self.gains.shape))
        if self.gains[a, b] < 0.0:
            return False
        n = self.mass[a] + self.mass[b]
        share = self.mass[b] / n
        line = self.places[b] - self.places[a]
        self.scatter[a] += self.scatter[b] + n * share * (1.0 - share) * np.outer(line, line)
        self.places[a] += share * line
        self.means[a] += share * (self.means[b] - self.means[a])
        self.mass[a], self.alive[b] = n, False
        self.gains[b] = self.gains[:, b] = -np.inf
        self._compare(a)
        return True


def apparent_variance(n_rows: Any, d: int) -> Any:
    """The largest sample variance in a direction of n rows, if the true variance is 1 in each direction."""
    return (1.0 + np.sqrt(d / n_rows)) ** 2


def apparent_split(n_rows: Any, d: int) -> Any:
    """What cutting n such rows in two seems to save: the mean over the rows."""
    return _SPLIT + _NOISE_SPLIT * (apparent_variance(n_rows, d) - 1.0)


def _from_noise(n_rows: Array, d: int) -> Array:
    """g(d / n) - g(0) with g = ln(f / (f - s)) / 2, f the variance along the line, s what the cut saves of it."""
    variance, saved = apparent_variance(n_rows, d), apparent_split(n_rows, d)
    gain: Array = 0.5 * np.log(variance / (variance - saved)) + 0.5 * np.log1p(-_SPLIT)
    return gain
