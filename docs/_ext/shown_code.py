"""The code that a page shows, run in order as a reader would: for the tests, and for the outputs under the code.

``python shown_code.py PAGE`` runs the Python blocks of a page and those of one command, in a new folder, and prints the
output of each as JSON.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"(<!-- not run: [^\n]*-->\n)?```(python|console)\n(.*?)```", flags=re.DOTALL)
_NOT_RUN = ("make ", "pip ", "git ", "export ")  # commands that change the environment
COLUMNS = 96  # of the terminal that commands see: what fits on a page


@dataclass(frozen=True)
class CodeBlock:
    """Code of a page: Python, or lines of a shell; ``end`` is its last character in the text of the page."""

    language: str
    code: str
    end: int

    def commands(self) -> list[str]:
        """The commands of lines that begin with ``$``, without those that change the environment."""
        lines = [line[2:] for line in self.code.splitlines() if line.startswith("$ ")]
        return [line for line in lines if not line.startswith(_NOT_RUN)]


def code_blocks(text: str) -> list[CodeBlock]:
    """The blocks of Python and of shell commands of a page that can be run here, in order."""
    return [CodeBlock(found[2], found[3], found.end()) for found in _BLOCK.finditer(text) if not found[1]]


def environment(folder: Path) -> dict[str, str]:
    """One in which ``tithe`` and ``python`` are those of this process."""
    tools = folder / ".tools"
    tools.mkdir()
    for name, code in (("tithe", ' -c "from tithe.cli.main import main; main()"'), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{code} "$@"\n')
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def run_command(command: str, folder: Path, surroundings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell; what it writes to the terminal is its ``stdout``."""
    shell = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(
        shell, cwd=folder, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def run_python(code: str, names: dict[str, Any]) -> str:
    """Run a block and return what it prints; a value at its end is printed, as a notebook does."""
    body = ast.parse(code)
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.showwarning = lambda message, category, *rest: print(f"{category.__name__}: {message}")
        exec(compile(body, "<block>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<block>", "eval"), names)
            if value is not None and type(value).__module__.partition(".")[0] != "matplotlib":
                print(repr(value))
    return printed.getvalue()


def outputs(text: str, folder: Path) -> list[str]:
    """The output of each block of a page that can be run; that of several commands in one block is left out."""
    names: dict[str, Any] = {"__name__": "shown"}
    surroundings = {**environment(folder), "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    found = []
    for block in code_blocks(text):
        if block.language == "python":
            found.append(run_python(block.code, names))
            continue
        done = [run_command(command, folder, surroundings) for command in block.commands()]
        if any(command.returncode for command in done):
            raise RuntimeError(f"{block.code}\n{done[-1].stdout}")
        found.append(done[0].stdout if len(done) == 1 else "")
    return found


if __name__ == "__main__":
    page = Path(sys.argv[1]).read_text()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        print(json.dumps(outputs(page, Path(name))))
