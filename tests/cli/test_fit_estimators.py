"""``tithe fit`` with estimators of other libraries: certificate, weights of classes, and models in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from running import run
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

from tithe import load_coreset, load_model

ENSEMBLES = {"lightgbm": "n_estimators", "xgboost": "n_estimators", "random-forest": "n_estimators"}
GAUSSIAN = "sklearn.naive_bayes.GaussianNB"


def table(rng: np.random.Generator, n: int = 1500) -> pd.DataFrame:
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["u", "v", "w"], n)
    frame["price"] = frame["a"] + 2.0 * (frame["kind"] == "u") + 0.1 * rng.normal(size=n)
    frame["late"] = np.where(rng.random(n) < 1 / (1 + np.exp(3 - 2 * frame["a"])), "yes", "no")
    frame.loc[::50, "b"] = np.nan
    return frame


@pytest.fixture
def rows(rng: np.random.Generator, tmp_path: Path) -> Path:
    table(rng).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


@pytest.mark.parametrize(
    ("learner", "target", "name", "words"),
    [
        (GAUSSIAN, "late", "accuracy", "always to say no has"),
        ("sklearn.linear_model.Ridge", "price", "r2", "always to predict the mean"),
    ],
)
def test_the_score_on_rows_held_out_is_the_certificate(rows, tmp_path, capsys, learner, target, name, words) -> None:
    out = tmp_path / "out"
    command = ["fit", learner, rows, "--columns", "a,b,kind", "--target", target]
    assert run(*command, "-m", 500, "--holdout", 0.2, "-o", out) == 0
    printed, said = capsys.readouterr().out, results(out)
    sentence, score = said["certificate"]["sentence"], said["held_out"]["scores"][name]
    assert "No certificate" not in printed and words in sentence
    low, high = said["certificate"]["interval"]
    assert said["certificate"]["value"] == pytest.approx(score) and low < score < high
    assert said["certificate"]["n_rows"] == said["held_out"]["n_rows"] == said["n_held_out"]
    for text in (printed, (out / "report.html").read_text()):
        assert sentence in text and "others may be predicted better or worse" in text


def test_too_few_rows_to_certify_by(rows, tmp_path, capsys) -> None:
    assert run("fit", GAUSSIAN, rows, "--target", "late", "--holdout", 0, "-o", tmp_path / "out") == 0
    assert (
        "is certified on rows held out" in capsys.readouterr().out and results(tmp_path / "out")["certificate"] is None
    )


def test_a_coreset_file_is_certified_by_other_rows(rows, tmp_path) -> None:
    coreset, new = tmp_path / "c.parquet", tmp_path / "new.csv"
    assert run("build", rows, "--objective", "logistic", "--target", "late", "-m", 300, "-o", coreset) == 0
    table(np.random.default_rng(9), 300).to_csv(new, index=False)
    for test, has_one in ((rows, False), (new, True)):  # of the first rows the coreset was made
        assert run("fit", GAUSSIAN, coreset, "--test", test, "-o", tmp_path / "out") == 0
        assert (results(tmp_path / "out")["certificate"] is not None) == has_one


def test_weights_of_classes_are_weights_of_rows(rng, tmp_path, capsys) -> None:
    frame = table(rng)[["a", "c", "late"]]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", "sklearn.linear_model.LogisticRegression", tmp_path / "rows.csv", "--target", "late"]
    X, y = frame[["a", "c"]].to_numpy(), frame["late"].to_numpy()
    for asked, by_hand in (("balanced", "balanced"), ("yes=5", {"yes": 5.0, "no": 1.0})):
        more = ["--scale", "none", "--holdout", 0, "--class-weight", asked, "-o", tmp_path / "out"]
        assert run(*command, *more) == 0
        model = load_model(tmp_path / "out" / "model.tithe")
        expected = LogisticRegression().fit(X, y, sample_weight=compute_sample_weight(by_hand, y))
        np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-2)
    capsys.readouterr()
    ours = ["fit", "logistic", tmp_path / "rows.csv", "--target", "late", "--class-weight", "yes=5", "--scale", "none"]
    assert run(*ours, "--holdout", 0, "-o", tmp_path / "ours") == 0
    model = load_model(tmp_path / "ours" / "model.tithe")
    assert model.class_weight == {"yes": 5}
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-2)
    for wrong, words in (("maybe=3", "not a class"), ("yes", "NAME=VALUE"), ("yes=many", "must be numbers")):
        assert run(*ours[:-4], "--class-weight", wrong, "-o", tmp_path / "ours") == 2
        assert words in capsys.readouterr().err


def test_weights_of_classes_are_for_classes(rows, tmp_path, capsys) -> None:
    command = ["fit", "sklearn.linear_model.Ridge", rows, "--target", "price", "--class-weight", "balanced"]
    assert run(*command, "-o", tmp_path / "out") == 2 and "predicts none" in capsys.readouterr().err


def test_a_fit_says_how_rows_are_chosen(rows, tmp_path) -> None:
    command = ["fit", "ridge", rows, "--target", "price", "-m", 300, "--construction", "leverage", "--no-calibrate"]
    assert run(*command, "-o", tmp_path / "out") == 0
    provenance = results(tmp_path / "out")["provenance"]
    assert provenance["construction"] == "leverage" and not provenance.get("calibrated")
    parameters = load_model(tmp_path / "out" / "model.tithe").get_params()
    assert parameters["construction"] == "leverage" and parameters["calibrate"] is False


def test_a_construction_has_parameters_of_its_own(rows, tmp_path, capsys) -> None:
    table = [rows, "--columns", "a,b,c", "-m", 200]
    option = "--construction-option"
    command = ["fit", "logistic", *table, "--target", "late", "-o", tmp_path / "out", "--construction", "regressed"]
    assert run(*command, option, "n_clusters=3", option, "log=True", option, "mix=0.5", option, "regressor=ridge") == 0
    made = load_model(tmp_path / "out" / "model.tithe").get_params()["construction"]
    assert (made.n_clusters, made.log, made.mix, made.regressor) == (3, True, 0.5, "ridge")
    build = ["build", *table, "-o", tmp_path / "c.parquet", "--construction", "rings"]
    assert run(*build, "-k", 3, option, "per_ring=2") == 0
    assert load_coreset(tmp_path / "c.parquet").provenance["construction"] == "rings"
    capsys.readouterr()
    for first, wrong, words in (
        (command, "radii=2", "radii: there is no such parameter (regressed has regressor, n_clusters,"),
        (command, "known=2", "no such parameter"),  # what it learned from rows is none
        (command, "n_clusters=many", "n_clusters must be a whole number"),
        (command, "n_clusters", "NAME=VALUE"),
        (command[:-2], "n_clusters=3", "name the construction first"),
        ([*command[:-1], "uniform"], "n_clusters=3", "uniform has none"),
        (build, "alpha=-1", "alpha must be"),
    ):
        assert run(*first, option, wrong) == 2 and words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("learner", ["logistic", "odm", GAUSSIAN])
def test_many_classes_are_refused_unless_they_are_meant(rng, tmp_path, capsys, learner) -> None:
    frame = table(rng, 600).assign(number=np.arange(600) % 150, name=[f"n{i % 250}" for i in range(600)])
    frame[["a", "c", "number", "name", "price"]].to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", learner, tmp_path / "rows.csv", "-o", tmp_path / "out"]
    for target, words in (("number", "150 different numbers"), ("name", "250 different"), ("price", "tithe fit ridge")):
        assert run(*command, "--target", target, "--columns", "a,c") == 2
        assert words in capsys.readouterr().err and not (tmp_path / "out").exists()
    if learner == GAUSSIAN:
        assert run(*command, "--target", "number", "--columns", "a,c", "--many-classes") == 0


def test_catboost_predicts_one_of_three_classes(rows, tmp_path) -> None:
    pytest.importorskip("catboost")
    command = ["fit", "catboost", rows, "--target", "kind", "-p", "iterations=5", "--early-stopping", 0]
    assert run(*command, "--predict", rows, "-o", tmp_path / "out") == 0
    said = results(tmp_path / "out")["held_out"]
    assert said["scores"]["accuracy"] > said["scores"]["baseline"] and said["details"]["reliability"]
    predicted = pq.read_table(tmp_path / "out" / "predictions.parquet").column("prediction")
    assert set(predicted.to_pylist()) == {"u", "v", "w"}


_PREDICT = """
import sys
from tithe.cli.main import main
for folder in sys.argv[2:]:
    main(["predict", f"{folder}/model.tithe", sys.argv[1], "--proba", "-o", f"{folder}/later.parquet"])
"""


@pytest.mark.slow
def test_saved_ensembles_predict_the_same_bits_in_another_process(rng, rows, tmp_path) -> None:
    new, folders = tmp_path / "new.csv", []
    table(rng, 200).drop(columns=["late", "price"]).to_csv(new, index=False)
    for name, parameter in {**ENSEMBLES, "hgb": "max_iter"}.items():
        folders.append(tmp_path / name)
        command = ["fit", name, rows, "--target", "late", "--exclude", "price", "-p", f"{parameter}=10", "-m", 800]
        assert run(*command, "--predict", new, "-o", folders[-1]) == 0
    subprocess.run([sys.executable, "-c", _PREDICT, str(new), *map(str, folders)], check=True, capture_output=True)
    for folder in folders:
        now, later = (pq.read_table(folder / file) for file in ("predictions.parquet", "later.parquet"))
        assert now.equals(later) and {"prediction"} < set(now.column_names)
