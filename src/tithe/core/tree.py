"""The tree in which the results of leaves are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, Self, TypeVar

from tithe.core.data import Coreset
from tithe.core.errors import NoRowsError
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

    Parameters
    ----------
    slots : tuple of nodes
        Nodes that wait for their siblings, from left to right.
    n_leaves : int
        The number of the next leaf.
    first : int
        The number of the first leaf of the tree; 0 but for a tree of some leaves in between.
    """

    slots: tuple[N, ...] = ()
    n_leaves: int = 0
    first: int = 0

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
