from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from running import run

from tithe.constructions import BallCover, Rings


@pytest.fixture(autouse=True)
def _no_further_draws(monkeypatch) -> None:
    """Only the sizes asked for are drawn, each as often as asked for."""
    monkeypatch.setattr("tithe.report.compare._MAX_TRIALS", 0)


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1000, 3)), columns=["a", "b", "c"])
    frame["w"] = rng.random(1000) + 0.5
    frame["label"] = np.where(frame["a"] + 0.5 * rng.logistic(size=1000) > 0, "up", "down")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_compare_writes_a_page_the_numbers_and_a_table(rows, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.comparison.drawn", lambda *args, **options: b"a picture")
    command = ["compare", rows, "--objective", "logistic", "-C", "0.5", "--target", "label", "--weight", "w"]
    out = tmp_path / "out"
    assert run(*command, "--sizes", "10%,0.2,300", "--repeats", 2, "--constructions", "auto", "-o", out) == 0
    printed = capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    assert {file.name for file in out.iterdir()} == {"report.html", "results.json", "table.csv"}
    n_rows = results["n_rows"]
    assert [line["size"] for line in results["table"][1::2]] == [round(0.1 * n_rows), round(0.2 * n_rows), 300]
    assert results["parameters"] == {"C": 0.5}
    for words in ("all rows", "weighted uniform", "calibrated influence", "accuracy", "report.html"):
        assert words in printed
    assert " ".join(results["recommendation"]["text"].split()[:3]) in printed


def test_rows_beyond_the_memory_allowed_stay_in_their_file(rows, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.comparison.drawn", lambda *args, **options: b"a picture")
    command = ["compare", rows, "--objective", "logistic", "--target", "label", "--sizes", 50, "--repeats", 1]
    assert run(*command, "--memory", 1e-5, "--constructions", "auto", "-o", tmp_path / "out") == 0
    assert "the largest affordable, takes its place" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sizes", "0"],
        ["--sizes", "1%,many"],
        ["--sizes", "150%"],
        ["--sizes", "100000"],
        ["--constructions", "nothing"],
        ["--constructions", "influence"],
        ["--constructions", "auto,rings", "--construction-option", "radius=1"],
        ["--constructions", "auto,rings", "--construction-option", "eps=none"],
        ["--construction-option", "eps=0.1"],
        ["--objective", "logistic"],
        ["--holdout", "0.001"],
        ["--target", "nothing"],
        ["--target", "b", "--class-weight", "balanced"],
        ["--target", "label", "--class-weight", "maybe=3"],
        ["--target", "label", "--class-weight", "up"],
        ["-o", "no/such/folder"],
    ],
)
def test_a_mistake_is_exit_code_2_and_leaves_nothing(rows, tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("compare", rows, "-o", "out", *arguments) == 2
    assert capsys.readouterr().err.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_target_says_what_is_compared(rows, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.comparison.drawn", lambda *args, **options: b"a picture")
    command = ["compare", rows, "--sizes", "200", "--repeats", 1, "-o", tmp_path / "out"]
    naive = ["--learner", "sklearn.naive_bayes.GaussianNB"]
    asked = (
        *(("label", [], "logistic"), ("b", [], "least_squares")),
        *(("label", naive, "GaussianNB"), ("label", ["--learner", "logistic"], "logistic")),
    )
    for target, more, name in asked:
        assert run(*command, "--target", target, *more) == 0
        said = capsys.readouterr()
        assert json.loads((tmp_path / "out" / "results.json").read_text())["objective"] == name
        assert "Ctrl-C ends it" in said.err and ("Always to say" in said.out) == (target == "label")
    for more, words in ((["-k", 3], "is of --objective kmeans"), ([*naive, "--objective", "ridge"], "not both")):
        assert run(*command, "--target", "label", *more) == 2 and words in capsys.readouterr().err


def test_weights_of_classes_are_named_in_the_results(rows, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.comparison.drawn", lambda *args, **options: b"a picture")
    command = ["compare", rows, "--target", "label", "--sizes", 200, "--repeats", 1, "--constructions", "uniform"]
    for more in ([], ["--learner", "sklearn.naive_bayes.GaussianNB"]):
        assert run(*command, *more, "--class-weight", "up=5", "-o", tmp_path / "out") == 0
        assert json.loads((tmp_path / "out" / "results.json").read_text())["parameters"]["class_weight"] == "up=5"
        assert "Rows have the class weights up=5" in capsys.readouterr().out


def test_constructions_get_the_parameters_that_they_have(rows, tmp_path, monkeypatch) -> None:
    made = []

    def noted(source, *, constructions, **options):
        made.extend(constructions)
        raise ValueError("stop here")

    monkeypatch.setattr("tithe.report.compare.compare", noted)
    options = ["--construction-option", "per_ring=5", "--construction-option", "leader=True"]
    options += ["--construction-option", "radius=2.5"]
    command = ["compare", rows, "--columns", "a,b", "-o", tmp_path / "out", "--constructions"]
    assert run(*command, "auto,rings,ball_cover,uniform", *options) == 2
    assert made == ["auto", Rings(per_ring=5), BallCover(leader=True, radius=2.5), "uniform"]


def test_columns_and_what_is_to_note_of_them_are_kept(rows, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.comparison.drawn", lambda *args, **options: b"a picture")
    frame = pd.read_csv(rows)
    frame["verdict"] = np.where(frame["label"] == "up", "good", "bad")  # known only with the label
    frame.to_csv(rows, index=False)
    command = ["--target", "label", "-o", tmp_path / "out"]
    assert run("compare", rows, *command, "--sizes", 100, "--repeats", 1, "--constructions", "uniform") == 0
    compared = json.loads((tmp_path / "out" / "results.json").read_text())["columns"]
    assert "a probable leak" in (tmp_path / "out" / "report.html").read_text()
    assert run("fit", "logistic", rows, *command) == 0
    assert compared == json.loads((tmp_path / "out" / "results.json").read_text())["columns"]
    (verdict,) = [column for column in compared if column["column"] == "verdict"]
    assert "a probable leak" in verdict["lost"]


def test_many_classes_are_refused_unless_they_are_meant(tmp_path, capsys) -> None:
    rows = pd.DataFrame({"a": np.random.default_rng(0).normal(size=500), "name": [f"n{i % 250}" for i in range(500)]})
    rows["country"] = [f"c{i % 120}" for i in range(500)]  # four rows each
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for target, words in (("name", "250 different values"), ("country", "120 different values")):
        command = ["--target", target, "--columns", "a", "-o", tmp_path / "out"]
        for first in (["compare"], ["fit", "logistic"]):
            assert run(*first, tmp_path / "rows.csv", *command) == 2
            said = capsys.readouterr().err
            assert words in said and "--many-classes" in said and "Ctrl-C" not in said
    assert not (tmp_path / "out").exists()
