"""An engine that reduces several leaves at a time, each in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

from tithe.core.data import Block
from tithe.core.parallel import available_threads, limit_threads, single_blas_thread
from tithe.core.params import OneOf, WholeNumber, check_value
from tithe.core.passes import Engine
from tithe.core.progress import available_memory

_PEAK_MEMORY_OF_A_LEAF = 3  # in units of its own size, while it is read and reduced (measured)


class ThreadEngine(Engine):
    """Reduces one leaf in each thread, as far as memory allows, and queues the same number of leaves.

    Parameters
    ----------
    n_jobs : int or None
        Threads; None uses the cores of the process. Each leaf runs its kernels on one of them.
    memory : int or None
        Bytes that the leaves in work may take. The first leaf is reduced alone and tells how many fit; one always
        does. None: half of the memory that is available.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.engines import ThreadEngine
    >>> coreset = build_coreset(np.eye(90), objective="kmeans", coreset_size=30, engine=ThreadEngine(2))
    >>> len(coreset) <= 30
    True
    """

    name: ClassVar[str] = "threads"

    def __init__(self, n_jobs: int | None = None, *, memory: int | None = None) -> None:
        for name, value in (("n_jobs", n_jobs), ("memory", memory)):
            check_value(name, value, OneOf(None) | WholeNumber(least=1))
        self.n_jobs = n_jobs
        self.memory = memory

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order; at most ``2 * n_jobs`` are held."""
        numbered = enumerate(tasks)
        first_task = next(numbered, None)
        if first_task is None:
            return
        leaf = first_task[1]()
        n_jobs = self._n_threads(leaf.n_bytes if isinstance(leaf, Block) else 0)
        first_result = work(leaf, 0)  # its kernels use all threads
        del leaf, first_task
        yield first_result

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

    def _n_threads(self, leaf_bytes: int) -> int:
        """The number of threads for which there is memory."""
        n_jobs = self.n_jobs or available_threads()
        memory = self.memory or available_memory() // 2
        return n_jobs if memory == 0 else max(1, min(n_jobs, memory // max(1, _PEAK_MEMORY_OF_A_LEAF * leaf_bytes)))
