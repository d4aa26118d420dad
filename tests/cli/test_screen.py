"""What a person sees in a terminal of 80 or 120 columns, and what a program reads with --json."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from running import rows_table, run, write_folder

from tithe.cli.main import cli
from tithe.cli.screen import print_table, wrapped

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("screen")
    write_folder(folder / "data", rows_table(3000), 2)
    assert run("fit", "logistic", folder / "data", "--target", "label", "-m", 300, "-o", folder / "model", "-q") == 0
    assert run("build", folder / "data", "-k", 3, "-m", 300, "--seed", 1, "-o", folder / "site.parquet", "-q") == 0
    return folder


COMMANDS = {
    "build": ("build", "{data}", "-k", 3, "-m", 300, "-o", "{new}/c.parquet"),
    "fit kmeans": ("fit", "kmeans", "{data}", "-k", 3, "-m", 300, "-o", "{new}/fit"),
    "fit logistic": ("fit", "logistic", "{data}", "--target", "label", "-m", 300, "-o", "{new}/fit"),
    "predict": ("predict", "{model}/model.tithe", "{data}", "-o", "{new}/p.parquet"),
    "merge": ("merge", "{site}", "-o", "{new}/m.parquet"),
    "inspect": ("inspect", "{model}/model.tithe"),
    "size": ("size", "-k", 3, "--data", "{data}", "--theorems", "-m", 400),
    "choose-k": ("choose-k", "{data}", "-m", 300, "--max-clusters", 4),
}


def said(place: Path, new: Path, name: str, capsys, *more: object) -> tuple[str, str]:
    new.mkdir(exist_ok=True)
    known = {"data": place / "data", "model": place / "model", "site": place / "site.parquet", "new": new}
    capsys.readouterr()
    assert run(*(str(part).format(**known) for part in COMMANDS[name]), *more) == 0
    read = capsys.readouterr()
    return read.out, read.err


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_wider_than_the_terminal_and_no_number_is_cut(place, tmp_path, capsys, monkeypatch, name) -> None:
    shown = {}
    for width in (80, 120, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        out, err = said(place, tmp_path / f"w{width}", name, capsys)
        assert max(len(line) for line in (out + err).splitlines() if " " in line.strip()) <= width
        differs = r"\d s\b|second|speed|memory|parquet|report.html|tithe"
        fixed = [line for line in out.splitlines() if not re.search(differs, line)]
        shown[width] = set(NUMBER.findall("\n".join(fixed)))
    assert shown[80] <= shown[400] and shown[120] <= shown[400]


@pytest.mark.parametrize("name", COMMANDS)
def test_one_object_on_standard_output(place, tmp_path, capsys, name) -> None:
    out, _ = said(place, tmp_path, name, capsys, "--json")
    found = json.loads(out)
    assert isinstance(found, dict) and found
    if name.startswith("fit"):
        assert found["n_rows"] + 150 >= 3000 - 150 and found["output"].endswith("fit")


def test_quiet_says_nothing_but_mistakes(place, tmp_path, capsys) -> None:
    assert said(place, tmp_path, "build", capsys, "-q") == ("", "")
    assert run("build", place / "missing.csv", "-k", 3, "-m", 30, "-o", tmp_path / "c.parquet", "-q") == 2
    assert capsys.readouterr().err.startswith("tithe: ")


def test_verbose_shows_where_an_error_comes_from(place, tmp_path, capsys) -> None:
    command = ("build", place / "missing.csv", "-k", 3, "-m", 30, "-o", tmp_path / "c.parquet")
    assert run(*command) == 2 and "Traceback" not in capsys.readouterr().err
    assert run(*command, "-v") == 2 and "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [("fit", "kmeans"), ("fit", "nonsense", "x"), ("build", "x", "--bad"), ("size", "--eps", 3), ("nonsense",)]
)
def test_mistakes_have_one_prefix(wrong, capsys) -> None:
    assert run(*wrong) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("tithe: ") and not any(line.startswith(("Error", "Usage")) for line in lines)


def test_results_are_not_written_over(place, tmp_path, capsys) -> None:
    said(place, tmp_path, "fit kmeans", capsys)
    before = (tmp_path / "fit" / "results.json").read_bytes()
    command = ("fit", "kmeans", place / "data", "-k", 3, "-m", 300, "-o", tmp_path / "fit")
    assert run(*command, force=False) == 2 and "--force" in capsys.readouterr().err
    assert (tmp_path / "fit" / "results.json").read_bytes() == before
    assert run(*command, "--dry-run", force=False) == 0 and run(*command, "--force", "--seed", 5) == 0
    assert (tmp_path / "fit" / "results.json").read_bytes() != before


def test_what_cannot_be_written_is_named_as_it_was_given(place, tmp_path, capsys, monkeypatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", "/elsewhere/tmp1234")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert run("fit", "kmeans", place / "data", "-k", 3, "-m", 300, "-o", tmp_path / "closed") == 2
    read = capsys.readouterr().err
    assert str(tmp_path / "closed") in read and "tmp1234" not in read


@pytest.mark.parametrize(
    "name", ["build", *(pytest.param(name, marks=pytest.mark.slow) for name in ("predict", "merge"))]
)
def test_rows_on_standard_output_are_csv(place, tmp_path, name) -> None:
    known = {"data": place / "data", "model": place / "model", "site": place / "site.parquet", "new": tmp_path}
    command = [str(part).format(**known) for part in COMMANDS[name]]
    command[command.index("-o") + 1] = "-"
    done = subprocess.run([sys.executable, "-m", "tithe", *command], capture_output=True, text=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and "row_id" in lines[0] and len({line.count(",") for line in lines}) == 1
    assert len(lines) == {"predict": 3001}.get(name, len(lines)) and not list(tmp_path.iterdir())


def test_the_time_is_what_was_waited(place, tmp_path, capsys) -> None:
    start = time.perf_counter()
    out, _ = said(place, tmp_path, "fit kmeans", capsys, "--json")
    waited = time.perf_counter() - start
    assert 0.8 * waited - 0.2 <= json.loads(out)["seconds_waited"] <= waited + 0.001  # it is rounded to milliseconds


def test_help_has_groups_with_all_options_once() -> None:
    for name in cli.names():
        command = cli.registered(name)
        if isinstance(command, click.Group) or command.hidden:
            continue
        with click.Context(command, info_name=name, parent=click.Context(cli)) as ctx:
            text = command.get_help(ctx)
            flags = [max(p.opts, key=len) for p in command.get_params(ctx) if isinstance(p, click.Option)]
        assert "\nOutput:\n" in text
        for flag in flags:
            assert len(re.findall(rf"^  .*{flag}(?![\w-])", text, re.M)) >= 1, (name, flag)


def test_a_shell_can_complete_names() -> None:
    surroundings = {**os.environ, "_TITHE_COMPLETE": "bash_complete", "COMP_WORDS": "tithe choo", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "tithe"], capture_output=True, text=True, env=surroundings)
    assert "choose-k" in done.stdout


def test_columns_are_left_out_from_the_right(capsys, monkeypatch) -> None:
    rows = [["a long name of a method", *("1,234,567.125" for _ in range(9))]]
    columns = ["method", *(f"measure {i}" for i in range(9))]
    monkeypatch.setenv("COLUMNS", "80")
    print_table("wide", columns, rows)
    out = capsys.readouterr().out
    assert 3 <= out.count("1,234,567.125") < 9 and "measure 8" in out.splitlines()[-1]
    assert max(map(len, out.splitlines())) <= 80
    assert wrapped("0123456789 " * 20).count("\n") == 2 and "01234567890123456789" not in wrapped("0123456789 " * 20)


def test_warm_up_compiles_by_small_fits(capsys) -> None:
    assert run("warm-up", "kmeans", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["rows"][0][0] == "kmeans"
