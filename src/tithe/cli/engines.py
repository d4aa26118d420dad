"""``--engine``, ``--scheduler`` and ``--master``: where the passes over the rows run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from tithe.cli.options import make_engine

_CONNECT_SECONDS = 10


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--engine`` and ``--scheduler``, for Spark also ``--master``."""
    command = click.option(
        "--scheduler",
        "--master",
        "scheduler",
        metavar="ADDRESS",
        help="Of a Dask cluster, tcp://host:port; of Spark local[2], spark://host:port, yarn, or sc://host:port for "
        "Spark Connect. [default: a cluster on this machine, for this run]",
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(["threads", "dask", "spark"]),
        default="threads",
        show_default=True,
        help="Where rows are read: in threads, or by the workers of a Dask or Spark cluster, which must see the files.",
    )(command)


@contextmanager
def running_engine(engine: str, scheduler: str | None, jobs: int | None) -> Iterator[Any]:
    """The engine that was asked for. A cluster that it needs is started, and ended with the block."""
    if engine == "threads":
        if scheduler is not None:
            raise click.UsageError("--scheduler and --master are for --engine dask and --engine spark.")
        yield make_engine(jobs)
        return
    if engine == "spark":
        with _spark_session(scheduler, jobs) as session:
            from tithe.engines import SparkEngine

            yield SparkEngine(session)
        return
    try:
        from tithe.engines.dask import DaskEngine
    except ImportError as error:
        raise click.UsageError(f"--engine dask: {error}") from error
    with ExitStack() as stack:
        yield DaskEngine(_connected(stack, scheduler, jobs))


@contextmanager
def _spark_session(master: str | None, jobs: int | None) -> Iterator[Any]:
    """A session of Spark at a master, or on this machine with a process for each core; it ends with the block."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise click.UsageError("--engine spark needs Spark: pip install 'tithe[spark]', and Java 17.") from error
    from tithe.core.parallel import available_threads

    if master is not None and jobs is not None:
        raise click.UsageError("--jobs is for this machine: the executors of a cluster have their own cores.")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tithe")
    if master is not None and master.startswith("sc://"):
        session = builder.remote(master).getOrCreate()
    else:
        local = f"local[{jobs or available_threads()}]"
        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        session = builder.master(master or local).config(map=quiet).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


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
