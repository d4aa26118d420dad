"""The parameter ``n_jobs`` of learners."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from tithe.core.parallel import limit_threads
from tithe.core.params import WholeNumber

Method = TypeVar("Method", bound=Callable[..., Any])


class _HasJobs(Protocol):
    n_jobs: int | None


def limits_threads(method: Method) -> Method:
    """Run a method of a learner on ``n_jobs`` threads."""

    @functools.wraps(method)
    def limited(learner: _HasJobs, *args: Any, **options: Any) -> Any:
        n_jobs = learner.n_jobs
        if n_jobs is not None and not (WholeNumber(least=1).accepts(n_jobs) or n_jobs == -1):
            raise ValueError(f"n_jobs must be None, -1 or a whole number of at least 1, got {n_jobs!r}.")
        with limit_threads(None if n_jobs == -1 else n_jobs):
            return method(learner, *args, **options)

    return cast(Method, limited)
