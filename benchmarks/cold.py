"""What the first use of each estimator costs: importing it, compiling its kernels, and the same again from the cache.

    python benchmarks/cold.py

Every figure is from a process of its own: first with an empty cache of compiled kernels, then with the one that the
first has filled. CPU seconds of importing, and of a fit on few rows; and how many functions numba compiled for it,
its own included. Results go to benchmarks/results/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from common import save, show


def _rows(n: int = 3000, d: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[: n // 2] += 4.0
    return X, (X[:, 0] + rng.normal(size=n) > 2.0).astype(int)


def _fit(name: str, estimator: type) -> None:
    X, y = _rows()
    if name == "ImageDenoiser":
        picture = np.add.outer(np.arange(48.0), np.arange(48.0)) * 2.0
        picture += np.random.default_rng(0).normal(scale=20.0, size=picture.shape)
        estimator(20.0, random_state=0).fit_denoise(np.clip(picture, 0.0, 255.0))
        return
    fits: dict[str, Callable[[], Any]] = {
        "CoresetKMeans": lambda: estimator(4, coreset_size=200, random_state=0).fit(X),
        "CoresetLogisticRegression": lambda: estimator(coreset_size=300, random_state=0).fit(X, y),
        "KSVD": lambda: estimator(12, n_nonzero_coefs=2, max_iter=3, random_state=0).fit(X),
        "ODMClassifier": lambda: estimator().fit(X[1200:1800], y[1200:1800]),
        "LinearODMClassifier": lambda: estimator(random_state=0).fit(X, y),
        "PACO": lambda: estimator(random_state=0).fit(X[1350:1650, :3]),
    }
    fits[name]()


MODULES = {
    "CoresetKMeans": "tithe",
    "CoresetLogisticRegression": "tithe",
    "KSVD": "tithe.dictionary",
    "ODMClassifier": "tithe.odm",
    "LinearODMClassifier": "tithe.odm",
    "PACO": "tithe.online",
    "ImageDenoiser": "tithe.dictionary",
}


def measure(name: str) -> dict[str, float]:
    """In this process: CPU seconds of importing and of one fit, and the number of functions compiled."""
    start = time.process_time()
    estimator = getattr(import_module(MODULES[name]), name)
    from numba.core import event

    imported = time.process_time()
    with event.install_recorder("numba:compile") as recorder:
        _fit(name, estimator)
    compiled = sum(1 for _, what in recorder.buffer if what.is_end)
    return {"import": imported - start, "fit": time.process_time() - imported, "compiled": compiled}


def in_fresh_process(name: str, cache: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    run = subprocess.run([sys.executable, __file__, name], env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def main() -> None:
    results = {}
    for name in MODULES:
        with tempfile.TemporaryDirectory() as cache:
            results[name] = {"cold": in_fresh_process(name, cache), "warm": in_fresh_process(name, cache)}
    columns = ["estimator", "import", "first fit", "functions compiled", "fit from the cache"]
    table = [
        [name, r["cold"]["import"], r["cold"]["fit"], int(r["cold"]["compiled"]), r["warm"]["fit"]]
        for name, r in results.items()
    ]
    show("CPU seconds of first use", columns, table)
    save("cold", {"cpu_seconds": results})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
