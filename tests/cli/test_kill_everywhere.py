"""A thousand kills over build, fit, save, stream, cluster and forget: the same bytes, and no copy of a row."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_search import files_with
from running import rows_table, run, sha, write_folder

KILLS = 170  # of each of the six
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked from one that has imported all")


def _command(arguments: list[str]) -> None:
    """In a process of its own: a command on leaves that are small."""
    import tithe.reduce.plan
    import tithe.rows.leaves
    from tithe.cli.main import main

    tithe.reduce.plan.LEAF_ROWS = tithe.rows.leaves.LEAF_ROWS = 1000
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main(arguments)


class Killer:
    """Starts a command in a new process and kills it after a random time; the time follows what the command takes."""

    def __init__(self, seed: int) -> None:
        self._context: Any = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tithe.cli.main", "tithe.reduce.stream", "tithe.online.paco"])
        self._rng = np.random.default_rng(seed)
        self.longest, self.n_killed = 2.0, 0

    def __call__(self, *arguments: Any) -> bool:
        """Whether it was killed before it had ended."""
        process = self._context.Process(target=_command, args=([str(a) for a in arguments],))
        start = time.monotonic()
        process.start()
        process.join(self._rng.random() * self.longest)
        process.kill()
        process.join()
        killed = bool(process.exitcode == -signal.SIGKILL)
        if not killed:  # it ended by itself: the next ones get less time
            assert process.exitcode == 0, process.exitcode
            self.longest = 0.7 * self.longest + 0.3 * (time.monotonic() - start)
        elif self.longest < 60.0:
            self.longest *= 1.02
        self.n_killed += killed
        return killed


def killed_often(one: Callable[[Killer], None], n_kills: int, seed: int) -> None:
    killer = Killer(seed)
    while killer.n_killed < n_kills:
        one(killer)


def no_litter(folder: Path) -> None:
    assert not [str(p) for p in folder.rglob("*") if p.name.startswith(".") and p.name.endswith(".tmp")]


def built(tmp_path: Path, n_kills: int, seed: int) -> None:
    data = write_folder(tmp_path / "data", rows_table(40_000, seed), 3)
    whole, output = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    command = ["build", data, "-k", 3, "-m", 100, "--target", "label"]
    assert run(*command, "-o", whole) == 0

    def one(killer: Killer) -> None:
        if not killer(*command, "-o", output, "--resume", "--checkpoint-every", 0):
            assert sha(output) == sha(whole)
            output.unlink()

    killed_often(one, n_kills, seed)
    assert run(*command, "-o", output, "--resume") == 0
    assert sha(output) == sha(whole) and not Path(f"{output}.checkpoint").exists()
    no_litter(tmp_path)


def fitted(tmp_path: Path, n_kills: int, seed: int, learner: str = "logistic") -> None:
    data = write_folder(tmp_path / "data", rows_table(40_000, seed), 3)
    whole, output = tmp_path / "whole", tmp_path / "killed"
    command = ["fit", learner, data, "-m", 200, "--target", "label"]
    assert run(*command, "-o", whole) == 0

    def same() -> None:
        assert sha(output / "coreset.parquet") == sha(whole / "coreset.parquet")
        assert sha(output / "model.tithe") == sha(whole / "model.tithe")

    def one(killer: Killer) -> None:
        if not killer(*command, "-o", output, "--resume", "--checkpoint-every", 0):
            same()
            shutil.rmtree(output)

    killed_often(one, n_kills, seed)
    assert run(*command, "-o", output, "--resume") == 0
    same()
    no_litter(tmp_path)


def clustered(tmp_path: Path, n_kills: int, seed: int) -> None:
    data = write_folder(tmp_path / "data", rows_table(1500, seed).drop_columns(["label"]), 2)
    whole, output = tmp_path / "whole", tmp_path / "killed"
    command = ["online", data, "--max-clusters", 5, "--summary-size", 100]
    assert run(*command, "-o", whole) == 0

    def same() -> None:
        assert sha(output / "model.tithe") == sha(whole / "model.tithe")
        assert (output / "results.json").is_file() and (output / "report.html").is_file()

    def one(killer: Killer) -> None:
        done = not killer(*command, "-o", output)
        if done or (output / "model.tithe").exists():
            same()
            shutil.rmtree(output)

    killed_often(one, n_kills, seed)
    if not (output / "model.tithe").exists():
        assert run(*command, "-o", output) == 0
    same()
    no_litter(tmp_path)


class Streamed:
    """A stream that keeps its leaves, and the row ids to forget."""

    def __init__(self, tmp_path: Path, seed: int, name: str) -> None:
        self.folder = tmp_path / name
        self.folder.mkdir()
        self.data = tmp_path / "data"
        table = rows_table(20_000, seed)
        if not self.data.exists():
            write_folder(self.data, table, 3)
        self.rows = np.column_stack([table.column(j).to_numpy() for j in range(4)])
        self.output = self.folder / "out.parquet"
        self.ids = self.folder / "ids.txt"
        self.state, self.leaves = Path(f"{self.output}.checkpoint"), self.folder / "leaves"
        self.common = ["stream", "-o", self.output, "--checkpoint-every", 0]
        self.new = [*self.common, self.data, "-k", 3, "-m", 100, "--leaf-size", 1000, "--target", "label"]

    def go_on(self) -> list[Any]:
        """The command, which goes on where there is a state to go on from."""
        if (self.state / "state.tithe").exists():
            return [*self.common, self.data, "--target", "label", "--resume"]
        for rest in (self.leaves, self.state):  # nothing was kept yet
            shutil.rmtree(rest, ignore_errors=True)
        return [*self.new, "--keep-leaves", self.leaves]

    def forget(self, ids: list[int]) -> list[Any]:
        self.ids.write_text("\n".join(map(str, ids)))
        return [*self.common, "--resume", "--forget", self.ids]


def streamed(tmp_path: Path, n_kills: int, seed: int) -> None:
    whole = Streamed(tmp_path, seed, "whole")
    assert run(*whole.go_on()) == 0

    def one(killer: Killer) -> None:
        killed = Streamed(tmp_path, seed, f"killed-{killer.n_killed}-{time.monotonic_ns()}")
        for _ in range(4):
            if not killer(*killed.go_on()):
                break
        assert run(*killed.go_on()) == 0
        assert sha(killed.output) == sha(whole.output)
        no_litter(killed.folder)
        shutil.rmtree(killed.folder)

    killed_often(one, n_kills, seed)


def forgotten(tmp_path: Path, n_kills: int, seed: int) -> None:
    whole, killed = Streamed(tmp_path, seed, "whole"), Streamed(tmp_path, seed, "killed")
    for stream in (whole, killed):
        assert run(*stream.go_on()) == 0
    rng, gone = np.random.default_rng(seed), []

    def one(killer: Killer) -> None:
        row = int(rng.integers(len(whole.rows)))
        gone.append(row)
        while killer(*killed.forget([row])):
            pass
        assert run(*whole.forget([row])) == 0
        assert sha(killed.output) == sha(whole.output)
        for known in gone[-3:]:
            assert files_with(killed.folder, whole.rows[known]) == []
        no_litter(killed.folder)

    killed_often(one, n_kills, seed)


def saved(tmp_path: Path, n_kills: int, seed: int) -> None:
    """A model of another library."""
    fitted(tmp_path, n_kills, seed, learner="sklearn.tree.DecisionTreeClassifier")


PATHS = {"build": built, "fit": fitted, "save": saved, "cluster": clustered, "stream": streamed, "forget": forgotten}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_killed_often_it_comes_to_the_same(tmp_path, small_leaves, name: str) -> None:
    PATHS[name](tmp_path, KILLS, seed=7)
