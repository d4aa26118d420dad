"""Groups of leaves, the tasks of a cluster: a worker reads and merges one group, and only the result travels."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from threadpoolctl import threadpool_info

from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.core.passes import LeafWork, Leaves, Merge, MergeTree
from tithe.core.version import __version__

GROUP_BYTES = 2**32  # of X in a group at most: a task of seconds, of which a scheduler can hold many
GROUPS_PER_THREAD = 8  # at least, so that all workers end at about the same time
FAN_IN = 16  # trees that a task joins
CALLERS_MISTAKES = (ValueError, TypeError, NotImplementedError)


@dataclass(frozen=True)
class Failure:
    """An error on a worker that another attempt would only repeat, such as a bad row."""

    error: Exception


def checked(result: Any) -> Any:
    """What a worker computed; an error that it returned is raised."""
    if isinstance(result, Failure):
        raise result.error
    return result


def call_task(work: Callable[[Any, int], Any], task: Callable[[], Any], number: int) -> Any:
    """``work(task(), number)`` in one thread. An error that another attempt would repeat is returned."""
    with limit_threads(1), single_blas_thread():
        try:
            return work(task(), number)
        except CALLERS_MISTAKES as error:
            return Failure(error)


@dataclass(frozen=True)
class FoldWork:
    """The work of one pass. It is sent to a worker once, and tasks are numbers of leaves."""

    leaves: Leaves
    leaf: LeafWork
    merge: Merge | None  # None where the results of leaves are not merged

    def run(self, start: int, stop: int, parts: Sequence[Any] = ()) -> MergeTree[Any] | Failure:
        """The tree of the leaves from ``start`` to ``stop``, read one after the other in one thread.

        ``parts`` are partitions that the leaves are in: see `Source.with_parts`.
        """
        assert self.merge is not None
        tree = MergeTree[Any]((), start, start)
        try:
            for number, node in enumerate(self._results(start, stop, parts), start):
                tree = tree.push(number, node, self.merge)
        except CALLERS_MISTAKES as error:
            return Failure(error)
        return tree

    def run_each(self, start: int, stop: int, parts: Sequence[Any] = ()) -> list[Any] | Failure:
        """The results of the leaves, one by one."""
        try:
            return list(self._results(start, stop, parts))
        except CALLERS_MISTAKES as error:
            return Failure(error)

    def _results(self, start: int, stop: int, parts: Sequence[Any]) -> Iterator[Any]:
        source, leaf_rows = self.leaves.source.with_parts(parts), self.leaves.leaf_rows
        with limit_threads(1), single_blas_thread():
            for number, task in enumerate(islice(source.tasks(start, leaf_rows), stop - start), start):
                yield self.leaf(task(), (0, number))

    def join(self, trees: Sequence[MergeTree[Any] | Failure]) -> MergeTree[Any] | Failure:
        """Trees of consecutive leaves as one; the first failure among them, if there is one."""
        assert self.merge is not None
        return join_trees(trees, self.merge)


def join_trees(trees: Sequence[MergeTree[Any] | Failure], merge: Merge) -> MergeTree[Any] | Failure:
    """Trees of consecutive leaves as one; the first failure among them, if there is one."""
    with limit_threads(1), single_blas_thread():
        joined = trees[0]
        for tree in trees[1:]:
            if isinstance(joined, Failure):
                return joined
            if isinstance(tree, Failure):
                return tree
            joined = joined.join(tree, merge)
    return joined


def group_edges(leaves: Leaves, stop: int, n_threads: int, leaves_per_task: int | None = None) -> list[int]:
    """Where groups begin and end: at multiples of a power of two, so that most groups are one node of the tree."""
    n_leaves = stop - leaves.first
    if leaves_per_task is None:
        rows = leaves.leaf_rows or leaves.source.leaf_rows or 1
        most = max(1, GROUP_BYTES // max(1, rows * leaves.source.row_bytes))
        leaves_per_task = max(1, min(most, n_leaves // (GROUPS_PER_THREAD * n_threads)))
    size = 2 ** (leaves_per_task.bit_length() - 1)
    inner = range((leaves.first // size + 1) * size, stop, size)
    return [leaves.first, *inner, stop] if n_leaves > 0 else []


Kind = tuple[str, ...]


def kind_of_worker() -> Kind:
    """What decides the last bits of a result in this process: versions, and the CPU that code is compiled for."""
    # a new worker may not have loaded all libraries yet, so each kind counts once
    blas = sorted({str(library.get("architecture")) for library in threadpool_info() if library["user_api"] == "blas"})
    cpu = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    return __version__, np.__version__, numba.__version__, platform.machine(), cpu, *blas


def warn_if_kinds_differ(workers: Iterable[tuple[str, Kind]]) -> None:
    """Warn if workers, given by name and kind, are of several kinds."""
    kinds: dict[Kind, str] = {}
    for name, kind in workers:
        kinds.setdefault(kind, name)
    if len(kinds) > 1:
        listed = "; ".join(f"{name}: {' '.join(kind)}" for kind, name in kinds.items())
        warnings.warn(
            f"Workers have different CPUs or versions ({listed}). Results may differ in their last bits from run to "
            "run. Start all workers with OPENBLAS_CORETYPE=Haswell NUMBA_CPU_NAME=haswell to make them equal.",
            stacklevel=2,
        )
