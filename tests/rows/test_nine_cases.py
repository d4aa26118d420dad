"""Nine tables as strangers bring them, whose encoding once misled without a word: none of them does any more."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import OneHotEncoder

import tithe


def table(n: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, a date and a category, and what is told from them."""
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 365 * 24, n), unit="h")
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(9.0, 3.0, n), "when": when})
    z = frame["a"] + 2.0 * np.sin(2 * np.pi * frame["when"].dt.hour / 24) + 0.3 * frame["b"] - 2.7
    late = np.where(z + rng.logistic(size=n) > 0, "late", "on time")
    return frame.assign(city=rng.choice(["Graz", "Wien", "Linz"], n)), late


def test_1_dates_and_amounts_as_written_are_worth_as_much_as_typed_ones() -> None:
    frame, y = table(3000)
    written = frame.assign(when=frame["when"].dt.strftime("%m/%d/%Y %H:%M"), b=[f"${x:,.2f}" for x in frame["b"]])
    scores = []
    for rows in (frame, written):
        model = tithe.CoresetLogisticRegression(random_state=0).fit(rows[:2000], y[:2000])
        scores.append(roc_auc_score(y[2000:] == "on time", model.predict_proba(rows[2000:])[:, 1]))
        assert [column.what for column in model.schema_.used] == ["number", "number", "date", "category"]
    assert scores[0] > 0.8 and abs(scores[0] - scores[1]) < 0.005


def test_2_a_category_of_142_values_is_not_hashed() -> None:
    rng = np.random.default_rng(0)
    country = rng.permutation(np.repeat(np.arange(142), 12))
    level = rng.normal(60, 12, 142)[country]
    year = rng.integers(1952, 2007, len(country)).astype(float)
    frame = pd.DataFrame({"country": [f"country {i}" for i in country], "year": year})
    y = level + 0.3 * (year - 1980) + rng.normal(size=len(country))
    model = tithe.CoresetRidge(alpha=1.0, encode=True, random_state=0).fit(frame[:1200], y[:1200])
    onehot = OneHotEncoder(handle_unknown="ignore").fit(frame[["country"]][:1200])
    X = np.column_stack([onehot.transform(frame[["country"]]).toarray(), (year - 1980) / 16])
    by_hand = Ridge().fit(X[:1200], y[:1200])
    ours = r2_score(y[1200:], model.predict(frame[1200:]))
    assert ours > r2_score(y[1200:], by_hand.predict(X[1200:])) - 0.005 > 0.9


def test_3_an_embedding_and_a_text_are_used_and_an_id_is_said_to_be_left_out(tmp_path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 8)).astype(np.float32)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
    words = rng.choice(["red", "green", "large", "small", "old", "new"], (400, 12))
    texts = [" ".join(line) for line in words]
    rows = pa.table({"id": rng.permutation(400), "embedding": fixed, "text": texts})
    pq.write_table(rows, tmp_path / "t.parquet")
    with pytest.warns(tithe.EncodingWarning, match="'id': left out") as caught:
        source = tithe.open_dataset(tmp_path / "t.parquet")
    assert len(caught) == 1 and "'text': its words are hashed" in str(caught[0].message)
    assert source.feature_names[:8] == [f"embedding[{i}]" for i in range(8)]
    assert [column.what for column in source.schema.columns] == ["identifier", "vector", "text"]


def test_4_text_where_numbers_were_and_unseen_categories_are_told(tmp_path) -> None:
    frame, y = table()
    model = tithe.CoresetLogisticRegression(random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="Column 'a' holds text such as 'x', but it held numbers"):
        model.predict(frame.assign(a="x"))
    with pytest.warns(tithe.EncodingWarning, match="'city': of 600 values 600 unknown"):
        model.predict(frame.assign(city="Rom"))


def test_5_one_gap_does_not_change_the_units_of_coefficients() -> None:
    frame, y = table()
    numbers = frame[["a", "b"]]
    plain = tithe.CoresetLogisticRegression(C=0.1, random_state=0).fit(numbers, y)
    np.testing.assert_allclose(plain.coef_, LogisticRegression(C=0.1, tol=1e-10).fit(numbers, y).coef_, rtol=1e-2)
    gap = numbers.assign(b=numbers["b"].where(numbers.index != 7))
    with pytest.raises(ValueError, match=r"NaN.*'b' has 1 such values.*encode=True"):
        plain.fit(gap, y)


def test_6_names_of_the_input_are_those_of_the_frame() -> None:
    frame, y = table()
    model = tithe.CoresetLogisticRegression(random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame) and model.n_features_in_ == 4
    assert model.coef_.shape[1] == len(model.get_feature_names_out()) > 4


def test_7_a_rare_event_is_not_hidden_by_accuracy(tmp_path, capfd) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=3000), "b": rng.normal(size=3000)})
    rare = frame["a"] + rng.normal(size=3000) > 2.6
    frame.assign(event=np.where(rare, "yes", "no")).to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "event", "--class-weight", "balanced", "-o", tmp_path / "out"]
    assert run("fit", "logistic", tmp_path / "t.csv", *options) == 0
    said = capfd.readouterr().out.lower()
    assert "always" in said and "average precision" in said and "alarms" in said
    scores = json.loads((tmp_path / "out" / "results.json").read_text())
    assert scores["parameters"]["class_weight"] == "balanced"


def test_8_trees_have_a_certificate_and_are_saved(tmp_path) -> None:
    frame, y = table(1200)
    trees = HistGradientBoostingClassifier(max_iter=5)
    model = tithe.CoresetEstimator(trees, coreset_size=600, random_state=0).fit(frame, y)
    assert model.certificate_ is not None and "not learned from" in str(model.certificate_)
    tithe.save_model(model, tmp_path / "model.tithe")
    again = tithe.load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


@pytest.mark.parametrize(("target", "objective"), [("late", "logistic"), ("b", "least_squares")])
def test_9_compare_follows_the_target(tmp_path, target: str, objective: str) -> None:
    frame, y = table(300)
    frame.drop(columns="when").assign(late=y).to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run("compare", tmp_path / "t.csv", "--target", target, "-o", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out" / "results.json").read_text())["objective"] == objective
