"""Leaves one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from tithe.core.data import Block, Coreset
from tithe.core.tree import fold


class SerialEngine:
    """The engine that all others must equal. Kernels still use all cores inside a leaf."""

    name: ClassVar[str] = "serial"

    def map_reduce(
        self,
        tasks: Iterable[Callable[[], Block]],
        leaf: Callable[[Block, tuple[int, int]], Coreset],
        merge: Callable[[Coreset, Coreset, tuple[int, int]], Coreset],
    ) -> Coreset:
        return fold((leaf(task(), (0, number)) for number, task in enumerate(tasks)), merge)
