"""A process that compiles the kernels and one that finds them in the cache give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# prints a hash of each solution
SCRIPT = """
import hashlib, warnings
import numpy as np
import tithe
from tithe.dictionary import KSVD
from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.online import PACO

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 5))
X[:7000] += 3
classes = np.digitize(X[:, 0] + rng.normal(size=len(X)), [0, 2])
numbers = X @ [1, 2, 3, -1, 0.5] + rng.normal(size=len(X))
counts = rng.poisson(np.exp(0.2 * X[:, 1]))
weight = rng.uniform(0.5, 2, size=len(X))
options = {"coreset_size": 1000, "random_state": 0}


def tell(name, *arrays):
    print(name, hashlib.md5(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest())


for learner, y in (
    (tithe.CoresetLogisticRegression, classes > 0),
    (tithe.CoresetLogisticRegression, classes),
    (tithe.CoresetRidge, numbers),
    (tithe.CoresetPoissonRegressor, counts),
    (tithe.CoresetHuberRegressor, numbers),
    (LinearODMClassifier, classes > 0),
    (LinearODMClassifier, classes),
):
    model = learner(**options).fit(X, y, sample_weight=weight)
    tell(learner.__name__, model.coef_, model.intercept_, model.coreset_.X, model.coreset_.weights())
for learner in (tithe.CoresetKMeans, tithe.CoresetKMedians):
    model = learner(4, **options).fit(X, sample_weight=weight)
    tell(learner.__name__, model.cluster_centers_, model.labels_, model.coreset_.weights())
for y in (classes > 0, classes):
    tell("ODMClassifier", ODMClassifier(random_state=0).fit(X[:400], y[:400]).decision_function(X[:50]))
tell("KSVD", KSVD(8, max_iter=3, **options).fit(X).components_)
tell("PACO", PACO(random_state=0).fit(X[:3000]).cluster_centers_)
"""


@pytest.mark.slow
def test_compiled_and_cached_kernels_give_the_same_bits(tmp_path: Path) -> None:
    setting = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    compiled, cached = (
        subprocess.run([sys.executable, "-c", SCRIPT], env=setting, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert compiled.count("\n") == 13
    assert compiled == cached
