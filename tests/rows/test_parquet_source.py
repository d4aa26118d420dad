from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_rows import open_dataset

from tithe.core.data import Block, concat
from tithe.rows import datasets


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


def all_rows(source, leaf_rows: int | None = None) -> Block:
    return concat([task() for task in source.tasks(leaf_rows=leaf_rows)])


def assert_same(left: Block, right: Block) -> None:
    for ours, theirs in zip(
        (left.X, left.y, left.sample_weight, left.row_ids()),
        (right.X, right.y, right.sample_weight, right.row_ids()),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("leaf_rows", [1, 70, 400, 10**6])
def test_rows_and_ids_are_those_of_the_files_under_one_another(tmp_path, seed, leaf_rows) -> None:
    rng = np.random.default_rng(seed)
    frame = a_frame(rng, 1000)
    write_pieces(frame, tmp_path, rng, n_files=1 + seed)
    source = open_dataset(tmp_path, target="y", weight="w")
    rows = all_rows(source, leaf_rows)
    np.testing.assert_array_equal(rows.X, frame[["a", "b", "c"]].astype(np.float32))
    np.testing.assert_array_equal(rows.y, frame["y"])
    np.testing.assert_array_equal(rows.sample_weight, frame["w"])
    np.testing.assert_array_equal(rows.indices, np.arange(1000))
    assert rows.X.dtype == np.float32 and rows.X.flags.c_contiguous and rows.indices.dtype == np.int64
    assert (source.n_rows, source.n_features, source.feature_names) == (1000, 3, ["a", "b", "c"])
    assert source.row_bytes == 12 and source.n_bytes == sum(f.stat().st_size for f in tmp_path.iterdir())


@pytest.mark.parametrize("huge_bytes", [600, 10**9])
def test_leaves_come_again_from_any_number_on(tmp_path, monkeypatch, rng, huge_bytes) -> None:
    write_pieces(a_frame(rng, 700), tmp_path, rng, n_files=3)
    monkeypatch.setattr(datasets, "HUGE_BYTES", huge_bytes)
    monkeypatch.setattr(datasets, "BATCH_ROWS", 23)
    source = open_dataset(tmp_path, target="y", weight="w")
    once = [task() for task in source.tasks(leaf_rows=37)]
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda task: task(), source.tasks(leaf_rows=37)))
    for left, right in zip(once, again, strict=True):
        assert_same(left, right)
    for first in range(len(once) + 2):
        tail = [task() for task in source.tasks(first, leaf_rows=37)]
        for left, right in zip(once[first:], tail, strict=True):
            assert_same(left, right)


@pytest.mark.parametrize("leaf_rows", [1, 7, 100])
def test_a_huge_row_group_is_streamed_to_the_same_rows(tmp_path, monkeypatch, rng, leaf_rows) -> None:
    write_pieces(a_frame(rng, 900), tmp_path, rng, n_files=2)
    usual = all_rows(open_dataset(tmp_path, target="y", weight="w"))
    monkeypatch.setattr(datasets, "HUGE_BYTES", 100)
    monkeypatch.setattr(datasets, "BATCH_ROWS", 16)
    source = open_dataset(tmp_path, target="y", weight="w")
    assert_same(all_rows(source, leaf_rows), usual)
    assert max(len(task()) for task in source.tasks(leaf_rows=leaf_rows)) <= leaf_rows


def test_the_size_of_leaves_is_a_matter_of_the_caller(tmp_path, rng) -> None:
    write_pieces(a_frame(rng, 900), tmp_path, rng, n_files=2)
    source = open_dataset(tmp_path, target="y", weight="w")
    assert len(list(source.tasks(leaf_rows=10**6))) == 1 < len(list(source.tasks(leaf_rows=1)))
    assert_same(all_rows(source, 10**6), all_rows(source, 1))


def test_a_sample_sees_all_files(tmp_path) -> None:
    """Sorted by class, the rarer one in the last files."""
    for i in range(40):
        rows = {"a": np.arange(500.0) + 500 * i, "y": np.full(500, int(i >= 30))}
        pq.write_table(pa.table(rows), tmp_path / f"{i:02}.parquet", row_group_size=250)
    source = open_dataset(tmp_path, target="y")
    for seed in range(5):
        drawn = source.sample(400, rng=np.random.default_rng(seed))
        assert len(np.unique(drawn.row_ids())) == 400
        np.testing.assert_array_equal(drawn.X.ravel(), drawn.row_ids())
        assert abs(drawn.y.mean() - 0.25) < 0.15
        assert_same(drawn, source.sample(400, rng=np.random.default_rng(seed)))
    assert len(source.sample(10_000, rng=np.random.default_rng(0))) == 10_000
    everything = source.sample(None, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(everything.row_ids(), np.arange(20_000))


def test_a_class_in_the_last_row_is_found(tmp_path) -> None:
    for i in range(3):
        y = ["often"] * 100 if i < 2 else ["often"] * 99 + ["once"]
        pq.write_table(pa.table({"a": np.zeros(100), "y": y}), tmp_path / f"{i}.parquet", row_group_size=30)
    assert open_dataset(tmp_path, target="y").classes().tolist() == ["often", "once"]
    many = pa.table({"a": np.zeros(100_001), "y": np.arange(100_001)})
    pq.write_table(many, tmp_path / "0.parquet")
    with pytest.raises(ValueError, match="more than 100,000"):
        open_dataset(tmp_path / "0.parquet", target="y").classes()


def test_identity_is_that_of_the_rows_not_of_the_place(tmp_path, rng) -> None:
    frame = a_frame(rng, 100)
    for place in ("here", "there"):
        (tmp_path / place / "deep").mkdir(parents=True)
        frame[:60].to_parquet(tmp_path / place / "1.parquet", index=False)
        frame[60:].to_parquet(tmp_path / place / "deep" / "2.parquet", index=False)
    here, there = tmp_path / "here", tmp_path / "there"
    known = open_dataset(here, target="y").identity
    assert open_dataset(there, target="y").identity == known
    assert open_dataset(str(there / "**" / "*.parquet"), target="y").identity == known
    others = [
        open_dataset(here / "1.parquet", target="y"),
        open_dataset(here, target="y", columns=["a", "b"]),
        open_dataset(here, target="y", bad_rows="skip"),
        open_dataset(here, target="w", categories="hash"),
    ]
    frame[:61].to_parquet(there / "1.parquet", index=False)
    others.append(open_dataset(there, target="y"))
    assert len({known, *(other.identity for other in others)}) == 6


def test_files_come_in_the_order_asked_for(tmp_path) -> None:
    for i in (3, 1, 2):
        pq.write_table(pa.table({"a": [float(i)]}), tmp_path / f"{i}.parquet")
    listed = [tmp_path / "3.parquet", str(tmp_path / "1.parquet")]
    for where, expected in (
        (tmp_path, [1, 2, 3]),
        (listed, [3, 1]),
        (str(tmp_path / "[12].parquet"), [1, 2]),
    ):
        assert all_rows(open_dataset(where)).X.ravel().tolist() == expected
    assert all_rows(open_dataset([tmp_path / "2.parquet"], format="parquet")).X.tolist() == [[2.0]]


def test_a_sample_of_large_row_groups_reads_a_part_of_each(tmp_path) -> None:
    pq.write_table(pa.table({"a": np.arange(20_000.0)}), tmp_path / "rows.parquet", row_group_size=1000)
    source = open_dataset(tmp_path / "rows.parquet", scale="none", columns=["a"])
    sample = source.sample(64, rng=np.random.default_rng(0))
    places = sample.row_ids() % 1000 // 125  # which eighth of its group
    groups = sample.row_ids() // 1000
    assert len(sample) == 64 and len(np.unique(groups)) == 8
    assert len(set(zip(groups.tolist(), places.tolist(), strict=True))) == len(set(places.tolist())) == 8


def test_leaves_are_cut_once_for_all_tasks(tmp_path, monkeypatch, rng) -> None:
    frame = pd.DataFrame(rng.normal(size=(1000, 2)), columns=["a", "b"])
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=10)
    source = open_dataset(tmp_path)
    cuts: list[int] = []
    joined = datasets.joined
    monkeypatch.setattr(
        datasets, "joined", lambda units, *options: (cuts.append(len(units)), joined(units, *options))[1]
    )
    for first in range(source.n_leaves(20)):
        assert next(source.tasks(first, 20))().row_ids()[0] == 20 * first
    assert cuts == [100]
    assert pickle.loads(pickle.dumps(source)).n_leaves(20) == 50
    assert len(pickle.dumps(source)) < 12_000
