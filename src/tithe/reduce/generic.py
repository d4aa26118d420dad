"""An objective for learners whose loss is not known: keep the moments of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from tithe.core.contracts import SensitivityObjective
from tithe.core.data import Array, Block, Moments, Scores, Survey
from tithe.core.parallel import column_means, column_sums
from tithe.core.params import Constraint, WholeNumber, check_params
from tithe.core.state_checks import Floats, Optional, expect
from tithe.reduce.draws import MeanPilotObjective
from tithe.reduce.kernels import sample_rows

_CHUNK_ROWS = 8192
_MAX_MOMENT_COLUMNS = 1000  # with more columns only counts and costs are preserved: moments would outnumber rows


@dataclass(frozen=True, kw_only=True)
class GenericObjective(SensitivityObjective, MeanPilotObjective):
    """f(x) = |(x - mean) / scale|^2, for any estimator that takes ``sample_weight``.

    Parameters
    ----------
    n_classes : int
        If positive, y holds class numbers 0 .. n_classes - 1 and every class is a group of its
        own: its count, column means and second moments are preserved, and rare classes are drawn
        more often. If 0, a numeric y is preserved through its residual off a line.

    Notes
    -----
    Rows are drawn with p_i proportional to u_i [1/W + f(x_i)/sum(u f) + 1/(G W_g)], g the class
    of the row, W_g its weight and G the number of classes.
    Beyond 1000 columns the moments are 1 and f alone, and sparse rows stay sparse.
    Moments in each class, with z = (x - mean) / scale: 1, f, z, z^2; without classes, with r the
    residual of y off a line fitted to a sample, also r, r^2 and r z, so that the gradient of
    least squares at that line is the full data's.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.objectives import GenericObjective
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> y = (X[:, 0] > 1).astype(int)
    >>> coreset = build_coreset(X, y, objective=GenericObjective(n_classes=2), coreset_size=100, random_state=0)
    >>> bool(np.isclose(coreset.weights()[coreset.y == 1].sum(), y.sum(), rtol=0.01))
    True
    """

    n_classes: int = 0

    constraints: ClassVar[dict[str, Constraint]] = {"n_classes": WholeNumber()}
    name: ClassVar[str] = "generic"

    def __post_init__(self) -> None:
        check_params(self, self.constraints)

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """Column means, scales and a line through y, of a sample of the rows: (3, d + 1)."""
        return self.mean_pilot(sample_rows(block, 10_000, rng))

    def mean_pilot(self, block: Block) -> Array:
        """Column means, scales, and coefficients and intercept of y on the scaled columns: (3, d + 1)."""
        weight, total = block.sample_weight, block.total_weight
        mean = column_means(block)
        if sparse.issparse(block.X):
            square = column_sums(block.X.multiply(block.X).tocsr(), weight) / total - mean * mean
        else:
            square = np.zeros_like(mean)
            for start in range(0, len(block), _CHUNK_ROWS):
                chunk = block.cut(start, start + _CHUNK_ROWS)
                gap = chunk.X - mean
                square += chunk.weights() @ (gap * gap)
            square /= total
        scale = np.sqrt(np.maximum(square, 0.0))
        scale = np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)
        pilot = np.zeros((3, len(mean) + 1))
        pilot[0, :-1], pilot[1, :-1] = mean, scale
        if self._has_target(block):
            pilot[2] = _least_squares(block, pilot)
        return pilot

    def survey(self, block: Block, pilot: Array) -> Survey:
        """Costs, classes and totals, a few thousand rows at a time."""
        labels = self._classes(block)
        cost = np.empty(len(block))
        totals: Array | None = None
        for start in range(0, len(block), _CHUNK_ROWS):
            chunk = block.cut(start, start + _CHUNK_ROWS)
            values = self.moments(chunk, pilot).values
            rows = slice(start, start + len(chunk))
            cost[rows] = values[:, 1]
            if totals is None:
                totals = np.zeros((max(1, self.n_classes), values.shape[1]))
            np.add.at(totals, labels[rows], values * chunk.weights()[:, None])
        assert totals is not None
        return Survey(cost=cost, labels=labels, totals=totals)

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        d = block.n_features
        Floats(3, d + 1).check("pilot", pilot, {})
        expect((pilot[1, :-1] > 0.0).all(), "scales of columns are not positive")
        columns = 2 if d > _MAX_MOMENT_COLUMNS else 2 + 2 * d + (2 + d if self._has_target(block) else 0)
        Optional(Floats(max(1, self.n_classes), columns)).check("totals", totals, {})
        self._classes(block)

    def sensitivity(self, block: Block, survey: Survey) -> Scores:
        count, cost = survey.totals[:, 0], survey.totals[:, 1].sum()
        present = count > 0
        base = np.divide(1.0 / present.sum(), count, out=np.zeros_like(count), where=present) + 1.0 / count.sum()
        slope = 1.0 / cost if cost > 0 else 0.0
        return Scores(cost=survey.cost, labels=survey.labels, slope=slope, base=base, weight=block.sample_weight)

    def moments(self, block: Block, pilot: Array) -> Moments:
        if block.n_features > _MAX_MOMENT_COLUMNS:
            basic = np.column_stack([np.ones(len(block)), _wide_cost(block, pilot)])
            return Moments(values=basic, groups=self._classes(block), n_basic=2)
        z = _scaled(block, pilot)
        square = z * z
        values = [np.ones(len(block)), square.sum(axis=1), z, square]
        if self._has_target(block):
            assert block.y is not None
            residual = block.y.astype(np.float64) - z @ pilot[2, :-1] - pilot[2, -1]
            values += [residual, residual * residual, residual[:, None] * z]
        return Moments(values=np.column_stack(values), groups=self._classes(block), n_basic=2)

    def _has_target(self, block: Block) -> bool:
        if block.y is None or self.n_classes or block.n_features > _MAX_MOMENT_COLUMNS:
            return False
        return bool(np.issubdtype(block.y.dtype, np.number))

    def cost(self, block: Block, params: Array) -> Array:
        return self.moments(block, params).values[:, 1]

    def solve(self, block: Block, *, rng: np.random.Generator, init: Array | None = None) -> Array:
        """The pilot of all the rows (3, d + 1), in closed form."""
        return self.mean_pilot(block)

    def _classes(self, block: Block) -> Array:
        if not self.n_classes or block.y is None:
            return np.zeros(len(block), np.int32)
        labels = block.y.astype(np.int32)
        if labels.min() < 0 or labels.max() >= self.n_classes:
            raise ValueError(
                f"Classes must be numbered 0 .. {self.n_classes - 1}, got {labels.min()} .. {labels.max()}."
            )
        return labels


def _scaled(block: Block, pilot: Array) -> Array:
    rows = block.X.toarray() if sparse.issparse(block.X) else block.X
    scaled: Array = (rows - pilot[0, :-1]) / pilot[1, :-1]
    return scaled


def _least_squares(block: Block, pilot: Array) -> Array:
    """Weighted ridge regression, hardly damped, of y on the scaled columns: coefficients and intercept."""
    assert block.y is not None
    d = block.n_features
    gram, against = np.zeros((d + 1, d + 1)), np.zeros(d + 1)
    for start in range(0, len(block), _CHUNK_ROWS):
        chunk = block.cut(start, start + _CHUNK_ROWS)
        design = np.column_stack([_scaled(chunk, pilot), np.ones(len(chunk))])
        weighted = design * chunk.weights()[:, None]
        gram += weighted.T @ design
        against += weighted.T @ chunk.y
    gram[np.diag_indices(d)] += 1e-6 * block.total_weight
    solution: Array = np.linalg.solve(gram, against)
    return solution


def _wide_cost(block: Block, pilot: Array) -> Array:
    """|(x - mean) / scale|^2 of every row without making sparse rows dense: (n,)."""
    mean, inverse = pilot[0, :-1], 1.0 / pilot[1, :-1] ** 2
    if not sparse.issparse(block.X):
        return np.array([((row - mean) ** 2) @ inverse for row in block.X])
    base = float(mean**2 @ inverse)
    extra = block.X.astype(np.float64)
    extra.data = extra.data**2 - 2.0 * extra.data * mean[extra.indices]
    cost: Array = np.maximum(base + extra @ inverse, 0.0)
    return cost
