"""Small files that ask for much are refused by an error that names the limit and how to raise it."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image
from plain_rows import ColumnSelection, open_dataset

from tithe import FileFormatError, Limits
from tithe.core.data import Block, concat
from tithe.dictionary.pictures import read_picture
from tithe.rows import leaves, libsvm, text
from tithe.rows.delimited import parse_column
from tithe.rows.piped import open_piped


def all_rows(source) -> Block:
    return concat([task() for task in source.tasks()])


def test_limits_are_whole_numbers() -> None:
    for value in (0, -1, 1.5, True, "9"):
        with pytest.raises(ValueError, match="row_bytes must be a whole number"):
            Limits(row_bytes=value)


# -- text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "piece", "where"),
    [
        (b"a,b\n1,2\n3,4\n", b"1", "row 2 "),
        (b'a,b\n1,"', b"x\n", r"row 0 .*closing quote"),
        (b"", b"a", "header"),
    ],
)
def test_endless_rows_are_refused(tmp_path, start, piece, where) -> None:
    written = start + piece * 50_000
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(written))
    limits = Limits(row_bytes=20_000)
    message = f"{where}.*"
    with pytest.raises(FileFormatError, match=r"t\.csv\.gz', .*the limit is 20,000.*--limit row_bytes=") as refused:
        all_rows(open_dataset(tmp_path, limits=limits, categories="hash"))
    assert refused.match(message)
    with pytest.raises(FileFormatError, match=r"standard input', .*the limit is 20,000"):
        all_rows(open_piped(io.BytesIO(written), "csv", ColumnSelection(categories="hash"), None, limits=limits))


def test_an_endless_libsvm_row_is_refused(tmp_path) -> None:
    (tmp_path / "t.svm").write_bytes(b"1 1:1\n2 1:1\n" + b"1:1 " * 9999)
    with pytest.raises(FileFormatError, match=r"t\.svm', row 2 .*the limit is 20,000.*row_bytes"):
        open_dataset(tmp_path, limits=Limits(row_bytes=20_000))


def test_rows_may_be_longer_than_what_is_read_at_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(text, "_CHUNK", 64)
    (tmp_path / "t.csv").write_text("a,b\n" + "1".zfill(500) + ",2\n3,4\n")
    assert all_rows(open_dataset(tmp_path)).X.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_rows_are_taken_until_there_are_enough_bytes(monkeypatch, chunk) -> None:
    monkeypatch.setattr(text, "_CHUNK", chunk)
    stream = io.BytesIO(b"aa\n\n" + b"b" * 20 + b"\nc\nd\ne")
    reader = text.TextReader(stream.read, "t", Limits())
    spans = [reader.take(9, 5) for _ in range(4)]
    assert spans == [(b"aa\n\n" + b"b" * 20 + b"\n", 2, 0, 0), (b"c\nd\ne", 3, 2, 25), None, None]


def test_leaves_of_long_rows_have_fewer(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(leaves, "LEAF_BYTES", 1000)
    monkeypatch.setattr(text, "_CHUNK", 1000)
    written = b"a,note\n" + b"".join(b"%d,%s\n" % (i, b"x" * 1000) for i in range(50))
    (tmp_path / "t.csv").write_bytes(written)
    source = open_dataset(tmp_path, columns=["a"])
    blocks = [task() for task in source.tasks()]
    assert max(map(len, blocks)) <= 5  # of 4 kB of text, though 125 of its rows would be
    assert concat(blocks).X.ravel().tolist() == concat(blocks).row_ids().tolist() == list(range(50))
    piped = open_piped(io.BytesIO(written), "csv", ColumnSelection(columns=("a",)), None)
    assert all_rows(piped).X.ravel().tolist() == list(range(50))


@pytest.mark.slow
def test_very_many_columns(tmp_path) -> None:
    (tmp_path / "t.csv").write_text(",".join(f"c{i}" for i in range(3000)) + "\n" + ",".join(["1"] * 3000) + "\n")
    with pytest.raises(FileFormatError, match=r"t\.csv' names 3,000 columns; the limit is 2,999.*--limit columns="):
        open_dataset(tmp_path, limits=Limits(columns=2999))
    assert all_rows(open_dataset(tmp_path, limits=Limits(columns=3000))).X.shape == (1, 3000)
    (tmp_path / "t.csv").write_text("," * 10**6)
    with pytest.raises(FileFormatError, match="1,000,001 columns; the limit is 100,000"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("name", ["a" * 200_000, '"' + "a" * 200_000 + '"'])
def test_a_header_that_cannot_be_read(tmp_path, name) -> None:
    (tmp_path / "t.csv").write_text(f"{name},b\n1,2\n")
    with pytest.raises(FileFormatError, match=r"header of .*t\.csv' cannot be read"):
        open_dataset(tmp_path)


def test_bytes_that_are_not_text(tmp_path, capfd) -> None:
    rows = [b"%d,x" % i for i in range(3000)]
    rows[5], rows[9], rows[2000] = b"5,\xff\xfe", b"9,\xff,\xff,\xff", b"\xc3,x"
    (tmp_path / "t.csv").write_bytes(b"a,t\n" + b"\n".join(rows))
    with pytest.raises(ValueError, match=r"row 5 .*'t' is not text in UTF-8"):
        all_rows(open_dataset(tmp_path, columns=["t"], categories="hash"))
    for categories in ("hash", "onehot"):
        found = all_rows(open_dataset(tmp_path, bad_rows="skip", columns=["t"], categories=categories))
        assert found.row_ids().tolist() == [i for i in range(3000) if i not in (5, 9)]
    assert not capfd.readouterr().err  # Arrow prints a complaint for rows that it cannot decode


def test_values_are_the_numbers_that_arrow_reads_from_csv() -> None:
    values = [
        "1",
        "-1",
        "+1",
        " 1 ",
        "1.",
        "0.5",
        "1e5",
        "1E+5",
        "1e",
        "1e400",
        "nan",
        "NaN",
        "+nan",
        "inf",
        "-Infinity",
    ]
    values += ["0x10", "1_0", "\u0663", "1d5", "", "NA", " NA", "?", "-", "00012", "9" * 25, "9223372036854775808"]
    values += ["8" * 19, "1.0", "TRUE", "t", "2", " true", "oops", "1,5", "nan(1)"]
    for type_ in (pa.float64(), pa.int64(), pa.bool_()):
        options = pyarrow.csv.ConvertOptions(column_types={"a": type_}, null_values=text.GAPS)
        for value in values:
            try:
                expected = pyarrow.csv.read_csv(io.BytesIO(f'a\n"{value}"\n'.encode()), convert_options=options)["a"][
                    0
                ].as_py()
            except pa.ArrowInvalid:
                expected = {" true": True, " 1 ": True}.get(value) if type_ == pa.bool_() else None
            found = parse_column(pa.array([value, "oops"]), type_)[0].as_py()
            np.testing.assert_equal(found, expected, err_msg=f"{value!r} as {type_}")


def test_libsvm_rows_that_cannot_be_parsed_are_skipped(tmp_path) -> None:
    rows = [f"{i % 2} 1:{i}" for i in range(100)]
    rows[3], rows[50], rows[99] = "1 2:1 1:1", "one 1:1", "1 1"
    (tmp_path / "t.svm").write_text("\n".join(rows))
    with pytest.raises(FileFormatError, match=r"row 3 .*cannot be parsed"):
        all_rows(open_dataset(tmp_path))
    with pytest.raises(FileFormatError, match=r"t\.svm' has a label that is no number"):
        open_dataset(tmp_path).classes()
    source = open_dataset(tmp_path, bad_rows="skip")
    assert all_rows(source).row_ids().tolist() == [i for i in range(100) if i not in (3, 50, 99)]
    assert source.classes().tolist() == [0, 1]
    (tmp_path / "t.svm").write_text("1\n-1\n")
    with pytest.raises(ValueError, match="no columns"):
        open_dataset(tmp_path)


def test_a_libsvm_row_is_wrong_if_sklearn_does_not_parse_it() -> None:
    rows = [b"1 1:2 3:4", b"-1.5e3", b"1 qid:7 1:2", b"1 qidx:a 1:2", b"1 qid 1:2", b"1 1:2 qid:7", b"nan 1:inf # 2:x"]
    rows += [b"1 2:1 1:1", b"1 1:1 1:2", b"1 0:1", b"1 -1:1", b"1 1", b"1 1:", b"1 :1", b"1 1:1:1", b"one 1:1"]
    rows += [b"1,2 1:1", b"1 9:1", b"1 10:1", b"1 %d:1" % 2**40, b"1 1:0x1", b"1 1_0:1", b"1 1:1_0", b"1 1:1\0# x"]
    for zero_based in (False, True):
        parses = []
        for row in rows:
            try:
                libsvm.parse(row, 9, zero_based)
                parses.append(True)
            except (ValueError, OverflowError):
                parses.append(False)
        assert 3 < sum(parses) < len(rows) - 3
        for order in (slice(None), slice(None, None, -1), slice(3, None)):  # wherever the rows are halved
            faults = libsvm._faults(rows[order], 9, zero_based)
            assert [fault is None for fault in faults] == parses[order]


# -- NumPy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        "(40, 3",
        "(9**99, 3)",
        f"({2**62}, 4)",
        f"({10**40}, 3)",
        "(-1, 3)",
        "(" * 300,
        "-" * 5000 + "1",
        "('a', 3)",
        "'",
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning:numpy")
def test_headers_of_numpy_files(tmp_path, shape) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x02\0" + struct.pack("<I", len(header)) + header + bytes(960)
    (tmp_path / "t.npy").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"t\.npy' is not a whole \.npy file"):
        open_dataset(tmp_path)


def test_a_member_that_is_no_array(tmp_path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X.npy", b"no array")
    with pytest.raises(FileFormatError, match=r"t\.npz': 'X' is no array"):
        open_dataset(tmp_path)


def test_packed_arrays(tmp_path) -> None:
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((10_000, 20)))
    with pytest.raises(FileFormatError, match=r"t\.npz': 'X\.npy' takes 1,600,128 bytes.*100,000.*unpacked_bytes="):
        open_dataset(tmp_path, limits=Limits(unpacked_bytes=100_000))
    assert open_dataset(tmp_path, limits=Limits(unpacked_bytes=2_000_000)).n_rows == 10_000
    np.savez_compressed(tmp_path / "t.npz", X=np.random.default_rng(0).normal(size=(10_000, 20)))
    assert open_dataset(tmp_path, limits=Limits(unpacked_bytes=100_000)).n_rows == 10_000  # packed into as much


# -- Parquet -----------------------------------------------------------------------------------


def test_text_targets_that_are_missing(tmp_path) -> None:
    targets = pa.array(["x", None, "y"] * 100).dictionary_encode()
    pq.write_table(pa.table({"a": np.arange(300.0), "y": targets}), tmp_path / "t.parquet")
    rows = all_rows(open_dataset(tmp_path, target="y", bad_rows="skip"))
    assert rows.y.tolist() == ["x", "y"] * 100 and rows.row_ids()[1] == 2


def test_row_groups_that_cannot_be(tmp_path) -> None:
    """Bytes of the footer are changed one by one; what Arrow makes of them is one of its own errors."""
    table = pa.table({"a": np.arange(30.0), "t": pa.array(["red", "blue", "red"] * 10)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10)
    whole = (tmp_path / "t.parquet").read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    for at in range(len(whole) - 8 - length, len(whole) - 8, 7):
        for value in (0x7F, 0xFF):
            (tmp_path / "t.parquet").write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                source = open_dataset(tmp_path, categories="onehot")
                source.sample(5, rng=np.random.default_rng(0))
                all_rows(source)
            except ValueError as error:
                assert type(error) in (ValueError, FileFormatError)


# -- pipes of Arrow ----------------------------------------------------------------------------


def test_arrow_codes_outside_of_their_values() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), ["red", "blue"])
    written = io.BytesIO()
    with pa.ipc.new_stream(written, pa.schema([("t", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], ["t"]))
    whole = written.getvalue()
    at = whole.rindex(b"\x00\x01\x00")
    for code in (2, 0x7F, 0x80):
        stream = io.BytesIO(whole[: at + 1] + bytes([code]) + whole[at + 2 :])
        with pytest.raises(FileFormatError, match="From 'standard input', row 0"):
            open_piped(stream, "arrow", ColumnSelection(categories="hash"), None)


def test_arrow_names_that_are_not_text() -> None:
    written = io.BytesIO()
    with pa.ipc.new_stream(written, pa.schema([("name", pa.float64())])) as writer:
        writer.write_batch(pa.record_batch([pa.array([1.0])], ["name"]))
    with pytest.raises(FileFormatError, match="not an Arrow IPC stream"):
        open_piped(io.BytesIO(written.getvalue().replace(b"name", b"nam\xff")), "arrow", ColumnSelection(), None)


def test_arrow_columns_without_a_type() -> None:
    batch = pa.record_batch([pa.nulls(10**6), pa.nulls(10**6)], ["a", "b"])
    written = io.BytesIO()
    with pa.ipc.new_stream(written, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(ValueError, match="'a' of standard input has no type"):
        open_piped(io.BytesIO(written.getvalue()), "arrow", ColumnSelection(bad_rows="skip"), None)


# -- pictures ----------------------------------------------------------------------------------


def test_pictures_that_take_much_memory(tmp_path) -> None:
    for name in ("a.png", "a.tif"):
        how = {"compression": "tiff_deflate"} if name.endswith("tif") else {}
        Image.new("RGB", (1000, 1000), "white").save(tmp_path / name, **how)
        with pytest.raises(
            FileFormatError, match=rf"{name}' cannot be read: the picture takes 3,000,000 bytes.*--limit"
        ):
            read_picture(tmp_path / name, Limits(unpacked_bytes=10**6))
        assert read_picture(tmp_path / name).pixels.shape == (1000, 1000, 3)
    whole = (tmp_path / "a.png").read_bytes()
    head = b"IHDR" + struct.pack(">II", 30_000, 30_000) + whole[24:29]
    (tmp_path / "a.png").write_bytes(whole[:12] + head + struct.pack(">I", zlib.crc32(head)) + whole[33:])
    with pytest.raises(FileFormatError, match=r"a\.png"):
        read_picture(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"b\.png' is a pipe"):
        read_picture(tmp_path / "b.png")
