"""Logistic regression: what a coreset for it must preserve."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit, softmax

from tithe.core.data import Array, Block, Evaluation, Moments, Survey
from tithe.kernels.columns import column_means
from tithe.kernels.descent import Descent, Metric
from tithe.kernels.logistic import LogisticSums, logistic_sweep
from tithe.kernels.sampling import sample_rows
from tithe.kernels.threads import single_blas_thread
from tithe.objectives.curvature import curvature_blocks, curvature_cost, effective_support
from tithe.objectives.labels import LabelledObjective
from tithe.objectives.logistic_bound import ClusterBounds

_ROWS_EACH = 12  # drawn rows for each total: with fewer, calibration lost on all sets tried, with more it won
_NEWTON = 250  # coordinates up to which a fresh curvature in every round is cheap
_SAMPLE = 20_000  # rows of a pilot, at the most
_ROUGH, _ROUNDS = 1e-4, 30  # a pilot need not be sharper than its sample
_RENEW = (3, 12, 48)  # rounds after which an old curvature is worth a new one where it is dear
_FLOPS = 10_000_000_000  # that a curvature or a calibration may cost


@dataclass(frozen=True, kw_only=True)
class LogisticObjective(ClusterBounds, LabelledObjective):
    """f(x, y) = -ln P(y | x), with penalty |coefficients|^2 / (2 C) on top of the sum.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty, as in scikit-learn: it stands beside a *sum* of losses, so
        the weights of a coreset, which add up to those of all rows, keep its meaning.
    fit_intercept : bool
        The intercept carries no penalty.
    classes : tuple or None
        Labels, in the order of their numbers. None: taken from the rows at hand.
    max_iter, tol : int, float
        `solve` stops after so many rounds, or when a step of Newton promises less than this share.

    Notes
    -----
    Parameters are (k, d + 1), intercepts last. Two classes: k = 1 and P(1 | x) = 1 / (1 + exp(-m)),
    m = theta . (x, 1). K > 2 classes: k = K and P = softmax(m), as in scikit-learn.

    With r = P - [y = class] the residual (k numbers a row), the moments are 1, the indicators of
    all classes but the first, r, and r times x. Reproducing their totals gives the coreset the
    gradient of the full data at the pilot, so that its solution errs to second order only.
    The best place for the pilot is the solution on the drawn rows (``totals_at_solution``).

    Bound. For any shares 0 <= s_c <= 1 of the classes c with sum_c s_c R_c = 0, R_c the sum of r
    over the rows of class c (only needed with an intercept), the mixtures of P and [y = .] with
    shares s are a feasible point of the dual problem and, the entropy H being concave,

        P(theta) - P* <= P(theta) - sum_c s_c sum_c H(P) + (C/2) |sum_c s_c G_c|^2,

    G_c the sum of r x over class c. R has the form of a generator of a Markov chain (rows sum to
    zero, off-diagonal entries are not negative), so such s exist: its stationary distribution. At
    s = 1 the right-hand side is |gradient|^2 C / 2. With more than 32 classes and an intercept the
    bound is only that losses are not negative.
    """

    C: float = 1.0
    fit_intercept: bool = True
    max_iter: int = 200
    tol: float = 1e-10

    name: ClassVar[str] = "logistic"
    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.C, numbers.Real) and 0.0 < self.C < np.inf):
            raise ValueError(f"C must be a positive number, got {self.C!r}.")
        if isinstance(self.max_iter, bool) or not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be a whole number of at least 1, got {self.max_iter!r}.")
        super().__post_init__()

    @property
    def n_margins(self) -> int:
        """k: one for two classes, else one a class."""
        return 1 if self.n_classes == 2 else self.n_classes

    # -- what constructions and calibration need -----------------------------------------------

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """The solution on a small sample, whatever the number of rows: (k, d + 1)."""
        rows = sample_rows(block, min(_SAMPLE, max(2000, 10 * (block.n_features + 1))), rng)
        scale = len(block) / rows.total_weight  # whatever the unit of the weights
        scaled = Block(X=rows.X, y=rows.y, sample_weight=rows.weights() * scale)
        return replace(self, tol=_ROUGH, max_iter=_ROUNDS).solve(scaled, rng=rng)

    def survey(self, block: Block, pilot: Array) -> Survey:
        cost, sums = self._sweep(block, pilot)
        return Survey(cost=cost, labels=None, totals=self.totals_of(sums))

    def totals_of(self, sums: LogisticSums) -> Array:
        """The totals of the moments (1, q), from the sums of a sweep."""
        along = sums.gradient.sum(axis=0)
        return np.concatenate([[sums.count.sum()], sums.count[1:], along[:, -1], along[:, :-1].ravel()])[None]

    def moments(self, block: Block, pilot: Array) -> Moments:
        """(n, q) for the few rows that were drawn; only the counts where so few rows cannot be steered by more."""
        codes = self.codes(block)
        truth = np.equal.outer(codes, np.arange(1, self.n_classes)).astype(np.float64)
        basic = [np.ones((len(block), 1)), truth]
        width = self.n_classes + self.n_margins * (block.n_features + 1)
        if len(block) >= _ROWS_EACH * width and len(block) * width * width <= _FLOPS:
            residual = self._residuals(block, pilot, codes)
            rows = block.X.toarray() if sparse.issparse(block.X) else block.X
            basic += [residual, *(r[:, None] * rows for r in residual.T)]
        # measured: these guards let calibration use rare columns, and nothing was made worse by it
        return Moments(values=np.concatenate(basic, axis=1), n_basic=self.n_classes, support=3.0, standard_errors=4.0)

    def centred_moments(self, block: Block, moments: Moments, totals: Array) -> tuple[Moments, Array]:
        """The same moments and totals with r (x - mean) in place of r x, the mean being that of the block.

        It is the same to reproduce either, r being among them; but far from the origin r x is hardly
        more than r again, and what is more would be lost to the ridge.
        """
        first, k, d = self.n_classes, self.n_margins, block.n_features
        if moments.values.shape[1] <= first:
            return moments, totals
        centre = column_means(block)
        values, totals = moments.values.copy(), totals.copy()
        for part in (values, totals):
            for a in range(k):
                at = first + k + a * d
                part[:, at : at + d] -= part[:, first + a, None] * centre
        return replace(moments, values=values), totals

    def pull(self, cost: Array) -> Array:
        """How hard rows of these losses pull at their margin: 1 - P(y | x), the size of the residual up to sqrt(2)."""
        return -np.expm1(-cost)

    # -- what a learner needs ------------------------------------------------------------------

    def cost(self, block: Block, params: Array) -> Array:
        """-ln P(y | x) of every row: (n,)."""
        return self._sweep(block, params, gradient=False)[0]

    def margins(self, X: Any, params: Array) -> Array:
        """(n, k)."""
        scores: Array = np.asarray(X @ params[:, :-1].T) + params[:, -1]
        return scores

    def random_params(self, block: Block, *, n_bases: int, rng: np.random.Generator) -> list[Array]:
        """Solutions of small samples, each also moved by .1, 1 and 10 in every margin, and a hundred times as large.

        They are for trying how well a coreset keeps the loss (`tithe.distortion`).
        """
        some = sample_rows(block, _SAMPLE, rng)
        rows = some.X.toarray() if sparse.issparse(some.X) else some.X
        scale = np.append(rows.std(axis=0, dtype=np.float64), 1.0)
        unit = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0) / np.sqrt(len(scale))
        found: list[Array] = []
        for _ in range(n_bases):
            base = self.pilot(block, rng=rng)
            found.append(base)
            found += [base + far * unit * rng.standard_normal(base.shape) for far in (0.1, 1.0, 10.0)]
            found.append(100.0 * base)
        return found

    def centre(self, block: Block) -> Array | None:
        """Where columns are centred before their curvature is taken; None where they are not.

        Sparse rows are not: they would be dense, and zero is where most of them are.
        """
        if not self.fit_intercept or sparse.issparse(block.X):
            return None
        return column_means(block)

    def evaluate(
        self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None
    ) -> Evaluation:
        """Value, gradient and a proved bound on what is left to gain, in one pass; ``centre`` is for the diagonal."""
        return self.evaluation(self.sums(block, params, diagonal=diagonal, centre=centre), params)

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> LogisticSums:
        """What `evaluation` needs to know of some rows; add up what others say of theirs."""
        return self._sweep(block, params, cost=False, diagonal=diagonal, centre=centre)[1]

    def evaluation(self, sums: LogisticSums, params: Array) -> Evaluation:
        """What `evaluate` says of all rows that were added up."""
        gradient = sums.gradient.sum(axis=0)
        if not self.fit_intercept:
            gradient[:, -1] = 0.0
        elif len(gradient) > 1:
            gradient[:, -1] -= gradient[:, -1].mean()  # it is zero, and rounding would be magnified
        coefficients = params[:, :-1]
        penalty = 0.5 / self.C * float(np.vdot(coefficients, coefficients))
        value = float(sums.loss.sum()) + penalty
        dual = self._dual(sums)
        gradient[:, :-1] += coefficients / self.C
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=float(np.clip(value - dual, 0.0, value)),
            diagonal=sums.diagonal,
            totals=self.totals_of(sums),
        )

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
        penalty = np.full((k, size), 1.0 / self.C)
        penalty[:, -1] = 0.0
        some = self._thinned(block)
        chance, bend = self._bends(some, params)
        hessian = curvature_blocks(some, chance, bend, centre)
        # else the curvature is what it is
        drawn = some is not block or diagonal is not None or caution > 1.0
        if diagonal is None and hessian is not None and not drawn:
            diagonal = np.einsum("bss->bs", hessian).reshape(k, size)
        elif diagonal is None:
            diagonal = self._sweep(block, params, cost=False, diagonal=True, centre=centre)[1].diagonal
        assert diagonal is not None
        exact = diagonal.copy()
        if not self.fit_intercept:
            exact[:, -1] = 0.0
        support = effective_support(some.X, bend, centre).ravel() / caution if drawn else None
        return Metric(hessian, exact.ravel(), penalty.ravel(), support, centre, balanced=k > 1)

    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        """Effective number of rows that the curvature in the column known least comes from."""
        return float(effective_support(block.X, self._bends(block, params)[1], centre)[:, : block.n_features].min())

    def bend(self, block: Block, params: Array, direction: Array) -> Array:
        """Second derivative of each row's loss along ``direction`` (k, d + 1): (n,)."""
        chance, change = self._chances(block, params), self.margins(block.X, direction).astype(np.float64)
        if self.n_classes == 2:
            return (chance * (1.0 - chance) * change * change)[:, 0]
        mean = np.einsum("ik,ik->i", chance, change)
        return np.einsum("ik,ik->i", chance, (change - mean[:, None]) ** 2)

    def solve(self, block: Block, *, rng: np.random.Generator, init: Array | None = None) -> Array:
        """The minimiser (k, d + 1) for the weighted rows, by Newton's method or preconditioned L-BFGS."""
        return self.minimise(block, init=init)[0]

    def minimise(self, block: Block, *, init: Array | None = None) -> tuple[Array, int]:
        """What `solve` gives, and how many times it looked at all rows.

        Without a row of some class there is no minimiser (its intercept falls for ever): zeros are given then.
        """
        flat = np.zeros((self.n_margins, block.n_features + 1))
        codes = self.codes(block)
        block = Block(X=block.X, y=codes, sample_weight=block.sample_weight)
        if not np.bincount(codes, weights=block.sample_weight, minlength=self.n_classes).all():
            return flat, 0
        coded = replace(self, classes=tuple(range(self.n_classes)))
        start, renewals = flat, 1
        if init is not None:
            given = _centred(np.array(init, np.float64))
            renewals += 2
            # from far off, where all chances are 0 or 1, no way leads down
            if coded.evaluate(block, given).value <= coded.evaluate(block, flat).value:
                start = given
        centre = self.centre(block)
        with single_blas_thread():
            descent = Descent(lambda p: coded.evaluate(block, p), start, coded.metric(block, start, centre=centre))
            for number in range(1, self.max_iter + 1):
                if descent.metric.decrement(descent.point.gradient) <= self.tol * descent.point.value:
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
        return _centred(params), descent.n_evaluations + renewals + 1

    # -- inside --------------------------------------------------------------------------------

    def _sweep(self, block: Block, params: Array, **what: Any) -> tuple[Array, LogisticSums]:
        return logistic_sweep(
            block.X, self.codes(block), params, n_classes=self.n_classes, weight=block.sample_weight, **what
        )

    def _chances(self, block: Block, params: Array) -> Array:
        """(n, K) for more than two classes, (n, 1) for two."""
        margins = self.margins(block.X, params).astype(np.float64)
        chances: Array = softmax(margins, axis=1) if self.n_classes > 2 else expit(margins)
        return chances

    def _residuals(self, block: Block, params: Array, codes: Array) -> Array:
        """P - [y = class]: (n, k)."""
        first = 1 if self.n_classes == 2 else 0
        return self._chances(block, params) - np.equal.outer(codes, np.arange(first, self.n_classes))

    def _dual(self, sums: LogisticSums) -> float:
        """What no value can fall below: the dual function at the feasible point of the class docstring."""
        if len(sums.gradient) == 1 and self.fit_intercept:
            return 0.0  # too many classes to keep their gradients apart: only that losses are not negative
        share = self._feasible_shares(sums.gradient[:, :, -1])
        mixed = np.einsum("c,ckj->kj", share[: len(sums.gradient)], sums.gradient[:, :, :-1])
        return float(share @ sums.entropy) - 0.5 * self.C * float(np.vdot(mixed, mixed))

    def _feasible_shares(self, sums: Array) -> Array:
        """The shares s of the bound; sums (K, k) of the residuals by class."""
        if not self.fit_intercept:
            return np.ones(self.n_classes)
        if self.n_classes == 2:
            share = np.abs(sums[::-1, 0])  # s_0 R_0 = s_1 |R_1|
        else:
            share = np.abs(np.linalg.svd(sums.T)[2][-1])
        most = share.max()
        return share / most if most > 0.0 else np.ones(self.n_classes)

    def _thinned(self, block: Block) -> Block:
        """The rows, or as many evenly spaced ones as a curvature can be afforded from; weights stand for all."""
        step = -(-curvature_cost(block, self.n_margins) // _FLOPS)
        if step <= 1:
            return block
        rows = np.flatnonzero(block.weights() > 0.0)[::step]
        return block.take(rows, block.weights()[rows] * (block.total_weight / block.weights()[rows].sum()))

    def _bends(self, block: Block, params: Array) -> tuple[Array, Array]:
        """Chances, and weighted second derivatives of each row's loss in each margin: (n, k) both."""
        chance = self._chances(block, params)
        return chance, chance * (1.0 - chance) * block.weights()[:, None]


def _centred(params: Array) -> Array:
    """Rows that add up to zero: with more than two classes a common shift changes the penalty alone."""
    return params - params.mean(axis=0) if len(params) > 1 else params
