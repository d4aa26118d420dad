"""``tithe fit`` and ``tithe predict``: from files to a model in a folder, and on to predictions."""

from __future__ import annotations

import io
import json
import shlex
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import PLAIN, generation, rows_table, run, sha, start, write_folder

from tithe import (
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
    load_coreset,
    load_model,
    open_dataset,
)
from tithe.odm import LinearODMClassifier

FILES = {"coreset.parquet", "model.tithe", "report.html", "results.json"}


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "data", rows_table(12_000), 3)


def numbers(folder: Path) -> pd.DataFrame:
    return pq.read_table(folder).to_pandas().drop(columns="label")


@pytest.mark.parametrize("learner", ["kmeans", "kmedians"])
def test_clusters_from_files(folder, tmp_path, capsys, small_leaves, learner: str) -> None:
    out = tmp_path / "result"
    columns = ["--columns", "c0,c1,c2,c3"]
    assert run("fit", learner, folder, *columns, "-k", 3, "-m", 400, "--holdout", 0, "-o", out) == 0
    printed = capsys.readouterr().out
    assert "they cost exactly" in printed and "rows kept" in printed and "report.html" in printed
    assert {p.name for p in out.iterdir()} == FILES and not list(tmp_path.glob("*.checkpoint"))
    model = load_model(out / "model.tithe")
    results = json.loads((out / "results.json").read_text())
    assert results["n_rows"] == 12_000 and results["certificate"]["n_rows"] == 12_000
    assert sum(results["cluster_weights"]) == pytest.approx(12_000, rel=1e-3)
    assert len(load_coreset(out / "coreset.parquet")) == results["rows_kept"] <= 400
    assert run("predict", out / "model.tithe", folder, "-o", tmp_path / "p.parquet") == 0
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert found["row_id"].tolist() == list(range(12_000))
    assert np.array_equal(found["prediction"], model.predict(numbers(folder)))


@pytest.mark.parametrize("learner", ["ridge", "poisson", "huber"])
def test_regressions_from_files(folder, tmp_path, capsys, small_leaves, learner: str) -> None:
    frame = numbers(folder).assign(y=lambda f: np.round(np.exp(0.1 * f["c0"])))
    (tmp_path / "rows").mkdir()
    frame.to_parquet(tmp_path / "rows" / "rows.parquet")
    out, columns = tmp_path / "result", ["--columns", "c0,c1,c2"]
    given = [tmp_path / "rows", "--target", "y", *columns, "--alpha", 0.5, "-m", 400, "--seed", 7, "--holdout", 0]
    assert run("fit", learner, *given, "-o", out) == 0
    assert "of a fit on all rows" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    assert results["rows_kept"] <= 400 and results["certificate"]["quantity"] == "excess_loss"
    model = load_model(out / "model.tithe")
    kind = {"ridge": CoresetRidge, "poisson": CoresetPoissonRegressor, "huber": CoresetHuberRegressor}[learner]
    source = open_dataset(tmp_path / "rows", columns=["c0", "c1", "c2"], target="y")
    assert np.array_equal(model.coef_, kind(alpha=0.5, coreset_size=400, random_state=7).fit(source).coef_)
    assert run("predict", out / "model.tithe", tmp_path / "rows", "-o", tmp_path / "p.parquet") == 0
    predicted = pd.read_parquet(tmp_path / "p.parquet")["prediction"]
    np.testing.assert_allclose(predicted, model.predict(frame[["c0", "c1", "c2"]]), rtol=1e-12)


def test_the_command_is_the_learner(folder, tmp_path) -> None:
    out = tmp_path / "result"
    command = ["fit", "kmeans", folder, "--columns", "c0,c1", "-k", 3, "-m", 400, "--seed", 7, "--holdout", 0]
    assert run(*command, "-o", out) == 0
    source = open_dataset(folder, columns=["c0", "c1"])
    model = CoresetKMeans(3, coreset_size=400, random_state=7).fit(source)
    assert np.array_equal(load_model(out / "model.tithe").cluster_centers_, model.cluster_centers_)


def test_logistic_from_files(folder, tmp_path, capsys, small_leaves) -> None:
    out = tmp_path / "result"
    assert run("fit", "logistic", folder, "--target", "label", "-m", 500, "-o", out) == 0
    assert "a fit on all rows" in capsys.readouterr().out
    model = load_model(out / "model.tithe")
    assert isinstance(model, CoresetLogisticRegression) and model.certificate_.relative_excess < 1e-4
    assert set(load_coreset(out / "coreset.parquet").y) == {"no", "yes"}
    assert json.loads((out / "results.json").read_text())["classes"] == ["no", "yes"]
    # the column of the target is left alone
    assert run("predict", out / "model.tithe", folder, "--proba", "-o", tmp_path / "p.csv") == 0
    found, X = pd.read_csv(tmp_path / "p.csv"), numbers(folder)
    assert found["prediction"].tolist() == model.predict(X).tolist()
    assert np.allclose(found[["probability_no", "probability_yes"]], model.predict_proba(X))


def test_odm_from_files(folder, tmp_path, capsys, small_leaves) -> None:
    out = tmp_path / "result"
    command = ["fit", "odm", folder, "--target", "label", "-m", 500, "--lam", 50, "--polish", "auto", "-o", out]
    assert run(*command, "--dry-run") == 0
    assert "peak memory" in capsys.readouterr().out and not out.exists()
    assert run(*command) == 0
    assert "a fit on all rows" in capsys.readouterr().out
    model = load_model(out / "model.tithe")
    assert isinstance(model, LinearODMClassifier) and model.lam == 50.0 and model.certificate_.relative_excess < 1e-4
    page = (out / "report.html").read_text()
    assert page.count('class="chart"') == 5 and "LinearSVC" in page
    assert run("predict", out / "model.tithe", folder, "-o", tmp_path / "p.csv") == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["prediction"].tolist() == model.predict(numbers(folder)).tolist()
    assert run("predict", out / "model.tithe", folder, "--proba", "-o", tmp_path / "q.csv") == 2


def test_the_page_is_whole_and_works_offline(folder, tmp_path) -> None:
    out = tmp_path / "result"
    assert run("fit", "logistic", folder, "--target", "label", "-m", 500, "-o", out) == 0
    page = (out / "report.html").read_text()
    assert page.count('class="chart"') == 5 and "http" not in page.split("</style>")[1]
    words = ("11,415", "Held-out rows", "best fit of the same model", "fit on all rows", "Coefficients")
    for word in (*words, "Parameters", "influence"):
        assert word in page


def test_a_dry_run_and_a_second_run(folder, tmp_path, capsys) -> None:
    out = tmp_path / "result"
    command = ["fit", "kmeans", folder, "--columns", "c0,c1", "-k", 3, "-m", 300, "-o", f"{out}/"]
    assert run(*command, "--dry-run") == 0
    assert "peak memory" in capsys.readouterr().out and not out.exists()
    assert run(*command) == 0
    first = {name: sha(out / name) for name in ("coreset.parquet", "model.tithe")}
    assert run(*command, "--seed", 1) == 0
    assert all(sha(out / name) != first[name] for name in first) and {p.name for p in out.iterdir()} == FILES


def test_a_full_disk_leaves_what_was_there(folder, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "result"
    command = ["fit", "kmeans", folder, "--columns", "c0,c1", "-k", 3, "-m", 300, "-o", out]
    assert run(*command) == 0
    before = {p.name: sha(p) for p in out.iterdir()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tithe.report.run.write_coreset", full)
    assert run(*command, "--seed", 1) == 1
    assert "No space left" in capsys.readouterr().err
    assert {p.name: sha(p) for p in out.iterdir()} == before
    assert run(*command[:-1], tmp_path / "new") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("keep", [[], ["--keep-rows"]])
def test_rows_of_a_sparse_table_are_saved(tmp_path, monkeypatch, keep: list[str]) -> None:
    monkeypatch.setattr("tithe.rows.schema.WIDEST_DENSE", 20)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=600), "t": rng.choice(list("abcdefgh"), 600)})
    frame.assign(y=np.where(frame["a"] > 0, "yes", "no")).to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", "logistic", tmp_path / "rows.csv", "--target", "y", "--categories", "hash", "-m", 100, *keep]
    assert run(*command, "-o", tmp_path / "out") == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == FILES
    model = load_model(tmp_path / "out" / "model.tithe")
    assert hasattr(model, "coreset_") is bool(keep)
    predict = ["predict", tmp_path / "out" / "model.tithe", tmp_path / "rows.csv"]
    assert run(*predict, "-o", tmp_path / "p.csv") == 0 and len(pd.read_csv(tmp_path / "p.csv")) == 600


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["logistic", "kmeans", "odm"])
def test_a_stopped_fit_goes_on_to_the_same_model(tmp_path, small_leaves, learner: str) -> None:
    folder = write_folder(tmp_path / "data", rows_table(40_000), 2)
    clusters = ["-k", 3] if learner == "kmeans" else []
    command = ["fit", learner, folder, "--target", "label", *clusters, "-m", 100]
    assert run(*command, "-o", tmp_path / "whole") == 0
    checkpoint = tmp_path / "stopped.checkpoint"
    process = start(*command, "--checkpoint-every", 0, "-o", tmp_path / "stopped")
    while process.poll() is None and generation(checkpoint) < 5:
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and not (tmp_path / "stopped").exists(), said
    assert run(*shlex.split(said.partition("Go on with: ")[2])[1:]) == 0
    assert sha(tmp_path / "stopped" / "coreset.parquet") == sha(tmp_path / "whole" / "coreset.parquet")
    here, there = (load_model(tmp_path / name / "model.tithe") for name in ("stopped", "whole"))
    assert here.certificate_ == there.certificate_


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "logistic", "data", "-o", "result"],  # no target
        ["fit", "kmeans", "data", "--columns", "c0,nothing", "-o", "result"],
        ["fit", "kmeans", "data", "--target", "label", "-k", "0", "-o", "result"],
        ["fit", "kmeans", "data", "--target", "label", "-o", "data"],
        ["fit", "kmeans", "data", "--target", "label", "-o", "data/result"],
        ["fit", "kmeans", "data", "--target", "label", "-o", "no/such/result"],
        ["fit", "kmeans", "data", "--target", "label", "-o", "file.txt"],
        ["fit", "kmeans", "data", "--target", "label", "--polish", "often", "-o", "result"],
        ["fit", "kmeans", "missing", "--target", "label", "-o", "result"],
        ["fit", "trees", "data", "--target", "label", "-o", "result"],
        ["predict", "missing.tithe", "data", "-o", "p.parquet"],
        ["predict", "file.txt", "data", "-o", "p.parquet"],
        ["predict", "file.txt", "data", "-o", "p.xlsx"],
    ],
)
def test_a_callers_mistake_writes_nothing(folder, tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.txt").write_text("x")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert said.strip() and "Traceback" not in said
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.drop(["c1"]), "'c1'"),
        (lambda t: t.set_column(1, "c1", pa.array(["x"] * len(t))), "'c1'"),
    ],
)
def test_rows_that_do_not_fit_the_model_are_refused(folder, tmp_path, capsys, change, word: str) -> None:
    out = tmp_path / "result"
    assert run("fit", "kmeans", folder, "--target", "label", "-k", 3, "-m", 300, "-o", out) == 0
    pq.write_table(change(rows_table(100)), tmp_path / "other.parquet")
    capsys.readouterr()
    assert run("predict", out / "model.tithe", tmp_path / "other.parquet", "-o", tmp_path / "p.parquet") == 2
    assert word in capsys.readouterr().err and not (tmp_path / "p.parquet").exists()


def test_models_without_names_count_columns(folder, tmp_path, capsys) -> None:
    from tithe import save_model

    X = numbers(folder)
    model = CoresetKMeans(3, coreset_size=300, random_state=0).fit(X.to_numpy())
    save_model(model, tmp_path / "m.tithe")
    command = ["predict", tmp_path / "m.tithe", folder, "-o", tmp_path / "p.parquet"]
    assert run(*command, "--columns", "c0,c1") == 2
    assert "--columns" in capsys.readouterr().err
    assert run(*command, "--target", "label") == 0
    assert np.array_equal(pd.read_parquet(tmp_path / "p.parquet")["prediction"], model.predict(X.to_numpy()))
    assert run(*command, "--target", "label", "--proba") == 2


@pytest.mark.parametrize("categories", ["onehot", "hash"])
def test_text_is_encoded_as_for_the_fit(tmp_path, capsys, categories: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=900), "colour": rng.choice(["blue", "green", "red"], 900)})
    frame.to_parquet(tmp_path / "rows.parquet")
    out = tmp_path / "result"
    assert run("fit", "kmeans", tmp_path / "rows.parquet", "-k", 3, "--categories", categories, "-o", out) == 0
    some = frame[frame["colour"] != "green"]  # a value that does not occur has a column all the same
    some.assign(extra=1).to_parquet(tmp_path / "some.parquet")
    command = ["predict", out / "model.tithe", tmp_path / "some.parquet"]
    assert run(*command, "--categories", categories, "-o", tmp_path / "p.parquet") == 2
    assert "--categories cannot be given here" in capsys.readouterr().err
    assert run(*command, "-o", tmp_path / "p.parquet") == 0
    model = load_model(out / "model.tithe")
    assert np.array_equal(pd.read_parquet(tmp_path / "p.parquet")["prediction"], model.predict(some))
    frame.replace("green", "pink").to_parquet(tmp_path / "new.parquet")  # a value that was not there
    command[2] = tmp_path / "new.parquet"
    assert run(*command, "-o", tmp_path / "q.parquet") == 0
    assert np.array_equal(
        pd.read_parquet(tmp_path / "q.parquet")["prediction"], model.predict(frame.replace("green", "pink"))
    )


def test_bad_rows_have_no_prediction(folder, tmp_path, capsys) -> None:
    out = tmp_path / "result"
    assert run("fit", "kmeans", folder, "--target", "label", "-k", 3, "-m", 300, *PLAIN, "-o", out) == 0
    table = rows_table(50).to_pandas()
    table.loc[[3, 7, 49], "c2"] = np.nan
    table.to_parquet(tmp_path / "gaps.parquet")
    command = ["predict", out / "model.tithe", tmp_path / "gaps.parquet", "-o", tmp_path / "p.parquet"]
    assert run(*command) == 2
    assert run(*command, "--bad-rows", "skip") == 0
    written = pd.read_parquet(tmp_path / "p.parquet")
    assert written["row_id"].tolist() == list(range(50))
    assert np.flatnonzero(written["prediction"].isna()).tolist() == [3, 7, 49]
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["bad", "rows,", "without", "a", "prediction", "3"] in said


def test_rows_that_come_once_are_fitted_without_a_certificate(tmp_path, monkeypatch, capsys) -> None:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(rows_table(3000).drop(["label"]), buffer)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(buffer.getvalue())))
    out = tmp_path / "result"
    assert run("fit", "kmeans", "-", "-k", 3, "-m", 200, "-o", out) == 0
    assert "No certificate" in capsys.readouterr().out
    assert "No certificate" in (out / "report.html").read_text()
    assert json.loads((out / "results.json").read_text())["certificate"] is None
