"""Spark DataFrames: read where they lie, with the bits of the serial engine."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_session import require_spark, start_session

from tithe import CoresetKMeans, CoresetLogisticRegression, open_dataset

require_spark()
pytestmark = pytest.mark.slow  # a session takes a minute to start, and its workers compile

N_ROWS = 6_000


@pytest.fixture(scope="module")
def session() -> Any:
    return start_session()


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3)) + rng.integers(0, 3, size=(N_ROWS, 1)) * 4
    y = np.where(X[:, 0] + rng.logistic(size=N_ROWS) > 4, "yes", "no")
    return pa.table({**{f"x{j}": X[:, j].astype(np.float32) for j in range(3)}, "note": ["text"] * N_ROWS, "label": y})


@pytest.fixture(scope="module")
def frame(session: Any, table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three files, each a partition, the largest first; the last one has no rows."""
    folder = tmp_path_factory.mktemp("frame")
    for name, n_rows in (("large", N_ROWS), ("small", 2_500), ("empty", 0)):
        pq.write_table(table.slice(0, n_rows), folder / f"{name}.parquet")
    session.conf.set("spark.sql.files.openCostInBytes", str(2**27))
    return session.read.parquet(str(folder))


def learners() -> list[Any]:
    options: dict[str, Any] = {"coreset_size": 250, "polish": 0, "random_state": 0}
    return [CoresetKMeans(3, **options), CoresetLogisticRegression(**options)]


@pytest.mark.parametrize("learner", learners())
def test_a_frame_is_fitted_where_it_lies(frame: Any, learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tithe.reduce.plan.LEAF_ROWS", 1_000)
    source = open_dataset(frame, columns=["x0", "x1", "x2"], target="label", scale="none")
    assert source._lengths == (N_ROWS, 2_500) and list(source._frame.columns) == ["x0", "x1", "x2", "label"]
    source.leaf_rows = 1_000
    results = []
    for engine in ("serial", "auto"):
        learner.set_params(engine=engine).fit(source)
        results.append(learner.cluster_centers_ if hasattr(learner, "cluster_centers_") else learner.coef_)
        assert learner.coreset_.provenance["determinism"] == "partitions"
    assert np.array_equal(*results)


def test_a_cached_frame_gives_the_same_bits_and_predictions_are_lazy(frame: Any, table: pa.Table) -> None:
    numbers = frame.drop("note", "label")
    model = CoresetKMeans(3, coreset_size=250, random_state=0, polish=0)
    centers = model.fit(numbers).cluster_centers_.copy()
    cached = numbers.persist()
    assert np.array_equal(model.fit(cached).cluster_centers_, centers)
    cached.unpersist()

    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        raise RuntimeError("these rows must not be read")

    assert model.predict(frame.mapInArrow(fails, frame.schema)).columns == [*frame.columns, "prediction"]
    predicted = model.predict(frame).toArrow()
    X = np.column_stack([table.column(f"x{j}") for j in range(3)])
    assert predicted.column("prediction").to_numpy().tolist() == [*model.predict(X), *model.predict(X[:2_500])]
    assert predicted.column("note").to_pylist() == ["text"] * len(predicted)
    distances = model.transform(frame.limit(2)).toArrow().column("transformed")
    np.testing.assert_allclose(distances.to_pylist(), model.transform(X[:2]), rtol=1e-5)


def test_faults_are_named(session: Any, frame: Any) -> None:
    with pytest.raises(ValueError, match="the Spark DataFrame' has no column 'z'"):
        open_dataset(frame, target="z")
    with pytest.raises(ValueError, match="has no rows"):
        open_dataset(frame.where("x0 > 1e9"))
    with pytest.raises(ValueError, match="y='name'"):
        CoresetLogisticRegression().fit(frame, np.zeros(3))
    gaps = frame.selectExpr("x0", f"if(monotonically_increasing_id() = {2**33 + 40}, null, x1) as x1")
    with pytest.raises(ValueError, match=r"Partition 1 of the Spark DataFrame, row 40 .*'x1' is missing"):
        CoresetKMeans(3, coreset_size=250).fit(gaps)
    with pytest.raises(ValueError, match="cannot be sent to other processes"):
        pickle.dumps(open_dataset(frame, columns=["x0"]))


def test_the_schema_is_learned_from_all_rows(session: Any, tmp_path: Any) -> None:
    n_rows, at = 70_000, np.arange(70_000)
    heavy = np.where(at % 10_000 == 77, 1e6, 0.0)  # its spread is uncertain in a sample
    colour = np.where(at >= n_rows - 10, "rare", np.where(at % 7 < 3, "red", "blue"))
    table = pa.table({"a": np.sin(at), "heavy": heavy, "colour": colour})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=10_000)
    source = open_dataset(session.read.parquet(str(tmp_path)))
    files = open_dataset(tmp_path)
    assert source.feature_names == files.feature_names
    encodings = [next(c for c in s.schema.used if c.name == "heavy").encoding for s in (source, files)]
    np.testing.assert_allclose(encodings[0].spread, heavy.std(), rtol=1e-9)
    np.testing.assert_allclose(encodings[0].spread, encodings[1].spread, rtol=1e-12)
