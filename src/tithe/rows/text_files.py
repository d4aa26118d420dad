"""Text files, plain or compressed, and the text files inside zip archives, as streams of bytes."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from tithe.core.errors import FileFormatError
from tithe.rows.file_access import ACCESS_ERRORS, is_visible
from tithe.rows.paths import DataFile

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zip": "zip"}
_MEMBER_ENDINGS = (".csv", ".tsv", ".txt")
# zipfile raises RuntimeError for a member with a password, NotImplementedError for an unknown compression
_DAMAGES = (pa.ArrowException, OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)


class TextFile(NamedTuple):
    """A text file as it was found, or one inside a zip archive.

    ``path`` is its name in messages, ``size`` its share of the bytes on disk.
    """

    file: DataFile
    path: str
    size: int
    member: str = ""

    @property
    def is_local(self) -> bool:
        return self.file.is_local

    @property
    def compression(self) -> str | None:
        return _COMPRESSIONS.get(PurePosixPath(self.file.plain_path.lower()).suffix)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The bytes, uncompressed: an object with ``read``, and with ``seek`` where nothing is compressed."""
        try:
            if self.member:
                self.file.check()
                with self._opened_member() as stream:
                    yield stream
            else:
                with self.file.open() as file, pa.input_stream(file, compression=self.compression) as stream:
                    yield _Unpacked(stream) if self.compression else stream
        except (FileFormatError, *ACCESS_ERRORS):
            raise
        except _DAMAGES as error:
            self.file.check()
            raise FileFormatError(f"{self.path!r} cannot be read: {error}") from error

    def _opened_member(self) -> Any:
        try:
            return _archive(self.file).open(self.member)
        except UnicodeDecodeError as error:  # zipfile decodes the name that stands before the data, too
            raise zipfile.BadZipFile(f"its name in the archive is no text: {error}") from error


class _Unpacked:
    """A compressed stream. Arrow's own ``read`` never gives memory back if the data are damaged."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, n_bytes: int) -> bytes:
        data: bytes = self._stream.read_buffer(n_bytes).to_pybytes()
        return data


@lru_cache(maxsize=4)
def _archive(file: DataFile) -> zipfile.ZipFile:
    """An archive, held open: each opening reads the list of all its members. Threads may share it."""
    return zipfile.ZipFile(file.open())


def text_files(files: Sequence[DataFile]) -> list[TextFile]:
    """The text files, those inside zip archives one by one, in the order of the archive."""
    return [
        text
        for file in files
        for text in (
            _members(file) if file.plain_path.lower().endswith(".zip") else [TextFile(file, file.path, file.size)]
        )
    ]


def _members(file: DataFile) -> list[TextFile]:
    """The tables in an archive: files whose name says so, or the only file."""
    try:
        members = [member for member in _archive(file).infolist() if member.filename and not member.is_dir()]
    except _DAMAGES as error:
        raise FileFormatError(f"{file.path!r} is not a whole zip archive: {error}") from error
    visible = [m for m in members if all(map(is_visible, PurePosixPath(m.filename).parts))]
    tables = [m for m in visible if m.filename.lower().endswith(_MEMBER_ENDINGS)] or visible
    if not tables or (len(tables) > 1 and not tables[0].filename.lower().endswith(_MEMBER_ENDINGS)):
        raise FileFormatError(f"{file.path!r} holds no CSV: files in it must end in {', '.join(_MEMBER_ENDINGS)}.")
    return [TextFile(file, f"{file.path}/{m.filename}", m.compress_size, m.filename) for m in tables]
