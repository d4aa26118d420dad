"""Leverage: rows that point where few others do are drawn more often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from tithe.constructions.base import Construction
from tithe.constructions.strata import draw_by_class
from tithe.core.data import Array, Block, Survey
from tithe.kernels.sampling import sample_rows
from tithe.kernels.threads import over_parts

_ROWS = 4096
_SKETCH = 20_000  # rows the Gram matrix is taken from
_DIRECTIONS = 64  # random directions that stand for all: a leverage is then off by a third, which only costs variance
_WIDE = 1000  # columns beyond which only the diagonal of the Gram matrix is used


@dataclass(frozen=True, kw_only=True, eq=False)
class Leverages:
    """sqrt(x G^-1 x) of any row, G the mean of x x^T over a sample with a ridge relative to its diagonal.

    ``factor`` (d, q) has x G^-1 x = |x factor|^2, in expectation where q < d; or it is (d,), the
    inverse diagonal of G.
    """

    factor: Array

    @classmethod
    def of(cls, block: Block, rng: np.random.Generator) -> Self:
        rows = sample_rows(block, _SKETCH, rng)
        X, weight = rows.X.astype(np.float64), rows.weights()
        d = block.n_features
        if sparse.issparse(X):
            square = np.asarray(X.multiply(X).T @ weight).ravel() / weight.sum()
        else:
            square = weight @ (X * X) / weight.sum()
        scale = np.sqrt(np.where(square > 0.0, square, 1.0))
        if d > _WIDE:
            return cls(factor=1.0 / scale**2)
        if sparse.issparse(X):
            gram = (X.multiply(weight[:, None]).T @ X).toarray()
        else:
            gram = (X * weight[:, None]).T @ X
        gram = gram / weight.sum() / np.outer(scale, scale)
        # relative to each column's own scale: a column that the sample never saw must not become infinite
        gram[np.diag_indices(d)] += 0.01 + 1e-6
        try:
            lower = cholesky(gram, lower=True)
        except LinAlgError:
            return cls(factor=1.0 / scale**2)
        directions = np.eye(d) if d <= _DIRECTIONS else rng.normal(size=(d, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
        return cls(factor=solve_triangular(lower, directions, lower=True, trans="T") / scale[:, None])

    def root(self, X: Any) -> Array:
        """sqrt(x G^-1 x) of every row: (n,)."""
        n = X.shape[0]
        root = np.empty(n)
        factor = self.factor if self.factor.ndim == 1 else self.factor.astype(X.dtype)

        def run(first: int, last: int) -> None:
            for part in range(first, last):
                at = slice(part * _ROWS, (part + 1) * _ROWS)
                rows = X[at]
                if factor.ndim == 1:
                    square = (rows.multiply(rows) if sparse.issparse(rows) else rows * rows) @ factor
                else:
                    turned = np.asarray(rows @ factor)
                    square = np.einsum("ij,ij->i", turned, turned)
                root[at] = np.sqrt(square)

        over_parts(run, -(-n // _ROWS), serial=n <= _ROWS)
        return root


def shares(parts: list[tuple[float, Array | None]], block: Block) -> Array:
    """sum_k a_k u v_k / sum(u v_k): a mixture of scores (n,) that sums to 1; None stands for ones."""
    weight = block.weights()
    mixture = np.zeros(len(block))
    for amount, score in parts:
        own = weight if score is None else weight * score
        total = own.sum()
        mixture += own * (amount / total) if 0.0 < total < np.inf else weight * (amount / weight.sum())
    return mixture


def draw_rows(block: Block, objective: Any, scores: Array, size: int, rng: np.random.Generator) -> Block:
    """A draw by scores that contain the weights, by class where the objective has classes."""
    strata = objective.codes(block) if callable(getattr(objective, "codes", None)) else None
    positions, inverse = draw_by_class(scores, strata, size, rng)
    own = block.sample_weight
    return block.take(positions, inverse if own is None else inverse * own[positions])


@dataclass(frozen=True, kw_only=True)
class Leverage(Construction):
    """p_i = u_i (1/W + l_i / sum(u l)) / 2 with l_i = sqrt(x_i G^-1 x_i), the root of the leverage.

    The root is what the variance asks for (Munteanu and others 2018 for logistic regression). It
    knows nothing of the loss, so it serves any linear model.
    """

    leverages: Leverages | None = None
    name: ClassVar[str] = "leverage"

    def prepare(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Leverage:
        return replace(self, leverages=Leverages.of(block, rng))

    def reduce(
        self,
        block: Block,
        objective: Any,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: np.random.Generator,
    ) -> Block:
        leverages = Leverages.of(block, rng) if self.leverages is None else self.leverages
        scores = shares([(0.5, None), (0.5, leverages.root(block.X))], block)
        return draw_rows(block, objective, scores, size, rng)
