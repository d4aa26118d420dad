"""k-means and k-median: what a coreset for clustering must preserve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_random_state

from tithe.certify.cost import SteppedObjective, weighted_total
from tithe.clustering.kernels import N_SUMS, assign, dz_seeds, point_costs
from tithe.core.contracts import NearestObjective, SensitivityObjective
from tithe.core.data import ROWS_PER_COLUMN, Array, Block, Coreset, Moments, Rng, Scores, Survey
from tithe.core.parallel import column_means, single_blas_thread
from tithe.core.params import Constraint, Option, RealNumber, WholeNumber, check_params
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Floats, Optional, expect
from tithe.reduce.draws import MeanPilotObjective
from tithe.reduce.kernels import sample_rows

_STEPS_BETWEEN_SELECTIONS = 4  # steps after which the worse half of the searches is dropped
_MAX_DENSE_SIZE = 10_000_000  # entries of a sparse matrix up to which equal rows are looked for
_JITTERS = (0.1, 1.0, 10.0)  # multiples of the spread of the columns
_FAR_SHIFT = 100.0  # multiple of the spread of the columns
_SAMPLE_ROWS = 5000  # rows that hard centers are fitted on


@dataclass(frozen=True, kw_only=True, eq=False)
class StepEvaluation:
    """The result of one pass over rows at given centres or components. Results of several leaves add up."""

    labels: Array | None  # (n,) int32: the nearest centre of each row; None in a sum of leaves, and of mixtures
    total: float  # their weighted cost
    sums: Array | None  # (k, q): what `assign` or `mixture` adds up by cluster; None after the last pass of `assign`

    def __add__(self, other: Self) -> Self:
        """The result for the rows of both."""
        sums = None if self.sums is None or other.sums is None else self.sums + other.sums
        return replace(self, labels=None, total=self.total + other.total, sums=sums)


@dataclass(frozen=True, kw_only=True)
class ClusteringObjective(SensitivityObjective, MeanPilotObjective, NearestObjective, SteppedObjective[StepEvaluation]):
    """f_C(x) = min_j |x - c_j|^z for k centres; z = 2 is k-means, z = 1 is k-median.

    Parameters
    ----------
    n_clusters : int
        The number k. A coreset for k serves every smaller k as well.
    n_init, max_iter, tol : int, int, float
        How `solve` searches: ``n_init`` seedings race, the better half going on after every few
        steps, and the winner is improved until the cost falls by less than ``tol`` of itself in a
        step, or for ``max_iter`` steps.

    Notes
    -----
    With a pilot a_1 .. a_p (p = 2k centres from D^z seeding and a few steps on a sample), b the
    cluster of row i, d_i its distance to a_b, W_b and c_b the weight and cost of cluster b and
    c the sum of all c_b, the sensitivity of row i is bounded by a multiple of

        s_i = u_i [rho_1 alpha d_i^z / c + rho_2 alpha c_b / (W_b c) + rho_3 / W_b],

    rho = (1, 1, 1) for z = 1 and (2, 4, 4) for z = 2, with alpha = 8 (ln k + 2) the expected
    factor of the seeding (Feldman and Langberg 2011; Bachem, Lucic and Krause 2017). These bounds add up to
    (rho_1 + rho_2) alpha + rho_3 p, or less where a pilot cluster is empty.

    Proof: f_C(x) <= 2 d_i^2 + 2 |a_b - C|^2 and W_b |a_b - C|^2 <= 2 c_b + 2 cost_b(C) for z = 2, without the factors 2
    for z = 1; and cost(C) >= c / alpha. The number p of pilot centres is free: only c <= alpha OPT_k is needed.

    The moments are, in each pilot cluster: 1, d_i^z, and the gradient of d_i^z in a_b up to a
    factor: x - a_b for z = 2, (x - a_b) / d_i for z = 1. Their totals make the coreset's cost
    exact, and its gradient right, at the pilot.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective, KMedianObjective
    >>> block, rng = Block(X=np.array([[0.0], [2.0], [10.0]])), np.random.default_rng(0)
    >>> np.sort(KMeansObjective(n_clusters=2).solve(block, rng=rng).ravel())
    array([ 1., 10.])
    >>> KMedianObjective(n_clusters=1).cost(block, np.array([[2.0]]))
    array([2., 0., 8.])
    """

    n_clusters: int = 8
    n_init: int = 8
    max_iter: int = 100
    tol: float = 1e-4

    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": WholeNumber(least=1),
        "n_init": WholeNumber(least=1),
        "max_iter": WholeNumber(least=1),
        "tol": RealNumber(least=0.0),
    }
    options: ClassVar[tuple[Option, ...]] = (
        Option("n_clusters", constraints["n_clusters"], "Number of clusters.", ("-k", "--clusters")),
    )
    ratio: ClassVar[tuple[float, float, float]]

    def __post_init__(self) -> None:
        check_params(self, self.constraints)

    # -- what theorems about sizes need ------------------------------------------------------

    @property
    def n_pilot_centers(self) -> int:
        """p: the most centres that a pilot has."""
        return 2 * self.n_clusters

    @property
    def pilot_factor(self) -> float:
        """alpha: the expected factor of D^z seeding."""
        return float(8.0 * (np.log(self.n_clusters) + 2.0))

    @property
    def total_sensitivity(self) -> float:
        """The largest total of `sensitivity`: (rho_1 + rho_2) alpha + rho_3 p."""
        r1, r2, r3 = self.ratio
        return (r1 + r2) * self.pilot_factor + r3 * self.n_pilot_centers

    # -- what a coreset needs ----------------------------------------------------------------

    def pilot(self, block: Block, *, rng: Rng) -> Array:
        """2k centres (p, d): D^z seeding and three steps on a sample of the rows."""
        sample = sample_rows(block, max(5000, 100 * self.n_clusters), rng)
        with single_blas_thread():
            centers = dz_seeds(sample.X, self.n_pilot_centers, weight=sample.sample_weight, power=self.power, rng=rng)
            return self._descend(sample, centers, max_iter=3)[0]

    def mean_pilot(self, block: Block) -> Array:
        """One centre, the weighted column mean in the rows' own precision (1, d)."""
        return column_means(block).astype(block.X.dtype).astype(np.float64)[None]

    def survey(self, block: Block, pilot: Array) -> Survey:
        """Costs, pilot clusters, and totals (p, 2 + d): count, cost, gradient."""
        if len(pilot) == 1 and self.power == 2:
            # with one centre the gradient follows from the mean: no sums are needed, and the pass is cheaper
            cost, total = point_costs(block.X, pilot[0], weight=block.sample_weight)
            weight = block.total_weight
            totals = np.concatenate([[weight, total], weight * (column_means(block) - pilot[0])])
            return Survey(cost=cost, labels=None, totals=totals[None])
        labels, cost, sums = assign(block.X, pilot, weight=block.sample_weight, power=self.power, with_sums=True)
        assert sums is not None
        return Survey(cost=cost, labels=labels, totals=np.delete(sums, (2, 3), axis=1))

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        check_centers(pilot, totals, block.n_features)

    def sensitivity(self, block: Block, survey: Survey) -> Scores:
        """The bound of the class docstring."""
        count, cost = survey.totals[:, 0], survey.totals[:, 1]
        total = cost.sum()
        inverse = np.divide(1.0, count, out=np.zeros_like(count), where=count > 0)
        r1, r2, r3 = self.ratio
        if total > 0:
            alpha = self.pilot_factor
            slope, base = r1 * alpha / total, (r2 * alpha * cost / total + r3) * inverse
        else:
            slope, base = 0.0, r3 * inverse
        return Scores(cost=survey.cost, labels=survey.labels, slope=slope, base=base, weight=block.sample_weight)

    def moments(self, block: Block, pilot: Array) -> Moments:
        """(n, 2 + d) for the few rows that were drawn: 1, d^z, and the direction of the gradient.

        Only (n, 2) where there are too many columns for the number of rows.
        """
        labels, cost, _ = assign(block.X, pilot, power=self.power)
        if len(block) < ROWS_PER_COLUMN * (2 + block.n_features):
            return Moments(values=np.column_stack([np.ones(len(block)), cost]), groups=labels, n_basic=2)
        rows = block.X.toarray() if sparse.issparse(block.X) else block.X
        gap = rows - pilot.astype(block.X.dtype)[labels].astype(np.float64)
        if self.power == 1:
            gap = np.divide(gap, cost[:, None], out=np.zeros_like(gap), where=cost[:, None] > 0)
        return Moments(values=np.column_stack([np.ones(len(block)), cost, gap]), groups=labels, n_basic=2)

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[Array]:
        """Rows as centres, jittered at scales 0.1, 1 and 10, and moved far away."""
        queries: list[Array] = []
        spread = np.sqrt(np.mean(_dense(block, rng.integers(0, len(block), min(len(block), 2000))).var(axis=0)))
        for _ in range(n_bases):
            base = _dense(block, rng.choice(len(block), min(self.n_clusters, len(block)), replace=False))
            queries.append(base)
            queries += [base + scale * spread * rng.standard_normal(base.shape) for scale in _JITTERS]
            queries.append(base + _FAR_SHIFT * spread)
        return queries

    def hard_params(self, block: Block, *, rng: Rng) -> list[Array]:
        """Solutions on tiny and larger subsets, with fewer centres, scaled, and centres in one place.

        That place is the origin, the row farthest from it, or another far row.
        """
        k, sample = self.n_clusters, sample_rows(block, _SAMPLE_ROWS, rng)
        base = self.solve(sample, rng=rng)
        subsets = [self.solve(sample_rows(sample, size, rng), rng=rng) for size in (k + 2, 5 * k, 1000)]
        fewer = [replace(self, n_clusters=n).solve(sample, rng=rng) for n in {1, -(-k // 2)}]
        norms = np.asarray(
            sample.X.multiply(sample.X).sum(axis=1) if sparse.issparse(sample.X) else (sample.X**2).sum(axis=1)
        )
        order = np.argsort(-norms.ravel(), kind="stable")
        far = [np.repeat(_dense(sample, order[i : i + 1]), k, axis=0) for i in (0, rng.integers(min(100, len(order))))]
        return [base, 10.0 * base, 0.1 * base, 0.0 * base, *subsets, *fewer, *far]

    # -- what a learner needs ----------------------------------------------------------------

    def cost(self, block: Block, params: Array) -> Array:
        """Distance to the nearest centre, to the power z: (n,)."""
        return assign(block.X, params, power=self.power)[1]

    def assign(self, block: Block, params: Array) -> Array:
        return assign(block.X, params, power=self.power)[0]

    def solve(self, block: Block, *, rng: Rng, init: Array | None = None) -> Array:
        """k centres (k, d), the best of several searches.

        ``init`` gives centres to start from; where it has fewer than k, D^z draws fill up. With
        fewer than k distinct rows the last centre is repeated.
        """
        trials = 2 + int(np.log(self.n_clusters))

        def start() -> Array:
            if init is not None and len(init) >= self.n_clusters:
                return init
            return dz_seeds(
                block.X,
                self.n_clusters,
                weight=block.sample_weight,
                power=self.power,
                rng=rng,
                n_trials=trials,
                given=init,
            )

        with single_blas_thread():
            starts = [start() for _ in range(1 if init is not None else self.n_init)]
        return self.race(block, starts)

    def race(self, block: Block, starts: list[Array]) -> Array:
        """k centres (k, d), the best found by searches from several starts.

        Each search makes a few steps, and only the better half goes on, until one is left. Where a start has fewer
        than k centres, the last one is repeated in the result.
        """
        with single_blas_thread():
            runs = [(centers, np.inf) for centers in starts]
            while len(runs) > 1:
                runs = [self._descend(block, centers, max_iter=_STEPS_BETWEEN_SELECTIONS) for centers, _ in runs]
                runs = sorted(runs, key=lambda run: run[1])[: (len(runs) + 1) // 2]
            best = self._descend(block, runs[0][0], max_iter=self.max_iter)[0]
        missing = self.n_clusters - len(best)
        return np.vstack([best, np.repeat(best[-1:], missing, axis=0)]) if missing > 0 else best

    def evaluate_for_step(self, block: Block, params: Array, *, last: bool = False) -> StepEvaluation:
        """One pass over the block: labels, the cost, and what `step` needs; the ``last`` pass leaves this out."""
        labels, cost, sums = assign(block.X, params, weight=block.sample_weight, power=self.power, with_sums=not last)
        return StepEvaluation(labels=labels, total=weighted_total(block, cost), sums=sums)

    def step(self, evaluation: StepEvaluation, params: Array) -> tuple[Array, float]:
        """Centres that cost less than ``params``, where ``evaluation`` was made, and a lower bound on the gain.

        The step of Lloyd for z = 2; for z = 1 the step of Weiszfeld as Vardi and Zhang (2000)
        repaired it for a centre that sits on a row. The gain is what the rows save without even
        changing clusters: W_b |step|^2 for z = 2, and at least half of r |step|^2 for z = 1, r the
        sum of u / d over the cluster.
        """
        assert evaluation.sums is not None
        moved = self._step(params, evaluation.sums)
        square = np.einsum("ij,ij->i", moved - params, moved - params)
        return moved, float(evaluation.sums[:, 2] @ square) * (1.0 if self.power == 2 else 0.5)

    def spread(self, coreset: Coreset) -> tuple[Array, float]:
        """The best single centre (1, d) for all rows, and what it costs: by the coreset, unless totals tell."""
        pilot, totals = coreset.pilot, coreset.totals
        if self.power == 2 and pilot is not None and totals is not None and not coreset.is_whole:
            count, cost, gap = totals[:, 0], totals[:, 1], totals[:, 2:]
            centre = (count @ pilot + gap.sum(axis=0)) / count.sum()
            apart = pilot - centre
            return centre[None], float(cost.sum() + 2.0 * np.sum(apart * gap) + count @ np.square(apart).sum(axis=1))
        centre = replace(self, n_clusters=1, n_init=1).solve(coreset, rng=rng_for(0, "single centre"))
        return centre, weighted_total(coreset, self.cost(coreset, centre))

    # -- the search --------------------------------------------------------------------------

    def _step(self, centers: Array, sums: Array) -> Array:
        mass, stuck, direction = sums[:, 2:3], sums[:, 3:4], sums[:, N_SUMS:]
        step = np.divide(direction, mass, out=np.zeros_like(direction), where=mass > 0)
        if self.power == 1:
            force = np.linalg.norm(direction, axis=1, keepdims=True)
            hold = np.divide(stuck, force, out=np.ones_like(force), where=force > 0)
            step *= np.maximum(0.0, 1.0 - hold)
        return centers + step

    def _descend(self, block: Block, centers: Array, *, max_iter: int) -> tuple[Array, float]:
        rows, weight, previous = block.X, block.sample_weight, np.inf
        best, least_cost = centers, np.inf
        for _ in range(max_iter):
            _labels, cost, sums = assign(rows, centers, weight=weight, power=self.power, with_sums=True)
            assert sums is not None
            total = float(sums[:, 1].sum())
            if total < least_cost:
                best, least_cost = centers, total
            if previous - total <= self.tol * total:
                break
            previous = total
            moved = self._step(centers, sums)
            empty = np.flatnonzero(sums[:, 0] <= 0)
            if len(empty):
                spare = cost if weight is None else cost * weight
                farthest = np.argsort(spare, kind="stable")[::-1][: len(empty)]
                farthest = farthest[spare[farthest] > 0]
                picked = rows[farthest].toarray() if sparse.issparse(rows) else rows[farthest]
                moved[empty[: len(farthest)]] = picked
                previous = np.inf
            centers = moved
        else:
            cost = assign(rows, centers, power=self.power)[1]
            total = weighted_total(block, cost)
            if total < least_cost:
                best, least_cost = centers, total
        return best, least_cost


def check_centers(pilot: Array, totals: Array | None, d: int) -> None:
    """A pilot is centres (p, d), p >= 1, and totals are (p, 2 + d)."""
    sizes = {"d": d}
    Floats("p", "d").check("pilot", pilot, sizes)
    expect(sizes["p"] > 0, "a pilot has no centres")
    Optional(Floats("p", ("d", 2), contiguous=False)).check("totals", totals, sizes)


@dataclass(frozen=True, kw_only=True)
class KMeansObjective(ClusteringObjective):
    __doc__ = ClusteringObjective.__doc__
    name: ClassVar[str] = "kmeans"
    relative_rounding: ClassVar[float] = 1e-24
    power: ClassVar[int] = 2
    ratio: ClassVar[tuple[float, float, float]] = (2.0, 4.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class KMedianObjective(ClusteringObjective):
    __doc__ = ClusteringObjective.__doc__
    name: ClassVar[str] = "kmedian"
    power: ClassVar[int] = 1
    ratio: ClassVar[tuple[float, float, float]] = (1.0, 1.0, 1.0)


def search_centers(objective: ClusteringObjective, coreset: Coreset, init: Any, rng: Rng) -> Array:
    """The best centres that are found on the coreset from the starts that ``init`` gives."""
    rows = distinct_rows(coreset) if coreset.is_whole else coreset
    k, n_init = objective.n_clusters, objective.n_init
    if isinstance(init, str) and init == "k-means++":
        return objective.solve(rows, rng=rng)
    if isinstance(init, str):
        return objective.race(rows, [random_rows(rows, k, rng) for _ in range(n_init)])
    shape = (k, coreset.n_features)
    if not callable(init):
        return objective.race(rows, [_checked_centers(init, shape)])
    seeds = rng.integers(2**31, size=n_init)
    starts = [init(coreset.X, k, random_state=check_random_state(int(seed))) for seed in seeds]
    return objective.race(rows, [_checked_centers(start, shape) for start in starts])


def _checked_centers(init: Any, shape: tuple[int, int]) -> Array:
    init = init.toarray() if sparse.issparse(init) else init  # a callable may return rows of a sparse X
    centers: Array = check_array(init, dtype=np.float64, order="C", input_name="init")
    if centers.shape != shape:
        raise ValueError(
            f"The shape of the initial centers {centers.shape} must be {shape}: a row for each cluster, and the "
            "columns of X."
        )
    return centers


def random_rows(block: Block, n_rows: int, rng: Rng) -> Array:
    """Different rows (at most ``n_rows``), drawn by their weights."""
    weight = block.weights()
    places = rng.choice(len(block), min(n_rows, len(block)), replace=False, p=weight / weight.sum())
    rows = block.X[places]
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def distinct_rows(coreset: Coreset) -> Block:
    """Distinct rows in a fixed order with the weights of equal rows added.

    A search on them gives the same result for duplicates and for weights, and for any order of the rows.
    """
    X = coreset.X
    dense = X
    if sparse.issparse(X):
        if X.shape[0] * X.shape[1] > _MAX_DENSE_SIZE:
            return coreset
        X = X.copy()
        X.sum_duplicates()
        dense = X.toarray()
    _, first, group = np.unique(dense, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(group.ravel(), weights=coreset.weights(), minlength=len(first))
    return Block(X=X[first], sample_weight=weight)


def _dense(block: Block, rows: Array) -> Array:
    chosen = block.X[np.sort(rows)]
    return np.asarray(chosen.toarray() if sparse.issparse(chosen) else chosen, np.float64)
