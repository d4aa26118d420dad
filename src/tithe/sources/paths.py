"""Which files are meant: a file, a folder, a pattern, or a list of these."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tithe.core.errors import FileFormatError

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".npy": "npy",
    ".npz": "npz",
}


class DataFile(NamedTuple):
    """A file as it was found: where it is, its name below what was opened, its size."""

    path: str
    name: str
    size: int

    def check(self) -> None:
        """Refuse to go on with a file that is not the one that was opened."""
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path!r} vanished while it was read.") from None
        if size != self.size:
            raise FileFormatError(f"{self.path!r} had {self.size} bytes when it was opened and now has {size}.")


def find_files(where: Any, format: str) -> tuple[list[DataFile], str]:
    """The files that ``where`` stands for, sorted within a folder or pattern, and their format."""
    asked = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    if not asked:
        raise ValueError("There is no file: the list of paths is empty.")
    files = [file for one in asked for file in _expand(os.fspath(one), format)]
    formats = {file.path: _format_of(file.path) if format == "auto" else format for file in files}
    kinds = sorted(set(formats.values()))
    if len(kinds) > 1:
        examples = [next(p for p, kind in formats.items() if kind == wanted) for wanted in kinds[:2]]
        raise ValueError(
            f"{examples[0]!r} is {kinds[0]} and {examples[1]!r} is {kinds[1]}: open files of one format at a time."
        )
    return files, kinds[0]


def _expand(where: str, format: str) -> list[DataFile]:
    if os.path.isdir(where):
        found = [path for path in sorted(Path(where).rglob("*")) if path.is_file() and _is_visible(path, where)]
        found = [path for path in found if format != "auto" or _format_of(path, strict=False)]
        if not found:
            raise FileNotFoundError(f"There is no data file in the folder {where!r}.")
        return [_data_file(path, where) for path in found]
    if os.path.isfile(where):
        return [_data_file(Path(where), os.path.dirname(where))]
    if glob.has_magic(where):
        found = [Path(path) for path in sorted(glob.glob(where, recursive=True)) if os.path.isfile(path)]
        if not found:
            raise FileNotFoundError(f"No file matches {where!r}.")
        return [_data_file(path, os.path.commonpath([str(path.parent) for path in found])) for path in found]
    raise FileNotFoundError(f"There is no file {where!r}.")


def _is_visible(path: Path, folder: str) -> bool:
    return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _data_file(path: Path, folder: str) -> DataFile:
    return DataFile(str(path), Path(os.path.relpath(path, folder or ".")).as_posix(), path.stat().st_size)


def _format_of(path: str | os.PathLike[str], *, strict: bool = True) -> str:
    name = os.path.basename(path).lower()
    for ending in sorted(FORMATS, key=len, reverse=True):
        if name.endswith(ending):
            return FORMATS[ending]
    if strict:
        raise FileFormatError(
            f"{os.fspath(path)!r}: the name does not tell the format. Say it, for example format='csv'; "
            f"endings known are {', '.join(FORMATS)}."
        )
    return ""


def no_rows(files: Sequence[DataFile]) -> ValueError:
    """The error for files that are all empty."""
    return ValueError(f"There are no rows in {files[0].path!r}{', nor in the other files' * (len(files) > 1)}.")


def identity_of(format: str, files: Sequence[DataFile], options: dict[str, Any], n_rows: int | None) -> str:
    """A short hash of what was opened: it changes with the rows, not with the place or the time."""
    about = [format, [(file.name, file.size) for file in files], sorted(options.items()), n_rows]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
