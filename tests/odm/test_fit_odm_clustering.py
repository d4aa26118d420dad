"""``tithe fit odm-clustering``: files, links, the folder that is written, and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from running import run
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from tithe.storage.models import load_model

X, Y = make_moons(120, noise=0.05, random_state=0)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=["left", "right"]).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_clusters_of_a_file(rows, tmp_path, capsys) -> None:
    first, second = np.flatnonzero(Y == 0)[0], np.flatnonzero(Y == 1)[0]
    (tmp_path / "pairs.csv").write_text(f"row,other,kind\n{first},{second},cannot\n")
    out = tmp_path / "out"
    arguments = ("--scale", "none", "--links", tmp_path / "pairs.csv", "-o", out)
    assert run("fit", "odm-clustering", rows, *arguments) == 0
    said = capsys.readouterr().out
    assert "0 together, 1 apart" in said and "No labels that obey the constraints" in said
    labels = pd.read_parquet(out / "labels.parquet")
    assert labels["row_id"].tolist() == list(range(120))
    assert adjusted_rand_score(Y, labels["cluster"]) > 0.95
    assert labels["cluster"][first] != labels["cluster"][second]
    results = json.loads((out / "results.json").read_text())
    assert results["relaxed_bound"] <= results["objective"] and results["n_cannot_link"] == 1
    page = (out / "report.html").read_text()
    assert "Margins of the rows" in page and "boundary between clusters" in page
    model = load_model(out / "model.tithe")
    np.testing.assert_array_equal(model.predict(pd.read_csv(rows)), labels["cluster"])


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0,1\n", "Line 1 of .* is not a link"),
        ("0,1,maybe\n", "Line 1 of .* is not a link"),
        ("0,500,must\n", "must_link names row 500"),
        ("0,1,must\n1,2,must\n0,2,cannot\n", "along the rows"),
    ],
)
def test_bad_links_are_mistakes_of_the_caller(rows, tmp_path, capsys, links: str, message: str) -> None:
    import re

    (tmp_path / "pairs.csv").write_text(links)
    assert run("fit", "odm-clustering", rows, "--links", tmp_path / "pairs.csv", "-o", tmp_path / "out") == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert not (tmp_path / "out").exists()


def test_links_and_labels_are_numbered_as_in_the_file(tmp_path) -> None:
    frame = pd.DataFrame(X[:24], columns=["left", "right"]).astype(object)
    frame.loc[2, "left"] = np.nan  # a bad row, which is skipped
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "pairs.csv").write_text("10,11,must\n11,12,cannot\n")
    arguments = ("--scale", "none", "--impute", "none", "--bad-rows", "skip", "--links", tmp_path / "pairs.csv")
    assert run("fit", "odm-clustering", tmp_path / "rows.csv", *arguments, "-o", tmp_path / "out") == 0
    cluster = pd.read_parquet(tmp_path / "out" / "labels.parquet").set_index("row_id")["cluster"]
    assert cluster.index.tolist() == [0, 1, *range(3, 24)]
    assert cluster[10] == cluster[11] != cluster[12]
    (tmp_path / "pairs.csv").write_text("2,11,must\n")
    assert run("fit", "odm-clustering", tmp_path / "rows.csv", *arguments, "-o", tmp_path / "other") == 2
