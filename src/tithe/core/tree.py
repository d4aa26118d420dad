"""The only merge-and-reduce tree: a binary counter of coresets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tithe.core.data import Coreset

Merge = Callable[[Coreset, Coreset, tuple[int, int]], Coreset]


class Tree:
    """Push leaves in order; slots of equal level merge like carries of a binary counter.

    Memory is one coreset per level, log2(number of leaves) of them. A merge is told its key
    (level, first leaf), which seeds its draw: the same leaves give the same bits, whoever
    computed them and whenever.
    """

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self.slots: list[Coreset] = []  # levels strictly fall from left to right

    def push(self, leaf: Coreset) -> None:
        """Add the next leaf (level 0)."""
        self.slots.append(leaf)
        while len(self.slots) > 1 and self.slots[-1].key[0] == self.slots[-2].key[0]:
            right, left = self.slots.pop(), self.slots.pop()
            self.slots.append(self._merge(left, right, (left.key[0] + 1, left.key[1])))

    def collapse(self) -> Coreset:
        """Everything pushed so far as one coreset. The tree itself is not changed."""
        if not self.slots:
            raise ValueError("There are no rows: nothing was pushed.")
        result = self.slots[-1]
        for left in reversed(self.slots[:-1]):
            result = self._merge(left, result, (left.key[0] + 1, left.key[1]))
        return result


def fold(leaves: Iterable[Coreset], merge: Merge) -> Coreset:
    """Merge leaves that arrive in order."""
    tree = Tree(merge)
    for leaf in leaves:
        tree.push(leaf)
    return tree.collapse()
