"""The state of a build or a stream on disk, written atomically and never unpickled.

A checkpoint is a folder of generations. A new one is written under a temporary name, every file and
the folder itself synced, and renamed to its number; only then is the one before it removed. A process that is
killed at any moment leaves the last complete generation behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from tithe.core.data import Block
from tithe.core.errors import FileFormatError
from tithe.core.files import umask
from tithe.core.passes import Tree
from tithe.core.state_checks import checked
from tithe.storage.values import packed, unpacked

_FORMAT = 1
_MANIFEST = "manifest.json"
_LOCK = ".lock"
_WRITING = ".writing"
_TEMPORARY = ".tmp-*"
_READ_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, OSError)
_FILE_NAME = re.compile(r"(object|rows)-[a-z0-9_-]+\.tithe")


@dataclass(frozen=True, kw_only=True)
class State:
    """A state from which a build or a stream is resumed.

    Parameters
    ----------
    objects : mapping of name to object
        Of our own types: plans, reducers.
    rows : mapping of name to Block
        Coresets, and rows that wait.
    about : mapping
        Anything that JSON can hold: counters, options, what the rows came from.
    """

    objects: Mapping[str, Any]
    rows: Mapping[str, Block]
    about: Mapping[str, Any]


def save_state(path: str | os.PathLike[str], state: State) -> None:
    """Write a new generation into the folder ``path`` and remove the one before it."""
    folder = Path(path)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = _contents(state)
    with locked(folder / _WRITING):
        old = _generations(folder)
        temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder))
        try:
            for name, data in contents.items():
                _write_synced(temporary / name, data)
            temporary.chmod(0o777 & ~umask())
            _sync_folder(temporary)
            number = 1 + max((int(p.name) for p in old), default=0)
            temporary.rename(folder / f"{number:08d}")
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _sync_folder(folder)
        _remove([*old, *folder.glob(_TEMPORARY)])


def clean_state(path: str | os.PathLike[str]) -> None:
    """Remove what is older than the newest whole generation, and what killed processes left half written."""
    folder = Path(path)
    if not folder.is_dir():
        return
    with locked(folder / _WRITING):
        generations = _generations(folder)
        if len(generations) > 1:
            newest = max(filter(_is_whole, generations), default=generations[0])
            _remove(generation for generation in generations if generation < newest)
        _remove(folder.glob(_TEMPORARY))


def locked(path: Path, timeout: float = -1) -> filelock.FileLock:
    """The lock that whoever writes to a folder holds: what is half written under it belongs to a killed process."""
    if path.is_symlink():
        raise FileFormatError(f"{str(path)!r} is a link, which no lock is.")
    # not for one thread only: a lock that a thread takes may be released by another one
    return filelock.FileLock(path, timeout=timeout, thread_local=False)


def _remove(folders: Iterable[Path]) -> None:
    """Remove generations. One that stays would be a copy of rows that may have been forgotten: that is an error."""
    for folder in folders:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder that a checkpoint cannot be written to, before any work is done."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is a file; a checkpoint is a folder.")
    foreign = [] if not folder.exists() else [p.name for p in folder.iterdir() if not _is_ours(p)]
    if foreign:
        raise ValueError(f"{str(folder)!r} holds {foreign[0]!r}, which no checkpoint has: give a folder of its own.")


def load_state(path: str | os.PathLike[str], *, missing_ok: bool = False) -> State | None:
    """The newest whole generation in the folder ``path``."""
    folder = Path(path)
    generations = _generations(folder) if folder.is_dir() else []
    if not generations:
        if missing_ok:
            return None
        raise FileNotFoundError(f"There is no checkpoint in {str(folder)!r}.")
    fault: Exception | None = None
    for generation in reversed(generations):
        try:
            return _read(generation)
        except _READ_ERRORS as error:
            fault = fault or error
    raise FileFormatError(f"The checkpoint in {str(folder)!r} is damaged: {fault}") from fault


def remove_state(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint that is no longer needed, and its folder if nothing else is in it."""
    folder = Path(path)
    if not folder.is_dir():
        return
    for part in folder.iterdir():
        if part.name in (_LOCK, _WRITING):
            part.unlink()
        elif _is_ours(part):
            shutil.rmtree(part, ignore_errors=True)
    if not any(folder.iterdir()):
        folder.rmdir()


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
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()


def _is_ours(part: Path) -> bool:
    if part.name in (_LOCK, _WRITING):
        return True
    return _is_generation(part) or (part.is_dir() and part.name.startswith(".tmp-"))


def _is_generation(part: Path) -> bool:
    return len(part.name) == 8 and part.name.isdigit() and stat.S_ISDIR(part.lstat().st_mode)


def _generations(folder: Path) -> list[Path]:
    return sorted(filter(_is_generation, folder.iterdir()))


def _contents(state: State) -> dict[str, bytes]:
    files = {f"object-{name}.tithe": packed(thing) for name, thing in state.objects.items()}
    files |= {f"rows-{name}.tithe": packed(block) for name, block in state.rows.items()}
    manifest = {
        "format": _FORMAT,
        "about": dict(state.about),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    text = json.dumps(manifest)
    # the manifest vouches for the files, this line for the manifest
    files[_MANIFEST] = f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()
    return files


def _content(path: Path) -> bytes:
    """The bytes of a file: no link leads out of the folder, and no pipe is waited for."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FileFormatError(f"{path.name!r} is no file of a checkpoint.")
    return path.read_bytes()


def _manifest(generation: Path) -> dict[str, Any]:
    """The manifest, which vouches for the files; checked for being what was written."""
    text, _, check = _content(generation / _MANIFEST).decode().partition("\n")
    if hashlib.sha256(text.encode()).hexdigest() != check.strip():
        raise FileFormatError(f"{generation.name}/{_MANIFEST} is not what was written.")
    manifest: dict[str, Any] = json.loads(text)
    if manifest["format"] > _FORMAT:
        raise FileFormatError(f"format {manifest['format']} is newer than this version of tithe reads.")
    return manifest


def _files(generation: Path, manifest: dict[str, Any]) -> Iterable[tuple[str, bytes]]:
    """Name and contents of every file that a manifest names, each checked for being what was written."""
    for name, digest in manifest["sha256"].items():
        if not _FILE_NAME.fullmatch(name):  # what a manifest names is read
            raise FileFormatError(f"{name!r} is no file of a checkpoint.")
        data = _content(generation / name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise FileFormatError(f"{generation.name}/{name} is not what was written.")
        yield name, data


def _is_whole(generation: Path) -> bool:
    try:
        return all(True for _ in _files(generation, _manifest(generation)))
    except _READ_ERRORS:
        return False


def _read(generation: Path) -> State:
    manifest = _manifest(generation)
    objects: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    for name, data in _files(generation, manifest):
        kind, _, name = name.removesuffix(".tithe").partition("-")
        (rows if kind == "rows" else objects)[name] = unpacked(data)
    about = manifest["about"]
    if not isinstance(about, dict):
        raise FileFormatError(f"{generation.name}/{_MANIFEST} says nothing about the state.")
    return State(objects=objects, rows=rows, about=about)


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def saved_tree(tree: Tree) -> dict[str, Block]:
    """The nodes of a tree, to be kept among the rows of a state."""
    return {f"slot-{i:02d}": slot for i, slot in enumerate(tree.slots)}


def restored_tree(rows: Mapping[str, Any], n_leaves: Any) -> Tree:
    """The tree whose nodes are among the rows of a state, checked."""
    names = sorted(name for name in rows if name.startswith("slot-"))
    return checked(Tree(tuple(rows[name] for name in names), n_leaves))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
