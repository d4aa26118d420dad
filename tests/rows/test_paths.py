"""Which files are found, and how they are known again."""

from __future__ import annotations

import os
import shutil
from operator import call
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from plain_rows import open_dataset

from tithe import FileFormatError
from tithe.rows.paths import find_files


def write(path: Path, seed: int) -> None:
    """Rows that take as many bytes whatever the seed."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1000, 10_000, size=(20_000, 3))
    X[:2] = [[1000] * 3, [9999] * 3]
    if path.suffix == ".parquet":  # plain pages: size and statistics are the same
        pd.DataFrame(X.astype(float), columns=["a", "b", "c"]).to_parquet(
            path, index=False, compression=None, use_dictionary=False
        )
    elif path.suffix == ".csv":
        pd.DataFrame(X, columns=["a", "b", "c"]).to_csv(path, index=False)
    elif path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".npz":
        np.savez(path, X=X)
    else:
        path.write_text("".join(f"1 1:{a} 2:{b} 3:{c}\n" for a, b, c in X))


@pytest.mark.parametrize("ending", ["parquet", "csv", "libsvm", "npy", "npz"])
def test_rows_are_known_again_by_what_they_hold(tmp_path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    write(file, 1)
    size, before = file.stat().st_size, open_dataset(file).identity
    (tmp_path / "copy").mkdir()
    shutil.copyfile(file, tmp_path / "copy" / file.name)
    assert open_dataset(tmp_path / "copy" / file.name).identity == before
    write(file, 2)
    assert file.stat().st_size == size
    assert open_dataset(file).identity != before


@pytest.mark.parametrize("ending", ["parquet", "csv", "libsvm", "npy"])
def test_a_file_written_anew_while_it_is_read(tmp_path, ending: str) -> None:
    file = tmp_path / f"rows.{ending}"
    write(file, 1)
    source = open_dataset(file)
    write(file, 2)
    os.utime(file, ns=(1, 1))
    with pytest.raises(FileFormatError, match="written to while it was read"):
        list(map(call, source.tasks()))


def test_linked_folders_are_read_once(tmp_path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for name in ("data/b", "data/_hidden", "elsewhere/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("data/z.csv", "data/b/1.csv", "data/_hidden/2.csv", "elsewhere/3.csv", "elsewhere/deep/4.csv"):
        (tmp_path / name).write_text("a\n1\n")
    (data / "a").symlink_to(elsewhere)
    (data / "same").symlink_to(elsewhere)  # what is linked twice counts once
    (data / "b" / "loop").symlink_to(data)
    (elsewhere / "deep" / "loop").symlink_to(elsewhere)
    (data / "single.csv").symlink_to(elsewhere / "3.csv")
    (data / "broken.txt").symlink_to(elsewhere / "gone.csv")
    found = [file.name for file in find_files(data, "auto")[0]]
    assert found == ["a/3.csv", "a/deep/4.csv", "b/1.csv", "single.csv", "z.csv"]
