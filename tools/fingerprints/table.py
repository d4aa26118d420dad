"""The table of items: small functions that name what they computed, each run for itself."""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fingerprints.digest import Digest, digest

Item = Callable[[Path], dict[str, Any]]
ITEMS: dict[str, Item] = {}
FAST: set[str] = set()  # items that the test suite runs: each well under a second with compiled kernels


def item(name: str, *, fast: bool = False) -> Callable[[Item], Item]:
    """Enter a function into the table. It gets an empty folder, its working directory, and returns parts by name."""

    def enter(function: Item) -> Item:
        if name in ITEMS:
            raise ValueError(f"There are two items {name!r}.")
        ITEMS[name] = function
        if fast:
            FAST.add(name)
        return function

    return enter


def chosen(pattern: str) -> list[str]:
    """Names of items that contain the pattern, or match it if it has wildcards."""
    return [n for n in ITEMS if pattern in n or fnmatch.fnmatch(n, pattern)]


def values(name: str) -> dict[str, Any]:
    """What an item gives, or the class of its error."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            return ITEMS[name](Path(folder))
        except (Exception, SystemExit) as error:
            return {"error": type(error).__name__}
        finally:
            os.chdir(before)


def tried(compute: Callable[[], Any]) -> Any:
    """A value, or the class of the error: some options are refused together, which must stay so."""
    try:
        return compute()
    except Exception as error:  # whatever it is, the class is the value
        return type(error).__name__


def fingerprints(names: list[str]) -> Iterator[tuple[str, dict[str, Digest]]]:
    """Each item's name with the digests of its parts, called ``item:part``."""
    for name in names:
        yield name, {f"{name}:{part}": digest(value) for part, value in values(name).items()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
