"""What a Dask cluster survives with the same bits: killed workers, slow disks, a scheduler that is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow_rows import SlowRows

from tithe import Checkpoint, build_coreset
from tithe.core.data import Coreset
from tithe.objectives import KMeansObjective

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
dask = pytest.importorskip("dask")
pytestmark = pytest.mark.slow  # clusters take seconds to start, and killed workers to start again


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),  # workers take long to start again
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        _build(SlowRows(4), "dask")  # kernels are compiled
        yield client


def _build(rows: Any, engine: Any, **options: Any) -> Coreset:
    objective = KMeansObjective(n_clusters=3, n_init=1)
    return build_coreset(rows, objective=objective, coreset_size=100, engine=engine, random_state=2, **options)


def _same(a: Coreset, b: Coreset) -> bool:
    return np.array_equal(a.X, b.X) and np.array_equal(a.weights(), b.weights()) and a.n_seen == b.n_seen


@pytest.mark.parametrize("moment", np.random.default_rng(7).uniform(0.1, 2.5, size=2).tolist())
def test_a_killed_worker_changes_nothing(client: Any, moment: float) -> None:
    client.wait_for_workers(2, timeout=300)
    expected = _build(SlowRows(32), "serial")
    victim = sorted(client.run(os.getpid).values())[0]
    timer = threading.Timer(moment, os.kill, (victim, signal.SIGKILL))
    timer.start()
    start = time.monotonic()
    assert _same(_build(SlowRows(32, 0.15), "dask"), expected)
    assert time.monotonic() - start < 200
    timer.join()


def test_a_disk_that_does_not_answer_is_asked_again(client: Any, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=300)
    assert _same(_build(SlowRows(8, marks=tmp_path, fault="disk"), "dask"), _build(SlowRows(8), "serial"))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_bad_row_fails_at_once_and_is_named(client: Any, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=300)
    with pytest.raises(ValueError, match=r"'rows.csv', row 17"):
        _build(SlowRows(8, marks=tmp_path, fault="bad row"), "dask")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_kills_its_workers_is_named(client: Any, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=300)
    with pytest.raises(RuntimeError, match=r"workers died at the same task .*leaves_per_task=1"):
        _build(SlowRows(8, marks=tmp_path, fault="kill"), "dask")


def _stop_after_five(n_passes: int, n_leaves: int, n_rows: int) -> None:
    if n_leaves >= 5:
        raise KeyboardInterrupt


@pytest.mark.parametrize("engines", [("serial", "dask"), ("dask", "serial")])
def test_a_checkpoint_is_resumed_by_another_engine(client: Any, tmp_path: Path, engines: tuple[str, str]) -> None:
    client.wait_for_workers(2, timeout=300)
    with pytest.raises(KeyboardInterrupt):
        _build(SlowRows(32), engines[0], checkpoint=Checkpoint(tmp_path), progress=_stop_after_five)
    rest: list[int] = []
    resumed = _build(
        SlowRows(32),
        engines[1],
        checkpoint=Checkpoint(tmp_path, resume=True),
        progress=lambda n_passes, n_leaves, n_rows: rest.append(n_leaves),
    )
    assert _same(resumed, _build(SlowRows(32), "serial")) and rest[-1] < 32


def test_a_lost_scheduler_is_told_soon_and_the_checkpoint_is_of_use(tmp_path: Path) -> None:
    place = str(tmp_path / "scheduler.json")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    scheduler = subprocess.Popen([*command, "--scheduler-file", place], env=environment, **quiet)
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", place, "--nthreads", "1"],
        env=environment,
        cwd=tmp_path,
        **quiet,
    )
    try:
        with distributed.Client(scheduler_file=place, set_as_default=True, timeout=300) as client:
            client.wait_for_workers(1, timeout=300)
            killed: list[float] = []

            def kill(n_passes: int, n_leaves: int, n_rows: int) -> None:
                if n_leaves >= 4 and not killed:
                    scheduler.kill()
                    killed.append(time.monotonic())

            rows = SlowRows(64, 0.2)
            with pytest.raises(ConnectionError, match="scheduler"):
                _build(rows, "dask", checkpoint=Checkpoint(tmp_path / "state"), progress=kill)
            assert time.monotonic() - killed[0] < 30
        rest: list[int] = []
        resumed = _build(
            SlowRows(64),
            "threads",
            checkpoint=Checkpoint(tmp_path / "state", resume=True),
            progress=lambda n_passes, n_leaves, n_rows: rest.append(n_leaves),
        )
        assert _same(resumed, _build(SlowRows(64), "serial")) and rest[-1] < 64
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()
