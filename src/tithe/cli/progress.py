"""What a person sees of long work, and how they stop it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import click

from tithe.cli.text import bytes_text, seconds_text

LINE_SECONDS = 30.0  # between two lines where standard error is no terminal


@contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error; call what it gives with the name of the step that begins."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        started = False

        def step(name: str) -> None:
            nonlocal started
            progress.update(task, description=name, advance=1 if started else 0)
            started = True

        yield step


class Stop:
    """Ctrl-C and SIGTERM, taken only at moments at which nothing is half done.

    A tree of coresets that is interrupted while two of them merge has lost both. So a signal that comes
    within work is remembered, and `waiting` raises ``KeyboardInterrupt`` when the work next waits for
    rows; outside of work it is raised at once. Whoever asks a second time leaves at once.
    """

    def __init__(self) -> None:
        self._asked = self._working = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._ask) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        if not self._working:
            raise KeyboardInterrupt
        if self._asked:
            sys.exit(1)  # not an interruption, upon which a state would be written
        self._asked = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this an interruption does no harm; work follows."""
        self._working = False
        if self._asked:
            raise KeyboardInterrupt
        yield
        self._working = True

    def idle(self) -> None:
        """The work is done: from here on an interruption does no harm."""
        self._working = False


def stoppable(source: Any, stop: Stop, **options: Any) -> Any:
    """The source, watched (`WatchedSource`), which lets an interruption in between two leaves."""
    from tithe.sources.watched import WatchedSource

    class Stoppable(WatchedSource):
        def tasks(self, first: int = 0) -> Iterator[Callable[[], Any]]:
            tasks = super().tasks(first)
            while True:
                with stop.waiting():
                    task = next(tasks, None)
                if task is None:
                    return
                yield task

    return Stoppable(source, **options)


class Reading:
    """How far the passes over a source have come, on standard error.

    Parameters
    ----------
    n_rows : int or None
        Rows of a pass, if known.
    passes : names of the passes
        The last name stands for all that follow.
    done : int
        Rows of the first pass that an earlier run has read.
    """

    def __init__(self, n_rows: int | None, *passes: str, done: int = 0) -> None:
        self._n_rows, self._names, self._done = n_rows, passes, done
        self._pass, self._start, self._said = 0, 0.0, 0.0
        self._bar: Any = None
        self._lock = threading.Lock()  # leaves are read by several threads

    def __enter__(self) -> Self:
        from rich.console import Console

        self._said = time.monotonic()
        console = Console(stderr=True)
        if console.is_terminal:
            self._bar = _bar(console)
            self._bar.start()
            self._task = self._bar.add_task("looking", total=None, text="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, what: str) -> None:
        """Work of unknown length begins."""
        if self._bar is not None:
            self._bar.reset(self._task, description=what, total=None, text="")

    def __call__(self, n_passes: int, n_leaves: int, n_rows: int) -> None:
        with self._lock:
            name = self._names[min(n_passes, len(self._names)) - 1]
            if n_passes != self._pass:
                self._pass, self._start = n_passes, time.monotonic()
                self.say(name)
                self._first = n_rows  # read before the clock was started
            now = time.monotonic()
            done = n_rows + (self._done if n_passes == 1 else 0)
            speed = (n_rows - self._first) / (now - self._start) if n_leaves > 1 and now > self._start else 0.0
            text = self._text(done, speed)
            if self._bar is not None:
                self._bar.update(self._task, completed=done, total=self._n_rows, text=text)
            elif now - self._said >= LINE_SECONDS:
                self._said = now
                click.echo(f"{name}: {text}", err=True)

    def _text(self, done: int, speed: float) -> str:
        parts = [f"{done:,} rows"]
        if speed > 0:
            parts.append(f"{speed:,.0f} rows/s")
        parts.append(bytes_text(memory()))
        if speed > 0 and self._n_rows is not None:
            parts.append(f"{seconds_text(max(0, self._n_rows - done) / speed)} left")
        return ", ".join(parts)


def _bar(console: Any) -> Any:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def memory() -> int:
    """Bytes that this process holds now; where the system does not say so, the most it ever held."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return peak_memory()


def peak_memory() -> int:
    """The most bytes that this process has held; 0 where the system does not say so."""
    try:
        import resource
    except ImportError:  # it exists on POSIX only
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
