"""Rows and targets that cannot be taken as they are: the message names them and says what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from tithe import (
    CoresetEstimator,
    CoresetKMeans,
    CoresetLogisticRegression,
    CoresetRidge,
    CoresetStream,
    build_coreset,
    load_model,
    save_model,
)
from tithe.online import PACO


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])


@pytest.mark.parametrize(
    "call", [lambda X: CoresetKMeans(2).fit(X), lambda X: build_coreset(X, objective="kmeans", coreset_size=9)]
)
def test_a_lazy_frame(frame, call) -> None:
    with pytest.raises(ValueError, match=r"LazyFrame.*X.collect\(\), or tithe.open_dataset"):
        call(pl.DataFrame(frame).lazy())


def test_an_array_after_a_table(frame) -> None:
    table = frame.assign(kind=np.where(frame["a"] > 0, "u", "v"))
    model = CoresetLogisticRegression().fit(table, frame["b"] > 0)
    with pytest.raises(ValueError, match=r"give a frame with its 4 columns \(a, b, c, kind\)"):
        model.predict(frame.to_numpy())


def test_an_array_after_a_frame_in_a_stream(frame) -> None:
    stream = CoresetStream("kmeans", coreset_size=100, random_state=0).push(frame)
    with pytest.warns(UserWarning, match="rows without names after those with the columns a, b, c"):
        stream.push(frame.to_numpy())


@pytest.mark.parametrize(
    ("model", "gap"),
    [
        (CoresetRidge(), np.nan),
        (CoresetEstimator(Ridge()), np.nan),
        (CoresetLogisticRegression(), np.nan),
        (CoresetLogisticRegression(), None),
        (CoresetEstimator(LogisticRegression()), None),
    ],
)
def test_gaps_of_the_target(frame, model, gap) -> None:
    y = (frame["a"] > 0).to_numpy(np.float64, copy=True)
    if gap is None:
        y = np.where(y > 0, "yes", "no").astype(object)
    y[[7, 9]] = gap
    with pytest.raises(ValueError, match=r"contains NaN.*in 2 of 300 rows, first in row 7: leave these rows out"):
        model.fit(frame, y)


def test_a_quantity_taken_for_classes(frame) -> None:
    with pytest.raises(ValueError, match="take a regressor: CoresetRidge"):
        CoresetLogisticRegression().fit(frame, frame["a"])


def test_labels_of_training_rows_are_not_saved(frame, tmp_path) -> None:
    for model in (CoresetKMeans(2, random_state=0), PACO(random_state=0)):
        model.fit(frame.to_numpy())
        save_model(model, tmp_path / "model.tithe")
        loaded = load_model(tmp_path / "model.tithe")
        np.testing.assert_array_equal(loaded.predict(frame.to_numpy()), model.labels_)
        assert not hasattr(loaded, "labels_")


def test_collinear_columns_are_named(frame) -> None:
    table = frame.assign(copy=2 * frame["a"] + frame["b"], flat=1.0, kind=np.where(frame["c"] > 0, "u", "v"))
    model = CoresetRidge().fit(table, frame["a"])
    assert model.summary()["collinear_columns"] == ["a", "b", "copy"]  # of the categories it is known
    assert "collinear_columns" not in CoresetRidge().fit(frame, frame["a"]).summary()
