"""``tithe merge`` and what goes with it: ``--schema-from``, ``--pilot-from``, and fits on coreset files."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import rows_table, run

from tithe import CoresetLogisticRegression, load_coreset, load_model
from tithe.objectives import LogisticObjective
from tithe.storage.coresets import load_schema

BUILD = ("--target", "label", "-k", 3, "-m", 100)


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Files of rows of two sites, and the coreset of the first."""
    monkeypatch.chdir(tmp_path)
    for number, n_rows in ((1, 3000), (2, 800)):
        table = rows_table(n_rows, seed=number)
        pq.write_table(table.append_column("site", pa.array(np.arange(n_rows) % 5)), f"rows{number}.parquet")
    assert run("build", "rows1.parquet", *BUILD, "--seed", 1, "-o", "site1.parquet") == 0
    return tmp_path


def build_second(*options) -> int:
    return run("build", "rows2.parquet", *BUILD, "--seed", 2, *options, "-o", "site2.parquet")


def test_sites_with_one_schema_merge(sites, capsys) -> None:
    assert build_second("--schema-from", "site1.parquet") == 0
    assert run("merge", "site1.parquet", "site2.parquet", "-o", "all.parquet") == 0
    merged = load_coreset("all.parquet")
    assert merged.n_seen == 3800 and [s.name for s in merged.sites] == ["site1.parquet", "site2.parquet"]
    assert merged.totals is None and load_schema("all.parquet") == load_schema("site1.parquet")
    assert pq.read_table("all.parquet").column_names[-5:] == ["site_", "y", "sample_weight", "site", "row_id"]
    capsys.readouterr()
    assert run("inspect", "all.parquet") == 0
    shown = capsys.readouterr().out
    assert "site2.parquet" in shown and "not joined" in shown and "3,800" in shown


def test_sites_with_one_pilot_have_totals_that_add_up(sites) -> None:
    assert build_second("--pilot-from", "site1.parquet") == 0
    assert run("merge", "site1.parquet", "site2.parquet", "-m", 80, "-o", "all.parquet") == 0
    first, second, merged = (load_coreset(f"{name}.parquet") for name in ("site1", "site2", "all"))
    np.testing.assert_array_equal(merged.totals, first.totals + second.totals)
    assert len(merged) <= 80 and merged.provenance["totals"] == "of 2 sites, added up"
    assert merged.provenance["seed"] == 0


def test_sites_that_scaled_their_columns_apart_are_refused(sites, capsys) -> None:
    assert build_second() == 0
    assert run("merge", "site1.parquet", "site2.parquet", "-o", "all.parquet") == 2
    said = capsys.readouterr().err
    assert "c0 differs" in said and "--schema-from" in said and not (sites / "all.parquet").exists()


def test_mistakes_are_told(sites, capsys) -> None:
    cases = {
        "count twice": ("merge", "site1.parquet", "site1.parquet", "-o", "all.parquet"),
        "input itself": ("merge", "site1.parquet", "-o", "site1.parquet"),
        "not a coreset": ("merge", "site1.parquet", "rows2.parquet", "-o", "all.parquet"),
        "no file 'none.parquet'": ("merge", "site1.parquet", "none.parquet", "-o", "all.parquet"),
        "--clusters 3, not with --clusters 4": ("build", "rows2.parquet", "-k", 4, "-m", 50, "--target", "label",
                                                "--pilot-from", "site1.parquet", "-o", "x.parquet"),
        "built for 'kmeans'": ("build", "rows2.parquet", "--objective", "logistic", "--target", "label", "-m", 50,
                               "--pilot-from", "site1.parquet", "-o", "x.parquet"),
        "--scale cannot be given": ("build", "rows2.parquet", *BUILD, "--scale", "none", "--schema-from",
                                    "site1.parquet", "-o", "x.parquet"),
        "leave --schema-from out": ("build", "rows2.parquet", *BUILD, "--schema-from", "site1.parquet", "--pilot-from",
                                    "site1.parquet", "-o", "x.parquet"),
        "is a coreset": ("build", "site1.parquet", "-k", 3, "-m", 50, "-o", "x.parquet"),
        "--target cannot be given": ("fit", "kmeans", "site1.parquet", "-k", 3, "--target", "y", "-o", "result"),
        "--polish reads all rows": ("fit", "kmeans", "site1.parquet", "-k", 3, "--polish", 2, "-o", "result"),
    }  # fmt: skip
    for words, arguments in cases.items():
        assert run(*arguments) == 2, words
        assert words in capsys.readouterr().err


def test_allow_repeated(sites) -> None:
    assert run("merge", "site1.parquet", "site1.parquet", "--allow-repeated", "-o", "all.parquet") == 0
    assert load_coreset("all.parquet").n_seen == 6000


def test_arrays_share_a_pilot_and_have_no_schema(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in (1, 2):
        np.save(f"rows{number}.npy", rng.normal(size=(2000, 3)))
    assert run("build", "rows1.npy", "-k", 3, "-m", 100, "-o", "site1.parquet") == 0
    assert run("build", "rows2.npy", "-k", 3, "-m", 100, "--pilot-from", "site1.parquet", "-o", "site2.parquet") == 0
    assert run("merge", "site1.parquet", "site2.parquet", "-o", "all.parquet") == 0
    assert load_coreset("all.parquet").totals is not None
    assert run("build", "rows2.npy", "-k", 3, "-m", 100, "--schema-from", "site1.parquet", "-o", "x.parquet") == 2
    assert "has no schema" in capsys.readouterr().err


def test_a_fit_on_a_merged_file_uses_its_weights(sites, capsys) -> None:
    assert build_second("--pilot-from", "site1.parquet") == 0
    assert run("merge", "site1.parquet", "site2.parquet", "-m", 80, "-o", "all.parquet") == 0
    files = ("--test", "rows2.parquet", "--predict", "rows1.parquet")
    assert run("fit", "kmeans", "all.parquet", "-k", 3, *files, "-o", "result") == 0
    results = json.loads((sites / "result" / "results.json").read_text())
    merged = load_coreset("all.parquet")
    assert results["n_rows"] == 3800 and results["rows_kept"] == len(merged) and results["certificate"] is None
    assert sum(results["cluster_weights"]) == pytest.approx(merged.weights().sum())
    assert "site" in results["clusters"][0]["typical_row_name"]
    assert results["held_out"]["n_rows"] == 800
    model = load_model(sites / "result" / "model.tithe")
    assert model.schema_ == load_schema("site1.parquet")
    assert len(pq.read_table(sites / "result" / "predictions.parquet")) == 3000
    assert load_coreset(sites / "result" / "coreset.parquet").sites == merged.sites


def test_a_classifier_on_a_coreset_file_equals_one_on_its_rows(sites, capsys) -> None:
    options = ("--objective", "logistic", "--target", "label", "-m", 300)
    assert run("build", "rows1.parquet", *options, "-o", "labelled.parquet") == 0
    assert run("fit", "logistic", "labelled.parquet", "--test", "rows2.parquet", "-o", "result") == 0
    coreset, model = load_coreset("labelled.parquet"), load_model(sites / "result" / "model.tithe")
    same = CoresetLogisticRegression(coreset_size=len(coreset), random_state=0)
    same.fit(coreset.X, coreset.y, sample_weight=coreset.weights())
    np.testing.assert_allclose(model.coef_, same.coef_)
    assert model.classes_.tolist() == ["no", "yes"]
    again = load_coreset(sites / "result" / "coreset.parquet")
    assert again.y.tolist() == coreset.y.tolist() and again.objective == coreset.objective
    assert coreset.objective == LogisticObjective(classes=("no", "yes"))
    assert "accuracy" in capsys.readouterr().out
    assert run("fit", "sklearn.naive_bayes.GaussianNB", "labelled.parquet", "-o", "bayes") == 0
