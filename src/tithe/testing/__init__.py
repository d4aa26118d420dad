"""Contract suites that anyone can run on their own objective, construction or engine."""

from __future__ import annotations

from tithe.testing.constructions import check_construction, construction_checks
from tithe.testing.engines import check_engine, engine_checks
from tithe.testing.objectives import check_objective, objective_checks

__all__ = [
    "check_construction",
    "check_engine",
    "check_objective",
    "construction_checks",
    "engine_checks",
    "objective_checks",
]
