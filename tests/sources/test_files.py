from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tithe import FileFormatError
from tithe.sources.arrays import ArraySource, as_block, as_matrix
from tithe.sources.batches import BatchSource
from tithe.sources.files import read_rows


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "y": np.arange(40), "w": rng.random(40)})


def test_every_format_reads_the_same(frame: pd.DataFrame, tmp_path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    X = frame[["a", "b"]].to_numpy()
    np.savez(tmp_path / "t.npz", X=X, y=frame["y"], w=frame["w"])
    for name in ("t.csv", "t.parquet", "t.npz"):
        rows, y, w, names = read_rows(tmp_path / name, target="y", weight="w")
        np.testing.assert_allclose(as_matrix(rows), X)
        np.testing.assert_array_equal(y, frame["y"])
        np.testing.assert_allclose(w, frame["w"])
        assert names in (None, ["a", "b"])
    np.save(tmp_path / "t.npy", X)
    rows, *_ = read_rows(tmp_path / "t.npy")
    assert isinstance(rows, np.memmap)


def test_what_cannot_be_read(frame: pd.DataFrame, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        read_rows(tmp_path / "missing.csv")
    (tmp_path / "t.xls").write_text("x")
    with pytest.raises(FileFormatError, match=r"reads \.npy"):
        read_rows(tmp_path / "t.xls")
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no column 'z'"):
        read_rows(tmp_path / "t.parquet", target="z")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: len(whole) // 2])
    np.save(tmp_path / "t.npy", np.zeros((50, 3)))
    (tmp_path / "t.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:200])
    np.savez(tmp_path / "t.npz", Z=np.zeros(3))
    (tmp_path / "u.npz").write_bytes(b"PK\x03\x04 nothing")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "empty.csv").write_text("")
    for name in ("t.parquet", "t.npy", "t.npz", "u.npz", "objects.npy", "empty.csv"):
        with pytest.raises(FileFormatError, match=name):
            read_rows(tmp_path / name)
    with pytest.raises(ValueError, match="rows alone"):
        read_rows(tmp_path / "t.npy", target="y")


def test_sources_sample(rng: np.random.Generator) -> None:
    X = np.arange(200.0).reshape(100, 2)
    source = ArraySource(as_block(X))
    some = source.sample(10, rng=rng)
    np.testing.assert_array_equal(some.X, X[some.row_ids()])
    assert len(source.sample(None, rng=rng)) == len(source.sample(500, rng=rng)) == 100
    stream = BatchSource([X[:60], X[60:]], leaf_size=50)
    assert set(stream.sample(10, rng=rng).row_ids()) <= set(range(50))
    assert [len(task()) for task in stream.tasks()] == [50, 50]
