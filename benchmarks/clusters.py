"""Dask clusters on this machine: bits, seconds, bytes and tasks, and what they say of a thousand workers.

python benchmarks/clusters.py [--parts scaling place graph kills model peers] [--rows 4000000] [--small-rows 2000000]
                              [--groups 100000] [--kills 20] [--repeats 3] [--folder DIR]

scaling: a build from Parquet files with threads, and with 1 and 2 worker processes: of all rows (strong), and of half
         of them with 1 worker (weak); bytes that workers send one another, and that reach the caller.
place:   the share of persisted rows that moves between workers while they are reduced.
graph:   bytes and tasks that are sent for a source of many row groups, which is simulated, and the seconds they take.
kills:   a worker is killed at random moments of a build; the result must have the same bits.
model:   seconds of a build of 10^12 rows with 1,000 workers of 8 cores, from parts that are measured here.
peers:   KMeans and LogisticRegression of dask-ml on the same rows, where it can be imported.

--rows is the size of scaling, --small-rows that of place, kills and peers. Files of scaling are kept in --folder.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import save, show, timed
from tithe import CoresetKMeans, CoresetLogisticRegression, build_coreset, open_dataset
from tithe.core.contracts import Source
from tithe.core.data import Block, Coreset
from tithe.engines import dask as engine_module
from tithe.engines.dask import DaskEngine
from tithe.objectives import KMeansObjective

N_FEATURES, N_CLUSTERS, SIZE = 20, 20, 5000
OBJECTIVE = KMeansObjective(n_clusters=N_CLUSTERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--small-rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    results = {part: PARTS[part](asked) for part in asked.parts}
    about = {"rows": asked.rows, "small_rows": asked.small_rows, "groups": asked.groups}
    save("clusters", {**about, **results})


def cluster(n_workers: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR")


def rows_of(n_rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=4.0, size=(N_CLUSTERS, N_FEATURES)).astype(np.float32)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    X += centers[rng.integers(0, N_CLUSTERS, n_rows)]
    return X


def write_files(folder: Path, n_rows: int, n_files: int = 8) -> list[Path]:
    """Files of rows, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{n_rows}-{number}.parquet" for number in range(n_files)]
    for number, path in enumerate(paths):
        if not path.exists():
            X = rows_of(n_rows // n_files, number)
            pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(N_FEATURES)}), path, row_group_size=131_072)
    return paths


def build(rows: Any, engine: Any, seed: int = 0) -> Coreset:
    return build_coreset(rows, objective=OBJECTIVE, coreset_size=SIZE, engine=engine, random_state=seed)


def same(a: Coreset, b: Coreset) -> bool:
    return np.array_equal(a.X, b.X) and np.array_equal(a.weights(), b.weights())


def best_seconds(function: Callable[[], Any], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def scaling(asked: argparse.Namespace) -> dict[str, Any]:
    from distributed import Client

    results: dict[str, dict[str, float]] = {}

    def measure(name: str, source: Any, engine: Any, client: Any = None) -> None:
        """The first build starts workers and compiles, and is not counted."""
        assert same(build(source, engine), expected[source])
        before, reached = 0 if client is None else sum(client.run(received).values()), []
        with counting(reached):
            seconds = [timed(lambda: build(source, engine))[1] for _ in range(asked.repeats)]
        moved = 0 if client is None else (sum(client.run(received).values()) - before) / asked.repeats
        caller = sum(reached) / asked.repeats
        results[name] = {"seconds": min(seconds), "between workers": moved, "to the caller": caller}

    with tempfile.TemporaryDirectory() as made:
        paths = write_files((asked.folder or Path(made)) / "scaling", asked.rows)
        whole, half = (open_dataset(some, scale="none") for some in (paths, paths[: len(paths) // 2]))
        expected = {source: build(source, "threads") for source in (whole, half)}
        measure("threads", whole, "threads")
        measure("threads, half of the rows", half, "threads")
        for n_workers in (1, 2):
            with cluster(n_workers) as there, Client(there) as client:
                measure(f"dask, workers: {n_workers}", whole, DaskEngine(client), client)
                if n_workers == 1:
                    measure("dask, workers: 1, half of the rows", half, DaskEngine(client), client)
    ratios = {
        "2 workers / threads": ("dask, workers: 2", "threads"),
        "1 worker / 2 workers (strong)": ("dask, workers: 1", "dask, workers: 2"),
        "1 worker, half / 2 workers (weak)": ("dask, workers: 1, half of the rows", "dask, workers: 2"),
    }
    factors = {name: results[a]["seconds"] / results[b]["seconds"] for name, (a, b) in ratios.items()}
    columns = ["seconds", "between workers", "to the caller"]
    show(
        f"a build of {SIZE} of {asked.rows:,} x {N_FEATURES} rows in Parquet; same bits; best time, mean bytes",
        ["", "seconds", "bytes between workers", "bytes to the caller"],
        [[name, *(f"{r[column]:,.2f}" for column in columns)] for name, r in results.items()],
    )
    show("factors", ["", ""], [[name, f"{factor:.2f}"] for name, factor in factors.items()])
    return {"builds": results, "factors": factors}


@contextmanager
def counting(sizes: list[int]) -> Iterator[None]:
    """Note the bytes of all results that reach the caller."""
    result = engine_module._Run._result

    def counted(run: Any, future: Any) -> Any:
        value = result(run, future)
        sizes.append(len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)))
        return value

    engine_module._Run._result = counted
    try:
        yield
    finally:
        engine_module._Run._result = result


def received(dask_worker: Any) -> int:
    return sum(record["total"] for record in dask_worker.transfer_incoming_log)


def place(asked: argparse.Namespace) -> dict[str, Any]:
    import dask.array as da
    from distributed import Client, wait

    shares = []
    with cluster(2) as there, Client(there) as client:
        n_rows = asked.small_rows
        X = da.random.default_rng(0).normal(size=(n_rows, N_FEATURES), chunks=(n_rows // 16, N_FEATURES))
        X = X.astype(np.float32).persist()
        wait(X)
        for seed in range(5):
            before = sum(client.run(received).values())
            build(X, "dask", seed)
            shares.append((sum(client.run(received).values()) - before) / X.nbytes)
    show(
        "16 persisted chunks on 2 workers: what moves between workers in a build, as a share of all bytes",
        ["build", "share"],
        [[str(i), f"{share:.2%}"] for i, share in enumerate(shares)],
    )
    return {"shares": shares}


class Simulated(Source):
    """A source of many leaves of a few rows, of which each would be a row group of a file."""

    n_features, leaf_rows = 2, 8

    def __init__(self, n_leaves: int) -> None:
        self._n_leaves, self.n_rows = n_leaves, 8 * n_leaves

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return self._n_leaves

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        return (partial(self._leaf, number) for number in range(first, self._n_leaves))

    def _leaf(self, number: int) -> Block:
        return Block(X=np.full((8, 2), float(number)), indices=np.arange(8 * number, 8 * (number + 1)))

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return self._leaf(0)


def _n_tasks(dask_scheduler: Any) -> int:
    """Tasks that the scheduler has seen end, by their names."""
    return sum(prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values())


def graph(asked: argparse.Namespace) -> dict[str, Any]:
    from distributed import Client

    from tithe.core.passes import DataPass

    with cluster(2) as there, Client(there) as client:
        sent: list[int] = []
        send = client._send_to_scheduler
        client._send_to_scheduler = lambda message: (sent.append(len(pickle.dumps(message))), send(message))[1]
        engine = DaskEngine(client, leaves_per_task=1)
        start = time.perf_counter()
        total = DataPass(Simulated(asked.groups), engine).total(lambda leaf: float(leaf.X.sum()))
        seconds = time.perf_counter() - start
        n_tasks = client.run_on_scheduler(_n_tasks)
    assert total == 16.0 * sum(range(asked.groups))
    result = {
        "seconds": seconds,
        "bytes_a_group": sum(sent) / asked.groups,
        "tasks_a_group": n_tasks / asked.groups,
    }
    show(
        f"a pass over {asked.groups:,} simulated row groups, a task each, 2 workers",
        ["", ""],
        [[name, f"{value:,.3f}"] for name, value in result.items()],
    )
    return result


def kills(asked: argparse.Namespace) -> dict[str, Any]:
    from distributed import Client

    rng, times = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), asked.small_rows)
        source = open_dataset(folder, scale="none")
        expected = build(source, "threads")
        with cluster(2) as there, Client(there) as client:
            build(source, DaskEngine(client))
            usual = best_seconds(partial(build, source, DaskEngine(client)))
        for _ in range(asked.kills):  # each in a cluster of its own: a local one does not always replace a dead worker
            with cluster(2) as there, Client(there) as client:
                build(source, DaskEngine(client))
                victim = int(rng.choice(list(client.run(os.getpid).values())))
                timer = threading.Timer(float(rng.uniform(0.05, usual)), os.kill, (victim, signal.SIGKILL))
                timer.start()
                start = time.perf_counter()
                assert same(build(source, DaskEngine(client)), expected), "other bits"
                times.append(time.perf_counter() - start)
                timer.join()
    show(
        f"{asked.kills} builds with a worker killed at a random moment: the same bits",
        ["", "seconds"],
        [["undisturbed", f"{usual:.2f}"], ["median", f"{np.median(times):.2f}"], ["longest", f"{max(times):.2f}"]],
    )
    return {"undisturbed": usual, "seconds": times}


def model(asked: argparse.Namespace) -> dict[str, Any]:
    """Groups of 4 GB, a fan-in of 16; only the parts of one core are measured, the rest is arithmetic."""
    from tithe.core.parallel import limit_threads
    from tithe.reduce.plan import Plan

    n_rows, n_cores, group_bytes = 10**12, 8000, 2**32
    leaf = Block(X=rows_of(262_144, 0))
    with limit_threads(1):
        reducer = Plan.of(OBJECTIVE, "auto", SIZE, calibrate=True, seed=0).start(leaf, n_rows=None)
        node = reducer.leaf(leaf, (0, 0))
        leaf_seconds = best_seconds(lambda: reducer.leaf(leaf, (0, 0)))
        merge_seconds = best_seconds(lambda: reducer.merge(node, node, (1, 0)))
    assert node is not None
    n_groups = n_rows * N_FEATURES * 4 // group_bytes
    n_merges = n_rows // len(leaf)
    seconds = {
        "leaves": n_rows / len(leaf) * leaf_seconds / n_cores,
        "merges": n_merges * merge_seconds / n_cores,
        "scheduler, 1 ms a task": 1.07 * n_groups * 1e-3,
        "reading 80 TB, 1 GB/s a worker": n_rows * N_FEATURES * 4 / 1000 / 1e9,
    }
    rows = [[name, f"{value:,.1f} s"] for name, value in seconds.items()]
    rows += [["groups", f"{n_groups:,}"], ["coresets that travel", f"{1.07 * n_groups * node.n_bytes / 1e9:,.1f} GB"]]
    show("10^12 x 20 rows, 1,000 workers x 8 cores: a model, nothing of it was run", ["", ""], rows)
    return {**seconds, "leaf_seconds": leaf_seconds, "merge_seconds": merge_seconds}


def peers(asked: argparse.Namespace) -> dict[str, Any]:
    """The same persisted rows and two workers for all; costs are those on all rows, as one function measures them."""
    import dask
    import dask.array as da
    from distributed import Client, wait

    n_chunks, line = 16, np.random.default_rng(1).normal(size=N_FEATURES)
    n_rows = asked.small_rows // n_chunks
    results: dict[str, Any] = {}
    with cluster(2) as there, Client(there) as client:
        chunks = [dask.delayed(rows_of)(n_rows, number) for number in range(n_chunks)]
        X = da.concatenate([da.from_delayed(chunk, (n_rows, N_FEATURES), np.float32) for chunk in chunks]).persist()
        y = X.map_blocks(classes_of, line, drop_axis=1, dtype=np.int8).persist()
        wait([X, y])
        for name, fit in {**OWN, **dask_ml_learners()}.items():
            before = sum(client.run(received).values())
            cost, seconds = timed(lambda fit=fit: fit(X, y))
            moved = sum(client.run(received).values()) - before
            results[name] = {"seconds": seconds, "cost": cost(), "bytes between workers": moved}
    show(
        f"{asked.small_rows:,} x {N_FEATURES} persisted rows, 2 workers; first fit, compilation included",
        ["", "seconds", "cost on all rows", "bytes between workers"],
        [
            [name, f"{r['seconds']:.1f}", f"{r['cost']:.8g}", f"{r['bytes between workers']:,}"]
            for name, r in results.items()
        ],
    )
    return results


def classes_of(rows: np.ndarray, line: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(abs(int(rows[0, 0] * 1e6))).logistic(size=len(rows))
    return (0.2 * rows @ line + noise > 0).astype(np.int8)


def _kmeans_fit(learner: Any) -> Callable[[Any, Any], Callable[[], float]]:
    def fit(X: Any, y: Any) -> Callable[[], float]:
        centers = np.asarray(learner.fit(X).cluster_centers_)
        return lambda: _cost(X, centers)

    return fit


def _logistic_fit(learner: Any) -> Callable[[Any, Any], Callable[[], float]]:
    def fit(X: Any, y: Any) -> Callable[[], float]:
        model = learner.fit(X, y)
        coef = np.append(np.ravel(model.coef_), np.ravel(model.intercept_)).astype(np.float64)
        return lambda: _log_loss(X, y, coef)

    return fit


OWN = {
    "tithe, k-means": _kmeans_fit(CoresetKMeans(N_CLUSTERS, random_state=0)),
    "tithe, logistic": _logistic_fit(CoresetLogisticRegression(random_state=0)),
}


def dask_ml_learners() -> dict[str, Any]:
    try:
        from dask_ml.cluster import KMeans
        from dask_ml.linear_model import LogisticRegression
    except Exception as error:
        print(f"dask-ml cannot be imported here: {type(error).__name__}: {error}")
        return {}
    return {
        "dask-ml, k-means": _kmeans_fit(KMeans(N_CLUSTERS, random_state=0)),
        "dask-ml, logistic": _logistic_fit(LogisticRegression(solver="lbfgs", C=1.0)),
    }


def _cost(X: Any, centers: np.ndarray) -> float:
    def of_chunk(rows: np.ndarray) -> np.ndarray:
        distances = (rows**2).sum(axis=1, keepdims=True) - 2.0 * rows @ centers.T + (centers**2).sum(axis=1)
        return np.array([[distances.min(axis=1).sum(dtype=np.float64)]])

    return float(X.map_blocks(of_chunk, chunks=(1, 1), dtype=np.float64).sum().compute())


def _log_loss(X: Any, y: Any, coef: np.ndarray) -> float:
    """The loss of all rows with the penalty of C = 1."""

    def of_chunk(rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        margins = (2.0 * classes[:, 0] - 1.0) * (rows @ coef[:-1] + coef[-1])
        return np.array([np.logaddexp(0.0, -margins).sum()])

    losses = da_map(of_chunk, X, y)
    return float(losses.sum().compute() + 0.5 * coef[:-1] @ coef[:-1])


def da_map(function: Callable[..., Any], X: Any, y: Any) -> Any:
    import dask.array as da

    return da.map_blocks(function, X, y[:, None], drop_axis=1, chunks=((1,) * X.numblocks[0],), dtype=np.float64)


PARTS = {"scaling": scaling, "place": place, "graph": graph, "kills": kills, "model": model, "peers": peers}

if __name__ == "__main__":
    main()
