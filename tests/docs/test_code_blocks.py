"""Every block of code that README, CONTRIBUTING and the documentation show is run, page by page and in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from pages import ROOT, CodeBlock, code_blocks, pages

import tithe

matplotlib.use("agg")
NAMES = {"CONTRIBUTING.md": {"YourObjective": tithe.objectives.KMeansObjective}}  # that a page leaves to the reader


@pytest.mark.parametrize("page", [page for page in pages() if any(b.language == "python" for b in code_blocks(page))])
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "shown", **NAMES.get(page, {})}
    for block in code_blocks(page):
        if block.language == "python":
            _run_python(block, names)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if any(b.commands() for b in code_blocks(page))])
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, after the Python blocks before them, which make the files that they read."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "shown", **NAMES.get(page, {})}
    environment = _environment(tmp_path)
    for block in code_blocks(page):
        if block.language == "python":
            _run_python(block, names)
            continue
        for command in block.commands():
            shell = ["bash", "-o", "pipefail", "-c", command]
            done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("plot_*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    environment = {**_environment(tmp_path), "MPLBACKEND": "agg"}
    command = [sys.executable, str(example)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def _run_python(block: CodeBlock, names: dict[str, Any]) -> None:
    exec(compile(block.code, "<block>", "exec"), names)


def _environment(folder: Path) -> dict[str, str]:
    """One in which ``tithe`` and ``python`` are those under test."""
    tools = folder / ".tools"
    tools.mkdir()
    for name, code in (("tithe", ' -c "from tithe.cli.main import main; main()"'), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{code} "$@"\n')
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
