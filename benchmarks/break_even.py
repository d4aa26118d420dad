"""From how many rows on does a coreset pay? `CoresetLogisticRegression` beside scikit-learn's fit on all rows.

    python benchmarks/break_even.py --data DIR [--seeds 3]

Both with their defaults (scikit-learn may take 1000 iterations), in one process: CPU time and wall time as ratios, the
best of some fits, and the excess loss over the best fit seen. The third fit is tithe's own on all rows. A ratio below
1 is in favour of tithe. Covertype and KDD Cup 99 with all their classes are fitted once.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from common import generated, load_labelled, save, show
from tithe import Block, CoresetLogisticRegression
from tithe.objectives import LogisticObjective

SETS = ("electricity", "a9a", "higgs_subset", "w8a", "skin_nonskin", "kdd_http")


def data(folder: Path) -> list[tuple[str, Any, np.ndarray]]:
    """Names, rows and classes."""
    sets: list[tuple[str, Any, np.ndarray]] = []
    for n in (20_000, 50_000, 100_000, 300_000, 1_000_000):
        sets.append(("generated", *generated(n)))
    sets += [(name, *load_labelled(folder, name)) for name in SETS]
    X, y = load_labelled(folder, "covtype")
    chosen = np.random.default_rng(0).permutation(len(y))
    sets += [("covtype", X[chosen[:n]], y[chosen[:n]]) for n in (50_000, 100_000, 300_000)]
    sets += [(name, *many_classes(folder, name)) for name in ("covtype", "kddcup99_10pct")]
    return sets


def many_classes(folder: Path, name: str, n_rows: int = 120_000) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows, without those of classes of fewer than ten rows, and the numbers of their classes."""
    with np.load(folder / f"{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    chosen = np.random.default_rng(0).permutation(len(y))[:n_rows]
    classes, counts = np.unique(y[chosen], return_counts=True)
    chosen = chosen[np.isin(y[chosen], classes[counts >= 10])]
    codes = np.unique(y[chosen], return_inverse=True)[1].astype(np.int32)
    return StandardScaler().fit_transform(np.asarray(X[chosen], np.float64)), codes


def fitted(make: Callable[[int], Any], X: Any, y: np.ndarray, seeds: int) -> tuple[Any, float, float]:
    """The last model, and the least CPU and wall seconds."""
    cpu, wall, model = [], [], None
    for seed in range(seeds):
        start = time.process_time(), time.perf_counter()
        model = make(seed).fit(X, y)
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return model, min(cpu), min(wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results, table = [], []
    for name, X, y in data(options.data):
        few = slice(0, 3000)
        n_classes = int(y.max()) + 1
        CoresetLogisticRegression(coreset_size=500).fit(X[few], np.arange(len(y[few])) % n_classes)  # compiles
        makers: dict[str, Callable[[int], Any]] = {
            "scikit-learn": lambda seed: LogisticRegression(max_iter=1000),
            "coreset": lambda seed: CoresetLogisticRegression(random_state=seed),
            "all rows": lambda seed: CoresetLogisticRegression(coreset_size=10_000_000),
        }
        objective, block = LogisticObjective(classes=tuple(range(n_classes))), Block(X=X, y=y.astype(np.int32))
        result: dict[str, Any] = {"data": name, "rows": X.shape[0], "columns": X.shape[1], "classes": n_classes}
        for way, make in makers.items():
            model, cpu, wall = fitted(make, X, y, options.seeds if n_classes == 2 else 1)
            loss = objective.evaluate(block, np.column_stack([model.coef_, model.intercept_])).value
            result[way] = {"cpu": cpu, "wall": wall, "loss": loss}
        best = min(result[way]["loss"] for way in makers)
        peer = result["scikit-learn"]
        for way in makers:
            result[way] |= {"excess": result[way]["loss"] / best - 1.0, "cpu ratio": result[way]["cpu"] / peer["cpu"]}
        table.append(
            [
                name,
                f"{X.shape[0]:,} x {X.shape[1]}, {n_classes} classes",
                peer["cpu"],
                *(result[way][unit] / peer[unit] for way in ("coreset", "all rows") for unit in ("cpu", "wall")),
                *(result[way]["excess"] for way in ("scikit-learn", "coreset")),
            ]
        )
        results.append(result)
    columns = ["data", "rows", "scikit-learn CPU s", "coreset CPU", "wall", "all rows CPU", "wall"]
    show("Ratios to scikit-learn", [*columns, "excess sk", "excess coreset"], table)
    two, more = ([result for result in results if (result["classes"] == 2) == is_two] for is_two in (True, False))
    large = [result for result in two if result["rows"] >= 100_000]
    save("break_even", {"seeds": options.seeds, "results": two, "from 100,000 rows on": large, "more classes": more})


if __name__ == "__main__":
    main()
