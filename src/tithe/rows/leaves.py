"""How rows are cut into leaves, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.rows.paths import DataFile, all_bad

U = TypeVar("U")
Task = Callable[[], Block]

LEAF_ROWS = 262_144
LEAF_BYTES = 2**25  # of X: small enough to hold several, large enough to be worth a task
SAMPLE_ROWS = 65_536


def usual_leaf_rows(row_bytes: int) -> int:
    """Rows at which a leaf is large enough: ``LEAF_ROWS`` or ``LEAF_BYTES``, whichever comes first."""
    return max(1, min(LEAF_ROWS, -(-LEAF_BYTES // max(1, row_bytes))))


def text_bytes(n_rows: int, row_bytes: int) -> int:
    """The most bytes of text that a leaf is made of: numbers are seldom longer than four times their bytes."""
    return 4 * max(LEAF_BYTES, n_rows * row_bytes)


def fair_shares(counts: Sequence[int], size: int, offset: float) -> Array:
    """``size`` things shared out in proportion to ``counts``, rounded fairly: ``offset`` in [0, 1) decides.

    >>> fair_shares([10, 20, 70], 10, 0.5)
    array([1, 2, 7])
    """
    held = np.cumsum(counts)
    shares: Array = np.diff(np.floor(held / held[-1] * size + offset).astype(np.int64), prepend=0)
    return shares


def joined(units: Sequence[U], n_rows: Callable[[U], int], enough: int) -> list[tuple[U, ...]]:
    """Units that follow one another, joined until each tuple has ``enough`` rows.

    >>> joined([3, 4, 5, 9, 1], int, 6)
    [(3, 4), (5, 9), (1,)]
    """
    leaves: list[tuple[U, ...]] = []
    held = enough
    for unit in units:
        if held >= enough:
            leaves.append(())
            held = 0
        leaves[-1] += (unit,)
        held += n_rows(unit)
    return leaves


def at_least_one(drawn: Block, source: Source, files: Sequence[DataFile], size: int) -> Block:
    """Rows drawn for a sample; where all of them were bad and left out, rows of the first leaf that has any.

    Nothing can be learned from no rows at all, and what says so must know why there are none.
    """
    if len(drawn):
        return drawn
    for task in source.tasks():
        leaf = task()
        if len(leaf):
            return leaf.cut(0, size)
    raise all_bad_files(files, source.count())


def unless_all_bad(tasks: Iterator[Task], source: Source, files: Sequence[DataFile]) -> Iterator[Task]:
    """The loaders of all leaves; an error follows if all their rows were bad and left out.

    The last loader that is called raises it, or the end of the loaders, whichever is later: loaders that were given
    out may be called at any time, by any thread.
    """
    tally = _Tally(lambda: all_bad_files(files, source.count()))
    for task in tasks:
        tally.n_given += 1
        yield partial(tally.load, task)
    tally.end()


class _Tally:
    """Whether any leaf of those that were given out has a row; ``error`` makes what is raised if none has."""

    def __init__(self, error: Callable[[], ValueError]) -> None:
        self.n_given = 0
        self._error = error
        self._lock = Lock()
        self._n_loaded, self._ended, self._has_rows = 0, False, False

    def load(self, task: Task) -> Block:
        block = task()
        with self._lock:
            self._n_loaded += 1
            self._has_rows |= len(block) > 0
        self._check()
        return block

    def end(self) -> None:
        with self._lock:
            self._ended = True
        self._check()

    def _check(self) -> None:
        if self._ended and not self._has_rows and self._n_loaded >= self.n_given > 0:
            raise self._error()


def all_bad_files(files: Sequence[DataFile], n_rows: int | None) -> ValueError:
    """The error for files whose rows were all left out because they are bad."""
    return all_bad(f"{files[0].path!r}{' and the other files' * (len(files) > 1)}", n_rows)


class Loaded:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block
