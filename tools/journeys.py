"""Count what a reader has to open: the lines of each folder, and the files of some journeys through the package.

    python tools/journeys.py [--lines | --files]

Each journey runs on small data in one thread, with every call of a function of the package traced. The table gives
the files, the distinct functions, and the distinct calls from a function in one file to a function in another.
``--files`` names the files too; ``--lines`` prints lines and files of each folder of the source, and no journey.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

os.environ["TITHE_NUM_THREADS"] = "1"

import numpy as np
import pyarrow as pa
from click.testing import CliRunner
from pyarrow import csv

import tithe
from tithe.cli.main import cli

PACKAGE = os.path.dirname(os.path.abspath(tithe.__file__)) + os.sep
FAMILIES = ("odm", "dictionary", "online")
Function = tuple[str, str]


def trace(journey: Callable[[], Any]) -> tuple[int, int, int]:
    """Files, functions, and calls across files of one run; what only happens at the first use is left out."""
    journey()
    functions: set[Function] = set()
    crossings: set[tuple[Function, Function]] = set()
    names: dict[CodeType, Function | None] = {}

    def function_of(frame: FrameType | None) -> Function | None:
        if frame is None:
            return None
        code = frame.f_code
        if code not in names:
            inside = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")
            names[code] = (code.co_filename, code.co_qualname) if inside else None
        return names[code]

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        called = function_of(frame) if event == "call" else None
        if called is None:
            return
        functions.add(called)
        caller = function_of(frame.f_back)
        if caller is not None and caller[0] != called[0]:
            crossings.add((caller, called))

    sys.setprofile(on_event)
    try:
        journey()
    finally:
        sys.setprofile(None)
    files = sorted({file.removeprefix(PACKAGE) for file, _ in functions})
    if "--files" in sys.argv:
        print("   ", *files)
    return len(files), len(functions), len(crossings)


def journeys(folder: Path) -> dict[str, Callable[[], Any]]:
    """The four journeys, on rows of five columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 5))
    y = (X[:, 0] + rng.logistic(size=len(X)) > 0.0).astype(int)
    rows = folder / "rows.csv"
    csv.write_csv(pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y}), rows)

    def cluster() -> None:
        tithe.CoresetKMeans(n_clusters=3, coreset_size=500, random_state=0).fit(X)

    def classify() -> None:
        output = folder / f"model-{len(list(folder.iterdir()))}"
        result = CliRunner().invoke(
            cli, ["fit", "logistic", str(rows), "--target", "y", "--size", "1000", "--output", str(output)]
        )
        if result.exit_code:
            raise SystemExit(result.output)

    def stream() -> None:
        rows = tithe.CoresetStream("kmeans", coreset_size=500, random_state=0)
        rows.push(X)
        rows.coreset()

    def regress() -> None:
        tithe.CoresetLogisticRegression(coreset_size=1000, random_state=0).fit(X, y)

    def margin() -> None:
        from tithe.odm import ODMClassifier

        ODMClassifier(random_state=0).fit(X[:200], y[:200])

    return {
        "CoresetKMeans().fit(X)": cluster,
        "CoresetLogisticRegression().fit(X, y)": regress,
        "tithe fit logistic rows.csv --target y": classify,
        "CoresetStream.push(X), .coreset()": stream,
        "ODMClassifier().fit(X, y)": margin,
    }


def print_lines() -> None:
    """Lines and files of each folder of the source, of all of it, and of all but the families."""
    counts: dict[str, list[int]] = {}
    for path in sorted(Path(PACKAGE).rglob("*.py")):
        inside = path.relative_to(PACKAGE).parts
        folder = inside[0] if len(inside) > 1 else "(root)"
        n_lines, n_files = counts.setdefault(folder, [0, 0])
        counts[folder] = [n_lines + len(path.read_text().splitlines()), n_files + 1]
    print(f"{'folder':24} {'lines':>8} {'files':>6}")
    for folder, (n_lines, n_files) in sorted(counts.items(), key=lambda item: -item[1][0]):
        print(f"{folder:24} {n_lines:8,} {n_files:6}")
    for title, left_out in (("all", ()), ("without the families", FAMILIES)):
        kept = [count for folder, count in counts.items() if folder not in left_out]
        print(f"{title:24} {sum(n for n, _ in kept):8,} {sum(n for _, n in kept):6}")


def run() -> None:
    if "--lines" in sys.argv:
        print_lines()
        return
    print(f"{'journey':40} {'files':>6} {'functions':>10} {'calls across files':>19}")
    with tempfile.TemporaryDirectory() as folder:
        for name, journey in journeys(Path(folder)).items():
            files, functions, crossings = trace(journey)
            print(f"{name:40} {files:6} {functions:10} {crossings:19}")


if __name__ == "__main__":
    run()
