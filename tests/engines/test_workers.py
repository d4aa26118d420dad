"""The kinds of the workers of a cluster. No cluster is needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tithe.engines import spark
from tithe.engines.groups import Failure, call_task, kind_of_worker, warn_if_kinds_differ


def test_workers_of_one_kind_are_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_kinds_differ([("a", kind_of_worker()), ("b", kind_of_worker())])


def test_workers_of_other_cpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = kind_of_worker()
    monkeypatch.setenv("NUMBA_CPU_NAME", "another")
    with pytest.warns(UserWarning, match=r"\(a: .*; c: .* another.*NUMBA_CPU_NAME=haswell"):
        warn_if_kinds_differ([("a", usual), ("b", usual), ("c", kind_of_worker())])


class _Session:
    """Two executors, of which the second has another CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.n_jobs = 0

    def range(self, stop: int) -> _Session:
        return self

    def mapInArrow(self, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> _Session:
        self.n_jobs += 1
        self._batches = [*function(iter([]))]
        self._monkeypatch.setenv("NUMBA_CPU_NAME", "another")
        self._batches += function(iter([]))
        return self

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(self._batches)


def test_executors_are_counted_and_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    session = _Session(monkeypatch)
    with pytest.warns(UserWarning, match="different CPUs or versions .* another"):
        assert spark._n_threads(session) == 2
    assert spark._n_threads(session) == 2 and session.n_jobs == 1


def test_an_error_that_another_attempt_would_repeat_is_a_result() -> None:
    bad = call_task(lambda value, number: int(value), lambda: "text", 0)
    assert isinstance(bad, Failure) and isinstance(bad.error, ValueError)
    with pytest.raises(ZeroDivisionError):
        call_task(lambda value, number: 1 // value, lambda: 0, 0)
