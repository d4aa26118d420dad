"""What the benchmarks share: data, the unit of time, tables and JSON."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler, StandardScaler

RESULTS = Path(__file__).parent / "results"


def load_rows(folder: Path, name: str, dtype: str) -> np.ndarray:
    """Rows of ``name.npz``, standardised (pictures are left as they are)."""
    with np.load(folder / f"{name}.npz") as archive:
        X = np.ascontiguousarray(archive["X"], dtype=np.float64)
    if name != "mnist":
        X = StandardScaler().fit_transform(X)
    return np.ascontiguousarray(X, dtype=dtype)


# sets whose dense rows have another scale at the source of the logistic paper than the standardised one
AS_PUBLISHED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "covtype": lambda X: MinMaxScaler().fit_transform(X),
    "ijcnn1": lambda X: X,
}


def load_labelled(
    folder: Path, name: str, scale: Callable[[np.ndarray], np.ndarray] | None = None
) -> tuple[Any, np.ndarray]:
    """Rows and classes 0 and 1 (int32) of ``name.npz``: float64, dense rows standardised or as ``scale`` has them.

    Covertype has seven classes; class 2 stands against the rest.
    """
    with np.load(folder / f"{name}.npz") as archive:
        y = (archive["y"] == 2 if name == "covtype" else archive["y"] > 0).astype(np.int32)
        if "indptr" not in archive.files:
            X = np.ascontiguousarray(archive["X"], np.float64)
            return (StandardScaler().fit_transform(X) if scale is None else scale(X)), y
        indices = archive["indices"].astype(np.int32)
        values = np.ones(len(indices)) if archive["all_ones"] else archive["data"].astype(np.float64)
        return sparse.csr_matrix((values, indices, archive["indptr"]), shape=tuple(archive["shape"])), y


def two_class_sets(folder: Path) -> list[str]:
    """Names of the sets whose labels are -1 and +1."""
    outcomes = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            if "y" in archive.files and set(np.unique(archive["y"]).tolist()) == {-1, 1}:
                outcomes.append(path.stem)
    return outcomes


def generated(n: int, d: int = 28, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) float32 and labels 0 and 1 (int8), made block by block; of the kind and width of HIGGS.

    Correlated columns, every fourth one skewed, every seventh one (from the second) heavy-tailed;
    labels of a noisy logistic line with an interaction that the line cannot see.
    """
    rng = np.random.default_rng(seed)
    mix = (rng.normal(size=(d, d)) / np.sqrt(d) * 0.6 + np.eye(d)).astype(np.float32)
    line = rng.normal(size=d) * 0.25
    X, y = np.empty((n, d), np.float32), np.empty(n, np.int8)
    for start in range(0, n, 100_000):
        stop = min(n, start + 100_000)
        rows = rng.normal(size=(stop - start, d)).astype(np.float32) @ mix
        rows[:, ::4] = np.abs(rows[:, ::4]) ** 1.5
        rows[:, 1::7] *= np.exp(0.5 * rng.normal(size=(stop - start, 1))).astype(np.float32)
        margin = rows @ line + 0.3 * rows[:, 0] * rows[:, 3] - 0.4
        X[start:stop] = rows
        y[start:stop] = rng.random(stop - start) < 1.0 / (1.0 + np.exp(-margin))
    return X, y


def pass_seconds(X: Any, repeats: int = 15) -> float:
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


def rounded(value: Any) -> Any:
    """The value with all floats in it cut to five digits, so that a file of results stays small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def command() -> str:
    """What was run, without the place of the data."""
    words = [shlex.quote(word) for word in sys.argv[1:]]
    places = [i + 1 for i, word in enumerate(words) if word in ("--data", "--folder")]
    return " ".join(
        ["python", f"benchmarks/{Path(sys.argv[0]).name}", *("DIR" if i in places else w for i, w in enumerate(words))]
    )


def save(name: str, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    about = {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"about": about, "command": command(), **rounded(results)}, indent=1) + "\n")
    print(f"\nwritten: benchmarks/results/{path.name}")
