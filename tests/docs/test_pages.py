"""What README and documentation say agrees with the code."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from pages import ROOT, pages
from reference_pages import command_page, names_by_job, public_names

import tithe
from tithe.core.registry import _ALIASES, _BUILT_IN, _installed, names, resolve

ENTRY_POINTS = {*_BUILT_IN}  # groups for other packages: tithe.objective, tithe.learner, ...
INSIDE = "CONTRIBUTING.md"  # speaks of modules that are not public
README = (ROOT / "README.md").read_text()


def test_the_readme_fits_on_a_screen_and_names_the_two_commands() -> None:
    assert len(README.splitlines()) <= 105 and "<!--" not in README
    first_screen = README.splitlines()[:30]
    assert any("pip install ." in line for line in first_screen) and "```python" in first_screen
    assert "$ make demo" in README and "$ make test" in README


PUBLIC = public_names()  # the names of each public module, as the reference has them


def test_every_public_name_is_in_one_job_of_the_api() -> None:
    listed = [name for _, names in names_by_job().values() for name in names]
    assert sorted(listed) == sorted(f"{module}.{name}" for module, names in PUBLIC.items() for name in names)


def _mentioned(text: str) -> set[str]:
    """Names after ``tithe.``, and those that code imports."""
    found = set(re.findall(r"\btithe\.[A-Za-z_.]*[A-Za-z_]", text))
    for module, imported in re.findall(r"from (tithe[\w.]*) import ([\w, ]+)", text):
        found |= {f"{module}.{name.split()[0]}" for name in imported.split(",")}
    return found


def _is_public(path: str) -> bool:
    """Whether a path names a public module, a public name in one, or what such a name has."""
    if path in PUBLIC:
        return True
    module = max((name for name in PUBLIC if path.startswith(f"{name}.")), key=len)
    name, *rest = path.removeprefix(f"{module}.").split(".")
    if name not in PUBLIC[module]:
        return False
    thing = getattr(import_module(module), name)
    return all(not part.startswith("_") and hasattr(thing, part) for part in rest)


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("tithe.CoresetKMeans", True),
        ("tithe.odm", True),
        ("tithe.CoresetStream.resume", True),
        ("tithe.objectives.SingleScoreObjective", True),
        ("tithe.testing.check_objective", True),
        ("tithe.linear.regression_objectives", False),
        ("tithe.objectives.single_score", False),
        ("tithe.CoresetKMeans._learn", False),
        ("tithe.core.params.Option", False),
    ],
)
def test_public_is_what_the_reference_has(path: str, public: bool) -> None:
    assert _is_public(path) is public


@pytest.mark.parametrize("page", [page for page in pages() if page != INSIDE])
def test_names_on_the_pages_are_public(page: str) -> None:
    groups = {f"tithe.{name}" for name in ENTRY_POINTS}
    assert not {path for path in _mentioned((ROOT / page).read_text()) - groups if not _is_public(path)}


def test_names_for_contributors_are_there() -> None:
    for module in {path.rpartition(".")[0] for path in _mentioned((ROOT / INSIDE).read_text())}:
        import_module(module)


def test_the_tutorial_has_no_underscore_names() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own_objective.md").read_text(), flags=re.DOTALL)
    assert len(blocks) > 3 and not re.findall(r"(?<!\w)_[a-z]\w*", "".join(blocks))


def test_the_guide_of_streams_names_every_learner_with_partial_fit() -> None:
    """Those that keep a stream inside, which `solve()` learns from, and those that learn from each batch."""
    text = (ROOT / "docs" / "guide" / "streams.md").read_text()
    named = re.search(
        r"The learners on coresets \((.*?)\)\s+have `partial_fit`.*?\(([^()]*) update", text, flags=re.DOTALL
    )
    known = {name: getattr(import_module(module), name) for module, members in PUBLIC.items() for name in members}
    del known["CoresetLinearRegressor"]  # a base class
    having = {name for name, thing in known.items() if inspect.isclass(thing) and hasattr(thing, "partial_fit")}
    keeping = {name for name in having if hasattr(known[name], "solve")}
    assert [set(re.findall(r"`(\w+)`", part)) for part in named.groups()] == [keeping, having - keeping]


@pytest.mark.parametrize("kind", ["construction", "engine", "objective"])
def test_every_construction_engine_and_objective_is_named_and_no_other(kind: str) -> None:
    text = (ROOT / "docs" / "which_construction.md").read_text()
    bullet = re.search(rf"^- \*\*{kind}s\*\*.*?(?=^- |\n\n)", text, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([a-z_]+)`", bullet[0])
    aliases = {**_ALIASES.get(kind, {}), **{name: point.value for name, point in _installed(kind).items()}}
    assert {aliases.get(name, name) for name in named} == {aliases.get(name, name) for name in names(kind)}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    """To a web page, or to a file that is there, or that `make docs` writes."""
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        path = target.partition("#")[0]
        if not path or path.startswith("https://") or re.search(r"(^|/)(gallery|reference)/", path):
            continue
        assert (ROOT / page).parent.joinpath(path).exists(), target


def test_extras_named_in_the_readme_are_those_declared() -> None:
    line = re.search(r"extras: (.*?)\.", README, flags=re.DOTALL)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"`([a-z]+)`", line[1])) == set(declared)


def test_changelog_names_this_version() -> None:
    assert f"## {tithe.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_page_of_the_commands_names_every_command_and_option() -> None:
    """The page is made from the code: an option that is added is on it."""
    from tithe.cli.main import cli

    page = command_page(cli, "tithe")
    commands = {name: resolve("command", name) for name in names("command")}
    commands = {name: command for name, command in commands.items() if not command.hidden}
    for name in (*commands, *(f"fit {learner}" for learner in names("learner"))):
        assert f"# tithe {name}\n" in page
    for command in commands.values():
        for option in (name for parameter in command.params for name in parameter.opts if name.startswith("--")):
            assert f"{option} " in page or f"{option}`" in page or f"{option}," in page, option


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    """What ``make docs`` does, examples of the gallery included."""
    pytest.importorskip("sphinx_gallery")
    command = [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "generated" / "tithe.CoresetKMeans.html").exists()
