"""Contract suites that anyone can run on their own objective, construction or engine."""

from tithe.testing.checks import check_construction as check_construction
from tithe.testing.checks import check_engine as check_engine
from tithe.testing.checks import check_objective as check_objective
from tithe.testing.checks import construction_checks as construction_checks
from tithe.testing.checks import engine_checks as engine_checks
from tithe.testing.checks import objective_checks as objective_checks
