"""Every benchmark has a line in the README of the benchmarks, and can be imported."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
FILES = sorted(BENCHMARKS.glob("*.py"))
NEED_CLUSTERS = ("clusters", "spark")  # Dask and pyspark are not installed for the tests


def mains() -> list[Path]:
    """The files that are run, without those that another one runs in a process of its own."""
    texts = {path: path.read_text() for path in FILES}
    called = {name for text in texts.values() for name in re.findall(r'"(\w+\.py)"', text)}
    return [path for path, text in texts.items() if '__name__ == "__main__"' in text and path.name not in called]


@pytest.mark.parametrize("path", mains(), ids=lambda path: path.stem)
def test_the_readme_of_the_benchmarks_has_a_line_for_it(path: Path) -> None:
    assert f"| `{path.name}` |" in (BENCHMARKS / "README.md").read_text()


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in NEED_CLUSTERS], ids=lambda path: path.stem)
def test_it_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:  # benchmarks import one another by names as short as "common"
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
                del sys.modules[name]


def test_every_kept_result_is_named_in_the_readme_of_the_benchmarks() -> None:
    page = (BENCHMARKS / "README.md").read_text()
    patterns = [re.escape(name).replace(r"\*", ".*") for name in re.findall(r"`([\w*]+\.json)`", page)]
    unnamed = [
        path.name
        for path in sorted((BENCHMARKS / "results").glob("*.json"))
        if not any(re.fullmatch(pattern, path.name) for pattern in patterns)
    ]
    assert unnamed == []


def test_results_have_the_command_without_the_place_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("benchmark_common", BENCHMARKS / "common.py")
    assert spec is not None and spec.loader is not None
    common = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(common)
    monkeypatch.setattr(sys, "argv", ["/somewhere/theory.py", "--data", "/home/me/data", "--methods", "RDSF ols"])
    assert common.command() == "python benchmarks/theory.py --data DIR --methods 'RDSF ols'"
