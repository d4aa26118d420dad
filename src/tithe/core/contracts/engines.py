"""What an engine does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tithe.core.data import Block, Coreset
from tithe.core.state_checks import Storable
from tithe.core.tree import Merge, Tree


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
