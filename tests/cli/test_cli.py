from __future__ import annotations

import re
import subprocess
import sys

import click
import numpy as np
import pandas as pd
import pytest
from running import run

from tithe import load_coreset
from tithe.core.registry import names, resolve


@pytest.fixture
def rows(tmp_path, rng: np.random.Generator):
    frame = pd.DataFrame(rng.normal(size=(3000, 3)), columns=["a", "b", "c"])
    frame["w"] = rng.random(3000)
    frame["label"] = np.where(frame["a"] > 0, "up", "down")
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    return path


def test_build_and_inspect(rows, tmp_path, capsys) -> None:
    out = tmp_path / "c.parquet"
    assert run("build", rows, "-k", 3, "-m", 200, "--weight", "w", "--target", "label", "--check", "-o", out) == 0
    printed = capsys.readouterr().out
    for word in ("rows kept", "sensitivity", "distortion", "rows/s", "peak memory"):
        assert word in printed
    coreset = load_coreset(out)
    assert len(coreset) <= 200 and set(coreset.y) == {"up", "down"}
    assert list(pd.read_parquet(out).columns)[:3] == ["a", "b", "c"]
    assert run("inspect", out) == 0
    printed = capsys.readouterr().out
    assert "3,000 rows" in printed and "calibrated" in printed


@pytest.mark.parametrize("construction", ["uniform", "lightweight", "rings"])
def test_build_by_every_construction(rows, tmp_path, construction: str) -> None:
    out = tmp_path / "c.parquet"
    command = ["build", rows, "-m", "0.2", "--construction", construction, "--weight", "w", "--target", "label"]
    assert run(*command, "--no-check", "--no-calibrate", "-o", out) == 0
    assert load_coreset(out).provenance["construction"] == construction


@pytest.mark.parametrize("construction", ["auto", "acvs", "rdsf"])
def test_build_for_logistic_regression(rows, tmp_path, capsys, construction: str) -> None:
    out = tmp_path / "c.parquet"
    command = ["build", rows, "--objective", "logistic", "-C", "0.5", "--target", "label", "--weight", "w"]
    assert run(*command, "-m", 300, "--construction", construction, "--check", "-o", out) == 0
    assert "excess loss" in capsys.readouterr().out
    assert set(load_coreset(out).y) == {"up", "down"}


@pytest.mark.parametrize("construction", ["auto", "sensitivity", "ball_cover"])
def test_build_for_margin_distributions(rows, tmp_path, capsys, construction: str) -> None:
    out = tmp_path / "c.parquet"
    command = ["build", rows, "--objective", "margin", "--lam", "20", "--mu", "0.3", "--theta", "0.1"]
    command += ["--target", "label", "--weight", "w", "-m", 300, "--construction", construction, "--check"]
    assert run(*command, "-o", out) == 0
    assert "excess loss" in capsys.readouterr().out
    coreset = load_coreset(out)
    assert set(coreset.y) == {"up", "down"} and coreset.provenance["objective"] == "margin"


@pytest.mark.slow
def test_size_for_margin_distributions(rows, capsys) -> None:
    command = ["size", "--objective", "margin", "--target", "label", "--weight", "w", "--eps", "0.3"]
    assert run(*command, "--data", rows) == 0
    assert "pilot rule" in (shown := capsys.readouterr().out) and "proved" not in shown
    assert run(*command, "--data", rows, "--theorems") == 0
    shown = capsys.readouterr().out
    assert "lam = 1000, mu = 0.05, theta = 0.8" in shown
    assert "pilot rule" in shown and "sensitivity, proved" in shown
    assert run(*command) == 2


def test_sizes_of_theorems(capsys) -> None:
    """Every theorem has a row; -m adds the error of that number of rows."""
    assert run("size", "--objective", "logistic", "--total-sensitivity", 30, "--features", 10, "-m", 18_574) == 0
    shown = capsys.readouterr().out
    assert "18,574" in shown and "476,590" in shown and "cablr, proved" in shown and "eps of 18,574" in shown
    assert "0.1 " in shown and "1.222 times" in shown
    assert run("size", "-k", 10, "--features", 5) == 0
    shown = capsys.readouterr().out
    assert "147,504,075 draws each" in " ".join(shown.split())
    assert shown.count("rings, proved") == 2 and shown.count("sensitivity, proved") == 2
    assert run("size", "--objective", "dictionary", "--features", 20, "-m", 5) == 0
    shown = capsys.readouterr().out
    assert "2,843" in shown and shown.count("none") == 4
    assert "proved if no row is coded with a larger error" in shown
    assert run("size", "--objective", "dictionary", "--features", 20, "--reference-factor", 3) == 0
    assert "2,064" in capsys.readouterr().out


def test_a_size_from_a_sample_is_an_estimate(rows, capsys, monkeypatch) -> None:
    """The total sensitivity grows with the rows, so a size that was computed from some of them is not proved."""
    command = ["size", "--objective", "margin", "--target", "label", "--weight", "w", "--eps", "0.3", "--data", rows]
    command.append("--theorems")
    monkeypatch.setattr("tithe.theory.sizes.SAMPLE_ROWS", 100)
    assert run(*command) == 0
    shown = capsys.readouterr().out
    assert "sensitivity, estimate" in shown and "proved" not in shown


def test_weights_count_in_the_number_of_rings(tmp_path, capsys) -> None:
    weights = 10.0 ** np.random.default_rng(0).uniform(-3, 3, 500)
    columns = np.column_stack([np.random.default_rng(1).normal(size=(500, 2)), weights])
    np.savetxt(tmp_path / "rows.csv", columns, delimiter=",", header="a,b,w", comments="")
    n_rows = int(np.ceil(weights.sum() / weights.min()))
    sizes = []
    for options in (["--data", tmp_path / "rows.csv", "--weight", "w"], ["--features", 2, "--rows", n_rows]):
        assert run("size", "-k", 2, "--theorems", *options) == 0
        sizes.append([line.split()[0] for line in capsys.readouterr().out.splitlines() if "rings, proved" in line])
    assert sizes[0] == sizes[1] and len(sizes[0]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["build", "ROWS", "-o", "x.parquet", "--objective", "margin", "--weight", "w"],
        ["build", "ROWS", "-o", "x.parquet", "--objective", "margin", "--target", "label", "--theta", "1"],
        ["build", "ROWS", "-o", "x.parquet", "--objective", "margin", "--target", "label", "--mu", "1.5"],
        ["build", "ROWS", "-o", "x.parquet", "--objective", "logistic", "--weight", "w"],
        ["build", "ROWS", "-o", "x.parquet", "--objective", "logistic", "--target", "label", "-C", "0"],
        ["build", "missing.csv", "-o", "x.parquet"],
        ["build", "ROWS", "-o", "x.parquet", "--categories", "error"],  # a column of text
        ["build", "ROWS", "-o", "x.parquet", "-m", "zero"],
        ["build", "ROWS", "-o", "x.parquet", "--weight", "w", "--target", "label", "-m", "0"],
        ["build", "ROWS", "-o", "x.parquet", "--weight", "nope"],
        ["build", "ROWS", "-o", "no/such/folder/x.parquet", "--weight", "w", "--target", "label"],
        ["build", "ROWS"],
        ["build", "ROWS", "-o", "ROWS", "--weight", "w", "--target", "label"],  # over its own input
        ["build", "ROWS", "-o", "x.parquet", "--weight", "w", "--target", "w"],
        ["inspect", "missing.parquet"],
        ["inspect", "ROWS"],
        ["size", "--eps", "2"],
        ["size", "-k", "5", "--features", "3", "--total-sensitivity", "3"],
        ["size", "-k", "5", "--features", "3", "--reference-factor", "3"],
        ["size"],
        ["frobnicate"],
    ],
)
def test_a_callers_mistake_is_exit_code_2(rows, tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    assert run(*[rows if a == "ROWS" else a for a in arguments]) == 2
    assert capsys.readouterr().err.strip()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_anything_else_is_exit_code_1(rows, tmp_path, monkeypatch, capsys) -> None:
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tithe.storage.coresets.pq.write_table", full)
    assert run("build", rows, "--weight", "w", "--target", "label", "-o", tmp_path / "c.parquet") == 1
    assert "No space left" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["rows.parquet"]


def test_columns_named_like_ours_are_renamed(tmp_path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(500, 2)), columns=["y", "b"])
    frame.to_parquet(tmp_path / "r.parquet")
    assert run("build", tmp_path / "r.parquet", "-m", 50, "-o", tmp_path / "c.parquet") == 0
    assert list(pd.read_parquet(tmp_path / "c.parquet").columns) == ["y_", "b", "sample_weight", "row_id"]


def test_a_strangers_text_is_shown_and_not_obeyed(tmp_path, capsys) -> None:
    from tithe import Coreset, save_coreset

    notes = {"construction": "[/evil]", "[link=x]": "\x1b[31mred\x07"}
    save_coreset(Coreset(X=np.ones((1, 1)), n_seen=1, weight_seen=1.0, provenance=notes), tmp_path / "c.parquet")
    assert run("inspect", tmp_path / "c.parquet") == 0
    printed = capsys.readouterr().out
    assert "[/evil]" in printed and "[link=x]" in printed and "\x1b" not in printed and "\x07" not in printed


def test_size(rows, tmp_path, capsys) -> None:
    assert run("size", "-k", 5, "--features", 3, "--eps", 0.2) == 0
    assert "formula" in capsys.readouterr().out
    np.save(tmp_path / "r.npy", np.random.default_rng(0).normal(size=(5000, 3)))
    assert run("size", "-k", 5, "--data", tmp_path / "r.npy") == 0
    assert "pilot rule" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in names("command") if not resolve("command", name).hidden])
def test_every_command_has_an_example_and_a_line_in_the_documentation(name: str) -> None:
    from pathlib import Path

    command = resolve("command", name)
    text = click.Context(command, info_name=name).get_help()
    assert "Example:" in (command.help or "") and f"tithe {name}" in (command.help or "")
    assert all(p.help for p in command.params if isinstance(p, click.Option) and p.name == "size"), text
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "docs" / "guide").glob("*.md")]
    assert any(f"tithe {name}" in page.read_text() for page in pages), "add an example to a page of docs/"


@pytest.mark.parametrize("name", [*names("learner"), "sklearn.naive_bayes.GaussianNB"])
def test_the_help_of_every_learner_has_an_example_that_names_a_target_if_one_is_needed(name: str, capsys) -> None:
    assert run("fit", name, "--help") == 0
    (example,) = re.findall(rf"Example:\n +tithe fit {name} (.*) -o ", capsys.readouterr().out)
    clusters = name in ("kmeans", "kmedians", "gmm", "ksvd", "odm-clustering")
    assert ("--target" in example) is not clusters


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from tithe.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'numba', 'sklearn', 'rich', 'pyarrow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip().endswith("[]")
