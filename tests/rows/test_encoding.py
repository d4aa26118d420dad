from __future__ import annotations

from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_rows import open_dataset
from scipy import sparse

from tithe.core.data import concat
from tithe.rows import schema

COLOURS = ["red", "", "blue", "grün", None]


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    n = 300
    frame = pd.DataFrame({"a": rng.normal(size=n).astype(np.float32), "colour": rng.choice(COLOURS, n)})
    frame["kind"] = pd.Categorical(rng.choice(["3", "1", "2"], n))
    return frame.assign(b=rng.integers(0, 2, n).astype(bool), y=rng.choice(["x", "y"], n))


def written(frame: pd.DataFrame, folder, ending: str) -> pd.DataFrame:
    for i, part in enumerate((frame[:50], frame[50:120], frame[120:])):
        if ending == "csv":
            part.to_csv(folder / f"{i}.csv", index=False)
        else:
            part.to_parquet(folder / f"{i}.parquet", index=False, row_group_size=37)
    return frame


def rows_of(source) -> np.ndarray:
    return concat([task() for task in source.tasks()])


def by_hand(frame: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """One-hot columns in the order of the frame; gaps have a column of their own."""
    made, names = [], []
    for name in ("a", "colour", "kind", "b"):
        if name in ("a", "b"):
            made.append(frame[name].to_numpy(np.float64))
            names.append(name)
            continue
        text = frame[name].astype(object).where(frame[name].notna(), "").map(str)
        for value in sorted(set(text) - {""}):
            made.append((text == value).to_numpy(np.float64))
            names.append(f"{name}={value}")
        if "" in set(text):
            made.append((text == "").to_numpy(np.float64))
            names.append(f"{name} missing")
    return np.column_stack(made), names


def test_one_hot_is_as_by_hand(frame, tmp_path) -> None:
    expected, names = by_hand(written(frame, tmp_path, "parquet"))
    source = open_dataset(tmp_path, target="y", categories="onehot", impute="median")
    rows = rows_of(source)
    np.testing.assert_array_equal(rows.X, expected)
    assert source.feature_names == names and rows.X.dtype == np.float32
    assert source.n_features == len(names) and source.row_bytes == 4 * len(names)
    assert "colour=grün" in names and "colour missing" in names


def test_hashes_are_as_by_hand(frame, tmp_path) -> None:
    written(frame, tmp_path, "parquet")
    source = open_dataset(tmp_path, columns=["colour", "a"], categories="hash", n_hashes=7, impute="median")
    expected = np.zeros((300, 9), np.float32)
    for row, value in enumerate(frame["colour"].where(frame["colour"].notna(), "")):
        expected[row, crc32(value.encode()) % 7 if value else 7] = 1
    expected[:, 8] = frame["a"]
    np.testing.assert_array_equal(rows_of(source).X, expected)
    assert source.feature_names == [*(f"colour#{i}" for i in range(7)), "colour missing", "a"]


@pytest.mark.parametrize("categories", ["onehot", "hash"])
def test_csv_and_parquet_agree_on_text(frame, tmp_path, categories) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "c").mkdir()
    frame["a"] = np.round(frame["a"], 3).astype(np.float64)
    chosen = {"columns": ["colour", "a", "b"], "categories": categories, "impute": "median", "target": "y"}
    written(frame, tmp_path / "p", "parquet")
    written(frame, tmp_path / "c", "csv")
    left, right = (open_dataset(tmp_path / folder, **chosen) for folder in "pc")
    assert left.feature_names == right.feature_names
    np.testing.assert_array_equal(rows_of(left).X, rows_of(right).X)
    np.testing.assert_array_equal(rows_of(left).y, rows_of(right).y)
    np.testing.assert_array_equal(left.classes(), right.classes())


def test_what_is_wide_is_sparse(frame, tmp_path, monkeypatch) -> None:
    frame.loc[5, "a"] = 0.0
    expected, _ = by_hand(written(frame, tmp_path, "parquet"))
    monkeypatch.setattr(schema, "WIDEST_DENSE", 5)
    source = open_dataset(tmp_path, target="y", categories="onehot", impute="median")
    X = rows_of(source).X
    assert sparse.issparse(X) and X.format == "csr" and X.dtype == np.float32 and X.has_canonical_format
    assert X.nnz == np.count_nonzero(expected)
    np.testing.assert_array_equal(X.toarray(), expected)
    frame["colour"] = frame["colour"].replace("", "grey").fillna("grey")
    expected, _ = by_hand(frame)
    frame.loc[77, "a"] = np.nan
    written(frame, tmp_path, "parquet")
    with pytest.raises(ValueError, match=r"1\.parquet', row 27 .*'a'"):
        rows_of(open_dataset(tmp_path, target="y", categories="onehot"))
    kept = rows_of(open_dataset(tmp_path, target="y", categories="onehot", bad_rows="skip"))
    np.testing.assert_array_equal(kept.X.toarray(), np.delete(expected, 77, axis=0))
    np.testing.assert_array_equal(kept.row_ids(), np.delete(np.arange(300), 77))


def test_text_is_refused_unless_told(frame, tmp_path) -> None:
    written(frame, tmp_path, "parquet")
    with pytest.raises(ValueError, match=r"'colour' is text.*'onehot'.*'hash'.*leave it out"):
        open_dataset(tmp_path, target="y")


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["float16", "float32", "int8", "uint16", "bool"], np.float32),
        (["float32", "int32"], np.float64),
        (["float64"], np.float64),
        (["uint64", "int8"], np.float64),
    ],
)
def test_types_of_numbers(tmp_path, rng, types, expected) -> None:
    made = {f"c{i}": rng.integers(0, 2, 50).astype(t) for i, t in enumerate(types)}
    pq.write_table(pa.table(made), tmp_path / "t.parquet", row_group_size=20)
    rows = rows_of(open_dataset(tmp_path))
    assert rows.X.dtype == expected
    np.testing.assert_array_equal(rows.X, np.column_stack(list(made.values())).astype(expected))


def test_numbers_may_differ_in_kind_between_files(tmp_path) -> None:
    decimals = pa.array([1, 2]).cast(pa.decimal128(21, 2))
    pq.write_table(pa.table({"a": pa.array([1, 2], pa.int8()), "y": pa.array([0, 1], pa.int8())}), tmp_path / "1.pq")
    pq.write_table(pa.table({"y": pa.array([2, 300], pa.int32()), "a": decimals}), tmp_path / "2.pq")
    pq.write_table(pa.table({"a": [0.5], "y": pa.array([True])}), tmp_path / "3.pq")
    source = open_dataset(tmp_path, target="y")
    blocks = [task() for task in source.tasks(leaf_rows=1)]
    rows = concat(blocks)
    assert rows.X.ravel().tolist() == [1, 2, 1, 2, 0.5] and rows.X.dtype == np.float64
    assert rows.y.tolist() == [0, 1, 2, 300, 1] and rows.y.dtype == np.int32
    assert source.classes().tolist() == [0, 1, 2, 300]


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (pa.array(["b", "a", "b"]), ["a", "b"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array([True, False, True]), [False, True]),
        (pa.array([2.5, -1.0, 2.5]), [-1.0, 2.5]),
        (pa.array([7, 5, 7], pa.uint8()), [5, 7]),
    ],
)
def test_targets_of_any_type(tmp_path, values, classes) -> None:
    pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": values}), tmp_path / "t.parquet", row_group_size=2)
    source = open_dataset(tmp_path, target="y")
    rows = rows_of(source)
    assert rows.y.tolist() == values.to_pylist()
    assert source.classes().tolist() == classes
    assert type(rows.y) is np.ndarray and (rows.y.dtype == object) == isinstance(classes[0], str)


def test_the_index_of_a_frame_is_no_feature(tmp_path) -> None:
    pd.DataFrame({"a": [1.0, 2.0]}, index=[5, 9]).to_parquet(tmp_path / "t.parquet")
    assert open_dataset(tmp_path).feature_names == ["a"]
