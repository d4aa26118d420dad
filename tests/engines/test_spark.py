"""Spark with two executors gives the bits of the serial engine, also when one of them is killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_session import Noting, count_rows, environment, first_id, require_spark, start_session

from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.core.passes import Leaves, MergeTree, Sum, add_sums
from tithe.engines import SparkEngine
from tithe.objectives import KMeansObjective
from tithe.testing import engine_checks

require_spark()
pytestmark = pytest.mark.slow  # a session takes a minute to start, and its workers compile


@pytest.fixture(scope="module")
def session() -> Any:
    return start_session()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 20 row groups in all, with a class that follows from the columns."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    for number, n_rows in enumerate((7_000, 13_000)):
        X = rng.normal(size=(n_rows, 3)).astype(np.float32) + rng.integers(0, 3, size=(n_rows, 1)) * 4
        y = (X[:, 0] + rng.logistic(size=n_rows) > 4).astype(np.int8)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "y": y})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=1_000)
    return folder


@pytest.fixture
def source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Twenty leaves, though leaves are seldom that small."""
    monkeypatch.setattr("tithe.reduce.plan.LEAF_ROWS", 1_000)
    source = open_dataset(folder, target="y")
    source.leaf_rows = 1_000
    return source


def build(source: Any, engine: Any) -> Any:
    objective = KMeansObjective(n_clusters=3)
    return build_coreset(source, objective=objective, coreset_size=250, engine=engine, random_state=1)


def assert_same(a: Any, b: Any) -> None:
    assert np.array_equal(a.row_ids(), b.row_ids()) and np.array_equal(a.X, b.X)
    assert np.array_equal(a.weights(), b.weights()) and np.array_equal(a.totals, b.totals)


@pytest.mark.parametrize(("name", "check"), list(engine_checks("spark")))
def test_the_contract_of_engines(session: Any, name: str, check: Any) -> None:
    check()


@pytest.mark.parametrize(
    "learner",
    [CoresetKMeans(3, coreset_size=250, random_state=0), CoresetLogisticRegression(coreset_size=250, random_state=0)],
)
def test_learners_have_the_bits_of_the_serial_engine(session: Any, source: Any, learner: Any) -> None:
    results = [learner.set_params(engine=engine).fit(source).__dict__.copy() for engine in ("serial", "spark")]
    compared = [name for name in ("cluster_centers_", "coef_", "intercept_") if hasattr(learner, name)]
    assert compared
    for name in compared:
        values = [result["_fitted_values"][name] for result in results]
        assert np.array_equal(*values)
    assert learner.coreset_.provenance["determinism"] == "rows"


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("leaves_per_task", [1, 16])
def test_files_give_the_same_bits_in_any_number_of_tasks(
    session: Any, source: Any, leaves_per_task: int, adaptive: str
) -> None:
    before = session.conf.get("spark.sql.adaptive.enabled")
    session.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        assert_same(build(source, SparkEngine(session, leaves_per_task=leaves_per_task)), build(source, "serial"))
    finally:
        session.conf.set("spark.sql.adaptive.enabled", before)


def test_sixteen_trees_at_most_reach_the_driver(session: Any, source: Any) -> None:
    trees = list(SparkEngine(session, leaves_per_task=1).fold(Leaves(source), count_rows, add_sums))
    assert len(trees) <= 16
    joined = MergeTree[Sum]()
    for tree in trees:
        joined = joined.join(tree, add_sums)
    assert (joined.n_leaves, joined.n_seen) == (20, 20_000)


def test_each_leaf_has_a_result_in_order(session: Any, source: Any) -> None:
    results = list(SparkEngine(session).each(Leaves(source, first=3), first_id))
    assert results == [1000 * number for number in range(3, 20)]


def test_a_bad_row_is_named_and_not_tried_again(session: Any, tmp_path: Path) -> None:
    values = np.arange(3_000, dtype=np.float64)
    values[2_345] = np.inf
    pq.write_table(
        pa.table({"a": values, "b": np.sin(np.arange(3_000))}), tmp_path / "rows.parquet", row_group_size=500
    )
    tries = tmp_path / "tries"

    source = Noting(open_dataset(tmp_path / "rows.parquet", scale="none", impute="none"), str(tries))
    with pytest.raises(ValueError, match=r"rows.parquet', row 2345"):
        list(SparkEngine(session).fold(Leaves(source, leaf_rows=500), count_rows, add_sums))
    assert tries.read_text().count("leaf 4\n") == 1


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0])
def test_a_killed_executor_changes_no_bit(session: Any, source: Any, seconds: float) -> None:
    expected = build(source, "serial")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(build, source, SparkEngine(session, leaves_per_task=2))
        time.sleep(seconds)
        os.kill(executors()[0], signal.SIGKILL)
        assert_same(running.result(timeout=300), expected)


def executors() -> list[int]:
    """The process ids of the executors of this process, which are grandchildren."""
    held = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            ancestors, pid = [], int(path.name)
            while pid > 1:
                pid = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
                ancestors.append(pid)
        except (OSError, ValueError):
            continue
        if b"CoarseGrainedExecutorBackend" in command and b"java" in command[:200] and os.getpid() in ancestors:
            held.append(int(path.name))
    return sorted(held)


def run_alone(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=540,
        env={**os.environ, **environment()},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


CONNECT = """
import sys
import numpy as np
from pyspark.sql import SparkSession
from tithe import CoresetKMeans, build_coreset, open_dataset
from tithe.objectives import KMeansObjective
session = SparkSession.builder.remote("local[2]").getOrCreate()
build = lambda rows, engine: build_coreset(
    rows, objective=KMeansObjective(n_clusters=3), coreset_size=250, engine=engine, random_state=1)
source = open_dataset(sys.argv[1], target="y")
a, b = (build(source, engine) for engine in ("serial", "spark"))
assert np.array_equal(a.X, b.X) and np.array_equal(a.weights(), b.weights())
frame = session.read.parquet(sys.argv[1]).drop("y")
model = CoresetKMeans(3, coreset_size=250, random_state=0, polish=0).fit(frame)
labels = model.predict(frame).select("prediction").toArrow().column(0).to_numpy()
assert np.bincount(labels).sum() == 20_000 and len(np.unique(labels)) == 3
print("equal on", type(session).__module__)
"""


def test_spark_connect(folder: Path) -> None:
    assert "equal on pyspark.sql.connect" in run_alone(CONNECT, str(folder))


STOPPED = """
import sys
import threading
from pyspark.sql import SparkSession
from tithe import build_coreset, open_dataset
from tithe.core.passes import Leaves
from tithe.core.passes import add_sums
from tithe.engines import SparkEngine
import time
session = SparkSession.builder.master("local[1]").getOrCreate()
engine = SparkEngine(session)
def slow(leaf, key):
    time.sleep(60)
threading.Timer(20, session.stop).start()
for _ in range(2):  # while a job runs, and afterwards
    try:
        list(engine.fold(Leaves(open_dataset(sys.argv[1])), slow, add_sums))
    except ConnectionError as error:
        print(error)
"""


def test_a_session_that_ends_is_told(folder: Path) -> None:
    assert run_alone(STOPPED, str(folder)).count("The Spark session has ended") == 2


def test_a_session_is_not_pickled(session: Any) -> None:
    assert pickle.loads(pickle.dumps(SparkEngine(session, leaves_per_task=3))).session is None
