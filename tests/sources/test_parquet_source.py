from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tithe import FileFormatError
from tithe.core.data import Block, concat
from tithe.sources import leaves, parquet
from tithe.sources.files import open_source


def a_frame(rng: np.random.Generator, n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "a": rng.normal(size=n).astype(np.float32),
            "b": rng.integers(-5, 5, n).astype(np.int16),
            "c": rng.random(n) < 0.5,
            "y": rng.choice(["no", "perhaps", "yes"], n),
            "w": rng.integers(0, 4, n),
        }
    )


def write_pieces(frame: pd.DataFrame, folder: Path, rng: np.random.Generator, n_files: int) -> None:
    """The frame in order, cut at random into files (some may be empty) and row groups."""
    cuts = np.sort(rng.integers(0, len(frame) + 1, n_files - 1))
    for i, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(frame)], strict=True)):
        piece = pa.Table.from_pandas(frame.iloc[start:stop], preserve_index=False)
        pq.write_table(piece, folder / f"part-{i:02}.parquet", row_group_size=int(rng.integers(1, 200)))


def all_rows(source, first: int = 0) -> Block:
    return concat([task() for task in source.tasks(first)])


def assert_same(left: Block, right: Block) -> None:
    for ours, theirs in zip(
        (left.X, left.y, left.sample_weight, left.row_ids()),
        (right.X, right.y, right.sample_weight, right.row_ids()),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("leaf_rows", [1, 70, 400, 10**6])
def test_rows_and_ids_are_those_of_the_files_under_one_another(tmp_path, monkeypatch, seed, leaf_rows) -> None:
    rng = np.random.default_rng(seed)
    frame = a_frame(rng, 1000)
    write_pieces(frame, tmp_path, rng, n_files=1 + seed)
    monkeypatch.setattr(leaves, "LEAF_ROWS", leaf_rows)
    source = open_source(tmp_path, target="y", weight="w")
    rows = all_rows(source)
    np.testing.assert_array_equal(rows.X, frame[["a", "b", "c"]].astype(np.float32))
    np.testing.assert_array_equal(rows.y, frame["y"])
    np.testing.assert_array_equal(rows.sample_weight, frame["w"])
    np.testing.assert_array_equal(rows.indices, np.arange(1000))
    assert rows.X.dtype == np.float32 and rows.X.flags.c_contiguous and rows.indices.dtype == np.int64
    assert (source.n_rows, source.n_features, source.feature_names) == (1000, 3, ["a", "b", "c"])
    assert source.leaf_rows == max(len(task()) for task in source.tasks())
    assert source.row_bytes == 12 and source.n_bytes == sum(f.stat().st_size for f in tmp_path.iterdir())


@pytest.mark.parametrize("huge_bytes", [600, 10**9])
def test_leaves_come_again_from_any_number_on(tmp_path, monkeypatch, rng, huge_bytes) -> None:
    write_pieces(a_frame(rng, 700), tmp_path, rng, n_files=3)
    monkeypatch.setattr(parquet, "HUGE_BYTES", huge_bytes)
    monkeypatch.setattr(leaves, "LEAF_ROWS", 37)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 23)
    source = open_source(tmp_path, target="y", weight="w")
    once = [task() for task in source.tasks()]
    assert max(map(len, once)) == source.leaf_rows
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda task: task(), source.tasks()))
    for left, right in zip(once, again, strict=True):
        assert_same(left, right)
    for first in range(len(once) + 2):
        tail = [task() for task in source.tasks(first)]
        for left, right in zip(once[first:], tail, strict=True):
            assert_same(left, right)


@pytest.mark.parametrize("leaf_rows", [1, 7, 100])
def test_a_huge_row_group_is_streamed_to_the_same_rows(tmp_path, monkeypatch, rng, leaf_rows) -> None:
    write_pieces(a_frame(rng, 900), tmp_path, rng, n_files=2)
    usual = all_rows(open_source(tmp_path, target="y", weight="w"))
    monkeypatch.setattr(parquet, "HUGE_BYTES", 100)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 16)
    monkeypatch.setattr(leaves, "LEAF_ROWS", leaf_rows)
    source = open_source(tmp_path, target="y", weight="w")
    assert_same(all_rows(source), usual)
    assert max(len(task()) for task in source.tasks()) <= leaf_rows == source.leaf_rows


def test_leaves_can_be_made_larger(tmp_path, rng) -> None:
    write_pieces(a_frame(rng, 900), tmp_path, rng, n_files=2)
    source = open_source(tmp_path, target="y", weight="w")
    larger = source.with_leaf_rows(10**6)
    assert len(list(larger.tasks())) == 1 and larger.leaf_rows == 900
    assert_same(all_rows(larger), all_rows(source))
    assert larger.identity == source.identity


def test_a_truncated_file_is_named(tmp_path, rng) -> None:
    write_pieces(a_frame(rng, 900), tmp_path, rng, n_files=1)
    file = next(tmp_path.iterdir())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match=file.name):
        open_source(tmp_path)
