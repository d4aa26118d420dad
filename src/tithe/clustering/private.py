"""Differentially private coresets for clusters: noisy counts and means of cells, and no row of the data."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse

from tithe.clustering.kernels import cell_sums
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value
from tithe.core.passes import DataPass
from tithe.rows.arrays import as_block, as_rows

_UNIT = 2**16  # what a row of full weight adds to a count
_LEAF_SHARE = 0.5  # of the budget, for counts and means of the final cells
_MEAN_NOISE = 0.01  # of half the side of a cell: the noise of its mean below which a cell may be split
_SURE_COUNT = 3.0  # standard deviations of the noise that a cell must hold to be kept
_MAX_LEVELS = 24


def private_coreset(
    X: Any,
    *,
    bounds: tuple[Any, Any],
    eps: float,
    delta: float,
    sample_weight: Any = None,
    max_weight: float = 1.0,
    levels: int = 8,
    engine: Any = "auto",
    random_state: int | None = None,
) -> Coreset:
    """A weighted set of points for k-means and k-medians that is (eps, delta)-differentially private.

    An ordinary coreset is not private: it holds rows of the data. This one holds none: its points are noisy means of
    the cells of a partition, its weights noisy counts, and so are its number of rows and its total weight.

    All rows are in one cell, the box of the ``bounds``. Each of ``levels`` passes adds noise to the count, the sum and
    the sum of squares of the rows of each cell, and splits a cell at its noisy mean, across the coordinate with the
    largest noisy variance, if its noisy count is so large that the noise of its mean is below a hundredth of the cell.
    A last pass releases noisy counts and means of the final cells. Feldman, Fiat, Kaplan and Nissim (2009) build
    private coresets of noisy counts on a grid around private centres; this partition needs no centres.

    Parameters
    ----------
    X : array, frame of numbers, or Source without a schema that was learned from the rows
        n rows of few columns: up to ten were measured.
    bounds : (low, high)
        The least and the largest value of each column, or of all of them. They must be known without the data: bounds
        that are read from the rows tell about them. Values beyond are moved to them.
    eps, delta : float
        The promise: adding or removing one row changes the chance of any set of outcomes from p to at most
        exp(``eps``) p + ``delta``. For replacing a row it is that of twice the ``eps``, at most. ``delta`` must be far
        below 1 / n.
    sample_weight : array (n,), optional
        Weights, each part of its row. Those above ``max_weight`` are lowered to it, and it is the unit of the noise.
    max_weight : float
        The largest weight that a row may have; it must be known without the data as well.
    levels : int
        Splits on the way to a cell. There are at most 2^``levels`` cells.
    engine
        As in `build_coreset`.
    random_state : int, optional
        For tests only: whoever knows the seed can take the noise off. By default the noise comes from the system's
        source of secrets.

    Returns
    -------
    Coreset
        ``provenance`` has eps, delta, the rho that they allow and the standard deviations of the noise. ``n_seen`` is
        the noisy weight, rounded. Row ids are numbers of points, not of rows.

    Notes
    -----
    Accountant: sums are of integers, and noise is exact discrete Gaussian noise, drawn with integers alone, so that no
    rounding of floating-point numbers tells about rows (Mironov 2012). A row adds to one cell of each level; with the
    vector that it adds at most Delta long and noise of variance sigma^2, a level is rho = Delta^2 / (2 sigma^2)
    zero-concentrated private (Canonne, Kamath and Steinke 2020), the rho of all levels add up although
    later cells depend on earlier noise, and for every a > 1 delta <= exp((a - 1)(a rho - eps)) (1 - 1/a)^a / (a - 1)
    (ibid.). Half of rho is spent on the last pass. Everything else is computed from noisy sums alone.

    Not covered: how long it takes, and errors about rows that cannot be read, such as one with a NaN. Two private
    coresets of the same rows together spend the sum of their eps and deltas, or of their rho.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetKMeans
    >>> from tithe.constructions import private_coreset
    >>> X = np.random.default_rng(0).normal(size=(40_000, 2)) / 8
    >>> X += np.array([[-0.5, 0.0], [0.5, 0.0]]).repeat(20_000, axis=0)
    >>> coreset = private_coreset(X, bounds=(-1, 1), eps=1.0, delta=1e-6, random_state=0)
    >>> centers = CoresetKMeans(2, random_state=0).fit(coreset.X, sample_weight=coreset.sample_weight).cluster_centers_
    >>> np.sort(centers[:, 0]).round(1)
    array([-0.5,  0.5])
    """
    check_value("eps", eps, RealNumber(above=0.0))
    check_value("delta", delta, RealNumber(above=0.0, below=1.0))
    check_value("max_weight", max_weight, RealNumber(above=0.0))
    check_value("levels", levels, WholeNumber(least=0, most=_MAX_LEVELS))
    check_value("random_state", random_state, OneOf(None) | WholeNumber())
    X, _, sample_weight = as_rows(X, None, sample_weight)
    rows = X if isinstance(X, Source) else as_block(X, None, sample_weight)
    if isinstance(rows, Source) and rows.schema is not None and not rows.schema.is_plain:
        raise ValueError(
            "The columns of this table became features by what was learned from its rows, which tells about them: give "
            "an array of numbers that was prepared without looking at the data."
        )
    low, high = _checked_bounds(bounds, rows.n_features)
    rho = rho_of(eps, delta)
    noise = Noise(
        rho * (1.0 - _LEAF_SHARE if levels else 0.0), rho * (_LEAF_SHARE if levels else 1.0), levels, len(low)
    )
    draw = (random.SystemRandom() if random_state is None else random.Random(random_state)).randrange
    data = DataPass(rows, engine)
    tree = Cells.whole(low, high)
    for _ in range(levels):
        if not tree.is_open.any():
            break
        sums = data.total(_Sums(tree, max_weight, squares=True))
        noisy = noise.added(sums, noise.of_level, np.flatnonzero(tree.is_open), draw)
        tree = tree.split(noisy, noise)
    sums = data.total(_Sums(tree, max_weight, squares=False))
    noisy = noise.added(sums, noise.of_leaf, np.flatnonzero(tree.is_leaf), draw)
    return _released(tree, noisy, noise, max_weight, {"eps": eps, "delta": delta, "rho": rho})


@dataclass(frozen=True)
class Noise:
    """Standard deviations, whole numbers, of the noise of a level and of the last pass, for a budget of rho each."""

    rho_levels: float
    rho_leaf: float
    levels: int
    n_features: int

    @property
    def step(self) -> int:
        """What a row of full weight at the edge of a cell adds to the sum of a coordinate, or of its squares."""
        return max(1, math.isqrt(_UNIT**2 // self.n_features))

    @property
    def of_level(self) -> int:
        square = _UNIT**2 + 2 * self.n_features * self.step**2
        return 0 if self.levels == 0 else math.ceil(math.sqrt(square * self.levels / (2.0 * self.rho_levels)))

    @property
    def of_leaf(self) -> int:
        return math.ceil(math.sqrt((_UNIT**2 + self.n_features * self.step**2) / (2.0 * self.rho_leaf)))

    @property
    def least_to_split(self) -> float:
        """The count from which the noise of a mean is below a hundredth of half the side of its cell."""
        return self.of_leaf / self.step / _MEAN_NOISE

    def added(self, sums: Array, sigma: int, cells: Array, draw: Callable[[int], int]) -> Array:
        """Sums (cells, q) of the cells named, with noise of this standard deviation; others are zero."""
        noisy = np.zeros(sums.shape)
        for cell in cells:
            noisy[cell] = [int(value) + discrete_gaussian(sigma, draw) for value in sums[cell]]
        return noisy


@dataclass(frozen=True, eq=False)
class Cells:
    """Boxes ``low`` to ``high`` (cells, d), split in two: the first child has the values below the ``cut``."""

    low: Array
    high: Array
    column: Array  # of the cut
    cut: Array
    child: Array  # the first of two; 0 for a cell that is not split
    is_open: Array  # whether it is to be looked at once more

    @classmethod
    def whole(cls, low: Array, high: Array) -> Cells:
        zero = np.zeros(1, np.int64)
        return cls(low[None], high[None], zero, np.zeros(1), zero, np.ones(1, bool))

    @property
    def is_leaf(self) -> Array:
        return np.asarray(self.child == 0)

    def split(self, noisy: Array, noise: Noise) -> Cells:
        """The cells after those that hold enough are split at their noisy means."""
        d = self.low.shape[1]
        split = np.flatnonzero(self.is_open & (noisy[:, 0] / _UNIT >= noise.least_to_split))
        half = (self.high[split] - self.low[split]) / 2.0
        count = noisy[split, :1] / _UNIT * noise.step
        mean = np.clip(noisy[split, 1 : 1 + d] / count, -0.9, 0.9)
        variance = (np.clip(noisy[split, 1 + d :] / count, 0.0, 1.0) - mean**2) * half**2
        column = variance.argmax(axis=1)
        at = np.arange(len(split)), column
        cut = self.low[split][at] + half[at] * (1.0 + mean[at])
        low, high = self.low[split].repeat(2, axis=0), self.high[split].repeat(2, axis=0)
        high[2 * at[0], column], low[2 * at[0] + 1, column] = cut, cut
        child, columns, cuts = self.child.copy(), self.column.copy(), self.cut.copy()
        child[split], columns[split], cuts[split] = len(child) + 2 * at[0], column, cut
        none = np.zeros(len(low), np.int64)
        return Cells(
            np.concatenate([self.low, low]),
            np.concatenate([self.high, high]),
            np.concatenate([columns, none]),
            np.concatenate([cuts, none]),
            np.concatenate([child, none]),
            np.concatenate([np.zeros(len(child), bool), np.ones(len(low), bool)]),
        )


@dataclass(frozen=True, eq=False)
class _Sums:
    """Of each leaf the sums of weight, of coordinates within it, and of their squares: whole numbers."""

    cells: Cells
    max_weight: float
    squares: bool

    def __call__(self, block: Block) -> Array:
        if sparse.issparse(block.X):
            raise ValueError("Private coresets are for few columns: X is sparse. Convert it with X.toarray().")
        cells, weight = self.cells, np.clip(block.weights() / self.max_weight, 0.0, 1.0)
        boxes = cells.low, cells.high, cells.column, cells.cut, cells.child
        step = Noise(0.0, 0.0, 0, block.n_features).step
        return np.asarray(cell_sums(np.ascontiguousarray(block.X), weight, *boxes, _UNIT, step, self.squares))


def _released(tree: Cells, noisy: Array, noise: Noise, max_weight: float, promise: dict[str, float]) -> Coreset:
    """The coreset: noisy means and counts of the cells that surely hold rows."""
    keep = np.flatnonzero(tree.is_leaf & (noisy[:, 0] > _SURE_COUNT * noise.of_leaf))
    if not len(keep):
        raise ValueError(
            f"No cell holds more than the noise of {_SURE_COUNT * noise.of_leaf / _UNIT:.0f} rows: there are too few "
            "rows for this eps and delta."
        )
    count = noisy[keep, :1] / _UNIT
    half = (tree.high[keep] - tree.low[keep]) / 2.0
    X = tree.low[keep] + half * (1.0 + np.clip(noisy[keep, 1:] / (count * noise.step), -1.0, 1.0))
    weight = count[:, 0] * max_weight
    about = {"cells": int(tree.is_leaf.sum()), "noise_of_counts": noise.of_leaf / _UNIT * max_weight}
    coreset = Coreset(
        X=np.clip(X, tree.low[0], tree.high[0]),
        sample_weight=weight,
        n_seen=max(1, round(float(count.sum()))),
        weight_seen=float(weight.sum()),
        last_row=len(keep) - 1,
        provenance={"construction": "private", "objective": "kmeans", "calibrated": 0, **promise, **about},
    )
    return replace(coreset, indices=np.arange(len(keep)))


def _checked_bounds(bounds: Any, d: int) -> tuple[Array, Array]:
    try:
        low, high = (np.broadcast_to(np.asarray(side, np.float64), (d,)).copy() for side in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds are (low, high), each a number or one for each of the {d} columns.") from error
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all() and (high - low).max() < 1e150):
        raise ValueError("bounds must be finite numbers, low <= high, and less than 1e150 apart.")
    return low, high


def rho_of(eps: float, delta: float) -> float:
    """The largest rho for which rho-zero-concentrated privacy is (eps, delta)-differential privacy.

    >>> round(rho_of(1.0, 1e-6), 4)
    0.0244
    """
    least, most = 0.0, eps  # more than eps is never allowed for a delta below 1/2
    for _ in range(100):
        rho = (least + most) / 2.0
        least, most = (rho, most) if _delta_of(rho, eps) <= delta else (least, rho)
    return least


def _delta_of(rho: float, eps: float) -> float:
    """An upper bound of delta: that of any a is one."""
    a = 1.0 + np.logspace(-4, 5, 2000)
    log_delta = (a - 1.0) * (a * rho - eps) + a * np.log1p(-1.0 / a) - np.log(a - 1.0)
    return float(np.exp(min(0.0, log_delta.min())))


# -- exact noise -----------------------------------------------------------------------------------


def discrete_gaussian(sigma: int, draw: Callable[[int], int]) -> int:
    """A whole number x with a chance proportional to exp(-x^2 / (2 sigma^2)), exactly; ``draw(n)`` is below n.

    Canonne, Kamath and Steinke (2020), Algorithms 1 to 3: all numbers are whole.

    >>> values = [discrete_gaussian(3, random.Random(0).randrange)]
    >>> isinstance(values[0], int)
    True
    """
    scale = sigma + 1
    while True:
        value = _discrete_laplace(scale, draw)
        excess = abs(value) * scale - sigma * sigma
        if _happens(Fraction(excess * excess, 2 * sigma * sigma * scale * scale), draw):
            return value


def _discrete_laplace(scale: int, draw: Callable[[int], int]) -> int:
    """A whole number x with a chance proportional to exp(-|x| / scale)."""
    while True:
        rest = draw(scale)
        if not _happens(Fraction(rest, scale), draw):
            continue
        whole = 0
        while _happens(Fraction(1), draw):
            whole += 1
        size, negative = rest + scale * whole, draw(2)
        if size or not negative:
            return -size if negative else size


def _happens(gamma: Fraction, draw: Callable[[int], int]) -> bool:
    """True with chance exp(-gamma)."""
    while gamma > 1:
        if not _happens(Fraction(1), draw):
            return False
        gamma -= 1
    number = 1
    while draw(gamma.denominator * number) < gamma.numerator:
        number += 1
    return number % 2 == 1
