"""Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# `import tithe` is quick because a name is imported when it is first used. Type checkers and editors do not run that
# code: they read the imports, which name the same things.
if TYPE_CHECKING:
    from tithe.certify import Certificate as Certificate
    from tithe.constructions.ball_cover import BallCover as BallCover
    from tithe.constructions.cablr import Acvs as Acvs
    from tithe.constructions.cablr import Cablr as Cablr
    from tithe.constructions.influence import Influence as Influence
    from tithe.constructions.leverage import Leverage as Leverage
    from tithe.constructions.lightweight import Lightweight as Lightweight
    from tithe.constructions.regressed import Regressed as Regressed
    from tithe.constructions.rings import Rings as Rings
    from tithe.constructions.sensitivity import Sensitivity as Sensitivity
    from tithe.constructions.uniform import Uniform as Uniform
    from tithe.core.data import Block as Block
    from tithe.core.data import Coreset as Coreset
    from tithe.core.data import concat as concat
    from tithe.core.data import effective_sample_size as effective_sample_size
    from tithe.core.errors import FileFormatError as FileFormatError
    from tithe.learners.choose_k import choose_k as choose_k
    from tithe.learners.cluster import CoresetKMeans as CoresetKMeans
    from tithe.learners.cluster import CoresetKMedians as CoresetKMedians
    from tithe.learners.dictionary.ksvd import KSVD as KSVD
    from tithe.learners.images import ImageDenoiser as ImageDenoiser
    from tithe.learners.logistic import CoresetLogisticRegression as CoresetLogisticRegression
    from tithe.learners.meta import CoresetEstimator as CoresetEstimator
    from tithe.learners.odm.base import MarginDistribution as MarginDistribution
    from tithe.learners.odm.classifier import ODMClassifier as ODMClassifier
    from tithe.learners.odm.linear_classifier import LinearODMClassifier as LinearODMClassifier
    from tithe.learners.online.paco import PACO as PACO
    from tithe.learners.search import CoresetSearchCV as CoresetSearchCV
    from tithe.objectives.clustering import KMeansObjective as KMeansObjective
    from tithe.objectives.clustering import KMedianObjective as KMedianObjective
    from tithe.objectives.dictionary import DictionaryObjective as DictionaryObjective
    from tithe.objectives.generic import GenericObjective as GenericObjective
    from tithe.objectives.logistic import LogisticObjective as LogisticObjective
    from tithe.objectives.margin import MarginObjective as MarginObjective
    from tithe.reduce.build import build_coreset as build_coreset
    from tithe.reduce.calibration import calibrate as calibrate
    from tithe.reduce.distortion import distortion as distortion
    from tithe.reduce.sizing import propose_size as propose_size
    from tithe.reduce.sizing import size_for as size_for
    from tithe.reduce.sizing import size_from_pilot as size_from_pilot
    from tithe.reduce.stream import CoresetStream as CoresetStream
    from tithe.sources.files import open_source as open_source
    from tithe.sources.limits import Limits as Limits
    from tithe.storage.coresets import load_coreset as load_coreset
    from tithe.storage.coresets import save_coreset as save_coreset
    from tithe.storage.models import load_model as load_model
    from tithe.storage.models import save_model as save_model

else:
    _PUBLIC = {
        "Block": "tithe.core.data",
        "Coreset": "tithe.core.data",
        "concat": "tithe.core.data",
        "FileFormatError": "tithe.core.errors",
        "KMeansObjective": "tithe.objectives.clustering",
        "KMedianObjective": "tithe.objectives.clustering",
        "LogisticObjective": "tithe.objectives.logistic",
        "MarginObjective": "tithe.objectives.margin",
        "DictionaryObjective": "tithe.objectives.dictionary",
        "GenericObjective": "tithe.objectives.generic",
        "Uniform": "tithe.constructions.uniform",
        "Sensitivity": "tithe.constructions.sensitivity",
        "Lightweight": "tithe.constructions.lightweight",
        "Rings": "tithe.constructions.rings",
        "Influence": "tithe.constructions.influence",
        "Leverage": "tithe.constructions.leverage",
        "Cablr": "tithe.constructions.cablr",
        "Acvs": "tithe.constructions.cablr",
        "Regressed": "tithe.constructions.regressed",
        "BallCover": "tithe.constructions.ball_cover",
        "build_coreset": "tithe.reduce.build",
        "CoresetStream": "tithe.reduce.stream",
        "open_source": "tithe.sources.files",
        "Limits": "tithe.sources.limits",
        "propose_size": "tithe.reduce.sizing",
        "calibrate": "tithe.reduce.calibration",
        "Certificate": "tithe.certify",
        "distortion": "tithe.reduce.distortion",
        "effective_sample_size": "tithe.core.data",
        "size_for": "tithe.reduce.sizing",
        "size_from_pilot": "tithe.reduce.sizing",
        "load_coreset": "tithe.storage.coresets",
        "save_coreset": "tithe.storage.coresets",
        "save_model": "tithe.storage.models",
        "load_model": "tithe.storage.models",
        "CoresetKMeans": "tithe.learners.cluster",
        "CoresetKMedians": "tithe.learners.cluster",
        "CoresetLogisticRegression": "tithe.learners.logistic",
        "LinearODMClassifier": "tithe.learners.odm.linear_classifier",
        "CoresetSearchCV": "tithe.learners.search",
        "CoresetEstimator": "tithe.learners.meta",
        "KSVD": "tithe.learners.dictionary.ksvd",
        "PACO": "tithe.learners.online.paco",
        "ImageDenoiser": "tithe.learners.images",
        "ODMClassifier": "tithe.learners.odm.classifier",
        "MarginDistribution": "tithe.learners.odm.base",
        "choose_k": "tithe.learners.choose_k",
    }

    __all__ = ["__version__", *_PUBLIC]

    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            return getattr(import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'tithe' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
