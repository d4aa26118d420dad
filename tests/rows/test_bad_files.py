from __future__ import annotations

import bz2
import gzip
import io
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plain_rows import ColumnSelection, open_dataset

from tithe import FileFormatError
from tithe.rows.piped import open_piped


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "y": np.arange(60) % 3})


def write(frame: pd.DataFrame, path, **how) -> None:
    frame.to_parquet(path, index=False, **how)


def read_all(source) -> None:
    for task in source.tasks():
        task()


def test_nothing_to_open(tmp_path) -> None:
    (tmp_path / "_hidden.csv").write_text("a\n1\n")
    (tmp_path / ".secret.csv").write_text("a\n1\n")
    (tmp_path / "_logs").mkdir()
    (tmp_path / "_logs" / "x.csv").write_text("a\n1\n")
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(FileNotFoundError, match="no data file in the folder"):
        open_dataset(tmp_path)
    with pytest.raises(FileNotFoundError, match="No file matches"):
        open_dataset(tmp_path / "*.parquet")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        open_dataset(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="empty"):
        open_dataset([])
    with pytest.raises(FileFormatError, match="format='csv'"):
        open_dataset(tmp_path / "notes.txt")


def test_options_that_make_no_sense(frame, tmp_path) -> None:
    write(frame, tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="one format at a time"):
        open_dataset(tmp_path)
    file = tmp_path / "t.parquet"
    for options, message in [
        ({"format": "excel"}, "no format named 'excel'"),
        ({"format": "arrow"}, "standard input"),
        ({"categories": "drop"}, "categories must be"),
        ({"bad_rows": "keep"}, "bad_rows must be"),
        ({"n_hashes": 0}, "n_hashes"),
        ({"columns": []}, "columns is empty"),
        ({"columns": "a"}, "list of names"),
        ({"columns": ["a", "a"]}, "asked for twice"),
        ({"columns": ["a", "y"], "target": "y"}, "asked for twice"),
        ({"columns": ["z"]}, r"t\.parquet' has no column 'z'. Its columns are a, b, y"),
        ({"target": "z"}, "no column 'z'"),
        ({"n_features": 3}, "libsvm"),
    ]:
        with pytest.raises(ValueError, match=message):
            open_dataset(file, **options)
    with pytest.raises(ValueError, match="no target"):
        open_dataset(file).classes()


def test_schemas_are_compared_before_reading(frame, tmp_path) -> None:
    write(frame, tmp_path / "1.parquet")
    write(frame, tmp_path / "2.parquet")
    write(frame.drop(columns="b"), tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet' has no column 'b'"):
        open_dataset(tmp_path)
    write(frame.assign(b="text"), tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"'b' is double in .*1\.parquet' and .*string in .*3\.parquet'"):
        open_dataset(tmp_path)
    write(frame.assign(c=1), tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet' has a column 'c'"):
        open_dataset(tmp_path)
    assert open_dataset(tmp_path, columns=["b"]).n_features == 1
    write(frame.assign(b=frame["b"].astype(np.float32), a=1)[["b", "y", "a"]], tmp_path / "3.parquet")
    rows = open_dataset(tmp_path, columns=["b", "a"])
    assert next(rows.tasks())().X.dtype == np.float64
    write(frame.assign(b=[["1", "2"]] * 60), tmp_path / "1.parquet")
    assert "b" not in open_dataset(tmp_path / "1.parquet").feature_names
    with pytest.raises(ValueError, match=r"'b' is .*no feature"):
        open_dataset(tmp_path / "1.parquet", columns=["b"])
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(table, tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="2 columns named 'a'"):
        open_dataset(tmp_path / "1.parquet")
    write(frame.assign(y="text"), tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="weight column 'y' is not numeric"):
        open_dataset(tmp_path / "1.parquet", weight="y")


def test_files_without_rows(frame, tmp_path) -> None:
    write(frame[:0], tmp_path / "1.parquet")
    with pytest.raises(ValueError, match="no rows"):
        open_dataset(tmp_path)
    write(frame, tmp_path / "2.parquet")
    assert open_dataset(tmp_path).n_rows == 60
    (tmp_path / "e").mkdir()
    for name in ("e.csv", "e.libsvm"):
        (tmp_path / "e" / name).write_text("")
        with pytest.raises(ValueError, match="no rows"):
            open_dataset(tmp_path / "e" / name)
    (tmp_path / "e" / "e.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="no rows"):
        read_all(open_dataset(tmp_path / "e" / "e.csv"))
    np.save(tmp_path / "e" / "e.npy", np.zeros((0, 3)))
    with pytest.raises(ValueError, match="no rows"):
        open_dataset(tmp_path / "e" / "e.npy")


def test_damage_is_named(frame, tmp_path) -> None:
    file = tmp_path / "t.parquet"
    frame = pd.concat([frame] * 50)
    write(frame, file, row_group_size=1000, use_dictionary=False, compression="gzip")
    whole = file.read_bytes()
    for broken in (whole[:-3], whole[: len(whole) // 2], whole[4:], b"PAR1", b""):
        file.write_bytes(broken)
        with pytest.raises(FileFormatError, match=r"t\.parquet"):
            read_all(open_dataset(file))
    offset = pq.ParquetFile(pa.BufferReader(whole)).metadata.row_group(1).column(0).data_page_offset
    damaged = bytearray(whole)
    damaged[offset + 100 : offset + 300] = bytes(200)
    file.write_bytes(damaged)
    with pytest.raises(FileFormatError, match=r"t\.parquet', row group 1"):
        read_all(open_dataset(file))
    file.write_bytes(whole)
    np.save(tmp_path / "t.npy", np.zeros((50, 3)))
    (tmp_path / "t.npy").write_bytes((tmp_path / "t.npy").read_bytes()[:200])
    np.savez(tmp_path / "t.npz", X=np.zeros((20, 3)))
    (tmp_path / "t.npz").write_bytes((tmp_path / "t.npz").read_bytes()[:100])
    np.save(tmp_path / "o.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b nothing of this kind")
    (tmp_path / "latin.csv").write_bytes("à,b\n1,2\n".encode("latin-1"))
    for name in ("t.npy", "t.npz", "o.npy", "t.csv.gz", "latin.csv"):
        with pytest.raises(FileFormatError, match=name):
            open_dataset(tmp_path / name)


@pytest.mark.parametrize("ending", ["parquet", "csv", "libsvm", "npy"])
def test_files_that_change_while_they_are_read(frame, tmp_path, ending) -> None:
    file = tmp_path / f"t.{ending}"
    if ending == "parquet":
        write(frame, file)
    elif ending == "csv":
        frame.to_csv(file, index=False)
    elif ending == "npy":
        np.save(file, frame.to_numpy())
    else:
        file.write_text("1 1:2 3:4\n" * 60)
    source = open_dataset(file)
    with open(file, "ab") as more:
        more.write(b"1 1:2\n")
    with pytest.raises(FileFormatError, match="bytes when it was opened"):
        read_all(source)
    os.unlink(file)
    with pytest.raises(FileNotFoundError, match="vanished while it was read"):
        read_all(source)


def spoiled(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.assign(w=1.0, t="x")
    frame["y"] = frame["y"].astype("Int64")
    frame.loc[7, "a"] = np.nan
    frame.loc[11, "b"] = np.inf
    frame.loc[23, "y"] = pd.NA
    frame.loc[31, "w"] = -1.0
    frame.loc[41, "w"] = np.nan
    frame.loc[43, "w"] = np.inf
    return frame


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_bad_rows(frame, tmp_path, ending) -> None:
    frame = spoiled(frame)
    for name, rows in (("1", frame[:5]), ("2", frame[5:])):
        file = tmp_path / f"{name}.{ending}"
        rows.to_csv(file, index=False) if ending == "csv" else write(rows, file, row_group_size=9)
    options = {"target": "y", "weight": "w", "columns": ["a", "b"]}
    with pytest.raises(ValueError, match=rf"2\.{ending}', row 2 .*row 0.*'a'.*bad_rows='skip'"):
        read_all(open_dataset(tmp_path, **options))
    source = open_dataset(tmp_path, bad_rows="skip", **options)
    blocks = [task() for task in source.tasks()]
    ids = np.concatenate([block.row_ids() for block in blocks])
    np.testing.assert_array_equal(ids, np.setdiff1d(np.arange(60), [7, 11, 23, 31, 41, 43]))
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks]), frame["y"][ids].astype(int))
    assert all(block.y.dtype == np.int64 and block.sample_weight is None for block in blocks)
    assert len(source.sample(None, rng=np.random.default_rng(0))) == 54
    np.testing.assert_array_equal(source.classes(), [0, 1, 2])
    labelled = open_dataset(tmp_path, columns=["t"], target="y", categories="hash")
    assert sum(len(task()) for task in labelled.tasks()) == 59  # a row without a target is left out
    for columns, more, message in (
        (["b"], {}, r"row 6 .*'b'"),
        (["t"], {"weight": "w", "categories": "hash"}, r"row 26 .*weight 'w'"),
    ):
        with pytest.raises(ValueError, match=rf"2\.{ending}', {message}"):
            read_all(open_dataset(tmp_path, columns=columns, **more))


def test_a_leaf_may_lose_all_its_rows(tmp_path) -> None:
    table = pa.table({"a": pa.array([None, None, 1.0]), "y": pa.array([None, "x", "y"])})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    source = open_dataset(tmp_path, target="y", bad_rows="skip")
    block = next(source.tasks())()
    assert block.X.tolist() == [[1.0]] and block.y.tolist() == ["y"] and block.row_ids().tolist() == [2]
    pq.write_table(table[:2], tmp_path / "t.parquet")
    block = next(open_dataset(tmp_path, target="y", bad_rows="skip").tasks())()
    assert block.X.shape == (0, 1) and len(block.y) == len(block.row_ids()) == 0


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "npy", "libsvm"])
def test_all_rows_are_bad(tmp_path, ending) -> None:
    file = tmp_path / f"t.{ending}"
    frame = pd.DataFrame({"a": np.arange(1200.0), "b": np.nan})
    if ending == "parquet":
        write(frame, file, row_group_size=100)
    elif ending == "npy":
        np.save(file, frame.to_numpy())
    elif ending == "libsvm":
        file.write_text("1 1:nan\n" * 1200)
    else:
        frame.to_csv(file, index=False)
    source = open_dataset(file, bad_rows="skip")
    with pytest.raises(ValueError, match=rf"All 1,200 rows of .*t\.{ending}' are bad"):
        source.sample(50, rng=np.random.default_rng(0))


def test_a_sample_finds_the_few_good_rows(tmp_path) -> None:
    a = np.full(1000, np.nan)
    a[990:] = 1.0
    np.save(tmp_path / "t.npy", a[:, None])
    source = open_dataset(tmp_path / "t.npy", bad_rows="skip")
    for seed in range(20):  # most draws see none of them
        assert source.sample(5, rng=np.random.default_rng(seed)).X.min() == 1.0


def test_pipes_of_bad_rows() -> None:
    with pytest.raises(ValueError, match="All rows of standard input are bad"):
        open_piped(io.BytesIO(b"a,b\n" + b"1,\n" * 9000), "csv", ColumnSelection(bad_rows="skip"), None)
    source = open_piped(io.BytesIO(b"a,b\n" + b"1,\n" * 9000 + b"1,2\n"), "csv", ColumnSelection(bad_rows="skip"), None)
    assert source.sample(None, rng=np.random.default_rng(0)).row_ids().tolist() == [9000]


@pytest.mark.parametrize("header", ["a,b,b,y", "a,b, b,y", "a,,,y"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.bz2", ".tsv", "pipe"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_columns_of_one_name_are_refused(tmp_path, header, ending, delimiter) -> None:
    rows = "".join(f"{i}.5,{i % 3}.1,{i % 7}.3,{i % 2}\n" for i in range(50))
    text = f"{header}\n{rows}".replace(",", "\t" if ending == ".tsv" else delimiter).encode()
    packed = {".csv.gz": gzip.compress, ".csv.bz2": bz2.compress}.get(ending, bytes)(text)
    file = tmp_path / f"rows{ending}"
    file.write_bytes(packed)

    def opened(**options):
        choice = ColumnSelection(target="y", **options)
        return open_piped(io.BytesIO(text), "csv", choice, None) if ending == "pipe" else open_dataset(file, **options)

    with pytest.raises(FileFormatError, match=r"2 columns (named 'b'|without a name).*columns=") as fault:
        opened()
    assert ("standard input" if ending == "pipe" else str(file)) in str(fault.value)
    source = opened(columns=["a"])  # the others are not read
    assert source.feature_names == ["a"] and next(source.tasks())().X.shape == (50, 1)
