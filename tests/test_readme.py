"""Everything the README and CONTRIBUTING show is run."""

from __future__ import annotations

import operator
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import tithe

ROOT = Path(__file__).parents[1]


def blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", [*blocks("README.md"), *blocks("CONTRIBUTING.md")])
def test_python_blocks_run(block: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 3))
    objective = tithe.objectives.KMeansObjective(n_clusters=20)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(colour=rng.choice(["red", "blue"], len(X)), y=X[:, 0] > 0)
    (tmp_path / "data").mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(X)), 3)):
        frame.iloc[part].to_parquet(tmp_path / "data" / f"part-{i}.parquet")
    names = {
        "X": X,
        "y": X[:, 0] > 0,
        "labels": np.where(X[:, 0] + rng.logistic(size=len(X)) > 0, "yes", "no"),
        "batches": np.array_split(X, 3),
        "full": tithe.Block(X=X),
        "objective": objective,
        "LogisticRegression": LogisticRegression,
        "YourObjective": tithe.objectives.KMeansObjective,
    }
    exec(block, names)
    if "coreset" in names:
        assert len(names["coreset"]) <= 5000


def test_names_in_the_readme_are_public() -> None:
    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"\btithe\.([A-Za-z_.]*[A-Za-z_])", text):
        operator.attrgetter(path)(tithe)


@pytest.mark.parametrize("kind", ["construction", "engine", "objective"])
def test_the_readme_names_every_construction_engine_and_objective_and_no_other(kind: str) -> None:
    from tithe.core.registry import _ALIASES, names

    text = (ROOT / "README.md").read_text()
    bullet = re.search(rf"^- \*\*{kind}s\*\*.*?(?=^- )", text, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([a-z_]+)`", bullet[0])
    aliases = _ALIASES[kind]
    assert {aliases.get(name, name) for name in named} == {aliases.get(name, name) for name in names(kind)}


def test_links_of_the_readme_work_wherever_it_is_shown() -> None:
    """A package index shows this page without the files beside it."""
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text()):
        assert target.startswith(("https://", "#")), target


def test_extras_named_in_the_readme_are_those_declared() -> None:
    line = re.search(r"\(extras: (.*?)\)", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.findall(r"`([a-z]+)`", line[1]) == list(declared)


def test_changelog_names_this_version() -> None:
    assert f"## {tithe.__version__}" in (ROOT / "CHANGELOG.md").read_text()
