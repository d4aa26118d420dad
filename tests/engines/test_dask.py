"""A Dask cluster of two worker processes gives the bits of the serial engine."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.core.passes import Leaves
from tithe.objectives import KMeansObjective
from tithe.testing import engine_checks

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
from tithe.engines.dask import DaskEngine  # noqa: E402

pytestmark = pytest.mark.slow  # a cluster takes seconds to start, and its workers compile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 17 row groups in all, with a class that follows from the columns."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    for number, n_rows in enumerate((70_000, 30_000, 68_000)):
        X = rng.normal(size=(n_rows, 4)).astype(np.float32) + rng.integers(0, 3, size=(n_rows, 1)) * 4
        y = (X[:, 0] + rng.logistic(size=n_rows) > 4).astype(np.int8)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=10_000)
    return folder


@pytest.fixture
def source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    source = open_dataset(folder, target="y")
    source.leaf_rows = 10_000
    return source


@pytest.mark.parametrize(("name", "check"), list(engine_checks("dask")))
def test_the_contract_of_engines(client: Any, name: str, check: Any) -> None:
    check()


@pytest.mark.parametrize(
    "learner",
    [CoresetKMeans(3, coreset_size=500, random_state=0), CoresetLogisticRegression(coreset_size=500, random_state=0)],
)
def test_learners_have_the_bits_of_the_serial_engine(client: Any, source: Any, learner: Any) -> None:
    results = [learner.set_params(engine=engine).fit(source).__dict__.copy() for engine in ("serial", "dask")]
    for name in ("cluster_centers_", "coef_", "intercept_"):
        if name in results[0]:
            assert np.array_equal(results[0][name], results[1][name])


def test_another_data_set_with_the_same_plan_is_not_mixed_up(client: Any, folder: Path) -> None:
    objective = KMeansObjective(n_clusters=3)
    for part in ("part-0.parquet", "part-1.parquet"):
        coresets = [
            build_coreset(
                open_dataset(folder / part), objective=objective, coreset_size=300, engine=engine, random_state=1
            )
            for engine in ("serial", "dask")
        ]
        assert np.array_equal(coresets[0].X, coresets[1].X)


def _refuse(marks: Path) -> None:
    (marks / f"attempt-{len(list(marks.iterdir()))}").touch()
    raise ValueError("row 17 is bad")


def _ignore(result: Any, number: int) -> None:
    return None


def test_a_bad_row_of_a_task_that_travels_is_not_tried_again(client: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row 17 is bad"):
        list(DaskEngine(client).map([partial(_refuse, tmp_path)], _ignore))
    assert len(list(tmp_path.iterdir())) == 1


def _pretend_cpu(name: str) -> None:
    os.environ["NUMBA_CPU_NAME"] = name


def test_workers_of_other_cpus_are_told(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tithe.engines.dask._COMPARED", set())
    one = next(iter(client.scheduler_info()["workers"]))
    client.run(_pretend_cpu, "another", workers=[one])
    try:
        with pytest.warns(UserWarning, match="different CPUs or versions .* another"):
            assert list(DaskEngine(client).map([int], _ignore)) == [None]
    finally:
        client.run(_pretend_cpu, "", workers=[one])


def test_workers_read_text_files_themselves(client: Any, folder: Path, tmp_path: Path) -> None:
    csv.write_csv(pq.read_table(folder / "part-1.parquet").slice(0, 4000), tmp_path / "rows.csv")
    source = open_dataset(tmp_path / "rows.csv", target="y", scale="none")
    processes = DaskEngine(client).each(Leaves(source, leaf_rows=500), _process)
    assert set(processes) <= set(client.run(os.getpid).values())
    options = {"objective": KMeansObjective(n_clusters=3), "coreset_size": 300, "random_state": 1}
    coresets = [build_coreset(source, engine=engine, **options) for engine in ("serial", "dask")]
    assert np.array_equal(coresets[0].X, coresets[1].X)
    assert np.array_equal(coresets[0].weights(), coresets[1].weights())


def _process(leaf: Any, key: tuple[int, int]) -> int:
    return os.getpid()


def _note_process(folder: Path) -> None:
    (folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    raise RuntimeError("work that compiles may fail")


def test_every_worker_compiles_once(client: Any, tmp_path: Path) -> None:
    for _ in range(2):
        DaskEngine(client).warm_up(f"test {tmp_path}", partial(_note_process, tmp_path))
    for _ in range(100):
        if len(list(tmp_path.iterdir())) >= 2:
            break
        time.sleep(0.1)
    assert list(DaskEngine(client).map([int, int], _ignore)) == [None, None]
    processes = sorted(int(path.name.partition("-")[0]) for path in tmp_path.iterdir())
    assert processes == sorted(client.run(os.getpid).values())
