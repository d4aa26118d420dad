"""``tithe fit odm-semi``: rows with a gap in the target, links, the folder that is written, and mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from running import run
from sklearn.datasets import make_moons

import tithe
from tithe.odm import SemiSupervisedODMClassifier
from tithe.odm.report import unlabeled_text

X, Y = make_moons(60, noise=0.05, random_state=0)
NAMES = np.array(["no", "yes"], object)[Y]
GIVEN = np.arange(60) < 14
QUICK = ("--target", "y", "--scale", "none", "--kernel", "linear")


def table(target: Any = NAMES, given: Any = GIVEN) -> pd.DataFrame:
    return pd.DataFrame(X, columns=["left", "right"]).assign(y=pd.Series(target).where(given))


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.csv"
    table().to_csv(path, index=False)
    return path


def results_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


def fit(*arguments: Any) -> int:
    return run("fit", "odm-semi", *arguments)


def test_the_command_is_the_learner(rows, tmp_path, capsys) -> None:
    (tmp_path / "pairs.csv").write_text("20,21,cannot\n")
    out = tmp_path / "out"
    options = ("--gamma", "neighbors", "--lam-unlabeled", 100, "--balance", 0.1, "--links", tmp_path / "pairs.csv")
    assert fit(rows, "--target", "y", "--scale", "none", *options, "-o", out) == 0
    alone = SemiSupervisedODMClassifier(
        lam_unlabeled=100.0, gamma="neighbors", balance=0.1, cannot_link=[(20, 21)], random_state=0
    ).fit(X, table()["y"].to_numpy())
    model, printed, said = tithe.load_model(out / "model.tithe"), capsys.readouterr().out, results_of(out)
    np.testing.assert_array_equal(model.decision_function(table()), alone.decision_function(X))
    labels = pd.read_parquet(out / "labels.parquet")
    np.testing.assert_array_equal(labels["label"], alone.transduction_)
    np.testing.assert_array_equal(labels["given"], GIVEN)
    assert labels["label"][20] != labels["label"][21]
    assert (said["n_rows"], said["n_labelled"], said["n_unlabelled"], said["rows_kept"]) == (60, 14, 46, 60)
    assert said["classes"] == ["no", "yes"] and said["n_cannot_link"] == 1
    assert said["certificate"]["value"] == pytest.approx(alone.objective_ - alone.relaxed_bound_)
    page = (out / "report.html").read_text()
    assert "Margins of labelled and unlabelled rows" in page and "boundary between classes" in page
    sentence = unlabeled_text(alone, 46)
    assert sentence in " ".join(page.split()) and sentence in printed
    for name, mask in (("labelled rows", GIVEN), ("unlabelled rows", ~GIVEN)):
        assert said["margins"][name]["mean"] == pytest.approx(labels["margin"][mask].mean())
    assert run("predict", out / "model.tithe", rows, "-o", tmp_path / "new.csv") == 0
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "new.csv")["prediction"], alone.predict(X))


@pytest.mark.parametrize("kind", ["text", "number"])
def test_csv_and_parquet_give_equal_results(tmp_path, kind: str) -> None:
    target = NAMES if kind == "text" else pd.array(np.where(Y == 1, 1, -1), "Int64")  # -1 is a class here
    table(target).to_csv(tmp_path / "rows.csv", index=False)
    table(target).to_parquet(tmp_path / "rows.parquet")
    for name in ("csv", "parquet"):
        assert fit(tmp_path / f"rows.{name}", *QUICK, "-o", tmp_path / name) == 0
    labels = [pd.read_parquet(tmp_path / name / "labels.parquet") for name in ("csv", "parquet")]
    pd.testing.assert_frame_equal(*labels)
    assert set(labels[0]["label"]) == set(target)
    assert int(labels[0]["given"].sum()) == 14


@pytest.mark.parametrize(("target", "value"), [(NAMES, "unknown"), (Y + 3, "-1")])
def test_a_value_that_means_no_label(rows, tmp_path, target, value: str) -> None:
    gap = int(value) if value == "-1" else value
    pd.DataFrame(X, columns=["left", "right"]).assign(y=np.where(GIVEN, target, gap)).to_csv(rows, index=False)
    assert fit(rows, *QUICK, "--unlabeled", value, "-o", tmp_path / "out") == 0
    said = results_of(tmp_path / "out")
    assert said["classes"] == sorted(set(target.tolist())) and said["n_labelled"] == 14


def test_a_coreset_of_unlabelled_rows_weights_and_links_beside_bad_rows(rows, tmp_path) -> None:
    frame = table().assign(w=np.arange(60) % 3 + 1.0)
    frame["w"] = frame["w"].astype(object)
    frame.loc[3, "w"] = "oops"  # a bad row: the numbers of links are those of the file all the same
    frame.to_csv(rows, index=False)
    (tmp_path / "pairs.csv").write_text("30,31,must\n31,32,cannot\n")
    arguments = ("--weight", "w", "--bad-rows", "skip", "-m", 25, "--links", tmp_path / "pairs.csv")
    assert fit(rows, *QUICK, *arguments, "-o", tmp_path / "out") == 0
    said, labels = results_of(tmp_path / "out"), pd.read_parquet(tmp_path / "out" / "labels.parquet")
    assert (said["n_rows"], said["n_skipped"]) == (59, 1) and said["rows_kept"] <= 25
    assert labels["row_id"].tolist() == [*range(3), *range(4, 60)]
    label = labels.set_index("row_id")["label"]
    assert label[30] == label[31] != label[32]
    (tmp_path / "pairs.csv").write_text("3,31,must\n")
    assert fit(rows, *QUICK, *arguments, "-o", tmp_path / "other") == 2


def test_labelled_rows_are_held_out_or_tested_on(rows, tmp_path, capsys) -> None:
    table(NAMES, np.arange(60) < 40).to_csv(rows, index=False)
    assert fit(rows, *QUICK, "--holdout", 0.3, "-o", tmp_path / "out") == 0
    said, labels = results_of(tmp_path / "out"), pd.read_parquet(tmp_path / "out" / "labels.parquet")
    held_out = np.setdiff1d(np.arange(60), labels["row_id"])
    assert said["n_held_out"] == len(held_out) > 0 and (held_out < 40).all()
    model = tithe.load_model(tmp_path / "out" / "model.tithe")
    right = model.predict(table().iloc[held_out]) == NAMES[held_out]
    assert said["held_out"]["scores"]["accuracy"] == pytest.approx(right.mean())
    assert f"On {len(held_out)} rows that the model has not seen" in capsys.readouterr().out
    test = tmp_path / "test.csv"
    table(np.append(NAMES[:50], ["none"] * 10), np.arange(60) % 2 == 0).to_csv(test, index=False)
    arguments = ("--unlabeled", "none", "--test", test, "--predict", test)
    assert fit(rows, *QUICK, *arguments, "-o", tmp_path / "out") == 0
    assert results_of(tmp_path / "out")["held_out"]["n_rows"] == 25
    predicted = pd.read_parquet(tmp_path / "out" / "predictions.parquet")["prediction"]
    np.testing.assert_array_equal(predicted, tithe.load_model(tmp_path / "out" / "model.tithe").predict(table()))


def test_a_column_that_names_rows_and_no_gaps_at_all(rows, tmp_path, capsys) -> None:
    table(given=GIVEN | True).assign(who=[f"row {i}" for i in range(60)]).to_csv(rows, index=False)
    assert fit(rows, *QUICK, "--row-id", "who", "-m", 5000, "-o", tmp_path / "out") == 0
    labels = pd.read_parquet(tmp_path / "out" / "labels.parquet")
    assert labels["name"].tolist() == [f"row {i}" for i in range(60)] and labels["given"].all()
    assert "All rows are labelled" in capsys.readouterr().out
    assert results_of(tmp_path / "out")["columns"][0]["column"] == "left"


@pytest.mark.parametrize(
    ("target", "links", "message"),
    [
        (np.full(60, None), "", "y holds no labels: every entry is missing"),
        (np.where(GIVEN, "no", None), "", "only one class, 'no'"),
        (table()["y"], "0,1\n", "Line 1 of .* is not a link"),
        (table()["y"], "0,500,must\n", "must_link names row 500"),
        (table()["y"], "20,20,must\n", "links row 20 with itself"),
        (table()["y"], "20,21,must\n21,22,must\n20,22,cannot\n", "along the rows"),
    ],
)
def test_mistakes_of_the_caller(rows, tmp_path, capsys, target, links: str, message: str) -> None:
    table().assign(y=target).to_csv(rows, index=False)
    (tmp_path / "pairs.csv").write_text(links)
    assert fit(rows, *QUICK, "--links", tmp_path / "pairs.csv", "-o", tmp_path / "out") == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [("--eps", 0.1), ("--polish", 1), ("--kernel", "precomputed"), ("--holdout", 0.1, "--test", "rows.csv")],
)
def test_options_of_other_learners_are_refused(rows, tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit("rows.csv", "--target", "y", *arguments, "-o", "out") == 2
    assert arguments[0] in capsys.readouterr().err
    assert fit("rows.csv", "-o", "out") == 2
    assert "--target" in capsys.readouterr().err and not Path("out").exists()


def test_the_former_name_says_the_new_one(rows, tmp_path, capsys) -> None:
    assert run("fit", "odm", rows, "--target", "y", "--semi", "-o", tmp_path / "out") == 2
    assert "tithe fit odm-semi" in capsys.readouterr().err
