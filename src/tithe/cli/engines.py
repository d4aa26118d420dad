"""``--engine`` and ``--scheduler``: where the passes over the rows run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from tithe.cli.options import make_engine

_CONNECT_SECONDS = 10


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--engine`` and ``--scheduler``."""
    command = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Of a Dask cluster, tcp://host:port. [default: a cluster on this machine, for this run]",
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(["threads", "dask"]),
        default="threads",
        show_default=True,
        help="Where rows are read: in threads, or by the workers of a Dask cluster, which must see the files.",
    )(command)


@contextmanager
def running_engine(engine: str, scheduler: str | None, jobs: int | None) -> Iterator[Any]:
    """The engine that was asked for. A cluster that it needs is started, and ended with the block."""
    if engine == "threads":
        if scheduler is not None:
            raise click.UsageError("--scheduler is for --engine dask.")
        yield make_engine(jobs)
        return
    try:
        from tithe.engines.dask import DaskEngine
    except ImportError as error:
        raise click.UsageError(f"--engine dask: {error}") from error
    with ExitStack() as stack:
        yield DaskEngine(_connected(stack, scheduler, jobs))


def _connected(stack: ExitStack, scheduler: str | None, jobs: int | None) -> Any:
    """A client of the cluster at an address, or of one on this machine with a process for each core."""
    from distributed import Client, LocalCluster

    from tithe.core.parallel import available_threads

    if scheduler is None:
        n_workers = jobs or available_threads()
        cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR")
        return stack.enter_context(Client(stack.enter_context(cluster)))
    if jobs is not None:
        raise click.UsageError("--jobs is for this machine: the workers of a cluster have their own threads.")
    try:
        return stack.enter_context(Client(scheduler, timeout=_CONNECT_SECONDS))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"There is no Dask scheduler at {scheduler!r}: {error}") from error
