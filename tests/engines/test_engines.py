from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from leaf_source import fold

from tithe import Block, Coreset
from tithe.core.passes import SerialEngine
from tithe.engines.threads import ThreadEngine
from tithe.testing import check_engine, engine_checks

CHECKS = [
    pytest.param(check, id=f"{label}-{name}")
    for label, engine in {"threads": "threads", "one": ThreadEngine(1), "five": ThreadEngine(5)}.items()
    for name, check in engine_checks(engine)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


class _Careless(SerialEngine):
    """Merges in order of arrival, backwards."""

    def map(self, tasks, work) -> Iterator:
        return super().map(reversed(list(tasks)), work)


def test_the_suite_catches_an_engine_of_another_order() -> None:
    with pytest.raises(AssertionError, match="many leaves equal serial"):
        check_engine(_Careless())


class _Swallowing(SerialEngine):
    """Goes on without a leaf that failed."""

    def map(self, tasks, work) -> Iterator:
        def quiet(block: Block, number: int) -> object:
            try:
                return work(block, number)
            except RuntimeError:
                return None

        return super().map(tasks, quiet)


def test_the_suite_catches_an_engine_that_hides_errors() -> None:
    with pytest.raises(AssertionError, match="an error in a leaf"):
        check_engine(_Swallowing())


def test_no_more_leaves_are_held_than_promised() -> None:
    held, most = 0, 0
    lock = threading.Lock()

    def tasks() -> Iterator:
        nonlocal held, most
        for _ in range(40):
            with lock:
                held += 1
                most = max(most, held)
            yield lambda: Block(X=np.zeros((1, 1)))

    def leaf(block: Block, number: int) -> Coreset:
        return Coreset(X=block.X, n_seen=1, weight_seen=1.0, key=(0, number))

    def merge(left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
        nonlocal held
        with lock:
            held -= 1
        return Coreset(X=left.X, n_seen=left.n_seen + right.n_seen, weight_seen=0.0, key=key)

    assert fold(ThreadEngine(2).map(tasks(), leaf), merge).n_seen == 40
    assert most <= 4 + 6 + 2  # the window, one coreset a level, and the two that opened


def test_no_more_leaves_at_work_than_there_is_memory_for() -> None:
    working, most = 0, 0
    lock = threading.Lock()

    def leaf(block: Block, number: int) -> int:
        nonlocal working, most
        with lock:
            working += 1
            most = max(most, working)
        threading.Event().wait(0.01)
        with lock:
            working -= 1
        return number

    tasks = [lambda: Block(X=np.zeros((1000, 10)))] * 12
    for memory, expected in ((1, 1), (3 * 80_000 * 2, 2), (10**9, 4)):
        most = 0
        assert list(ThreadEngine(4, memory=memory).map(tasks, leaf)) == list(range(12))
        assert most == expected


def test_bad_number_of_jobs() -> None:
    for bad in (0, "2", 1.5):
        with pytest.raises(ValueError, match="n_jobs must be"):
            ThreadEngine(bad)
        with pytest.raises(ValueError, match="memory must be"):
            ThreadEngine(memory=bad)
