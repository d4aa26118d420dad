"""A Dask cluster of two worker processes gives the bits of the serial engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.objectives import KMeansObjective
from tithe.testing import engine_checks

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
pytestmark = pytest.mark.slow  # a cluster takes seconds to start, and its workers compile


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


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
