"""The only merge-and-reduce tree, a binary counter of coresets, and the engines that grow it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tithe.core.data import Block, Coreset
from tithe.core.errors import NoRowsError
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


class Engine(Storable, ABC):
    """Runs the work on leaves. Every engine gives the same bits as the serial one."""

    name: ClassVar[str]

    @abstractmethod
    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order, holding a bounded number of them."""

    def map_reduce(
        self,
        tasks: Iterable[Callable[[], Block]],
        leaf: Callable[[Block, tuple[int, int]], Coreset | None],
        merge: Merge,
        *,
        tree: Tree | None = None,
        watch: Callable[[Tree], None] | None = None,
    ) -> Coreset:
        """Fold all leaves into one coreset; two nodes are merged as soon as both are complete.

        With a ``tree`` that holds leaves already, the first task is leaf ``tree.n_leaves``. ``watch`` is called
        with the tree after every leaf, in the thread of the caller.
        """
        tree = Tree() if tree is None else tree
        first = tree.n_leaves
        for number, node in enumerate(self.map(tasks, lambda block, i: leaf(block, (0, first + i))), first):
            tree = tree.push(number, node, merge)
            if watch is not None:
                watch(tree)
        return tree.collapse(merge)


class SerialEngine(Engine):
    """Reduces one leaf after another. Kernels use all cores within a leaf. All other engines give the same bits."""

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            yield work(task(), number)
