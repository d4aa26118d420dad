"""Sensitivity sampling: rows with a large share of the cost of some solution are drawn more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tithe.constructions.draw import draw_rows
from tithe.core.contracts import Construction, Objective, SensitivityObjective
from tithe.core.data import Array, Block, Rng, Survey


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Construction[SensitivityObjective]):
    """p_i = s_i / S with the objective's sensitivities s at its pilot; draws weigh u_i / (m p_i).

    Feldman and Langberg (2011). One pass besides the pilot's sample.
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
