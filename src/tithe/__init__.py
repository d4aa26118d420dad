"""Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tithe.core.lazy import imported_names, lazy_names
from tithe.core.version import __version__ as __version__

# `import tithe` is quick because a name is imported when it is first used
if TYPE_CHECKING:
    from tithe import constructions as constructions
    from tithe import dictionary as dictionary
    from tithe import engines as engines
    from tithe import objectives as objectives
    from tithe import odm as odm
    from tithe import online as online
    from tithe import plot as plot
    from tithe import results as results
    from tithe import theory as theory
    from tithe.certify import Certificate as Certificate
    from tithe.certify.sizing import propose_size as propose_size
    from tithe.clustering.choose_k import choose_k as choose_k
    from tithe.clustering.learners import CoresetKMeans as CoresetKMeans
    from tithe.clustering.learners import CoresetKMedians as CoresetKMedians
    from tithe.clustering.mixture import CoresetGaussianMixture as CoresetGaussianMixture
    from tithe.core.data import Block as Block
    from tithe.core.data import Coreset as Coreset
    from tithe.core.errors import EncodingWarning as EncodingWarning
    from tithe.core.errors import FileFormatError as FileFormatError
    from tithe.core.progress import Checkpoint as Checkpoint
    from tithe.linear.logistic import CoresetLogisticRegression as CoresetLogisticRegression
    from tithe.linear.regression import CoresetHuberRegressor as CoresetHuberRegressor
    from tithe.linear.regression import CoresetPoissonRegressor as CoresetPoissonRegressor
    from tithe.linear.regression import CoresetRidge as CoresetRidge
    from tithe.meta.estimator import CoresetEstimator as CoresetEstimator
    from tithe.meta.search import CoresetSearchCV as CoresetSearchCV
    from tithe.reduce.distortion import distortion as distortion
    from tithe.reduce.merge import merge_coresets as merge_coresets
    from tithe.reduce.plan import build_coreset as build_coreset
    from tithe.reduce.stream import CoresetStream as CoresetStream
    from tithe.report.compare import compare as compare
    from tithe.rows.files import open_dataset as open_dataset
    from tithe.rows.stores import Limits as Limits
    from tithe.storage.coresets import load_coreset as load_coreset
    from tithe.storage.coresets import save_coreset as save_coreset
    from tithe.storage.models import load_model as load_model
    from tithe.storage.models import save_model as save_model
else:
    _NAMES = imported_names(__name__)
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
    __all__ = ["__version__", *(name for name, module in _NAMES.items() if module != __name__)]
