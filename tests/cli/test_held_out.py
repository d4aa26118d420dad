"""Scores of ``tithe fit`` on rows that it has not learned from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from running import PLAIN, rows_table, run, write_folder
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    f1_score,
    log_loss,
    r2_score,
    roc_auc_score,
)

from tithe import CoresetLogisticRegression, load_coreset, load_model, open_dataset
from tithe.core.passes import DataPass
from tithe.core.seeding import Split, key_of, uniform_of
from tithe.report.scores import held_out_scores
from tithe.rows.leaves import SplitSource

COLUMNS = ["c0", "c1", "c2", "c3"]


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "data", rows_table(6000), 3)


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


def is_held_out(n_rows: int, share: float, seed: int = 0) -> np.ndarray[Any, Any]:
    return uniform_of(np.arange(n_rows), key_of(seed, "held out")) < share


def test_a_classifier(folder, tmp_path, capsys, small_leaves) -> None:
    out = tmp_path / "out"
    assert run("fit", "logistic", folder, "--target", "label", "-m", 400, "--holdout", 0.2, "-o", out) == 0
    printed, said = capsys.readouterr().out, results(out)
    rows, model = pq.read_table(folder).to_pandas(), load_model(out / "model.tithe")
    aside = is_held_out(6000, 0.2)
    new = rows[aside]
    chances = model.predict_proba(new[COLUMNS])
    assert said["held_out"]["n_rows"] == said["n_held_out"] == len(new) and said["n_rows"] == 6000 - len(new)
    details = said["held_out"]["details"]
    event = (new["label"] == "yes").mean() <= 0.5
    name = "yes" if event else "no"
    happened, chance, predicted = new["label"] == name, chances[:, int(event)], model.predict(new[COLUMNS])
    assert details["event"]["label"] == details["chance_of"] == name
    assert said["held_out"]["scores"] == pytest.approx(
        {
            "accuracy": accuracy_score(new["label"], predicted),
            "baseline": new["label"].value_counts(normalize=True).iloc[0],
            "log_loss": log_loss(new["label"], chances),
            "auc": roc_auc_score(happened, chance),
            "average_precision": average_precision_score(happened, chance),
            "f1": f1_score(happened, predicted == name),
        }
    )
    table = confusion_matrix(new["label"], model.predict(new[COLUMNS]))
    assert details["confusion"] == {"classes": ["no", "yes"], "weights": table.tolist()}
    observed, predicted = calibration_curve(happened, chance, n_bins=10, strategy="quantile")
    groups = details["reliability"]
    np.testing.assert_allclose([group["predicted"] for group in groups], predicted, atol=0.01)
    np.testing.assert_allclose([group["observed"] for group in groups], observed, atol=0.05)
    assert sum(group["weight"] for group in groups) == len(new)
    page = (out / "report.html").read_text()
    assert "how they were predicted" in page and f"Is a predicted chance of {name} right?" in page
    assert said["certificate"]["sentence"] in page and model.certificate_.in_short in page
    assert not aside[load_coreset(out / "coreset.parquet").row_ids()].any()
    # the certificate is about the others
    assert said["certificate"]["n_rows"] == 6000 - len(new)
    alone = CoresetLogisticRegression(coreset_size=400, random_state=0)
    split = Split(key_of(0, "held out"), 0.2, held_out=False)
    alone.fit(SplitSource(open_dataset(folder, target="label"), split))
    np.testing.assert_array_equal(alone.coef_, model.coef_)
    for text in (printed, (out / "report.html").read_text()):
        assert f"AUC {said['held_out']['scores']['auc']:.4g}" in text and f"{len(new):,} rows that the model" in text


def test_rows_of_rare_classes_are_not_held_out(tmp_path) -> None:
    rows = rows_table(3000).to_pandas()
    rows.loc[np.flatnonzero(is_held_out(3000, 0.05))[:2], "label"] = "rare"  # both would be
    rows.to_csv(tmp_path / "rows.csv", index=False)
    assert run("fit", "logistic", tmp_path / "rows.csv", "--target", "label", "-o", tmp_path / "out") == 0
    assert load_model(tmp_path / "out" / "model.tithe").classes_.tolist() == ["no", "rare", "yes"]
    assert results(tmp_path / "out")["held_out"]["n_rows"] == is_held_out(3000, 0.05).sum() - 2


def test_few_rows_are_all_learned_from_after_the_scores(tmp_path, capsys) -> None:
    rows, aside = rows_table(2000).to_pandas()[["c0", "c1", "label"]], is_held_out(2000, 0.05)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    command = ["fit", "logistic", tmp_path / "rows.csv", "--target", "label", "--scale", "none"]
    assert run(*command, "-o", tmp_path / "out") == 0 and "fitted again, to all rows" in capsys.readouterr().out
    assert run(*command, "--holdout", 0, "-o", tmp_path / "all") == 0
    ours, alone = (load_model(tmp_path / name / "model.tithe") for name in ("out", "all"))
    np.testing.assert_array_equal(ours.coef_, alone.coef_)
    said = results(tmp_path / "out")
    assert said["n_rows"] == 2000 and said["n_held_out"] == 0 and said["held_out"]["learned_later"]
    X, y = rows[["c0", "c1"]].to_numpy(), rows["label"].to_numpy()
    others = CoresetLogisticRegression(random_state=0).fit(X[~aside], y[~aside])
    expected = log_loss(y[aside], others.predict_proba(X[aside]))
    assert said["held_out"]["scores"]["log_loss"] == pytest.approx(expected, rel=1e-4)
    assert "fitted again, to all rows" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_the_size_of_a_fit_is_chosen_for_an_error(folder, tmp_path, capsys) -> None:
    command = ["fit", "logistic", folder, "--target", "label", "--polish", 0, "-o", tmp_path / "out"]
    kept = []
    for eps in (0.3, 0.02):
        assert run(*command, "--eps", eps) == 0
        assert f"for an error of {eps}: a fit on it costs at most" in capsys.readouterr().err
        kept.append(results(tmp_path / "out")["rows_kept"])
    assert kept[0] < kept[1] < 3000
    assert results(tmp_path / "out")["certificate"]["relative_excess"] < 0.02
    assert run(*command, "--eps", 0.1, "-m", 100) == 2 and "not both" in capsys.readouterr().err


def test_clusters(folder, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert run("fit", "kmeans", folder, "--columns", "c0,c1", "-k", 3, "-m", 300, "-o", out) == 0
    said, model = results(out), load_model(out / "model.tithe")
    X, aside = pq.read_table(folder).to_pandas()[["c0", "c1"]], is_held_out(6000, 0.05)
    expected = {
        "cost_per_row": -model.score(X[aside]) / aside.sum(),
        "training_cost_per_row": -model.score(X[~aside]) / (~aside).sum(),
    }
    assert said["held_out"]["scores"] == pytest.approx(expected)
    assert "cost per row" in capsys.readouterr().out


def test_a_regression_on_another_file(folder, tmp_path) -> None:
    out, new = tmp_path / "out", rows_table(500, seed=1).drop_columns("label").to_pandas()
    new.to_csv(tmp_path / "new.csv", index=False)
    command = ["fit", "ridge", folder, "--columns", "c0,c1", "--target", "c2", "-m", 300, "-o", out]
    assert run(*command, "--test", tmp_path / "new.csv") == 0
    said, model = results(out), load_model(out / "model.tithe")
    assert said["n_rows"] == 6000 and said["n_held_out"] == 0 and said["held_out"]["n_rows"] == 500
    expected = r2_score(new["c2"], model.predict(new[["c0", "c1"]]))
    assert said["held_out"]["scores"]["r2"] == pytest.approx(expected)


def test_no_scores(folder, tmp_path, capsys) -> None:
    few = write_folder(tmp_path / "few", rows_table(300), 1)
    for where, more in ((folder, ["--holdout", 0]), (few, [])):
        command = ["fit", "kmeans", where, "--columns", "c0,c1", "-k", 3, "-m", 200, *more, "-o", tmp_path / "out"]
        assert run(*command) == 0
        assert "No scores" in capsys.readouterr().out and results(tmp_path / "out")["held_out"] is None


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--holdout", 0.1, "--test", "x.csv"], "not both"), (["--test", "missing.csv"], "missing.csv")],
)
def test_what_cannot_be_scored_is_refused_at_once(folder, tmp_path, capsys, more, said: str) -> None:
    command = ["fit", "kmeans", folder, "--columns", "c0,c1", "-k", 3, *more, "-o", tmp_path / "out"]
    assert run(*command) == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bad_rows_and_rows_held_out_are_counted_apart(tmp_path) -> None:
    frame = rows_table(2000).to_pandas()[COLUMNS]
    frame.loc[::100, "c1"] = np.nan
    frame.to_parquet(tmp_path / "rows.parquet")
    command = ["fit", "kmeans", tmp_path / "rows.parquet", "-k", 3, "-m", 200, "--bad-rows", "skip"]
    assert run(*command, *PLAIN, "-o", tmp_path / "out") == 0
    said = results(tmp_path / "out")
    assert said["n_skipped"] == 20 and said["n_rows"] + said["n_held_out"] == 1980


def test_rows_of_unknown_classes_are_wrong(rng: np.random.Generator, tmp_path) -> None:
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, "a", "b")
    model = CoresetLogisticRegression().fit(X, y)
    frame = pd.DataFrame(X, columns=["p", "q"]).assign(y=np.where(np.arange(300) < 30, "other", y))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said = held_out_scores(model, DataPass(open_dataset(tmp_path / "rows.csv", target="y", scale="none")), "rows")
    assert said is not None and said.scores["accuracy"] == pytest.approx(np.mean(model.predict(X)[30:] == y[30:]) * 0.9)
    assert said.scores["log_loss"] == pytest.approx(log_loss(y[30:], model.predict_proba(X[30:]), labels=["a", "b"]))
