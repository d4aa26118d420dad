"""The contract of engines, which run the work on leaves, and the engine that all others are compared with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tithe.core.contracts import Source
from tithe.core.data import Block
from tithe.core.state_checks import Storable
from tithe.core.tree import Merge, MergeTree

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
