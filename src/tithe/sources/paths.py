"""Which files are meant: a file, a folder, a pattern, or a list of these."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tithe.core.errors import FileFormatError, NoRowsError

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

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_BLOCK_BYTES = 4096
_BLOCKS_OF_A_FILE = 16  # hashed to recognise a file
_BLOCKS_OF_ALL_FILES = 4096  # besides head and tail, so that thousands of files do not take minutes


class DataFile(NamedTuple):
    """A file as it was found: where it is, its name below what was opened, its size, when it was written."""

    path: str
    name: str
    size: int
    modified: int

    def check(self) -> None:
        """Refuse to go on with a file that is not the one that was opened."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path!r} vanished while it was read.") from None
        if status.st_size != self.size:
            raise FileFormatError(
                f"{self.path!r} had {self.size} bytes when it was opened and now has {status.st_size}."
            )
        if status.st_mtime_ns != self.modified:
            raise FileFormatError(f"{self.path!r} was written to while it was read: start again when it is complete.")

    def content(self, n_blocks: int = _BLOCKS_OF_A_FILE) -> str:
        """A hash of head, tail and blocks at even distances, and of the footer of a Parquet file.

        It changes if the file is written again, and is the same for a copy elsewhere. A change outside these blocks
        is not noticed: reading all bytes would take as long as the build itself.
        """
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            last = max(0, self.size - _BLOCK_BYTES)
            for at in sorted({round(i * last / (n_blocks + 1)) for i in range(n_blocks + 2)}):
                file.seek(at)
                digest.update(file.read(_BLOCK_BYTES))
            digest.update(_parquet_footer(file, self.size))
        return digest.hexdigest()[:16]


def _parquet_footer(file: Any, size: int) -> bytes:
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
        paths = [path for path in sorted(_below(where)) if format != "auto" or _format_of(path, strict=False)]
        if not paths:
            raise FileNotFoundError(f"There is no data file in the folder {where!r}.")
        return [_data_file(path, where) for path in paths]
    if glob.has_magic(where) and not os.path.lexists(where):
        paths = [Path(path) for path in sorted(glob.glob(where, recursive=True)) if not os.path.isdir(path)]
        if not paths:
            raise FileNotFoundError(f"No file matches {where!r}.")
        return [_data_file(path, os.path.commonpath([str(path.parent) for path in paths])) for path in paths]
    return [_data_file(Path(where), os.path.dirname(where))]


def check_regular(path: str) -> os.stat_result:
    """What the system says of a regular file. Anything else is refused: a pipe would be waited for, maybe for ever."""
    try:
        about = os.stat(path)
    except PermissionError:
        raise
    except OSError as error:
        if os.path.islink(path):
            raise FileNotFoundError(f"{path!r} is a link to {os.readlink(path)!r}, which is not there.") from error
        raise FileNotFoundError(f"There is no file {path!r}.") from error
    if not stat.S_ISREG(about.st_mode):
        kind = next((name for test, name in _KINDS if test(about.st_mode)), "something else")
        raise ValueError(
            f"{path!r} is {kind}, not a regular file. Take it away or leave it out; rows of a pipe are read once, "
            "from standard input ('-')."
        )
    return about


def _below(folder: str) -> Iterator[Path]:
    """The files in a folder and below, links followed; a folder that is reached twice is read once."""
    entered = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        followed = []
        for name in sorted(folders):
            real = os.path.realpath(os.path.join(place, name))
            if is_visible(name) and real not in entered:
                entered.add(real)
                followed.append(name)
        folders[:] = followed
        yield from (Path(place, name) for name in files if is_visible(name))


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed holds rows that would be missing."""
    raise error


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name is read: not if it starts with a dot or an underscore."""
    return not name.startswith((".", "_"))


def _data_file(path: Path, folder: str) -> DataFile:
    status = check_regular(str(path))
    name = Path(os.path.relpath(path, folder or ".")).as_posix()
    return DataFile(str(path), name, status.st_size, status.st_mtime_ns)


def _format_of(path: str | os.PathLike[str], *, strict: bool = True) -> str:
    name = os.path.basename(path).lower()
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
