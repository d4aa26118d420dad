"""Leaves one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from tithe.core.contracts import Engine


class SerialEngine(Engine):
    """The engine that all others must equal. Kernels still use all cores inside a leaf."""

    name: ClassVar[str] = "serial"

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of one task after the other."""
        for number, task in enumerate(tasks):
            yield work(task(), number)
