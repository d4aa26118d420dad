"""Rings: strata of rows at similar distances from a pilot centre."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tithe.clustering.kernels import draw_in_groups, group_masses, ring_codes
from tithe.core.contracts import Construction, NearestObjective, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.params import Constraint, OneOf, RealNumber, WholeNumber, check_params


@dataclass(frozen=True, kw_only=True)
class Rings(Construction[NearestObjective]):
    """Exponential rings around the pilot centres, the same number of draws from each.

    With d_i the distance of row i to its nearest pilot centre, c the pilot's cost and W the
    weight, R = (c / (alpha W))^(1/z); the layer of row i is 0 if d_i <= R, else ceil(log2(d_i/R)).
    All rows of a ring (centre, layer) of at most x rows are kept with their own weights. Any other ring gives
    x draws with p proportional to u, each weighing W_ring / x. The weight of every ring is exact.

    Chen (2009), with two corrections: nearest centres (the balls overlap), and x proportional to 1/eps^2.
    ``alpha`` only sets the radius R and causes no bias. With ``per_ring`` or ``eps``, a size that is
    too small for all the draws is refused.

    Parameters
    ----------
    alpha : float
    per_ring : int, optional
        The number x. By default the largest number for which the rows do not exceed the size of the coreset.
    eps, delta : float, optional
        x is the number for which the cost of one solution, fixed before the draw, has a relative error of at most
        ``eps`` with probability 1 - ``delta``: see `draws_per_ring`. ``delta`` is 0.1 unless it is given. The pilot
        must cost at most ``objective.pilot_factor`` times the smallest cost, which clusterings have.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", construction="rings", coreset_size=100, random_state=0)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    alpha: float = 4.0
    per_ring: int | None = None
    eps: float | None = None
    delta: float | None = None

    name: ClassVar[str] = "rings"
    requires: ClassVar[tuple[type[Objective], ...]] = (NearestObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True
    _constraints: ClassVar[dict[str, Constraint]] = {
        "alpha": RealNumber(above=0.0),
        "per_ring": OneOf(None) | WholeNumber(least=1),
        "eps": OneOf(None) | RealNumber(above=0.0, below=1.0),
        "delta": OneOf(None) | RealNumber(above=0.0, below=1.0),
    }

    def __post_init__(self) -> None:
        check_params(self, self._constraints)
        if self.per_ring is not None and self.eps is not None:
            raise ValueError("per_ring and eps both set the draws per ring: give one of them.")
        if self.delta is not None and self.eps is None:
            raise ValueError("delta is the probability that the error exceeds eps: give eps as well.")

    def last_layer(self, weight: float, power: int, *, lightest: float = 1.0) -> int:
        """The number of the last layer, for rows of this total weight: ceil(log2(alpha weight / lightest) / z).

        A row beyond that layer would cost more than all rows together.
        """
        return max(0, int(np.ceil((np.log2(self.alpha) + np.log2(weight) - np.log2(lightest)) / power)))

    def ring_of(self, block: Block, survey: Survey, power: int) -> tuple[Array, int]:
        """The number of the ring of each row, (n,) int32, and an upper bound on the number of rings."""
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        weights = block.sample_weight
        lightest = 1.0 if weights is None else weights[weights > 0].min()
        last = self.last_layer(weight, power, lightest=lightest)
        factor = self.alpha * weight / cost if cost > 0 else 0.0
        codes = ring_codes(survey.cost, survey.labels, factor=factor, power=power, last_layer=last)
        return codes, len(survey.totals) * (last + 1)

    def reduce(
        self, block: Block, objective: NearestObjective, size: int, *, survey: Survey | None, rng: Rng, **_: Any
    ) -> Block:
        assert survey is not None
        rings, n_rings = self.ring_of(block, survey, objective.power)
        counts, masses = group_masses(rings, n_rings, block.sample_weight)
        occupied = int((counts > 0).sum())
        if occupied > size:
            raise ValueError(
                f"There are {occupied} rings and only {size} rows may be kept: ask for at least as many rows as "
                "rings, or use construction='sensitivity'."
            )
        per_ring = self._asked_per_ring(objective)
        if per_ring is None:
            per_ring = _draws_that_fit(counts, size)
        asked, per_ring = per_ring, min(per_ring, int(counts.max()))  # rings of fewer rows are kept whole
        needed = int(np.minimum(counts, per_ring).sum())
        if needed > size:
            raise ValueError(
                f"{asked:,} draws from each ring are up to {needed} rows, and only {size} may be kept: ask for at "
                "least as many rows, or for fewer draws (a smaller per_ring, a larger eps)."
            )
        return block.take(*draw_in_groups(rings, counts, masses, per_ring, block.sample_weight, rng))

    def _asked_per_ring(self, objective: NearestObjective) -> int | None:
        if self.eps is None:
            return self.per_ring
        if objective.pilot_factor is None:
            raise ValueError(
                f"Rings(eps=...) needs an objective whose pilot_factor is known, and that of {objective.name!r} is "
                "not: use per_ring, or no number at all."
            )
        delta = 0.1 if self.delta is None else self.delta
        factor = self.error_factor(objective.power, objective.pilot_factor)
        return draws_per_ring(self.eps, delta, error_factor=factor)

    def error_factor(self, power: int, pilot_factor: float) -> float:
        """A bound on sum W_ring range_ring / K, range_ring the largest difference of costs of rows of the ring.

        Let a be ``alpha``, f the ``pilot_factor``, K the cost of a solution C, r_t = 2^t R the outer radius of layer t.
        R^z W = c / a and c <= f K. Rows of a layer t >= 1 have r_t < 2 d_i.

        z = 1: costs in a ring differ by at most 2 r_t, and sum W_ring 2 r_t <= (4 + 2/a) c <= (4 + 2/a) f K.

        z = 2: costs in a ring differ by at most 4 r_t max(r_t, D_j), D_j the distance of the pilot centre to C. With
        sum W_ring r_t^2 <= (4 + 1/a) c and W_j D_j^2 <= 2 c_j + 2 K_j, the Cauchy-Schwarz inequality gives
        sum W_ring 4 r_t (r_t + D_j) <= 4 ((4 + 1/a) f + sqrt(2 (4 + 1/a) f (f + 1))) K.
        """
        f = pilot_factor
        if power == 1:
            return (4.0 + 2.0 / self.alpha) * f
        radii = (4.0 + 1.0 / self.alpha) * f
        return 4.0 * (radii + math.sqrt(2.0 * radii * (f + 1.0)))


def draws_per_ring(eps: float, delta: float, *, error_factor: float, log_queries: float = 0.0) -> int:
    """x = (ln(2 / delta) + ln queries) / (2 eps0^2) with eps0 = eps / error_factor.

    The estimate of a cost K is a sum of independent terms, x from each ring, of ranges W_ring range_ring / x. Their
    squares add up to at most (sum W_ring range_ring)^2 / x <= (error_factor K)^2 / x. By Hoeffding's inequality the
    error of each of the queries is at most eps K, with probability 1 - ``delta`` for all of them at once.
    """
    return math.ceil((math.log(2.0 / delta) + log_queries) * (error_factor / eps) ** 2 / 2.0)


def _draws_that_fit(count: Array, size: int) -> int:
    """The largest x with sum(min(count, x)) <= size."""
    low, high = 1, int(count.max())
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(count, middle).sum() <= size:
            low = middle
        else:
            high = middle - 1
    return low
