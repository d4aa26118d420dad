"""Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

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
    "Cablr": "tithe.constructions.clustered",
    "Acvs": "tithe.constructions.clustered",
    "Regressed": "tithe.constructions.regressed",
    "BallCover": "tithe.constructions.ball_cover",
    "build_coreset": "tithe.build",
    "CoresetStream": "tithe.stream",
    "open_source": "tithe.sources.files",
    "propose_size": "tithe.sizing",
    "calibrate": "tithe.calibration",
    "Certificate": "tithe.certify",
    "distortion": "tithe.metrics",
    "effective_sample_size": "tithe.core.data",
    "size_for": "tithe.metrics",
    "size_from_pilot": "tithe.metrics",
    "load_coreset": "tithe.persist",
    "save_model": "tithe.persist",
    "load_model": "tithe.persist",
    "CoresetKMeans": "tithe.learners.cluster",
    "CoresetKMedians": "tithe.learners.cluster",
    "CoresetLogisticRegression": "tithe.learners.logistic",
    "LinearODMClassifier": "tithe.learners.odm.linear",
    "CoresetSearchCV": "tithe.learners.search",
    "CoresetEstimator": "tithe.learners.meta",
    "KSVD": "tithe.learners.dictionary.ksvd",
    "PACO": "tithe.learners.online.paco",
    "ImageDenoiser": "tithe.learners.dictionary.denoise",
    "ODMClassifier": "tithe.learners.odm.kernel",
    "MarginDistribution": "tithe.learners.odm.machine",
    "choose_k": "tithe.learners.choose_k",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'tithe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
