"""What watches and keeps a build: progress on standard error, times of phases, and the folder for its state."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from tithe.core.params import Boolean, RealNumber, check_params

# called after every leaf with the number of the pass, and the leaves and rows of this pass that are done
Progress = Callable[[int, int, int], None]

LINE_SECONDS = 30.0  # between two lines where standard error is no terminal


class ProgressBar:
    """A `Progress` that shows a bar where standard error is a terminal, else a line every 30 seconds.

    ``n_rows`` are those of a pass; the last of ``names`` stands for all later passes; an earlier run has read ``done``.
    """

    def __init__(self, n_rows: int | None, *names: str, done: int = 0) -> None:
        self._n_rows, self._names, self._done = n_rows, names, done
        self._pass, self._start, self._last_line = 0, 0.0, 0.0
        self._bar: Any = None
        self._lock = threading.Lock()  # several threads report stripes of pictures

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._last_line = time.monotonic()
        console = Console(stderr=True)
        if console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description:<12}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
            )
            self._bar = RichProgress(*columns, console=console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("sampling", total=None, text="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def describe(self, work: str) -> None:
        """Name work of unknown length that begins."""
        if self._bar is not None:
            self._bar.reset(self._task, description=work, total=None, text="")

    def __call__(self, n_passes: int, n_leaves: int, n_rows: int) -> None:
        with self._lock:
            name = self._names[min(n_passes, len(self._names)) - 1]
            if n_passes != self._pass:
                self._pass, self._start = n_passes, time.monotonic()
                self.describe(name)
                self._first = n_rows  # read before the clock was started
            now = time.monotonic()
            done = n_rows + (self._done if n_passes == 1 else 0)
            speed = (n_rows - self._first) / (now - self._start) if n_leaves > 1 and now > self._start else 0.0
            text = self._text(done, speed)
            if self._bar is not None:
                self._bar.update(self._task, completed=done, total=self._n_rows, text=text)
            elif now - self._last_line >= LINE_SECONDS:
                self._last_line = now
                print(f"{name}: {text}", file=sys.stderr, flush=True)

    def _text(self, done: int, speed: float) -> str:
        parts = [f"{done:,} rows"]
        if speed > 0:
            parts.append(f"{speed:,.0f} rows/s")
        parts.append(bytes_text(memory()))
        if speed > 0 and self._n_rows is not None:
            parts.append(f"{seconds_text(max(0, self._n_rows - done) / speed)} left")
        return ", ".join(parts)


def memory() -> int:
    """Bytes that this process holds now; where the system does not say so, the most it ever held."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return peak_memory()


def available_memory() -> int:
    """Bytes of memory that are available; 0 if the system does not tell."""
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 0


def peak_memory() -> int:
    """The most bytes that this process has held; 0 where the system does not say so."""
    try:
        import resource
    except ImportError:  # it exists on POSIX only
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_text(n_bytes: float) -> str:
    """A number of bytes for a person."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.0f} {unit}" if unit == "bytes" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} TB"


def seconds_text(seconds: float) -> str:
    """A time for a person."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Store the seconds that a block of code takes under the name of a phase."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = time.perf_counter() - start


@dataclass(frozen=True)
class Checkpoint:
    """A folder that keeps the state of a build, so that one that was stopped or killed can go on.

    A resumed build gives the same bits as one that was never stopped. The folder stays after the build: remove it
    once the result is safe.

    Parameters
    ----------
    path : path
        A folder of its own, made if it does not exist.
    every : float
        Seconds between two writes; 0: after every leaf. The state is also written on a ``KeyboardInterrupt``.
    resume : bool
        Go on from the state in the folder, if there is one. That of other rows or options is refused. False starts
        from the beginning.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tithe import Checkpoint, build_coreset
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     state = Checkpoint(folder, every=0)
    ...     options = {"objective": "kmeans", "coreset_size": 500, "random_state": 0, "checkpoint": state}
    ...     first, again = build_coreset(X, **options), build_coreset(X, **options)
    >>> bool((first.X == again.X).all())
    True
    """

    path: str | os.PathLike[str]
    every: float = 30.0
    resume: bool = True

    def __post_init__(self) -> None:
        check_params(self, {"every": RealNumber(least=0.0, finite=False), "resume": Boolean()})

    def within(self, name: str) -> Checkpoint:
        """The same in a folder of that name within this one: for one of several builds."""
        return replace(self, path=Path(self.path) / name)
