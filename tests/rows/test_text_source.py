from __future__ import annotations

import io
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from plain_rows import ColumnSelection, open_dataset
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from tithe import FileFormatError
from tithe.core.data import Block, concat
from tithe.rows import delimited, leaves, libsvm, text
from tithe.rows.columns import Numbered
from tithe.rows.piped import open_piped
from tithe.rows.stores import Limits

TEXTS = ["plain", "with, comma", 'with "quotes"', "two\nlines", "two\r\nlines", ""]


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    n = 500
    numbers = {"a": rng.normal(size=n), "b": rng.integers(0, 50, n), "c": rng.random(n) < 0.5}
    return pd.DataFrame({**numbers, "t": rng.choice(TEXTS, n), "y": rng.choice(["no", "yes"], n), "w": rng.random(n)})


def all_rows(source, first: int = 0, leaf_rows: int | None = None) -> Block:
    return concat([task() for task in source.tasks(first, leaf_rows)])


def assert_rows(block: Block, frame: pd.DataFrame) -> None:
    np.testing.assert_array_equal(block.X[:, :3], frame[["a", "b", "c"]].astype(float))
    np.testing.assert_array_equal(block.y, frame["y"])
    np.testing.assert_array_equal(block.sample_weight, frame["w"])
    np.testing.assert_array_equal(block.row_ids(), np.arange(len(frame)))


def test_csv_leaves_are_read_where_they_begin_once_they_are_counted(frame, tmp_path) -> None:
    (tmp_path / "0.csv").write_bytes(b"\xef\xbb\xbf" + frame[:200].to_csv(index=False).encode())
    frame[200:200].to_csv(tmp_path / "1.csv", index=False)
    (tmp_path / "2.csv").write_text("\n\n" + frame[200:].to_csv(index=False, lineterminator="\r\n").rstrip())
    source = open_dataset(tmp_path, target="y", weight="w", categories="hash", impute="median")
    expected = [task() for task in source.tasks(leaf_rows=33)]
    assert source.n_leaves(33) == len(expected) == 7 + 10
    there = pickle.loads(pickle.dumps(source))
    there._cut = None  # files are not read from their beginning any more
    for first in (0, 5, 16):
        for left, task in zip(expected[first:], there.tasks(first, 33), strict=True):
            right = task()
            np.testing.assert_array_equal(left.X, right.X)
            np.testing.assert_array_equal(left.row_ids(), right.row_ids())
    assert_rows(all_rows(source, 0, 33), frame)


def test_leaves_of_compressed_csv_are_not_counted(frame, tmp_path) -> None:
    frame.to_csv(tmp_path / "rows.csv.gz", index=False)
    assert open_dataset(tmp_path, target="y", categories="hash").n_leaves() is None


@pytest.mark.parametrize(
    ("chunk", "leaf_rows"), [(1, 1), (1, 33), (7, 33), (7, 10**6), (1000, 1), (2**20, 33), (2**20, 10**6)]
)
def test_csv_rows_whatever_the_leaves_and_chunks(frame, tmp_path, monkeypatch, chunk, leaf_rows) -> None:
    if 1 in (chunk, leaf_rows):
        frame = frame[:40]
    monkeypatch.setattr(text, "_CHUNK", chunk)
    for i, (start, stop) in enumerate([(0, 20), (20, 20), (20, 31), (31, len(frame))]):
        frame[start:stop].to_csv(tmp_path / f"{i}.csv", index=False, lineterminator=["\n", "\r\n"][i % 2])
    source = open_dataset(tmp_path, target="y", weight="w", categories="hash", impute="median")
    assert_rows(all_rows(source, 0, leaf_rows), frame)
    assert source.n_rows == len(frame) and source.feature_names[:3] == ["a", "b", "c"]
    leaf = [task() for task in source.tasks(leaf_rows=leaf_rows)]
    assert max(map(len, leaf)) <= leaf_rows
    for first in (0, 1, len(leaf) - 1):
        for left, right in zip(leaf[first:], source.tasks(first, leaf_rows), strict=True):
            np.testing.assert_array_equal(left.X, right().X)
            np.testing.assert_array_equal(left.row_ids(), right().row_ids())


def test_compressed_and_tabbed_text_is_the_same(frame, tmp_path, rng) -> None:
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    text = frame.to_csv(index=False).encode()
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + text + b"\n\r\n\n")
    (tmp_path / "gaps.csv").write_bytes(b"\r\n\n" + text)
    for name in ("t.csv.gz", "t.tsv", "marked.csv", "gaps.csv"):
        source = open_dataset(tmp_path / name, target="y", weight="w", categories="onehot", impute="median")
        assert_rows(all_rows(source), frame)
        assert source.feature_names[3:] == [*(f"t={text}" for text in sorted(TEXTS) if text), "t missing"]
        assert len(source.sample(100, rng=rng)) == 100


def test_whole_numbers_may_have_fractions_later(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "1\n" * 400_000 + "1.5\n")
    rows = all_rows(open_dataset(tmp_path / "t.csv"))
    assert rows.X[-1, 0] == 1.5 and len(rows) == 400_001


def test_rows_that_do_not_parse(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "_PROBE_BYTES", 2048)
    good = [f"{i},x,{i % 2}" for i in range(30_000)]
    good[16_345] = "oops,x,1"
    good[15_001] = "1,x"
    good[15_002] = '2,"y,1",0,4'
    (tmp_path / "t.csv").write_text("\n".join(["a,t,y", *good]))
    source = open_dataset(tmp_path / "t.csv", columns=["a"], target="y")
    with pytest.raises(ValueError, match=r"t\.csv', row 15001 .*2 values instead of 3.*bad_rows='skip'"):
        all_rows(source)
    source = open_dataset(tmp_path / "t.csv", columns=["a"], target="y", bad_rows="skip")
    rows = all_rows(source)
    np.testing.assert_array_equal(rows.row_ids(), np.delete(np.arange(30_000), [15_001, 15_002, 16_345]))
    np.testing.assert_array_equal(rows.X.ravel(), rows.row_ids())
    assert source.classes().tolist() == [0, 1]
    (tmp_path / "q.csv").write_text('a,b\n1,"never closed\n2,3\n')
    with pytest.raises(FileFormatError, match="closing quote"):
        all_rows(open_dataset(tmp_path / "q.csv", categories="hash"))


@pytest.mark.parametrize("n", [12, 30_000])
@pytest.mark.parametrize("wrong", ["1,2,3", "1", "   ", '"a ""b"", c",2,3'])
def test_ragged_rows_are_named_or_skipped(tmp_path, n: int, wrong: str) -> None:
    rows = [f"{i},{i / 8}" for i in range(n)]
    at = [0, *range(5, n, 400)]  # some in every block
    for i in at:
        rows[i] = wrong
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *rows, ""]))
    with pytest.raises(ValueError, match=r"t\.csv', row 0 .* values instead of 2.*bad_rows='skip'"):
        all_rows(open_dataset(tmp_path / "t.csv"))
    source = open_dataset(tmp_path / "t.csv", bad_rows="skip")
    found = all_rows(source)
    np.testing.assert_array_equal(found.row_ids(), np.delete(np.arange(n), at))
    np.testing.assert_array_equal(found.X, np.stack([found.row_ids(), found.row_ids() / 8], axis=1))
    piped = open_piped(io.BytesIO((tmp_path / "t.csv").read_bytes()), "csv", ColumnSelection(bad_rows="skip"), None)
    np.testing.assert_array_equal(all_rows(piped).X, found.X)


def test_a_blank_line_of_a_single_column(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n  \n2\n")
    with pytest.raises(ValueError, match=r"t\.csv', row 1 "):
        all_rows(open_dataset(tmp_path / "t.csv"))
    assert all_rows(open_dataset(tmp_path / "t.csv", bad_rows="skip")).X.tolist() == [[1.0], [2.0]]


def test_ids_of_a_text_sample_are_distinct_and_near_the_truth(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "_PROBE_BYTES", 1024)
    n = 200_000
    frame = pd.DataFrame({"a": np.arange(n)})
    for i in range(3):
        frame[i * n // 3 : (i + 1) * n // 3].to_csv(tmp_path / f"{i}.csv", index=False)
    source = open_dataset(tmp_path)
    drawn = source.sample(3000, rng=np.random.default_rng(0))
    ids, true = drawn.row_ids(), drawn.X.ravel()
    assert len(ids) == 3000 and (np.diff(ids) > 0).all()
    assert np.abs(ids - true).max() < 0.05 * n
    whole = source.sample(n, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(whole.row_ids(), whole.X.ravel())


def test_a_bad_row_in_a_text_sample_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "_PROBE_BYTES", 1024)
    lines_ = ["a", *(str(1_000_000 + i) for i in range(100_000))]
    lines_[50_000:52_000] = ["oops"] * 2000
    (tmp_path / "t.csv").write_text("\n".join(lines_))
    with pytest.raises(ValueError, match=r"t\.csv', about row (49|5[0-2]),\d\d\d: column 'a' is missing"):
        open_dataset(tmp_path / "t.csv").sample(3000, rng=np.random.default_rng(0))


def test_a_text_sample_sees_everything(tmp_path, rng, monkeypatch) -> None:
    n = 120_000
    frame = pd.DataFrame({"a": np.arange(n) / 7.0, "y": np.where(np.arange(n) < n // 2, "first", "second")})
    frame.loc[n - 1, "y"] = "last"
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "z.csv.gz", index=False)
    for name in ("t.csv", "z.csv.gz"):
        source = open_dataset(tmp_path / name, target="y")
        drawn = source.sample(500, rng=np.random.default_rng(0))
        assert len(drawn) == 500
        assert abs((drawn.y == "first").mean() - 0.5) < 0.15
        np.testing.assert_array_equal(drawn.X, source.sample(500, rng=np.random.default_rng(0)).X)
        assert source.classes().tolist() == ["first", "last", "second"]
        assert len(source.sample(None, rng=rng)) == 65_536
        assert len(source.sample(10**7, rng=rng)) == n


@pytest.fixture
def svm(rng: np.random.Generator, tmp_path):
    X = sparse.random(400, 30, density=0.2, random_state=0, format="csr")
    y = rng.integers(0, 3, 400).astype(float)
    for i, (start, stop) in enumerate([(0, 150), (150, 390), (390, 400)]):
        file = tmp_path / f"{i}.svm"
        dump_svmlight_file(X[start:stop], y[start:stop], str(file), zero_based=False, comment="a: comment\n 0:1")
    return X, y


@pytest.mark.parametrize("leaf_rows", [1, 60, 10**6])
def test_libsvm_rows_are_those_of_sklearn(svm, tmp_path, monkeypatch, leaf_rows) -> None:
    X, y = svm
    monkeypatch.setattr(libsvm, "_UNIT_ROWS", 17)
    source = open_dataset(tmp_path)
    rows = all_rows(source, 0, leaf_rows)
    expected, _ = load_svmlight_file(io.BytesIO(b"".join(f.read_bytes() for f in sorted(tmp_path.iterdir()))))
    assert (expected != rows.X).nnz == 0 and abs(rows.X - X).max() < 1e-12
    np.testing.assert_array_equal(rows.y, y)
    np.testing.assert_array_equal(rows.row_ids(), np.arange(400))
    assert source.n_rows == 400 and source.n_features == X.shape[1] and source.classes().tolist() == [0, 1, 2]
    tail = all_rows(source, len(list(source.tasks(leaf_rows=leaf_rows))) // 2, leaf_rows)
    np.testing.assert_array_equal(tail.X.toarray(), expected.toarray()[tail.row_ids()])
    assert open_dataset(tmp_path, n_features=50).n_features == 50
    with pytest.raises(ValueError, match="30 columns"):
        open_dataset(tmp_path, n_features=20)
    with pytest.raises(ValueError, match="target cannot be named"):
        open_dataset(tmp_path, target="y")
    drawn = source.sample(50, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(drawn.X.toarray(), expected.toarray()[drawn.row_ids()])
    assert len(drawn) == 50


def test_libsvm_that_counts_from_zero_or_is_broken(tmp_path) -> None:
    (tmp_path / "0.svm").write_text("1 1:5\n# only a note\n\n2 qid:7 0:3 # 9:9\n")
    assert all_rows(open_dataset(tmp_path)).X.toarray().tolist() == [[0, 5], [3, 0]]
    (tmp_path / "1.svm").write_text("1 1:5\n2 2:oops\n")
    with pytest.raises(FileFormatError, match=r"1\.svm', row 1 "):
        all_rows(open_dataset(tmp_path))
    (tmp_path / "1.svm").write_text("1 1:5\nnan 1:1\n3 1:inf\n4 1:1\n")
    with pytest.raises(ValueError, match=r"1\.svm', row 1 .*not finite"):
        all_rows(open_dataset(tmp_path))
    assert all_rows(open_dataset(tmp_path, bad_rows="skip")).row_ids().tolist() == [0, 1, 2, 5]


def test_a_wrong_column_number_is_named_before_it_costs_memory(tmp_path) -> None:
    for number in (2**31, 4_000_000_000, 40_000_000_001):
        (tmp_path / "1.svm").write_text("# note\n1 1:2\n\n" * 3 + f"2 1:1 {number}:1\n" + "1 1:2\n" * 3)
        with pytest.raises(FileFormatError, match=rf"1\.svm', row 3 .*column number {number}"):
            open_dataset(tmp_path / "1.svm")
    (tmp_path / "1.svm").write_text("1 1:2\n2 1:1 2000000000:1\n")
    with pytest.raises(FileFormatError, match=r"1\.svm', row 1 .*2000000000; the limit is 1,048,576.*--limit columns"):
        open_dataset(tmp_path / "1.svm")
    assert open_dataset(tmp_path / "1.svm", n_features=2_000_000_000).n_features == 2_000_000_000
    source = open_dataset(tmp_path / "1.svm", limits=Limits(columns=2**31))
    assert source.n_features == len(source.feature_names) == 2_000_000_000
    assert source.feature_names[-1] == "x1999999999" and source.feature_names[:2] == ["x0", "x1"]
    names = Numbered(3)
    assert names == ["x0", "x1", "x2"] == names and names == Numbered(3) and names != ["x0", "x1", None]


@pytest.mark.parametrize("leaf_rows", [4096, 10**6])
def test_pipes(frame, svm, tmp_path, monkeypatch, leaf_rows) -> None:
    monkeypatch.setattr(leaves, "LEAF_ROWS", leaf_rows)
    frame = pd.concat([frame] * 20, ignore_index=True)
    choice = ColumnSelection(target="y", weight="w", categories="hash", impute="median")
    table = io.BytesIO()
    with pa.ipc.new_stream(table, pa.Table.from_pandas(frame).schema) as writer:
        writer.write_table(pa.Table.from_pandas(frame), max_chunksize=999)
    text = io.BytesIO(frame.to_csv(index=False).encode())
    for stream, format in ((text, "csv"), (io.BytesIO(table.getvalue()), "arrow")):
        source = open_piped(stream, format, choice, None)
        assert not source.replayable and source.n_rows is None and source.identity
        assert set(source.sample(10, rng=np.random.default_rng(0)).row_ids()) <= set(range(source.leaf_rows))
        leaf = [task() for task in source.tasks()]
        assert_rows(concat(leaf), frame)
        assert [len(one) for one in leaf[:-1]] == [source.leaf_rows] * (len(leaf) - 1)
        with pytest.raises(ValueError, match="read already"):
            next(source.tasks())
    source = open_piped(io.BytesIO(table.getvalue()), "arrow", choice, None)
    assert len(source.sample(6000, rng=np.random.default_rng(0))) == 6000
    assert [len(task()) for task in source.tasks(1, leaf_rows=6000)] == ([4000] if leaf_rows == 4096 else [])
    lines_ = b"".join(f.read_bytes() for f in sorted(tmp_path.iterdir()))
    rows = all_rows(open_piped(io.BytesIO(lines_), "libsvm", ColumnSelection(), 30))
    assert abs(rows.X - svm[0]).max() < 1e-12


def test_pipes_that_cannot_be_read() -> None:
    for data, format, choice, message in [
        (b"", "csv", ColumnSelection(), "is empty"),
        (b"a,b\n", "csv", ColumnSelection(), "is empty"),
        (b"", "libsvm", ColumnSelection(), "n_features"),
        (b"nothing", "arrow", ColumnSelection(), "Arrow IPC"),
        (b"a\nx\ny\n", "csv", ColumnSelection(), "is text"),
        (b"a\n1\nnan\n", "csv", ColumnSelection(), "standard input', row 1 "),
    ]:
        with pytest.raises(ValueError, match=message):
            all_rows(open_piped(io.BytesIO(data), format, choice, None))
    table = io.BytesIO()
    with pa.ipc.new_stream(table, pa.schema({"a": pa.float64()})) as writer:
        writer.write_table(pa.table({"a": np.zeros(5000)}), max_chunksize=1000)
    with pytest.raises(FileFormatError, match="broke off"):
        all_rows(open_piped(io.BytesIO(table.getvalue()[:-3000]), "arrow", ColumnSelection(), None))
    with pytest.raises(ValueError, match="classes"):
        open_piped(io.BytesIO(b"a\n1\n"), "csv", ColumnSelection(), None).classes()
    with pytest.raises(ValueError, match="cannot be parquet"):
        open_dataset("-", format="parquet")


@pytest.mark.slow
def test_standard_input(tmp_path) -> None:
    program = """
        from tithe.rows.files import open_dataset
        source = open_dataset("-", target="y", scale="none")
        print([task().X.tolist() for task in source.tasks()], source.feature_names)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], input=b"a,y\n1,0\n2,1\n", capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == "[[[1.0], [2.0]]] ['a']"
