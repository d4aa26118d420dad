"""Leaves and the nodes above them on disk, one file each, so that rows can be deleted exactly."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np

from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.passes import HIGHEST
from tithe.core.state_checks import LARGEST, expect
from tithe.storage.checkpoint import locked
from tithe.storage.values import packed, unpacked

_FORGOTTEN = "forgotten.json"
_OWNER = "owner"
_LOCK = ".lock"
_NAME = re.compile(r"leaf-\d{10}\.tithe|node-\d{2}-\d{10}\.tithe|forgotten\.json|owner|\.lock|\..+\.tmp")


class LeafStore:
    """A folder of ``leaf-NUMBER.tithe``, all rows of a leaf, and ``node-LEVEL-FIRST.tithe``, what they were reduced to.

    Which rows are to be forgotten is written down before anything is changed (``forgotten.json``), so
    a process that is killed meanwhile finds out when it goes on.

    Every change is made under a lock of the folder and by its owner, the last stream that opened it. So a temporary
    file that is found under the lock belongs to a process that was killed: it may hold rows, and is removed.

    A checkpoint says which folder to open again, and may lie: a folder is opened only if its file ``owner`` has the id
    of the same ``stream``, and if it holds nothing but regular files of a store.
    """

    def __init__(self, path: str | os.PathLike[str], *, new: bool, stream: str) -> None:
        self.path = Path(path)
        if new and self.path.is_dir() and any(self.path.iterdir()):
            raise ValueError(f"{str(self.path)!r} is not empty: a new stream needs a folder of its own for its leaves.")
        if not new and not self.path.is_dir():
            raise FileNotFoundError(f"The leaves of this stream were kept in {str(self.path)!r}, which is not there.")
        self.path.mkdir(parents=True, exist_ok=True)
        if not new:
            self._check_ours(stream)
        self._owner = f"{uuid4().hex} {stream}"
        with locked(self.path / _LOCK):
            with replacing(self.path / _OWNER) as temporary:  # which follows no link
                temporary.write_text(self._owner)
            self._remove_temporaries()

    def _check_ours(self, stream: str) -> None:
        """Refuse a folder of other things, or of another stream, before anything is read or written."""
        for path in self.path.iterdir():
            if not _NAME.fullmatch(path.name) or not stat.S_ISREG(path.lstat().st_mode):
                raise FileFormatError(f"{str(self.path)!r} is not a folder of leaves: it holds {path.name!r}.")
        owner = self.path / _OWNER
        if not owner.exists() or owner.read_text(errors="replace").partition(" ")[2] != stream:
            raise FileFormatError(f"{str(self.path)!r} is not the folder of the leaves of this stream.")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Refuse to write where another stream, maybe resumed from the same checkpoint, writes now."""
        with locked(self.path / _LOCK):
            if (self.path / _OWNER).read_text() != self._owner:
                raise ValueError(f"Another stream keeps its leaves in {str(self.path)!r} now: this one must not go on.")
            yield

    def clean(self) -> None:
        """Remove what killed processes left half written."""
        with self._changing():
            self._remove_temporaries()

    def _remove_temporaries(self) -> None:
        for path in self.path.glob(".*.tmp"):
            path.unlink(missing_ok=True)

    # -- leaves --------------------------------------------------------------------------------

    def _leaf(self, number: int) -> Path:
        return self.path / f"leaf-{number:010d}.tithe"

    def leaves(self) -> list[int]:
        """The numbers of the leaves that are here, ascending."""
        return sorted(int(p.stem.split("-")[1]) for p in self.path.glob("leaf-*.tithe"))

    def on_leaf(self, number: int, block: Block) -> None:
        """Keep a leaf, or remove it if no rows are left in it."""
        with self._changing():
            if len(block):
                _write(self._leaf(number), block)
            else:
                self._leaf(number).unlink(missing_ok=True)

    def leaf(self, number: int) -> Block | None:
        """The rows of a leaf; None if none are left."""
        return _read(self._leaf(number))

    # -- nodes ---------------------------------------------------------------------------------

    def _node(self, key: tuple[int, int]) -> Path:
        return self.path / f"node-{key[0]:02d}-{key[1]:010d}.tithe"

    def on_node(self, node: Coreset) -> None:
        """Keep a node."""
        with self._changing():
            _write(self._node(node.key), node)

    def node(self, key: tuple[int, int]) -> Coreset | None:
        node = _read(self._node(key))
        if node is not None and not isinstance(node, Coreset):
            raise FileFormatError(f"{str(self._node(key))!r} holds rows where a coreset should be.")
        return node

    def drop_nodes(self) -> None:
        with self._changing():
            for path in self.path.glob("node-*.tithe"):
                path.unlink()

    def drop_node(self, key: tuple[int, int]) -> None:
        with self._changing():
            self._node(key).unlink(missing_ok=True)

    def keep_only(self, first: int, stop: int = LARGEST, *, also: int | None = None) -> None:
        """Remove leaves before ``first`` and from ``stop`` on, but not ``also``, and nodes that end in one of these."""
        with self._changing():
            for number in self.leaves():
                if not first <= number < stop and number != also:
                    self._leaf(number).unlink()
            for path in self.path.glob("node-*.tithe"):
                level, start = map(int, path.stem.split("-")[1:])
                if level > HIGHEST:
                    raise FileFormatError(f"{path.name!r} in {str(self.path)!r} is no node of a tree.")
                if not first <= start + 2**level - 1 < stop:
                    path.unlink()

    # -- what was forgotten ----------------------------------------------------------------------

    def forgotten(self) -> tuple[int, Array]:
        """How many times rows were forgotten, and the ids of all of them."""
        path = self.path / _FORGOTTEN
        if not path.exists():
            return 0, np.empty(0, np.int64)
        try:
            content = json.loads(path.read_text())
            times, ids = int(content["times"]), np.array(content["row_ids"], np.int64)
            expect(times >= 0 and ids.ndim == 1 and (ids >= 0).all(), "it names no rows")
            return times, ids
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise FileFormatError(f"{str(path)!r} is damaged: {error}") from error

    def mark_forgotten(self, row_ids: Iterable[int]) -> None:
        """Write down that these rows are to go, before they do."""
        with self._changing():
            times, before = self.forgotten()
            content = {"times": times + 1, "row_ids": sorted({*before.tolist(), *row_ids})}
            with replacing(self.path / _FORGOTTEN, clean=False) as temporary:
                temporary.write_text(json.dumps(content))


def _write(path: Path, block: Block) -> None:
    with replacing(path, clean=False) as temporary:
        temporary.write_bytes(packed(block))


def _read(path: Path) -> Block | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        block = unpacked(data)
        expect(isinstance(block, Block), "it holds no rows")
    except FileFormatError as error:
        raise FileFormatError(f"{str(path)!r}: {error}") from error
    return block  # type: ignore[no-any-return]
