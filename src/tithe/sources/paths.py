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

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_BLOCK = 4096
_BLOCKS = 16  # of a file that are looked at to know it again
_ALL_BLOCKS = 4096  # of all files, beside head and tail: thousands of them must not take minutes


class DataFile(NamedTuple):
    """A file as it was found: where it is, its name below what was opened, its size, when it was written."""

    path: str
    name: str
    size: int
    modified: int

    def check(self) -> None:
        """Refuse to go on with a file that is not the one that was opened."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path!r} vanished while it was read.") from None
        if now.st_size != self.size:
            raise FileFormatError(f"{self.path!r} had {self.size} bytes when it was opened and now has {now.st_size}.")
        if now.st_mtime_ns != self.modified:
            raise FileFormatError(f"{self.path!r} was written to while it was read: start again when it is complete.")

    def content(self, n_blocks: int = _BLOCKS) -> str:
        """A hash of head, tail and blocks at even distances, and of the footer of a Parquet file.

        A file that was written anew has another one, a copy of it elsewhere has the same. What no block
        holds may change unnoticed: to read all would take as long as the work itself.
        """
        found = hashlib.sha256()
        with open(self.path, "rb") as file:
            for at in sorted({round(i * max(0, self.size - _BLOCK) / (n_blocks + 1)) for i in range(n_blocks + 2)}):
                file.seek(at)
                found.update(file.read(_BLOCK))
            found.update(_parquet_footer(file, self.size))
        return found.hexdigest()[:16]


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
        found = [path for path in sorted(_below(where)) if format != "auto" or _format_of(path, strict=False)]
        if not found:
            raise FileNotFoundError(f"There is no data file in the folder {where!r}.")
        return [_data_file(path, where) for path in found]
    if glob.has_magic(where) and not os.path.lexists(where):
        found = [Path(path) for path in sorted(glob.glob(where, recursive=True)) if not os.path.isdir(path)]
        if not found:
            raise FileNotFoundError(f"No file matches {where!r}.")
        return [_data_file(path, os.path.commonpath([str(path.parent) for path in found])) for path in found]
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
        kept = []
        for name in sorted(folders):
            real = os.path.realpath(os.path.join(place, name))
            if _is_visible(name) and real not in entered:
                entered.add(real)
                kept.append(name)
        folders[:] = kept
        yield from (Path(place, name) for name in files if _is_visible(name))


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed holds rows that would be missing."""
    raise error


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_"))


def _data_file(path: Path, folder: str) -> DataFile:
    found = check_regular(str(path))
    name = Path(os.path.relpath(path, folder or ".")).as_posix()
    return DataFile(str(path), name, found.st_size, found.st_mtime_ns)


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
    n_blocks = min(_BLOCKS, _ALL_BLOCKS // max(1, len(files)))
    return _short_hash([(file.name, file.size, file.content(n_blocks)) for file in files])


def _short_hash(about: Any) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
