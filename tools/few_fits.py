"""Fit most learners once, on arrays, a table and a file, save a model and write a page.

`tools/matrix.py --fits` runs it with the lowest versions of what tithe needs and nothing else installed. It fails where
one of them lacks what tithe uses; what the fits give is tested elsewhere.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

import tithe
from tithe.cli.main import main
from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.online import PACO

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = X @ [1.0, -1.0] + rng.logistic(size=200) > 0
few = {"coreset_size": 40, "random_state": 0}

warnings.simplefilter("ignore")
for name in ("CoresetKMeans", "CoresetKMedians", "CoresetGaussianMixture"):
    getattr(tithe, name)(2, **few).fit(X)
for name in ("CoresetRidge", "CoresetHuberRegressor"):
    getattr(tithe, name)(**few).fit(X, X[:, 0] + y)
tithe.CoresetPoissonRegressor(**few).fit(X, rng.poisson(1.0, size=200))
for model in (tithe.CoresetLogisticRegression(**few), LinearODMClassifier(**few), ODMClassifier()):
    model.fit(X, y)
PACO(5).fit(X)

table = pa.table({"size": X[:, 0], "color": np.where(X[:, 1] > 0, "red", "blue"), "bought": np.where(y, "yes", "no")})
model = tithe.CoresetLogisticRegression(**few).fit(table.drop_columns("bought"), table["bought"].to_numpy())
with tempfile.TemporaryDirectory() as folder:
    tithe.save_model(model, Path(folder) / "model.tithe")
    again = tithe.load_model(Path(folder) / "model.tithe")
    assert (again.predict(table.drop_columns("bought")) == model.predict(table.drop_columns("bought"))).all()
    np.savetxt(Path(folder) / "rows.csv", X, delimiter=",", header="a,b", comments="")
    main(["fit", "kmeans", f"{folder}/rows.csv", "-k", "2", "-o", f"{folder}/out"])
    assert (Path(folder) / "out" / "report.html").stat().st_size > 10_000
print(f"tithe {tithe.__version__}: all fits")
