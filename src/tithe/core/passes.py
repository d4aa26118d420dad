"""Passes over all rows, in memory or in files: the tree in which results of leaves are merged, engines, and passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from tithe.core.contracts import Source
from tithe.core.data import Block, Coreset
from tithe.core.errors import NoRowsError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Boolean, Function, OneOf, check_value
from tithe.core.progress import Progress, ProgressBar
from tithe.core.registry import make
from tithe.core.state_checks import Storable, expect

HIGHEST = 60  # level of a node: numbers of leaves stay below 2^62


class Node(Protocol):
    """What stands for the rows of some leaves: a dataclass with its place in the tree."""

    @property
    def key(self) -> tuple[int, int]:
        """Level and first leaf."""

    @property
    def n_seen(self) -> int:
        """Rows that the node stands for."""


N = TypeVar("N", bound=Node)
ValueT = TypeVar("ValueT")
Merge = Callable[[Any, Any, tuple[int, int]], Any]


@dataclass(frozen=True)
class AddsUp:
    """What one pass over rows gives: that of more rows is the sum, field by field, and None where either is None."""

    def __add__(self, other: Self) -> Self:
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return replace(self, **{name: None if a is None or b is None else a + b for name, a, b in pairs})


@dataclass(frozen=True)
class Sum(Generic[ValueT]):
    """A node that holds a value which adds up."""

    value: ValueT
    n_seen: int
    key: tuple[int, int]


def add_sums(left: Sum[Any], right: Sum[Any], key: tuple[int, int]) -> Sum[Any]:
    """The sum of two nodes, for `MergeTree`."""
    return Sum(left.value + right.value, left.n_seen + right.n_seen, key)


@dataclass(frozen=True)
class MergeTree(Generic[N]):
    """Leaves by number, in ascending order; complete siblings merge like carries of a binary counter.

    A tree is a value: `push` and `join` return another one. The node (level, first) covers the leaves first ..
    first + 2^level - 1. Memory is one node per level, log2(number of leaves) of them. A merge gets the key
    (level, first) of the new node, which seeds its draw: the same leaves give the same bits, whoever computed them
    and whenever. A leaf that is missing, or None because it has no rows, leaves its sibling as it is: their parent.

    Several trees of consecutive leaves, joined, are the tree of all these leaves: two nodes merge in the first tree
    that has both.
    """

    slots: tuple[N, ...] = ()  # nodes that wait for their siblings, from left to right
    n_leaves: int = 0  # the number of the next leaf
    first: int = 0  # the number of the first leaf; not 0 for a tree of some leaves in between

    @property
    def n_seen(self) -> int:
        """Rows that the nodes stand for."""
        return sum(node.n_seen for node in self.slots)

    def push(self, number: int, leaf: N | None, merge: Merge, *, top: int | None = None) -> Self:
        """The tree with leaf ``number``; leaves between the last one and it are missing.

        ``merge`` is a function of (left, right, key). Nodes of level ``top`` are not merged with one another.
        """
        nodes = () if leaf is None else (leaf,)
        return self.join(MergeTree(nodes, number + 1, number), merge, top=top)

    def join(self, later: MergeTree[N], merge: Merge, *, top: int | None = None) -> Self:
        """The tree of these leaves and of later ones."""
        if later.first < self.n_leaves:
            raise ValueError(f"Leaf {later.first} comes after leaf {self.n_leaves - 1}: leaves must ascend.")
        slots = self.slots
        for node in later.slots:
            slots = (*self._completed(slots, node.key[1], merge, top), node)
        return replace(self, slots=self._completed(slots, later.n_leaves, merge, top), n_leaves=later.n_leaves)

    def _completed(self, slots: tuple[N, ...], number: int, merge: Merge, top: int | None) -> tuple[N, ...]:
        """The slots with every node closed whose leaves all come before ``number`` and none before the tree."""
        while slots:
            level, first = slots[-1].key
            parent = level + 1, first >> level + 1 << level + 1
            if parent[1] < self.first or parent[1] + 2 ** parent[0] > number or level == top:
                break
            if len(slots) > 1 and slots[-2].key == (level, parent[1]):
                slots = (*slots[:-2], merge(slots[-2], slots[-1], parent))
            else:
                slots = (*slots[:-1], replace(slots[-1], key=parent))  # type: ignore[type-var]
        return slots

    def collapse(self, merge: Merge) -> N:
        """All leaves as one node."""
        if not self.slots:
            raise NoRowsError("There are no rows: nothing was pushed, or nothing is left of it.")
        result = self.slots[-1]
        for left in reversed(self.slots[:-1]):
            result = merge(left, result, (left.key[0] + 1, left.key[1]))
        return result


@dataclass(frozen=True)
class Tree(MergeTree[Coreset], Storable):
    """The tree of coresets, which checkpoints and streams keep."""

    slots: tuple[Coreset, ...] = ()

    def check_relations(self) -> None:
        end = self.first
        expect(end == 0, "a tree does not begin at the first leaf")
        for level, first in (slot.key for slot in self.slots):
            expect(level <= HIGHEST and first % 2**level == 0 and first >= end, "nodes of a tree overlap")
            end = first + 2**level
        expect(end <= self.n_leaves, "nodes of a tree cover leaves that have not come")


LeafWork = Callable[[Block, tuple[int, int]], Any]


@dataclass(frozen=True)
class Leaves:
    """The leaves of a source from number ``first`` on, cut to about ``leaf_rows`` rows.

    ``name`` says what is done with them, for tasks that a person sees: "leaf" in a build, "sum" in another pass.
    """

    source: Source
    first: int = 0
    leaf_rows: int | None = None
    name: str = "leaf"

    def tasks(self) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves, in order."""
        return self.source.tasks(self.first, self.leaf_rows)

    def stop(self) -> int | None:
        """The number after the last leaf; None where it is known only when all rows have been read."""
        return self.source.n_leaves(self.leaf_rows)


class Engine(Storable, ABC):
    """Runs the work on leaves. Every engine gives the same bits as the serial one.

    A subclass defines `map`. One whose workers do not share memory with the caller also defines `each` and `fold`, so
    that workers read the leaves themselves, merge several, and only the result travels; and `warm_up`, if it can.

    Examples
    --------
    >>> from tithe.engines import Engine, SerialEngine
    >>> isinstance(SerialEngine(), Engine)
    True
    >>> list(SerialEngine().map([lambda: 5, lambda: 7], lambda value, number: value + number))
    [5, 8]
    """

    name: ClassVar[str]

    @abstractmethod
    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order, holding a bounded number of them."""

    def warm_up(self, name: str, work: Callable[[], Any]) -> None:
        """Let every worker call ``work`` once, in the background, so that what leaves need is compiled when they come.

        ``name`` says what is compiled: workers that have called work of this name are left out. ``work`` may fail.
        Workers that share this process compile nothing of their own, so by default nothing happens.
        """

    def each(self, leaves: Leaves, leaf: LeafWork) -> Iterator[Any]:
        """``leaf(block, key)`` of every leaf, in order, holding a bounded number of them."""
        first = leaves.first
        return self.map(leaves.tasks(), lambda block, i: leaf(block, (0, first + i)))

    def fold(self, leaves: Leaves, leaf: LeafWork, merge: Merge) -> Iterator[MergeTree[Any]]:
        """Trees of consecutive leaves, in order; together they cover all of the leaves.

        ``leaf(block, key)`` gives the node of a leaf, or None if it has no rows; ``merge(left, right, key)`` joins
        two nodes. Joined in their order, the trees are the tree of all leaves, whatever number of leaves each has.
        Here it is one.
        """
        for number, node in enumerate(self.each(leaves, leaf), leaves.first):
            yield MergeTree((), number, number).push(number, node, merge)


class SerialEngine(Engine):
    """Reduces one leaf after another. Kernels use all cores within a leaf.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.engines import SerialEngine
    >>> coreset = build_coreset(np.eye(90), objective="kmeans", coreset_size=30, engine=SerialEngine())
    >>> len(coreset) <= 30
    True
    """

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            yield work(task(), number)


T = TypeVar("T", bound=MergeTree[Any])


class DataPass:
    """Makes and counts passes over all rows: a block, or the leaves of a source.

    A pass reads each leaf once and holds only its result. Leaves may be processed in parallel; their results are
    added along the tree of the leaves, so a sum has the same bits on every engine. A block is one leaf.

    Engine and progress are as in `build_coreset`; what ``progress`` raises ends the pass.
    """

    def __init__(self, rows: Block | Source, engine: Any = "auto", progress: Progress | bool | None = None) -> None:
        check_value("progress", progress, OneOf(None) | Boolean() | Function())
        self.rows = rows
        self._engine, self._progress = engine, progress
        self.n_passes = 0  # that were begun
        self.n_expected = len(rows) if isinstance(rows, Block) else rows.n_rows  # None where it is not known before
        self.n_rows = self.n_expected if isinstance(rows, Block) and self.n_expected else 0  # of the last pass

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
