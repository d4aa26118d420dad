"""Dictionaries on the command line: ``fit ksvd``, ``predict`` and ``build --objective dictionary``."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from running import run

from tithe import load_coreset, load_model


@pytest.fixture
def signals(tmp_path) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 5)) * (rng.random((2000, 5)) < 0.4) + 0.01 * rng.normal(size=(2000, 5))
    np.save(tmp_path / "signals.npy", X)
    return X


def test_a_dictionary_from_a_file_and_codes(signals, tmp_path, capsys) -> None:
    out, file = tmp_path / "result", tmp_path / "signals.npy"
    options = ["-k", 6, "--n-nonzero-coefs", 2, "-m", 500, "--max-iter", 5, "--refine-iter", 1]
    options += ["--reference", "singular", "--variant", "plain"]
    assert run("fit", "ksvd", file, *options, "-o", out) == 0
    printed = capsys.readouterr().out
    assert "mean squared error" in printed and "atoms" in printed.lower()
    results = json.loads((out / "results.json").read_text())
    assert results["certificate"]["quantity"] == "mse" and results["held_out"]["scores"]["mse"] > 0.0
    assert len(results["atoms"]) == 6 and results["parameters"]["reference"] == "singular"
    model = load_model(out / "model.tithe")
    assert model.coreset_size == 500 and "atoms" in (out / "report.html").read_text().lower()
    assert run("predict", out / "model.tithe", file, "-o", tmp_path / "codes.parquet") == 0
    codes = pd.read_parquet(tmp_path / "codes.parquet")
    assert codes["row_id"].tolist() == list(range(2000))
    np.testing.assert_array_equal(codes.drop(columns="row_id").to_numpy(), model.transform(signals))
    assert run("inspect", out / "model.tithe") == 0


def test_a_plan_and_parameters_that_contradict(signals, tmp_path, capsys) -> None:
    file = tmp_path / "signals.npy"
    assert run("fit", "ksvd", file, "-o", tmp_path / "none", "--dry-run") == 0
    assert "5,000" in capsys.readouterr().out and not (tmp_path / "none").exists()
    options = ["--objective", "dictionary", "--beta", 0, "-m", 300]
    assert run("build", file, *options, "-o", tmp_path / "none.parquet") == 2
    assert "--include-reference" in capsys.readouterr().err


def test_a_coreset_for_dictionaries(signals, tmp_path, capsys) -> None:
    file, out = tmp_path / "signals.npy", tmp_path / "coreset.parquet"
    options = ["--objective", "dictionary", "-k", 6, "--n-nonzero-coefs", 2, "--reference", "mean_line", "-m", 300]
    assert run("build", file, *options, "--check", "-o", out) == 0
    assert "distortion" in capsys.readouterr().out
    coreset = load_coreset(out)
    assert coreset.objective.reference == "mean_line" and coreset.objective.n_components == 6
    assert run("fit", "ksvd", out, "-k", 6, "--n-nonzero-coefs", 2, "--max-iter", 3, "-o", tmp_path / "result") == 0
    assert load_model(tmp_path / "result" / "model.tithe").certificate_ is None
