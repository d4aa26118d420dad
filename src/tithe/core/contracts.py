"""The base classes through which rooms call one another.

An objective (`core/objective.py`) says what must be preserved, a construction chooses rows, and a source
(`core/source.py`) reads them. A room calls only methods that one of these classes declares. Methods with a default may
be left out. `tithe.testing` has checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, Self, TypeVar

from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.objective import BoundedObjective as BoundedObjective
from tithe.core.objective import ClusterBoundedObjective as ClusterBoundedObjective
from tithe.core.objective import ClusterSet as ClusterSet
from tithe.core.objective import ConvexObjective as ConvexObjective
from tithe.core.objective import InfluenceObjective as InfluenceObjective
from tithe.core.objective import MeanPilotObjective as MeanPilotObjective
from tithe.core.objective import NearestObjective as NearestObjective
from tithe.core.objective import Objective as Objective
from tithe.core.objective import SampledObjective as SampledObjective
from tithe.core.objective import SensitivityObjective as SensitivityObjective
from tithe.core.objective import SteppedObjective as SteppedObjective
from tithe.core.source import Source as Source
from tithe.core.state_checks import Storable

ObjectiveT = TypeVar("ObjectiveT", bound=Objective)


@dataclass(frozen=True, kw_only=True)
class Construction(Storable, ABC, Generic[ObjectiveT]):
    """Chooses rows. Unless ``unbiased`` is False, E[sum_i w_i f(x_i)] over the draw is the sum over all rows.

    A construction is a value: a frozen dataclass, compared with ``==``. What it learns from rows (`prepare`) is kept
    in fields with ``compare=False``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Construction
    >>> @dataclass(frozen=True, kw_only=True)
    ... class EveryNth(Construction):
    ...     name = "every_nth"
    ...     unbiased = False
    ...     def reduce(self, block, objective, size, *, pilot, survey, rng):
    ...         rows = np.arange(0, len(block), -(-len(block) // size))
    ...         return block.take(rows, np.full(len(rows), block.total_weight / len(rows)))
    >>> options = {"construction": EveryNth(), "coreset_size": 30, "calibrate": False}
    >>> coreset = build_coreset(np.eye(90), objective="kmeans", **options)
    >>> len(coreset), round(coreset.weights().sum())
    (30, 90)
    """

    name: ClassVar[str]
    requires: ClassVar[tuple[type[Objective], ...]] = ()  # contracts of the objective, checked before rows are read
    needs_pilot: ClassVar[bool] = False  # whether `reduce` needs a pilot
    needs_survey: ClassVar[bool] = False  # whether `reduce` needs the survey of the whole block at a pilot
    n_passes: ClassVar[int] = 1  # times `reduce` reads all rows
    unbiased: ClassVar[bool] = True  # else the weights add up exactly, and rows stand for those near them

    def prepare(self, block: Block, objective: ObjectiveT, *, rng: Rng) -> Self:
        """The construction with what it learns once from a sample and uses for every leaf."""
        return self

    def pilot(self, block: Block, objective: ObjectiveT, *, rng: Rng) -> Array:
        """The rough solution that rows are scored with."""
        assert isinstance(objective, SampledObjective)
        return objective.pilot(block, rng=rng)

    @abstractmethod
    def reduce(
        self, block: Block, objective: ObjectiveT, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        """At most ``size`` distinct rows of ``block`` with weights."""

    def check_columns(self, n_features: int, objective: ObjectiveT) -> None:
        """Raise ValueError if a state from a file does not fit rows of ``n_features`` columns."""
