"""Parts of a machine on engines that fail or send bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from margin_data import rings
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from tithe.core.passes import Engine, SerialEngine
from tithe.engines.threads import ThreadEngine
from tithe.odm import ODMClassifier, PartitionSolver


class FailingEngine(SerialEngine):
    """Raises at a call of the work, counted from zero, as an engine does whose worker has died for good."""

    name: ClassVar[str] = "failing"

    def __init__(self, failure: int) -> None:
        self.failure = failure

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if number == self.failure:
                raise OSError("the worker has gone")
            yield work(task(), number)


@pytest.mark.parametrize("fitted_before", [False, True])
def test_a_part_that_fails_leaves_no_machine(fitted_before: bool) -> None:
    X, y = rings()
    model = ODMClassifier(solver=PartitionSolver(n_parts=4))
    if fitted_before:
        model.fit(X, y)
    model.set_params(solver=PartitionSolver(n_parts=4, engine=FailingEngine(1)))
    with pytest.raises(OSError, match="the worker has gone"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


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
    with pytest.raises(MemoryError, match="no memory for the part"):
        model.fit(X, y)
    assert 100 in calls
    with pytest.raises(NotFittedError):
        model.predict(X)
