"""An engine that reduces one leaf after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tithe.core.contracts import Engine


class SerialEngine(Engine):
    """Reduces one leaf after another. Kernels use all cores within a leaf. All other engines give the same bits."""

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order."""
        for number, task in enumerate(tasks):
            yield work(task(), number)
