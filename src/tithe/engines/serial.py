"""Leaves one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tithe.core.data import Block, Coreset
from tithe.core.state_checks import Storable
from tithe.core.tree import Merge, Tree


class SerialEngine(Storable):
    """The engine that all others must equal. Kernels still use all cores inside a leaf."""

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of one task after the other."""
        for number, task in enumerate(tasks):
            yield work(task(), number)

    def map_reduce(
        self,
        tasks: Iterable[Callable[[], Block]],
        leaf: Callable[[Block, tuple[int, int]], Coreset | None],
        merge: Merge,
        *,
        tree: Tree | None = None,
        watch: Callable[[Tree], None] | None = None,
    ) -> Coreset:
        """Leaves as they come, merged as soon as two are complete."""
        tree = Tree() if tree is None else tree
        first = tree.n_leaves
        for number, node in enumerate(self.map(tasks, lambda block, i: leaf(block, (0, first + i))), first):
            tree = tree.push(number, node, merge)
            if watch is not None:
                watch(tree)
        return tree.collapse(merge)
