"""Tables as people have them: what becomes of frames everywhere, and what is said where it matters."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from running import run
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import tithe
from tithe.objectives import KMeansObjective

GOAL = KMeansObjective(n_clusters=3)


def table(n: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 500_000, n), unit="min")
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(9.0, 3.0, n), "when": when})
    return frame.assign(city=rng.choice(["Graz", "Wien", "Linz"], n))


def late(frame: pd.DataFrame, seed: int = 1) -> np.ndarray:
    hour = frame["when"].dt.hour
    z = frame["a"] + 2.0 * np.sin(2 * np.pi * hour / 24) + 0.3 * frame["b"] - 2.7
    return np.where(z + np.random.default_rng(seed).logistic(size=len(frame)) > 0, "late", "on time")


# -- one switch ------------------------------------------------------------------------------------


def test_frames_are_taken_alike_everywhere() -> None:
    frame = table()
    y = late(frame)
    model = tithe.CoresetLogisticRegression(random_state=0).fit(frame, y)
    X = model.schema_.encode(pa.Table.from_pandas(frame))
    by_parts = tithe.CoresetLogisticRegression(random_state=0).partial_fit(frame, y, classes=np.unique(y))
    np.testing.assert_allclose(by_parts.solve().coef_, model.coef_, rtol=1e-9)
    assert model.certify(frame, y).relative_excess < 1e-6
    coreset = tithe.build_coreset(frame, objective=GOAL, coreset_size=100, random_state=0)
    same = tithe.build_coreset(X, objective=GOAL, coreset_size=100, random_state=0)
    np.testing.assert_array_equal(coreset.X, same.X)
    assert coreset.schema == model.schema_ and same.schema is None
    errors = [tithe.distortion(rows, coreset, GOAL, random_state=1, climb=2).worst for rows in (frame, X)]
    assert errors[0] == errors[1]
    stream = tithe.CoresetStream(GOAL, coreset_size=100, random_state=0).push(frame[:500]).push(frame[500:])
    assert stream.coreset().n_features == stream.coreset().schema.n_features


def test_numbers_as_python_objects_keep_their_units() -> None:
    frame = table()[["a", "b"]]
    typed = tithe.build_coreset(frame, objective=GOAL, coreset_size=100, random_state=0)
    for encode in ("auto", False):
        same = tithe.build_coreset(
            frame.astype({"a": object}), objective=GOAL, coreset_size=100, random_state=0, encode=encode
        )
        np.testing.assert_array_equal(same.X, typed.X)
        assert same.schema is None
    model = tithe.CoresetKMeans(2, random_state=0).fit(frame.astype(object))
    assert model.schema_ is None
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.astype(object)))
    for value in (None, np.nan, np.inf, "x", True, pd.Timedelta(1), np.timedelta64(1, "s"), 2**1024):
        values = pd.Series([value, *frame["a"][1:]], dtype=object)
        with pytest.raises(ValueError, match=r"Column 'a' is not numeric \(Object\)"):
            tithe.CoresetKMeans(2, encode=False).fit(frame.assign(a=values))


def test_a_stream_with_a_schema_is_resumed_forked_and_merged(tmp_path) -> None:
    frame = table()
    stream = tithe.CoresetStream(GOAL, coreset_size=50, leaf_size=200, random_state=0).push(frame[:400])
    stream.checkpoint(tmp_path / "state")
    again = tithe.CoresetStream.resume(tmp_path / "state").push(frame[400:])
    np.testing.assert_array_equal(again.coreset().X, stream.push(frame[400:]).coreset().X)
    with pytest.warns(tithe.EncodingWarning, match="'city': of 600 values 600 unknown"):
        other = again.fork().push(frame.assign(city="Rom"))
    assert again.merge(other).coreset().schema == stream.coreset().schema
    stranger = tithe.CoresetStream(GOAL, coreset_size=50, leaf_size=200, random_state=0).push(table(600, seed=5))
    with pytest.raises(ValueError, match="became features in different ways"):
        stream.merge(stranger)


def test_coresets_of_different_features_are_not_merged(tmp_path) -> None:
    parts = [
        tithe.build_coreset(table(600, seed), objective=GOAL, coreset_size=90, random_state=seed) for seed in (0, 1)
    ]
    with pytest.raises(ValueError, match="became features in different ways"):
        tithe.merge_coresets(parts)
    tithe.save_coreset(parts[0], tmp_path / "c.parquet")
    assert tithe.load_coreset(tmp_path / "c.parquet").schema == parts[0].schema


@pytest.mark.parametrize("encode", ["auto", True, False])
def test_the_switch(encode) -> None:
    numbers = table()[["a", "b"]]
    y = numbers["a"].to_numpy() > 0.1
    model = tithe.CoresetLogisticRegression(C=0.1, encode=encode, random_state=0).fit(numbers, y)
    assert (model.schema_ is None) == (encode is not True)
    if encode is not True:
        np.testing.assert_allclose(model.coef_, LogisticRegression(C=0.1, tol=1e-10).fit(numbers, y).coef_, rtol=1e-2)
    gap = numbers.assign(b=numbers["b"].where(numbers["b"] < 12.0))
    learn = [
        lambda rows: tithe.CoresetKMeans(2, encode=encode, random_state=0).fit(rows),
        lambda rows: tithe.CoresetStream(GOAL, coreset_size=100, encode=encode, random_state=0).push(rows),
        lambda rows: tithe.build_coreset(rows, objective=GOAL, coreset_size=100, encode=encode, random_state=0),
    ]
    for act in learn:
        if encode is True:
            act(gap)
        else:
            with pytest.raises(ValueError, match=r"NaN.*'b' has \d+ such values.*encode=True"):
                act(gap)
        if encode is False:
            with pytest.raises(ValueError, match="'city' is not numeric"):
                act(table().drop(columns="when"))
    with pytest.raises(ValueError, match="encode must be"):
        tithe.build_coreset(numbers, objective=GOAL, coreset_size=100, encode="yes")


def test_learners_without_the_switch_say_how_they_take_frames() -> None:
    frame = table(300)
    y, rows = late(frame), frame.assign(id=[f"{i:08x}" for i in np.random.default_rng(1).permutation(300)])
    learner = tithe.CoresetLogisticRegression(encode="strict", random_state=0)
    search = tithe.CoresetSearchCV(learner, {"C": [1.0]}, coreset_size=100, cv=2, random_state=0)
    assert search.frame_encoding == "strict"
    with pytest.raises(ValueError, match="encode='strict', and the encoding of these columns loses"):
        search.fit(rows, y)
    model = tithe.dictionary.KSVD(3, max_iter=1, random_state=0)  # whose `encode` gives codes
    assert model.fit(frame).schema_ is not None and model.encode(frame).shape == (300, 3)
    assert model.fit(frame[["a", "b"]]).schema_ is None


def test_gaps_are_passed_on_to_a_learner_that_takes_them() -> None:
    frame = table()[["a", "b"]]
    y = late(table())
    frame["a"] = frame["a"].where(frame["a"] < 1.0)
    model = tithe.CoresetEstimator(HistGradientBoostingClassifier(max_iter=5), random_state=0).fit(frame, y)
    assert model.predict(frame).shape == (600,) and model.n_features_in_ == 2
    with pytest.raises(ValueError, match="NaN"):
        tithe.CoresetEstimator(LogisticRegression(), random_state=0).fit(frame, y)


def test_names_are_those_of_the_input_and_of_the_features() -> None:
    frame = table()
    model = tithe.CoresetLogisticRegression(random_state=0).fit(frame, late(frame))
    assert model.n_features_in_ == 4 and model.feature_names_in_.tolist() == ["a", "b", "when", "city"]
    assert model.get_feature_names_out().tolist() == model.schema_.feature_names
    assert model.n_encoded_ == model.coef_.shape[1] == len(model.get_feature_names_out())
    with pytest.raises(ValueError, match="X has 4 features"):
        model.predict(np.zeros((2, 4)))
    plain = tithe.CoresetRidge(random_state=0).fit(np.eye(5), np.arange(5.0))
    assert plain.n_features_in_ == 5 and plain.get_feature_names_out().tolist() == [f"x{i}" for i in range(5)]
    clusters = tithe.CoresetKMeans(2, random_state=0).fit(frame)
    assert clusters.get_feature_names_out().tolist() == ["coresetkmeans0", "coresetkmeans1"]


# -- prediction watches ----------------------------------------------------------------------------


def test_a_prediction_says_what_training_had_not() -> None:
    frame = table()
    model = tithe.CoresetLogisticRegression(random_state=0).fit(frame, late(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tithe.EncodingWarning)
        model.predict(frame)
    odd = frame.assign(city="Rom", b=frame["b"].where(frame.index > 2), a=frame["a"].where(frame.index > 4, 1e6))
    with pytest.warns(tithe.EncodingWarning) as caught:
        model.predict(odd)
    said = str(caught[0].message)
    assert "'a': of 600 values 5 far outside" in said and "'b': of 600 values 3 missing" in said
    assert "'city': of 600 values 600 unknown" in said and len(caught) == 1
    for column, values in {"a": "text", "when": 3.5}.items():
        with pytest.raises(ValueError, match=f"Column '{column}'"):
            model.predict(frame.assign(**{column: values}))


@pytest.mark.filterwarnings("always::tithe.EncodingWarning")
def test_commands_say_what_becomes_of_columns_and_watch(tmp_path, capfd) -> None:
    frame = table(400).assign(id=np.random.default_rng(3).permutation(400), late=late(table(400)))
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.assign(a="x").to_csv(tmp_path / "text.csv", index=False)
    odd = frame.assign(city="Rom", a=frame["a"].astype(object).where(frame.index > 9, "soon"))
    odd.to_csv(tmp_path / "odd.csv", index=False)
    train, out = tmp_path / "train.csv", tmp_path / "out"
    assert run("fit", "logistic", train, "--target", "late", "--strict", "-o", out) == 2
    assert "'id': left out" in capfd.readouterr().err and not out.exists()
    assert run("fit", "logistic", train, "--target", "late", "--test", tmp_path / "odd.csv", "-o", out) == 0
    said = capfd.readouterr()
    assert "city  category" in said.err and "'id': left out" in said.err
    results = json.loads((out / "results.json").read_text())
    lost = {column["column"]: column["lost"] for column in results["columns"]}
    assert lost["id"].startswith("left out") and not lost["city"]
    assert {c["name"]: c["unreadable"] + c["unseen"] for c in results["test_columns"]} == {"a": 10, "city": 400}
    command = ["--target", "late", "--predict", tmp_path / "odd.csv", "-o", tmp_path / "new"]
    assert run("fit", "logistic", train, *command) == 0
    predicted = json.loads((tmp_path / "new" / "results.json").read_text())
    assert predicted["test_columns"] == results["test_columns"] and predicted["learner"] == "logistic"
    page = (out / "report.html").read_text()
    assert page.index("Columns of the table") < page.index("Coefficients") and "left out: every row" in page
    assert run("predict", out / "model.tithe", tmp_path / "odd.csv", "-o", tmp_path / "p.csv") == 0
    said = capfd.readouterr()
    assert "10 not readable" in said.out and "'city': of 400 values 400 unknown" in said.err
    assert run("predict", out / "model.tithe", tmp_path / "text.csv", "-o", tmp_path / "p.csv") == 2
    assert "Column 'a' holds text such as 'x'" in capfd.readouterr().err


@pytest.mark.parametrize(
    "learn",
    [
        lambda rows, y, e: tithe.CoresetLogisticRegression(encode=e).fit(rows, y),
        lambda rows, y, e: tithe.CoresetEstimator(HistGradientBoostingClassifier(max_iter=2), encode=e).fit(rows, y),
        lambda rows, y, e: tithe.CoresetStream(GOAL, coreset_size=100, encode=e).push(rows),
        lambda rows, y, e: tithe.build_coreset(rows, objective=GOAL, coreset_size=100, encode=e),
        lambda rows, y, e: tithe.odm.IncrementalODMClassifier(encode=e).fit(rows, y),
    ],
    ids=["logistic", "trees", "stream", "coreset", "incremental"],
)
def test_losses_of_frames_are_errors_where_they_are_asked_for(learn) -> None:
    rows = table(300)
    y = rows["a"].to_numpy() > 0.1
    rows["id"] = [f"{i:08x}" for i in np.random.default_rng(1).permutation(300)]
    with pytest.raises(ValueError, match="encode='strict', and the encoding of these columns loses") as refused:
        learn(rows, y, "strict")
    assert "'id'" in str(refused.value)
    with pytest.warns(tithe.EncodingWarning, match="encode='strict' refuses it") as said:
        learn(rows, y, "auto")
    assert len(said) == 1


def test_lazy_frames_are_refused_with_the_remedy() -> None:
    rows = pl.DataFrame({"a": np.arange(300.0), "b": np.arange(300.0) % 7})
    y = (rows["b"] > 3).to_numpy()
    model = tithe.CoresetLogisticRegression().fit(rows, y)
    coreset = tithe.build_coreset(rows, objective=GOAL, coreset_size=50, random_state=0)
    lazy = rows.lazy()
    for act in (
        lambda: model.predict(lazy),
        lambda: model.partial_fit(lazy, y, classes=[False, True]),
        lambda: tithe.CoresetStream(GOAL, coreset_size=50).push(lazy),
        lambda: tithe.distortion(lazy, coreset, GOAL),
    ):
        with pytest.raises(ValueError, match=r"LazyFrame.*X\.collect\(\)"):
            act()


def test_arrays_after_frames_are_refused_with_the_remedy() -> None:
    rows = table(600)
    stream = tithe.CoresetStream(GOAL, coreset_size=90, random_state=0).push(rows)
    coreset = tithe.build_coreset(rows, objective=GOAL, coreset_size=90, random_state=0)
    for act in (
        lambda: stream.push(np.zeros((20, 5))),
        lambda: stream.push(sparse.csr_matrix((20, 5))),
        lambda: tithe.distortion(np.zeros((20, 5)), coreset, GOAL),
    ):
        with pytest.raises(ValueError, match=r"X has 5 features without names.*give a frame with its \d columns \("):
            act()
    of_two = tithe.build_coreset(np.zeros((20, 2)), objective=GOAL, coreset_size=9)
    with pytest.raises(ValueError, match="The rows have 5 columns, and the coreset has 2"):
        tithe.distortion(np.zeros((20, 5)), of_two, GOAL)


def test_gaps_of_the_target_are_named_everywhere() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    model = tithe.CoresetLogisticRegression().fit(X, y)
    y[7] = None
    for act in (
        lambda: tithe.CoresetLogisticRegression().fit(X, y),
        lambda: tithe.CoresetLogisticRegression().partial_fit(X, y, classes=["no", "yes"]),
        lambda: model.certify(X, y),
        lambda: tithe.build_coreset(X, y, objective="logistic", coreset_size=50),
    ):
        with pytest.raises(ValueError, match="no value in 1 of 300 rows, first in row 7"):
            act()


def test_numbers_far_outside_are_counted_without_a_schema_too(tmp_path) -> None:
    rows = table(600)[["a", "b"]]
    model = tithe.CoresetLogisticRegression().fit(rows, rows["a"] > 0.1)
    tithe.save_model(model, tmp_path / "model.tithe")
    far = rows.assign(b=np.where(np.arange(600) < 20, 1e6, rows["b"]))
    for watching in (model, tithe.load_model(tmp_path / "model.tithe")):
        with pytest.warns(tithe.EncodingWarning, match=r"'b': of 600 values 20 far outside the range"):
            watching.predict(far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(rows)
        model.fit(rows.to_numpy(), rows["a"] > 0.1).predict(far.to_numpy())  # arrays have no names to tell
        streamed = tithe.CoresetLogisticRegression().partial_fit(rows, rows["a"] > 0.1, classes=[False, True])
        streamed.partial_fit(far, rows["a"] > 0.1)
