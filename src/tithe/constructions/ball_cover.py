"""Ball cover: every row stands for those within a radius of it."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.kernels.cover import FarthestFirst, leaders


@dataclass(frozen=True, kw_only=True)
class BallCover(Construction[Objective]):
    """Centres such that every row is within a radius r of one; each weighs as much as the rows nearest to it.

    Rows are z = +-(x, constant) where the objective tells two classes apart (constant: 1 with an intercept, or as
    the objective says), so that r < 2 constant never mixes them; with more classes rows of different ones are
    never covered by each other; without classes z = x. Any loss that is Lipschitz in z errs by at most r times its
    constant, for every solution: a certainty that no draw gives, bought with a bias that no average takes away.
    Weights add up exactly. It needs a number of centres that grows like r to the minus intrinsic dimension:
    for a few columns, or where rows repeat themselves.

    Parameters
    ----------
    radius : float or None
        Where to stop before the size asked for is reached. None: the size alone counts.
    leader : bool
        One pass, in the order of the rows, at the given radius: a row within reach of a leader joins the nearest
        one, any other leads. Where more would lead than may be kept, the radius doubles, and leaders join leaders.
        False: farthest first (Gonzalez 1985), each centre the row farthest from those before. The radius of k
        centres is at most twice the best there is, and the first of them are the centres of any smaller size.
    """

    radius: float | None = None
    leader: bool = False

    name: ClassVar[str] = "ball_cover"
    unbiased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        given = self.radius
        if given is not None and (
            isinstance(given, bool) or not isinstance(given, numbers.Real) or not 0.0 <= given < np.inf
        ):
            raise ValueError(f"radius must be None or a finite number of at least 0, got {given!r}.")
        if self.leader and given is None:
            raise ValueError("leader=True needs a radius: there is but one pass to find one.")

    def reduce(
        self, block: Block, objective: Objective, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        where = _places(block, objective)
        if self.leader:
            assert self.radius is not None
            positions, mass, reach = leaders(
                block.X, radius=self.radius, most=size, weight=block.sample_weight, **where
            )
        else:
            present = np.flatnonzero(block.weights() > 0.0)
            cover = FarthestFirst(
                block.X, weight=block.sample_weight, start=int(present[rng.integers(len(present))]), **where
            ).grow(size=size, radius=self.radius or 0.0)
            if np.isinf(cover.radius):
                raise ValueError(f"There are more classes than the {size} rows that may be kept.")
            positions, mass, reach = np.asarray(cover.centres), cover.weights(), cover.radius
        order = np.argsort(positions)
        return replace(block.take(positions[order], mass[order]), notes={"cover_radius": reach})


def _places(block: Block, objective: Objective) -> dict[str, Any]:
    """Where rows lie, for an objective: signs, groups and the constant of the kernels."""
    codes = objective.codes(block)
    if codes is None:
        return {}
    if objective.n_classes > 2:
        return {"groups": codes}
    return {"signs": 2.0 * codes - 1.0, "constant": objective.constant}
