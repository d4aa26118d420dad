"""Objectives that are a sum of losses of linear scores and a penalty, also those of labels, and queries for them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Self

import numpy as np
from scipy import sparse

from tithe.certify.descent import Descent, Metric
from tithe.certify.gap import ConvexObjective, LazyCurvature, SumsT
from tithe.core.data import Array, Block, Moments, Rng, Survey
from tithe.core.labels import LabelledObjective, count_codes
from tithe.core.linear_algebra import EXACT_WORK, curvature_blocks, curvature_cost, effective_support
from tithe.core.parallel import column_means, single_blas_thread
from tithe.core.params import WholeNumber, check_value
from tithe.core.state_checks import Floats, Optional
from tithe.linear.kernels import MAX_FUSED, Loss, ScoreSums, Swept, drift_sums, sweep
from tithe.reduce.kernels import sample_rows

_ROWS_EACH = 12  # drawn rows for each total: with fewer, calibration lost on all sets tried, with more it won
_SAMPLE = 20_000  # rows of a pilot, at the most
_ROUGH, _ROUNDS = 1e-4, 30  # a pilot need not be sharper than its sample
_CALIBRATION_WORK = 10_000_000_000  # products that a calibration may cost
_MAX_NEWTON_COORDINATES = 250  # up to which computing the curvature in every round is cheap
_ROUNDS_OF_RENEWAL = (3, 12, 48)  # rounds after which a more expensive curvature is computed again
_CURVATURE_WORK = 10_000_000_000  # products that a curvature may cost
_CHUNK_ROWS = 4096
_WEAK_PIVOT = 1e-4  # below it, the error of products in single precision may be more than a thousandth of a pivot
_FEW_ROWS, _MAX_DRIFT_OF_FEW = 10.0, 0.5  # effective rows with the curvature along a step, and how much it may change
N_DRIFT_SUMS = 9  # numbers that tell how much a curvature changes along a step

# of queries
_SAMPLE_FOR_SCALE = 20_000  # rows that the scale of columns is taken from
_CONSTANT = 1e-10  # deviation of a column, relative to its largest value, up to which it is constant
_SAMPLE_FOR_FITS = 10_000  # rows that solutions are fitted on
_STRENGTHS = (1e-3, 0.1, 10.0, 1e3)  # factors on the losses, relative to the penalty
_SUBSET_ROWS = 20, 1000
_SUBSET_ROWS_PER_COLUMN = 2  # of one more subset
_FAR_ROWS = 100  # one of this many rows of largest norm is chosen
_SCORES = (3.0, -3.0)  # of a far row, along its own direction
_SPREADS = (0.3, 1.0, 3.0)  # of the scores along random directions
_ROWS_OF_MISSING_CLASS = 3


@dataclass(frozen=True, kw_only=True)
class LinearModelObjective(ConvexObjective[SumsT], Generic[SumsT]):
    """A sum of losses of linear scores, and a penalty, with its curvature and a way to minimise it.

    Parameters are (k, d + 1), intercepts last: one row for each score of a row of data. With r the derivatives of a
    row's loss in its scores (k numbers), the moments are the basic ones (the count, and what a subclass adds), r, and
    r times x. Reproducing their totals gives the coreset the gradient of the full data at the pilot, so that its
    solution errs to second order only.

    Few rows. With fewer rows than coefficients a fit explains whatever rows it gets, and those of large influence are
    the ones that hardly any line explains: fits on an influence draw had up to five times the excess loss of fits on a
    uniform one. How many rows are enough depends on the penalty and the data (from 0.3 to 2 rows per coefficient on the
    sets tried), so it is measured: where fewer than 1.5 rows are kept for each column that occurs
    (`rows_per_coefficient`), ``construction="auto"`` draws both ways, fits on each, and keeps the way with the smaller
    loss on the rows at hand. ``provenance["draw"]`` notes it.

    Where y holds classes, the basic moments are the count and the indicators of all classes but the first. With more
    than two classes the loss must not change where all scores of a row change by the same number.

    A loss defines `n_scores`, `_loss_pass`, `evaluation`, `_residuals`, `_hessian_weights`, `penalty`, `strengthened`,
    `gradient_sizes` and `directional_curvature`. `SingleScoreObjective` is for one score and an elementwise loss,
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

    # what standard errors suppose: the losses are minus the logarithms of a likelihood, errors have one distribution
    error_model: ClassVar[Literal["likelihood", "location"] | None] = None

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
    ) -> tuple[Array | None, SumsT]:
        """Losses (n,) and sums. What is not asked for is empty, zero or None."""

    @abstractmethod
    def _residuals(self, block: Block, params: Array) -> Array:
        """r, the derivatives of each row's loss in its scores: (n, k)."""

    @abstractmethod
    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        """Weighted second derivatives of each row's loss: in each score (n, k), and for pairs of them, by rows."""

    def _second_derivatives(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        """The same without anything that only makes steps safer."""
        return self._hessian_weights(block, params)

    @abstractmethod
    def penalty(self) -> tuple[float, float]:
        """Second derivative of the penalty in a coefficient, and in an intercept."""

    @abstractmethod
    def strengthened(self, factor: float) -> Self: ...

    @abstractmethod
    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        """Second derivative of each row's loss along ``direction`` (k, d + 1): (n,)."""

    def unit(self, weight: float) -> float:
        """What the sum of the losses is multiplied by in the value, for rows of this weight."""
        return 1.0

    # -- what a subclass may define ------------------------------------------------------------

    @property
    def n_scales(self) -> int:
        """How many of the scores, the last ones, are constants: they have an intercept and no coefficients."""
        return 0

    def start_params(self, block: Block) -> Array:
        """Parameters without coefficients, where `minimise` starts."""
        return np.zeros((self.n_scores, block.n_features + 1))

    def can_be_fitted(self, block: Block) -> bool:
        """Whether these rows may have a solution: rows of each class, where y holds classes."""
        return True

    def drift_sums(self, block: Block, params: Array, step: Array) -> Array:
        """The curvature along the step; the sums of each row's part in it times the change of its score, and squared.

        And for half of the step, its end, and the mean over it: the curvature, and the sum of the changes of the parts.
        """
        known = self._one_score(block, params)
        if known is not None and known[1].huber is None:
            return drift_sums(block.X, known[0], params[0], step[0], known[1], weight=block.sample_weight)
        sums = np.zeros(N_DRIFT_SUMS)
        for at in range(0, len(block), _CHUNK_ROWS):
            rows = block.cut(at, at + _CHUNK_ROWS)
            rows = replace(rows, X=rows.X.astype(np.float64, copy=False))
            weight, change = rows.weights(), self.margins(rows.X, step)
            now, half_way, at_end = (self.directional_curvature(rows, params - t * step, step) for t in (0.0, 0.5, 1.0))
            slopes = self._residuals(rows, params) - self._residuals(rows, params - step)
            part = weight * now
            of_chunk = [part.sum(), part @ np.abs(change).max(axis=1), part @ part]
            with np.errstate(invalid="ignore"):  # zero times infinity
                for there in (half_way, at_end, np.einsum("ik,ik->i", slopes, change)):
                    of_chunk += [weight @ there, weight @ np.abs(there - now)]
            sums += of_chunk
        return sums

    def drift_of(self, sums: Array, params: Array, step: Array) -> float:
        """The mean change of a score, each row weighed by its part in the curvature along the step; or more.

        That is right for losses whose second derivative changes by a factor of exp(change of the score), if no row
        has more of the curvature than it has here: one far row that changes sides may have most of it on the way. And
        if a few rows have the curvature and lose it, what the others have to gain shows only then: infinity.
        """
        if not sums[0] > 0.0:
            return 0.0
        drift = max(float(sums[1] / sums[0]), math.log1p(self._change_on_the_way(sums)))  # exp(c) - 1 is a change by c
        return np.inf if drift > _MAX_DRIFT_OF_FEW and sums[0] ** 2 < _FEW_ROWS * sums[2] else drift

    def _change_on_the_way(self, sums: Array) -> float:
        """How much of the curvature changes, row by row, on the way of a step with these `drift_sums`."""
        then, change = sums[3::2], sums[4::2]
        least = np.minimum(then, sums[0])
        return float((change / least).max()) if least.min() > 0.0 and np.isfinite(change).all() else np.inf

    def _free_coordinates(self, shape: tuple[int, ...]) -> Array:
        """Which coordinates (k, d + 1) of the parameters are not fixed at 0."""
        free = np.ones(shape, dtype=bool)
        linear = shape[0] - self.n_scales
        free[linear:, :-1] = False
        free[:linear, -1] = self.fit_intercept
        return free

    def _with_label_codes(self, block: Block) -> tuple[Self, Block]:
        """The objective and the rows as `minimise` uses them, with y in the form that is quickest to read."""
        return self, block

    def _one_score(self, block: Block, params: Array) -> tuple[Array, Loss] | None:
        """Targets and loss as compiled sweeps take them; None: more than one score, or a loss that is not compiled."""
        return None

    def _sums_of(self, sums: ScoreSums) -> SumsT:
        """The sums of a compiled sweep as those of this objective."""
        raise NotImplementedError

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
        return self.loose_tolerance().solve(scaled, rng=rng)

    def loose_tolerance(self) -> Self:
        """The same objective, whose `solve` stops early."""
        return replace(self, tol=_ROUGH, max_iter=_ROUNDS)

    def rows_per_coefficient(self, block: Block, size: int) -> float:
        """Rows among ``size`` drawn uniformly, for each column that occurs and the intercept.

        Where y holds classes, only rows of the smallest one count: with K classes of equal size these are the rows
        for each of the K (d + 1) coefficients.
        """
        columns = len(np.unique(block.X.indices)) if sparse.issparse(block.X) else block.n_features
        codes, weight, rows = self.codes(block), block.sample_weight, float(size)
        if codes is not None:
            mass = count_codes(codes, self.n_classes)[:-1]
            if weight is not None:
                mass = np.bincount(codes, weights=weight, minlength=self.n_classes)
            rows = float(size * mass[mass > 0.0].min() / mass.sum())
        return rows / (columns + 1)

    def survey(self, block: Block, pilot: Array) -> Survey:
        cost, sums = self._loss_pass(block, pilot)
        assert cost is not None
        return Survey(cost=cost, labels=None, totals=self.totals_of(sums))

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        columns = block.n_features + 1
        Floats(self.n_scores, columns).check("pilot", pilot, {})
        Optional(Floats(1, self._n_moments(block))).check("totals", totals, {})

    @property
    def n_basic_moments(self) -> int:
        """Moments that calibration reproduces before all others: the count, and where y holds classes their counts."""
        return max(1, self.n_classes)

    def _basic_moments(self, block: Block) -> Array:
        """(n, n_basic_moments); the first column is 1."""
        ones, codes = np.ones((len(block), 1)), self.codes(block)
        if codes is None:
            return ones
        return np.concatenate([ones, np.equal.outer(codes, np.arange(1, self.n_classes)).astype(np.float64)], axis=1)

    def totals_of(self, sums: SumsT) -> Array:
        """The totals of the moments (1, q), from the sums of a sweep."""
        along = sums.gradient
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
        basic = self.n_basic_moments
        return Moments(
            values=np.concatenate(parts, axis=1), n_basic=basic, n_classes=basic, support=3.0, standard_errors=4.0
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
        cost = self._loss_pass(block, params, gradient=False)[0]
        assert cost is not None
        return cost

    def margins(self, X: Any, params: Array) -> Array:
        """The scores: (n, k)."""
        lines = params[0, :-1] if len(params) == 1 else params[:, :-1].T
        if isinstance(X, np.ndarray) and X.dtype != lines.dtype:  # run by run: a copy of all rows would be large
            runs = (X[at : at + _CHUNK_ROWS].astype(lines.dtype) @ lines for at in range(0, len(X), _CHUNK_ROWS))
            products = np.concatenate([*runs, np.zeros((0, *lines.shape[1:]))])
        else:
            products = np.asarray(X @ lines)
        scores: Array = products.reshape(X.shape[0], len(params)) + params[:, -1]
        return scores

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[Array]:
        """Solutions of small samples, each also moved by 0.1, 1 and 10 in every score, and a hundred times as large."""
        sample = sample_rows(block, _SAMPLE_FOR_SCALE, rng)
        rows = sample.X.toarray() if sparse.issparse(sample.X) else sample.X
        scale = np.append(rows.std(axis=0, dtype=np.float64), 1.0)
        # the deviation of a column that is constant in the sample is 0, or what rounding leaves of it
        varies = scale > _CONSTANT * np.append(np.abs(rows).max(axis=0), 1.0)
        unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=varies) / np.sqrt(len(scale))
        queries: list[Array] = []
        for _ in range(n_bases):
            base = self.pilot(block, rng=rng)
            queries.append(base)
            queries += [base + distance * unit * rng.standard_normal(base.shape) for distance in (0.1, 1.0, 10.0)]
            queries.append(100.0 * base)
        return _with_scales(self, queries, block)

    def hard_params(self, block: Block, *, rng: Rng) -> list[Array]:
        """Zero, solutions on subsets and with other penalties, far rows, random directions."""
        sample = _sample_of_all_classes(self, block, _SAMPLE_FOR_FITS, rng)
        rough = self.loose_tolerance()
        stands = block.total_weight / sample.total_weight
        scaled = Block(X=sample.X, y=sample.y, sample_weight=sample.weights() * stands)
        base = rough.solve(scaled, rng=rng)
        sizes = [*_SUBSET_ROWS, _SUBSET_ROWS_PER_COLUMN * (block.n_features + 1)]
        subsets = [rough.solve(_sample_of_all_classes(self, sample, size, rng), rng=rng) for size in sizes]
        penalised = [rough.strengthened(factor).solve(scaled, rng=rng) for factor in _STRENGTHS]
        queries = [0.0 * base, 0.1 * base, base, 10.0 * base, *subsets, *(10.0 * q for q in subsets), *penalised]
        queries += [*_far_directions(self, sample, base, rng), *_random_directions(sample, base, rng)]
        return _with_scales(self, queries, block)

    def without_coefficients(self, params: Array) -> Array:
        """Parameters like these with all coefficients zero; scales, which must be positive, stay as they are."""
        zero = np.zeros_like(params)
        n_linear = self.n_scores - self.n_scales
        zero[n_linear:] = params[n_linear:]
        return zero

    # -- curvature and minimisation ------------------------------------------------------------

    def centre(self, block: Block) -> Array | None:
        """The point that columns are centred at before their curvature is taken; None: they are not centred.

        Sparse rows are not centred: they would become dense. Nor are rows if the intercept has a penalty, as this
        depends on the origin.
        """
        if not self.fit_intercept or sparse.issparse(block.X) or self.penalty()[1] > 0.0:
            return None
        return column_means(block)

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> SumsT:
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
        unit = self.unit(sample.total_weight)
        second, cross = self._hessian_weights(sample, params)
        hessian = curvature_blocks(sample, second, cross, centre)
        if hessian is not None:
            hessian *= unit
        # a curvature of all rows is not shrunk
        drawn = sample is not block or diagonal is not None or caution > 1.0
        if diagonal is None and hessian is not None and not drawn:
            diagonal = np.einsum("bss->bs", hessian).reshape(k, size)
        elif diagonal is None:
            of_losses = self.sums(block, params, diagonal=True, centre=centre).diagonal
            assert of_losses is not None
            diagonal = unit * of_losses
        support = effective_support(sample.X, second, centre).ravel() / caution if drawn else None
        return self._metric(hessian, diagonal, support, centre)

    def _metric(self, hessian: Array | None, diagonal: Array, support: Array | None, centre: Array | None) -> Metric:
        """The metric of a curvature, with the penalty and without coordinates that are fixed."""
        coefficient, intercept = self.penalty()
        penalty = np.full(diagonal.shape, coefficient)
        penalty[:, -1] = intercept
        penalty[len(penalty) - self.n_scales :] = 0.0
        free = self._free_coordinates(diagonal.shape)
        balanced = self.n_classes > 2
        free_diagonal = np.where(free, diagonal, 0.0)
        return Metric(hessian, free_diagonal.ravel(), penalty.ravel(), support, centre, balanced=balanced, free=free)

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        second, cross = self._hessian_weights(block, params)
        hessian = curvature_blocks(block, second, cross, centre)
        unit = self.unit(block.total_weight if total_weight is None else total_weight)
        return None if hessian is None else unit * hessian

    def sums_and_curvature(
        self, block: Block, params: Array, centre: Array | None, *, total_weight: float | None = None
    ) -> tuple[SumsT, LazyCurvature]:
        swept = self._swept(block, params, centre)
        if swept is None:
            return super().sums_and_curvature(block, params, centre, total_weight=total_weight)
        unit = self.unit(block.total_weight if total_weight is None else total_weight)

        def take() -> Array | None:
            hessian = self._whole_curvature(block, params, centre, self._sharpened(block, swept, unit))
            return None if hessian is None else unit * hessian

        return self._sums_of(swept.sums), LazyCurvature(take, is_known=swept.gram is not None)

    def _swept(self, block: Block, params: Array, centre: Array | None, *, gram: bool = True) -> Swept | None:
        """Sums and second derivatives from a compiled sweep, which adds up the curvature too if columns are few."""
        known = self._one_score(block, params)
        if known is None:
            return None
        gram = gram and not sparse.issparse(block.X) and block.n_features <= MAX_FUSED
        what: Any = {"weight": block.sample_weight, "bends": True, "gram": gram, "centre": centre}
        return sweep(block.X, known[0], params[0], known[1], **what)

    def _sharpened(self, block: Block, swept: Swept, unit: float) -> Swept:
        """Without its curvature if some direction has so little that products in single precision do not tell it.

        The curvature is then taken anew, in double precision where that costs little.
        """
        if swept.gram is None or curvature_cost(block, 1) > EXACT_WORK:
            return swept
        coefficient, intercept = self.penalty()
        hessian = unit * swept.gram + np.diag(np.append(np.full(block.n_features, coefficient), intercept))
        return replace(swept, gram=None) if _least_pivot(hessian) < _WEAK_PIVOT else swept

    def _whole_curvature(self, block: Block, params: Array, centre: Array | None, swept: Swept) -> Array | None:
        """The second derivative of the losses, from a sweep at these parameters."""
        if swept.gram is not None:
            return swept.gram[None]
        return curvature_blocks(block, swept.bends[:, None], lambda a, b, at: swept.bends[at], centre)

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
        flat = self.start_params(block)
        coded, block = self._with_label_codes(block)
        start, renewals = flat, 1
        if init is not None:
            candidate = self._balanced(np.array(init, np.float64))
            renewals += 2
            # far away, where all losses are flat, no direction leads down
            if coded.evaluate(block, candidate).value <= coded.evaluate(block, flat).value:
                start = candidate
        centre, least_value = self.centre(block), self.least_value(block)
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

    def _thinned(self, block: Block) -> Block:
        """The rows, or evenly spaced ones if the curvature of all would cost too much, reweighted to stand for all."""
        step = -(-curvature_cost(block, self.n_scores) // _CURVATURE_WORK)
        if step <= 1:
            return block
        rows = np.flatnonzero(block.weights() > 0.0)[::step]
        return block.take(rows, block.weights()[rows] * (block.total_weight / block.weights()[rows].sum()))

    def _balanced(self, params: Array) -> Array:
        """Parameters that add up to zero over the scores, where a common shift changes the penalty alone."""
        return params - params.mean(axis=0) if self.n_classes > 2 else params


@dataclass(frozen=True, kw_only=True)
class LabelledLinearObjective(LabelledObjective, LinearModelObjective[SumsT]):
    """A `LinearModelObjective` whose y are classes, with one score for two classes, else one for each class."""

    def __post_init__(self) -> None:
        LinearModelObjective.__post_init__(self)
        LabelledObjective.__post_init__(self)

    @property
    def n_scores(self) -> int:
        """k: one for two classes, else one for each class."""
        return 1 if self.n_classes == 2 else self.n_classes

    def _with_label_codes(self, block: Block) -> tuple[Self, Block]:
        """Class numbers in place of labels."""
        coded = Block(X=block.X, y=self.codes(block), sample_weight=block.sample_weight)
        return replace(self, classes=tuple(range(self.n_classes))), coded


def _least_pivot(matrix: Array) -> float:
    """The smallest pivot of a matrix whose diagonal is scaled to 1: near 0 if it is nearly singular."""
    diagonal = np.diag(matrix)
    known = diagonal > 0.0
    scale = 1.0 / np.sqrt(diagonal[known])
    try:
        factor = np.linalg.cholesky(matrix[np.ix_(known, known)] * np.outer(scale, scale))
    except np.linalg.LinAlgError:
        return 0.0
    return float(np.square(np.diag(factor)).min(initial=1.0))


def signed(X: Any, sign: Array, last: float) -> Any:
    """sign * (x, last) in the precision of the rows, dense or CSR."""
    sign = sign.astype(X.dtype)[:, None]
    if sparse.issparse(X):
        return sparse.hstack([X.multiply(sign), sparse.csr_matrix(last * sign)], format="csr")
    rows = np.empty((X.shape[0], X.shape[1] + 1), X.dtype)
    np.multiply(X, sign, out=rows[:, :-1])
    rows[:, -1:] = last * sign
    return rows


def _with_scales(objective: LinearModelObjective, queries: list[Array], block: Block) -> list[Array]:
    """The same queries, with scales that are positive and have no coefficients."""
    linear = objective.n_scores - objective.n_scales
    scales = objective.start_params(block)[linear:]
    for query in queries:
        query[linear:] = np.where((scales > 0.0) & (query[linear:] > 0.0), query[linear:], scales)
    return queries


def _far_directions(objective: LinearModelObjective, sample: Block, base: Array, rng: Rng) -> list[Array]:
    """Directions of the farthest row and of another far one, alone and against the solution ``base``."""
    X = sample.X
    norms = np.asarray(X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)).ravel()
    order = np.argsort(-norms, kind="stable")
    queries = []
    for i in (order[0], rng.choice(order[: min(_FAR_ROWS, len(order))])):
        row = X[[i]].toarray()[0] if sparse.issparse(X) else np.asarray(X[i], np.float64)
        direction = np.append(row / max(float(norms[i]), 1e-300), 0.0)
        away = _towards_own_class(objective, sample, int(i), direction)
        queries += [score * away for score in _SCORES]
        queries.append(base - 5.0 * away)
    return queries


def _random_directions(sample: Block, base: Array, rng: Rng) -> list[Array]:
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


def _sample_of_all_classes(objective: LinearModelObjective, block: Block, size: int, rng: Rng) -> Block:
    """Random rows, and some of each class that would be missing."""
    sample = sample_rows(block, size, rng)
    codes, drawn = objective.codes(block), objective.codes(sample)
    missing = np.empty(0) if codes is None or drawn is None else np.setdiff1d(np.unique(codes), drawn)
    if len(missing) == 0:
        return sample
    more = [rng.permutation(np.flatnonzero(codes == code))[:_ROWS_OF_MISSING_CLASS] for code in missing]
    rows = rng.permutation(len(block))[:size]
    return block.take(np.unique(np.concatenate([rows, *more])))


def _towards_own_class(objective: LinearModelObjective, block: Block, row: int, along: Array) -> Array:
    """Parameters (k, d + 1) that move one row by ``along`` (d + 1,): towards its own class where y holds classes."""
    codes, direction = objective.codes(block), np.zeros((objective.n_scores, len(along)))
    if codes is None or objective.n_scores > 1:
        direction[0 if codes is None else codes[row]] = along
    else:
        direction[0] = along if codes[row] == 1 else -along
    return direction
