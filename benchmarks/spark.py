"""Spark: files and DataFrames against threads, beside the learners of pyspark.ml, and executors killed at random.

python benchmarks/spark.py [--rows 6000000] [--folder DIR] [--master local[2]] [--repeats 3] [--kills 20]

Needs Java and `pip install 'tithe[spark]'`. A folder of Parquet is generated (and kept, if named). k-means with 8
clusters and logistic regression are fitted in one process: by tithe with threads, with Spark on the same files and on
a DataFrame of them, and by pyspark.ml. Session and workers are started, and kernels compiled, before. The cost is that
on all rows, as tithe measures it for every model. With --kills, a session with two executors
(local-cluster[2,1,1024]) builds a coreset while one of them is killed at a random moment: how often the bits are equal,
and the longest time in units of an undisturbed build.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.clustering import KMeans
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

from common import save, show, timed
from files import CLUSTERS, COLUMNS, generate
from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.certify import total_cost
from tithe.certify.gap import evaluate_all
from tithe.core.passes import DataPass
from tithe.engines import SparkEngine
from tithe.objectives import KMeansObjective, LogisticObjective

NAMES = [f"x{j}" for j in range(COLUMNS)]
TWO_EXECUTORS = "local-cluster[2,1,1024]"


def start(master: str) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").config("spark.driver.memory", "4g").getOrCreate()


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


def run(master: str, folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    session = start(master)
    results: dict[str, dict[str, float]] = {}
    ways = fits(session, folder)
    for way in ways.values():
        way()
    for _ in range(repeats):
        for name, way in ways.items():
            cost, seconds = timed(way)
            before = results.get(name, {"seconds": np.inf})
            results[name] = {"seconds": min(seconds, before["seconds"]), "cost": before.get("cost") or cost()}
    session.stop()
    for name, result in results.items():
        threads = results[f"{name.partition(',')[0]}, tithe, threads, files"]
        result["times threads"] = result["seconds"] / threads["seconds"]
    return results


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


def kills(folder: Path, n_kills: int) -> dict[str, Any]:
    session = start(TWO_EXECUTORS)
    source, rng = open_dataset(folder, target="y", scale="none"), np.random.default_rng(0)

    def build(engine: Any) -> Any:
        objective = KMeansObjective(n_clusters=CLUSTERS)
        return build_coreset(source, objective=objective, coreset_size=5000, engine=engine, random_state=0)

    expected, engine = build("serial"), SparkEngine(session)
    build(engine)
    seconds = timed(lambda: build(engine))[1]
    n_equal, longest = 0, 0.0
    with ThreadPoolExecutor(1) as pool:
        for _ in range(n_kills):
            running = pool.submit(timed, lambda: build(engine))
            time.sleep(seconds * rng.random())
            os.kill(rng.choice(executors()), signal.SIGKILL)
            coreset, taken = running.result()
            n_equal += np.array_equal(coreset.X, expected.X) and np.array_equal(coreset.weights(), expected.weights())
            longest = max(longest, taken / seconds)
    session.stop()
    return {"kills": n_kills, "equal bits": int(n_equal), "longest, in undisturbed builds": longest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        generate(folder, asked.rows)
        ways = run(asked.master, folder, asked.repeats) if asked.repeats else {}
        lost = kills(folder, asked.kills) if asked.kills else {}
    columns = ["seconds", "times threads", "cost"]
    show(f"{asked.rows:,} rows x {COLUMNS}", ["", *columns], [[n, *(r[c] for c in columns)] for n, r in ways.items()])
    show("executors killed", list(lost), [list(lost.values())])
    save("spark", {"rows": asked.rows, "master": asked.master, "fits": ways, "kills": lost})


if __name__ == "__main__":
    main()
