"""Spreads of columns that a sample leaves uncertain are measured on all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tithe import CoresetRidge, open_dataset
from tithe.rows.encodings import NumberEncoding
from tithe.rows.learn import SAMPLE_ROWS, learn_schema, scaled_features, uncertain_features

N = 2 * SAMPLE_ROWS


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    tail = rng.normal(size=N)
    tail[rng.choice(N, 30, replace=False)] *= 1e6
    burst = np.repeat(rng.normal(size=16), N // 16) + 0.1 * rng.normal(size=N)
    colour = rng.choice(["red", "blue"], N)
    return pd.DataFrame({"plain": rng.normal(3.0, 2.0, size=N), "tail": tail, "burst": burst, "colour": colour})


def numbers(schema) -> dict[str, NumberEncoding]:
    return {column.name: column.encoding for column in schema.used if column.name != "colour"}


def test_tails_and_bursts_are_uncertain(frame) -> None:
    table = pa.Table.from_pandas(frame)[:SAMPLE_ROWS]
    schema = learn_schema(table)
    assert [schema.feature_names[j] for j in uncertain_features(schema, table)] == ["tail", "burst"]
    assert [schema.feature_names[j] for j in scaled_features(schema)] == ["plain", "tail", "burst"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "fit"])
def test_spreads_are_those_of_all_rows(frame, kind, tmp_path) -> None:
    if kind == "fit":
        model = CoresetRidge(random_state=0).fit(frame, frame["plain"].to_numpy())
        schema = model.schema_
    else:
        if kind == "csv":
            frame.to_csv(tmp_path / "rows.csv", index=False)
        elif kind == "parquet":
            frame.to_parquet(tmp_path / "rows.parquet", row_group_size=N // 4)
        source = open_dataset(frame if kind == "frame" else tmp_path)
        X = np.vstack([task().X for task in source.tasks()])
        np.testing.assert_allclose(X[:, 1:3].std(axis=0), 1.0, rtol=1e-6)
        np.testing.assert_allclose(X[:, 1:3].mean(axis=0), 0.0, atol=1e-6)
        schema = source.schema
    assert [name for name, encoding in numbers(schema).items() if encoding.reach is not None] == ["tail"]
    for name, encoding in numbers(schema).items():
        drawn = encoding.drawn_in(frame[name].to_numpy())
        assert encoding.spread == pytest.approx(drawn.std(), rel=0.02 if name == "plain" else 1e-6)


def test_values_and_columns_that_the_sample_misses(tmp_path) -> None:
    n = 4 * SAMPLE_ROWS
    colour, nearly, kind = np.full(n, "red", dtype=object), np.zeros(n), np.full(n, "a", dtype=object)
    colour[::2] = "blue"
    rare = [SAMPLE_ROWS + 5000, SAMPLE_ROWS + 5001]
    colour[rare], nearly[rare], kind[rare] = "green", 7.0, "b"
    day = np.full(n, "2024-02-01", dtype=object)
    day[rare] = "2024-03-01"
    frame = pd.DataFrame({"colour": colour, "nearly": nearly, "kind": kind, "day": day, "constant": np.ones(n)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=n // 4)
    schemas = [open_dataset(where).schema for where in (frame, tmp_path / "rows.csv", tmp_path / "rows.parquet")]
    for schema in schemas:
        names = ["colour=blue", "colour=green", "colour=red", "nearly", "kind=a", "kind=b"]
        waves = [f"day week {wave}{h}" for h in ("", " 2", " 3") for wave in ("sin", "cos")]
        assert schema.feature_names == [*names, "day", *waves]
        (encoding,) = (column.encoding for column in schema.used if column.name == "nearly")
        assert (encoding.center, encoding.spread, encoding.fill) == pytest.approx((nearly.mean(), nearly.std(), 0.0))
        assert [column.what for column in schema.columns if column.name == "constant"] == ["constant"]
