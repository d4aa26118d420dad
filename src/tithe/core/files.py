"""Files that are replaced atomically."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: temporary files of killed processes then stay, since none can be told from others
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: str | os.PathLike[str], *, clean: bool = True) -> Iterator[Path]:
    """A temporary name beside ``path``; synced and renamed to it at the end, removed on any error.

    Those that killed processes left behind for the same ``path`` are removed first: they may hold rows that were
    forgotten since. ``clean=False`` where the caller sees to that, and the folder has many files.
    """
    target = Path(path)
    if clean:
        remove_leftovers(target)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        _lock_now(handle)  # held until the end, so that nobody takes the file for a leftover
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


@contextmanager
def making_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder, which is made if there is none. One that was made and is left empty by an error is removed."""
    folder = Path(path)
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    except BaseException:
        if is_new:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise


def check_output(path: str | os.PathLike[str], *, beside: str | os.PathLike[str] | None = None) -> None:
    """Refuse, before any work is done, a file that could not be written or would replace its own input."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder.")
    if beside is not None and target.exists() and target.samefile(beside):
        raise ValueError(f"{str(target)!r} is the input itself: choose another name for the output.")


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove temporary files of `replacing` for ``path`` whose process was killed while it wrote."""
    target = Path(path)
    for leftover in target.parent.glob(f".{escape(target.name)}.????????.tmp"):
        try:
            handle = os.open(leftover, os.O_RDWR)
        except OSError:  # removed meanwhile, or another user's
            continue
        try:
            if _lock_now(handle):
                leftover.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _lock_now(handle: int) -> bool:
    """Whether the open file could be locked: nobody else holds it. The lock ends when it is closed."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def umask() -> int:
    """The permissions that new files of this process lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
