"""Files in stores that a URL names, through Arrow's file systems, or through fsspec where Arrow has none."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
from pyarrow import fs

from tithe.core.errors import FileFormatError
from tithe.rows.file_access import FileAccess, FileStatus, R, T, is_visible
from tithe.rows.held_parts import hold_parts
from tithe.rows.urls import Location, parse_url, plain_name, refuse_secrets

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

    Parameters
    ----------
    location : Location
        Of the store, without a key.
    """

    read_bytes = 2**22

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

    def hold(self, file: Any, parts: Iterable[tuple[int, int]]) -> Any:
        # a file of fsspec has one position, which threads cannot share
        return hold_parts(file, parts, n_threads=_REQUESTS_AT_ONCE if self._fsspec is None else 1)

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
        return self._asked(self._file.read, n_bytes)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._asked(self._file.seek, offset, whence)

    def tell(self) -> int:
        return self._asked(self._file.tell)

    def _asked(self, method: Callable[..., Any], *arguments: int) -> Any:
        try:
            return method(*arguments)
        except OSError:
            raise
        except Exception as error:
            raise ConnectionError(f"{plain_name(self._path)!r} cannot be read: {error}") from error

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)
