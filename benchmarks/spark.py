"""Spark on this machine: seconds, bytes and tasks, beside threads and the learners of pyspark.ml; executors killed.

python benchmarks/spark.py [--parts fits scaling groups kills] [--rows 6000000] [--small-rows 2000000] [--groups 1000]
                           [--kills 20] [--repeats 3] [--folder DIR] [--master local[2]]

fits:    k-means with 8 clusters and logistic regression of Parquet files: by tithe with threads, with Spark on the same
         files and on a DataFrame of them, and by pyspark.ml. The cost is that on all rows, by one function for all.
scaling: a build from files with threads, and with 1 and 2 executors of one core: of all rows (strong), and of half of
         them with 1 executor (weak).
groups:  stages, tasks and bytes of a pass over a simulated source of many row groups, a task each.
kills:   one of two executors is killed at random moments of a build; the result must have the same bits.

Needs Java and `pip install 'tithe[spark]'`. --rows is the size of fits and scaling, --small-rows that of kills. Files
of the first two are kept in --folder. Sessions and workers are started, and kernels compiled, before times are taken.
Bytes are those of Spark's event log: what tasks write for a shuffle, and the results that they send to the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.clustering import KMeans
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

import tithe
from clusters import Simulated, write_files
from common import save, show, timed
from files import CLUSTERS, COLUMNS, generate
from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.certify import total_cost
from tithe.certify.gap import evaluate_all
from tithe.core.passes import DataPass
from tithe.engines import SparkEngine
from tithe.objectives import KMeansObjective, LogisticObjective

NAMES = [f"x{j}" for j in range(COLUMNS)]
EXECUTORS = "local-cluster[{},1,2048]"


class Session:
    """A Spark session whose event log tells the bytes and tasks of named calls, once it has ended."""

    def __init__(self, master: str) -> None:
        paths = [str(Path(tithe.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        os.environ.update({"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, paths))})
        self._log = tempfile.TemporaryDirectory()
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "4g",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(self._log.name).as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        self.spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()

    def timed(self, name: str, work: Callable[[], Any]) -> tuple[Any, float]:
        """The result and the seconds of work; its jobs have the name."""
        self.spark.sparkContext.setJobDescription(name)
        result = timed(work)
        self.spark.sparkContext.setJobDescription("")
        return result

    def end(self) -> dict[str, dict[str, int]]:
        """Stop, and tell what the jobs of each name did, all calls together."""
        self.spark.stop()
        names: dict[int, str] = {}
        totals: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
        for path in Path(self._log.name).iterdir():
            for line in path.read_text().splitlines():
                event = json.loads(line)
                if event["Event"] == "SparkListenerJobStart":
                    name = event.get("Properties", {}).get("spark.job.description", "")
                    names |= dict.fromkeys(event["Stage IDs"], name)
                elif event["Event"] == "SparkListenerStageCompleted":
                    totals[names.get(event["Stage Info"]["Stage ID"], "")]["stages"] += 1
                elif event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                    metrics, total = event["Task Metrics"], totals[names.get(event["Stage ID"], "")]
                    total["tasks"] += 1
                    total["shuffled bytes"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                    total["bytes to the driver"] += metrics["Result Size"]
        self._log.cleanup()
        return dict(totals)


COUNTS = ("stages", "tasks", "shuffled bytes", "bytes to the driver")


def build(source: Any, engine: Any) -> Any:
    objective = KMeansObjective(n_clusters=CLUSTERS)
    return build_coreset(source, objective=objective, coreset_size=5000, engine=engine, random_state=0)


def same(a: Any, b: Any) -> bool:
    return np.array_equal(a.X, b.X) and np.array_equal(a.weights(), b.weights())


def kmeans_cost(source: Any, centers: Any) -> float:
    return total_cost(KMeansObjective(n_clusters=CLUSTERS), DataPass(source), np.asarray(centers, np.float64))


def logistic_cost(source: Any, coef: Any, intercept: Any) -> float:
    params = np.column_stack([np.atleast_2d(coef), np.atleast_1d(intercept)]).astype(np.float64)
    return evaluate_all(LogisticObjective(classes=(0, 1)), DataPass(source), params).value


def fits(session: Any, folder: Path) -> dict[str, Any]:
    """For each way, a function that fits, and returns the cost of the model on all rows when it is called."""
    files = open_dataset(folder, target="y", scale="none")
    frame = session.read.parquet(str(folder))
    vectors = VectorAssembler(inputCols=NAMES, outputCol="features").transform(frame)

    def kmeans(rows: Any, engine: Any) -> Any:
        model = CoresetKMeans(CLUSTERS, engine=engine, random_state=0).fit(rows)
        return lambda: kmeans_cost(files, model.cluster_centers_)

    def logistic(rows: Any, engine: Any) -> Any:
        model = CoresetLogisticRegression(engine=engine, random_state=0).fit(rows)
        return lambda: logistic_cost(files, model.coef_, model.intercept_)

    def spark_kmeans() -> Any:
        model = KMeans(k=CLUSTERS, seed=0).fit(vectors)
        return lambda: kmeans_cost(files, np.array(model.clusterCenters()))

    def spark_logistic() -> Any:
        penalty = 1.0 / (files.n_rows or 1)  # of a mean, as C = 1 is of a sum
        model = LogisticRegression(labelCol="y", regParam=penalty, standardization=False).fit(vectors)
        return lambda: logistic_cost(files, model.coefficients.toArray(), model.intercept)

    ways: dict[str, Any] = {}
    for name, fit in (("k-means", kmeans), ("logistic", logistic)):
        ways[f"{name}, tithe, threads, files"] = lambda fit=fit: fit(files, "threads")
        ways[f"{name}, tithe, Spark, files"] = lambda fit=fit: fit(files, SparkEngine(session))
        ways[f"{name}, tithe, Spark, DataFrame"] = lambda fit=fit: fit(
            open_dataset(frame, target="y", scale="none"), "auto"
        )
    ways["k-means, pyspark.ml"] = spark_kmeans
    ways["logistic, pyspark.ml"] = spark_logistic
    return ways


def executors() -> list[int]:
    """The process ids of the executors that this process has started."""
    held = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, pid, ancestors = (path / "cmdline").read_bytes(), int(path.name), []
            while pid > 1:
                pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
                ancestors.append(pid)
        except (OSError, ValueError):
            continue
        if b"CoarseGrainedExecutorBackend" in command and os.getpid() in ancestors:
            held.append(int(path.name))
    return held


# -- parts -------------------------------------------------------------------------------------------------------------


def fitted(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    generate(folder / "fits", asked.rows)
    session = Session(asked.master)
    results: dict[str, dict[str, float]] = {}
    ways = fits(session.spark, folder / "fits")
    for way in ways.values():
        session.timed("first", way)
    for _ in range(asked.repeats):
        for name, way in ways.items():
            cost, seconds = session.timed(name, way)
            before = results.get(name, {"seconds": np.inf})
            results[name] = {"seconds": min(seconds, before["seconds"]), "cost": before.get("cost") or cost()}
    counts = session.end()
    for name, result in results.items():
        threads = results[f"{name.partition(',')[0]}, tithe, threads, files"]
        result["times threads"] = result["seconds"] / threads["seconds"]
        result |= {key: value / asked.repeats for key, value in counts.get(name, dict.fromkeys(COUNTS, 0)).items()}
    columns = ["seconds", "times threads", "cost", *COUNTS]
    rows = [[name, *(result[column] for column in columns)] for name, result in results.items()]
    show(f"{asked.rows:,} x {COLUMNS} rows, best of {asked.repeats}", ["", *columns], rows)
    return results


def scaling(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    paths = write_files(folder / "scaling", asked.rows)
    whole, half = (open_dataset(some, scale="none") for some in (paths, paths[: len(paths) // 2]))
    expected = {source: build(source, "threads") for source in (whole, half)}
    seconds: dict[str, float] = {}
    counts: dict[str, dict[str, int]] = {}

    def measure(name: str, source: Any, engine: Any, watch: Callable[..., tuple[Any, float]]) -> None:
        assert same(build(source, engine), expected[source]), "other bits"
        seconds[name] = min(watch(name, lambda: build(source, engine))[1] for _ in range(asked.repeats))

    measure("threads", whole, "threads", lambda name, work: timed(work))
    for n_executors in (1, 2):
        session = Session(EXECUTORS.format(n_executors))
        measure(f"executors: {n_executors}", whole, SparkEngine(session.spark), session.timed)
        if n_executors == 1:
            measure("executors: 1, half of the rows", half, SparkEngine(session.spark), session.timed)
        counts |= session.end()
    rows = [
        [name, s, *(counts.get(name, {}).get(count, 0) / asked.repeats for count in COUNTS)]
        for name, s in seconds.items()
    ]
    show(f"a build of {asked.rows:,} x {COLUMNS} rows; the same bits", ["", "seconds", *COUNTS], rows)
    factors = {
        "2 executors / threads": seconds["executors: 2"] / seconds["threads"],
        "1 executor / 2 executors (strong)": seconds["executors: 1"] / seconds["executors: 2"],
        "1 executor, half / 2 executors (weak)": seconds["executors: 1, half of the rows"] / seconds["executors: 2"],
    }
    show("factors", ["", ""], [[name, f"{factor:.2f}"] for name, factor in factors.items()])
    return {"seconds": seconds, "factors": factors, "counts": counts}


def groups(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    session = Session(asked.master)
    engine = SparkEngine(session.spark, leaves_per_task=1)

    def total() -> float:
        return DataPass(Simulated(asked.groups), engine).total(lambda leaf: float(leaf.X.sum()))

    DataPass(Simulated(4), engine).total(lambda leaf: float(leaf.X.sum()))
    value, seconds = session.timed("pass", total)
    assert value == 16.0 * sum(range(asked.groups))
    result = {"seconds": seconds, **session.end()["pass"]}
    rows = [[name, f"{value:,.0f}"] for name, value in result.items()]
    show(f"a pass over {asked.groups:,} simulated row groups, a task each", ["", ""], rows)
    return result


def kills(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as made:
        generate(Path(made), asked.small_rows)
        source, session = open_dataset(made, target="y", scale="none"), Session(EXECUTORS.format(2))
        expected, engine = build(source, "serial"), SparkEngine(session.spark)
        build(source, engine)
        undisturbed = min(timed(lambda: build(source, engine))[1] for _ in range(3))
        n_equal, seconds = 0, []
        with ThreadPoolExecutor(1) as pool:
            for _ in range(asked.kills):
                while len(executors()) < 2:
                    time.sleep(0.2)
                running = pool.submit(timed, lambda: build(source, engine))
                time.sleep(undisturbed * rng.random())
                os.kill(int(rng.choice(executors())), signal.SIGKILL)
                coreset, taken = running.result()
                n_equal += same(coreset, expected)
                seconds.append(taken)
        session.end()
    result = {"kills": asked.kills, "equal bits": n_equal, "undisturbed": undisturbed}
    result |= {"median": float(np.median(seconds)), "longest": max(seconds)}
    show(f"executors killed, {asked.small_rows:,} rows; seconds", list(result), [list(result.values())])
    return {**result, "seconds": seconds}


PARTS = {"fits": fitted, "scaling": scaling, "groups": groups, "kills": kills}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--small-rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files of fits and scaling are kept")
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        results = {part: PARTS[part](asked, folder) for part in asked.parts}
    save("spark", {"rows": asked.rows, "small_rows": asked.small_rows, "master": asked.master, **results})


if __name__ == "__main__":
    main()
