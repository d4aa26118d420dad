"""URLs of files: what is a URL, and the parts it is made of."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

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
