"""The state of a build or a stream on disk: one file in a folder, replaced atomically and never unpickled."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from tithe.core.errors import FileFormatError
from tithe.core.files import remove_leftovers, replacing
from tithe.storage.values import about_file, packed, unpacked

_STATE = "state.tithe"
_LOCK = ".lock"


class Saved(NamedTuple):
    """A state, which is an object of ours or a tuple of some, and what is said about it, which JSON can hold."""

    state: Any
    about: dict[str, Any]


def save_state(path: str | os.PathLike[str], state: Any, about: Mapping[str, Any]) -> None:
    """Write a state into the folder ``path``; the one before it stays until the new one is complete."""
    folder = Path(path)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = packed(state, about)
    with replacing(folder / _STATE) as temporary:
        temporary.write_bytes(data)


def clean_state(path: str | os.PathLike[str]) -> None:
    """Remove what killed processes left half written."""
    remove_leftovers(Path(path) / _STATE)


def locked(path: Path, timeout: float = -1) -> filelock.FileLock:
    """The lock that whoever writes to a folder holds: what is half written under it belongs to a killed process."""
    if path.is_symlink():
        raise FileFormatError(f"{str(path)!r} is a link, which no lock is.")
    # not for one thread only: a lock that a thread takes may be released by another one
    return filelock.FileLock(path, timeout=timeout, thread_local=False)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that a checkpoint cannot be written to, before any work is done."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is a file; a checkpoint is a folder.")
    foreign = [] if not folder.exists() else [part.name for part in folder.iterdir() if not _is_ours(part)]
    if foreign:
        raise ValueError(f"{str(folder)!r} holds {foreign[0]!r}, which no checkpoint has: give a folder of its own.")


def load_state(path: str | os.PathLike[str], *, missing_ok: bool = False) -> Saved | None:
    """The state in the folder ``path``."""
    file = Path(path) / _STATE
    if not os.path.lexists(file):
        if missing_ok:
            return None
        raise FileNotFoundError(f"There is no checkpoint in {str(path)!r}.")
    if not stat.S_ISREG(file.lstat().st_mode):  # no link leads out of the folder, and no pipe is waited for
        raise FileFormatError(f"{str(file)!r} is no file of a checkpoint.")
    data = file.read_bytes()
    try:
        return Saved(unpacked(data), about_file(data))
    except FileFormatError as error:
        raise FileFormatError(f"The checkpoint in {str(path)!r} is damaged: {error}") from error


def remove_state(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint that is no longer needed, and its folder if nothing else is in it."""
    folder = Path(path)
    if folder.is_dir():
        for part in filter(_is_ours, folder.iterdir()):
            part.unlink()
        _remove_if_empty(folder)


class FolderLock:
    """Keeps a checkpoint's folder for one run; the system lets go of it when the process ends, however it does."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = self._folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = locked(folder / _LOCK, timeout=0)
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise ValueError(f"Another run writes to {str(folder)!r}: give this one another folder.") from error

    def release(self) -> None:
        """Let go of the folder, and leave none behind that holds nothing."""
        with suppress(PermissionError):  # Windows removes no open file; there filelock removes it on release
            (self._folder / _LOCK).unlink(missing_ok=True)
        self._lock.release()
        _remove_if_empty(self._folder)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _is_ours(part: Path) -> bool:
    is_temporary = part.name.startswith(f".{_STATE}.") and part.name.endswith(".tmp")
    return part.name in (_LOCK, _STATE) or is_temporary
