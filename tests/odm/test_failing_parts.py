"""Parts of a machine on engines that fail, send bytes, or lose a worker."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, ClassVar

import numpy as np
import pytest
from margin_data import rings
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from tithe.core.passes import Engine, SerialEngine
from tithe.engines.threads import ThreadEngine
from tithe.odm import ODMClassifier, PartitionSolver
from tithe.odm.solvers.partition import map_with_retry


class FailingEngine(SerialEngine):
    """Raises at given calls of the work, counted from zero, as an engine does whose worker has died."""

    name: ClassVar[str] = "failing"

    def __init__(self, *failures: int) -> None:
        self.failures = failures
        self.n_calls = 0

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            self.n_calls += 1
            if self.n_calls - 1 in self.failures:
                raise OSError("the worker has gone")
            yield work(task(), number)


def test_a_part_that_fails_is_tried_again() -> None:
    X, y = rings()
    options: dict[str, Any] = {"solver": PartitionSolver(n_parts=4), "random_state": 0, "tol": 1e-3}
    plain = ODMClassifier(**options).fit(X, y)
    engine = FailingEngine(1, 3)  # the second part, and the third after the second was tried again
    options["solver"] = PartitionSolver(n_parts=4, engine=engine)
    retried = ODMClassifier(**options).fit(X, y)
    assert engine.n_calls > 5
    assert np.array_equal(plain.dual_coef_, retried.dual_coef_)


@pytest.mark.parametrize("fitted_before", [False, True])
def test_a_part_that_fails_twice_leaves_no_machine(fitted_before: bool) -> None:
    X, y = rings()
    model = ODMClassifier(solver=PartitionSolver(n_parts=4))
    if fitted_before:
        model.fit(X, y)
    model.set_params(solver=PartitionSolver(n_parts=4, engine=FailingEngine(1, 2)))
    with pytest.raises(RuntimeError, match="Part 2 of 4 failed twice with OSError: the worker has gone"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_error_of_the_rows_is_not_tried_again() -> None:
    calls = []

    def work(task: Any, number: int) -> None:
        calls.append(number)
        raise ValueError("the kernel overflows")

    with pytest.raises(ValueError, match="overflows"):
        list(map_with_retry(SerialEngine(), lambda first: iter([lambda: None]), work, 1))
    assert calls == [0]


class PicklingEngine(Engine):
    """Does what a cluster does with the work: sends it as bytes, whose numbers it keeps, and gets bytes back."""

    name: ClassVar[str] = "pickling"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            sent = pickle.dumps((task, work))
            self.sizes.append(len(sent))
            task_there, work_there = pickle.loads(sent)
            yield pickle.loads(pickle.dumps(work_there(task_there(), number)))


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_parts_can_be_sent_to_other_machines(kernel: str) -> None:
    X, y = rings()
    rows = rbf_kernel(X, gamma=0.5) if kernel == "precomputed" else X
    options: dict[str, Any] = {"kernel": kernel, "gamma": 0.5, "random_state": 0, "tol": 1e-3}
    engine = PicklingEngine()
    plain = ODMClassifier(solver=PartitionSolver(n_parts=4), **options).fit(rows, y)
    sent = ODMClassifier(solver=PartitionSolver(n_parts=4, engine=engine), **options).fit(rows, y)
    assert np.array_equal(sent.dual_coef_, plain.dual_coef_)
    assert len(engine.sizes) == 4 + 2  # four parts, then pairs of them
    numbers = 100 * 100 if kernel == "precomputed" else 100 * 2
    assert max(engine.sizes[:4]) < 8 * numbers + 5000  # rows of other parts are not sent along


def test_an_error_in_a_thread_ends_the_fit() -> None:
    X, y = rings()
    calls: list[int] = []

    def kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        calls.append(len(A))
        if len(A) == 100:  # of a part, and not of the landmarks
            raise MemoryError("no memory for the part")
        return rbf_kernel(A, B, gamma=0.5)

    model = ODMClassifier(kernel=kernel, solver=PartitionSolver(n_parts=4, engine=ThreadEngine(3)))
    with pytest.raises(RuntimeError, match="Part 1 of 4 failed twice with MemoryError: no memory for the part"):
        model.fit(X, y)
    assert 100 in calls
    with pytest.raises(NotFittedError):
        model.predict(X)


class ProcessEngine(Engine):
    """Sends parts to processes. The first ``n_killed`` pools lose a worker while it works."""

    name: ClassVar[str] = "processes"

    def __init__(self, n_killed: int) -> None:
        self.n_killed = n_killed

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        self.n_killed -= 1
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            if self.n_killed >= 0:
                pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL)
            for future in [pool.submit(_run, task, work, number) for number, task in enumerate(tasks)]:
                yield future.result()


def _run(task: Callable[[], Any], work: Callable[[Any, int], Any], number: int) -> Any:
    return work(task(), number)


@pytest.mark.slow
def test_a_worker_that_is_killed() -> None:
    X, y = rings()
    options: dict[str, Any] = {"solver": PartitionSolver(n_parts=2), "random_state": 0}
    plain = ODMClassifier(**options).fit(X, y)
    options["solver"] = PartitionSolver(n_parts=2, engine=ProcessEngine(1))
    retried = ODMClassifier(**options).fit(X, y)
    assert np.array_equal(plain.dual_coef_, retried.dual_coef_)
    options["solver"] = PartitionSolver(n_parts=2, engine=ProcessEngine(2))
    with pytest.raises(RuntimeError, match="Part 1 of 2 failed twice with BrokenProcessPool"):
        ODMClassifier(**options).fit(X, y)
