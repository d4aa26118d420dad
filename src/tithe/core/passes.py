"""Passes over all rows, in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tithe.core.contracts import Source
from tithe.core.data import Block, Coreset
from tithe.core.engine import Engine, LeafWork, Leaves
from tithe.core.errors import NoRowsError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Function, OneOf, check_value
from tithe.core.progress import Progress, ProgressBar
from tithe.core.registry import make
from tithe.core.tree import Merge, MergeTree, Sum, Tree, ValueT, add_sums

T = TypeVar("T", bound=MergeTree[Any])


class DataPass:
    """Makes and counts passes over all rows: a block, or the leaves of a source.

    A pass reads each leaf once and holds only its result. Leaves may be processed in parallel; their results are
    added along the tree of the leaves, so a sum has the same bits on every engine. A block is one leaf.

    Parameters
    ----------
    rows : Block or Source
    engine : str or Engine
        The engine that reads the leaves. ``"auto"`` is ``"serial"`` for a block, ``"dask"`` for a Dask collection if
        there is a client, ``"spark"`` for a Spark DataFrame, and else ``"threads"``.
    progress : callable, bool or None
        Called as ``progress(n_passes, n_leaves, n_rows)`` after every leaf, in the thread of the caller: the number
        of the pass, and the leaves and rows of it that are done. What it raises ends the pass. True shows a bar on
        standard error.

    Attributes
    ----------
    n_passes : int
        Passes that were begun.
    n_rows : int
        Rows of the last pass; those of a block are known before.
    n_expected : int or None
        The number of rows, if it is known before the first pass.
    """

    def __init__(self, rows: Block | Source, engine: Any = "auto", progress: Progress | bool | None = None) -> None:
        check_value("progress", progress, OneOf(None) | Boolean() | Function())
        self.rows = rows
        self._engine, self._progress = engine, progress
        self.n_passes = 0
        self.n_expected = len(rows) if isinstance(rows, Block) else rows.n_rows
        self.n_rows = self.n_expected if isinstance(rows, Block) and self.n_expected else 0

    def over(self, rows: Block | Source) -> DataPass:
        """Passes over other rows, such as these with encoded labels; the count of passes continues."""
        passes = DataPass(rows, self._engine, self._progress)
        passes.n_passes = self.n_passes
        return passes

    @contextmanager
    def _begin(self) -> Iterator[Callable[[int, int], None]]:
        """Count a pass, and yield a function that takes the numbers of leaves and rows done."""
        self.n_passes += 1
        if self._progress is True:
            with ProgressBar(self.n_expected, f"pass {self.n_passes}") as bar:
                yield partial(bar, 1)
        elif callable(self._progress):
            yield partial(self._progress, self.n_passes)
        else:
            yield lambda n_leaves, n_rows: None

    def _make_engine(self) -> Engine:
        name = self._engine
        if isinstance(name, str) and name == "auto":
            name = "serial" if isinstance(self.rows, Block) else self.rows.best_engine
        engine: Engine = make("engine", name)
        return engine

    def warm_up(self, name: str, work: Callable[[], Any]) -> None:
        """See `Engine.warm_up`."""
        self._make_engine().warm_up(name, work)

    def each(self, work: Callable[[Block], ValueT]) -> Iterator[ValueT]:
        """``work(leaf)`` of every leaf that has rows, in order, in one pass."""
        with self._begin() as tell:
            if isinstance(self.rows, Block):
                result = work(self.rows)
                tell(1, self.n_rows)
                yield result
                return
            self.n_rows = 0
            with single_blas_thread():  # with two threads BLAS adds in another order
                results = self._make_engine().each(Leaves(self.rows), partial(_counted, work))
                for n_leaves, (n_rows, result) in enumerate(results, 1):
                    self.n_rows += n_rows
                    tell(n_leaves, self.n_rows)
                    if n_rows:
                        yield result
        if not self.n_rows:
            raise NoRowsError("There are no rows: the source is empty.")

    def total(self, work: Callable[[Block], ValueT]) -> ValueT:
        """``work(leaf)``, added up over the leaves, in one pass. The order of the additions is that of the tree."""
        if isinstance(self.rows, Block):
            return next(self.each(work))
        tree = self._fold(partial(_summed, work), add_sums, MergeTree[Sum[ValueT]](), name="sum")
        if not tree.slots:
            raise NoRowsError("There are no rows: the source is empty.")
        return tree.collapse(add_sums).value

    def fold(
        self,
        leaf: LeafWork,
        merge: Merge,
        *,
        tree: Tree | None = None,
        leaf_rows: int | None = None,
        watch: Callable[[Tree], None] | None = None,
    ) -> Coreset:
        """All leaves folded into one coreset, in one pass; two nodes are merged as soon as both are complete.

        With a ``tree`` that holds leaves already, the first leaf read is number ``tree.n_leaves``. ``leaf_rows`` is as
        in `Source.tasks`. ``watch`` is called with the tree after every leaf, or every few leaves on a cluster, in the
        thread of the caller.
        """
        return self._fold(leaf, merge, Tree() if tree is None else tree, leaf_rows, watch).collapse(merge)

    def _fold(
        self,
        leaf: LeafWork,
        merge: Merge,
        tree: T,
        leaf_rows: int | None = None,
        watch: Callable[[T], None] | None = None,
        name: str = "leaf",
    ) -> T:
        """The tree with all leaves that come after those it holds."""
        rows, engine, first, seen = self.rows, self._make_engine(), tree.n_leaves, tree.n_seen
        with self._begin() as tell, single_blas_thread():  # with two threads BLAS adds in another order
            if not isinstance(rows, Block):
                parts = engine.fold(Leaves(rows, first, leaf_rows, name), leaf, merge)
            else:  # one leaf, which a tree that is not empty holds already
                parts = iter([] if first else [MergeTree[Any]().push(0, leaf(rows, (0, 0)), merge)])
            for part in parts:
                tree = tree.join(part, merge)
                if watch is not None:
                    watch(tree)
                self.n_rows = tree.n_seen
                tell(tree.n_leaves - first, tree.n_seen - seen)
        return tree

    def or_few(self, coreset: Block) -> Block:
        """Rows to estimate column means from: all rows if they are in memory, otherwise the coreset."""
        return self.rows if isinstance(self.rows, Block) else coreset


def _counted(work: Callable[[Block], ValueT], leaf: Block, key: tuple[int, int]) -> tuple[int, ValueT | None]:
    return len(leaf), work(leaf) if len(leaf) else None


def _summed(work: Callable[[Block], ValueT], leaf: Block, key: tuple[int, int]) -> Sum[ValueT] | None:
    return Sum(work(leaf), len(leaf), key) if len(leaf) else None
