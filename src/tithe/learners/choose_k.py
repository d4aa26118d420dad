"""`choose_k`: the number of clusters, by one of four rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array, Coreset
from tithe.core.errors import warn_caller
from tithe.core.passes import DataPass
from tithe.core.seeding import as_seed, rng_for
from tithe.learners.base import check_no_extra_arrays
from tithe.learners.separation import separated_clusters
from tithe.objectives.clustering import ClusteringObjective, KMeansObjective, KMedianObjective
from tithe.reduce.build import reduce_rows, resolve_size
from tithe.reduce.plan import Plan
from tithe.sources.arrays import as_block

_MIN_PIECES, _MAX_PIECES = 16, 128  # the maximum is larger if max_clusters needs it
_MIN_ROWS_PER_PIECE = 4  # effective rows: the variance of fewer is too uncertain


@dataclass(frozen=True, kw_only=True, repr=False)
class KCurve:
    """Costs for several numbers of clusters, and the number that a rule chose.

    ``k`` is the choice of the rule on this data, not "the true k". ``curve`` maps each k that was tried to its cost
    Phi(k) on the coreset, ``centers`` to its solution. ``met`` says whether the ``rule`` was satisfied within
    ``max_clusters``; `choose_k` warns if not.
    """

    k: int
    curve: dict[int, float]
    centers: dict[int, Array]
    rule: str
    met: bool
    coreset: Coreset

    def __repr__(self) -> str:
        tried = ", ".join(map(str, self.curve))
        return f"KCurve(k={self.k}, rule={self.rule!r}, met={self.met}, tried={{{tried}}})"


class _Costs:
    """Phi(k) on one coreset, computed when it is needed. It never rises in k."""

    def __init__(self, objective: ClusteringObjective, coreset: Coreset, seed: int) -> None:
        self.objective, self.coreset, self.seed = objective, coreset, seed
        self.curve: dict[int, float] = {}
        self.centers: dict[int, Array] = {}

    def __call__(self, k: int, init: Array | None = None) -> float:
        if k not in self.curve:
            objective = replace(self.objective, n_clusters=k)
            solutions = [objective.solve(self.coreset, rng=rng_for(self.seed, "k", k))]
            smaller = max((j for j in self.curve if j < k), default=None)
            if smaller is not None:  # from the centres for a smaller k and new ones: the cost cannot rise
                solutions.append(
                    objective.solve(self.coreset, rng=rng_for(self.seed, "warm", k), init=self.centers[smaller])
                )
            if init is not None:
                solutions.append(objective.solve(self.coreset, rng=rng_for(self.seed, "given", k), init=init))
            costs = [float(objective.cost(self.coreset, c) @ self.coreset.weights()) for c in solutions]
            best = int(np.argmin(costs))
            self.curve[k], self.centers[k] = costs[best], solutions[best]
        return self.curve[k]


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
    coreset_size: int | float = 5000,
    construction: Any = "auto",
    random_state: Any = None,
) -> KCurve:
    """Choose a number of clusters on one coreset, by doubling and then by bisection.

    Parameters
    ----------
    X : array, CSR matrix, frame or source
        A source (`open_dataset`) is read once, its weights with its rows.
    sample_weight : array of shape (n,), optional
    rule : {"separation", "relative", "budget", "penalty"}
        ``"separation"``: the number of clusters with gaps between them. The rows are cut into 16, 32, 64 and 128
        pieces, or up to twice ``max_clusters``, and pieces are joined unless they are about four standard deviations
        apart along the line between their means (see `tithe.learners.separation`). The answer is the number of
        clusters that is the same for twice as many pieces. It can be 1. Clusters that touch count as one, and clusters
        that are much longer than the gaps between them may too.
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
    KCurve(k=6, rule='separation', met=True, tried={6, 16, 32, 64, 128})
    >>> choose_k(X, rule="budget", budget=20.0, max_clusters=16, random_state=0).k
    6
    """
    types = {"kmeans": KMeansObjective, "kmedian": KMedianObjective, "kmedians": KMedianObjective}
    if objective not in types:
        raise ValueError(f"objective must be 'kmeans' or 'kmedian', got {objective!r}.")
    if max_clusters < 1:
        raise ValueError(f"max_clusters must be at least 1, got {max_clusters}.")
    data = DataPass(
        check_no_extra_arrays(X, sample_weight) if isinstance(X, Source) else as_block(X, None, sample_weight)
    )
    goal = types[objective](n_clusters=min(max_clusters, data.n_expected or max_clusters))
    seed, size = as_seed(random_state), resolve_size(coreset_size, data.n_expected)
    reduce_seed = int(rng_for(seed, "reduce").integers(2**62))
    coreset = reduce_rows(data, Plan.of(goal, construction, size, calibrate=True, seed=reduce_seed))
    goal = replace(goal, n_clusters=min(goal.n_clusters, coreset.n_seen))
    phi = _Costs(goal, coreset, seed)
    if rule == "separation":
        k, met = _separated(phi, goal.n_clusters)
    elif rule == "budget":
        if budget is None:
            raise ValueError("rule='budget' needs a budget: the cost to get below.")
        k, met = _within_budget(phi, budget, goal.n_clusters)
    elif rule == "relative":
        if not 0.0 < eta < 1.0:
            raise ValueError(f"eta must lie between 0 and 1, got {eta}.")
        k, met = _until_flat(phi, eta, goal.n_clusters)
    elif rule == "penalty":
        if penalty is None:
            raise ValueError("rule='penalty' needs a penalty: the cost of one more cluster.")
        k, met = _penalised(phi, penalty, goal.n_clusters)
    else:
        raise ValueError(f"rule must be 'separation', 'relative', 'budget' or 'penalty', got {rule!r}.")
    if not met:
        warn_caller(
            f"No number of clusters up to {goal.n_clusters} satisfies rule={rule!r}; the answer is {k}. "
            "Raise max_clusters, or take another rule.",
        )
    return KCurve(k=k, curve=dict(sorted(phi.curve.items())), centers=phi.centers, rule=rule, met=met, coreset=coreset)


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


def _within_budget(phi: _Costs, budget: float, max_k: int) -> tuple[int, bool]:
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


def _until_flat(phi: _Costs, eta: float, max_k: int) -> tuple[int, bool]:
    k = 1
    while 2 * k <= max_k:
        if phi(k) == 0.0 or phi(2 * k) / phi(k) > 1.0 - eta:
            return k, True
        k *= 2
    return k, phi(k) == 0.0


def _penalised(phi: _Costs, penalty: float, max_k: int) -> tuple[int, bool]:
    """Doubling brackets the minimum of Phi(k) + penalty k, and bisection on both sides of it narrows the bracket."""
    ks = _doublings(max_k)
    value = {k: phi(k) + penalty * k for k in ks}
    while True:
        tried = sorted(value)
        at = tried.index(min(value, key=value.__getitem__))
        gaps = [
            (a + b) // 2 for a, b in zip(tried[max(0, at - 1) : at + 1], tried[at : at + 2], strict=False) if b - a > 1
        ]
        new = [k for k in gaps if k not in value]
        if not new:
            return tried[at], tried[at] < max_k
        value |= {k: phi(k) + penalty * k for k in new}
