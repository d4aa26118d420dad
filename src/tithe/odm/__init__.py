"""Optimal margin distribution machines: classifiers that steer mean and spread of the margins."""

from tithe.certify.unlearning import Unlearning as Unlearning
from tithe.learners.odm.base import MarginDistribution as MarginDistribution
from tithe.learners.odm.classifier import ODMClassifier as ODMClassifier
from tithe.learners.odm.clustering import ODMClustering as ODMClustering
from tithe.learners.odm.cross_validation import ODMClassifierCV as ODMClassifierCV
from tithe.learners.odm.incremental import IncrementalODMClassifier as IncrementalODMClassifier
from tithe.learners.odm.linear_classifier import LinearODMClassifier as LinearODMClassifier
from tithe.learners.odm.semi_supervised import SemiSupervisedODMClassifier as SemiSupervisedODMClassifier
