"""Optimal margin distribution machines: classifiers that steer mean and spread of the margins."""

from typing import TYPE_CHECKING

from tithe.core.lazy import imported_names, lazy_names

if TYPE_CHECKING:
    from tithe.odm.base import MarginDistribution as MarginDistribution
    from tithe.odm.classifier import ODMClassifier as ODMClassifier
    from tithe.odm.clustering import ODMClustering as ODMClustering
    from tithe.odm.cross_validation import ODMClassifierCV as ODMClassifierCV
    from tithe.odm.incremental import IncrementalODMClassifier as IncrementalODMClassifier
    from tithe.odm.incremental import Unlearning as Unlearning
    from tithe.odm.linear_classifier import LinearODMClassifier as LinearODMClassifier
    from tithe.odm.semi_supervised import SemiSupervisedODMClassifier as SemiSupervisedODMClassifier
    from tithe.odm.solvers.label_search import LabelSearch as LabelSearch
    from tithe.odm.solvers.linear_solvers import CoresetSVRG as CoresetSVRG
    from tithe.odm.solvers.partition import PartitionSolver as PartitionSolver
else:
    __getattr__, __dir__ = lazy_names(__name__, imported_names(__name__))
