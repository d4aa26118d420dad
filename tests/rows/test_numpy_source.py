from __future__ import annotations

import numpy as np
import pytest
from plain_rows import open_dataset

from tithe.core.data import concat
from tithe.rows import npy


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", "bool", "float16"])
@pytest.mark.parametrize("leaf_rows", [1, 40, 10**6])
def test_rows_of_several_files(tmp_path, monkeypatch, rng, dtype, leaf_rows) -> None:
    X = rng.integers(0, 9, (230, 4)).astype(dtype)
    for i, (start, stop) in enumerate([(0, 100), (100, 100), (100, 107), (107, 230)]):
        np.save(tmp_path / f"{i}.npy", np.asfortranarray(X[start:stop]) if i == 3 else X[start:stop])
    source = open_dataset(tmp_path)
    blocks = [task() for task in source.tasks(leaf_rows=leaf_rows)]
    rows = concat(blocks)
    assert rows.X.dtype == (np.float64 if dtype in ("float64", "int64") else np.float32)
    assert all(block.X.flags.c_contiguous and type(block.X) is np.ndarray for block in blocks)
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_array_equal(rows.row_ids(), np.arange(230))
    assert max(map(len, blocks)) == min(leaf_rows, 230) and source.n_rows == 230
    tail = [task() for task in source.tasks(2, leaf_rows)]
    assert [len(block) for block in tail] == [len(block) for block in blocks[2:]]
    for run in (10**9, 1):
        monkeypatch.setattr(npy, "_RUN_BYTES", run)
        drawn = source.sample(60, rng=np.random.default_rng(3))
        np.testing.assert_array_equal(drawn.X, X[drawn.row_ids()])
        assert len(np.unique(drawn.row_ids())) == 60 and np.ptp(drawn.row_ids()) > 150
    assert len(source.sample(None, rng=rng)) == 230


def test_archives_hold_targets_and_weights(tmp_path, rng) -> None:
    X, y, w = rng.normal(size=(50, 3)), rng.choice(["a", "b"], 50), rng.random(50)
    y[49] = "c"
    np.savez(tmp_path / "1.npz", X=X[:20], y=y[:20], w=w[:20])
    np.savez_compressed(tmp_path / "2.npz", X=X[20:], y=y[20:], w=w[20:])
    source = open_dataset(tmp_path, target="y", weight="w")
    rows = concat([task() for task in source.tasks()])
    np.testing.assert_array_equal(rows.X, X)
    np.testing.assert_array_equal(rows.y, y)
    np.testing.assert_array_equal(rows.sample_weight, w)
    assert rows.y.dtype == object and source.classes().tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"no array 'z'; it has X, y, w"):
        open_dataset(tmp_path, target="z")
    with pytest.raises(ValueError, match="no target"):
        open_dataset(tmp_path).classes()
    with pytest.raises(ValueError, match="have no names"):
        open_dataset(tmp_path, columns=["x0"])
    with pytest.raises(ValueError, match="not numeric"):
        open_dataset(tmp_path, weight="y")
    np.savez(tmp_path / "2.npz", X=X, y=y[:7])
    with pytest.raises(ValueError, match=r"2\.npz': 'y' has shape \(7,\), X has 50 rows"):
        open_dataset(tmp_path, target="y")


def test_bad_rows_of_arrays(tmp_path, rng) -> None:
    X, w = rng.normal(size=(50, 3)), np.ones(50)
    X[12, 1], w[31] = np.nan, -1.0
    y = np.where(np.arange(50) == 40, np.nan, 1.0)
    np.savez(tmp_path / "1.npz", X=X[:10], y=y[:10], w=w[:10])
    np.savez(tmp_path / "2.npz", X=X[10:], y=y[10:], w=w[10:])
    with pytest.raises(ValueError, match=r"2\.npz', row 2 .*column 1.*bad_rows='skip'"):
        next(open_dataset(tmp_path).tasks())()
    block = next(open_dataset(tmp_path, target="y", weight="w", bad_rows="skip").tasks())()
    np.testing.assert_array_equal(block.row_ids(), np.delete(np.arange(50), [12, 31, 40]))
    assert block.sample_weight is None


def test_shapes_that_are_no_rows(tmp_path) -> None:
    np.save(tmp_path / "1.npy", np.zeros(5))
    with pytest.raises(ValueError, match=r"shape \(5,\)"):
        open_dataset(tmp_path)
    np.save(tmp_path / "1.npy", np.zeros((5, 2)))
    np.save(tmp_path / "2.npy", np.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"2 columns and .* has 3"):
        open_dataset(tmp_path)
    np.save(tmp_path / "2.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="rows of numbers"):
        open_dataset(tmp_path)
    with pytest.raises(ValueError, match="rows alone"):
        open_dataset(tmp_path / "1.npy", target="y")
