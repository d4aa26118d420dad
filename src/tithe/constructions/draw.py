"""Weighted rows drawn by their scores: uniformly, by sensitivities, or by the distance to the mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tithe.core.contracts import Construction, MeanPilotObjective, Objective, SensitivityObjective
from tithe.core.data import Array, Block, Rng, Scores, Survey
from tithe.kernels.sampling import draw, draw_in_classes

MIN_DRAWS_OF_A_CLASS = 10  # even if the scores of its rows are small


def draw_rows(block: Block, scores: Scores | Array, size: int, rng: Rng, *, codes: Array | None = None) -> Block:
    """Rows drawn by scores that contain their weights u, each weighing u / (size p); by class with ``codes``."""
    positions, inverse = draw_by_class(scores, codes, size, rng)
    weight = block.sample_weight
    return block.take(positions, inverse if weight is None else inverse * weight[positions])


def draw_by_class(
    scores: Scores | Array, strata: Array | None, size: int, rng: Rng, *, min_draws: int = MIN_DRAWS_OF_A_CLASS
) -> tuple[Array, Array]:
    """At most ``size`` draws, a number fixed beforehand from each class: distinct positions, ascending, and weights.

    Class c, of total score S_c, gets max(min_c, m S_c / S) of the m draws; the other classes get fewer in return.
    min_c is ``min_draws``, limited by the number of rows of the class and so that these minima take at most half of
    all draws. Within a class rows are drawn by score and weights are count * S_c / (m_c * score). This is unbiased
    for every class, and every class with a positive score is drawn from. ``scores`` include the weights of the rows.
    ``strata`` are class numbers from 0 (n,) int32; None draws from all rows together.
    """
    if strata is None:
        return draw(scores, size, rng)
    n_classes = int(strata.max(initial=0)) + 1

    def allocate(totals: Array, rows: Array) -> Array:
        present = int((totals > 0.0).sum())
        if size < present:
            raise ValueError(
                f"There are {present} classes and only {size} rows may be kept: "
                "ask for at least as many rows as classes."
            )
        floor = np.minimum(np.minimum(min_draws, rows), size // (2 * present))
        return _shares(totals, np.where(totals > 0.0, np.maximum(1, floor), 0), size)

    return draw_in_classes(scores, strata, n_classes, allocate, rng)


def _shares(totals: Array, minimum: Array, size: int) -> Array:
    """``size`` draws in proportion to the totals, by largest remainders, and at least ``minimum`` for each."""
    fixed = totals <= 0.0
    while True:
        free = np.flatnonzero(~fixed)
        wanted = (size - minimum[fixed].sum()) * (totals[free] / totals[free].sum())
        too_few = wanted < minimum[free]
        if not too_few.any():
            break
        fixed[free[too_few]] = True
    shares = minimum.copy()
    shares[free] = np.floor(wanted)
    spare = size - int(shares.sum())
    shares[free[np.argsort(np.floor(wanted) - wanted, kind="stable")[:spare]]] += 1
    return shares


@dataclass(frozen=True, kw_only=True)
class Uniform(Construction[Objective]):
    """Rows without replacement, each weighing N/m; with weights u, draws with p = u/W weighing W/m.

    If the objective has classes and some class would get fewer than ten draws, rows are drawn from each class
    separately, so that every class is kept (`draw_by_class`).

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Uniform
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), construction=Uniform(),
    ...                         coreset_size=100, random_state=0)
    >>> coreset.provenance["construction"], len(coreset) <= 100, round(coreset.weights().sum())
    ('uniform', True, 2000)
    """

    name: ClassVar[str] = "uniform"
    n_passes: ClassVar[int] = 0

    def reduce(
        self, block: Block, objective: Objective, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        n = len(block)
        codes = objective.codes(block)
        if codes is not None:
            mass = np.bincount(codes, weights=block.sample_weight)
            if mass[mass > 0.0].min() * size < MIN_DRAWS_OF_A_CLASS * mass.sum():
                return draw_rows(block, block.weights(), size, rng, codes=codes)
        if block.sample_weight is None:
            return block.take(np.sort(rng.choice(n, size, replace=False)), np.full(size, n / size))
        return draw_rows(block, block.sample_weight, size, rng)


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Construction[SensitivityObjective]):
    """p_i = s_i / S with the objective's sensitivities s at its pilot; draws weigh u_i / (m p_i).

    Feldman and Langberg (2011), but for rows with m p_i >= 1: they are kept with their own weight, and the others share
    the remaining draws (`tithe.kernels.sampling.draw`). One pass besides the pilot's sample.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Sensitivity
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), construction=Sensitivity(),
    ...                         coreset_size=100, random_state=0)
    >>> coreset.provenance["construction"], len(coreset) <= 100, round(coreset.weights().sum())
    ('sensitivity', True, 2000)
    """

    name: ClassVar[str] = "sensitivity"
    requires: ClassVar[tuple[type[Objective], ...]] = (SensitivityObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    def reduce(
        self,
        block: Block,
        objective: SensitivityObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert survey is not None
        return draw_rows(block, objective.sensitivity(block, survey), size, rng)


@dataclass(frozen=True, kw_only=True)
class Lightweight(Construction[MeanPilotObjective]):
    """p_i = u_i / 2W + u_i d_i / 2D with d_i the cost of row i at the column mean and D = sum u d.

    Bachem, Lucic and Krause (2018), for k-means: |error| <= (eps/2) cost(C) + (eps/2) cost({mean}),
    an additive guarantee that costs two cheap passes. All rows equal: p = u / W.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Lightweight
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), construction=Lightweight(),
    ...                         coreset_size=100, random_state=0)
    >>> coreset.provenance["construction"], len(coreset) <= 100, round(coreset.weights().sum())
    ('lightweight', True, 2000)
    """

    name: ClassVar[str] = "lightweight"
    requires: ClassVar[tuple[type[Objective], ...]] = (MeanPilotObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    def pilot(self, block: Block, objective: MeanPilotObjective, *, rng: Rng) -> Array:
        return objective.mean_pilot(block)

    def reduce(
        self,
        block: Block,
        objective: MeanPilotObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        assert survey is not None
        weight, cost = survey.totals[:, 0].sum(), survey.totals[:, 1].sum()
        weights = block.sample_weight
        scores = Scores(
            cost=survey.cost, slope=1.0 / cost if cost > 0 else 0.0, base=np.array([1.0 / weight]), weight=weights
        )
        return draw_rows(block, scores, size, rng)
