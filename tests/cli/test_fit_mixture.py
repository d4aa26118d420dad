"""Gaussian mixtures on the command line: fit, scores on rows held out, predictions with probabilities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import PLAIN, run

from tithe import load_model


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0.0, 1.0, (4000, 2)), rng.normal(9.0, 2.0, (2000, 2))])
    pq.write_table(pyarrow.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet", X


def test_fit_and_predict(rows, tmp_path, capsys) -> None:
    file, X = rows
    fitted = ("fit", "gmm", file, "-k", 2, "--covariance-type", "diag", "--size", 600, "-o", tmp_path / "out", *PLAIN)
    assert run(*fitted, "--holdout", 0.2) == 0
    assert "log-likelihood" in capsys.readouterr().out.lower()
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    model = load_model(tmp_path / "out" / "model.tithe")
    assert model.covariances_.shape == (2, 2) and results["certificate"]["quantity"] == "log_likelihood"
    assert results["log_likelihood"] == model.lower_bound_ == results["certificate"]["value"]
    scores = results["held_out"]["scores"]
    assert scores["log_likelihood"] == pytest.approx(model.lower_bound_, abs=0.1)
    assert scores["training_log_likelihood"] == model.lower_bound_
    weights = [cluster["weight"] for cluster in results["clusters"]]
    assert sum(weights) == pytest.approx(results["n_rows"]) and len(weights) == 2
    output = tmp_path / "components.csv"
    assert run("predict", tmp_path / "out" / "model.tithe", file, "--proba", "-o", output) == 0
    table = pyarrow.csv.read_csv(output).to_pydict()
    np.testing.assert_array_equal(table["prediction"], model.predict(X))
    chances = np.column_stack([table["probability_0"], table["probability_1"]])
    np.testing.assert_allclose(chances, model.predict_proba(X), atol=1e-12)


def test_sizes_for_an_error_are_not_measured(rows, tmp_path, capsys) -> None:
    file, _ = rows
    assert run("build", file, "--objective", "gmm", "-o", tmp_path / "coreset.parquet") == 0
    assert run("fit", "gmm", tmp_path / "coreset.parquet", "-k", 2, "-o", tmp_path / "again") == 0
    assert "no certificate" in capsys.readouterr().out.lower()
