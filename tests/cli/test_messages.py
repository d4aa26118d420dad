"""Errors and warnings of the library, as the command line says them: options in place of parameters."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from running import rows_table, run, write_folder

from tithe.cli.fit import fit
from tithe.cli.main import in_options

SAID = {
    "Skip such rows: bad_rows='skip' (--bad-rows skip).": "Skip such rows: --bad-rows skip.",
    "Name those to use: columns=[...].": "Name those to use: --columns.",
    "name its column, target=...": "name its column, --target",
    "raise it: limits=Limits(row_bytes=...) (--limit row_bytes=...).": "raise it: --limit row_bytes=....",
    "more than tol=0.0001. Ask for a larger coreset_size, or": "more than --tol 0.0001. Ask for a larger --size, or",
    "coreset_size=0.5 keeps 7 rows": "--size 0.5 keeps 7 rows",
    "'coreset_size' and my_coreset_size stay": "'coreset_size' and my_coreset_size stay",
    "Raise max_iter=5.": "Raise max_iter=5.",  # tithe fit has no such option
    "polish=2 reads all rows": "--polish 2 reads all rows",
    "random_state must not be negative": "--seed must not be negative",
}


@pytest.mark.parametrize("message", SAID)
def test_parameters_become_options(message: str) -> None:
    with click.Context(fit) as group, click.Context(fit.get_command(group, "logistic")) as ctx:
        assert in_options(message, ctx) == SAID[message]


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "data", rows_table(3000), 2)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["fit", "kmeans", "{data}", "--columns", "c0,c1", "-k", 50, "-m", 20, "-o", "{out}"], "--size 20 keeps 20"),
        (["fit", "logistic", "{data}", "--target", "label", "-m", 1, "-o", "{out}"], "--size 1 keeps 1"),
        (["build", "{data}", "--columns", "c0", "--exclude", "c0", "-k", 3, "-m", 100, "-o", "{out}"], "'c0' is both"),
        (["build", "{data}", "--columns", "c0,nonsense", "-k", 3, "-m", 100, "-o", "{out}"], "nonsense"),
    ],
)
def test_commands_never_name_python_arguments(folder, tmp_path, capsys, command, said: str) -> None:
    places = {"data": folder, "out": tmp_path / "out"}
    assert run(*(str(part).format(**places) for part in command)) == 2
    printed = capsys.readouterr().err
    assert said in printed and not re.search(r"\b[a-z_]+=['\[.\d]", printed)


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.certify.polish.AUTO_DESCENT", 0)
    command = ["fit", "logistic", folder, "--target", "label", "-m", 300, "--tol", 1e-14, "-o", tmp_path / "out"]
    assert run(*command) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "may exceed" in line]
    assert len(lines) == 1 and lines[0].startswith("tithe: ") and "--tol 1e-14" in lines[0]
