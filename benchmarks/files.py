"""Coresets of a folder of Parquet that is larger than the memory allowed: time, peak memory, distortion.

python benchmarks/files.py [--rows 60000000] [--folder DIR] [--repeats 3]

A folder is generated (and kept, if named). In one run, each in a process of its own and from warm files:
a bare read of all columns to C-ordered NumPy arrays with pyarrow, once as one would write it down (a row group
at a time, `np.column_stack`) and once as fast as pyarrow and NumPy can (two threads, copied in blocks that stay in
the cache), and `tithe build` for k-means and for logistic regression at the size that `--dry-run` proposes for a
distortion of 5 %. Then the distortion of both coresets on all rows, by family of queries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import save, show
from tithe import CoresetKMeans, CoresetLogisticRegression, distortion, load_coreset, open_dataset, propose_size
from tithe.core.seeding import rng_for
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.reduce.distortion import random_queries

COLUMNS, CLUSTERS, EPS, FILE_ROWS = 20, 8, 0.05, 2_500_000


def generate(folder: Path, n_rows: int) -> None:
    """Twelve clusters of unequal size and spread, one of a thousandth of the rows; classes of a noisy line."""
    rng = np.random.default_rng(0)
    centers, spread = rng.normal(size=(12, COLUMNS)) * 3.0, rng.uniform(0.5, 2.0, (12, COLUMNS))
    share, line = np.append(rng.dirichlet(np.full(11, 2.0)) * 0.999, 0.001), rng.normal(size=COLUMNS) * 0.4
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, n_rows, FILE_ROWS)):
        path = folder / f"part-{number:03d}.parquet"
        if path.exists():
            continue
        rng, n = np.random.default_rng([1, number]), min(FILE_ROWS, n_rows - start)
        which = rng.choice(12, n, p=share)
        X = centers.astype(np.float32)[which]
        X += spread.astype(np.float32)[which] * rng.standard_normal((n, COLUMNS), dtype=np.float32)
        y = (X @ line + rng.logistic(size=n) > 0).astype(np.int8)
        pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "y": y}), path)


def measured(command: list[str]) -> tuple[float, float]:
    """Wall time in seconds and peak memory in GB of a process, start and imports included."""
    launcher = [sys.executable, "-S", str(Path(__file__).parent / "measured_process.py")]
    seconds, memory = json.loads(subprocess.run([*launcher, *command], check=True, stdout=subprocess.PIPE).stdout)
    return seconds, memory


def families(source: Any, coreset: Any, objective: Any, name: str) -> dict[str, list[Any]]:
    """(a) fitted on all rows, (b) on the coreset, (c) random, drawn beforehand, (d) rough."""
    some = source.sample(200_000, rng=rng_for(99, "some"))
    if name == "kmeans":
        full = [CoresetKMeans(CLUSTERS, polish=2, random_state=99).fit(source).cluster_centers_.astype(float)]
    else:
        model = CoresetLogisticRegression(tol=1e-6, random_state=99).fit(source)
        full = [np.column_stack([model.coef_, model.intercept_])]
    return {
        "(a) full": full,
        "(b) coreset": [objective.solve(coreset, rng=rng_for(99, i)) for i in range(2)],
        "(c) random": random_queries(some, objective, n_bases=4, seed=99),
        "(d) rough": [objective.pilot(some, rng=rng_for(99, "rough"))],
    }


def run(folder: Path, repeats: int) -> dict[str, Any]:
    for path in folder.glob("*.parquet"):
        path.read_bytes()  # into the cache: a disk is not what is compared
    tithe = str(Path(sys.executable).parent / "tithe")
    bare = [sys.executable, str(Path(__file__).parent / "bare_read.py"), str(folder)]
    goals = {
        "kmeans": (["--objective", "kmeans", "-k", str(CLUSTERS)], KMeansObjective(n_clusters=CLUSTERS)),
        "logistic": (["--objective", "logistic"], LogisticObjective(classes=(0, 1))),
    }
    source = open_dataset(folder, target="y")
    sizes = {
        name: propose_size(source, objective=goal, eps=EPS, random_state=0)[0] for name, (_, goal) in goals.items()
    }
    with tempfile.TemporaryDirectory() as made:
        outputs = {name: f"{made}/{name}.parquet" for name in goals}
        commands = {"bare read, plain": [*bare, "plain"], "bare read, fast": [*bare, "fast"]}
        for name, (options, _) in goals.items():
            out = ["-m", str(sizes[name]), "-o", outputs[name], "--seed", "0"]
            commands[f"tithe build {name}"] = [tithe, "build", str(folder), "--target", "y", *options, *out]
        runs: dict[str, list[tuple[float, float]]] = {label: [] for label in commands}
        for _ in range(repeats):
            for label, command in commands.items():
                runs[label].append(measured(command))
        best = {label: (min(t for t, _ in result), max(m for _, m in result)) for label, result in runs.items()}
        errors = {
            name: distortion(source, coreset, goal, queries=families(source, coreset, goal, name)).summary()
            for name, (_, goal) in goals.items()
            for coreset in [load_coreset(outputs[name])]
        }
    return {"n_rows": source.n_rows, "sizes": sizes, "best": best, "runs": runs, "distortion": errors}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        generate(folder, arguments.rows)
        results = run(folder, arguments.repeats)
    plain, fast = results["best"]["bare read, plain"][0], results["best"]["bare read, fast"][0]
    show(
        f"{results['n_rows']:,} x {COLUMNS} float32; best of {arguments.repeats} times, worst memory",
        ["", "seconds", "peak GB", "/ plain read", "/ fast read"],
        [[label, t, memory, t / plain, t / fast] for label, (t, memory) in results["best"].items()],
    )
    for name, result in results["distortion"].items():
        show(
            f"{name}: {results['sizes'][name]:,} rows, as --dry-run proposes for {EPS:.0%}; distortion on all rows",
            ["queries", "median", "largest"],
            [[family, middle, most] for family, (middle, most) in result.items()],
        )
    save("files", results)


if __name__ == "__main__":
    main()
