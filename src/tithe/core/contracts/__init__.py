"""The base classes through which rooms call one another.

An objective says what must be preserved, a construction chooses rows, a source reads them, and an engine runs the
work. A room calls only methods that one of these classes declares. Methods with a default may be left out.
`tithe.testing` has suites that check an implementation.
"""

from tithe.core.contracts.constructions import Construction, ObjectiveT, check_contracts
from tithe.core.contracts.engines import Engine
from tithe.core.contracts.objectives import (
    ClusterBoundedObjective,
    ClusterSet,
    ConvexObjective,
    InfluenceObjective,
    MeanPilotObjective,
    NearestObjective,
    Objective,
    SampledObjective,
    SensitivityObjective,
    SteppedObjective,
)
from tithe.core.contracts.sources import Source

__all__ = [
    "ClusterBoundedObjective",
    "ClusterSet",
    "Construction",
    "ConvexObjective",
    "Engine",
    "InfluenceObjective",
    "MeanPilotObjective",
    "NearestObjective",
    "Objective",
    "ObjectiveT",
    "SampledObjective",
    "SensitivityObjective",
    "Source",
    "SteppedObjective",
    "check_contracts",
]
