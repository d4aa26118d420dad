"""What a construction does, and whether it can work with an objective."""

from __future__ import annotations

from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from tithe.core.contracts.objectives import Objective, SampledObjective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.state_checks import Storable

ObjectiveT = TypeVar("ObjectiveT", bound=Objective)


@dataclass(frozen=True, kw_only=True)
class Construction(Storable, ABC, Generic[ObjectiveT]):
    """Chooses rows. Unless ``unbiased`` is False, E[sum_i w_i f(x_i)] over the draw is the sum over all rows.

    A construction is a value: a frozen dataclass, compared with ``==``. What it learns from rows (`prepare`) is kept
    in fields with ``compare=False``.
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


def check_contracts(objective: Any, contracts: Iterable[ABCMeta], *, needed_by: str) -> None:
    """Raise ValueError, naming what is missing, unless ``objective`` implements all of the contracts."""
    wanted: list[ABCMeta] = [Objective, *contracts]
    for contract in wanted:
        if not isinstance(objective, contract):
            kind = type(objective)
            missing = sorted(contract.__abstractmethods__ - set(dir(kind)))
            lacks = f"lacks {', '.join(f'{name}()' for name in missing)}" if missing else "does not inherit it"
            raise ValueError(
                f"{needed_by} needs an objective that is a {contract.__name__} (tithe.core.contracts); "
                f"{kind.__name__} {lacks}. construction='uniform' with calibrate=False works for every Objective."
            )
