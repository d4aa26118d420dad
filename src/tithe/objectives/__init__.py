"""Objectives, which a coreset must preserve, and the contracts to write your own."""

from tithe.core.contracts import ClusterBoundedObjective as ClusterBoundedObjective
from tithe.core.contracts import ConvexObjective as ConvexObjective
from tithe.core.contracts import InfluenceObjective as InfluenceObjective
from tithe.core.contracts import MeanPilotObjective as MeanPilotObjective
from tithe.core.contracts import NearestObjective as NearestObjective
from tithe.core.contracts import Objective as Objective
from tithe.core.contracts import SampledObjective as SampledObjective
from tithe.core.contracts import SensitivityObjective as SensitivityObjective
from tithe.core.contracts import SteppedObjective as SteppedObjective
from tithe.core.data import Evaluation as Evaluation
from tithe.core.data import Moments as Moments
from tithe.core.data import Scores as Scores
from tithe.core.data import Survey as Survey
from tithe.objectives.clustering import KMeansObjective as KMeansObjective
from tithe.objectives.clustering import KMedianObjective as KMedianObjective
from tithe.objectives.dictionary import DictionaryObjective as DictionaryObjective
from tithe.objectives.generic import GenericObjective as GenericObjective
from tithe.objectives.huber import HuberObjective as HuberObjective
from tithe.objectives.least_squares import LeastSquaresObjective as LeastSquaresObjective
from tithe.objectives.logistic import LogisticObjective as LogisticObjective
from tithe.objectives.margin import MarginObjective as MarginObjective
from tithe.objectives.poisson import PoissonObjective as PoissonObjective
