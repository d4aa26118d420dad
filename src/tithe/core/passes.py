"""One pass over all rows, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any

from tithe.core.contracts import Source
from tithe.core.data import Block
from tithe.core.parallel import single_blas_thread
from tithe.core.registry import make


class DataPass:
    """All rows, wherever they are: a block, or the leaves of a source that can be read again.

    Every look reads each leaf once and holds no more of it than what is added up. Leaves may be worked
    on side by side; their results are added in the order of the leaves, so a sum has the same bits on
    every engine. A block is one leaf.

    Parameters
    ----------
    rows : Block or Source
    engine : str or engine
        Who reads the leaves of a source. ``"auto"`` is ``"threads"``.

    Attributes
    ----------
    n_rows : int
        Rows of the last look; of a block at once.
    n_expected : int or None
        Rows as far as is known before the first look.
    """

    def __init__(self, rows: Block | Source, engine: Any = "auto") -> None:
        self._rows = rows
        self._engine = "threads" if isinstance(engine, str) and engine == "auto" else engine
        self.n_rows = len(rows) if isinstance(rows, Block) else 0
        self.n_expected = len(rows) if isinstance(rows, Block) else rows.n_rows

    def each(self, work: Callable[[Block], Any]) -> Iterator[Any]:
        """``work(leaf)`` of every leaf that has rows, in order."""
        if isinstance(self._rows, Block):
            yield work(self._rows)
            return
        self.n_rows = 0

        def part(leaf: Block, number: int) -> Any:
            return len(leaf), work(leaf) if len(leaf) else None

        with single_blas_thread():  # BLAS adds in another order on two
            for n_rows, result in make("engine", self._engine).map(self._rows.tasks(), part):
                self.n_rows += n_rows
                if n_rows:
                    yield result
        if not self.n_rows:
            raise ValueError("There are no rows: the source is empty.")

    def total(self, work: Callable[[Block], Any]) -> Any:
        """``work(leaf)``, added up over the leaves."""
        return reduce(add, self.each(work))

    def or_few(self, coreset: Block) -> Block:
        """The block, or the coreset where rows are read from a source: to say where columns lie.

        Curvatures are taken about that place, which changes nothing about them but rounding and what is
        believed of correlations; the mean of a coreset is near enough, and costs no look.
        """
        return self._rows if isinstance(self._rows, Block) else coreset
