"""Leaves side by side on threads, folded in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import ClassVar

from tithe.core.data import Block, Coreset
from tithe.core.tree import fold
from tithe.kernels.threads import available_threads, limit_threads, single_blas_thread


class ThreadEngine:
    """As many leaves at a time as there are threads; at most twice that many are held.

    ``n_jobs=None`` uses the cores of the process. Each leaf runs its kernels on one thread.
    """

    name: ClassVar[str] = "threads"

    def __init__(self, n_jobs: int | None = None) -> None:
        if n_jobs is not None and n_jobs < 1:
            raise ValueError(f"n_jobs must be at least 1, got {n_jobs}.")
        self.n_jobs = n_jobs

    def map_reduce(
        self,
        tasks: Iterable[Callable[[], Block]],
        leaf: Callable[[Block, tuple[int, int]], Coreset],
        merge: Callable[[Coreset, Coreset, tuple[int, int]], Coreset],
    ) -> Coreset:
        n_jobs = self.n_jobs or available_threads()
        tasks = iter(tasks)
        opening = list(islice(tasks, 2))
        if len(opening) == 1:  # a single leaf gets all the threads
            return fold([leaf(opening[0](), (0, 0))], merge)

        def work(task: Callable[[], Block], number: int) -> Coreset:
            with limit_threads(1):
                return leaf(task(), (0, number))

        with single_blas_thread(), ThreadPoolExecutor(n_jobs, thread_name_prefix="tithe-leaf") as pool:

            def leaves() -> Iterator[Coreset]:
                waiting: deque[Future[Coreset]] = deque()
                try:
                    for number, task in enumerate(chain(opening, tasks)):
                        waiting.append(pool.submit(work, task, number))
                        if len(waiting) >= 2 * n_jobs:
                            yield waiting.popleft().result()
                    while waiting:
                        yield waiting.popleft().result()
                finally:
                    for future in waiting:
                        future.cancel()

            return fold(leaves(), merge)
