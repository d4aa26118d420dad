"""A source distribution holds all that it takes to test and change tithe."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tithe import __version__

ROOT = Path(__file__).parents[1]
PARTS = ("src", "tests", "benchmarks", "tools", "docs", "examples", ".ci")
FILES = (
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
)
MADE_HERE = ("__pycache__", "*.egg-info", "*.pyc", "odm_*.png", "*_quick*.json")  # by running, installing, measuring
MADE = (*MADE_HERE, "_build", "gallery", "reference", "sg_execution_times.rst")


def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    copy = tmp_path / "copy"  # without the list of files that an earlier build has left
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns(*MADE))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    wanted = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("tithe-*.tar.gz")
    with tarfile.open(archive) as file:
        held = {str(Path(*Path(member.name).parts[1:])) for member in file if member.isfile()}
    assert wanted - held == set()


def test_the_citation_names_this_version() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf8")
    assert f"\nversion: {__version__}\n" in cited
