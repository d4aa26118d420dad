"""Long tails that are drawn in, and categories whose values say little of the target."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from tithe import CoresetLogisticRegression, load_model, open_dataset, save_model
from tithe.rows.learn import learn_schema
from tithe.rows.schema import TableSchema, frame_view
from tithe.rows.uses import TableOptions

N = 4000


def incomes(seed: int = 0) -> np.ndarray:
    return np.exp(3.0 + 1.5 * np.random.default_rng(seed).normal(size=N))


def test_long_tails_are_drawn_in_and_said() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"income": incomes(), "height": rng.normal(170.0, 10.0, N), "flag": np.arange(N) % 50 == 0})
    table = table.set_column(2, "flag", pa.array(np.where(np.arange(N) % 50 == 0, 1, 0)))
    schema = learn_schema(table)
    income, height, flag = (column.encoding for column in schema.used)
    assert height.reach is None and flag.reach is None  # not even a rare 0/1 column
    assert "long tails drawn in, asinh(" in repr(schema)
    near = income.middle + income.reach * np.array([-0.2, 0.0, 0.2])
    np.testing.assert_allclose(income.drawn_in(near), near, atol=0.002 * income.reach)  # nearly as they are
    ascending = np.sort(incomes())
    assert (np.diff(income.drawn_in(ascending)) >= 0).all()
    np.testing.assert_allclose(income.drawn_out(income.drawn_in(ascending)), ascending, rtol=1e-12)
    X = schema.encode(table)
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(X.std(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(schema.original_units(X)[:, 0], table.column("income").to_numpy(), rtol=1e-9)
    assert TableSchema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize("scale", ["standard", "robust", "none"])
def test_other_scales_draw_nothing_in(scale: str) -> None:
    schema = learn_schema(pa.table({"income": incomes()}), TableOptions(scale=scale))
    assert schema.used[0].encoding.reach is None


def test_short_tails_stay_as_they_are() -> None:
    """Numbers within nine standard deviations of the middle half do a linear model no harm."""
    x = np.random.default_rng(0).standard_t(6.0, size=N)
    ends = learn_schema(pa.table({"x": np.clip(x, -5.0, 5.0), "y": np.append(x[1:], 40.0)}))
    assert [column.encoding.reach is None for column in ends.used] == [True, False]


def test_extreme_numbers_stay_finite() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=N), [1e300, -1e300]])
    for numbers in (values, values * 1e-300, np.append(np.zeros(N), [1e-300, 1e300, 2.0])):
        table = pa.table({"a": numbers, "b": np.arange(len(numbers)) % 7})
        assert np.isfinite(learn_schema(table).encode(table)).all()


def test_drawn_in_tails_do_not_hide_a_logarithmic_effect() -> None:
    """A straight line in an income sees little of an effect of its logarithm."""
    income, noise = incomes(), np.random.default_rng(2).normal(size=N)
    table, y = pa.table({"income": income}), np.log(income) + noise
    scores = []
    for scale in ("auto", "standard"):
        X = learn_schema(table, TableOptions(scale=scale)).encode(table)
        scores.append(Ridge().fit(X, y).score(X, y))
    assert scores[0] > scores[1] + 0.1


def test_trees_get_the_numbers_of_the_file(tmp_path) -> None:
    frame = pd.DataFrame({"income": incomes(), "other": np.random.default_rng(3).normal(size=N)})
    frame.to_parquet(tmp_path / "rows.parquet")
    source = open_dataset(tmp_path / "rows.parquet")
    X = np.vstack([task().X for task in source.tasks()])
    np.testing.assert_allclose(frame_view(source.schema, X)["income"], frame["income"], rtol=1e-9)


def many_values(effect: float, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    tail, x = rng.integers(0, 500, N), rng.normal(size=N)
    chance = 1.0 / (1.0 + np.exp(-x - effect * np.random.default_rng(9).normal(size=500)[tail]))
    return pd.DataFrame({"tail": [f"N{k:03d}" for k in tail], "x": x}), rng.random(N) < chance


@pytest.mark.parametrize("effect", [0.0, 0.3, 2.0])
def test_values_that_say_little_of_the_target_get_small_features(effect: float, tmp_path) -> None:
    frame, y = many_values(effect)
    later, y_later = many_values(effect, seed=1)
    model = CoresetLogisticRegression(random_state=0).fit(frame, y)
    tail = model.schema_.used[0].encoding
    assert tail.scale == 0.1 if effect == 0.0 else tail.scale == pytest.approx(min(1.0, effect), abs=0.15)
    assert ("tells little of the target" in repr(model.schema_)) == (effect < 2.0)
    X, X_later = (model.schema_.encode(pa.Table.from_pandas(part)) for part in (frame, later))
    plain = [np.where(part[:, :-1] > 0.0, 1.0, 0.0) for part in (X, X_later)]  # 0/1 features
    by_hand = LogisticRegression(max_iter=1000).fit(np.column_stack([plain[0], X[:, -1]]), y)
    others = log_loss(y_later, by_hand.predict_proba(np.column_stack([plain[1], X_later[:, -1]])))
    assert log_loss(y_later, model.predict_proba(later)[:, 1]) < others + 1e-3
    units = model.schema_.original_units(X)
    assert set(np.unique(units[:, :-1])) == {0.0, 1.0}  # the shares of clusters stay shares
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").predict(later), model.predict(later))


def test_without_a_target_and_with_few_values_features_are_0_and_1(tmp_path) -> None:
    frame, y = many_values(0.0)
    assert learn_schema(pa.Table.from_pandas(frame)).used[0].encoding.scale == 1.0
    frame["tail"] = frame["tail"].str[:2]  # five values
    frame.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    assert open_dataset(tmp_path / "rows.csv", target="y").schema.used[0].encoding.scale == 1.0


def test_files_and_frames_have_the_same_scales(tmp_path) -> None:
    frame, y = many_values(0.3)
    frame.assign(y=np.where(y, "yes", "no")).to_csv(tmp_path / "rows.csv", index=False)
    of_file = open_dataset(tmp_path / "rows.csv", target="y").schema
    of_frame = CoresetLogisticRegression(random_state=0).fit(frame, np.where(y, "yes", "no")).schema_
    assert of_file.used[0].encoding == of_frame.used[0].encoding and of_file.used[0].encoding.scale < 1.0


def titles(effect: float, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 400, (N, 6))
    effects = np.random.default_rng(9).normal(size=400)
    y = effect * effects[words].sum(axis=1) + rng.normal(size=N)
    return pd.DataFrame({"title": [" ".join(f"w{k}" for k in row) for row in words], "y": y})


def test_words_that_say_little_of_the_target_get_small_features(tmp_path) -> None:
    scales, scores = [], []
    for effect in (0.0, 0.1, 1.0):
        train, later = titles(effect), titles(effect, seed=1)
        train.to_csv(tmp_path / "rows.csv", index=False)
        schema = open_dataset(tmp_path / "rows.csv", target="y").schema
        scales.append(schema.used[0].encoding.scale)
        X, X_later = (schema.encode(pa.Table.from_pandas(part)) for part in (train, later))
        ours = Ridge().fit(X, train["y"]).score(X_later, later["y"])
        plain = Ridge().fit(X / scales[-1], train["y"]).score(X_later / scales[-1], later["y"])
        scores.append(ours - plain)
    assert scales[0] == 0.1 and scales[0] < scales[1] < scales[2]
    assert scores[0] > 0.05 and scores[1] > 0.01 and scores[2] > -0.001
