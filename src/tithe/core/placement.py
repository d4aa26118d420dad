"""Rows that lie on the workers of a cluster already, and how tasks get them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlacedPart:
    """Rows of a partition: all of them if ``stop`` is None, else those from ``start`` to ``stop``.

    ``keys`` name the results of tasks: the rows of X, and those of y and of the weights where there are any.
    """

    number: int
    keys: tuple[Hashable, ...]
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class PlacedGroup:
    """The leaves from number ``first`` to ``stop``, and the partitions that their rows are in."""

    first: int
    stop: int
    parts: tuple[PlacedPart, ...]


@dataclass(frozen=True)
class Placement:
    """How the leaves of a source are made from partitions that a cluster holds or computes.

    Parameters
    ----------
    graph : mapping
        The tasks that give the partitions, by key.
    groups : sequence of PlacedGroup
        Consecutive leaves; each group is best run where its partitions are.
    explain : callable
        Takes an error of a task of the graph and returns one that says more, or the same.
    """

    graph: Mapping[Any, Any]
    groups: Sequence[PlacedGroup]
    explain: Callable[[Exception], Exception]
