"""Files that a URL names: found, opened and known again as files of this machine are. Real servers: test_stores.py."""

from __future__ import annotations

import os
import pickle
import sys
from operator import call

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored_rows import write_years

from tithe import FileFormatError, build_coreset, open_dataset
from tithe.core.data import concat
from tithe.rows import stores
from tithe.rows.paths import find_files
from tithe.rows.stores import local_path, parse_url, plain_name
from tithe.storage.values import packed


def coreset_of(where, **options):
    source = pickle.loads(pickle.dumps(open_dataset(where, **options)))
    return build_coreset(source, objective="kmeans", coreset_size=100, random_state=0)


# -- URLs ----------------------------------------------------------------------------------------


def test_what_is_a_url() -> None:
    assert parse_url("data/rows.csv") is None and parse_url("/data:x/rows.csv") is None
    assert parse_url("S3://bucket/a b/x%20.csv") == ("s3", "bucket", "a b/x%20.csv", "")
    assert parse_url("s3://bucket") == ("s3", "bucket", "", "")
    assert parse_url("s3://bucket/part-?.csv") == ("s3", "bucket", "part-?.csv", "")
    options = "?endpoint_override=http://localhost:9000&region=x"
    assert parse_url(f"s3://bucket/part-?.csv{options}") == ("s3", "bucket", "part-?.csv", options)
    assert parse_url("https://h:1/rows.csv?sig=1/2") == ("https", "h:1", "rows.csv", "?sig=1/2")
    assert plain_name("https://h/rows.csv?signature=abc") == "https://h/rows.csv"


def test_urls_of_this_machine_are_paths(tmp_path) -> None:
    folder = write_years(tmp_path / "a folder#1")
    assert local_path("file:///a%20b/c") == "/a b/c" and local_path("file://localhost/c") == "/c"
    assert find_files(folder.as_uri(), "auto") == find_files(folder, "auto")
    with pytest.raises(ValueError, match="names the machine 'far'"):
        open_dataset("file://far/rows.csv")


@pytest.mark.parametrize(
    "url",
    ["s3://id:secret@bucket/x.csv", "https://me:secret@host/x.csv", "abfs://c@a.b/x.csv?client_secret=secret"],
)
def test_credentials_in_a_url_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="holds a password or a key") as refused:
        open_dataset(url)
    assert "secret@" not in str(refused.value) and "=secret" not in str(refused.value)


def test_what_to_install_is_said(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    stores._store.cache_clear()
    with pytest.raises(ValueError, match="http:// is read by another package: pip install fsspec aiohttp"):
        open_dataset("http://localhost/rows.csv")


def test_options_that_a_store_has_not() -> None:
    with pytest.raises(ValueError, match=r"'s3://bucket/\?nonsense=1' cannot be opened: .*nonsense"):
        open_dataset("s3://bucket/rows.csv?nonsense=1")


# -- finding and reading -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["", "/", "/*/*.parquet", "/year=202?/part*", "/**", "/**/*.parquet", "/year=*/part 1%20.parquet"]
)
def test_the_same_files_give_the_same_bits(bucket, pattern: str) -> None:
    folder = write_years(bucket / "rows")
    (folder / "_started").write_text("not read")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.parquet").write_text("not read")
    files, expected = (find_files(f"{top}{pattern}", "parquet")[0] for top in ("s3://bucket/rows", folder))
    assert [(file.name, file.size) for file in files] == [(file.name, file.size) for file in expected]
    if not pattern.endswith("**"):  # which matches the file that is not read otherwise
        assert packed(coreset_of(f"s3://bucket/rows{pattern}")) == packed(coreset_of(folder))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "zip", "libsvm", "npz"])
def test_other_formats(bucket, ending: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    path = bucket / f"rows.{ending}"
    if ending == "npz":
        np.savez_compressed(path, X=X)
    elif ending == "libsvm":
        path.write_text("".join(f"1 1:{a} 2:{b}\n" for a, b in X))
    else:
        import pandas as pd

        pd.DataFrame(X, columns=["a", "b"]).to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    here, there = open_dataset(path), open_dataset(f"s3://bucket/rows.{ending}")
    rows = [concat([task() for task in source.tasks()]) for source in (here, there)]
    assert packed(rows[0]) == packed(rows[1]) and len(rows[0]) == 500
    sizes = [source.sample(100, rng=np.random.default_rng(1)) for source in (here, there)]
    assert packed(sizes[0]) == packed(sizes[1])


def test_npy_files_must_lie_on_this_machine(bucket) -> None:
    np.save(bucket / "rows.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"Copy it here first, or save the rows as Parquet\."):
        open_dataset("s3://bucket/rows.npy")


def test_what_is_not_there(bucket) -> None:
    (bucket / "empty").mkdir()
    for url, message in {
        "s3://bucket/no.csv": "There is no file or folder 's3://bucket/no.csv'",
        "s3://nobody/no.csv": "There is no file or folder",
        "s3://bucket/no*.csv": "No file matches",
        "s3://bucket/empty": "There is no data file in the folder",
    }.items():
        with pytest.raises(FileNotFoundError, match=message):
            open_dataset(url)


@pytest.mark.parametrize("ending", ["parquet", "csv", "libsvm"])
def test_a_file_that_changes_or_vanishes(bucket, ending: str) -> None:
    path = bucket / f"rows.{ending}"

    def write(value: float) -> None:
        if ending == "parquet":
            pq.write_table(pa.table({"a": np.sin(np.arange(50) * value)}), path)
        elif ending == "csv":
            path.write_text("a,b\n" + f"{value},1\n2,3\n" * 50)
        else:
            path.write_text(f"1 1:{value} 2:1\n0 1:2 2:3\n" * 50)

    write(1.5)
    source = open_dataset(f"s3://bucket/rows.{ending}")
    again = open_dataset(f"s3://bucket/rows.{ending}")
    assert source.identity == again.identity
    write(2.5)
    os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(FileFormatError, match="was written to while it was read"):
        list(map(call, source.tasks()))
    assert open_dataset(f"s3://bucket/rows.{ending}").identity != source.identity
    path.unlink()
    with pytest.raises(FileNotFoundError, match="vanished while it was read"):
        list(map(call, source.tasks()))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("When listing: AWS Error ACCESS_DENIED during HeadObject operation: No response body.", PermissionError),
        ("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation", PermissionError),
        ("When listing objects: AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", FileNotFoundError),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", ConnectionError),
        ("AWS Error UNKNOWN (HTTP status 500) during HeadObject operation", ConnectionError),
    ],
)
def test_errors_of_a_store(bucket, monkeypatch, message: str, kind: type[Exception]) -> None:
    def fail(self, path: str):
        with stores.clear_errors(path):
            raise OSError(message)

    monkeypatch.setattr(stores.StoreFiles, "kind", fail)
    with pytest.raises(kind, match=r"'s3://bucket/rows\.csv"):
        open_dataset("s3://bucket/rows.csv")


def test_a_broken_connection_in_the_middle(bucket, monkeypatch) -> None:
    write_years(bucket / "rows")
    source = open_dataset("s3://bucket/rows")
    first, *rest = source.tasks(leaf_rows=1)
    assert len(first()) == 300

    def fail(self, path: str):
        raise ConnectionError(f"{path!r} cannot be reached: no route")

    monkeypatch.setattr(stores.StoreFiles, "open", fail)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        rest[-1]()
