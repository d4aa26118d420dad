"""What the benchmarks share: data, the unit of time, tables and JSON."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

RESULTS = Path(__file__).parent / "results"


def load_rows(folder: Path, name: str, dtype: str) -> np.ndarray:
    """Rows of ``name.npz``, standardised (pictures are left as they are)."""
    with np.load(folder / f"{name}.npz") as archive:
        X = np.ascontiguousarray(archive["X"], dtype=np.float64)
    if name != "mnist":
        X = StandardScaler().fit_transform(X)
    return np.ascontiguousarray(X, dtype=dtype)


def pass_seconds(X: np.ndarray, repeats: int = 15) -> float:
    """The time of one ``X @ v`` here and now: the median of some.

    BLAS keeps its idle threads spinning for some milliseconds; they are given time to fall asleep,
    so that what is timed next has the cores for itself.
    """
    v = np.ones(X.shape[1], X.dtype)
    median = float(np.median([timed(lambda: X @ v)[1] for _ in range(repeats)]))
    time.sleep(0.1)
    return median


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def show(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """A plain table: text to the left, numbers to the right."""
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in [columns, *rows]]
    width = [max(len(row[j]) for row in cells) for j in range(len(columns))]
    print(f"\n{title}")
    for i, row in enumerate(cells):
        print("  ".join(c.ljust(w) if j == 0 else c.rjust(w) for j, (c, w) in enumerate(zip(row, width, strict=True))))
        if i == 0:
            print("  ".join("-" * w for w in width))


def save(name: str, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    about = {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"about": about, **results}, indent=2) + "\n")
    print(f"\nwritten: benchmarks/results/{path.name}")
