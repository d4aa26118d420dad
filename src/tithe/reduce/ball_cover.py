"""Ball cover: every row stands for those within a radius of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, check_params
from tithe.reduce.kernels import FarthestFirst, leaders


@dataclass(frozen=True, kw_only=True)
class BallCover(Construction[Objective]):
    """Centres such that every row is within a radius r of one. A centre weighs as much as the rows nearest to it.

    With two classes, distances are those of z = +-(x, constant), where the objective gives the constant (1 by
    default). A radius below 2 constant never joins two classes. With more classes, a centre covers only rows of its
    own class. Without classes z = x. A loss that is Lipschitz in z errs by at most r times its Lipschitz constant,
    for every solution. No random draw has such a guarantee, but the error is a bias that does not average out.
    Weights add up exactly. The number of centres grows like r to the power of minus the intrinsic dimension, so use
    it for a few columns, or where many rows are nearly equal.

    Parameters
    ----------
    radius : float or None
        Stop at this radius, even with fewer centres than were asked for. None: only the size counts.
    leader : bool
        True: one pass in the order of the rows. A row within the radius of a leader joins the nearest one; any other
        row becomes a leader. When there are more leaders than may be kept, the radius doubles and leaders are merged.
        False: farthest first (Gonzalez 1985). Each centre is the row farthest from the centres before it. The radius
        of k centres is at most twice the smallest possible, and the first of them are the centres of a smaller size.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = tithe.build_coreset(X, objective="kmeans", construction="ball_cover", coreset_size=100)
    >>> len(coreset) <= 100, round(coreset.weights().sum())
    (True, 2000)
    """

    radius: float | None = None
    leader: bool = False

    name: ClassVar[str] = "ball_cover"
    unbiased: ClassVar[bool] = False
    _constraints: ClassVar[dict[str, Constraint]] = {"radius": OneOf(None) | RealNumber(least=0.0), "leader": Boolean()}

    def __post_init__(self) -> None:
        check_params(self, self._constraints)
        if self.leader and self.radius is None:
            raise ValueError("leader=True needs a radius: it is not found in a single pass.")

    def reduce(
        self, block: Block, objective: Objective, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        geometry = _geometry(block, objective)
        if self.leader:
            assert self.radius is not None
            positions, mass, reach = leaders(
                block.X, radius=self.radius, most=size, weight=block.sample_weight, **geometry
            )
        else:
            present = np.flatnonzero(block.weights() > 0.0)
            cover = FarthestFirst(
                block.X, weight=block.sample_weight, start=int(present[rng.integers(len(present))]), **geometry
            ).grow(size=size, radius=self.radius or 0.0)
            if np.isinf(cover.radius):
                raise ValueError(f"There are more classes than the {size} rows that may be kept.")
            positions, mass, reach = np.asarray(cover.centres), cover.weights(), cover.radius
        order = np.argsort(positions)
        return replace(block.take(positions[order], mass[order]), notes={"cover_radius": reach})


def _geometry(block: Block, objective: Objective) -> dict[str, Any]:
    """Arguments of the kernels that say between which rows distances are taken: signs, groups and the constant."""
    codes = objective.codes(block)
    if codes is None:
        return {}
    if objective.n_classes > 2:
        return {"groups": codes}
    return {"signs": 2.0 * codes - 1.0, "constant": objective.constant}
