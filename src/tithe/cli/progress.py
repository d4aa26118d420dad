"""The steps of long work, and how a person stops it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from tithe.core.progress import Progress


@contextmanager
def steps() -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on standard error.

    Call what it gives with the number of steps done, that of all, and the name of the step that begins.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<36}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def step(n_done: int, n_steps: int, name: str) -> None:
            progress.update(task, description=name, completed=n_done, total=n_steps)

        yield step


class Stop:
    """Ctrl-C and SIGTERM, handled only when no step is half done.

    A signal that comes within work is remembered, and ``KeyboardInterrupt`` is raised by `waiting` when the work
    next waits for rows, or by `after_leaves` when the next leaf is done. Outside of work it is raised at once. A
    second signal ends the process.
    """

    def __init__(self) -> None:
        self._stop_requested = self._working = False
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
            self._old_handlers = {number: signal.signal(number, self._ask) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        if not self._working:
            raise KeyboardInterrupt
        if self._stop_requested:
            sys.exit(1)  # not KeyboardInterrupt, on which a state would be written
        self._stop_requested = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Interruptions are raised within this block; work follows it."""
        self._working = False
        if self._stop_requested:
            raise KeyboardInterrupt
        yield
        self._working = True

    def after_leaves(self, progress: Progress) -> Progress:
        """A progress callback that also raises an interruption after a leaf."""

        def report(n_passes: int, n_leaves: int, n_rows: int) -> None:
            progress(n_passes, n_leaves, n_rows)
            with self.waiting():
                pass

        return report

    def idle(self) -> None:
        """The work is done: from here on interruptions are raised at once."""
        self._working = False
