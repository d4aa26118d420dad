"""Rows that lie in the partitions of a table on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tithe.core.data import Block

Read = Callable[[int, Iterator[Any]], Iterator[Block]]


@dataclass(frozen=True)
class PartitionedRows:
    """A table in partitions, and how the workers of a cluster make leaves of them, where they lie.

    Partition p owns the leaves from number ``p << level`` on; those that it does not need are missing. So the leaves
    of a partition are one node of the tree.

    Parameters
    ----------
    table : Spark DataFrame
        Only the columns that are read. It stays with the caller.
    lengths : tuple of int
        The number of rows of each partition.
    level : int
    read : callable
        ``read(partition, batches)`` gives the leaves of a partition, in order, from its Arrow batches. It raises
        ValueError if there are not as many rows as when they were counted. Picklable.
    """

    table: Any
    lengths: tuple[int, ...]
    level: int
    read: Read

    def changed(self, change: Callable[[Block], Block]) -> PartitionedRows:
        """The same with every leaf changed as it is read."""
        return replace(self, read=partial(_changed, self.read, change))


def _changed(read: Read, change: Callable[[Block], Block], partition: int, batches: Iterator[Any]) -> Iterator[Block]:
    for leaf in read(partition, batches):
        yield change(leaf) if len(leaf) else leaf


def partition_id() -> int:
    """The number of the partition that this task of Spark works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())
