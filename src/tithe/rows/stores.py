"""Where files lie: on this machine, or in a store that a URL names; and what may be read from them."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
from pyarrow import fs

from tithe.core.errors import FileFormatError
from tithe.core.params import OneOf, WholeNumber, check_params

TABLE_COLUMNS = 100_000
LIBSVM_COLUMNS = 2**20  # a vector of that length takes 8 MB, and an objective may hold dozens of them
_USUAL_RATIO = 50  # to which data shrink that are worth reading; nothing but repetition shrinks more


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what is read from a file; a file that goes beyond one is refused by a `FileFormatError`.

    Parameters
    ----------
    row_bytes : int
        Bytes of one row of text, or of the header: by default 16 MiB.
    columns : int, optional
        Columns of delimited text, and the largest column number of libsvm rows where ``n_features`` does not say how
        many there are. By default 100,000 of delimited text and 1,048,576 of libsvm rows.
    unpacked_bytes : int
        Bytes of an array of an ``.npz`` file, or of the pixels of a picture, when they are unpacked: by default 128
        MiB. More is allowed where it is at most 50 times what it is packed into.

    Examples
    --------
    >>> Limits(columns=10**6).columns
    1000000
    """

    row_bytes: int = 2**24
    columns: int | None = None
    unpacked_bytes: int = 2**27

    def __post_init__(self) -> None:
        count = WholeNumber(least=1)
        check_params(self, {"row_bytes": count, "columns": count | OneOf(None), "unpacked_bytes": count})

    def check_unpacked(self, what: str, unpacked: int, packed: int) -> None:
        """Refuse what would take much memory and is packed into little. ``what`` names it."""
        if unpacked > max(self.unpacked_bytes, _USUAL_RATIO * packed):
            raise beyond(f"{what} takes {unpacked:,} bytes when it is unpacked", "unpacked_bytes", self.unpacked_bytes)


def beyond(what: str, limit: str, value: Any) -> FileFormatError:
    """The error for a file that goes beyond a limit."""
    return FileFormatError(
        f"{what}; the limit is {value:,}. If the file is right, raise it: limits=Limits({limit}=...) "
        f"(--limit {limit}=...)."
    )


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?]*)/?(.*)", re.DOTALL)
_OPTIONS = re.compile(r"\?[A-Za-z_]+=.*$")  # at the end of a URL; any other question mark is part of a pattern
_WEB = ("http", "https")
_SECRET = re.compile(r"[?&][^=&]*(?:secret|password|token|key|sas)[^=&]*=", re.IGNORECASE)


class Location(NamedTuple):
    """A URL in parts: ``scheme://authority/key`` and a query, which begins with a question mark or is empty.

    The key is taken as it stands: object stores have keys with spaces and per cent signs.
    """

    scheme: str
    authority: str
    key: str
    query: str = ""

    @property
    def url(self) -> str:
        return f"{self.plain}{self.query}"

    @property
    def plain(self) -> str:
        """The URL without its query."""
        return f"{self.scheme}://{self.authority}/{self.key}"

    @property
    def is_web(self) -> bool:
        """Whether it is a page of a web server, which has no folders."""
        return self.scheme in _WEB


def parse_url(text: str) -> Location | None:
    """The parts of a URL; None if the text is a path of this machine."""
    match = _URL.fullmatch(text)
    if match is None:
        return None
    scheme, authority, rest = match[1].lower(), match[2], match[3]
    if scheme in _WEB:
        key, mark, query = rest.partition("?")
        return Location(scheme, authority, key, mark + query)
    options = _OPTIONS.search(rest)
    return Location(scheme, authority, rest[: options.start()] if options else rest, options[0] if options else "")


def local_path(text: str) -> str:
    """The path that a ``file://`` URL names; other texts as they are."""
    location = parse_url(text)
    if location is None or location.scheme != "file":
        return text
    if location.authority not in ("", "localhost"):
        raise ValueError(f"{text!r} names the machine {location.authority!r}: write file:///folder/file.")
    return url2pathname(urlsplit(text.replace("?", "%3F").replace("#", "%23")).path)


def plain_name(path: str) -> str:
    """A path or URL without a query, which says nothing of the format and may hold a signature."""
    location = parse_url(path)
    return path if location is None else location.plain


def refuse_secrets(location: Location) -> None:
    """Refuse a URL with a password or a key in it: it would stand in messages and be sent to workers."""
    user, at, _ = location.authority.rpartition("@")
    if (at and ":" in user) or (not location.is_web and _SECRET.search(location.query)):
        raise ValueError(
            f"A URL of {location.scheme}:// holds a password or a key. Leave it out: credentials are taken from the "
            "environment, as by other programs for this store."
        )


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
    """The size of a file in bytes, and its version, which changes when the file is written again."""

    size: int
    version: int | str  # here the time of writing; in a store the etag or else the time, empty where it tells neither


class FileAccess:
    """Finds and opens files: those of this machine. Paths of a store are URLs."""

    def kind(self, path: str) -> str | None:
        """``"folder"``, ``"file"`` (or anything else that is there), or None if there is nothing."""
        if os.path.isdir(path):
            return "folder"
        return "file" if os.path.lexists(path) else None

    def below(self, folder: str) -> list[str]:
        """The visible files in a folder and below, sorted by the parts of their paths."""
        return [str(path) for path in sorted(_walk(folder))]

    def matching(self, pattern: str) -> list[str]:
        """The files that match a pattern, sorted."""
        return [path for path in sorted(glob.glob(pattern, recursive=True)) if not os.path.isdir(path)]

    def status(self, path: str) -> FileStatus:
        """The status of a file. FileNotFoundError, PermissionError or ConnectionError say why there is none."""
        status = check_regular(path)
        return FileStatus(status.st_size, status.st_mtime_ns)

    def open(self, path: str) -> tuple[Any, FileStatus]:
        """A file as an Arrow file that can be read anywhere, and its status."""
        status = self.status(path)
        return pa.OSFile(path), status

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The function of every item; a store is asked for several at a time."""
        return [function(item) for item in items]


_LOCAL = FileAccess()


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


_ARROW_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_REQUESTS_AT_ONCE = 16
_PACKAGES = {
    **dict.fromkeys(("http", "https"), "fsspec aiohttp"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
}
_VERSIONS = ("etag", "content-md5", "last-modified", "lastmodified", "last_modified", "mtime", "updated", "created")
_DENIED = re.compile(
    r"ACCESS_DENIED|AccessDenied|Forbidden|Unauthorized|Unauthenticated|PERMISSION_DENIED|AuthFailure|SIGNATURE"
    r"|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|InvalidAccessKey|HTTP status 40[13]|status=40[13]"
)
_MISSING = re.compile(
    r"NO_SUCH_BUCKET|NO_SUCH_KEY|NOT_FOUND|NoSuchBucket|ContainerNotFound|[Bb]ucket '[^']*' not found|status=404"
    r"|Not a regular file"
)


class StoreFiles(FileAccess):
    """Files in a store: S3, Google Cloud Storage, Azure, a web server, or whatever else fsspec knows.

    Credentials come from the environment, as the programs of the store have them.
    """

    def __init__(self, location: Location) -> None:
        refuse_secrets(location)
        self._location = location
        self._system, self._fsspec, top = _file_system(location)
        self._top = top.rstrip("/")

    def _inner(self, url: str) -> str:
        """The path by which the file system knows a file."""
        location = parse_url(url)
        assert location is not None
        return f"{self._top}/{location.key}{location.query if location.is_web else ''}".rstrip("/") or "/"

    def _url(self, inner: str) -> str:
        return self._location._replace(key=inner[len(self._top) :].lstrip("/")).url

    def kind(self, path: str) -> str | None:
        if self._location.is_web:  # a web server lists no files
            return "file"
        with clear_errors(path):
            kind = self._system.get_file_info(self._inner(path)).type
        return {fs.FileType.Directory: "folder", fs.FileType.NotFound: None}.get(kind, "file")

    def below(self, folder: str) -> list[str]:
        base = self._inner(folder)
        keys = [key[len(base) :].strip("/").split("/") for key in self._listed(base, folder, recursive=True)]
        visible = sorted(parts for parts in keys if all(map(is_visible, parts)))
        return [self._url(f"{base.rstrip('/')}/{'/'.join(parts)}") for parts in visible]

    def matching(self, pattern: str) -> list[str]:
        parts = self._inner(pattern).split("/")
        n_plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        base, patterns = "/".join(parts[:n_plain]), parts[n_plain:]
        keys = self._listed(base, pattern, recursive=len(patterns) > 1 or patterns[0] == "**")
        return sorted(self._url(key) for key in keys if _matches(key.split("/")[n_plain:], patterns))

    def _listed(self, base: str, asked: str, *, recursive: bool) -> list[str]:
        selector = fs.FileSelector(base, allow_not_found=True, recursive=recursive)
        with clear_errors(asked):
            return [about.path for about in self._system.get_file_info(selector) if about.type == fs.FileType.File]

    def status(self, path: str) -> FileStatus:
        with clear_errors(path):
            if self._fsspec is not None:
                return _fsspec_status(self._fsspec.info(self._inner(path)), path)
            with self._system.open_input_file(self._inner(path)) as file:
                return self._status_of(file, path)

    def _status_of(self, file: Any, path: str) -> FileStatus:
        about = {_text(name).lower(): _text(value) for name, value in (file.metadata() or {}).items()}
        version = _version(about) or str(self._system.get_file_info(self._inner(path)).mtime_ns or "")
        return FileStatus(file.size(), version)

    def open(self, path: str) -> tuple[Any, FileStatus]:
        inner = self._inner(path)
        with clear_errors(path):
            if self._fsspec is None:
                file = self._system.open_input_file(inner)
                return file, self._status_of(file, path)
            status = _fsspec_status(self._fsspec.info(inner), path)
            return pa.PythonFile(_ReadErrors(self._fsspec.open(inner, "rb"), path), "r"), status

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
            return list(threads.map(function, items))


def _file_system(location: Location) -> tuple[Any, Any, str]:
    """The file system of a store as Arrow's; that of fsspec if it is made of one; and the path of the top folder."""
    scheme = location.scheme
    if scheme in _ARROW_SCHEMES:
        try:
            with clear_errors(location.url):
                system, top = fs.FileSystem.from_uri(location.url)
                return system, None, top
        except pa.ArrowNotImplementedError:  # this build of Arrow lacks it
            pass
        except pa.ArrowInvalid as error:
            raise ValueError(f"{location.url!r} cannot be opened: {error}") from error
    try:
        from fsspec.core import url_to_fs

        system, top = url_to_fs(location.url, use_listings_cache=False)
    except ImportError as error:
        package = _PACKAGES.get(scheme, "fsspec")
        raise ValueError(f"{scheme}:// is read by another package: pip install {package} ({error})") from error
    except ValueError as error:
        raise ValueError(f"{location.url!r}: {error}. Is {scheme}:// misspelt?") from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), system, top


def _fsspec_status(about: dict[str, Any], path: str) -> FileStatus:
    if about.get("type") == "directory":
        raise FileNotFoundError
    if about.get("size") is None:
        raise FileFormatError(
            f"{plain_name(path)!r}: the server does not tell its size. Copy it to this machine first."
        )
    return FileStatus(about["size"], _version({name.lower(): str(value) for name, value in about.items()}))


def _version(about: dict[str, str]) -> str:
    return next((about[name] for name in _VERSIONS if about.get(name)), "")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, by the rules of Python's ``glob``."""
    if not patterns:
        return not parts
    if patterns[0] == "**" and _matches(parts, patterns[1:]):
        return True
    if not parts or (parts[0].startswith(".") and not patterns[0].startswith(".")):
        return False
    if patterns[0] == "**":
        return _matches(parts[1:], patterns)
    return fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


@contextmanager
def clear_errors(path: str) -> Iterator[None]:
    """Errors of a store as those of files on this machine. Those for wrong values are left to the caller."""
    try:
        yield
    except (ValueError, NotImplementedError):
        raise
    except Exception as error:  # packages behind fsspec have many kinds of their own
        raise _clear_error(plain_name(path), error) from error


def _clear_error(path: str, error: Exception) -> OSError:
    # fsspec says that a file is not there whenever a web server does not give it, and names the reason as the cause
    reason = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error
    text = f"{reason!r} {reason}"
    if isinstance(reason, PermissionError) or _DENIED.search(text):
        return PermissionError(
            f"{path!r}: access is denied. Are the credentials in the environment those of this store? ({reason})"
        )
    if isinstance(reason, FileNotFoundError) or _MISSING.search(text):
        return FileNotFoundError(f"There is no file or folder {path!r}.")
    return ConnectionError(f"{path!r} cannot be reached: {reason}")


class _ReadErrors:
    """A file of fsspec whose errors are those of files: packages behind it have many kinds of their own."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._path = path

    def read(self, n_bytes: int = -1) -> bytes:
        with self._clear_errors():
            return bytes(self._file.read(n_bytes))

    def seek(self, offset: int, whence: int = 0) -> int:
        with self._clear_errors():
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            raise ConnectionError(f"{plain_name(self._path)!r} cannot be read: {error}") from error

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)
