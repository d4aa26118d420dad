"""Constructions that draw rows: uniformly, by sensitivity, by influence or by leverage; and what these require."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tithe.core.contracts import Construction, Objective, ObjectiveT, SampledObjective, SensitivityObjective
from tithe.core.data import Array, Block, Evaluation, Rng, Scores, Survey
from tithe.core.labels import count_codes
from tithe.core.parallel import limit_threads, over_parts
from tithe.core.state_checks import AnyFloats, Floats, Optional, Storable, expect
from tithe.reduce.kernels import draw, draw_in_classes, sample_rows

MIN_DRAWS_OF_A_CLASS = 10  # even if the scores of its rows are small


class MeanPilotObjective(SampledObjective):
    """What `Lightweight` needs: a survey at the column means, whose totals begin with count and cost."""

    @abstractmethod
    def mean_pilot(self, block: Block) -> Array:
        """A solution from column means alone."""


class InfluenceObjective(SampledObjective):
    """What `Influence` needs of a sum of losses of linear scores: how strongly a row acts on the solution."""

    @abstractmethod
    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        """The size of the derivative of each row's loss in its score: (n,); ``cost`` are these losses."""

    @abstractmethod
    def evaluate(self, block: Block, params: Array) -> Evaluation:
        """The value that `solve` makes small, penalty included, of the rows of one block."""

    def rows_per_coefficient(self, block: Block, size: int) -> float:
        """Rows for each coefficient among ``size`` drawn uniformly; with few, "auto" tries a uniform draw as well."""
        return float("inf")


def score_values(scores: Scores | Array) -> Array:
    """Scores of rows as one array: (n,)."""
    return scores.at() if isinstance(scores, Scores) else scores


def draw_rows(block: Block, scores: Scores | Array, size: int, rng: Rng, *, codes: Array | None = None) -> Block:
    """Rows drawn by scores that contain their weights u, each weighing u / (size p); by class with ``codes``."""
    positions, inverse = draw_by_class(scores, codes, size, rng)
    weight = block.sample_weight
    return block.take(positions, inverse if weight is None else inverse * weight[positions])


def draw_by_class(scores: Scores | Array, strata: Array | None, size: int, rng: Rng) -> tuple[Array, Array]:
    """At most ``size`` draws, a number fixed beforehand from each class: distinct positions, ascending, and weights.

    Class c, of total score S_c, gets max(min_c, m S_c / S) of the m draws; the other classes get fewer in return.
    min_c is ten, limited by the number of rows of the class and so that these minima take at most half of
    all draws. Within a class rows are drawn by score and weights are count * S_c / (m_c * score). This is unbiased
    for every class, and every class with a positive score is drawn from. ``scores`` include the weights of the rows.
    ``strata`` are class numbers from 0 (n,) int32; None draws from all rows together.
    """
    if strata is None:
        return draw(scores, size, rng)
    n_classes = int(strata.max(initial=0)) + 1

    def allocate(totals: Array, rows: Array) -> Array:
        present = int((totals > 0.0).sum())
        if size < present:
            raise ValueError(
                f"There are {present} classes and only {size} rows may be kept: "
                "ask for at least as many rows as classes."
            )
        floor = np.minimum(np.minimum(MIN_DRAWS_OF_A_CLASS, rows), size // (2 * present))
        return shared_out(totals, np.where(totals > 0.0, np.maximum(1, floor), 0), size)

    return draw_in_classes(scores, strata, n_classes, allocate, rng)


def shared_out(totals: Array, minimum: Array, size: int) -> Array:
    """``size`` draws in proportion to the totals, by largest remainders, and at least ``minimum`` for each."""
    fixed = totals <= 0.0
    while True:
        free = np.flatnonzero(~fixed)
        wanted = (size - minimum[fixed].sum()) * (totals[free] / totals[free].sum())
        too_few = wanted < minimum[free]
        if not too_few.any():
            break
        fixed[free[too_few]] = True
    shares = minimum.copy()
    shares[free] = np.floor(wanted)
    spare = size - int(shares.sum())
    shares[free[np.argsort(np.floor(wanted) - wanted, kind="stable")[:spare]]] += 1
    return shares


@dataclass(frozen=True, kw_only=True)
class Uniform(Construction[Objective]):
    """Rows without replacement, each weighing N/m; with weights u, draws with p = u/W weighing W/m.

    If the objective has classes and some class would get fewer than ten draws, rows are drawn from each class
    separately, so that every class is kept (`draw_by_class`).

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", construction="uniform", coreset_size=100, random_state=0)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    name: ClassVar[str] = "uniform"

    def reduce(
        self, block: Block, objective: Objective, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        n = len(block)
        codes = objective.codes(block)
        if codes is not None:
            mass = np.bincount(codes, weights=block.sample_weight)
            if mass[mass > 0.0].min() * size < MIN_DRAWS_OF_A_CLASS * mass.sum():
                return draw_rows(block, block.weights(), size, rng, codes=codes)
        if block.sample_weight is None:
            return block.take(np.sort(rng.choice(n, size, replace=False)), np.full(size, n / size))
        return draw_rows(block, block.sample_weight, size, rng)


@dataclass(frozen=True, kw_only=True)
class _ByScores(Construction[ObjectiveT]):
    """Draws rows by scores that follow from the survey at the pilot; draws weigh u_i / (m p_i)."""

    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    @abstractmethod
    def scores(self, block: Block, objective: ObjectiveT, survey: Survey) -> Scores | Array:
        """The scores of all rows, which contain their weights."""

    def reduce(
        self, block: Block, objective: ObjectiveT, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        assert survey is not None
        return draw_rows(block, self.scores(block, objective, survey), size, rng)


@dataclass(frozen=True, kw_only=True)
class Sensitivity(_ByScores[SensitivityObjective]):
    """p_i = s_i / S with the objective's sensitivities s at its pilot; draws weigh u_i / (m p_i).

    Feldman and Langberg (2011), but for rows with m p_i >= 1: they are kept with their own weight, and the others share
    the remaining draws (`tithe.reduce.kernels.draw`). One pass besides the pilot's sample.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", construction="sensitivity", coreset_size=100)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    name: ClassVar[str] = "sensitivity"
    requires: ClassVar[tuple[type[Objective], ...]] = (SensitivityObjective,)

    def scores(self, block: Block, objective: SensitivityObjective, survey: Survey) -> Scores | Array:
        return objective.sensitivity(block, survey)


@dataclass(frozen=True, kw_only=True)
class Lightweight(_ByScores[MeanPilotObjective]):
    """p_i = u_i / 2W + u_i d_i / 2D with d_i the cost of row i at the column mean and D = sum u d.

    Bachem, Lucic and Krause (2018), for k-means: |error| <= (eps/2) cost(C) + (eps/2) cost({mean}),
    an additive guarantee that costs two cheap passes. All rows equal: p = u / W.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", construction="lightweight", coreset_size=100)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    name: ClassVar[str] = "lightweight"
    requires: ClassVar[tuple[type[Objective], ...]] = (MeanPilotObjective,)

    def pilot(self, block: Block, objective: MeanPilotObjective, *, rng: Rng) -> Array:
        return objective.mean_pilot(block)

    def scores(self, block: Block, objective: MeanPilotObjective, survey: Survey) -> Scores:
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        slope, base = 1.0 / cost if cost > 0 else 0.0, np.array([1.0 / weight])
        return Scores(cost=survey.cost, slope=slope, base=base, weight=block.sample_weight)


_CHUNK_ROWS = 4096
_GRAM_ROWS = 20_000  # rows of the sample that the Gram matrix is taken from
_N_DIRECTIONS = 64  # random directions for more columns: leverages err by a sixth, which only adds variance
_MAX_GRAM_COLUMNS = 1000  # with more columns, only the diagonal of the Gram matrix is used
_MAX_ALL_SCORED = 800_000  # with more rows, only a sample of them is scored
_MIN_SCORED, _SCORED_PER_ROW_KEPT = 200_000, 5  # size of this sample: the larger of the two
_SCORED_CHUNK_ROWS = 16_384  # rows that are scored together
_RARE_CLASS_ROWS = 20_000  # classes of no more rows are scored whole


@dataclass(frozen=True, kw_only=True, eq=False)
class Leverages(Storable):
    """sqrt(z G^-1 z) of any row, z = x - mean, G the mean of z z^T over a sample with a ridge relative to its diagonal.

    ``factor`` (d, q) has z G^-1 z = |z factor|^2, in expectation where q < d, and ``offset`` (q,) is
    mean @ factor. Or ``factor`` is (d,), the inverse diagonal, and x is not centred.
    """

    factor: Annotated[Array, AnyFloats(most=2)]
    offset: Annotated[Array | None, Optional(Floats("q"))] = None

    def check_relations(self) -> None:
        if self.factor.ndim == 1:
            expect(self.offset is None and self.factor.min(initial=0.0) >= 0.0, "leverages have no factor")
        else:
            same = self.offset is not None and self.factor.shape[1:] == self.offset.shape
            expect(same, "leverages have another offset")

    @classmethod
    def of(cls, block: Block, rng: Rng) -> Self:
        rows = sample_rows(block, _GRAM_ROWS, rng)
        X, weight = rows.X.astype(np.float64), rows.weights()
        d = block.n_features
        total = weight.sum()
        mean = np.asarray(X.T @ weight).ravel() / total
        if d > _MAX_GRAM_COLUMNS or not np.isfinite(mean).all():
            square = np.asarray((X.multiply(X) if sparse.issparse(X) else X * X).T @ weight).ravel() / total
            return cls(factor=1.0 / np.where(square > 0.0, square, 1.0))
        if sparse.issparse(X):
            gram = (X.multiply(weight[:, None]).T @ X).toarray() / total - np.outer(mean, mean)
        else:
            X = X - mean
            with np.errstate(over="ignore", invalid="ignore"):
                gram = (X * weight[:, None]).T @ X / total
        if not np.isfinite(gram).all():
            raise ValueError("Squares of the columns overflow in double precision. Rescale the columns or the weights.")
        part = np.diagonal(gram)
        scale = np.sqrt(np.where(part > 1e-12 * mean * mean, part, 1.0))
        gram = gram / np.outer(scale, scale)
        # a ridge relative to each column's scale: leverages stay finite in a column that is zero in the sample
        gram[np.diag_indices(d)] += 0.01 + 1e-6
        try:
            lower = cholesky(gram, lower=True)
        except LinAlgError:
            return cls(factor=np.diag(1.0 / scale), offset=mean / scale)
        directions = np.eye(d) if d <= _N_DIRECTIONS else rng.normal(size=(d, _N_DIRECTIONS)) / np.sqrt(_N_DIRECTIONS)
        factor = solve_triangular(lower, directions, lower=True, trans="T") / scale[:, None]
        return cls(factor=factor, offset=mean @ factor)

    def root(self, X: Any) -> Array:
        """sqrt(z G^-1 z) of every row: (n,)."""
        n = X.shape[0]
        root = np.empty(n)
        factor = self.factor if self.factor.ndim == 1 else self.factor.astype(X.dtype)
        offset = None if self.offset is None else self.offset.astype(X.dtype)

        def run(first: int, last: int) -> None:
            for part in range(first, last):
                at = slice(part * _CHUNK_ROWS, (part + 1) * _CHUNK_ROWS)
                rows = X[at]
                if factor.ndim == 1:
                    square = (rows.multiply(rows) if sparse.issparse(rows) else rows * rows) @ factor
                else:
                    projected = np.asarray(rows @ factor) - offset
                    square = np.einsum("ij,ij->i", projected, projected)
                root[at] = np.sqrt(square)

        over_parts(run, -(-n // _CHUNK_ROWS), serial=n <= _CHUNK_ROWS)
        return root


def shares(parts: list[tuple[float, Array | None]], weight: Array) -> Array:
    """sum_k a_k u v_k / sum(u v_k): a mixture of scores (n,) that sums to 1; None stands for ones."""
    mixture = np.zeros(len(weight))
    for amount, score in parts:
        part = weight if score is None else weight * score
        total = part.sum()
        mixture += part * (amount / total) if 0.0 < total < np.inf else weight * (amount / weight.sum())
    return mixture


@dataclass(frozen=True, kw_only=True)
class Leverage(Construction[ObjectiveT]):
    """p_i = u_i (1/W + l_i / sum(u l)) / 2 with l_i the root of the leverage of row i (see `Leverages`).

    The root follows from the variance (Munteanu and others 2018 for logistic regression). It does not depend on the
    loss, so it suits any linear model.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, X[:, 0] > 0, objective="logistic", construction="leverage", coreset_size=100)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    leverages: Leverages | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "leverage"

    def check_columns(self, n_features: int, objective: ObjectiveT) -> None:
        expect(self.leverages is None or len(self.leverages.factor) == n_features, "leverages are of other columns")

    def prepare(self, block: Block, objective: ObjectiveT, *, rng: Rng) -> Self:
        """The construction with a Gram matrix, taken from a sample of the rows unless it has one."""
        return replace(self, leverages=self.leverages_of(block, rng))

    def leverages_of(self, block: Block, rng: Rng) -> Leverages:
        """Those that were prepared, else those of these rows."""
        return Leverages.of(block, rng) if self.leverages is None else self.leverages

    def reduce(
        self, block: Block, objective: ObjectiveT, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        scores = shares([(0.5, None), (0.5, self.leverages_of(block, rng).root(block.X))], block.weights())
        return draw_rows(block, scores, size, rng, codes=objective.codes(block))


@dataclass(frozen=True, kw_only=True)
class Influence(Leverage[InfluenceObjective]):
    """p_i = u_i (0.4 r_i l_i / sum(u r l) + 0.3 l_i / sum(u l) + 0.3 / W), each draw weighing u_i / (m p_i).

    l_i is the root of the leverage (`Leverage`) and r_i the derivative of the row's loss in its score at the pilot
    (for logistic regression 1 - P(y | x)). r l is the size of a row's influence on the solution; drawing by it
    minimises the variance of the gradient at the pilot. The other two terms cover directions that the pilot gets
    wrong or does not know (rare one-hot columns), and bound every weight by W / (0.3 m).

    With more than 800,000 rows, one row of each run of consecutive rows (of equal weight) is scored and represents
    its run: 200,000 rows, or 5 for each row kept. All rows of classes of at most 20,000 rows are scored. The draw
    stays unbiased, and its variance grows by at most a fifth of that of a uniform draw.

    It is what ``construction="auto"`` stands for with linear models, except where the rows kept are fewer than the
    coefficients and a uniform draw is better: see `LinearModelObjective`.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, X[:, 0] > 0, objective="logistic", construction="influence", coreset_size=100)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    name: ClassVar[str] = "influence"
    requires: ClassVar[tuple[type[Objective], ...]] = (InfluenceObjective,)
    needs_pilot: ClassVar[bool] = True

    def reduce(
        self,
        block: Block,
        objective: InfluenceObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert pilot is not None
        codes = objective.codes(block)
        n_scored = max(_MIN_SCORED, _SCORED_PER_ROW_KEPT * size)
        if len(block) <= max(_MAX_ALL_SCORED, 2 * n_scored):
            weight, positions = block.weights(), np.arange(len(block))
            cost = objective.cost(block, pilot) if survey is None else survey.cost
            gradient = objective.gradient_sizes(block, pilot, cost)
            root = self.leverages_of(block, rng).root(block.X)
        else:
            positions, represented = _one_of_each_run(block, codes, objective, n_scored, rng)
            weight = represented if block.sample_weight is None else represented * block.sample_weight[positions]
            codes = None if codes is None else codes[positions]
            gradient, root = _gradients_and_roots(block, positions, objective, pilot, self.leverages_of(block, rng))
        scores = shares([(0.4, root * gradient), (0.3, root), (0.3, None)], weight)
        drawn, inverse = draw_by_class(scores, codes, size, rng)
        return block.take(positions[drawn], inverse * weight[drawn])


def _gradients_and_roots(
    block: Block, positions: Array, objective: InfluenceObjective, pilot: Array, leverages: Leverages
) -> tuple[Array, Array]:
    """Derivatives of some rows at the pilot, and roots of their leverages. Rows are copied chunk by chunk."""
    gradient, root = np.empty(len(positions)), np.empty(len(positions))

    def run(first: int, last: int) -> None:
        with limit_threads(1):  # a kernel that used the same threads would wait for itself
            for part in range(first, last):
                at = slice(part * _SCORED_CHUNK_ROWS, (part + 1) * _SCORED_CHUNK_ROWS)
                rows = block.take(positions[at])
                gradient[at] = objective.gradient_sizes(rows, pilot, objective.cost(rows, pilot))
                root[at] = leverages.root(rows.X)

    over_parts(run, -(-len(positions) // _SCORED_CHUNK_ROWS))
    return gradient, root


def _one_of_each_run(
    block: Block, codes: Array | None, objective: Objective, n_scored: int, rng: Rng
) -> tuple[Array, Array]:
    """Positions of about ``n_scored`` rows, ascending, and the number of rows that each represents."""
    n, weight = len(block), block.sample_weight
    if weight is None:
        edges = n * np.arange(n_scored + 1) // n_scored
        runs = np.diff(edges)
        positions, represented = edges[:-1] + (rng.random(n_scored) * runs).astype(np.int64), runs.astype(np.float64)
    else:
        positions, represented = draw(weight, n_scored, rng)  # runs of equal weight
    if codes is None:
        return positions, represented
    carrying = codes if weight is None else codes[weight > 0.0]
    rare = np.flatnonzero(count_codes(carrying, objective.n_classes)[:-1] <= _RARE_CLASS_ROWS)
    if len(rare) == 0:
        return positions, represented
    common = ~np.isin(codes[positions], rare)
    all_rare = np.flatnonzero(np.isin(codes, rare) & (block.weights() > 0.0))
    positions = np.concatenate([positions[common], all_rare])
    order = np.argsort(positions, kind="stable")
    return positions[order], np.concatenate([represented[common], np.ones(len(all_rare))])[order]
