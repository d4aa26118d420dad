"""A build that is stopped or killed at any moment goes on to the same bytes."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from running import generation, rows_table, run, sha, start, write_folder

OPTIONS = {
    "kmeans": ["--objective", "kmeans", "-k", 3, "--target", "label"],
    "logistic": ["--objective", "logistic", "--target", "label"],
}


def build(folder: Path, output: Path, objective: str) -> list[object]:
    return ["build", folder, *OPTIONS[objective], "-m", 100, "-o", output]


def wait_for(process, checkpoint: Path, number: int) -> None:
    """Until the state has been written so many times, or the process has ended."""
    while process.poll() is None and generation(checkpoint) < number:
        time.sleep(0.002)


def killed_and_resumed(tmp_path: Path, objective: str, n_kills: int, n_leaves: int, seed: int) -> None:
    folder = write_folder(tmp_path / "data", rows_table(1000 * n_leaves, seed), 3)
    whole, output = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    assert run(*build(folder, whole, objective)) == 0
    checkpoint = tmp_path / "killed.parquet.checkpoint"
    rng = np.random.default_rng(seed)
    n_killed = 0
    for i in range(n_kills):
        process = start(*build(folder, output, objective), "--checkpoint-every", 0, "--resume")
        # somewhere on the way: before the first checkpoint as well, and in the middle of writing one
        wait_for(process, checkpoint, generation(checkpoint) + int(rng.integers(0, 2 * n_leaves // n_kills)))
        time.sleep(rng.random() * (3.0 if i == 0 else 0.05))
        process.kill()
        process.communicate()
        n_killed += process.returncode == -signal.SIGKILL
        assert not [p for p in tmp_path.glob("killed.parquet*") if p not in (output, checkpoint)]
        if output.exists():  # it was too late, and all is done
            assert sha(output) == sha(whole)
            output.unlink()
    assert run(*build(folder, output, objective), "--resume") == 0
    assert n_killed >= n_kills // 2
    assert sha(output) == sha(whole) and not checkpoint.exists()


@pytest.mark.slow
def test_a_killed_build_goes_on_to_the_same_bytes(tmp_path, small_leaves) -> None:
    killed_and_resumed(tmp_path, "kmeans", n_kills=1, n_leaves=20, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OPTIONS)
def test_a_build_killed_twenty_times_goes_on_to_the_same_bytes(tmp_path, small_leaves, objective: str) -> None:
    killed_and_resumed(tmp_path, objective, n_kills=20, n_leaves=200, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "number"),
    [("kmeans", signal.SIGINT), pytest.param("logistic", signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_a_stopped_build_says_how_to_go_on(
    tmp_path, small_leaves, capsys, objective: str, number: signal.Signals
) -> None:
    folder = write_folder(tmp_path / "data", rows_table(40_000), 2)
    whole, output = tmp_path / "whole.parquet", tmp_path / "it is stopped.parquet"
    assert run(*build(folder, whole, objective)) == 0
    checkpoint = tmp_path / "it is stopped.parquet.checkpoint"
    process = start(*build(folder, output, objective), "--checkpoint-every", 0)
    wait_for(process, checkpoint, 7)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said and generation(checkpoint) >= 7 and not output.exists()
    going_on = shlex.split(said.partition("Go on with: ")[2])
    assert going_on[:2] == ["tithe", "build"] and going_on[-1] == "--resume"
    assert run(*going_on[1:]) == 0 and "Going on from" in capsys.readouterr().err
    assert sha(output) == sha(whole) and not checkpoint.exists()
