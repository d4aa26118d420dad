"""The theorems about coreset sizes: each a formula for the rows that an error takes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tithe.clustering.objective import ClusteringObjective
from tithe.clustering.rings import Rings, draws_per_ring
from tithe.core.contracts import SensitivityObjective
from tithe.core.params import Constraint, OneOf, RealNumber, WholeNumber, check_params, check_value

_OPEN_CONSTANT = "at least as many as for one query, universal constant c taken as"


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

    Examples
    --------
    >>> from tithe.theory import theoretical_size
    >>> print(theoretical_size("logistic", 0.1, n_features=10, total_sensitivity=30.0, queries="one"))
    18574 rows: 2 S (1 + eps/3) ln(2/delta) / eps^2, one fixed query, S = 30, D = 1, proved if S is the total of the \
bounds that rows are drawn by and the norm of parameters at most the radius of the construction
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
        check_value("approximation", approximation, RealNumber(least=1.0))
        return approximation * (1.0 + self.eps) / (1.0 - self.eps)

    def __str__(self) -> str:
        numbers = f"S = {self.total_sensitivity:.4g}, D = {self.dimension:.4g}"
        kind = "proved" if self.proved else "not proved"
        condition = f" if {self.assumption}" if self.assumption else ""
        return f"{self.size} rows: {self.formula}, {numbers}, {kind}{condition}"


_QUESTION: dict[str, Constraint] = {
    "delta": RealNumber(above=0.0, below=1.0),
    "n_features": WholeNumber(least=1),
    "queries": OneOf("one", "all", "net") | WholeNumber(least=1),
    "n_rows": OneOf(None) | WholeNumber(least=1),
    "total_sensitivity": OneOf(None) | RealNumber(least=1.0),
}


@dataclass(frozen=True)
class SizeQuestion:
    """What a theorem is asked: arguments of `theoretical_size`, where they are described."""

    eps: float
    delta: float
    n_features: int
    construction: str
    queries: str | int
    n_rows: int | None
    total_sensitivity: float | None
    reference_factor: float | str | None

    def __post_init__(self) -> None:
        check_params(self, _QUESTION)

    @property
    def one(self) -> bool:
        """Whether the error is that of one fixed solution; otherwise of all solutions at once."""
        return self.queries == "one"

    @property
    def known_rows(self) -> int:
        """``n_rows``, which must be given."""
        if self.n_rows is None:
            raise ValueError("rings and nets need n_rows: the number of layers grows with its logarithm.")
        return self.n_rows

    def answer(self, rows: float, total: float, formula: str, **about: Any) -> SizeBound:
        """The bound of so many rows, ``total`` being S."""
        about = {"dimension": 1.0, **about}
        return SizeBound(size=max(1, math.ceil(rows)), eps=self.eps, total_sensitivity=total, formula=formula, **about)


class TheoremObjective(SensitivityObjective):
    """An objective with a theorem of its own about the size of a coreset drawn by its sensitivities."""

    needs_total_sensitivity: ClassVar[bool] = False  # whether S must be measured on rows
    takes_reference_factor: ClassVar[bool] = False  # whether errors are relative to those of a reference

    @abstractmethod
    def size_theorem(self, question: SizeQuestion) -> SizeBound:
        """The rows to draw for the error asked for; fewer for a larger one."""


def needed_total(goal_name: str, total_sensitivity: float | None) -> float:
    """The total sensitivity that was measured; ValueError if it was not."""
    if total_sensitivity is None:
        raise ValueError(
            f"The theorem about {goal_name!r} needs total_sensitivity: measure it on rows with "
            "tithe.theory.measured_total_sensitivity."
        )
    return total_sensitivity


def by_bernstein(question: SizeQuestion, total: float, about: str, assumption: str) -> SizeBound:
    """One query: terms between 0 and S cost, of a mean square of at most S cost^2."""
    rows = 2.0 * total * (1.0 + question.eps / 3.0) * math.log(2.0 / question.delta) / question.eps**2
    formula = f"2 S (1 + eps/3) ln(2/delta) / eps^2, {about}one fixed query"
    return question.answer(rows, total, formula, constant=2.0, proved=True, assumption=assumption)


DRAWN_BY = "S is the total of the bounds that rows are drawn by"


def by_sensitivities(
    question: SizeQuestion, total: float, dimension: float, *, constant: float = 1.0, assumption: str = ""
) -> SizeBound:
    """Draws by sensitivities of the given total, for one query or for all."""
    fixed_query = by_bernstein(question, total, "", assumption)
    if question.one:
        return fixed_query
    exponent = dimension * max(0.0, math.log(total)) + math.log(1.0 / question.delta)
    return question.answer(
        max(constant * total * exponent / question.eps**2, fixed_query.size),
        total,
        f"c S (D ln S + ln(1/delta)) / eps^2, all queries, {_OPEN_CONSTANT} {constant:g}",
        constant=constant,
        dimension=dimension,
        proved=False,
        assumption=assumption,
    )


def about_clusters(goal: ClusteringObjective, question: SizeQuestion) -> SizeBound:
    k, eps, delta = goal.n_clusters, question.eps, question.delta
    dimension = question.n_features * k * max(1.0, math.log(k))
    assumption = f"the pilot costs at most {goal.pilot_factor:.3g} times the smallest cost"
    if question.construction == "rings":
        return _about_rings(goal, question, assumption)
    if question.queries == "net":
        return _sensitivities_of_all(goal, question, assumption)
    if question.construction == "sensitivity":
        return by_sensitivities(question, goal.total_sensitivity, dimension, assumption=assumption)
    total = 16.0 if goal.power == 2 else 4.0
    rows = 4.0 * total * (1.0 + eps / 6.0) * math.log(2.0 / delta) / eps**2
    if question.one:
        formula = "4 S (1 + eps/6) ln(2/delta) / eps^2, additive, one fixed query"
        return question.answer(rows, total, formula, constant=4.0, proved=True)
    rows = max((dimension + math.log(1.0 / delta)) / eps**2, rows)
    formula = f"c (D + ln(1/delta)) / eps^2, additive, all queries, {_OPEN_CONSTANT} 1"
    return question.answer(rows, total, formula, constant=1.0, dimension=dimension, proved=False)


@dataclass(frozen=True)
class Net:
    """A finite set N of solutions that stands for all sets of k centres.

    Let R^z = c / (a W), c the cost of the pilot, W the weight, and f the factor of the pilot: c <= f K for the cost K
    of any solution C. Let D = 2^last_layer R >= all distances d_i of rows to their pilot centres, and h the fineness.

    Near clusters: a pilot centre has C within D (1 + 1/h). Centres that serve its rows are within D (3 + 1/h) of it.
    Each is replaced by a point of N at a distance of at most h (R + its distance to the pilot). In shells of radius
    2^s R balls of radius h 2^(s-1) R do, at most (1 + 4/h)^d in each. The distance of a row changes by at most
    g (R + d_i + distance), g = h (1 + h) / (1 - h), and its cost by at most w (R^z + d_i^z + cost), with w = g for
    z = 1 and 3 g (2 + g) for z = 2.

    Far clusters: all others. The costs of the rows of such a cluster are equal up to a factor 1 + 2 h for z = 1, and
    1 + 4 h (1 + h) for z = 2.

    ``error(h)`` is the largest error of all solutions that follows from these changes and from the errors of N. The
    fineness is the largest power of 1/2 for which it is at most ``eps``.
    """

    goal: ClusteringObjective
    n_features: int
    last_layer: int

    def changes(self, fineness: float) -> tuple[float, float]:
        """w of near clusters, and the largest relative difference of costs in a far one."""
        step = fineness * (1.0 + fineness) / (1.0 - fineness)
        if self.goal.power == 1:
            return step, 2.0 * fineness
        return 3.0 * step * (2.0 + step), 4.0 * fineness * (1.0 + fineness)

    def log_size(self, error: Callable[[float, float], float], eps: float) -> float:
        """ln |N|, with ``error`` a function of the two `changes`."""
        fineness = 0.25
        change, far = self.changes(fineness)
        while change >= 1.0 or error(change, far) > eps:
            fineness /= 2.0
            change, far = self.changes(fineness)
        n_shells = self.last_layer + 1 + math.ceil(math.log2(3.0 + 1.0 / fineness))
        log_points = math.log(self.goal.n_pilot_centers * n_shells) + self.n_features * math.log1p(4.0 / fineness)
        # a centre that serves no row of a near cluster counts as one more point
        return self.goal.n_clusters * (log_points + math.log1p(math.exp(-log_points)))


def _sensitivities_of_all(goal: ClusteringObjective, question: SizeQuestion, assumption: str) -> SizeBound:
    """All solutions at once, by Bernstein's inequality with e = eps / 3 for a net and some more functions.

    Let B be the near clusters of a solution C and C' its point in the net, a = 1. Rows of B have
    u f_C' <= s_i M with M = max(c / f, cost_B(C')), by the proof of s_i, and M <= (1 + w b) K, b = 2 f + 1. So
    the cost of C' in B has an error of at most e M, for each of the 2^p sets of clusters. The weights of the p clusters
    and the cost of the pilot have sensitivities below s_i as well: their errors are at most e. Added up over the rows
    and over the drawn rows, the changes of near clusters are at most w (b + (1 + e) 2 f + 1 + error) K, so that

        error <= (e (1 + w b) + w (b + (1 + e) 2 f + 1)) / (1 - w) + (1 + e) (1 + far) - 1.
    """
    factor, p, d = goal.pilot_factor, goal.n_pilot_centers, question.n_features
    net = Net(goal, d, Rings(alpha=1.0).last_layer(question.known_rows, goal.power))
    total = goal.total_sensitivity

    e, b = question.eps / 3.0, 2.0 * factor + 1.0

    def error(change: float, far: float) -> float:
        near = e * (1.0 + change * b) + change * (b + (1.0 + e) * 2.0 * factor + 1.0)
        return near / (1.0 - change) + (1.0 + e) * (1.0 + far) - 1.0

    log_queries = p * math.log(2.0) + net.log_size(error, question.eps)
    log_queries += math.log1p((p + 1.0) * math.exp(-log_queries))
    return question.answer(
        2.0 * total * (1.0 + e / 3.0) * (math.log(2.0 / question.delta) + log_queries) / e**2,
        total,
        "2 S (1 + e/3) (ln(2/delta) + ln N) / e^2, e = eps/3, all queries, N of a net",
        constant=2.0,
        dimension=float(d * goal.n_clusters),
        proved=True,
        assumption=assumption,
    )


def _about_rings(goal: ClusteringObjective, question: SizeQuestion, assumption: str) -> SizeBound:
    """x draws from each ring. All solutions: errors of eps / 2 within rings, and a net.

    Weights of rings are exact, so far clusters have no other error than the difference of their costs. Added up over
    the rows and over the drawn rows, the changes of near clusters are at most w (b + error) K, with b = f (3 + 3/a) + 2
    for z = 1 and f (5 + 3/a) + 2 for z = 2: error <= (eps/2 (1 + w b) + w b) / (1 - w) + far.
    """
    rings, one, d = Rings(), question.one, question.n_features
    eps, delta = question.eps, question.delta
    last = rings.last_layer(question.known_rows, goal.power)
    n_rings = goal.n_pilot_centers * (last + 1)
    factor = rings.error_factor(goal.power, goal.pilot_factor)
    b = goal.pilot_factor * ((3.0 if goal.power == 1 else 5.0) + 3.0 / rings.alpha) + 2.0
    net = Net(goal, d, last)

    def error(change: float, far: float) -> float:
        return (eps / 2.0 * (1.0 + change * b) + change * b) / (1.0 - change) + far

    if one:
        draws = draws_per_ring(eps, delta, error_factor=factor)
    else:
        # each ring counts as a query: which rings belong to far clusters is not known beforehand
        log_queries = math.log(n_rings) + net.log_size(error, eps)
        draws = draws_per_ring(eps / 2.0, delta, error_factor=factor, log_queries=log_queries)
    logs, eps0 = ("ln(2/delta)", factor) if one else ("(ln(2 S/delta) + ln N)", 2.0 * factor)
    queries = "one fixed query" if one else "all queries, N of a net"
    return question.answer(
        n_rings * draws,
        float(n_rings),
        f"S {logs} / (2 eps0^2), S rings, eps0 = eps/{eps0:.4g}, {queries}",
        constant=0.5,
        dimension=float(d * goal.n_clusters),
        proved=True,
        assumption=assumption,
    )
