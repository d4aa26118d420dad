"""Regression: losses of one linear score and a target, read in chunks of rows that stay in the cache."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block, Evaluation
from tithe.core.parallel import over_parts
from tithe.core.params import Constraint, Option, RealNumber, Target, check_params
from tithe.kernels.linear.single_score import add_run, scores_of_run
from tithe.kernels.parts import add_parts, part_rows
from tithe.objectives.linear_model import LinearModelObjective

_CHUNK_NUMBERS = 131_072  # of X that are worked on at a time: a megabyte in double precision
_CHUNK_ROWS = (256, 8192)  # rows of a chunk, at the least and at the most
_SERIAL_NUMBERS = 100_000  # of X up to which one thread is quicker than two


@dataclass(frozen=True, kw_only=True, eq=False)
class RowTerms:
    """Losses (n,) of some rows, their first and second derivatives in the score, and more columns (m, n) to add up."""

    loss: Array
    first: Array
    second: Array
    more: Array = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreSums:
    """What one pass adds up. Sums "by sign" are over the rows with r <= 0 and over those with r > 0.

    Parameters
    ----------
    table : (2, 3 + m)
        By sign: sums of the weight, of r times the score, of the loss, and of what the objective adds.
    gradient : (2, d + 1)
        By sign: sums of r times (x, 1).
    diagonal : (1, d + 1) or None
        Sums of the second derivative times (x - centre, 1)^2.
    """

    table: Array
    gradient: Array
    diagonal: Array | None

    @property
    def count(self) -> Array:
        """Weight of the rows: (1,)."""
        count: Array = self.table[:, 0].sum(keepdims=True)
        return count

    @property
    def loss(self) -> Array:
        return self.table[:, 2]

    @property
    def product(self) -> Array:
        return self.table[:, 1]

    @property
    def more(self) -> Array:
        return self.table[:, 3:]

    def __add__(self, other: ScoreSums) -> ScoreSums:
        return ScoreSums(
            table=self.table + other.table,
            gradient=self.gradient + other.gradient,
            diagonal=None if self.diagonal is None or other.diagonal is None else self.diagonal + other.diagonal,
        )


@dataclass(frozen=True, kw_only=True)
class SingleScoreObjective(LinearModelObjective):
    """A sum of losses phi(z, y) of the score z = x . w + b, and a penalty on w.

    A subclass defines `_terms` (the loss, which is convex in z and not negative, and its derivatives, for arrays of
    scores and targets), `_penalty`, and `_unit` where the value is not a plain sum. It may refuse targets in
    `check_target`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, as in the scikit-learn model of the same loss. The intercept carries none.
    fit_intercept : bool
    max_iter, tol : int, float
        `solve` stops after so many rounds, or when a step of Newton promises less than this share.

    Notes
    -----
    Bound. Write c_i for the weight of a row times `_unit`, lam / 2 |w|^2 for the penalty and phi* for the convex
    conjugate of a loss. For any r_i with sum c_i r_i = 0 (needed only with an intercept) no value is smaller than
    -|sum c_i r_i x_i|^2 / (2 lam) - sum c_i phi*(r_i). The derivatives r_i at a solution come close to that, and
    phi*(r) = r z - phi(z) there. To make their sum zero, those of one sign are multiplied by a share s <= 1, and
    phi*(s r) <= s phi*(r) since phi* is convex and phi*(0) <= 0. With sum c_i r_i = 0 the bound is
    |gradient|^2 / (2 lam). Without a penalty it is only that losses are not negative.
    """

    alpha: float = 1.0

    best_construction: ClassVar[str] = "influence"
    totals_at_solution: ClassVar[bool] = True

    constraints: ClassVar[dict[str, Constraint]] = {"alpha": RealNumber(least=0.0)}
    options: ClassVar[tuple[Option, ...]] = (Option("alpha", constraints["alpha"], "Strength of the penalty."),)
    target: ClassVar[Target] = "number"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_params(self, self.constraints)

    # -- what a subclass defines ---------------------------------------------------------------

    @abstractmethod
    def _terms(self, score: Array, y: Array, params: Array) -> RowTerms:
        """Losses of rows with these scores and targets, all float64 (n,), and their derivatives."""

    @classmethod
    def check_target(cls, y: Array) -> None:
        """Refuse targets that the loss is not defined for."""

    # -- what the base asks --------------------------------------------------------------------

    @property
    def n_scores(self) -> int:
        return 1

    def strengthened(self, factor: float) -> Self:
        return replace(self, alpha=self.alpha / factor)

    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        return np.abs(self._row_terms(block, params).first)

    def evaluation(self, sums: ScoreSums, params: Array) -> Evaluation:
        unit = self._unit(float(sums.count[0]))
        penalty = self._penalty()[0]
        gradient = unit * self._gradient_sums(sums)
        gradient[:, :-1] += penalty * params[:, :-1]
        gradient[~self._free_coordinates(gradient.shape)] = 0.0
        value = unit * float(sums.loss.sum()) + 0.5 * penalty * float(np.vdot(params[:, :-1], params[:, :-1]))
        bound = value - self._least(sums, unit)
        return Evaluation(
            value=value,
            gradient=gradient,
            bound=float(np.clip(bound, 0.0, value)) if np.isfinite(bound) else value,
            diagonal=None if sums.diagonal is None else unit * sums.diagonal,
            totals=self.totals_of(sums),
        )

    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        curvature: Array = self._row_terms(block, params).second * self.margins(block.X, direction)[:, 0] ** 2
        return curvature

    def _gradient_sums(self, sums: ScoreSums) -> Array:
        gradient: Array = sums.gradient.sum(axis=0)[None]
        return gradient

    def _residuals(self, block: Block, params: Array) -> Array:
        return self._row_terms(block, params).first[:, None]

    def _hessian_weights(self, block: Block, params: Array) -> tuple[Array, Callable[[int, int, slice], Array]]:
        second = self._row_terms(block, params).second * block.weights()
        return second[:, None], lambda a, b, at: second[at]

    def _row_terms(self, block: Block, params: Array) -> RowTerms:
        return self._terms(self.margins(block.X, params)[:, 0].astype(np.float64), _target(block), params)

    def _shares(self, sums: ScoreSums) -> Array:
        """Shares (2,) of the derivatives of each sign that make their sum zero; see the class."""
        share = np.ones(2)
        low, high = -float(sums.gradient[0, -1]), float(sums.gradient[1, -1])
        if self.fit_intercept and low != high:
            share[int(high > low)] = min(low, high) / max(low, high)
        return share

    def _least(self, sums: ScoreSums, unit: float) -> float:
        """What no value is smaller than."""
        penalty = self._penalty()[0]
        if not penalty > 0.0:
            return 0.0
        share = self._shares(sums)
        mixed = unit * (share @ sums.gradient[:, :-1])
        return unit * float(share @ (sums.loss - sums.product)) - float(mixed @ mixed) / (2.0 * penalty)

    def _loss_pass(
        self,
        block: Block,
        params: Array,
        *,
        cost: bool = True,
        gradient: bool = True,
        diagonal: bool = False,
        centre: Array | None = None,
    ) -> tuple[Array, ScoreSums]:
        """Losses (n,) and sums. What is not asked for is empty or zero.

        Chunks begin at the same rows however many threads there are, and so do the parts that sums are added up in:
        no bit depends on the number of threads.
        """
        X, y = block.X, _target(block)
        weight = np.empty(0) if block.sample_weight is None else block.sample_weight
        n, d = X.shape
        line = np.ascontiguousarray(params[0], np.float64)
        origin = np.zeros(d) if centre is None else centre
        width = 3 + self._n_more
        rows = part_rows(n, 16 * (width + d + 1) + 8 * (d + 1) * diagonal)
        n_parts = -(-n // rows)
        tables, gradients = np.zeros((n_parts, 2, width)), np.zeros((n_parts, 2 if gradient else 0, d + 1))
        diagonals = np.zeros((n_parts, d + 1 if diagonal else 0))
        costs = np.empty(n if cost else 0)
        length = int(np.clip(_CHUNK_NUMBERS // max(1, d), *_CHUNK_ROWS))

        def run(first: int, last: int) -> None:
            scores, slopes = np.empty(length), np.empty((2, length))
            with np.errstate(over="ignore", invalid="ignore"):
                for part in range(first, last):
                    stop = min(n, (part + 1) * rows)
                    for start in range(part * rows, stop, length):
                        at = slice(start, min(start + length, stop))
                        score = scores[: at.stop - start]
                        scores_of_run(X, start, line, score)
                        terms = self._terms(score, y[at], params)
                        if cost:
                            costs[at] = terms.loss
                        columns = (score, terms.first, terms.second, terms.loss, terms.more)
                        sums = (tables[part], gradients[part], diagonals[part])
                        add_run(X, weight, start, *columns, origin, slopes, *sums)

        entries = X.nnz if sparse.issparse(X) else n * d
        over_parts(run, n_parts, serial=entries < _SERIAL_NUMBERS)
        return costs, ScoreSums(
            table=add_parts(tables),
            gradient=add_parts(gradients) if gradient else np.zeros((2, d + 1)),
            diagonal=add_parts(diagonals)[None] if diagonal else None,
        )

    _n_more: ClassVar[int] = 0  # columns that `_terms` adds to be summed up


def _target(block: Block) -> Array:
    if block.y is None:
        raise ValueError("A regression needs a target for every row: give y.")
    return block.y.astype(np.float64, copy=False)
