"""Parts of rows: kernels on several Python threads, sums over parts, and weighted column sums.

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

import numpy as np
from numba import njit
from scipy import sparse
from threadpoolctl import ThreadpoolController

from tithe.core.data import Array, Block

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


_GRAIN_ROWS = 1024  # parts are multiples of this many rows
_PART_ROWS = 16 * _GRAIN_ROWS  # rows whose sums are added in one go
_MAX_PARTIAL_BYTES = 1 << 26  # for partial sums, for any n


def part_rows(n_rows: int, partial_bytes: int) -> int:
    """Rows per part: a function of the problem alone, never of the number of threads."""
    max_parts = max(4, _MAX_PARTIAL_BYTES // max(1, partial_bytes))
    preferred = min(_PART_ROWS, -(-n_rows // (16 * _GRAIN_ROWS)) * _GRAIN_ROWS)  # small parts for few rows
    return max(_GRAIN_ROWS, preferred, -(-n_rows // (max_parts * _GRAIN_ROWS)) * _GRAIN_ROWS)


@njit(cache=True, nogil=True)
def _neumaier(parts, total):
    for j in range(parts.shape[1]):
        done, compensation = 0.0, 0.0
        for i in range(parts.shape[0]):
            part = parts[i, j]
            updated = done + part
            if abs(done) >= abs(part):
                compensation += (done - updated) + part
            else:
                compensation += (part - updated) + done
            done = updated
        total[j] = done + compensation if np.isfinite(compensation) else done  # sums that overflow stay infinite


def add_parts(parts: Array) -> Array:
    """Sum over the first axis, compensated (Neumaier), in the order of the parts."""
    total = np.zeros(parts.shape[1:])
    _neumaier(parts.reshape(len(parts), total.size), total.reshape(-1))
    return total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _part_sums(X, weight, sums, first, last, rows):
    n, d = X.shape
    for part in range(first, last):
        for i in range(part * rows, min(n, (part + 1) * rows)):
            u = weight[i] if weight.size > 0 else 1.0
            for j in range(d):
                sums[part, j] += u * X[i, j]


class _Taken:
    """The memory of an array, said to be writeable."""

    def __init__(self, array: Array) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def to_compiled(array: Any) -> Any:
    """The array for a compiled loop that only reads it: the loop is not compiled again for read-only arrays.

    Memory maps and the arrays that other processes hand over are read-only.
    """
    if isinstance(array, np.ndarray) and not array.flags.writeable and array.size > 0:
        return np.asarray(_Taken(array))
    return array


def column_sums(X: Any, weight: Array | None = None) -> Array:
    """Weighted column sums (d,) in float64. Not finite exactly when some entry is not, or the sum is too large."""
    n, d = X.shape
    if sparse.issparse(X):
        return np.asarray(X.T @ (np.ones(n) if weight is None else weight), np.float64)
    if weight is not None:
        return _sum_parts(X, weight)
    # short rows are read several at a time, as one longer row: loops of some length run faster
    fold = max(1, 64 // d)
    n_folded = n - n % fold
    sums: Array = _sum_parts(X[:n_folded].reshape(n_folded // fold, fold * d), None).reshape(fold, d).sum(axis=0)
    return sums + X[n_folded:].sum(axis=0, dtype=np.float64)


def column_means(block: Block) -> Array:
    """The weighted column means (d,); those of the block if it has them already."""
    if block.mean is not None:
        return block.mean
    means: Array = column_sums(block.X, block.sample_weight) / block.total_weight
    return means


def _sum_parts(X: Array, weight: Array | None) -> Array:
    n, d = X.shape
    rows = part_rows(n, 8 * d)
    n_parts = -(-n // rows)
    sums = np.zeros((n_parts, d))
    u = np.empty(0) if weight is None else weight
    over_parts(lambda first, last: _part_sums(X, u, sums, first, last, rows), n_parts, serial=X.size < 100_000)
    return add_parts(sums)
