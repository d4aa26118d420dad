"""Commands run here or in a process of their own, and files for them to read."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tithe import load_coreset
from tithe.cli.main import main
from tithe.storage.checkpoint import load_state
from tithe.storage.values import packed

PLAIN = ("--scale", "none", "--impute", "none")  # rows as they stand in the files

# leaves are made small, so that few rows make many; a test runner may have told its children to ignore Ctrl-C
_PROGRAM = """
import signal
import tithe.reduce.plan, tithe.rows.leaves
from tithe.cli.main import main
tithe.reduce.plan.LEAF_ROWS = tithe.rows.leaves.LEAF_ROWS = {leaf_rows}
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def run(*arguments: Any, force: bool = True) -> int:
    """The exit code of a command. Results of an earlier one may be written over, unless that is what is tested."""
    given = [str(argument) for argument in arguments]
    if force and given[:1] in (["fit"], ["compare"]) and "-o" in given and "--force" not in given:
        given.append("--force")
    try:
        main(given)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def start(*arguments: Any, leaf_rows: int = 1000) -> subprocess.Popen[str]:
    """A command in a process of its own, with small leaves."""
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(leaf_rows=leaf_rows), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def same_rows(first: Path, second: Path) -> bool:
    """Whether two coresets have the same rows and weights, to the last bit, whatever rows told their columns."""
    coresets = [replace(load_coreset(path), schema=None) for path in (first, second)]
    return packed(coresets[0]) == packed(coresets[1])


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rows_table(n_rows: int, seed: int = 0) -> pa.Table:
    """Three clusters in four columns, and a label that depends on two of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)) + 6.0 * rng.integers(0, 3, size=(n_rows, 1))
    label = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=n_rows) > 0, "yes", "no")
    return pa.table({**{f"c{j}": X[:, j] for j in range(4)}, "label": label})


def write_folder(folder: Path, table: pa.Table, n_files: int, group_rows: int = 1000) -> Path:
    """The rows in so many Parquet files of small row groups."""
    folder.mkdir()
    edges = np.linspace(0, table.num_rows, n_files + 1).astype(int)
    for i, (first, last) in enumerate(pairwise(edges)):
        pq.write_table(table.slice(first, last - first), folder / f"part-{i:03d}.parquet", row_group_size=group_rows)
    return folder


def generation(checkpoint: Path) -> int:
    """The number of leaves in the state that a folder holds; 0 if there is none."""
    saved = load_state(checkpoint, missing_ok=True)
    return 0 if saved is None else (saved.state[-1] if isinstance(saved.state, tuple) else saved.state.tree).n_leaves
