"""``tithe inspect`` of models, and what ``tithe fit`` says about a model: coefficients and clusters by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import rows_table, run, write_folder
from sklearn.ensemble import HistGradientBoostingClassifier

from tithe import (
    CoresetEstimator,
    CoresetKMeans,
    CoresetLogisticRegression,
    CoresetSearchCV,
    load_coreset,
    load_model,
    save_model,
)
from tithe.odm import ODMClassifier
from tithe.online import PACO


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "data", rows_table(3000), 2)


def test_clusters_by_name(folder, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert run("fit", "kmeans", folder, "--columns", "c0,c1,c2,c3", "-k", 3, "-m", 300, "-o", out) == 0
    fitted = capsys.readouterr().out
    clusters = json.loads((out / "results.json").read_text())["clusters"]
    coreset, model = load_coreset(out / "coreset.parquet"), load_model(out / "model.tithe")
    assert [cluster["cluster"] for cluster in clusters] == [0, 1, 2]
    assert sum(cluster["share"] for cluster in clusters) == pytest.approx(1.0)
    units = model.schema_.original_units
    for cluster in clusters:
        center = model.cluster_centers_[cluster["cluster"]]
        assert [cluster["center"][f"c{j}"] for j in range(4)] == pytest.approx(units(center[None])[0])
        gaps = np.linalg.norm(coreset.X - center, axis=1)
        at = int(gaps.argmin())
        assert cluster["typical_row"] == coreset.row_ids()[at]
        assert [cluster["typical_values"][f"c{j}"] for j in range(4)] == pytest.approx(units(coreset.X[at][None])[0])
    page = (out / "report.html").read_text()
    assert run("inspect", out / "model.tithe") == 0
    inspected = capsys.readouterr().out
    for text in (fitted, page, inspected):
        assert (
            "typical row" in text
            and str(clusters[0]["typical_row"]) in text
            and f"{100 * clusters[0]['share']:.1f} %" in text
        )
    for words in ("CoresetKMeans", "n_clusters=3", "4: c0, c1, c2, c3", "cost exactly", "tithe 0.", "none"):
        assert words in inspected
    assert "typical_values" not in str(model.summary())


def test_columns_that_tell_clusters_apart_come_first(rng: np.random.Generator) -> None:
    frame = pd.DataFrame({"noise": rng.normal(size=900), "apart": 20.0 * rng.integers(3, size=900)})
    model = CoresetKMeans(3, coreset_size=200, random_state=0).fit(frame)
    assert [list(cluster["center"]) for cluster in model.summary()["clusters"]] == [["apart", "noise"]] * 3


def test_coefficients_by_name(folder, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert run("fit", "logistic", folder, "--target", "label", "-m", 300, "--keep-rows", "-o", out) == 0
    fitted = capsys.readouterr().out
    named = json.loads((out / "results.json").read_text())["coefficients"]
    model = load_model(out / "model.tithe")
    assert {row["column"]: row["coefficient"] for row in named} == dict(
        zip(model.feature_names_in_, model.coef_[0], strict=True)
    )
    sizes = [abs(row["coefficient"]) for row in named]
    assert sizes == sorted(sizes, reverse=True)
    assert run("inspect", out / "model.tithe") == 0
    inspected = capsys.readouterr().out
    for text in (fitted, (out / "report.html").read_text(), inspected):
        assert "coefficient, towards yes" in text and f"{named[0]['coefficient']:.4g}" in text
    assert f"{len(model.coreset_):,} in coresets" in inspected and "no, yes" in inspected


def test_coefficients_of_several_classes(rng: np.random.Generator) -> None:
    X = rng.normal(size=(600, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 1], [-0.5, 0.5])]
    model = CoresetLogisticRegression(random_state=0).fit(X, y)
    first = model.summary()["coefficients"][0]
    assert first["column"] == "x1" and first["coefficients"] == dict(zip("abc", model.coef_[:, 1], strict=True))


def test_other_models(tmp_path, capsys, rng: np.random.Generator) -> None:
    X, file = rng.normal(size=(300, 2)), tmp_path / "m.tithe"
    y = (X[:, 0] > 0).astype(int)
    for model, words in (
        (PACO(3, random_state=0).fit(X), ["PACO", "Centres", "rows so far"]),
        (ODMClassifier().fit(X, y), ["ODMClassifier", "support vectors"]),
        (
            CoresetSearchCV(CoresetLogisticRegression(), {"C": [0.1, 1.0]}, cv=2).fit(X, y),
            ["best params", "Coefficients"],
        ),
    ):
        save_model(model, file)
        assert run("inspect", file) == 0
        printed = capsys.readouterr().out
        assert all(word in printed for word in words)


def test_an_estimator_without_its_rows_shows_what_it_has(tmp_path, capsys, rng: np.random.Generator) -> None:
    X, file = rng.normal(size=(3000, 2)), tmp_path / "m.tithe"
    y = np.where(X[:, 0] + rng.normal(size=3000) > 0, "up", "down")
    trees = HistGradientBoostingClassifier(max_iter=10)
    model = CoresetEstimator(trees, coreset_size=800, early_stopping=0.2, random_state=0).fit(X, y)
    for rows, words in ((False, ["rounds", "AUC"]), (True, ["row worth", "AUC"])):
        save_model(model, file, rows=rows)
        assert run("inspect", file) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert all(word in printed for word in [*words, "CoresetEstimator", str(model.certificate_)[:40]])


def test_the_worth_of_a_row_is_said_in_words(folder, tmp_path, capsys) -> None:
    command = ["build", folder, "--columns", "c0,c1,c2", "--target", "label", "-m", 300]
    for objective, is_said in (("boosting", True), ("logistic", False)):
        assert run(*command, "--objective", objective, "-o", tmp_path / "c.parquet") == 0
        assert ("By the gradients of a pilot, " in capsys.readouterr().out) == is_said
        assert run("inspect", tmp_path / "c.parquet") == 0
        assert ("By the gradients of a pilot, " in capsys.readouterr().out) == is_said


def test_files_that_are_no_models(tmp_path, capsys) -> None:
    assert run("inspect", tmp_path / "missing") == 2
    (tmp_path / "x.tithe").write_bytes(b"PK\x03\x04 nothing")
    assert run("inspect", tmp_path / "x.tithe") == 2
    assert "not a whole" in capsys.readouterr().err
