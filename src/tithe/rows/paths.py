"""Which files are meant: a file, a folder, a pattern, or a list of these, on this machine or in a store."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from tithe.core.errors import FileFormatError, NoRowsError
from tithe.rows.stores import FileStatus, access_to, local_path, parse_url, plain_name

R = TypeVar("R")
F = TypeVar("F", bound="_Placed")

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    **{f".{kind}{packed}": "csv" for kind in ("csv", "tsv") for packed in ("", ".gz", ".bz2", ".zst", ".zip")},
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".npy": "npy",
    ".npz": "npz",
}

_BLOCK_BYTES = 4096
_BLOCKS_OF_A_FILE = 16  # hashed to recognise a file
_BLOCKS_OF_ALL_FILES = 4096  # besides head and tail, so that thousands of files do not take minutes


class _Placed(Protocol):
    @property
    def path(self) -> str: ...


class DataFile(NamedTuple):
    """A file as it was found: where it is, its name below what was opened, its size, its version (`FileStatus`).

    ``path`` is a URL if the file lies in a store. A copy in another process opens the store anew.
    """

    path: str
    name: str
    size: int
    modified: int | str

    @property
    def plain_path(self) -> str:
        """The path, that of a URL without its query."""
        return plain_name(self.path)

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine."""
        return parse_url(self.path) is None

    def check(self) -> None:
        """Refuse to go on with a file that is not the one that was opened."""
        try:
            self.compare(access_to(self.path).status(self.path))
        except FileNotFoundError:
            raise self._vanished() from None

    def open(self) -> Any:
        """The file, checked and opened: an Arrow file."""
        try:
            file, status = access_to(self.path).open(self.path)
        except FileNotFoundError:
            raise self._vanished() from None
        try:
            self.compare(status)
        except BaseException:
            file.close()
            raise
        return file

    def _vanished(self) -> FileNotFoundError:
        return FileNotFoundError(f"{self.plain_path!r} vanished while it was read.")

    def compare(self, status: FileStatus) -> None:
        """Refuse a file with this status unless it is the one that was opened."""
        if status.size != self.size:
            raise FileFormatError(
                f"{self.plain_path!r} had {self.size} bytes when it was opened and now has {status.size}."
            )
        if status.version != self.modified:
            raise FileFormatError(
                f"{self.plain_path!r} was written to while it was read: start again when it is complete."
            )

    def content(self, n_blocks: int = _BLOCKS_OF_A_FILE) -> str:
        """A hash of head, tail and blocks at even distances, and of the footer of a Parquet file.

        It changes if the file is written again, and is the same for a copy elsewhere. A change outside these blocks
        is not noticed: reading all bytes would take as long as the build itself. In a store the version says as much.
        """
        if isinstance(self.modified, str) and self.modified:
            return self.modified
        digest = hashlib.sha256()
        with self.open() as file:
            last = max(0, self.size - _BLOCK_BYTES)
            for at in sorted({round(i * last / (n_blocks + 1)) for i in range(n_blocks + 2)}):
                file.seek(at)
                digest.update(file.read(_BLOCK_BYTES))
            digest.update(parquet_footer(file, self.size))
        return digest.hexdigest()[:16]


def parquet_footer(file: Any, size: int) -> bytes:
    """The footer, which holds statistics and place of every column of every row group; empty if it is none."""
    file.seek(max(0, size - 8))
    end: bytes = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or length > size - 8:
        return b""
    file.seek(size - 8 - length)
    footer: bytes = file.read(length)
    return footer


def find_files(where: Any, format: str) -> tuple[list[DataFile], str]:
    """The files that ``where`` stands for, sorted within a folder or pattern, and their format."""
    asked = [where] if isinstance(where, (str, os.PathLike)) or not isinstance(where, Iterable) else list(where)
    for one in asked:
        if not isinstance(one, (str, os.PathLike)):
            raise ValueError(
                f"{type(one).__name__} is nothing that open_dataset reads: give it paths, URLs, a frame, a dataset, a "
                "query, an Arrow reader, or a Dask or Spark collection."
            )
    if not asked:
        raise ValueError("There is no file: the list of paths is empty.")
    paths = [local_path(os.fspath(one)) for one in asked]
    one_in_store = next((path for path in paths if parse_url(path) is not None), "")
    files = [file for group in access_to(one_in_store).map(partial(_expand, format=format), paths) for file in group]
    formats = {file.path: _format_of(file.path) if format == "auto" else format for file in files}
    kinds = sorted(set(formats.values()))
    if len(kinds) > 1:
        examples = [next(p for p, kind in formats.items() if kind == wanted) for wanted in kinds[:2]]
        raise ValueError(
            f"{examples[0]!r} is {kinds[0]} and {examples[1]!r} is {kinds[1]}: open files of one format at a time."
        )
    return files, kinds[0]


def _expand(where: str, format: str) -> list[DataFile]:
    access = access_to(where)
    kind = access.kind(where)
    if kind == "folder":
        paths = [path for path in access.below(where) if format != "auto" or _format_of(path, strict=False)]
        if not paths:
            raise FileNotFoundError(f"There is no data file in the folder {where!r}.")
        folder = where
    elif kind is None and glob.has_magic(plain_name(where)):
        paths = access.matching(where)
        if not paths:
            raise FileNotFoundError(f"No file matches {where!r}.")
        folder = os.path.commonpath([os.path.dirname(plain_name(path)) for path in paths])
    else:
        paths, folder = [where], os.path.dirname(plain_name(where))
    return access.map(partial(_data_file, folder=plain_name(folder)), paths)


def _data_file(path: str, folder: str) -> DataFile:
    status = access_to(path).status(path)
    name = Path(os.path.relpath(plain_name(path), folder or ".")).as_posix()
    return DataFile(path, name, status.size, status.version)


def map_files(function: Callable[[F], R], files: Sequence[F]) -> list[R]:
    """The function of every file; of files in a store, several at a time."""
    one_in_store = next((file.path for file in files if parse_url(file.path) is not None), "")
    return access_to(one_in_store).map(function, files)


def _format_of(path: str | os.PathLike[str], *, strict: bool = True) -> str:
    name = os.path.basename(plain_name(os.fspath(path))).lower()
    for ending in sorted(FORMATS, key=len, reverse=True):
        if name.endswith(ending):
            return FORMATS[ending]
    if strict and name.endswith(".zip"):  # in a folder it may be anything
        return "csv"
    if strict:
        raise FileFormatError(
            f"{os.fspath(path)!r}: the name does not tell the format. Say it, for example format='csv'; "
            f"endings known are {', '.join(FORMATS)}."
        )
    return ""


def no_rows(files: Sequence[DataFile]) -> ValueError:
    """The error for files that are all empty."""
    return NoRowsError(f"There are no rows in {files[0].path!r}{', nor in the other files' * (len(files) > 1)}.")


def all_bad(where: str, n_rows: int | None) -> ValueError:
    """The error for rows that were all left out because they are bad."""
    number = "" if n_rows is None else f" {n_rows:,}"
    return ValueError(
        f"All{number} rows of {where} are bad and were skipped: each misses a value or has one that is not finite. "
        "Leave out the columns to blame (columns=..., --columns), or see what is wrong without skipping."
    )


def identity_of(format: str, files: Sequence[DataFile], options: dict[str, Any], n_rows: int | None) -> str:
    """A short hash of what was opened: it changes with the rows, not with the place or the time."""
    return _short_hash([format, known_files(files), sorted(options.items()), n_rows])


def known_files(files: Sequence[DataFile]) -> str:
    """A short hash of names and content of the files."""
    n_blocks = min(_BLOCKS_OF_A_FILE, _BLOCKS_OF_ALL_FILES // max(1, len(files)))
    return _short_hash([(file.name, file.size, file.content(n_blocks)) for file in files])


def _short_hash(about: Any) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Constants = dict[str, pa.Scalar]


def partition_values(files: Sequence[DataFile]) -> list[Constants]:
    """For each file, the columns that the folders in its path name; those that not all paths have are left out.

    Values are numbers if all of them are, else text; a missing one is null.
    """
    values = [_values(file.plain_path) for file in files]
    names = [name for name in values[0] if all(name in held for held in values)]
    columns = {name: _typed([held[name] for held in values]) for name in names}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(files))]


def _values(path: str) -> dict[str, str | None]:
    pairs = (folder.partition("=") for folder in PurePosixPath(path).parts[:-1])
    texts = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    return {name: None if text == _NO_VALUE else text for name, text in texts.items()}


def _typed(texts: list[str | None]) -> pa.Array:
    column = pa.array(texts, pa.string())
    for type_ in (pa.int16(), pa.int64(), pa.float64()):  # years are exact in float32
        try:
            return column.cast(type_)
        except pa.ArrowInvalid:
            continue
    return column


def with_constants(rows: Any, names: Sequence[str], constants: Constants) -> Any:
    """The columns ``names`` of a batch or a table, those of one value added."""
    columns = [pa.repeat(constants[name], rows.num_rows) if name in constants else rows.column(name) for name in names]
    return type(rows).from_arrays(columns, names=list(names))
