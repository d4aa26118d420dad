"""The time that the phases of a fit take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Store the seconds that a block of code takes under the name of a phase."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = time.perf_counter() - start
