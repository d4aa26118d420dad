"""What type checkers and editors know of the public API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# what mypy --strict means for a script; as comments, so that the results for the package itself are shared with lint
STRICT = (
    "# mypy: disallow-any-generics, disallow-subclassing-any, disallow-untyped-calls, disallow-untyped-defs\n"
    "# mypy: disallow-incomplete-defs, disallow-untyped-decorators, check-untyped-defs, warn-return-any\n"
    "# mypy: strict-equality, extra-checks, warn-unused-ignores\n"
)

RIGHT = """
from typing import Any

import numpy as np
import tithe
from tithe import CoresetKMeans, CoresetLogisticRegression, CoresetSearchCV
from tithe.dictionary import KSVD
from tithe.odm import ODMClassifier

X = np.zeros((10, 2))
model = CoresetKMeans(3, init=X[:3], n_init="auto").fit(X).partial_fit(X).solve()
same: CoresetKMeans = model
shape: tuple[int, ...] = model.cluster_centers_.shape
cost: float = model.inertia_
rows: int = len(model.coreset_)
seen: int = model.stream_.coreset().n_seen
parameters: dict[str, object] = model.set_params(n_clusters=4).get_params()
labels: np.ndarray[Any, Any] = model.fit_predict(X)
distances = model.fit_transform(X)
logistic = CoresetLogisticRegression(C=np.inf, random_state=0).fit(X, X[:, 0])
if logistic.certificate_ is not None:
    excess: float | None = logistic.certificate_.relative_excess
    quantity: str = logistic.certificate_.quantity
chances = logistic.predict_proba(X).sum()
share: float = logistic.score(X, X[:, 0])
mean: float = ODMClassifier(kernel="linear").fit(X, X[:, 0]).margin_distribution_.mean
weights = ODMClassifier(kernel="linear").fit(X, X[:, 0]).coef_.T
atoms = KSVD(5).fit(X).refine(X, n_iter=2).components_ @ X.T
best: dict[str, object] = CoresetSearchCV(logistic, {"C": [1.0]}).fit(X, X[:, 0]).best_params_
inner = tithe.CoresetEstimator(logistic).fit(X, X[:, 0]).estimator_.coef_
kept: tithe.Coreset = tithe.build_coreset(X, objective=tithe.objectives.KMeansObjective(n_clusters=3), coreset_size=5)
totals: np.ndarray[Any, Any] | None = kept.totals
clusters: int = tithe.online.PACO(max_clusters=3).partial_fit(X).n_clusters_
"""

# a mistake, and what mypy must say of it
WRONG = {
    "tithe.no_such_thing": 'Module has no attribute "no_such_thing"',
    "from tithe import NoSuchThing": 'Module "tithe" has no attribute "NoSuchThing"',
    "model.cluster_centres_": '"CoresetKMeans" has no attribute "cluster_centres_"',
    "model.fit(X).centers": '"CoresetKMeans" has no attribute "centers"',
    "tithe.odm.ODMClassifier().fit(X, y).support": '"ODMClassifier" has no attribute "support"',
    "tithe.odm.LinearODMClassifier().weights_": '"LinearODMClassifier" has no attribute "weights_"',
    "tithe.dictionary.KSVD().fit(X).dictionary_": '"KSVD" has no attribute "dictionary_"',
    "tithe.CoresetSearchCV(model, {}).best_": '"CoresetSearchCV" has no attribute "best_"',
    "tithe.online.PACO().partial_fit(X).centres_": '"PACO" has no attribute "centres_"',
    "tithe.CoresetKMeans(n_cluster=3)": 'Unexpected keyword argument "n_cluster"',
    'tithe.CoresetKMeans("three")': 'Argument 1 to "CoresetKMeans" has incompatible type "str"',
    'tithe.CoresetLogisticRegression(C="large")': 'Argument "C" to "CoresetLogisticRegression" has incompatible type',
    "tithe.build_coreset(X, coreset_size=[5], objective='kmeans')": 'Argument "coreset_size" to "build_coreset"',
    "model.fit_partially(X)": '"CoresetKMeans" has no attribute "fit_partially"',
    "text: str = model.inertia_": "Incompatible types in assignment",
    "centers: list[float] = model.cluster_centers_": "Incompatible types in assignment",
    "model.n_iter_.shape": '"int" has no attribute "shape"',
    "model.labels_.names": 'has no attribute "names"',
    "model.objective_curve_ = 3.0": "Incompatible types in assignment",
    "tithe.odm.LinearODMClassifier().norm_[0]": 'Value of type "float" is not indexable',
    "tithe.CoresetSearchCV(model, {}).best_params_.C": 'has no attribute "C"',
    "wrong: tithe.CoresetKMedians = tithe.CoresetKMeans().fit(X)": "Incompatible types in assignment",
    "model.coreset_.rows()": '"Coreset" has no attribute "rows"',
    "model.certificate_.relative": 'has no attribute "relative"',
    "tithe.CoresetStream('kmeans', coreset_size=5).pushed(X)": '"CoresetStream" has no attribute "pushed"',
}


def test_mypy_passes_a_right_script_and_reports_every_mistake_of_a_wrong_one(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "right_script.py").write_text(STRICT + RIGHT)
    head = STRICT + "import numpy as np\nimport tithe\nX, y = np.zeros((10, 2)), np.zeros(10)\n"
    head += "model = tithe.CoresetKMeans()\n"
    (tmp_path / "wrong_script.py").write_text(head + "\n".join(WRONG) + "\n")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, sorted(tmp_path.glob("*_script.py")))],
        cwd=ROOT,  # the settings and results of lint are used again: a run of its own would take half a minute
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1 and not run.stderr, run.stdout + run.stderr
    reported: dict[str, str] = {}
    for line in run.stdout.splitlines():
        result = re.match(r"(?P<file>.*?):(?P<line>\d+): error: (?P<text>.*)", line)
        if result and "_script" in result["file"]:  # lint checks the package itself, with the newest stubs of numpy
            assert "wrong_script" in result["file"], line
            number = int(result["line"]) - head.count("\n") - 1
            reported[list(WRONG)[number]] = result["text"]
    missing = {
        mistake: reported.get(mistake) for mistake, text in WRONG.items() if text not in reported.get(mistake, "")
    }
    assert not missing
