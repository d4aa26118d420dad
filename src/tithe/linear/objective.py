"""Objectives that are a sum of losses of linear scores and a penalty, also those of labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.certify.descent import Descent, Metric
from tithe.core.contracts import ConvexObjective, InfluenceObjective
from tithe.core.data import Array, Block, Moments, Rng, Survey
from tithe.core.labels import LabelledObjective, count_codes
from tithe.core.linear_algebra import MAX_COORDINATES, curvature_blocks, curvature_cost, effective_support
from tithe.core.parallel import single_blas_thread
from tithe.core.params import WholeNumber, check_value
from tithe.core.parts import column_means
from tithe.core.state_checks import Floats, Optional
from tithe.linear.queries import hard_linear, random_linear
from tithe.reduce.kernels import sample_rows

_ROWS_EACH = 12  # drawn rows for each total: with fewer, calibration lost on all sets tried, with more it won
_SAMPLE = 20_000  # rows of a pilot, at the most
_ROUGH, _ROUNDS = 1e-4, 30  # a pilot need not be sharper than its sample
_CALIBRATION_WORK = 10_000_000_000  # products that a calibration may cost
_MAX_NEWTON_COORDINATES = 250  # up to which computing the curvature in every round is cheap
_ROUNDS_OF_RENEWAL = (3, 12, 48)  # rounds after which a more expensive curvature is computed again
_CURVATURE_WORK = 10_000_000_000  # products that a curvature may cost
_CHUNK_ROWS = 2048
_ROWS_OF_USUAL_LOSS = 1000  # that show how large a usual loss is


@dataclass(frozen=True, kw_only=True)
class LinearModelObjective(ConvexObjective, InfluenceObjective):
    """A sum of losses of linear scores, and a penalty, with its curvature and a way to minimise it.

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
    `_penalty`, `strengthened` and `directional_curvature`. `SingleScoreObjective` is for one score and an elementwise
    loss, `LabelledLinearObjective` for classes.

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

    def flat(self, block: Block) -> Array:
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

    def sample_for_query(self, block: Block, size: int, rng: Rng) -> Block:
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

    def pilot(self, block: Block, *, rng: Rng) -> Array:
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

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[Array]:
        return random_linear(self, block, n_bases, rng)

    def hard_params(self, block: Block, *, rng: Rng) -> list[Array]:
        return hard_linear(self, block, rng)

    def without_coefficients(self, params: Array) -> Array:
        """Parameters like these with all coefficients zero; scales, which must be positive, stay as they are."""
        zero = np.zeros_like(params)
        n_linear = self.n_scores - self.n_scales
        zero[n_linear:] = params[n_linear:]
        return zero

    def negligible_loss(self, rows: Block, params: Array) -> float:
        step = -(-len(rows) // _ROWS_OF_USUAL_LOSS)
        some = rows.take(np.arange(0, len(rows), step)) if step > 1 else rows
        if not some.total_weight > 0.0:
            return 0.0
        some = replace(some, sample_weight=some.weights() * (rows.total_weight / some.total_weight), mean=None)
        return self.relative_rounding * self.evaluate(some, self.without_coefficients(params)).value

    # -- curvature and minimisation ------------------------------------------------------------

    def centre(self, block: Block) -> Array | None:
        """The point that columns are centred at before their curvature is taken; None: they are not centred.

        Sparse rows are not centred: they would become dense. Nor are rows if the intercept has a penalty, as this
        depends on the origin.
        """
        if not self.fit_intercept or sparse.issparse(block.X) or self._penalty()[1] > 0.0:
            return None
        return column_means(block)

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> Any:
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
        """The curvature of these rows at ``params``, with the exact ``diagonal`` of all rows if given.

        With more ``caution``, correlations between columns are shrunk more where few rows support them.
        """
        k, size = params.shape
        sample = self._thinned(block)
        unit = self._unit(sample.total_weight)
        second, cross = self._hessian_weights(sample, params)
        hessian = curvature_blocks(sample, second, cross, centre)
        if hessian is not None:
            hessian *= unit
        # a curvature of all rows is not shrunk
        drawn = sample is not block or diagonal is not None or caution > 1.0
        if diagonal is None and hessian is not None and not drawn:
            diagonal = np.einsum("bss->bs", hessian).reshape(k, size)
        elif diagonal is None:
            diagonal = unit * self._loss_pass(block, params, cost=False, diagonal=True, centre=centre)[1].diagonal
        assert diagonal is not None
        support = effective_support(sample.X, second, centre).ravel() / caution if drawn else None
        return self._metric(hessian, diagonal, support, centre)

    def _metric(self, hessian: Array | None, diagonal: Array, support: Array | None, centre: Array | None) -> Metric:
        """The metric of a curvature, with the penalty and without coordinates that are fixed."""
        coefficient, intercept = self._penalty()
        penalty = np.full(diagonal.shape, coefficient)
        penalty[:, -1] = intercept
        penalty[len(penalty) - self.n_scales :] = 0.0
        free = self._free_coordinates(diagonal.shape)
        balanced = self._shift_invariant
        free_diagonal = np.where(free, diagonal, 0.0)
        return Metric(hessian, free_diagonal.ravel(), penalty.ravel(), support, centre, balanced=balanced, free=free)

    def keeps_curvature(self, params: Array) -> bool:
        return params.size <= MAX_COORDINATES

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        second, cross = self._hessian_weights(block, params)
        hessian = curvature_blocks(block, second, cross, centre)
        unit = self._unit(block.total_weight if total_weight is None else total_weight)
        return None if hessian is None else unit * hessian

    def metric_of(self, hessian: Array, centre: Array | None = None) -> Metric:
        return self._metric(hessian, np.einsum("bss->bs", hessian).reshape(self.n_scores, -1), None, centre)

    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        second = self._hessian_weights(block, params)[0]
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)
        shares = np.empty(len(block))
        for start in range(0, len(block), _CHUNK_ROWS):
            at = slice(start, start + _CHUNK_ROWS)
            rows = block.X[at]
            if sparse.issparse(rows):
                square = rows.multiply(rows)
            else:
                square = np.square(rows - centre if centre is not None else rows, dtype=np.float64)
            shares[at] = np.einsum("ik,ik->i", second[at], square @ inverse[:, :-1].T + inverse[:, -1])
        return shares

    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        support = effective_support(block.X, self._hessian_weights(block, params)[0], centre)
        return float(support[:, : block.n_features].min())

    def solve(self, block: Block, *, rng: Rng, init: Array | None = None) -> Array:
        """The minimiser (k, d + 1) for the weighted rows, by Newton's method or preconditioned L-BFGS."""
        return self.minimise(block, init=init)[0]

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """The result of `solve`, and its number of passes over the rows."""
        flat = self.flat(block)
        coded, block = self._coded(block)
        start, renewals = flat, 1
        if init is not None:
            candidate = self._balanced(np.array(init, np.float64))
            renewals += 2
            # far away, where all losses are flat, no direction leads down
            if coded.evaluate(block, candidate).value <= coded.evaluate(block, flat).value:
                start = candidate
        centre, least_value = self.centre(block), self._least_value(block)
        with single_blas_thread():
            descent = Descent(lambda p: coded.evaluate(block, p), start, coded.metric(block, start, centre=centre))
            for number in range(1, self.max_iter + 1):
                if descent.metric.decrement(descent.point.gradient) <= self.tol * descent.point.value:
                    break
                if descent.point.value < least_value or not descent.round():
                    break
                if start.size <= _MAX_NEWTON_COORDINATES or number in _ROUNDS_OF_RENEWAL:
                    descent.renew(coded.metric(block, descent.params, centre=centre))
                    renewals += 1
            # near the optimum values agree to rounding error, so the last step is judged by the gradient
            params = descent.params - descent.metric.solve(descent.point.gradient)
            final = coded.evaluate(block, params)
        better = np.linalg.norm(final.gradient) < np.linalg.norm(descent.point.gradient)
        if not (better and final.value <= descent.point.value * (1.0 + 1e-12)):
            params = descent.params
        return self._balanced(params), descent.n_evaluations + renewals + 1

    def _least_value(self, block: Block) -> float:
        """A value below which the descent would go on for ever, since there is no minimum."""
        return 0.0

    def _thinned(self, block: Block) -> Block:
        """The rows, or evenly spaced ones if the curvature of all would cost too much, reweighted to stand for all."""
        step = -(-curvature_cost(block, self.n_scores) // _CURVATURE_WORK)
        if step <= 1:
            return block
        rows = np.flatnonzero(block.weights() > 0.0)[::step]
        return block.take(rows, block.weights()[rows] * (block.total_weight / block.weights()[rows].sum()))

    def _balanced(self, params: Array) -> Array:
        """Parameters that add up to zero over the scores, where a common shift changes the penalty alone."""
        return params - params.mean(axis=0) if self._shift_invariant else params


_ROWS_OF_MISSING_CLASS = 3


@dataclass(frozen=True, kw_only=True)
class LabelledLinearObjective(LabelledObjective, LinearModelObjective):
    """A `LinearModelObjective` whose y are classes.

    There is k = 1 score for two classes, else one for each class. The basic moments are the count and the indicators
    of all classes but the first. With more than two classes the loss must not change where all scores of a row
    change by the same number.
    """

    def __post_init__(self) -> None:
        LinearModelObjective.__post_init__(self)
        LabelledObjective.__post_init__(self)

    @property
    def n_scores(self) -> int:
        """k: one for two classes, else one for each class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def n_basic_moments(self) -> int:
        return self.n_classes

    def _basic_moments(self, block: Block) -> Array:
        indicators = np.equal.outer(self.codes(block), np.arange(1, self.n_classes)).astype(np.float64)
        return np.concatenate([np.ones((len(block), 1)), indicators], axis=1)

    @property
    def _shift_invariant(self) -> bool:
        return self.n_scores > 1

    def _coded(self, block: Block) -> tuple[Self, Block]:
        """Class numbers in place of labels."""
        coded = Block(X=block.X, y=self.codes(block), sample_weight=block.sample_weight)
        return replace(self, classes=tuple(range(self.n_classes))), coded

    def _rows_to_learn_from(self, block: Block, size: int) -> float:
        """Rows of the smallest class.

        With K classes of equal size this gives the rows for each of the K (d + 1) coefficients.
        """
        codes, weight = self.codes(block), block.sample_weight
        if weight is None:
            mass = count_codes(codes, self.n_classes)[:-1]
        else:
            mass = np.bincount(codes, weights=weight, minlength=self.n_classes)
        return float(size * mass[mass > 0.0].min() / mass.sum())

    def sample_for_query(self, block: Block, size: int, rng: np.random.Generator) -> Block:
        """Random rows, and some of each class that would be missing."""
        sample = sample_rows(block, size, rng)
        codes, drawn = self.codes(block), self.codes(sample)
        missing = np.setdiff1d(np.unique(codes), drawn)
        if len(missing) == 0:
            return sample
        more = [rng.permutation(np.flatnonzero(codes == code))[:_ROWS_OF_MISSING_CLASS] for code in missing]
        rows = rng.permutation(len(block))[:size]
        return block.take(np.unique(np.concatenate([rows, *more])))

    def signed_rows(self, block: Block) -> Any:
        """Rows as features for a regression: z = +-(x, 1) for two classes, else x and indicators of the class."""
        codes = self.codes(block)
        if self.n_classes == 2:
            return signed(block.X, 2.0 * codes - 1.0, 1.0)
        truth = np.equal.outer(codes, np.arange(self.n_classes)).astype(block.X.dtype)
        if sparse.issparse(block.X):
            return sparse.hstack([block.X, sparse.csr_matrix(truth)], format="csr")
        return np.hstack([block.X, truth])

    def query_direction(self, block: Block, row: int, along: Array) -> Array:
        """Parameters that move one row towards its own class."""
        code = int(self.codes(block)[row])
        if self.n_scores == 1:
            return (along if code == 1 else -along)[None]
        direction = np.zeros((self.n_scores, len(along)))
        direction[code] = along
        return direction


def signed(X: Any, sign: Array, last: float) -> Any:
    """sign * (x, last) in the precision of the rows, dense or CSR."""
    sign = sign.astype(X.dtype)[:, None]
    if sparse.issparse(X):
        return sparse.hstack([X.multiply(sign), sparse.csr_matrix(last * sign)], format="csr")
    rows = np.empty((X.shape[0], X.shape[1] + 1), X.dtype)
    np.multiply(X, sign, out=rows[:, :-1])
    rows[:, -1:] = last * sign
    return rows
