"""Small files and streams, damaged in many ways: each is read, or refused by a documented error, in little memory."""

from __future__ import annotations

import bz2
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Pool, table
from plain_rows import ColumnSelection, open_dataset
from source_inputs import (
    arrow_streams,
    damaged_npy,
    damaged_npz,
    damaged_packed,
    damaged_parquet,
    damaged_picture,
    damaged_stream,
    damaged_text,
    gzip_bombs,
    libsvm_bombs,
    libsvm_file,
    npy_bombs,
    npy_file,
    npz_bombs,
    npz_file,
    packed_gzip,
    packed_zip,
    parquet_bombs,
    parquet_files,
    picture_bombs,
    picture_files,
    text_bombs,
    text_file,
    zip_bombs,
)

from tithe import build_coreset
from tithe.core.errors import FileFormatError, NoRowsError
from tithe.dictionary.pictures import read_picture
from tithe.objectives import KMeansObjective
from tithe.rows.piped import open_piped

QUICK, MANY = 12, 20_000
MOST_BYTES = 2**29  # that one input may take: a picture of 6600 x 6600 takes 415 MiB
_ALLOWED = (ValueError, FileFormatError, NoRowsError)
_BUILD_SHARE = 16  # one input in so many is reduced to a coreset


# -- what a worker does ------------------------------------------------------------------------


def read_input(data: bytes) -> None:
    """Read the bytes after the first line as it says: the name of a loader, and whether a coreset is built as well."""
    how, _, content = data.partition(b"\n")
    name, _, build = how.decode().partition("/")
    LOADERS[name].read(content, bool(build))


def _file_reader(ending: str, **options: Any) -> Callable[[bytes, bool], None]:
    def read(data: bytes, build: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"t{ending}")
            file.write_bytes(data)
            _both_ways(lambda **how: open_dataset(file, **how, **options), data, build)

    return read


def _pipe_reader(format: str, n_features: int | None = None, **options: Any) -> Callable[[bytes, bool], None]:
    def read(data: bytes, build: bool) -> None:
        def opened(**how: Any) -> Any:
            return open_piped(io.BytesIO(data), format, ColumnSelection(**how, **options), n_features)

        _both_ways(opened, data, build)

    return read


def _both_ways(opened: Callable[..., Any], data: bytes, build: bool) -> None:
    """Read all rows, those that are bad refused, then skipped: what comes of the second is the outcome."""
    try:
        _read_all(opened(bad_rows="error"), build)
    except _ALLOWED as error:
        if type(error) not in _ALLOWED:
            raise
    _read_all(opened(bad_rows="skip"), build)


def _read_all(source: Any, build: bool) -> None:
    _check(source.sample(10, rng=np.random.default_rng(0)), source.n_features)
    if not build or source.replayable:
        for task in source.tasks():
            _check(task(), source.n_features)
    if build:
        goal = KMeansObjective(n_clusters=2)
        build_coreset(source, objective=goal, coreset_size=4, random_state=0, engine="serial")


def _check(block: Any, n_features: int) -> None:
    values = block.X.data if hasattr(block.X, "indptr") else block.X
    assert np.isfinite(values).all() and block.X.shape == (len(block), n_features)
    assert (np.diff(block.row_ids()) > 0).all() and len(block.row_ids()) == len(block)


def _read_picture(data: bytes, build: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "picture")
        file.write_bytes(data)
        pixels = read_picture(file).pixels
    assert pixels.dtype in (np.uint8, np.uint16) and pixels.ndim in (2, 3)


@dataclass(frozen=True)
class Loader:
    """What reads bytes of a format, good bytes, damaged ones by chance, and those that stand for very much."""

    read: Callable[[bytes, bool], None]
    good: Callable[[], list[bytes]]
    damaged: Callable[[np.random.Generator], bytes]
    bombs: Callable[[], list[bytes]] = list


def _text_loader(read: Callable[[bytes, bool], None], good: bytes, bombs: Callable[[], list[bytes]] = list) -> Loader:
    return Loader(read, lambda: [good], lambda rng: damaged_text(good, rng), bombs)


LOADERS = {
    "csv": _text_loader(_file_reader(".csv", categories="hash"), text_file(), text_bombs),
    "csv with target": _text_loader(_file_reader(".csv", target="y", categories="onehot"), text_file()),
    "csv.gz": Loader(
        _file_reader(".csv.gz", categories="onehot"),
        lambda: [packed_gzip(text_file())],
        lambda rng: damaged_packed(text_file(), packed_gzip, rng),
        gzip_bombs,
    ),
    "csv.bz2": Loader(
        _file_reader(".csv.bz2", categories="hash"),
        lambda: [bz2.compress(text_file(";"))],
        lambda rng: damaged_packed(text_file(";"), bz2.compress, rng),
    ),
    "zip": Loader(
        _file_reader(".zip", categories="hash"),
        lambda: [packed_zip(text_file(), text_file("|"))],
        lambda rng: damaged_packed(text_file(), packed_zip, rng),
        zip_bombs,
    ),
    "tsv": _text_loader(_file_reader(".tsv", columns=["a", "b"], target="y"), text_file("\t")),
    "libsvm": _text_loader(_file_reader(".libsvm"), libsvm_file(), libsvm_bombs),
    "npy": Loader(_file_reader(".npy"), lambda: [npy_file()], damaged_npy, npy_bombs),
    "npz": Loader(_file_reader(".npz", target="y"), lambda: [npz_file(npy_file())], damaged_npz, npz_bombs),
    "parquet": Loader(
        _file_reader(".parquet", target="y", categories="onehot"), parquet_files, damaged_parquet, parquet_bombs
    ),
    "parquet, text target": Loader(_file_reader(".parquet", target="t"), parquet_files, damaged_parquet),
    "picture": Loader(_read_picture, picture_files, damaged_picture, picture_bombs),
    "csv pipe": _text_loader(_pipe_reader("csv", categories="hash"), text_file(), text_bombs),
    "libsvm pipe": _text_loader(_pipe_reader("libsvm", 9), libsvm_file(), libsvm_bombs),
    "arrow pipe": Loader(_pipe_reader("arrow", categories="hash"), arrow_streams, damaged_stream),
}


def _inputs(name: str, n: int, seed: int) -> Iterator[bytes]:
    """The inputs that stand for very much, then ``n`` damaged ones."""
    loader, rng = LOADERS[name], np.random.default_rng(seed)
    made = chain(loader.bombs(), (loader.damaged(rng) for _ in range(n)))
    return (_asked(name, content, i % _BUILD_SHARE == 0) for i, content in enumerate(made))


def _asked(name: str, content: bytes, build: bool) -> bytes:
    return f"{name}{'/build' * build}\n".encode() + content


def _good(names: Iterable[str]) -> list[bytes]:
    return [_asked(name, content, True) for name in names for content in LOADERS[name].good()]


def _assert_sound(name: str, outcomes: list[Any]) -> None:
    bad = [outcome for outcome in outcomes if outcome.kind not in ("ok", "refused")]
    assert not bad, f"{name}: {len(bad)} inputs, first {bad[0].job}: {bad[0].kind} {bad[0].detail}\n{bad[0].trace}"
    assert max(outcome.grown_bytes for outcome in outcomes) < MOST_BYTES
    assert {"ok", "refused"} == {outcome.kind for outcome in outcomes}, name  # else nothing was damaged, or all was


def test_damaged_files_are_read_or_refused() -> None:
    few = [name for name in LOADERS if name not in ("csv.gz", "csv.bz2", "zip", "csv pipe")]  # as csv, and slower
    with Pool(read_input, warm=_good(few), seconds=60, n_workers=1) as pool:
        outcomes = {name: pool.run(_inputs(name, QUICK, seed=0)) for name in few}
    print(table(outcomes))
    for name, ended in outcomes.items():
        _assert_sound(name, ended)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
def test_many_damaged_files_are_read_or_refused(name: str) -> None:
    with Pool(read_input, warm=_good([name]), seconds=60) as pool:
        outcomes = pool.run(_inputs(name, MANY, seed=1))
    print(table({name: outcomes}))
    _assert_sound(name, outcomes)
