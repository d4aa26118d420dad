"""A learner of another package, registered in one line: the commands know it without an edit."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import PLAIN, rows_table, run, write_folder

from tithe import load_coreset, load_model
from tithe.core import registry

LEARNER = '''
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from tithe.certify import Certificate, cost_certificate
from tithe.core.params import Option, RealNumber
from tithe.fit.base import CoresetLearner
from tithe.fit.base import FittedAttribute
from tithe.fit.results import BarChart, column_names
from tithe.reduce.generic import GenericObjective
from tithe.plot import weights
from tithe.plot.axes import drawn
from tithe.report.run import LearnerReport
from tithe.report.scores import HeldOut


class TinyRidge(CoresetLearner, RegressorMixin, BaseEstimator):
    """Least squares with a penalty."""

    coef_ = FittedAttribute[np.ndarray]()
    certificate_ = FittedAttribute[Certificate]()
    options = (Option("alpha", RealNumber(least=0.0), "Strength of the penalty."),)

    def __init__(self, alpha=1.0, *, coreset_size=300, construction="auto", calibrate=True, polish=0, engine="auto",
                 random_state=None):
        self.alpha, self.coreset_size, self.construction, self.calibrate = alpha, coreset_size, construction, calibrate
        self.polish, self.engine, self.random_state = polish, engine, random_state

    def _objective(self):
        return GenericObjective()

    def _learn(self, coreset, data, seed, context):
        Z = coreset.X * coreset.weights()[:, None]
        coef = np.linalg.solve(Z.T @ coreset.X + self.alpha * np.eye(coreset.n_features), Z.T @ coreset.y)
        full = data.total(lambda leaf: float(np.square(leaf.X @ coef - leaf.y).sum()))
        small = float(coreset.weights() @ np.square(coreset.X @ coef - coreset.y))
        certificate = cost_certificate(full, small, data.n_rows, passes=1)
        return {"coreset_": coreset, "coef_": coef, "certificate_": certificate}

    def predict(self, X):
        return X @ self.coef_

    def summary(self):
        return {"squared_error": self.certificate_.value}

    def charts(self):
        return [BarChart.of_largest("coefficients", column_names(self), self.coef_, "coefficient")]


class TinyReport(LearnerReport):
    def figures(self, model):
        return {"Weights, once more": drawn(weights, model.coreset_)}

    def held_out(self, model, data, rows):
        return HeldOut(rows=rows, n_rows=data.total(len), scores={"r2": 0.5})
'''


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "tiny_learner.py").write_text(LEARNER)
    monkeypatch.syspath_prepend(tmp_path / "package")
    classes = {"learner": "TinyRidge", "report": "TinyReport"}
    points = {
        kind: {"tiny": EntryPoint(name="tiny", value=f"tiny_learner:{name}", group=f"tithe.{kind}")}
        for kind, name in classes.items()
    }
    monkeypatch.setattr(registry, "_installed", lambda kind: points.get(kind, {}))
    monkeypatch.chdir(tmp_path)
    return write_folder(tmp_path / "data", rows_table(4000).drop_columns("label"), 2)


def test_it_is_fitted_saved_reported_and_predicts(folder, capsys) -> None:
    assert run("fit", "tiny", folder, "--target", "c3", "--alpha", 2, "-m", 200, *PLAIN, "-o", "out") == 0
    assert "costs exactly" in capsys.readouterr().out
    model = load_model("out/model.tithe")
    assert type(model).__name__ == "TinyRidge" and model.alpha == 2.0
    results = json.loads(Path("out/results.json").read_text())
    assert results["squared_error"] == model.certificate_.value and results["rows_kept"] <= 200
    assert Path("out/report.html").read_text().count('class="chart"') == 3
    assert results["held_out"]["scores"] == {"r2": 0.5} and "Weights, once more" in Path("out/report.html").read_text()
    assert load_coreset("out/coreset.parquet").y.dtype.kind == "f"
    assert run("predict", "out/model.tithe", folder, "-o", "p.parquet") == 0
    X = pd.concat(pd.read_parquet(path) for path in sorted(folder.iterdir()))[["c0", "c1", "c2"]].to_numpy()
    np.testing.assert_allclose(pd.read_parquet("p.parquet")["prediction"], model.predict(X))


def test_it_is_planned_and_explained(folder, capsys) -> None:
    assert run("fit", "tiny", folder, "--target", "c3", "-o", "out", "--dry-run") == 0
    assert "300 (asked for, or the default)" in capsys.readouterr().out and not Path("out").exists()
    assert run("fit", "--help") == 0
    assert "Least squares with a penalty." in capsys.readouterr().out
    assert run("fit", "tiny", "--help") == 0
    said = capsys.readouterr().out
    assert "--alpha" in said and "Strength of the penalty." in said and "--clusters" not in said


@pytest.mark.parametrize("arguments", [[], ["--target", "c3", "--alpha", "-1"], ["--target", "c3", "-k", "3"]])
def test_a_wrong_option_is_refused(folder, capsys, arguments: list[str]) -> None:
    assert run("fit", "tiny", folder, *arguments, "-o", "out") == 2
    assert capsys.readouterr().err.strip() and not Path("out").exists()
