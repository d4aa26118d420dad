"""Files on real servers: S3 by a process of moto, a web server in a thread."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from operator import call
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from stored_rows import a_table, write_years

from tithe import CoresetKMeans, FileFormatError, build_coreset, open_dataset, save_coreset, save_model
from tithe.core.data import concat
from tithe.rows import stores
from tithe.storage.values import packed

SECRET = "a-secret-that-nobody-writes"


def all_rows(source) -> Any:
    return concat([task() for task in source.tasks()])


def coreset_bytes(source) -> bytes:
    return packed(build_coreset(source, objective="kmeans", coreset_size=100, random_state=0))


def first_leaf(source: bytes) -> bytes:
    """Called in another process."""
    return packed(next(pickle.loads(source).tasks())())


@contextlib.contextmanager
def moto_process() -> Iterator[str]:
    """A server that speaks S3, in a process of its own: its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    pytest.importorskip("moto", reason="S3 is tested against the server of moto: pip install 'tithe[cluster]'")
    pytest.importorskip("boto3", reason="S3 is tested with boto3: pip install 'tithe[cluster]'")
    with moto_process() as address:
        yield address


@pytest.fixture
def upload(s3_address, monkeypatch) -> Iterator[Callable[[Path, str], str]]:
    """A function that copies a file or folder into a bucket; it gives its URL."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": s3_address,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    stores._store.cache_clear()
    client = boto3.client("s3")
    client.create_bucket(Bucket="rows")

    def copy(path: Path, key: str) -> str:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                client.upload_file(str(file), "rows", f"{key}/{file.relative_to(path)}" if path.is_dir() else key)
        return f"s3://rows/{key}"

    yield copy
    for held in client.list_objects_v2(Bucket="rows").get("Contents", []):
        client.delete_object(Bucket="rows", Key=held["Key"])
    client.delete_bucket(Bucket="rows")
    stores._store.cache_clear()


# -- S3 ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_s3_gives_the_bits_of_local_files(upload, tmp_path, s3_address) -> None:
    folder = write_years(tmp_path / "years", 2000)
    expected = coreset_bytes(open_dataset(folder))
    top = upload(folder, "deep/years")
    for where in (top, f"{top}/", f"{top}/*/*.parquet", f"{top}/year=202?/part*", f"{top}/**/*.parquet"):
        source = open_dataset(where)
        assert source.feature_names[-1] == "year" and coreset_bytes(source) == expected, where
    files = [f"{top}/year={year}/part 1%20.parquet" for year in (2022, 2023, 2024)]
    assert coreset_bytes(open_dataset(files)) == expected
    options = f"?endpoint_override={s3_address.removeprefix('http://')}&scheme=http&region=us-east-1"
    assert coreset_bytes(open_dataset(f"{top}{options}")) == expected
    dataset = ds.dataset("rows/deep/years", filesystem=fs.S3FileSystem(endpoint_override=s3_address))
    local = ds.dataset(folder)
    assert coreset_bytes(open_dataset(dataset)) == coreset_bytes(open_dataset(local))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "zip", "libsvm", "npz"])
def test_s3_other_formats(upload, tmp_path, ending: str) -> None:
    path = tmp_path / f"rows.{ending}"
    table = a_table(3000, 0).to_pandas()
    if ending == "npz":
        np.savez_compressed(path, X=table[["a", "b"]])
    elif ending == "libsvm":
        path.write_text("".join(f"1 1:{a} 2:{b}\n" for a, b in table[["a", "b"]].to_numpy()))
    else:
        table.to_csv(path, index=False)
    source = open_dataset(upload(path, path.name))
    assert packed(all_rows(source)) == packed(all_rows(open_dataset(path)))


@pytest.mark.slow
def test_s3_files_that_change_or_vanish(upload, tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1.5,0\n2,1\n" * 50)
    url = upload(path, "rows.csv")
    source = open_dataset(url)
    assert open_dataset(url).identity == source.identity
    upload(path, "rows.csv")  # the same bytes again have the same etag
    assert len(all_rows(source)) == 100
    path.write_text("a,b\n" + "2.5,0\n2,1\n" * 50)  # as many bytes, within the same second
    upload(path, "rows.csv")
    with pytest.raises(FileFormatError, match=r"'s3://rows/rows\.csv' was written to while it was read"):
        list(map(call, source.tasks()))
    assert open_dataset(url).identity != source.identity
    path.write_text("a,b\n1,2\n")
    upload(path, "rows.csv")
    with pytest.raises(FileFormatError, match="had 504 bytes when it was opened and now has 8"):
        list(map(call, source.tasks()))
    import boto3

    boto3.client("s3").delete_object(Bucket="rows", Key="rows.csv")
    with pytest.raises(FileNotFoundError, match="vanished while it was read"):
        list(map(call, source.tasks()))


@pytest.mark.slow
def test_s3_errors(upload, tmp_path, s3_address) -> None:
    for url in ("s3://nobody/rows.csv", "s3://nobody", "s3://rows/no.csv", "s3://nobody/*.csv"):
        with pytest.raises(FileNotFoundError, match=re.escape(url)):
            open_dataset(url)
    url = upload(write_years(tmp_path / "years"), "years")
    source = open_dataset(url)
    plain = {"Content-Type": "text/plain"}
    who = functools.partial(urllib.request.Request, f"{s3_address}/moto-api/reset-auth", headers=plain)
    urllib.request.urlopen(who(data=b"0")).close()  # from now on nobody is known
    try:
        with pytest.raises(PermissionError, match=r"access is denied\. Are the credentials in the environment"):
            open_dataset(url)
        with pytest.raises(PermissionError, match="access is denied"):
            list(map(call, source.tasks()))
    finally:
        urllib.request.urlopen(who(data=b"inf")).close()
    assert len(all_rows(source)) == 2100


@pytest.mark.slow
def test_s3_server_that_goes_away(upload, tmp_path, monkeypatch) -> None:
    import boto3

    folder = write_years(tmp_path / "years")
    with moto_process() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        stores._store.cache_clear()
        boto3.client("s3").create_bucket(Bucket="rows")
        upload_there = boto3.client("s3").upload_file
        for file in folder.rglob("*.parquet"):
            upload_there(str(file), "rows", f"years/{file.relative_to(folder)}")
        source = open_dataset("s3://rows/years")
        first, *rest = source.tasks(leaf_rows=1)
        assert len(first()) == 300
    with pytest.raises(ConnectionError, match=r"'s3://rows/years/year=2024/.*cannot be reached"):
        rest[-1]()
    with pytest.raises(ConnectionError, match="'s3://rows/years' cannot be reached"):
        open_dataset("s3://rows/years")


@pytest.mark.slow
def test_s3_in_another_process_and_on_disk(upload, tmp_path) -> None:
    source = open_dataset(upload(write_years(tmp_path / "years"), "years"))
    held = pickle.dumps(source)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as workers:
        assert workers.submit(first_leaf, held).result() == packed(next(source.tasks())())
    model = CoresetKMeans(n_clusters=2, random_state=0).fit(source)
    save_model(model, tmp_path / "model.tithe", rows=True)
    save_coreset(model.coreset_, tmp_path / "coreset.parquet")
    for data in (held, (tmp_path / "model.tithe").read_bytes(), (tmp_path / "coreset.parquet").read_bytes()):
        assert SECRET.encode() not in data


@pytest.mark.slow
def test_workers_of_dask_read_s3_and_datasets(upload, tmp_path, s3_address) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
    url = upload(write_years(tmp_path / "years"), "years")
    store = fs.S3FileSystem(endpoint_override=s3_address)
    dataset = ds.dataset("rows/years", filesystem=store).filter(ds.field("a") > -0.5)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        for where in (url, dataset):
            source = open_dataset(where)
            source.leaf_rows = 300
            options = {"objective": "kmeans", "coreset_size": 100, "random_state": 0}
            coresets = [build_coreset(source, engine=engine, **options) for engine in ("serial", "dask")]
            assert packed(coresets[0]) == packed(coresets[1])


# -- a web server --------------------------------------------------------------------------------


class _Handler(SimpleHTTPRequestHandler):
    """Gives parts of files, as web servers do; Python's own gives whole files alone."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def send_head(self) -> Any:
        if self.path.startswith("/denied"):
            self.send_error(403)
            return None
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return None
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), int(asked[2] or len(data) - 1)) if asked else (0, len(data) - 1)
        part = data[first : last + 1]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", f'"{hash(data)}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)
        return None


@pytest.fixture
def web(tmp_path) -> Iterator[str]:
    pytest.importorskip("fsspec", reason="http:// is read by fsspec and aiohttp")
    pytest.importorskip("aiohttp", reason="http:// is read by fsspec and aiohttp")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_files_of_a_web_server(web, tmp_path) -> None:
    folder = write_years(tmp_path / "years")
    files = sorted(folder.rglob("*.parquet"))
    for file in files:
        file.rename(file.with_name("rows.parquet"))
    urls = [f"{web}/years/year={year}/rows.parquet?signature=1" for year in (2022, 2023, 2024)]
    source = open_dataset(urls)
    assert coreset_bytes(pickle.loads(pickle.dumps(source))) == coreset_bytes(open_dataset(folder))
    pd.DataFrame({"a": np.arange(50) % 7, "b": np.sin(np.arange(50))}).to_csv(tmp_path / "rows.csv.gz", index=False)
    expected = packed(all_rows(open_dataset(tmp_path / "rows.csv.gz")))
    source = open_dataset(f"{web}/rows.csv.gz")
    assert packed(all_rows(source)) == expected
    os.replace(folder / "year=2022" / "rows.parquet", tmp_path / "rows.csv.gz")
    with pytest.raises(FileFormatError, match=r"rows.csv.gz' had \d+ bytes"):
        list(map(call, source.tasks()))


def test_errors_of_a_web_server(web) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no file or folder 'http://.*/no.csv'\."):
        open_dataset(f"{web}/no.csv?signature=1")
    with pytest.raises(PermissionError, match="access is denied"):
        open_dataset(f"{web}/denied.csv")
    with pytest.raises(ConnectionError, match="cannot be reached"):
        open_dataset("http://127.0.0.1:9/rows.csv")


def test_what_fsspec_knows_besides() -> None:
    fsspec = pytest.importorskip("fsspec", reason="other schemes are those that fsspec knows")
    with fsspec.open("memory://place/folder/rows.csv", "wb") as file:
        file.write(b"a,b\n" + b"1,2\n3,5\n" * 9)
    assert len(all_rows(open_dataset("memory://place/folder"))) == 18
    assert open_dataset("memory://place/*/rows.csv").n_rows == 18
    with pytest.raises(ValueError, match="s4:// misspelt"):
        open_dataset("s4://place/rows.csv")
