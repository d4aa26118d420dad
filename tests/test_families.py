"""The core does not know the families: with their folders deleted, the rest imports, works and passes its tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAMILIES = ("odm", "dictionary", "online")
# what a test file says that needs a family
NEEDS_A_FAMILY = re.compile(
    r"tithe\.(odm|dictionary|online)|ODM|KSVD|PACO|ImageDenoiser|(Margin|Dictionary)Objective|\"(odm|margin|dictionary|ksvd)\""
)
JOURNEY = """
import pkgutil, sys
from importlib import import_module
import numpy as np
import tithe
from click.testing import CliRunner
from tithe.cli.main import cli
from tithe.core.registry import names, resolve

assert tithe.__file__.startswith(sys.argv[1]), tithe.__file__
for module in pkgutil.walk_packages(tithe.__path__, "tithe."):
    if module.name not in ("tithe.__main__", "tithe.engines.dask", "tithe.engines.spark"):
        import_module(module.name)
for kind in ("objective", "construction", "learner"):
    for name in names(kind):
        resolve(kind, name)
assert "kmeans" in names("learner") and not {"odm", "ksvd"} & {*names("learner")}
X = np.random.default_rng(0).normal(size=(100, 3))
options = {"kmeans": {"n_clusters": 3}, "gmm": {"n_components": 3, "n_init": 1}, "ridge": {}, "logistic": {}}
for name, k in options.items():
    y = X[:, 0] > 0.0 if name == "logistic" else X @ [1.0, 2.0, 3.0]
    model = resolve("learner", name)(coreset_size=50, random_state=0, **k).fit(X, y)
    path = f"{sys.argv[1]}/{name}.model"
    tithe.save_model(model, path)
    assert (tithe.load_model(path).predict(X) == model.predict(X)).all()
listed = CliRunner().invoke(cli, ["--help"]).output
assert "build" in listed and "denoise" not in listed and "online" not in listed
unknown = CliRunner().invoke(cli, ["fit", "odm", "rows.csv", "-o", "model"])
assert unknown.exit_code == 2 and "odm" in unknown.output
"""


def _entry_points(project: dict) -> str:
    """The file in which an installed package has its entry points, without those of the families."""
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, points in groups.items():
        kept = [f"{name} = {path}" for name, path in points.items() if not path.startswith(_prefixes())]
        lines += [f"[{group}]", *kept, ""]
    return "\n".join(lines)


def _prefixes() -> tuple[str, ...]:
    return tuple(f"tithe.{family}." for family in FAMILIES)


@pytest.fixture(scope="module")
def rest(tmp_path_factory) -> Path:
    """A copy of the repository without the three folders, which Python finds before the installed package."""
    root = tmp_path_factory.mktemp("rest")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", *FAMILIES)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=unwanted)
    for file in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / file, root / file)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = root / "src" / "tithe.egg-info"
    about.mkdir()
    (about / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tithe\nVersion: 0\n")
    (about / "entry_points.txt").write_text(_entry_points(project))
    return root


def _run(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), **variables}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True)


def test_without_the_families_the_rest_works(rest: Path) -> None:
    run = _run(rest, "-c", JOURNEY, str(rest), NUMBA_DISABLE_JIT="1")  # compiling would take longer than all else
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_without_the_families_the_tests_of_the_rest_pass(rest: Path) -> None:
    files = [path for path in sorted((rest / "tests").rglob("test_*.py")) if path.name != Path(__file__).name]
    kept = [str(path) for path in files if not NEEDS_A_FAMILY.search(path.read_text())]
    whole_tree = ("test_sdist", "test_benchmarks", "test_get_data", "test_package", "test_fingerprints", "test_quoted")
    kept = [path for path in kept if not any(name in path for name in whole_tree) and "/docs/" not in path]
    assert len(kept) > 60
    run = _run(rest, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *kept)
    assert run.returncode == 0, run.stdout[-3000:]
