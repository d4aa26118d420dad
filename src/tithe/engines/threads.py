"""Leaves side by side on threads, folded in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, ClassVar

from tithe.engines.serial import SerialEngine
from tithe.kernels.threads import available_threads, limit_threads, single_blas_thread


class ThreadEngine(SerialEngine):
    """As many leaves at a time as there are threads; one more waits, so that no thread does.

    ``n_jobs=None`` uses the cores of the process. Each leaf runs its kernels on one thread. Memory is
    that of ``n_jobs`` leaves at work and of the coresets that wait to be merged in order.
    """

    name: ClassVar[str] = "threads"

    def __init__(self, n_jobs: int | None = None) -> None:
        if n_jobs is not None and n_jobs < 1:
            raise ValueError(f"n_jobs must be at least 1, got {n_jobs}.")
        self.n_jobs = n_jobs

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order; at most ``2 * n_jobs`` are held."""
        n_jobs = self.n_jobs or available_threads()
        tasks = iter(tasks)
        opening = list(islice(tasks, 2))
        if len(opening) == 1:  # a single leaf gets all the threads
            yield work(opening[0](), 0)
            return

        def run(task: Callable[[], Any], number: int) -> Any:
            with limit_threads(1):
                return work(task(), number)

        waiting: deque[Future[Any]] = deque()
        with single_blas_thread(), ThreadPoolExecutor(n_jobs, thread_name_prefix="tithe-leaf") as pool:
            try:
                for number, task in enumerate(chain(opening, tasks)):
                    waiting.append(pool.submit(run, task, number))
                    if len(waiting) >= 2 * n_jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
