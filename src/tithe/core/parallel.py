"""Kernels on several Python threads.

Kernels are compiled without the GIL and take a range of *parts* (fixed runs of rows).
Partial sums belong to a part, never to a thread, so a result has the same bits whatever
the number of threads. Python threads are used rather than Numba's own: they nest safely
inside engines and cost nothing to compile.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from threadpoolctl import ThreadpoolController

_limit: ContextVar[int | None] = ContextVar("tithe_threads", default=None)
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_owner: int | None = None
_controller: ThreadpoolController | None = None
_blas_depth = 0
_blas_limiter: Any = None


def available_threads() -> int:
    """Threads a kernel may use here: ``TITHE_NUM_THREADS``, else the cores of this process."""
    limit = _limit.get()
    if limit is not None:
        return limit
    wanted = os.environ.get("TITHE_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limit_threads(n: int | None) -> Iterator[None]:
    """Let kernels called inside the block use at most ``n`` threads (None: no change)."""
    token = _limit.set(available_threads() if n is None else n)
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Keep BLAS on one thread while kernels share the cores among themselves.

    The setting is global to the process, so nested and concurrent users are counted:
    the first one in sets it and the last one out restores what was there before.
    """
    global _blas_depth, _blas_limiter, _controller
    with _lock:
        if _blas_depth == 0:
            if _controller is None:
                _controller = ThreadpoolController()
            _blas_limiter = _controller.limit(limits=1, user_api="blas")
            _blas_limiter.__enter__()
        _blas_depth += 1
    try:
        yield
    finally:
        with _lock:
            _blas_depth -= 1
            if _blas_depth == 0:
                _blas_limiter.__exit__(None, None, None)
                _blas_limiter = None


def _executor() -> ThreadPoolExecutor:
    global _pool, _pool_owner
    with _lock:
        if _pool is None or _pool_owner != os.getpid():  # threads do not survive a fork
            _pool = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="tithe-kernel")
            _pool_owner = os.getpid()
        return _pool


def over_parts(kernel: Callable[[int, int], object], n_parts: int, *, serial: bool = False) -> None:
    """Call ``kernel(first_part, last_part)`` over ``range(n_parts)``, split among the threads."""
    n_threads = 1 if serial else min(available_threads(), n_parts)
    if n_threads <= 1:
        if n_parts:
            kernel(0, n_parts)
        return
    # more tasks than threads, so that a core that is busy with other work does not delay the end
    n_tasks = min(n_parts, 4 * n_threads)
    edges = [n_parts * t // n_tasks for t in range(n_tasks + 1)]
    pending = iter(itertools.pairwise(edges))
    turn = threading.Lock()

    def work() -> None:
        while True:
            with turn:
                task = next(pending, None)
            if task is None:
                return
            kernel(*task)

    futures = [_executor().submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        for future in futures:
            future.result()
