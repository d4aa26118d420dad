"""Dask arrays and frames as rows. Here they are computed in this process; tests/engines has clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.core.data import Coreset
from tithe.objectives import KMeansObjective
from tithe.odm import ODMClassifierCV, ODMClustering, SemiSupervisedODMClassifier
from tithe.online import PACO
from tithe.rows.dask_collections import DaskSource

dask = pytest.importorskip("dask", reason="Dask is not installed: pip install 'tithe[dask]'")
pytest.importorskip("distributed")
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402

KMEANS = KMeansObjective(n_clusters=3, n_init=1)


@pytest.fixture(autouse=True)
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


def _rows(n_rows: int = 9000) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3)).astype(np.float32) + 4 * rng.integers(0, 3, size=(n_rows, 1))
    return X.astype(np.float32), np.where(X[:, 0] + rng.logistic(size=n_rows) > 4, "yes", "no")


def _frame(n_rows: int = 9000) -> pd.DataFrame:
    X, y = _rows(n_rows)
    return pd.DataFrame(X, columns=list("abc")).assign(y=y)


def _parts(*frames: pd.DataFrame) -> Any:
    """A frame of these partitions, of which Dask believes that they are all like the first."""
    return dd.from_map(lambda i: frames[i], range(len(frames)), meta=frames[0].iloc[:0])


def _build(X: Any, **options: Any) -> Coreset:
    return build_coreset(X, objective=KMEANS, coreset_size=200, engine="serial", random_state=1, **options)


def _same(a: Coreset, b: Coreset) -> bool:
    return np.array_equal(a.X, b.X) and np.array_equal(a.weights(), b.weights())


def _small_leaves(monkeypatch: pytest.MonkeyPatch, n_rows: int) -> None:
    monkeypatch.setattr("tithe.rows.dask_collections._PLACED_LEAF_ROWS", n_rows)
    monkeypatch.setattr("tithe.reduce.plan.LEAF_ROWS", n_rows)


def test_an_array_gives_the_same_coreset_for_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_leaves(monkeypatch, 1000)
    X, _ = _rows()
    coresets = [_build(da.from_array(X, chunks=(size, 3))) for size in (9000, 1000, 777)]
    assert _same(coresets[0], coresets[1]) and _same(coresets[0], coresets[2])
    assert coresets[0].X.dtype == np.float32
    assert coresets[0].provenance["determinism"] == "rows"
    assert np.array_equal(coresets[0].X, X[coresets[0].row_ids()])


def test_the_leaves_of_a_frame_are_its_partitions() -> None:
    frame = _frame()
    source = open_dataset(dd.from_pandas(frame, npartitions=4), target="y")
    assert source.n_rows == 9000 and source.n_leaves() == 4
    blocks = [task() for task in source.tasks()]
    assert np.array_equal(np.concatenate([block.row_ids() for block in blocks]), np.arange(9000))
    assert np.array_equal(np.concatenate([block.y for block in blocks]), frame["y"].to_numpy())
    assert np.array_equal(np.concatenate([block.X for block in blocks]), _only_block(frame).X)
    assert source.classes().tolist() == ["no", "yes"]
    assert build_coreset(source, objective=KMEANS, coreset_size=200).provenance["determinism"] == "partitions"


def _only_block(frame: pd.DataFrame) -> Any:
    (task,) = open_dataset(frame, target="y").tasks()
    return task()


def test_placed_groups_cover_all_leaves_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    _small_leaves(monkeypatch, 1000)
    X, _ = _rows()
    source = open_dataset(da.from_array(X, chunks=((3500, 0, 400, 5100), 3)))
    for first in (0, 2, 3, 8):
        placement = source.placement(first)
        assert placement is not None
        leaves = [leaf for group in placement.groups for leaf in range(group.first, group.stop)]
        assert leaves == list(range(first, 9))
        for group in placement.groups:
            values = dask.get(dict(placement.graph), [list(part.keys) for part in group.parts])
            parts = [
                (part.number, part.start, [value[part.start : part.stop] for value in held])
                for part, held in zip(group.parts, values, strict=True)
            ]
            there = source.with_parts(parts)
            there._collection = None  # as on a worker
            for leaf, task in zip(range(group.first, group.stop), there.tasks(group.first), strict=False):
                assert np.array_equal(task().X, X[1000 * leaf : 1000 * (leaf + 1)])


def test_the_sample_comes_from_all_partitions_and_keeps_their_ids() -> None:
    X, _ = _rows()
    source = open_dataset(da.from_array(X, chunks=(900, 3)))
    sample = source.sample(500, rng=np.random.default_rng(0))
    assert len(sample) == 500 and np.array_equal(sample.X, X[sample.row_ids()])
    assert len(np.unique(sample.row_ids() // 900)) == 10


def test_empty_partitions_and_text_that_is_not_used() -> None:
    frame = _frame(600).assign(text="x")
    ddf = _parts(frame.iloc[:200], frame.iloc[:0], frame.iloc[200:], frame.iloc[:0])
    coreset = _build(ddf[["a", "b", "c"]])
    assert coreset.n_seen == 600 and np.array_equal(coreset.X, frame[["a", "b", "c"]].to_numpy()[coreset.row_ids()])
    source = open_dataset(ddf, columns=["a", "b"], target="y")
    assert [len(task()) for task in source.tasks()] == [200, 0, 400, 0]


def test_a_frame_learns_its_schema_as_files_do() -> None:
    frame = _frame(70_000)
    frame["colour"] = np.where(np.arange(70_000) % 7 < 3, "red", "blue")
    frame.loc[69_990:, "colour"] = "rare"
    frame["heavy"] = np.where(np.arange(70_000) % 10_000 == 77, 1e6, 0.0)  # its spread is uncertain in a sample
    source = open_dataset(dd.from_pandas(frame, npartitions=3), target="y")
    assert source.feature_names == open_dataset(frame, target="y").feature_names
    heavy = np.concatenate([task().X[:, source.feature_names.index("heavy")] for task in source.tasks()])
    assert abs(heavy.std() - 1.0) < 1e-3


def test_a_nan_is_an_error_with_partition_and_row() -> None:
    X, _ = _rows(300)
    X[250, 1] = np.nan
    with pytest.raises(ValueError, match=r"'partition 2', row 50 \(the first is row 0\): column 1 is missing"):
        _build(da.from_array(X, chunks=(100, 3)))
    frame = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(ValueError, match=r"'partition 1', row 100 .*column 'b' is missing"):
        _build(dd.from_pandas(frame, npartitions=2))
    source = open_dataset(dd.from_pandas(frame, npartitions=2), impute="none")
    with pytest.raises(ValueError, match=r"'partition 1', row 100 .*column 'b' is missing"):
        _build(source)


def test_a_missing_column_and_other_types_are_errors_with_the_partition() -> None:
    frame = _frame(300)
    ddf = _parts(frame, frame.drop(columns="b"))
    with pytest.raises(ValueError, match=r"artition 1'? has no column 'b'"):
        _build(open_dataset(ddf, target="y"))
    with pytest.raises(ValueError, match=r"Partition 1"):
        _build(_parts(frame[["a", "b"]], frame[["a"]].assign(b="text")))
    with pytest.raises(ValueError, match=r"'b' is .* in 'partition 0' and .* in 'partition 1'"):
        open_dataset(_parts(frame, frame.assign(b="text")), target="y")


def test_y_and_columns_in_other_chunks_are_refused_with_the_call_to_make() -> None:
    X, y = _rows(300)
    dx = da.from_array(X, chunks=(100, 3))
    with pytest.raises(ValueError, match=r"y.rechunk\(X.chunks\[0\]\)"):
        CoresetLogisticRegression().fit(dx, da.from_array(y, chunks=150))
    with pytest.raises(ValueError, match=r"chunks=X.chunks\[0\]"):
        CoresetLogisticRegression().fit(dx, y)
    with pytest.raises(ValueError, match=r"X.rechunk\({1: -1}\)"):
        CoresetKMeans(2).fit(da.from_array(X, chunks=(100, 2)))
    ddf = dd.from_pandas(_frame(300), npartitions=3)
    with pytest.raises(ValueError, match=r"y.repartition\(divisions=X.divisions\)"):
        CoresetLogisticRegression().fit(ddf[["a", "b"]], ddf["y"].repartition(npartitions=2))
    lengths = ddf[["a"]].to_dask_array(), ddf[ddf["a"] > 0]["y"].to_dask_array()
    with pytest.raises(ValueError, match=r"y.*rechunk"):
        CoresetLogisticRegression().fit(*lengths)


def test_learners_fit_collections_as_sources() -> None:
    X, y = _rows()
    ddf = dd.from_pandas(_frame(), npartitions=3)
    model = CoresetLogisticRegression(coreset_size=500, engine="serial", random_state=0)
    by_array = model.fit(da.from_array(X, chunks=(3000, 3)), da.from_array(y, chunks=3000)).coef_
    assert model.coreset_.n_seen == 9000 and np.array_equal(model.coreset_.X, X[model.sample_indices_])
    by_frame = model.fit(ddf[["a", "b", "c"]], y=ddf["y"]).coef_
    assert model.feature_names_in_.tolist() == ["a", "b", "c"] and model.coreset_.X.dtype == np.float32
    assert np.allclose(by_array, by_frame, atol=0.01)
    unknown = ddf[["a", "b", "c"]].to_dask_array(), ddf["y"].to_dask_array()
    assert np.allclose(by_array, model.fit(*unknown).coef_, atol=0.01)
    assert model.certify(*unknown).n_rows == 9000


def test_small_files_are_partitions_whatever_columns_are_read(tmp_path: Path) -> None:
    frame = _frame(900)
    for number in range(4):
        frame.iloc[225 * number : 225 * (number + 1)].to_parquet(tmp_path / f"part-{number}.parquet", index=False)
    ddf = dd.read_parquet(tmp_path)
    model = CoresetLogisticRegression(coreset_size=200, engine="serial", random_state=0).fit(ddf[["a", "b"]], ddf["y"])
    assert model.coreset_.n_seen == 900
    assert np.array_equal(model.coreset_.X, frame[["a", "b"]].to_numpy()[model.sample_indices_])
    assert open_dataset(ddf[["a"]]).n_leaves() == 4


def _counting(frame: Any, calls: list[int]) -> Any:
    calls.append(len(frame))
    return frame


def test_predict_is_lazy_and_of_the_type_of_the_input() -> None:
    X, y = _rows()
    frame = _frame().set_index(np.arange(9000) * 2)
    calls: list[int] = []
    ddf = dd.from_pandas(frame, npartitions=3)[["a", "b", "c"]].map_partitions(
        _counting, calls, meta=frame[["a", "b", "c"]]
    )
    calls.clear()
    model = CoresetLogisticRegression(coreset_size=500, random_state=0).fit(frame[["a", "b", "c"]], y)
    for name in ("predict", "predict_proba", "decision_function"):
        answer, expected = getattr(model, name)(ddf), getattr(model, name)(frame[["a", "b", "c"]])
        assert not calls and isinstance(answer, dd.DataFrame if expected.ndim == 2 else dd.Series)
        computed = answer.compute()
        assert len(calls) == 3 and np.array_equal(computed.to_numpy(), expected)
        assert np.array_equal(computed.index, frame.index)
        calls.clear()
    assert list(model.predict_proba(ddf).columns) == ["no", "yes"]
    assert answer.dtype == expected.dtype
    clusters = CoresetKMeans(3, random_state=0).fit(X)
    dx = da.from_array(X, chunks=(4000, 3))
    for name in ("predict", "transform"):
        answer, expected = getattr(clusters, name)(dx), getattr(clusters, name)(X)
        assert isinstance(answer, da.Array) and answer.shape == expected.shape and answer.dtype == expected.dtype
        assert np.allclose(answer.compute(), expected)


def _machines(X: Any, y: Any) -> Iterator[Any]:
    unknown = np.where(np.arange(len(y)) < 30, y, -1)
    yield ODMClassifierCV(cv=2, random_state=0).fit(X, y)
    yield ODMClustering(3, random_state=0).fit(X)
    yield SemiSupervisedODMClassifier(random_state=0).fit(X, unknown)
    yield PACO(random_state=0).partial_fit(X)


@pytest.mark.filterwarnings("ignore:X has feature names", "ignore:X does not have valid feature names")
def test_machines_that_fit_rows_in_memory_predict_lazily() -> None:
    X, y = _rows(90)
    dx, ddf = da.from_array(X, chunks=(40, 3)), dd.from_pandas(pd.DataFrame(X, columns=list("abc")), npartitions=2)
    for model in _machines(X, (y == "yes").astype(int)):
        for name in {"predict", "decision_function"} & set(dir(model)):
            expected = getattr(model, name)(X)
            by_array, by_frame = getattr(model, name)(dx), getattr(model, name)(ddf)
            assert isinstance(by_array, da.Array) and isinstance(by_frame, (dd.Series, dd.DataFrame))
            np.testing.assert_allclose(by_array.compute(), expected, rtol=1e-9)
            np.testing.assert_allclose(by_frame.compute().to_numpy(), expected, rtol=1e-9)


def test_the_model_is_once_in_the_graph_and_without_its_rows() -> None:
    X, _ = _rows()
    model = CoresetKMeans(3, random_state=0).fit(X)
    graph = dict(model.predict(da.from_array(X, chunks=(100, 3))).__dask_graph__())
    assert sum("tithe-model" in str(key) for key in graph) == 1


def test_a_source_travels_without_the_graph_of_the_collection() -> None:
    import pickle

    X, _ = _rows()
    source = open_dataset(da.from_array(X, chunks=(100, 3)))
    assert isinstance(source, DaskSource)
    assert len(pickle.dumps(source)) < 8000
