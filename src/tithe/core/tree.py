"""The only merge-and-reduce tree: a binary counter of coresets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tithe.core.data import Coreset
from tithe.core.state_checks import expect

HIGHEST = 60  # level of a node: numbers of leaves stay below 2^62
Merge = Callable[[Coreset, Coreset, tuple[int, int]], Coreset]


class Tree:
    """Leaves by number, in ascending order; complete siblings merge like carries of a binary counter.

    The node (level, first) covers the leaves first .. first + 2^level - 1. Memory is one coreset per
    level, log2(number of leaves) of them. A merge is told its key (level, first), which seeds its
    draw: the same leaves give the same bits, whoever computed them and whenever. A leaf that is
    missing, or None because no rows are left in it, leaves its sibling as it is: their parent.

    Parameters
    ----------
    merge : callable
        (left, right, key) to the coreset of both.
    top : int or None
        The highest level that is merged to; beyond it nodes stay side by side.

    Attributes
    ----------
    slots : list of Coreset
        Nodes that wait for their siblings, from left to right.
    n_leaves : int
        The number that comes next: as many leaves have been passed.
    """

    def __init__(self, merge: Merge, *, top: int | None = None) -> None:
        self.merge = merge
        self.top = top
        self.slots: list[Coreset] = []
        self.n_leaves = 0

    def copy(self) -> Tree:
        """The same nodes, to be pushed to without changing this tree."""
        other = Tree(self.merge, top=self.top)
        other.slots, other.n_leaves = self.slots.copy(), self.n_leaves
        return other

    def push(self, number: int, leaf: Coreset | None) -> None:
        """Add leaf ``number``; those between the last one and it are missing."""
        if number < self.n_leaves:
            raise ValueError(f"Leaf {number} comes after leaf {self.n_leaves - 1}: leaves must ascend.")
        self._complete(number)
        self.slots, self.n_leaves = [*self.slots, *([] if leaf is None else [leaf])], number + 1
        self._complete(number + 1)

    def _complete(self, number: int) -> None:
        """Close every node whose leaves all come before ``number``."""
        while self.slots:
            level, first = self.slots[-1].key
            parent = level + 1, first >> level + 1 << level + 1
            if parent[1] + 2 ** parent[0] > number or level == self.top:
                break
            # both stay until their parent is there: whoever is interrupted here must not lose them
            right, left = self.slots[-1], self.slots[-2] if len(self.slots) > 1 else None
            if left is not None and left.key == (level, parent[1]):
                self.slots[-2:] = [self.merge(left, right, parent)]
            else:
                self.slots[-1:] = [replace(right, key=parent)]

    def collapse(self) -> Coreset:
        """Everything pushed so far as one coreset. The tree itself is not changed."""
        if not self.slots:
            raise ValueError("There are no rows: nothing was pushed, or nothing is left of it.")
        result = self.slots[-1]
        for left in reversed(self.slots[:-1]):
            result = self.merge(left, result, (left.key[0] + 1, left.key[1]))
        return result


def fold(leaves: Iterable[Coreset | None], merge: Merge) -> Coreset:
    """Merge leaves that arrive in order."""
    tree = Tree(merge)
    for number, leaf in enumerate(leaves):
        tree.push(number, leaf)
    return tree.collapse()


def check_keys(keys: list[tuple[int, int]], n_leaves: int) -> None:
    """Whether nodes that were read from a file are those of a tree of so many leaves, from left to right."""
    end = 0
    for level, first in keys:
        expect(level <= HIGHEST and first % 2**level == 0 and first >= end, "nodes of a tree overlap")
        end = first + 2**level
    expect(end <= n_leaves, "nodes of a tree cover leaves that have not come")
