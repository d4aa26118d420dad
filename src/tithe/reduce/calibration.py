"""Calibration: weights that reproduce exact totals of the full data.

Survey statistics knows this as calibration (Deville and Särndal 1992). Given drawn rows with
weights w_i, features a_i in R^q (column 0 is 1) and their exact full-data total T, the new
weights are

    w'_i = w_i g_i,   g_i = clip(1 + a_i . lam, 1/20, 20),

where lam solves  sum_i w_i g_i a_i + kappa W lam = T  with the columns of a centred (except the
count) and scaled to unit weighted root mean square. It is the minimiser of a convex function,
found by a damped Newton method that is exact in one step where nothing is clipped. kappa is a
ridge: weights hardly change along directions that the drawn rows hardly span.

Features come in groups (the clusters of a pilot) that are solved one by one. Three guards keep a
group from being steered by what its rows cannot know:

- it needs four drawn rows for each column used, or it falls back to fewer columns, at last to
  the count alone;
- a column needs an effective support (sum w a^2)^2 / sum (w a^2)^2 of some rows (`Moments.support`);
- a total further than some standard errors (`Moments.standard_errors`) from the drawn rows' own
  estimate is not noise but mass that was never drawn, and is not steered towards.

Columns beyond the basic ones are used only where every basic column passes these guards: a
group whose cost is carried by a few rows has directions that are carried by fewer still.

The weight of each class is exact whatever was drawn, where the moments say which columns are classes: weights are
scaled to it before and after, and nothing is taken off these columns by the ridge.

A group without a drawn row has no weight to change. If there is one, all rows are at last calibrated
together, to the sums of the basic totals over all groups: the total weight is exact, and at a pilot the
cost is. The totals of single groups are then off by what was missed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.contracts import SampledObjective
from tithe.core.data import ROWS_PER_COLUMN, Array, Block, Coreset, Moments

RIDGE = 1e-3
CLIP = 20.0
_MAX_NEWTON_STEPS = 30
_RESIDUAL_ROWS = 16_384  # rows whose residuals are computed at a time
Residuals = Callable[[Block], Array]  # (n, c) for the rows of a block


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """What calibration changed. It is recorded in the provenance of a coreset."""

    before: float  # `residual` of the draw
    residual: float  # the largest error of a steered total, relative to weight times root mean square of its column
    largest_change: float  # the largest factor, or inverse factor, of a weight
    share_clipped: float  # of the rows, those at a bound
    n_totals: int  # that were used
    n_beyond: int  # of these, those beyond the basic ones
    n_known: int

    def provenance(self) -> dict[str, float | int]:
        return {f"calibration_{name}": value for name, value in asdict(self).items()}


def calibrate(
    weight: Array, moments: Moments, totals: Array, *, ridge: float = RIDGE, clip: float = CLIP, guard: bool = True
) -> tuple[Array, CalibrationReport]:
    """New weights (m,) that reproduce ``totals`` (G, q), and a report.

    If the moments have fewer columns than the totals, only the first totals are used.

    ``guard=False`` uses every total: for tests, and for totals known to be feasible.
    """
    values = moments.values
    new = _with_classes(weight.astype(np.float64, copy=True), moments, totals)
    groups: list[tuple[Array | slice, _Solved]] = []
    missed = False  # whether a group that carries weight has no drawn row
    for rows, total in zip(_rows_of_groups(moments.groups, len(totals)), totals[:, : values.shape[1]], strict=True):
        if not total[0] > 0:
            continue
        if len(new[rows]) == 0:
            missed = True
            continue
        groups.append((rows, _solve_group(new[rows], values[rows], total, moments, ridge, clip, guard)))
        new[rows] = groups[-1][1].weight
    solved = [group for _, group in groups]
    if missed and groups:
        whole = totals[:, : moments.n_basic].sum(axis=0)
        overall = _solve_group(new, values[:, : moments.n_basic], whole, moments, ridge, clip, guard)
        new = overall.weight
        solved = [overall, *(replace(group, after=group.error_of(new[rows])) for rows, group in groups)]
    new = _with_classes(new, moments, totals)
    ratio = new / weight
    return new, CalibrationReport(
        before=max((part.before for part in solved), default=0.0),
        residual=max((part.after for part in solved), default=0.0),
        largest_change=float(max(ratio.max(initial=1.0), 1.0 / ratio.min(initial=1.0))),
        share_clipped=min(1.0, sum(part.n_clipped for part in solved) / max(1, len(weight))),
        n_totals=sum(group.n_used for _, group in groups),
        n_beyond=sum(group.n_beyond for _, group in groups),
        n_known=int(totals.size),
    )


def _with_classes(weight: Array, moments: Moments, totals: Array) -> Array:
    """Weights scaled so that those of each class that was drawn from add up to its exact total."""
    if moments.n_classes < 2:
        return weight
    code = (moments.values[:, 1 : moments.n_classes] @ np.arange(1, moments.n_classes)).astype(np.int64)
    wanted = totals[0, : moments.n_classes].copy()
    wanted[0] -= wanted[1:].sum()
    mass = np.bincount(code, weights=weight, minlength=moments.n_classes)
    scale: Array = np.divide(wanted, mass, out=np.ones_like(mass), where=(mass > 0.0) & (wanted > 0.0))
    return weight * scale[code]


def _rows_of_groups(groups: Array | None, n_groups: int) -> list[Array | slice]:
    """Indices of the rows of each group; a slice if there is one group, so that nothing is copied."""
    if groups is None:
        return [slice(None), *[slice(0)] * (n_groups - 1)]
    order = np.argsort(groups, kind="stable")
    edges = np.searchsorted(groups[order], np.arange(n_groups + 1))
    return [order[start:stop] for start, stop in itertools.pairwise(edges)]


def calibrated(coreset: Coreset, objective: SampledObjective) -> tuple[Coreset, CalibrationReport | None]:
    """The coreset with weights that reproduce its ``totals``, which were taken at its ``pilot``, and a report.

    A coreset without totals, or one that holds all rows, is returned as it is, without a report.
    """
    if coreset.totals is None or coreset.pilot is None or len(coreset) == coreset.n_seen:
        return coreset, None
    moments = objective.moments(coreset, coreset.pilot)
    moments, totals = objective.centred_moments(coreset, moments, coreset.totals)
    weight, report = calibrate(coreset.weights(), moments, totals)
    provenance = {**coreset.provenance, **report.provenance(), "calibrated": 1}
    return replace(coreset, sample_weight=weight, provenance=provenance), report


@dataclass(frozen=True)
class _Solved:
    """New weights of a group, and their errors relative to its ``goal``: the totals of ``basis`` (m, q)."""

    weight: Array
    basis: Array
    goal: Array
    mass: float
    before: float
    after: float
    n_clipped: int
    n_used: int
    n_beyond: int

    def error_of(self, weight: Array) -> float:
        """The largest error of a total with other weights."""
        return float((np.abs(weight @ self.basis - self.goal) / self.mass).max())


def _solve_group(
    drawn: Array, values: Array, total: Array, moments: Moments, ridge: float, clip: float, guard: bool
) -> _Solved:
    # first the count, exactly; then weight is only moved among the rows of the group
    factor = float(np.clip(total[0] / drawn.sum(), 1.0 / clip, clip))
    w = drawn * factor
    mass = w.sum()
    unit = np.abs(values[:, 1:]).max(axis=0, initial=0.0)
    unit = np.where(unit > 0.0, unit, 1.0)  # fourth powers of columns of 10^80 would overflow
    a, target = values[:, 1:] / unit, total[1:] / unit
    centre = w @ a / mass
    a -= centre
    target = target - centre * total[0]
    square, usable = _usable(w, a, target, centre, moments, guard)
    if not usable.all():
        a, target, square = a[:, usable], target[usable], square[usable]
    scale = np.sqrt(square / mass)
    basis = np.ones((len(w), 1 + len(scale)))
    np.divide(a, scale, out=basis[:, 1:])
    goal = np.concatenate([[total[0]], target / scale])
    low, high = 1.0 / clip / factor, clip / factor  # bounds on the whole change, including that by the count
    n_exact = 1 + int(usable[: moments.n_classes - 1].sum()) if moments.n_classes > 1 else 0
    penalty = ridge * mass * (np.arange(basis.shape[1]) >= n_exact)
    g = _newton(w, basis, goal, penalty, low, high)
    error = np.abs((w * g) @ basis - goal) / mass
    return _Solved(
        weight=w * g,
        basis=basis,
        goal=goal,
        mass=mass,
        before=float((np.abs(drawn @ basis - goal) / mass).max()),
        after=float(error.max()),
        n_clipped=int(((g <= low) | (g >= high)).sum()),
        n_used=basis.shape[1],
        n_beyond=int(usable[moments.n_basic - 1 :].sum()),
    )


def _usable(w: Array, a: Array, target: Array, centre: Array, moments: Moments, guard: bool) -> tuple[Array, Array]:
    """Sums of w a^2, and which columns of ``a`` (without the count) pass the guards: both (q - 1,)."""
    q, n_basic = a.shape[1], moments.n_basic - 1
    power = a * a
    square, spread = w @ power, (w * w) @ power
    varies: Array = square > 1e-9 * (square + w.sum() * centre * centre)
    if not guard:
        return square, varies
    np.square(power, out=power)
    with np.errstate(divide="ignore", invalid="ignore"):
        support = np.where(varies, square**2 / ((w * w) @ power), 0.0)
        distance = np.where(varies, np.abs(target) / np.sqrt(spread), np.inf)
    sound = (support >= moments.support) & (distance < moments.standard_errors)
    within = np.arange(q) < n_basic
    affordable = len(w) // ROWS_PER_COLUMN - 1
    if q > n_basic and (q > affordable or not sound[within].all()):
        sound &= within
    if sound.sum() > affordable:
        sound[:] = False
    return square, sound


def _solved(curvature: Array, gradient: Array) -> Array:
    """The Newton step by Cholesky, or by least squares if the matrix is numerically singular."""
    try:
        step: Array = cho_solve(cho_factor(curvature, check_finite=False), gradient, check_finite=False)
        if np.isfinite(step).all():
            return step
    except LinAlgError:
        pass
    return np.linalg.lstsq(curvature, gradient, rcond=1e-12)[0]


def _newton(w: Array, basis: Array, goal: Array, penalty: Array, low: float, high: float) -> Array:
    """The factors clip(1 + basis @ lam, low, high) at the minimiser lam of the dual function."""

    def dual(lam: Array) -> float:
        h = 1.0 + basis @ lam
        c = np.clip(h, low, high)
        return float(w @ (c * h - 0.5 * c * c) + 0.5 * penalty @ (lam * lam) - goal @ lam)

    lam = np.zeros(basis.shape[1])
    value = dual(lam)
    for _ in range(_MAX_NEWTON_STEPS):
        h = 1.0 + basis @ lam
        gradient = (w * np.clip(h, low, high)) @ basis + penalty * lam - goal
        if np.abs(gradient).max() <= 1e-13 * np.abs(goal).max(initial=w.sum()):
            break
        free = (h > low) & (h < high)
        scaled = basis * np.sqrt(np.where(free, w, 0.0))[:, None]  # BLAS takes half the time for a product with itself
        curvature = scaled.T @ scaled + np.diag(penalty)
        step = _solved(curvature, gradient)
        length, slope = 1.0, gradient @ step
        while length > 1e-6 and (next_value := dual(lam - length * step)) > value - 1e-4 * length * slope:
            length *= 0.5
        if length <= 1e-6:
            break
        lam, value = lam - length * step, next_value
    factors: Array = np.clip(1.0 + basis @ lam, low, high)
    return factors


def recalibrated(coreset: Coreset, block: Block, objective: SampledObjective, residuals_of: Residuals) -> Coreset:
    """The coreset with weights that also reproduce the sums of residuals times columns over the block."""
    pilot = coreset.pilot
    assert pilot is not None and coreset.totals is not None
    totals: Array | None = None
    for start in range(0, len(block), _RESIDUAL_ROWS):
        part = block.cut(start, start + _RESIDUAL_ROWS)
        moments = _residual_moments(part, objective, pilot, residuals_of)
        if totals is None:
            totals = np.zeros((len(coreset.totals), moments.values.shape[1]))
        groups = np.zeros(len(part), np.int64) if moments.groups is None else moments.groups
        np.add.at(totals, groups, moments.values * part.weights()[:, None])
    assert totals is not None
    moments = _residual_moments(coreset, objective, pilot, residuals_of)
    weight, report = calibrate(coreset.weights(), moments, totals)
    return replace(coreset, sample_weight=weight, provenance={**coreset.provenance, **report.provenance()})


def _residual_moments(block: Block, objective: SampledObjective, pilot: Array, residuals_of: Residuals) -> Moments:
    moments = objective.moments(block, pilot)
    residual = residuals_of(block)
    z = moments.values[:, 2 : 2 + block.n_features]
    products = [r[:, None] * z for r in residual.T]
    return replace(moments, values=np.column_stack([moments.values, residual, *products]))
