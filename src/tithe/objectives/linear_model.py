"""What the objectives of linear models share: moments, curvature, and minimisation."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.contracts import ConvexObjective, InfluenceObjective
from tithe.core.data import Array, Block, Evaluation, Moments, Survey
from tithe.core.parallel import single_blas_thread
from tithe.core.state_checks import Floats, Optional
from tithe.kernels.columns import column_means
from tithe.kernels.sampling import sample_rows
from tithe.objectives.linear_queries import hard_queries, random_queries
from tithe.solvers.curvature import MOST_COORDINATES, curvature_blocks, curvature_cost, effective_support
from tithe.solvers.descent import Descent, Metric

_ROWS_EACH = 12  # drawn rows for each total: with fewer, calibration lost on all sets tried, with more it won
_NEWTON = 250  # coordinates up to which a fresh curvature in every round is cheap
_SAMPLE = 20_000  # rows of a pilot, at the most
_ROUGH, _ROUNDS = 1e-4, 30  # a pilot need not be sharper than its sample
_RENEW = (3, 12, 48)  # rounds after which an old curvature is worth a new one where it is dear
_FLOPS = 10_000_000_000  # that a curvature or a calibration may cost
_CHUNK_ROWS = 2048


@dataclass(frozen=True, kw_only=True)
class LinearModelObjective(ConvexObjective, InfluenceObjective):
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

    A subclass defines `n_scores`, `_loss_pass`, `_gradient_sums`, `evaluation`, `_residuals`, `_hessian_weights`,
    `_penalty`, `strengthened` and `bend`. See `SingleScoreObjective` for one score and an elementwise loss, and
    `LabelledLinearObjective` for classes.

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
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be a whole number of at least 1, got {self.max_iter!r}.")

    # -- what a subclass defines ---------------------------------------------------------------

    @property
    @abstractmethod
    def n_scores(self) -> int:
        """k: the number of scores of a row."""

    @abstractmethod
    def _loss_pass(self, block: Block, params: Array, **what: Any) -> tuple[Any, Any]:
        """Losses (n,), and sums with ``count`` (basic moments,), ``diagonal`` and the gradient of the losses."""

    @abstractmethod
    def evaluation(self, sums: Any, params: Array) -> Evaluation:
        """What `evaluate` says of all rows that were added up."""

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

    @abstractmethod
    def bend(self, block: Block, params: Array, direction: Array) -> Array:
        """Second derivative of each row's loss along ``direction`` (k, d + 1): (n,)."""

    # -- what a subclass may define ------------------------------------------------------------

    @property
    def n_basic_moments(self) -> int:
        """Moments that calibration reproduces before all others."""
        return 1

    def _basic_moments(self, block: Block) -> Array:
        """(n, n_basic_moments); the first column is 1."""
        return np.ones((len(block), 1))

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
        return self.rough().solve(scaled, rng=rng)

    def rough(self) -> Self:
        """The same objective, whose `solve` stops early."""
        return replace(self, tol=_ROUGH, max_iter=_ROUNDS)

    def rows_per_coefficient(self, block: Block, size: int) -> float:
        """Rows among ``size`` drawn uniformly, for each column that occurs and the intercept."""
        columns = np.count_nonzero(block.X.getnnz(axis=0)) if sparse.issparse(block.X) else block.n_features
        return self._rows_to_learn_from(block, size) / (columns + 1)

    def survey(self, block: Block, pilot: Array) -> Survey:
        cost, sums = self._loss_pass(block, pilot)
        return Survey(cost=cost, labels=None, totals=self.totals_of(sums))

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        """Whether a pilot and totals that were read from a file fit the rows."""
        columns = block.n_features + 1
        Floats(self.n_scores, columns).check("pilot", pilot, {})
        Optional(Floats(1, self.n_basic_moments + self.n_scores * columns)).check("totals", totals, {})

    def totals_of(self, sums: Any) -> Array:
        """The totals of the moments (1, q), from the sums of a sweep."""
        along = self._gradient_sums(sums)
        return np.concatenate([[sums.count.sum()], sums.count[1:], along[:, -1], along[:, :-1].ravel()])[None]

    def moments(self, block: Block, pilot: Array) -> Moments:
        """(n, q) for the few rows that were drawn; only the counts where so few rows cannot be steered by more."""
        parts = [self._basic_moments(block)]
        width = self.n_basic_moments + self.n_scores * (block.n_features + 1)
        if len(block) >= _ROWS_EACH * width and len(block) * width * width <= _FLOPS:
            residual = self._residuals(block, pilot)
            rows = block.X.toarray() if sparse.issparse(block.X) else block.X
            parts += [residual, *(r[:, None] * rows for r in residual.T)]
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
            for a in range(k):
                at = first + k + a * d
                part[:, at : at + d] -= part[:, first + a, None] * centre
        return replace(moments, values=values), totals

    # -- what a learner needs ------------------------------------------------------------------

    def cost(self, block: Block, params: Array) -> Array:
        """The loss of every row: (n,)."""
        cost: Array = self._loss_pass(block, params, gradient=False)[0]
        return cost

    def margins(self, X: Any, params: Array) -> Array:
        """The scores: (n, k)."""
        scores: Array = np.asarray(X @ params[:, :-1].T) + params[:, -1]
        return scores

    def random_params(self, block: Block, *, n_bases: int, rng: np.random.Generator) -> list[Array]:
        """Solutions and places around them, for trying how well a coreset keeps the loss (`tithe.distortion`)."""
        return random_queries(self, block, n_bases, rng)

    def hard_params(self, block: Block, *, rng: np.random.Generator) -> list[Array]:
        """Queries on which a coreset errs more than on most (`hard_queries`), for choosing sizes (`propose_size`)."""
        return hard_queries(self, block, rng)

    def centre(self, block: Block) -> Array | None:
        """Where columns are centred before their curvature is taken; None where they are not.

        Sparse rows are not: they would be dense, and zero is where most of them are. Nor are rows beside a
        penalty on the intercept, which knows where the origin is.
        """
        if not self.fit_intercept or sparse.issparse(block.X) or self._penalty()[1] > 0.0:
            return None
        return column_means(block)

    def evaluate(
        self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None
    ) -> Evaluation:
        """Value, gradient and a proved bound on what is left to gain, in one pass; ``centre`` is for the diagonal."""
        return self.evaluation(self.sums(block, params, diagonal=diagonal, centre=centre), params)

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> Any:
        """What `evaluation` needs to know of some rows; add up what others say of theirs."""
        return self._loss_pass(block, params, cost=False, diagonal=diagonal, centre=centre)[1]

    def metric(
        self,
        block: Block,
        params: Array,
        *,
        diagonal: Array | None = None,
        centre: Array | None = None,
        caution: float = 1.0,
    ) -> Metric:
        """The curvature at ``params`` as these rows see it; with the exact diagonal of all rows where given.

        With more ``caution``, correlations between columns that few rows speak of are believed less.
        """
        k, size = params.shape
        some = self._thinned(block)
        unit = self._unit(some.total_weight)
        bend, cross = self._hessian_weights(some, params)
        hessian = curvature_blocks(some, bend, cross, centre)
        if hessian is not None:
            hessian *= unit
        # else the curvature is what it is
        drawn = some is not block or diagonal is not None or caution > 1.0
        if diagonal is None and hessian is not None and not drawn:
            diagonal = np.einsum("bss->bs", hessian).reshape(k, size)
        elif diagonal is None:
            diagonal = unit * self._loss_pass(block, params, cost=False, diagonal=True, centre=centre)[1].diagonal
        assert diagonal is not None
        exact = diagonal.copy()
        if not self.fit_intercept:
            exact[:, -1] = 0.0
        support = effective_support(some.X, bend, centre).ravel() / caution if drawn else None
        penalties = self._penalties((k, size))
        return Metric(hessian, exact.ravel(), penalties, support, centre, balanced=self._shift_invariant)

    @property
    def convex(self) -> bool:
        """Whether the sum of the losses is convex in the parameters."""
        return True

    def keeps_curvature(self, params: Array) -> bool:
        """Whether the curvature of so many coefficients is kept as a whole matrix."""
        return params.size <= MOST_COORDINATES

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        """The second derivative of the losses of these rows; see `curvature_blocks`.

        ``total_weight`` is that of all rows, where these are some of them.
        """
        bend, cross = self._hessian_weights(block, params)
        hessian = curvature_blocks(block, bend, cross, centre)
        unit = self._unit(block.total_weight if total_weight is None else total_weight)
        return None if hessian is None else unit * hessian

    def metric_of(self, hessian: Array, centre: Array | None = None) -> Metric:
        """A curvature that is believed as it is, with the penalty."""
        diagonal = np.einsum("bss->bs", hessian).reshape(self.n_scores, -1).copy()
        if not self.fit_intercept:
            diagonal[:, -1] = 0.0
        penalties = self._penalties(diagonal.shape)
        return Metric(hessian, diagonal.ravel(), penalties, None, centre, balanced=self._shift_invariant)

    def _penalties(self, shape: tuple[int, ...]) -> Array:
        """What the penalty adds to the diagonal of the curvature."""
        coefficient, intercept = self._penalty()
        penalty = np.full(shape, coefficient)
        penalty[:, -1] = intercept
        return penalty.ravel()

    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        """The part of each row in the diagonal of the curvature of all, added up over the coordinates: (n,)."""
        bend = self._hessian_weights(block, params)[0]
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
        part = np.empty(len(block))
        for start in range(0, len(block), _CHUNK_ROWS):
            at = slice(start, start + _CHUNK_ROWS)
            rows = block.X[at]
            if sparse.issparse(rows):
                square = rows.multiply(rows)
            else:
                square = np.square(rows - centre if centre is not None else rows, dtype=np.float64)
            part[at] = np.einsum("ik,ik->i", bend[at], square @ inverse[:, :-1].T + inverse[:, -1])
        return part

    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        """Effective number of rows that the curvature in the column known least comes from."""
        support = effective_support(block.X, self._hessian_weights(block, params)[0], centre)
        return float(support[:, : block.n_features].min())

    def solve(self, block: Block, *, rng: np.random.Generator, init: Array | None = None) -> Array:
        """The minimiser (k, d + 1) for the weighted rows, by Newton's method or preconditioned L-BFGS."""
        return self.minimise(block, init=init)[0]

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """What `solve` gives, and how many times it looked at all rows."""
        flat = np.zeros((self.n_scores, block.n_features + 1))
        coded, block = self._coded(block)
        start, renewals = flat, 1
        if init is not None:
            given = self._balanced(np.array(init, np.float64))
            renewals += 2
            # from far off, where all losses are flat, no way leads down
            if coded.evaluate(block, given).value <= coded.evaluate(block, flat).value:
                start = given
        centre, least = self.centre(block), self._least_value(block)
        with single_blas_thread():
            descent = Descent(lambda p: coded.evaluate(block, p), start, coded.metric(block, start, centre=centre))
            for number in range(1, self.max_iter + 1):
                if descent.metric.decrement(descent.point.gradient) <= self.tol * descent.point.value:
                    break
                if descent.point.value < least:
                    break
                if not descent.round():
                    break
                if start.size <= _NEWTON or number in _RENEW:
                    descent.renew(coded.metric(block, descent.params, centre=centre))
                    renewals += 1
            # values cannot tell places closer than the root of rounding apart: the last step needs no comparison
            params = descent.params - descent.metric.solve(descent.point.gradient)
            last = coded.evaluate(block, params)
        better = np.linalg.norm(last.gradient) < np.linalg.norm(descent.point.gradient)
        if not (better and last.value <= descent.point.value * (1.0 + 1e-12)):
            params = descent.params
        return self._balanced(params), descent.n_evaluations + renewals + 1

    def _least_value(self, block: Block) -> float:
        """A value below which the descent would go on for ever, since there is no minimum."""
        return 0.0

    def _thinned(self, block: Block) -> Block:
        """The rows, or as many evenly spaced ones as a curvature can be afforded from; weights stand for all."""
        step = -(-curvature_cost(block, self.n_scores) // _FLOPS)
        if step <= 1:
            return block
        rows = np.flatnonzero(block.weights() > 0.0)[::step]
        return block.take(rows, block.weights()[rows] * (block.total_weight / block.weights()[rows].sum()))

    def _balanced(self, params: Array) -> Array:
        """Parameters that add up to zero over the scores, where a common shift changes the penalty alone."""
        return params - params.mean(axis=0) if self._shift_invariant else params
