"""Spreads of columns that a sample leaves uncertain are measured on all rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tithe import CoresetRidge, open_dataset
from tithe.tables.learn import SAMPLE_ROWS, learn_schema
from tithe.tables.scales import scaled_features, uncertain_features, with_exact_scales

N = 2 * SAMPLE_ROWS


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    tail = rng.normal(size=N)
    tail[rng.choice(N, 30, replace=False)] *= 1e6
    burst = np.repeat(rng.normal(size=16), N // 16) + 0.1 * rng.normal(size=N)
    colour = rng.choice(["red", "blue"], N)
    return pd.DataFrame({"plain": rng.normal(3.0, 2.0, size=N), "tail": tail, "burst": burst, "colour": colour})


def spreads(schema) -> dict[str, float]:
    return {column.name: column.encoding.spread for column in schema.used if column.name != "colour"}


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
    for name, spread in spreads(schema).items():
        assert spread == pytest.approx(frame[name].std(ddof=0), rel=0.02 if name == "plain" else 1e-6)


def test_a_sample_that_is_all_rows_is_kept() -> None:
    table = pa.table({"x": np.append(np.zeros(999), 1e9)})
    schema = learn_schema(table)
    assert len(uncertain_features(schema, table)) == 1
    assert with_exact_scales(schema, scaled_features(schema), [partial(schema.encode, table)]) is schema
