"""Losses of linear scores: what constructions and calibration ask of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.contracts import ConvexObjective, InfluenceObjective
from tithe.core.data import Array, Block, Moments, Survey
from tithe.core.params import WholeNumber, check_value
from tithe.core.state_checks import Floats, Optional
from tithe.kernels.parts import column_means
from tithe.kernels.sampling import sample_rows

_ROWS_EACH = 12  # drawn rows for each total: with fewer, calibration lost on all sets tried, with more it won
_SAMPLE = 20_000  # rows of a pilot, at the most
_ROUGH, _ROUNDS = 1e-4, 30  # a pilot need not be sharper than its sample
_CALIBRATION_WORK = 10_000_000_000  # products that a calibration may cost
_SAMPLE_FOR_SCALE = 20_000  # rows that the scale of columns is taken from
_SAMPLE_FOR_FITS = 10_000  # rows that solutions are fitted on
_STRENGTHS = (1e-3, 0.1, 10.0, 1e3)  # factors on the losses, relative to the penalty
_SUBSET_ROWS = 20, 1000
_SUBSET_ROWS_PER_COLUMN = 2  # of one more subset
_FAR_ROWS = 100  # one of this many rows of largest norm is chosen
_SCORES = (3.0, -3.0)  # of a far row, along its own direction
_SPREADS = (0.3, 1.0, 3.0)  # of the scores along random directions


@dataclass(frozen=True, kw_only=True)
class LinearScoresObjective(ConvexObjective, InfluenceObjective):
    """A sum of losses of linear scores, and a penalty.

    Parameters are (k, d + 1), intercepts last: one row for each score of a row of data. With r the derivatives of a
    row's loss in its scores (k numbers), the moments are the basic ones (the count, and what a subclass adds), r, and
    r times x. Reproducing their totals gives the coreset the gradient of the full data at the pilot, so that its
    solution errs to second order only.

    Few rows. With fewer rows than coefficients a fit explains whatever rows it gets, and those of large influence are
    the ones that hardly any line explains: fits on an influence draw had up to five times the excess loss of fits on a
    uniform one. How many rows are enough depends on the penalty and the data (from .3 to 2 rows per coefficient on the
    sets tried), so it is measured: where fewer than 1.5 rows are kept for each column that occurs
    (`rows_per_coefficient`), ``construction="auto"`` draws both ways, fits on each, and keeps the way with the smaller
    loss on the rows at hand. ``provenance["draw"]`` notes it.

    A loss defines `n_scores`, `_loss_pass`, `_gradient_sums`, `evaluation`, `_residuals`, `_hessian_weights`,
    `_penalty`, `strengthened` and `directional_curvature`. `LinearModelObjective` knows how to minimise it.

    Parameters
    ----------
    fit_intercept : bool
    max_iter, tol : int, float
        `solve` stops after so many rounds, or when a step of Newton promises less than this share.
    """

    fit_intercept: bool = True
    max_iter: int = 200
    tol: float = 1e-10

    def __post_init__(self) -> None:
        check_value("max_iter", self.max_iter, WholeNumber(least=1))

    # -- what a subclass defines ---------------------------------------------------------------

    @property
    @abstractmethod
    def n_scores(self) -> int:
        """k: the number of scores of a row."""

    @abstractmethod
    def _loss_pass(
        self,
        block: Block,
        params: Array,
        *,
        cost: bool = True,
        gradient: bool = True,
        diagonal: bool = False,
        centre: Array | None = None,
    ) -> tuple[Any, Any]:
        """Losses (n,), and sums with ``count`` (basic moments,), ``diagonal`` and the gradient of the losses."""

    @abstractmethod
    def _gradient_sums(self, sums: Any) -> Array:
        """Sums of r times (x, 1): (k, d + 1)."""

    @abstractmethod
    def _residuals(self, block: Block, params: Array) -> Array:
        """r, the derivatives of each row's loss in its scores: (n, k)."""

    @abstractmethod
    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        """Weighted second derivatives of each row's loss: in each score (n, k), and for pairs of them, by rows."""

    @abstractmethod
    def _penalty(self) -> tuple[float, float]:
        """Second derivative of the penalty in a coefficient, and in an intercept."""

    @abstractmethod
    def strengthened(self, factor: float) -> Self:
        """The same objective with its losses counting ``factor`` times as much beside the penalty."""

    def _unit(self, weight: float) -> float:
        """What the sum of the losses is multiplied by in the value, for rows of this weight."""
        return 1.0

    # -- what a subclass may define ------------------------------------------------------------

    @property
    def n_basic_moments(self) -> int:
        """Moments that calibration reproduces before all others."""
        return 1

    def _basic_moments(self, block: Block) -> Array:
        """(n, n_basic_moments); the first column is 1."""
        return np.ones((len(block), 1))

    @property
    def n_scales(self) -> int:
        """How many of the scores, the last ones, are constants: they have an intercept and no coefficients."""
        return 0

    def _flat(self, block: Block) -> Array:
        """Parameters without coefficients, where `minimise` starts."""
        return np.zeros((self.n_scores, block.n_features + 1))

    def curvature_drift(self, block: Block, params: Array, step: Array) -> float:
        """How much the curvature along a Newton step changes on its way, as a share of itself; see `certify.gap`.

        The mean change of a score, each row weighed by its part in the curvature: right for losses whose second
        derivative changes by no more than a factor of exp(change of the score).
        """
        part = block.weights() * self.directional_curvature(block, params, step)
        total = float(part.sum())
        return float(part @ np.abs(self.margins(block.X, step)).max(axis=1)) / total if total > 0.0 else 0.0

    def _free_coordinates(self, shape: tuple[int, ...]) -> Array:
        """Which coordinates (k, d + 1) of the parameters are not fixed at 0."""
        free = np.ones(shape, dtype=bool)
        linear = shape[0] - self.n_scales
        free[linear:, :-1] = False
        free[:linear, -1] = self.fit_intercept
        return free

    @property
    def _shift_invariant(self) -> bool:
        """Whether the losses stay the same where all scores of a row change by the same number."""
        return False

    def _coded(self, block: Block) -> tuple[Self, Block]:
        """The objective and the rows as `minimise` uses them, with y in the form that is quickest to read."""
        return self, block

    def _rows_to_learn_from(self, block: Block, size: int) -> float:
        """Rows that tell something about each coefficient, if ``size`` rows are drawn uniformly."""
        return float(size)

    def sample_for_query(self, block: Block, size: int, rng: np.random.Generator) -> Block:
        """Random rows that a fit is possible on."""
        return sample_rows(block, size, rng)

    def query_direction(self, block: Block, row: int, along: Array) -> Array:
        """Parameters (k, d + 1) with scores along ``along`` (d + 1,) for one row."""
        direction = np.zeros((self.n_scores, len(along)))
        direction[0] = along
        return direction

    # -- what constructions and calibration need -----------------------------------------------

    @property
    def constant(self) -> float:
        """The last coordinate of every row as the losses see it, beside the columns: 0 without an intercept."""
        return 1.0 if self.fit_intercept else 0.0

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """The solution on a small sample, whatever the number of rows: (k, d + 1)."""
        rows = sample_rows(block, min(_SAMPLE, max(2000, 10 * (block.n_features + 1))), rng)
        scale = len(block) / rows.total_weight  # whatever the unit of the weights
        scaled = Block(X=rows.X, y=rows.y, sample_weight=rows.weights() * scale)
        solution: Array = self.rough().solve(scaled, rng=rng)
        return solution

    def rough(self) -> Self:
        """The same objective, whose `solve` stops early."""
        return replace(self, tol=_ROUGH, max_iter=_ROUNDS)

    def rows_per_coefficient(self, block: Block, size: int) -> float:
        """Rows among ``size`` drawn uniformly, for each column that occurs and the intercept."""
        columns = len(np.unique(block.X.indices)) if sparse.issparse(block.X) else block.n_features
        return self._rows_to_learn_from(block, size) / (columns + 1)

    def survey(self, block: Block, pilot: Array) -> Survey:
        cost, sums = self._loss_pass(block, pilot)
        return Survey(cost=cost, labels=None, totals=self.totals_of(sums))

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        columns = block.n_features + 1
        Floats(self.n_scores, columns).check("pilot", pilot, {})
        Optional(Floats(1, self._n_moments(block))).check("totals", totals, {})

    def totals_of(self, sums: Any) -> Array:
        """The totals of the moments (1, q), from the sums of a sweep."""
        along = self._gradient_sums(sums)
        linear = along[: self.n_scores - self.n_scales, :-1]
        return np.concatenate([[sums.count.sum()], sums.count[1:], along[:, -1], linear.ravel()])[None]

    def _n_moments(self, block: Block) -> int:
        linear = self.n_scores - self.n_scales
        return self.n_basic_moments + self.n_scores + linear * block.n_features

    def moments(self, block: Block, pilot: Array) -> Moments:
        """(n, q) for the few rows that were drawn; only the counts where so few rows cannot be steered by more."""
        parts = [self._basic_moments(block)]
        width = self._n_moments(block)
        if len(block) >= _ROWS_EACH * width and len(block) * width * width <= _CALIBRATION_WORK:
            residual = self._residuals(block, pilot)
            rows = block.X.toarray() if sparse.issparse(block.X) else block.X
            linear = residual[:, : self.n_scores - self.n_scales]
            parts += [residual, *(r[:, None] * rows for r in linear.T)]
        # measured: these guards let calibration use rare columns, and nothing was made worse by it
        return Moments(
            values=np.concatenate(parts, axis=1), n_basic=self.n_basic_moments, support=3.0, standard_errors=4.0
        )

    def centred_moments(self, block: Block, moments: Moments, totals: Array) -> tuple[Moments, Array]:
        """The same moments and totals with r (x - mean) in place of r x, the mean being that of the block.

        It is the same to reproduce either, r being among them; but far from the origin r x is hardly
        more than r again, and what is more would be lost to the ridge.
        """
        first, k, d = self.n_basic_moments, self.n_scores, block.n_features
        if moments.values.shape[1] <= first:
            return moments, totals
        centre = column_means(block)
        values, totals = moments.values.copy(), totals.copy()
        for part in (values, totals):
            for a in range(k - self.n_scales):
                at = first + k + a * d
                part[:, at : at + d] -= part[:, first + a, None] * centre
        return replace(moments, values=values), totals

    # -- what a learner needs ------------------------------------------------------------------

    def cost(self, block: Block, params: Array) -> Array:
        cost: Array = self._loss_pass(block, params, gradient=False)[0]
        return cost

    def margins(self, X: Any, params: Array) -> Array:
        scores: Array = np.asarray(X @ params[:, :-1].T) + params[:, -1]
        return scores

    def random_params(self, block: Block, *, n_bases: int, rng: np.random.Generator) -> list[Array]:
        return self._with_scales(random_queries(self, block, n_bases, rng), block)

    def hard_params(self, block: Block, *, rng: np.random.Generator) -> list[Array]:
        return self._with_scales(hard_queries(self, block, rng), block)

    def _with_scales(self, queries: list[Array], block: Block) -> list[Array]:
        """The same queries, with scales that are positive and have no coefficients."""
        linear = self.n_scores - self.n_scales
        scales = self._flat(block)[linear:]
        for query in queries:
            query[linear:] = np.where((scales > 0.0) & (query[linear:] > 0.0), query[linear:], scales)
        return queries


def random_queries(
    objective: LinearScoresObjective, block: Block, n_bases: int, rng: np.random.Generator
) -> list[Array]:
    """Solutions of small samples, each also moved by .1, 1 and 10 in every score, and a hundred times as large."""
    sample = sample_rows(block, _SAMPLE_FOR_SCALE, rng)
    rows = sample.X.toarray() if sparse.issparse(sample.X) else sample.X
    scale = np.append(rows.std(axis=0, dtype=np.float64), 1.0)
    unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0) / np.sqrt(len(scale))
    queries: list[Array] = []
    for _ in range(n_bases):
        base = objective.pilot(block, rng=rng)
        queries.append(base)
        queries += [base + distance * unit * rng.standard_normal(base.shape) for distance in (0.1, 1.0, 10.0)]
        queries.append(100.0 * base)
    return queries


def hard_queries(objective: LinearScoresObjective, block: Block, rng: np.random.Generator) -> list[Array]:
    """Parameters (k, d + 1) each: zero, solutions on subsets and with other penalties, far rows, random directions."""
    sample = objective.sample_for_query(block, _SAMPLE_FOR_FITS, rng)
    rough = objective.rough()
    stands = block.total_weight / sample.total_weight
    scaled = Block(X=sample.X, y=sample.y, sample_weight=sample.weights() * stands)
    base: Array = rough.solve(scaled, rng=rng)
    sizes = [*_SUBSET_ROWS, _SUBSET_ROWS_PER_COLUMN * (block.n_features + 1)]
    subsets = [rough.solve(objective.sample_for_query(sample, size, rng), rng=rng) for size in sizes]
    penalised = [rough.strengthened(factor).solve(scaled, rng=rng) for factor in _STRENGTHS]
    queries = [0.0 * base, 0.1 * base, base, 10.0 * base, *subsets, *(10.0 * q for q in subsets), *penalised]
    return [*queries, *_far_directions(objective, sample, base, rng), *_random_directions(sample, base, rng)]


def _far_directions(
    objective: LinearScoresObjective, sample: Block, base: Array, rng: np.random.Generator
) -> list[Array]:
    """Directions of the farthest row and of another far one, alone and against the solution ``base``."""
    X = sample.X
    norms = np.asarray(X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)).ravel()
    order = np.argsort(-norms, kind="stable")
    queries = []
    for i in (order[0], rng.choice(order[: min(_FAR_ROWS, len(order))])):
        row = X[[i]].toarray()[0] if sparse.issparse(X) else np.asarray(X[i], np.float64)
        direction = np.append(row / max(float(norms[i]), 1e-300), 0.0)
        away = objective.query_direction(sample, int(i), direction)
        queries += [score * away for score in _SCORES]
        queries.append(base - 5.0 * away)
    return queries


def _random_directions(sample: Block, base: Array, rng: np.random.Generator) -> list[Array]:
    """Random directions without intercept, two for each spread of the scores."""
    X = sample.X
    mean_square = float((X.multiply(X).sum() if sparse.issparse(X) else np.vdot(X, X)) / X.shape[0])
    queries = []
    for spread in _SPREADS:
        for _ in range(2):
            direction = rng.standard_normal(base.shape) * (spread / max(np.sqrt(mean_square), 1e-150))
            direction[:, -1] = 0.0
            queries.append(direction)
    return queries
