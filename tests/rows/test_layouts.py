"""Layouts of text files: delimiters, headers, compression, zip archives, odd values."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from plain_rows import ColumnSelection, open_dataset

from tithe import FileFormatError
from tithe.core.data import Block, concat
from tithe.rows import delimited
from tithe.rows.piped import open_piped
from tithe.rows.stores import Limits
from tithe.rows.text import TextLayout

ROWS = [[i / 4, i, -i] for i in range(300)]


def text(rows: list[list[object]], delimiter: str = ",", header: str | None = "a,b,c") -> bytes:
    lines = [delimiter.join(map(str, row)) for row in rows]
    head = [] if header is None else [header.replace(",", delimiter)]
    return "\n".join([*head, *lines, ""]).encode()


def all_rows(source, leaf_rows: int | None = None) -> Block:
    return concat([task() for task in source.tasks(leaf_rows=leaf_rows)])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", ["a,b,c", None])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_delimiter_and_header_are_found(tmp_path, delimiter, header, mark) -> None:
    data = mark + text(ROWS, delimiter, header)
    (tmp_path / "t.csv").write_bytes(data)
    source = open_dataset(tmp_path / "t.csv")
    assert source.feature_names == (["a", "b", "c"] if header else ["x0", "x1", "x2"])
    rows = all_rows(source)
    np.testing.assert_array_equal(rows.X, ROWS)
    np.testing.assert_array_equal(rows.row_ids(), np.arange(300))
    assert len(source.sample(10, rng=np.random.default_rng(0))) == 10
    piped = open_piped(io.BytesIO(data), "csv", ColumnSelection(), None)
    assert piped.feature_names == source.feature_names
    np.testing.assert_array_equal(all_rows(piped).X, ROWS)


@pytest.mark.parametrize(
    ("first", "below", "is_header"),
    [
        ("0,1,2", "4,5,6", True),
        ("1, 2, 3", "4,5,6", True),
        ("a,7,9", "4,5,6", True),
        ("country,1990,1991", "France,5,6", True),
        ("a,b,c", "x,y,z", True),
        ("x,,y", "1,2,3", True),
        ("5,3,8", "4,5,6", False),
        ("2,3,4", "4,5,6", False),
        ("1.5,2,3", "4,5,6", False),
        ("39,State-gov,77516", "50,Private,83311", False),
        ("?,3,red", "5,?,blue", False),
    ],
)
def test_a_header_is_told_from_a_row(tmp_path, first, below, is_header) -> None:
    (tmp_path / "t.csv").write_text(f"{first}\n{below}\n" + f"{below}\n" * 7 + f"{below[:-1]}0\n")
    as_text = {"categories": "hash", "bad_rows": "skip"}
    source = open_dataset(tmp_path / "t.csv", **as_text)
    assert (source.count() == 9) == is_header
    assert open_dataset(tmp_path / "t.csv", header=False, **as_text).count() == 10
    assert open_dataset(tmp_path / "t.csv", header=True, **as_text).count() == 9


def test_a_comma_in_text_is_no_delimiter(tmp_path) -> None:
    (tmp_path / "t.csv").write_text('t;v\n"one; two";1\na, b, c;2\nx;3\n')
    source = open_dataset(tmp_path / "t.csv", columns=["v"])
    assert all_rows(source).X.ravel().tolist() == [1, 2, 3]
    (tmp_path / "t.csv").write_text("t v\n1 2\n3 4\n")
    assert open_dataset(tmp_path / "t.csv", delimiter=" ").feature_names == ["t", "v"]
    assert open_dataset(tmp_path / "t.csv", delimiter="tab", categories="hash", n_hashes=32).n_features == 32


def test_decimal_commas_and_days_before_months(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("a;b;day;y\n1,5;0.125;31.12.2025;0,5\n-1.234,25;1.5;01.01.2026;2,5\nNA;7;;3\n")
    (tmp_path / "u.csv").write_text("a,b,day,y\n1.5,0.125,2025-12-31,.5\n-1234.25,1.5,2026-01-01,2.5\nNA,7,,3\n")
    assert_equal_rows(*(open_dataset(tmp_path / name, target="y", impute="median") for name in ("t.csv", "u.csv")))
    # all numbers have commas: Arrow parses them; one that does not fit is a gap
    (tmp_path / "t.csv").write_text("a;b\n1,5;0,5\n2,5;1,5\n" + "7;2,5\n" * 50 + "oops;3\n")
    (tmp_path / "u.csv").write_text("a;b\n1.5;0.5\n2.5;1.5\n" + "7;2.5\n" * 50 + "oops;3\n")
    assert_equal_rows(*(open_dataset(tmp_path / name, impute="median") for name in ("t.csv", "u.csv")))
    (tmp_path / "t.csv").write_text("1,5;2\n2,5;3\n")  # without a header
    assert open_dataset(tmp_path / "t.csv").feature_names == ["x0", "x1"]
    # a column of which few values are numbers is text
    (tmp_path / "t.csv").write_text("a;b\n1,5;1\nb;2\nc;3\nb;4\n")
    assert open_dataset(tmp_path / "t.csv", categories="onehot").feature_names[0] == "a=1,5"


def test_a_comma_that_may_group_thousands_is_refused(tmp_path) -> None:
    (tmp_path / "t.tsv").write_text("a\ty\n1\t4,282\n2\t1,677\n3\t396\n")
    with pytest.raises(ValueError, match=r"Column 'y' has numbers such as '4,282'.* leave the column out"):
        open_dataset(tmp_path / "t.tsv", target="y")
    assert open_dataset(tmp_path / "t.tsv", exclude=["y"]).feature_names == ["a"]
    # another number of the file shows that its commas begin decimals
    for other in ("0,125", "1,5", "1.234,5"):
        (tmp_path / "t.tsv").write_text(f"a\ty\n{other}\t4,282\n2\t1,677\n3\t396\n")
        assert all_rows(open_dataset(tmp_path / "t.tsv", target="y")).y.tolist() == [4.282, 1.677, 396.0]


def assert_equal_rows(first: Any, second: Any) -> None:
    rows, expected = all_rows(first), all_rows(second)
    np.testing.assert_array_equal(rows.X, expected.X)
    if expected.y is not None:
        np.testing.assert_array_equal(rows.y, expected.y)
    assert first.feature_names == second.feature_names


def test_a_name_that_is_nearly_one_of_the_file_is_proposed(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("age,Churned\n1,yes\n2,no\n")
    with pytest.raises(ValueError, match=r"no column 'churn'. Did you mean 'Churned'\? Its columns are age, Churned\."):
        open_dataset(tmp_path / "t.csv", target="churn")
    with pytest.raises(ValueError, match=r"no column 'price'. Its columns are"):
        open_dataset(tmp_path / "t.csv", target="price")


def test_layouts_that_are_refused(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1,5;2\n2,5;3\n")
    for options, message in (({"delimiter": ",,"}, "one ASCII character"), ({"header": "yes"}, "header must be")):
        with pytest.raises(ValueError, match=message):
            open_dataset(tmp_path / "t.csv", **options)
    np.save(tmp_path / "t.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="delimiter and header are for CSV"):
        open_dataset(tmp_path / "t.npy", header=False)
    (tmp_path / "u.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(FileFormatError, match=r"not text in UTF-8.*Save it as UTF-8"):
        open_dataset(tmp_path / "u.csv")


def test_layouts_are_part_of_the_identity(tmp_path) -> None:
    (tmp_path / "t.csv").write_bytes(text(ROWS))
    identities = {open_dataset(tmp_path / "t.csv", header=header).identity for header in (None, True)}
    assert len(identities) == 2


def zipped(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return written.getvalue()


@pytest.mark.parametrize("ending", ["csv.gz", "csv.bz2", "csv.zst", "csv.zip", "zip"])
def test_compressed_text(tmp_path, ending) -> None:
    halves = [text(ROWS[:100]), text(ROWS[100:])]
    packed = {
        "csv.gz": gzip.compress,
        "csv.bz2": bz2.compress,
        "csv.zst": lambda data: pa.compress(data, "zstd", asbytes=True),
        "csv.zip": lambda data: zipped({"t.csv": data}),
        "zip": lambda data: zipped({"t.data": data}),
    }[ending]
    for i, half in enumerate(halves):
        (tmp_path / f"{i}.{ending}").write_bytes(packed(half))
    source = open_dataset([tmp_path / f"{i}.{ending}" for i in range(2)])
    for leaf_rows in (7, None):
        rows = all_rows(source, leaf_rows)
        np.testing.assert_array_equal(rows.X, ROWS)
        np.testing.assert_array_equal(rows.row_ids(), np.arange(300))
    np.testing.assert_array_equal(source.sample(400, rng=np.random.default_rng(0)).X, ROWS)
    (tmp_path / f"0.{ending}").write_bytes(packed(halves[0])[:-20])
    with pytest.raises(FileFormatError, match=rf"0\.{ending}"):
        all_rows(open_dataset([tmp_path / f"{i}.{ending}" for i in range(2)]))


def test_tables_of_an_archive_follow_one_another(tmp_path) -> None:
    members = {"d/two.csv": text(ROWS[:10]), "__MACOSX/d/._two.csv": b"\0\1", "d/one.tsv": text(ROWS[10:], "\t")}
    (tmp_path / "t.zip").write_bytes(zipped({**members, "readme.md": b"nothing"}))
    rows = all_rows(open_dataset(tmp_path / "t.zip"))
    np.testing.assert_array_equal(rows.X, ROWS)
    members["d/one.tsv"] += b"1\t2\n"
    (tmp_path / "t.zip").write_bytes(zipped(members))
    with pytest.raises(ValueError, match=r"t\.zip/d/one\.tsv', row 290 .*2 values instead of 3"):
        all_rows(open_dataset(tmp_path / "t.zip"))
    (tmp_path / "t.zip").write_bytes(zipped({"a.md": b"x", "b.md": b"y"}))
    with pytest.raises(FileFormatError, match="holds no CSV"):
        open_dataset(tmp_path / "t.zip")
    (tmp_path / "rows.npy").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"rows\.npy"):  # an archive in a folder may be anything
        open_dataset(tmp_path)


def test_damaged_names_of_members_are_refused(tmp_path) -> None:
    whole = zipped({"é.csv": b"a,b\n1,2\n3,4\n"})
    name = "é".encode()
    before_the_data = whole.replace(name, b"\xd0\x00", 1)  # the list at the end has the name as it was
    (tmp_path / "t.zip").write_bytes(before_the_data)
    with pytest.raises(FileFormatError, match="cannot be read"):
        open_dataset(tmp_path / "t.zip")
    (tmp_path / "n.zip").write_bytes(zipped({"x.csv": b"a,b\n1,2\n"}).replace(b"x.csv", b"\0.csv"))  # no name
    with pytest.raises(FileFormatError, match="holds no CSV"):
        open_dataset(tmp_path / "n.zip")


def test_a_zip_that_unpacks_to_very_much_is_read_row_by_row(tmp_path) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("t.csv", "w") as member:
        member.write(b"a,b\n1,")
        for _ in range(64):
            member.write(b"1" * 2**20)
    (tmp_path / "t.zip").write_bytes(written.getvalue())
    with pytest.raises(FileFormatError, match="the row is too long; the limit is 1,000,000"):
        open_dataset(tmp_path / "t.zip", limits=Limits(row_bytes=10**6))


def spoiled(n: int) -> tuple[list[list[object]], np.ndarray]:
    rows: list[list[object]] = [[i / 4, i, -i] for i in range(n)]
    odd = np.arange(3, n, 40)
    for i in odd:
        rows[i][1] = "?" if i % 3 else "oops"
    return rows, odd


@pytest.mark.parametrize("n", [200, 40_000])
@pytest.mark.parametrize("leaf_rows", [13, None])
def test_odd_values_of_a_number_are_gaps(tmp_path, n, leaf_rows) -> None:
    rows, odd = spoiled(n)
    if leaf_rows and n > 200:
        leaf_rows *= 100
    (tmp_path / "t.csv").write_bytes(text(rows))
    source = open_dataset(tmp_path / "t.csv", bad_rows="skip")
    assert source.feature_names == ["a", "b", "c"]  # and not one column for each value
    read = all_rows(source, leaf_rows)
    np.testing.assert_array_equal(read.row_ids(), np.delete(np.arange(n), odd))
    np.testing.assert_array_equal(read.X[:, 1], read.row_ids())
    with pytest.raises(ValueError, match=r"t\.csv', row 3 .*'b' is missing or not a finite number"):
        all_rows(open_dataset(tmp_path / "t.csv"), leaf_rows)


def test_columns_that_are_text_in_more_than_a_few_rows_stay_text() -> None:
    def learned(values: list[str]) -> pa.DataType:
        return delimited.learn_type(pa.chunked_array([values]))

    assert learned(["1"] * 95 + ["x"] * 5) == pa.int64()
    assert learned(["1.5"] * 95 + ["x"] * 5) == pa.float64()
    assert learned(["1.5"] * 94 + ["x"] * 6) == pa.string()
    assert learned(["?", "n/a", "NaT", "<NA>", "NULL", "-"] * 15 + ["1.5"] * 10) == pa.float64()
    assert learned(["true", "False", "NA"]) == pa.bool_()
    assert learned(["2024-01-01"] * 9) == pa.string()
    assert learned(["NA"] * 9) == pa.float64()


def test_every_kind_of_bad_row_in_one_block(tmp_path) -> None:
    rows = [f"{i},t{i},{-i}".encode() for i in range(1000)]
    bad = {5: b"5,t", 6: b"6,\xff,-6", 70: b'7",t70\n",-70', 700: b"700,t700,-700,9", 999: b"999,t\xe9,-999"}
    for i, row in bad.items():
        rows[i] = row
    rows[800] = b"oops,t800,-800"
    (tmp_path / "t.csv").write_bytes(b"a,t,c\n" + b"\n".join(rows))
    for columns, missing in ((["a", "t"], [*bad, 800]), (["c", "t"], [*bad])):
        source = open_dataset(tmp_path / "t.csv", columns=columns, categories="hash", bad_rows="skip")
        read = all_rows(source)
        np.testing.assert_array_equal(read.row_ids(), np.delete(np.arange(1000), missing))
        np.testing.assert_array_equal(np.abs(read.X[:, 0]), read.row_ids())
    for i, message in ((5, "2 values instead of 3"), (6, "'t' is not text in UTF-8"), (70, "quote")):
        with pytest.raises(ValueError, match=rf"row {i} .*{message}"):
            all_rows(open_dataset(tmp_path / "t.csv", columns=["a", "t", "c"], categories="hash"))
        rows[i] = f"{i},t{i},{-i}".encode()
        (tmp_path / "t.csv").write_bytes(b"a,t,c\n" + b"\n".join(rows))


def test_piped_rows_without_a_header() -> None:
    source = open_piped(io.BytesIO(b"1;2\n3;4\n"), "csv", ColumnSelection(), None, layout=TextLayout(header=False))
    assert all_rows(source).X.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match=r"standard input', row 1 .*3 values"):
        all_rows(open_piped(io.BytesIO(b"7;2\n3;4;5\n"), "csv", ColumnSelection(), None))


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_folders_named_by_a_value_are_columns(tmp_path, ending) -> None:
    places = [("2023", "a%20b"), ("2024", "c"), ("2024", "__HIVE_DEFAULT_PARTITION__")]
    for i, (year, kind) in enumerate(places):
        folder = tmp_path / f"year={year}" / f"kind={kind}"
        folder.mkdir(parents=True)
        frame = pd.DataFrame({"v": np.arange(5, dtype=np.float32) + 10 * i})
        file = folder / f"part.{ending}"
        frame.to_parquet(file) if ending == "parquet" else frame.to_csv(file, index=False)
    source = open_dataset(tmp_path, columns=["v", "year"], target="kind", bad_rows="skip")
    rows = all_rows(source, 3)
    assert rows.X.tolist() == [[10 * (i // 5) + i % 5, 2023 + i // 5] for i in range(10)]
    assert rows.y.tolist() == ["a b"] * 5 + ["c"] * 5 and source.classes().tolist() == ["a b", "c"]
    assert rows.X.dtype == (np.float32 if ending == "parquet" else np.float64)
    source = open_dataset(tmp_path, categories="hash", impute="median")
    assert source.feature_names[:2] == ["v", "year"] and source.feature_names[-1] == "kind missing"
    assert len(source.sample(4, rng=np.random.default_rng(0))) == 4
    assert open_dataset(tmp_path, columns=["year"]).sample(None, rng=np.random.default_rng(0)).X.max() == 2024
    files = [str(path) for path in sorted(tmp_path.rglob(f"*.{ending}"))]
    np.testing.assert_array_equal(all_rows(open_dataset(files, columns=["year"])).X.ravel(), [2023] * 5 + [2024] * 10)


def test_a_column_of_the_file_comes_before_a_folder(tmp_path) -> None:
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pd.DataFrame({"year": [1.5], "v": [2]}).to_csv(tmp_path / f"year={year}" / "t.csv", index=False)
        pd.DataFrame({"year": [1.5], "v": [2]}).to_parquet(tmp_path / f"year={year}" / "t.parquet")
    (tmp_path / "plain.csv").write_text("year,v\n3,4\n")
    for pattern in ("**/*.csv", "year=*/*.parquet"):
        source = open_dataset(tmp_path / pattern)
        assert source.feature_names == ["year", "v"] and all_rows(source).X[-1].tolist() == [1.5, 2]
