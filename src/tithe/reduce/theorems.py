"""The theorems about coreset sizes: each a formula for the rows as a function of the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tithe.constructions.rings import Rings, draws_per_ring
from tithe.core.params import OneOf, RealNumber, check_value
from tithe.objectives.clustering import ClusteringObjective
from tithe.objectives.dictionary import DictionaryObjective


@dataclass(frozen=True, kw_only=True)
class SizeBound:
    """A coreset size and where it comes from.

    Parameters
    ----------
    size : int
    eps : float
        The error that was asked for.
    constant, total_sensitivity, dimension : float
        The constant, S and D of ``formula``. For rings S is the number of rings.
    formula : str
    proved : bool
        Whether all constants are known, so that the size is proved under ``assumption``. Otherwise the theorem leaves
        a constant or a dimension open, and the formula says which number is used.
    assumption : str
        What must hold; empty: nothing.
    """

    size: int
    eps: float
    constant: float
    total_sensitivity: float
    dimension: float
    formula: str
    proved: bool
    assumption: str = ""

    def transfer_factor(self, approximation: float = 1.0) -> float:
        """lambda (1 + eps) / (1 - eps): what a solution costs on all rows, in units of the smallest cost.

        The solution is within a factor lambda = ``approximation`` of the best one on the coreset. ``eps`` must bound
        the relative error for all solutions.
        """
        return approximation * (1.0 + self.eps) / (1.0 - self.eps)

    def __str__(self) -> str:
        numbers = f"S = {self.total_sensitivity:.4g}, D = {self.dimension:.4g}"
        return f"{self.size} rows: {self.formula}, {numbers}, {'proved' if self.proved else 'not proved'}"


@dataclass(frozen=True, kw_only=True)
class Theorem:
    """A size as a function of eps: ``rows(eps)`` falls where eps grows. ``total(eps)`` is S, mostly a constant."""

    rows: Callable[[float], float]
    total: Callable[[float], float]
    constant: float
    formula: str
    proved: bool
    dimension: float = 1.0
    assumption: str = ""

    def bound(self, eps: float) -> SizeBound:
        return SizeBound(
            size=max(1, math.ceil(self.rows(eps))),
            eps=eps,
            constant=self.constant,
            total_sensitivity=self.total(eps),
            dimension=self.dimension,
            formula=self.formula,
            proved=self.proved,
            assumption=self.assumption,
        )


def _bernstein(total: Callable[[float], float], delta: float, about: str, assumption: str) -> Theorem:
    """One query: terms between 0 and S cost, of a mean square of at most S cost^2."""
    return Theorem(
        rows=lambda eps: 2.0 * total(eps) * (1.0 + eps / 3.0) * math.log(2.0 / delta) / eps**2,
        total=total,
        constant=2.0,
        formula=f"2 S (1 + eps/3) ln(2/delta) / eps^2, {about}one fixed query",
        proved=True,
        assumption=assumption,
    )


def by_sensitivities(
    one: bool, total: float, dimension: float, delta: float, *, constant: float = 1.0, assumption: str = ""
) -> Theorem:
    """Draws by sensitivities of the given total, for one query or for all."""
    if one:
        return _bernstein(lambda eps: total, delta, "", assumption)
    log_total = max(0.0, math.log(total))
    return Theorem(
        rows=lambda eps: constant * total * (dimension * log_total + math.log(1.0 / delta)) / eps**2,
        total=lambda eps: total,
        constant=constant,
        dimension=dimension,
        formula=f"c S (D ln S + ln(1/delta)) / eps^2, all queries, universal constant c taken as {constant:g}",
        proved=False,
        assumption=assumption,
    )


def about_clusters(
    goal: ClusteringObjective, delta: float, d: int, construction: str, one: bool, n_rows: int | None
) -> Theorem:
    k = goal.n_clusters
    dimension = d * k * max(1.0, math.log(k))
    assumption = f"the pilot costs at most {goal.pilot_factor:.3g} times the smallest cost"
    if construction == "rings":
        return _about_rings(goal, delta, d, one, n_rows, assumption)
    if construction == "sensitivity":
        return by_sensitivities(one, goal.total_sensitivity, dimension, delta, assumption=assumption)
    total = 16.0 if goal.power == 2 else 4.0
    if one:
        return Theorem(
            rows=lambda eps: 4.0 * total * (1.0 + eps / 6.0) * math.log(2.0 / delta) / eps**2,
            constant=4.0,
            total=lambda eps: total,
            formula="4 S (1 + eps/6) ln(2/delta) / eps^2, additive, one fixed query",
            proved=True,
        )
    return Theorem(
        rows=lambda eps: (dimension + math.log(1.0 / delta)) / eps**2,
        constant=1.0,
        total=lambda eps: total,
        dimension=dimension,
        formula="c (D + ln(1/delta)) / eps^2, additive, all queries, universal constant c taken as 1",
        proved=False,
    )


def _about_rings(
    goal: ClusteringObjective, delta: float, d: int, one: bool, n_rows: int | None, assumption: str
) -> Theorem:
    if n_rows is None:
        raise ValueError("rings need n_rows: the number of layers grows with its logarithm.")
    rings = Rings()
    last = rings.last_layer(n_rows, goal.power)
    n_rings = goal.n_pilot_centers * (last + 1)
    factor = rings.error_factor(goal.power, goal.pilot_factor)

    def rows(eps: float) -> float:
        if one:
            return n_rings * draws_per_ring(eps, delta, error_factor=factor)
        # each ring counts as a query: which rings belong to clusters far from a solution is not known beforehand
        log_queries = math.log(n_rings) + log_net(eps, goal, d, last, rings.alpha)
        return n_rings * draws_per_ring(eps / 2.0, delta, error_factor=factor, log_queries=log_queries)

    logs, eps0 = ("ln(2/delta)", factor) if one else ("(ln(2 S/delta) + ln N)", 2.0 * factor)
    queries = "one fixed query" if one else "all queries, N of a net"
    return Theorem(
        rows=rows,
        constant=0.5,
        total=lambda eps: float(n_rings),
        dimension=float(d * goal.n_clusters),
        formula=f"S {logs} / (2 eps0^2), S rings, eps0 = eps/{eps0:.4g}, {queries}",
        proved=True,
        assumption=assumption,
    )


def log_net(eps: float, goal: ClusteringObjective, d: int, last_layer: int, alpha: float) -> float:
    """ln |N|: if the errors of N are at most eps/2 of the cost in each, those of all solutions are at most eps.

    Let D = 2^last_layer R, the largest distance of a row to its pilot centre, h the fineness of the net, and f the
    factor of the pilot. A pilot cluster at a distance of at least D (1 + 1/h) from C has costs that are equal up to
    2 h (z = 1) or 4 h (1 + h) (z = 2) of its cost; its weight is exact, and so is its cost up to that. Centres that
    serve the rows of any other cluster are within D (3 + 1/h) of a pilot centre. Each is replaced by a point of N at a
    distance of at most h (R + its distance to the pilot): in shells of radius 2^s R balls of radius h 2^(s-1) R do, at
    most (1 + 4/h)^d in each. This changes the distance of a row by at most g (R + d_i + its distance), with
    g = h (1 + h) / (1 - h). Costs change by at most w times the sum of the three costs, w = g for z = 1 and
    3 g (2 + g) for z = 2. Added up over the rows and over the drawn rows, whose rings have exact weights, that is
    w (b + error), with b = f (3 + 3/alpha) + 2 for z = 1 and f (5 + 3/alpha) + 2 for z = 2.
    So error <= (eps/2 (1 + w b) + w b) / (1 - w) + that of far clusters. h is the largest power of 1/2 for which this
    is at most eps.
    """
    z, factor = goal.power, goal.pilot_factor
    spread = factor * ((3.0 if z == 1 else 5.0) + 3.0 / alpha) + 2.0
    fineness = 0.5
    while _error_between(fineness, eps, z, spread) > eps:
        fineness /= 2.0
    n_shells = last_layer + 1 + math.ceil(math.log2(3.0 + 1.0 / fineness))
    log_points = math.log(goal.n_pilot_centers * n_shells) + d * math.log1p(4.0 / fineness)
    return goal.n_clusters * (log_points + math.log1p(math.exp(-log_points)))  # one more: a centre that serves no row


def _error_between(fineness: float, eps: float, power: int, spread: float) -> float:
    """The largest error of any solution, if those of the net are at most eps / 2: see `log_net`."""
    step = fineness * (1.0 + fineness) / (1.0 - fineness)
    change, far = (step, 2.0 * fineness) if power == 1 else (3.0 * step * (2.0 + step), 4.0 * fineness * (1 + fineness))
    if change >= 1.0:
        return math.inf
    return (eps / 2.0 * (1.0 + change * spread) + change * spread) / (1.0 - change) + far


def about_dictionaries(
    goal: DictionaryObjective, delta: float, d: int, one: bool, reference_factor: float | str | None
) -> Theorem:
    check_value("reference_factor", reference_factor, OneOf(None, "1/eps") | RealNumber(least=1.0))
    if goal.beta == 1.0:
        raise ValueError("beta=1 draws rows uniformly, about which no theorem is known: use a smaller beta.")
    factor = 1.0 if reference_factor is None else reference_factor

    def total(eps: float) -> float:
        return (1.0 / eps if isinstance(factor, str) else factor) / (1.0 - goal.beta)

    about = "S = 1 / (eps (1 - beta)), " if isinstance(factor, str) else f"S = {factor:g} / (1 - beta), "
    assumption = "the dictionary contains D0"
    if reference_factor is not None:
        share = "eps" if isinstance(factor, str) else f"1/{factor:g}"
        assumption += f" and costs at least {share} of what D0 costs"
        if one:
            return _bernstein(total, delta, about, assumption)
    dimension = 1.0 if one else float(d * goal.n_components)
    # Hoeffding's inequality needs ln(2/delta) / 2, which is more than 10 ln(1/delta) where delta is above .96
    log_chance = max(10.0 * math.log(1.0 / delta), math.log(2.0 / delta) / 2.0)
    error = "additive: eps cost(D0)" if reference_factor is None else "relative"
    queries = "one fixed query" if one else "all queries, pseudo-dimension taken as d k"
    return Theorem(
        rows=lambda eps: dimension * total(eps) ** 2 * log_chance / eps**2,
        total=total,
        constant=10.0,
        dimension=dimension,
        formula=f"10 D S^2 ln(1/delta) / eps^2, {about}{error}, {queries}",
        proved=one,
        assumption=assumption,
    )
