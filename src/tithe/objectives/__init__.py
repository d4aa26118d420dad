"""Objectives, which a coreset must preserve; the contracts to write your own, and the base class of regressors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tithe.clustering.mixture_objective import GaussianMixtureObjective as GaussianMixtureObjective
from tithe.clustering.objective import KMeansObjective as KMeansObjective
from tithe.clustering.objective import KMedianObjective as KMedianObjective
from tithe.core.contracts import NearestObjective as NearestObjective
from tithe.core.contracts import Objective as Objective
from tithe.core.contracts import SampledObjective as SampledObjective
from tithe.core.contracts import SensitivityObjective as SensitivityObjective
from tithe.core.data import Evaluation as Evaluation
from tithe.core.data import Moments as Moments
from tithe.core.data import Scores as Scores
from tithe.core.data import Survey as Survey
from tithe.core.registry import registered_attribute
from tithe.linear.logistic_objective import LogisticObjective as LogisticObjective
from tithe.linear.regression import CoresetLinearRegressor as CoresetLinearRegressor
from tithe.linear.regression_objectives import HuberObjective as HuberObjective
from tithe.linear.regression_objectives import LeastSquaresObjective as LeastSquaresObjective
from tithe.linear.regression_objectives import PoissonObjective as PoissonObjective
from tithe.linear.regression_objectives import RowTerms as RowTerms
from tithe.linear.regression_objectives import SingleScoreObjective as SingleScoreObjective
from tithe.meta.boosting import BoostingObjective as BoostingObjective
from tithe.reduce.generic import GenericObjective as GenericObjective

if TYPE_CHECKING:
    from tithe.dictionary.objective import DictionaryObjective as DictionaryObjective
    from tithe.odm.objective import MarginObjective as MarginObjective
else:
    # contracts that few objectives meet lie with the verb that needs them
    _BY_VERB = {
        "ConvexObjective": "tithe.certify.gap",
        "InfluenceObjective": "tithe.reduce.draws",
        "MeanPilotObjective": "tithe.reduce.draws",
        "SteppedObjective": "tithe.certify.cost",
    }

    def __getattr__(name: str) -> Any:
        """The objectives that families, and other packages, register; and contracts that few objectives meet."""
        if name in _BY_VERB:
            return getattr(import_module(_BY_VERB[name]), name)
        return registered_attribute("objective", __name__, name)
