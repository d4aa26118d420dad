"""Run a function on many damaged inputs in worker processes, and count how it ends.

A worker that dies or hangs is an outcome like any other: it is counted, and another worker takes its place. ::

    from harness import Pool, damaged_bytes, table

    def load_it(data: bytes) -> None: ...   # at the top level of a module, so that a worker can import it

    rng = np.random.default_rng(0)
    with Pool(load_it, warm=[good]) as pool:
        outcomes = pool.run(damaged_bytes(good, rng) for _ in range(200))
    print(table({"load_it": outcomes}))
    assert not [o for o in outcomes if o.kind not in ("ok", "refused")]

An outcome is

- ``ok``: the function returned;
- ``refused``: it raised one of the ``documented`` exceptions (exactly these types, no subclass: a UnicodeDecodeError is
  no ValueError here);
- ``other``: it raised something else, MemoryError at the limit of memory included;
- ``death``: the process ended, by a signal for example;
- ``hang``: it took longer than ``seconds`` and was killed.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

try:
    import resource
except ImportError:  # not on Windows: there is no limit of memory, and none is measured
    resource = None

from tithe.core.errors import FileFormatError, NoRowsError

KINDS = ("ok", "refused", "other", "death", "hang")
DOCUMENTED = (ValueError, FileFormatError, NoRowsError)
_START_SECONDS = 120.0  # for imports and for kernels that are compiled on the first call
_SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one call ended.

    Parameters
    ----------
    job : int
        Number of the input, from 0: the same seed makes the same input again.
    kind : str
        One of ``KINDS``.
    detail : str
        Type and message of the exception, or how the process ended.
    trace : str
        Where an undocumented exception came from.
    grown_bytes : int
        The most memory that the call took beyond what the worker held before, 0 where it cannot be measured.
    """

    job: int
    kind: str
    detail: str = ""
    trace: str = ""
    grown_bytes: int = 0


class Pool:
    """Worker processes that call one function.

    Parameters
    ----------
    function : callable
        Takes bytes. It must be importable: workers are started afresh, not forked from this process.
    documented : tuple of exception types
        What the function may raise.
    seconds : float
        A call that takes longer hangs; long enough for a machine with much other work.
    memory : int
        Bytes of address space that a worker may take beyond what it has after ``warm``, where the system can limit it.
    warm : list of bytes
        Good inputs, called first in every worker without these limits; if one fails, so does ``run``.
    n_workers : int
    """

    def __init__(
        self,
        function: Callable[[bytes], Any],
        *,
        documented: tuple[type[BaseException], ...] = DOCUMENTED,
        seconds: float = 60.0,
        memory: int = 1 << 30,
        warm: Iterable[bytes] = (),
        n_workers: int = 2,
    ) -> None:
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:  # a worker that replaces another need not import all again
            self._context.set_forkserver_preload(["tithe.core.errors", "numpy", "numba", "pyarrow.parquet", "sklearn"])
        self._seconds, self._n_workers = seconds, n_workers
        self._task = (function, documented, memory, list(warm))
        self._workers: list[_Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.end()

    def run(self, inputs: Iterable[bytes]) -> list[Outcome]:
        """Call the function on each input; outcomes in the order of the inputs."""
        outcomes: list[Outcome] = []
        while len(self._workers) < self._n_workers:
            self._workers.append(_Worker(self._context, len(self._workers), self._task))
        jobs = enumerate(inputs)  # each is made when a worker is free for it, so that no worker waits for all of them
        while True:
            idle = [worker for worker in self._workers if worker.job is None]
            for worker, job in zip(idle, jobs, strict=False):
                worker.give(*job, self._seconds)
            busy = [worker for worker in self._workers if worker.job is not None]
            if not busy:
                return sorted(outcomes, key=lambda outcome: outcome.job)
            wait([w.connection for w in busy], timeout=max(0.0, min(w.deadline for w in busy) - time.monotonic()))
            for worker in busy:
                outcome = worker.outcome()
                if outcome is not None:
                    outcomes.append(outcome)
                if not worker.alive:
                    self._workers[worker.number] = _Worker(self._context, worker.number, self._task)


class _Worker:
    """One process, and what it is doing."""

    def __init__(self, context: Any, number: int, task: tuple[Any, ...]) -> None:
        self.number = number
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, number, *task), daemon=True)
        self.process.start()
        theirs.close()
        self.job: int | None = None
        self.deadline = 0.0
        self.alive, self._ready = True, False

    def give(self, job: int, data: bytes, seconds: float) -> None:
        if not self._ready:
            self._await_start()
        self.job, self.deadline = job, time.monotonic() + seconds
        self.connection.send_bytes(data)

    def _await_start(self) -> None:
        fault = "it took too long"
        try:
            if self.connection.poll(_START_SECONDS):
                fault = self.connection.recv()
        except EOFError:
            fault = "the process ended"
        if fault:
            self.end()
            raise RuntimeError(f"A worker could not start on good inputs: {fault}")
        self._ready = True

    def outcome(self) -> Outcome | None:
        """How the call ended; None while it goes on."""
        assert self.job is not None
        answer: dict[str, Any]
        if self.connection.poll():
            try:
                answer = self.connection.recv()
            except (EOFError, ConnectionResetError):
                self.end()
                answer = {"kind": "death", "detail": f"exit status {self.process.exitcode}"}
        elif time.monotonic() >= self.deadline:
            self.end()
            answer = {"kind": "hang"}
        else:
            return None
        job, self.job = self.job, None
        return Outcome(job=job, **answer)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.alive = False


def _work(connection: Connection, number: int, function: Any, documented: Any, memory: int, warm: list[bytes]) -> None:
    """The loop of a worker: bytes in, how it ended out."""
    warnings.simplefilter("ignore")
    _settle(number)
    try:
        for data in warm:
            function(data)
    except BaseException:
        connection.send(traceback.format_exc())
        return
    _limit_memory(memory)
    connection.send("")
    while True:
        try:
            data = connection.recv_bytes()
        except EOFError:
            return
        connection.send(_ended(function, documented, data))


def _ended(function: Any, documented: Any, data: bytes) -> dict[str, Any]:
    kind, detail, trace = "ok", "", ""
    held = _fresh_peak()
    try:
        function(data)
    except BaseException as error:  # SystemExit and pyo3's or numba's own kinds as well
        kind = "refused" if type(error) in documented else "other"
        detail = f"{type(error).__name__}: {str(error)[:300]}"
        trace = "" if kind == "refused" else traceback.format_exc()[-3000:]
    return {"kind": kind, "detail": detail, "trace": trace, "grown_bytes": _peak_bytes() - held}


def _settle(number: int) -> None:
    """One core for the worker, and temporary files in memory.

    An input takes milliseconds, half of them otherwise spent on threads that wait for a core and on folders on a disk.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    if os.access(_SHARED_MEMORY, os.W_OK):
        tempfile.tempdir = _SHARED_MEMORY


def _limit_memory(more: int) -> None:
    if resource is None or not sys.platform.startswith("linux"):
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a worker that dies leaves no file of its memory


def _fresh_peak() -> int:
    """The memory held now, from which the peak is measured anew: libraries keep memory that earlier inputs took."""
    if sys.platform.startswith("linux"):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    if sys.platform.startswith("linux"):  # ru_maxrss is the peak of the whole life of a process
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def table(outcomes: dict[str, list[Outcome]]) -> str:
    """A line for every name: how many ended in which way, and the most memory one took."""
    lines = [f"{'':32}" + "".join(f"{kind:>9}" for kind in KINDS) + f"{'grown MB':>9}"]
    for name, ended in outcomes.items():
        counts = Counter(outcome.kind for outcome in ended)
        grown = max((outcome.grown_bytes for outcome in ended), default=0)
        lines.append(f"{name:32}" + "".join(f"{counts[kind]:9}" for kind in KINDS) + f"{grown / 2**20:9.0f}")
    return "\n".join(lines)


def damaged_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """A copy with bits flipped, bytes set, a piece cut out, repeated, overwritten or moved, or the end cut off."""
    raw = bytearray(data)
    for _ in range(1 + int(rng.integers(3))):
        start, stop = sorted(int(at) for at in rng.integers(len(raw) + 1, size=2))
        stop = min(stop, start + int(2 ** rng.uniform(0, 12)))
        way = int(rng.integers(6))
        if way == 0 and raw:
            for at in rng.integers(len(raw), size=1 + int(rng.integers(8))):
                raw[at] ^= 1 << int(rng.integers(8))
        elif way == 1 and raw:
            for at in rng.integers(len(raw), size=1 + int(rng.integers(8))):
                raw[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        elif way == 2:
            del raw[start:stop]
        elif way == 3:
            raw[stop:stop] = raw[start:stop]
        elif way == 4:
            raw[start:stop] = rng.bytes(stop - start)
        else:
            del raw[stop if rng.random() < 0.5 else start :]
    return bytes(raw)
