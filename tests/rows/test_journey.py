"""An ordinary table, with every kind of column and every trouble, goes through every command in every format."""

import importlib
import io
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from example_table import text_table, typed_table

from tithe import (
    CoresetEstimator,
    CoresetKMeans,
    CoresetLogisticRegression,
    CoresetRidge,
    build_coreset,
    load_coreset,
    load_model,
    open_dataset,
)
from tithe.cli.main import main
from tithe.objectives import KMeansObjective
from tithe.odm import LinearODMClassifier
from tithe.storage.coresets import load_schema

FORMATS = ("csv", "parquet", "frame")
LEARNERS = {
    "kmeans": lambda: CoresetKMeans(3, coreset_size=200, random_state=0),
    "logistic": lambda: CoresetLogisticRegression(coreset_size=200, random_state=0),
    "odm": lambda: LinearODMClassifier(coreset_size=200, random_state=0),
    "ridge": lambda: CoresetRidge(coreset_size=200, random_state=0),
}
TARGETS = {"kmeans": None, "logistic": "churned", "odm": "churned", "ridge": "spent"}


def run(*arguments) -> int:
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def labelled(n_rows: int, seed: int) -> pa.Table:
    """The example with two targets, one of which has gaps; the numbers of a column of text have an odd value."""
    table = typed_table(n_rows, seed)
    rng = np.random.default_rng(seed + 1)
    age = table.column("age").fill_null(40).to_numpy().astype(float)
    red = np.array(table.column("colour").to_pylist()) == "red"
    score = (age - 50) / 15 + red + rng.normal(size=n_rows)
    churned = [None if i % 50 == 7 else "yes" if s > 0 else "no" for i, s in enumerate(score)]
    odd = ["?" if i % 40 == 3 else f"{v:.3f}" for i, v in enumerate(rng.normal(size=n_rows))]
    table = table.append_column("reading", pa.array(odd)).append_column("churned", pa.array(churned))
    return table.append_column("spent", pa.array(np.round(100 * score, 3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Training rows and others in every format; the others have other values, gaps and order of columns."""
    folder = tmp_path_factory.mktemp("journey")
    train, new = labelled(400, 0), labelled(60, 5)
    colours = [value if i % 5 else "purple" for i, value in enumerate(new.column("colour").to_pylist())]
    new = new.set_column(new.column_names.index("colour"), "colour", pa.array(colours))
    incomes = [None if i % 7 == 0 else value for i, value in enumerate(new.column("income").to_pylist())]
    new = new.set_column(new.column_names.index("income"), "income", pa.array(incomes))
    new = new.drop_columns(["customer_id", "country"]).select(
        sorted(set(new.column_names) - {"customer_id", "country"})
    )
    for name, table in (("train", train), ("new", new)):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=90)
        pyarrow.csv.write_csv(text_table(table), folder / f"{name}.csv")
    return folder


def opened(folder, name: str, format: str, **options):
    where = pd.read_parquet(folder / f"{name}.parquet") if format == "frame" else folder / f"{name}.{format}"
    return open_dataset(where, **options)


def rows_of(source):
    blocks = [task() for task in source.tasks(leaf_rows=70)]
    return np.concatenate([block.X for block in blocks]), np.concatenate([block.row_ids() for block in blocks])


def test_every_format_gives_the_same_rows(folder) -> None:
    sources = [opened(folder, "train", format, target="churned", exclude=["spent"]) for format in FORMATS]
    assert sources[0].schema == sources[1].schema == sources[2].schema
    rows = [rows_of(source) for source in sources]
    assert np.isfinite(rows[0][0]).all() and rows[0][0].shape == (392, sources[0].n_features)
    for X, ids in rows[1:]:
        assert (rows[0][0] == X).all() and (ids == rows[0][1]).all()
    kinds = {column.name: column.what for column in sources[0].schema.columns}
    assert kinds["reading"] == "number" and kinds["spent"] == "excluded" and kinds["customer_id"] == "identifier"
    new = [rows_of(opened(folder, "new", format, schema=sources[0].schema)) for format in FORMATS]
    assert new[0][0].shape == (60, sources[0].n_features)
    assert all((new[0][0] == X).all() for X, _ in new)


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_format_gives_the_same_model_and_predictions(folder, learner) -> None:
    predictions = []
    for format in FORMATS:
        options = {"target": TARGETS[learner], "exclude": [t for t in ("churned", "spent") if t != TARGETS[learner]]}
        model = LEARNERS[learner]().fit(opened(folder, "train", format, **options))
        assert model.schema_.n_features == model.n_encoded_ and model.n_features_in_ == 10
        new = pd.read_parquet(folder / "new.parquet")
        predictions.append([model.predict(new), model.predict(pd.read_csv(folder / "new.csv"))])
    first = predictions[0][0]
    assert all(np.array_equal(first, other) for pair in predictions for other in pair)
    assert len(np.unique(first)) > 1


TREES = "sklearn.ensemble.HistGradientBoostingClassifier"


@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        (TREES, "churned", ["-p", "max_iter=20"]),
        ("sklearn.naive_bayes.GaussianNB", "churned", []),
        ("sklearn.linear_model.Ridge", "spent", ["-p", "alpha=2.5"]),
    ],
)
def test_an_installed_estimator(folder, tmp_path, capsys, name, target, options) -> None:
    other = "spent" if target == "churned" else "churned"
    given = [*options, "--target", target, "--exclude", other, "-m", 200, "--holdout", 0]
    written = []
    for format in ("csv", "parquet"):
        out = tmp_path / format
        assert run("fit", name, folder / f"train.{format}", *given, "--predict", folder / "new.csv", "-o", out) == 0
        written.append(pd.read_parquet(out / "predictions.parquet"))
        more = tmp_path / "p.parquet"
        proba = ["--proba"] if target == "churned" else []
        assert run("predict", out / "model.tithe", folder / "new.parquet", *proba, "-o", more) == 0
        written.append(pd.read_parquet(more))
    for other_rows in written[1:]:
        pd.testing.assert_frame_equal(written[0], other_rows)
    module, _, cls = name.rpartition(".")
    estimator = getattr(importlib.import_module(module), cls)()
    estimator.set_params(**{option.split("=")[0]: json.loads(option.split("=")[1]) for option in options[1::2]})
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    model = CoresetEstimator(estimator, coreset_size=200, validation_fraction=0.0, random_state=0)
    model.fit(opened(folder, "train", "frame", target=target, exclude=[other]))
    frame = pd.read_parquet(folder / "new.parquet")
    assert written[0]["prediction"].tolist() == model.predict(frame).tolist()
    assert json.loads((out / "results.json").read_text())["parameters"]["estimator"].startswith(cls)


@pytest.mark.parametrize("name", ["sklearn.nothing.At", "sklearn.linear_model.Nothing", "tithe.open_dataset"])
def test_what_is_no_installed_estimator(folder, tmp_path, capsys, name) -> None:
    assert run("fit", name, folder / "train.csv", "--target", "churned", "-o", tmp_path / "out") == 2
    assert f"no estimator '{name}'" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("learner", LEARNERS)
def test_from_fit_to_predict_on_the_command_line(folder, tmp_path, learner, capsys) -> None:
    target = TARGETS[learner]
    others = ",".join(t for t in ("churned", "spent") if t != target)
    options = ["--exclude", others, "-m", 200, *(["--target", target] if target else ["-k", 3])]
    written = []
    for format in ("csv", "parquet"):
        out = tmp_path / format
        assert run("fit", learner, folder / f"train.{format}", *options, "-o", out) == 0
        model = load_model(out / "model.tithe")
        assert load_schema(out / "coreset.parquet") == model.schema_
        for new in ("csv", "parquet"):
            output = tmp_path / f"{format}-{new}.csv"
            assert run("predict", out / "model.tithe", folder / f"new.{new}", "-o", output) == 0
            written.append(pd.read_csv(output))
        here = model.predict(pd.read_parquet(folder / "new.parquet"))
        assert written[-1]["prediction"].tolist() == here.tolist()
    for other in written[1:]:
        pd.testing.assert_frame_equal(written[0], other)
    if target == "churned":
        assert json.loads((tmp_path / "csv" / "results.json").read_text())["n_skipped"] == 8
    assert run("predict", out / "model.tithe", folder / "new.csv", "--scale", "none", "-o", tmp_path / "p.csv") == 2
    assert "--scale" in capsys.readouterr().err


def test_build_stream_and_inspect(folder, tmp_path, capsys, monkeypatch) -> None:
    options = ["--exclude", "churned,spent", "-k", 3, "-m", 100]
    coresets = []
    for format in ("csv", "parquet"):
        out = tmp_path / f"{format}.parquet"
        assert run("build", folder / f"train.{format}", *options, "-o", out) == 0
        coresets.append(load_coreset(out))
        capsys.readouterr()
        assert run("inspect", out) == 0
        said = capsys.readouterr().out
        assert "identifier" in said and "left out" in said and "one feature for each of 3 values" in said
    frame = open_dataset(pd.read_parquet(folder / "train.parquet"), exclude=["churned", "spent"])
    coresets.append(build_coreset(frame, objective=KMeansObjective(n_clusters=3), coreset_size=100, random_state=0))
    for other in coresets[1:]:
        assert (other.X == coresets[0].X).all() and (other.weights() == coresets[0].weights()).all()
    streamed = []
    for format in ("csv", "parquet"):
        out = tmp_path / f"stream-{format}.parquet"
        assert run("stream", folder / f"train.{format}", *options, "-o", out) == 0
        schema = load_schema(out)
        rows = (folder / "new.csv").read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
        assert run("stream", "-", *options, "--resume", "-o", out) == 0  # later rows become the same features
        assert load_schema(out) == schema
        streamed.append(load_coreset(out))
    assert streamed[0].n_seen == 460
    assert (streamed[0].X == streamed[1].X).all()


def test_a_frame_is_fitted_directly(folder) -> None:
    frame = pd.read_parquet(folder / "train.parquet")
    frame = frame[frame["churned"].notna()]
    X, y = frame.drop(columns=["churned", "spent"]), frame["churned"]
    model = CoresetLogisticRegression(coreset_size=200, random_state=0).fit(X, y)
    new = pd.read_parquet(folder / "new.parquet")
    assert model.predict_proba(new).shape == (60, 2)
    assert model.score(X.iloc[:, ::-1], y) > 0.7
    assert "certainly" not in str(model.certify(X, y))
    streamed = CoresetKMeans(3, coreset_size=200, random_state=0)
    streamed.partial_fit(X[:200])
    streamed.partial_fit(X[200:].iloc[:, ::-1])
    assert streamed.solve().cluster_centers_.shape == (3, streamed.schema_.n_features)
    for plain in (pd.DataFrame({"a": np.arange(40.0), "b": np.ones(40)}), pd.DataFrame(np.eye(4))):
        assert CoresetKMeans(2, random_state=0).fit(plain).schema_ is None
    numbered = pd.DataFrame({0: [1.0, 2.0, None, 5.0], 1: ["u", "v", "u", "v"]})
    assert CoresetKMeans(2, random_state=0).fit(numbered).schema_.reads == ["0", "1"]
    with pytest.raises(ValueError, match="no column 'colour'"):
        model.predict(new.drop(columns="colour"))


def test_a_column_names_the_rows(folder, tmp_path, capsys) -> None:
    """It is no feature, also where it looks like one, and stands beside predictions and typical rows."""
    table = labelled(400, 0)
    names = [f"{(7 * i) % 400:04}" for i in range(400)]
    table = table.append_column("desk", pa.array([int(name) for name in names])).drop_columns(["churned"])
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=90)
    text = text_table(table).to_pandas()
    lines = text.to_csv(index=False).splitlines(keepends=True)
    (tmp_path / "rows.csv").write_text("".join([*lines[:31], "1,2,3\n", *lines[32:]]))  # row 30 is bad
    predicted = []
    for format in ("parquet", "csv"):
        out, new = tmp_path / format, tmp_path / f"{format}.csv"
        options = ["--row-id", "desk", "--bad-rows", "skip"]
        assert run("fit", "kmeans", tmp_path / f"rows.{format}", "-k", 3, "-m", 200, *options, "-o", out) == 0
        model = load_model(out / "model.tithe")
        assert "desk" not in model.schema_.reads and model.schema_.row_id == "desk"
        clusters = json.loads((out / "results.json").read_text())["clusters"]
        assert [int(c["typical_row_name"]) for c in clusters] == [int(names[c["typical_row"]]) for c in clusters]
        assert clusters[0]["typical_row_name"] in capsys.readouterr().out
        assert run("predict", out / "model.tithe", tmp_path / f"rows.{format}", *options, "-o", new) == 0
        predicted.append(pd.read_csv(new))
    typed, text = predicted
    assert typed.columns.tolist() == ["row_id", "desk", "prediction"]
    assert typed["desk"].tolist() == [int(name) for name in names]
    assert text["desk"].isna().tolist() == [i == 30 for i in range(400)]
    assert text["desk"].drop(30).tolist() == typed["desk"].drop(30).tolist()
    for command in ("build", "stream"):
        out = tmp_path / f"{command}.parquet"
        assert run(command, tmp_path / "rows.csv", "-k", 3, "-m", 100, *options, "-o", out) == 0
        assert load_schema(out).row_id == "desk"
    assert run("fit", "kmeans", tmp_path / "rows.csv", "--row-id", "nowhere", "-o", tmp_path / "out") == 2
    assert "no column 'nowhere'" in capsys.readouterr().err
