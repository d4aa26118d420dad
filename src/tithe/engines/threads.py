"""Leaves side by side on threads, folded in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

from tithe.core.contracts import Engine
from tithe.core.data import Block
from tithe.core.parallel import available_threads, limit_threads, single_blas_thread

_WORKING = 3  # times its own size that a leaf takes while it is read and reduced (measured)


class ThreadEngine(Engine):
    """Works on as many leaves at a time as there are threads and memory for, and queues as many again.

    Parameters
    ----------
    n_jobs : int or None
        Threads; None uses the cores of the process. Each leaf runs its kernels on one of them.
    memory : int or None
        Bytes that the leaves at work may take. The first leaf is done alone and tells how many fit;
        it is always at least one. None: half of what the machine has left.
    """

    name: ClassVar[str] = "threads"

    def __init__(self, n_jobs: int | None = None, *, memory: int | None = None) -> None:
        for name, value in (("n_jobs", n_jobs), ("memory", memory)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.n_jobs = n_jobs
        self.memory = memory

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order; at most ``2 * n_jobs`` are held."""
        numbered = enumerate(tasks)
        opening = next(numbered, None)
        if opening is None:
            return
        leaf = opening[1]()
        n_jobs = self._fitting(leaf.n_bytes if isinstance(leaf, Block) else 0)
        first = work(leaf, 0)  # on all threads
        del leaf, opening
        yield first

        def run(task: Callable[[], Any], number: int) -> Any:
            with limit_threads(1):
                return work(task(), number)

        waiting: deque[Future[Any]] = deque()
        with single_blas_thread(), ThreadPoolExecutor(n_jobs, thread_name_prefix="tithe-leaf") as pool:
            try:
                for number, task in numbered:
                    waiting.append(pool.submit(run, task, number))
                    if len(waiting) >= 2 * n_jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _fitting(self, leaf_bytes: int) -> int:
        """Threads that there is memory for."""
        n_jobs = self.n_jobs or available_threads()
        memory = self.memory or _memory_left() // 2
        return n_jobs if memory == 0 else max(1, min(n_jobs, memory // max(1, _WORKING * leaf_bytes)))


def _memory_left() -> int:
    """Bytes that the machine can still give; 0 where it does not say."""
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 0
