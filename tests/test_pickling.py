"""Pickling an unchanged model gives the same bytes every time, so that caches know it again."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import Ridge

import tithe
from tithe import CoresetEstimator, CoresetKMeans, CoresetLogisticRegression, CoresetSearchCV, CoresetStream
from tithe.odm import IncrementalODMClassifier
from tithe.online import PACO

X = np.random.default_rng(0).normal(size=(90, 2))
Y = (X[:, 0] > 0).astype(int)
MODELS = {
    "stream": lambda: CoresetStream("kmeans", coreset_size=20, leaf_size=30, random_state=0).push(X),
    "kmeans": lambda: CoresetKMeans(2, random_state=0).partial_fit(X),
    "logistic": lambda: CoresetLogisticRegression(random_state=0).partial_fit(X, Y, classes=[0, 1]),
    "estimator": lambda: CoresetEstimator(Ridge(), random_state=0).partial_fit(X, X[:, 1]),
    "search": lambda: CoresetSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, cv=2, random_state=0).partial_fit(X, X[:, 1]),
    "margin": lambda: IncrementalODMClassifier().partial_fit(X, Y).forget([2]),
    "paco": lambda: PACO(3, summary_size=20, random_state=0).partial_fit(X[:40]),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_unchanged_model_has_the_same_bytes(name: str) -> None:
    model = MODELS[name]()
    first, said = pickle.dumps(model), joblib.hash(model)
    assert pickle.dumps(model) == first and joblib.hash(model) == said
    assert joblib.hash(copy.deepcopy(model)) == said


def test_a_cache_knows_a_model_again(tmp_path) -> None:
    calls = []

    def inertia(model: CoresetKMeans) -> float:
        calls.append(model)
        return float(model.inertia_)

    model, cached = (
        CoresetKMeans(2, random_state=0).partial_fit(X).solve(),
        joblib.Memory(tmp_path, verbose=0).cache(inertia),
    )
    assert cached(model) == cached(model) and len(calls) == 1


def test_a_copy_has_a_checkpoint_of_its_own(tmp_path) -> None:
    stream = MODELS["stream"]()
    stream.checkpoint(tmp_path / "state")
    for other in (copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))):
        with pytest.raises(ValueError, match="another run"):
            other.checkpoint(tmp_path / "state")


def test_only_the_engines_of_clusters_pickle() -> None:
    """Between the processes of one job. What lies on a disk is never unpickled."""
    package = Path(tithe.__file__).parent
    imports = r"\bimport .*(pickle|dill|shelve|marshal)\b|\bfrom (pickle|joblib\.numpy_pickle)\b"
    pickling = re.compile(rf"{imports}|allow_pickle=True|joblib.*\bload\b")
    users = {str(path.relative_to(package)) for path in package.rglob("*.py") if pickling.search(path.read_text())}
    assert users == {"engines/dask.py", "engines/spark.py"}
