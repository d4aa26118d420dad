"""Rows whose leaves take some time, or fail, for tests of faults on a cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Block


class SlowRows(Source):
    """Leaves of 500 rows that depend on nothing but their number, each after ``seconds``.

    Parameters
    ----------
    n_leaves : int
    seconds : float
    marks : Path or None
        A folder in which every attempt at leaf 5 leaves a file.
    fault : {"", "disk", "bad row", "kill"}
        What happens at leaf 5: the first two attempts raise OSError; each raises ValueError; each kills its process.
    """

    n_features = 3
    leaf_rows = 500

    def __init__(self, n_leaves: int, seconds: float = 0.0, marks: Path | None = None, fault: str = "") -> None:
        self._n_leaves, self._seconds, self._marks, self._fault = n_leaves, seconds, marks, fault
        self.n_rows = 500 * n_leaves

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return self._n_leaves

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        return (partial(self._leaf, number) for number in range(first, self._n_leaves))

    def _leaf(self, number: int) -> Block:
        time.sleep(self._seconds)
        if number == 5 and self._fault:
            self._fail()
        X = np.random.default_rng(number).normal(size=(500, 3)) + 5 * (np.arange(500)[:, None] % 3)
        return Block(X=X, indices=np.arange(500 * number, 500 * (number + 1)))

    def _fail(self) -> None:
        assert self._marks is not None
        n_before = len(list(self._marks.iterdir()))
        (self._marks / f"attempt-{n_before}").touch()
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "bad row":
            raise ValueError("'rows.csv', row 17 (the first is row 0): column 'a' is missing")
        if n_before < 2:
            raise OSError("the disk did not answer")

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        X = np.random.default_rng(0).normal(size=(500, 3)) + 5 * (np.arange(500)[:, None] % 3)
        return Block(X=X, indices=np.arange(500))
