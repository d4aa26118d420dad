"""Where files lie: on this machine, or in a store that a URL names. A class for each, with the same methods."""

from __future__ import annotations

import glob
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tithe.rows.urls import Location, parse_url

T = TypeVar("T")
R = TypeVar("R")

ACCESS_ERRORS = (FileNotFoundError, PermissionError, ConnectionError)  # they say why a file cannot be had

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class FileStatus(NamedTuple):
    """The size of a file in bytes, and its version: a value that changes when the file is written again.

    On this machine the version is the time of writing, a number. In a store it is a text: the etag, else the time of
    writing, and empty where the store tells neither.
    """

    size: int
    version: int | str


class FileAccess(ABC):
    """Finds and opens files. Paths of a store are URLs."""

    read_bytes: int  # of one request where a part of a file is read in order

    @abstractmethod
    def kind(self, path: str) -> str | None:
        """``"folder"``, ``"file"`` (or anything else that is there), or None if there is nothing."""

    @abstractmethod
    def below(self, folder: str) -> list[str]:
        """The visible files in a folder and below, sorted by the parts of their paths."""

    @abstractmethod
    def matching(self, pattern: str) -> list[str]:
        """The files that match a pattern, sorted."""

    @abstractmethod
    def status(self, path: str) -> FileStatus:
        """The status of a file. FileNotFoundError, PermissionError or ConnectionError say why there is none."""

    @abstractmethod
    def open(self, path: str) -> tuple[Any, FileStatus]:
        """A file as an Arrow file that can be read anywhere, and its status."""

    def hold(self, file: Any, parts: Iterable[tuple[int, int]]) -> Any:
        """The file that was opened, prepared for being read between these offsets."""
        return file

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The function of every item; a store is asked for several at a time."""
        return [function(item) for item in items]


class LocalFiles(FileAccess):
    """Files of this machine."""

    read_bytes = 2**16

    def kind(self, path: str) -> str | None:
        if os.path.isdir(path):
            return "folder"
        return "file" if os.path.lexists(path) else None

    def below(self, folder: str) -> list[str]:
        return [str(path) for path in sorted(_walk(folder))]

    def matching(self, pattern: str) -> list[str]:
        return [path for path in sorted(glob.glob(pattern, recursive=True)) if not os.path.isdir(path)]

    def status(self, path: str) -> FileStatus:
        status = check_regular(path)
        return FileStatus(status.st_size, status.st_mtime_ns)

    def open(self, path: str) -> tuple[Any, FileStatus]:
        status = self.status(path)
        return pa.OSFile(path), status


_LOCAL = LocalFiles()


def access_to(path: str) -> FileAccess:
    """The files of this machine, or those of the store that the path, a URL, names."""
    location = parse_url(path) if "://" in path else None
    if location is None:
        return _LOCAL
    options = "" if location.is_web else location.query
    # a connection does not outlive a fork, so each process has its own
    return _store(location._replace(key="", query=options), os.getpid())


@lru_cache(maxsize=64)
def _store(location: Location, process: int) -> FileAccess:
    from tithe.rows.stores import StoreFiles

    return StoreFiles(location)


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


def _walk(folder: str) -> Iterator[Path]:
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
