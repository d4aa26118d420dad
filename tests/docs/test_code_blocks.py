"""Every block of code that README, CONTRIBUTING and the documentation show is run, page by page and in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from pages import ROOT, code_blocks, pages
from shown_code import environment, run_command, run_python

import tithe

matplotlib.use("agg")
NAMES = {"CONTRIBUTING.md": {"YourObjective": tithe.objectives.KMeansObjective}}  # that a page leaves to the reader


WITH_PYTHON = [page for page in pages() if any(block.language == "python" for block in code_blocks(page))]
LONG = "docs/guide/trees.md"  # seconds of boosted trees


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow) if p == LONG else p for p in WITH_PYTHON])
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "shown", **NAMES.get(page, {})}
    for block in code_blocks(page):
        if block.language == "python":
            run_python(block.code, names)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if any(b.commands() for b in code_blocks(page))])
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, after the Python blocks before them, which make the files that they read."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "shown", **NAMES.get(page, {})}
    surroundings = environment(tmp_path)
    for block in code_blocks(page):
        if block.language == "python":
            run_python(block.code, names)
            continue
        for command in block.commands():
            done = run_command(command, tmp_path, surroundings)
            assert done.returncode == 0, f"{command}\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("plot_*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    surroundings = {**environment(tmp_path), "MPLBACKEND": "agg"}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
