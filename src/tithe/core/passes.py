"""Passes over all rows, in memory or in files, and the tree in which the coresets of leaves are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, ClassVar

from tithe.core.contracts import Engine, Source
from tithe.core.data import Block, Coreset
from tithe.core.errors import NoRowsError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Function, OneOf, check_value
from tithe.core.progress import Progress, ProgressBar
from tithe.core.registry import make
from tithe.core.state_checks import Storable, expect

HIGHEST = 60  # level of a node: numbers of leaves stay below 2^62
Merge = Callable[[Coreset, Coreset, tuple[int, int]], Coreset]


@dataclass(frozen=True)
class Tree(Storable):
    """Leaves by number, in ascending order; complete siblings merge like carries of a binary counter.

    A tree is a value: `push` returns another one. The node (level, first) covers the leaves first ..
    first + 2^level - 1. Memory is one coreset per level, log2(number of leaves) of them. A merge gets the key
    (level, first) of the new node, which seeds its draw: the same leaves give the same bits, whoever computed them
    and whenever. A leaf that is missing, or None because it has no rows, leaves its sibling as it is: their parent.

    Parameters
    ----------
    slots : tuple of Coreset
        Nodes that wait for their siblings, from left to right.
    n_leaves : int
        The number of the next leaf.
    """

    slots: tuple[Coreset, ...] = ()
    n_leaves: int = 0

    @property
    def n_seen(self) -> int:
        """Rows that the nodes stand for."""
        return sum(node.n_seen for node in self.slots)

    def _check_state(self) -> None:
        super()._check_state()
        end = 0
        for level, first in (slot.key for slot in self.slots):
            expect(level <= HIGHEST and first % 2**level == 0 and first >= end, "nodes of a tree overlap")
            end = first + 2**level
        expect(end <= self.n_leaves, "nodes of a tree cover leaves that have not come")

    def push(self, number: int, leaf: Coreset | None, merge: Merge, *, top: int | None = None) -> Tree:
        """The tree with leaf ``number``; leaves between the last one and it are missing.

        ``merge`` is a function of (left, right, key). Nodes of level ``top`` are not merged with one another.
        """
        if number < self.n_leaves:
            raise ValueError(f"Leaf {number} comes after leaf {self.n_leaves - 1}: leaves must ascend.")
        slots = _completed(self.slots, number, merge, top)
        slots = slots if leaf is None else (*slots, leaf)
        return Tree(_completed(slots, number + 1, merge, top), number + 1)

    def collapse(self, merge: Merge) -> Coreset:
        """All leaves as one coreset."""
        if not self.slots:
            raise NoRowsError("There are no rows: nothing was pushed, or nothing is left of it.")
        result = self.slots[-1]
        for left in reversed(self.slots[:-1]):
            result = merge(left, result, (left.key[0] + 1, left.key[1]))
        return result


def _completed(slots: tuple[Coreset, ...], number: int, merge: Merge, top: int | None) -> tuple[Coreset, ...]:
    """The slots with every node closed whose leaves all come before ``number``."""
    while slots:
        level, first = slots[-1].key
        parent = level + 1, first >> level + 1 << level + 1
        if parent[1] + 2 ** parent[0] > number or level == top:
            break
        if len(slots) > 1 and slots[-2].key == (level, parent[1]):
            slots = (*slots[:-2], merge(slots[-2], slots[-1], parent))
        else:
            slots = (*slots[:-1], replace(slots[-1], key=parent))
    return slots


class SerialEngine(Engine):
    """Reduces one leaf after another. Kernels use all cores within a leaf. All other engines give the same bits."""

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            yield work(task(), number)


class DataPass:
    """Makes and counts passes over all rows: a block, or the leaves of a source.

    A pass reads each leaf once and holds only its result. Leaves may be processed in parallel; their results are
    added in the order of the leaves, so a sum has the same bits on every engine. A block is one leaf.

    Parameters
    ----------
    rows : Block or Source
    engine : str or Engine
        The engine that reads the leaves. ``"auto"`` is ``"threads"`` for a source and ``"serial"`` for a block.
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
            name = "serial" if isinstance(self.rows, Block) else "threads"
        engine: Engine = make("engine", name)
        return engine

    def each(self, work: Callable[[Block], Any]) -> Iterator[Any]:
        """``work(leaf)`` of every leaf that has rows, in order, in one pass."""
        with self._begin() as tell:
            if isinstance(self.rows, Block):
                result = work(self.rows)
                tell(1, self.n_rows)
                yield result
                return
            self.n_rows = 0

            def part(leaf: Block, number: int) -> Any:
                return len(leaf), work(leaf) if len(leaf) else None

            with single_blas_thread():  # with two threads BLAS adds in another order
                results = self._make_engine().map(self.rows.tasks(), part)
                for n_leaves, (n_rows, result) in enumerate(results, 1):
                    self.n_rows += n_rows
                    tell(n_leaves, self.n_rows)
                    if n_rows:
                        yield result
        if not self.n_rows:
            raise NoRowsError("There are no rows: the source is empty.")

    def total(self, work: Callable[[Block], Any]) -> Any:
        """``work(leaf)``, added up over the leaves, in one pass."""
        return reduce(add, self.each(work))

    def fold(
        self,
        leaf: Callable[[Block, tuple[int, int]], Coreset | None],
        merge: Merge,
        *,
        tree: Tree | None = None,
        leaf_rows: int | None = None,
        watch: Callable[[Tree], None] | None = None,
    ) -> Coreset:
        """All leaves folded into one coreset, in one pass; two nodes are merged as soon as both are complete.

        With a ``tree`` that holds leaves already, the first leaf read is number ``tree.n_leaves``. ``leaf_rows`` is as
        in `Source.tasks`. ``watch`` is called with the tree after every leaf, in the thread of the caller.
        """
        tree = Tree() if tree is None else tree
        first, seen = tree.n_leaves, tree.n_seen
        rows = self.rows
        tasks = [lambda: rows][first:] if isinstance(rows, Block) else rows.tasks(first, leaf_rows)
        with self._begin() as tell:
            nodes = self._make_engine().map(tasks, lambda block, i: leaf(block, (0, first + i)))
            for number, node in enumerate(nodes, first):
                tree = tree.push(number, node, merge)
                if watch is not None:
                    watch(tree)
                self.n_rows = tree.n_seen
                tell(tree.n_leaves - first, tree.n_seen - seen)
            return tree.collapse(merge)

    def or_few(self, coreset: Block) -> Block:
        """Rows to estimate column means from: all rows if they are in memory, otherwise the coreset."""
        return self.rows if isinstance(self.rows, Block) else coreset
