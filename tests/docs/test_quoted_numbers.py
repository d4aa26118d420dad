"""Measurements that README and documentation quote are those of the kept results, and their script works."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LARGEST = 50_000  # bytes of a kept file


def script() -> Any:
    spec = importlib.util.spec_from_file_location("quoted_numbers", ROOT / "tools" / "quoted_numbers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NUMBERS = script()
PAGES = [str(path.relative_to(ROOT)) for path in NUMBERS.PAGES]


@pytest.mark.parametrize("page", PAGES)
def test_quoted_numbers_are_those_of_the_kept_results(page: str) -> None:
    advice = "run python tools/quoted_numbers.py; README.md is made from tools/readme.md"
    assert (ROOT / page).read_text() == NUMBERS.made_anew(ROOT / page), advice


# made whole by a script; and trials of code that is gone, which no kept result has
NOT_QUOTED = ("docs/papers.md", "docs/tried_and_lost.md")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_QUOTED])
def test_no_measurement_is_written_by_hand(page: str) -> None:
    path = NUMBERS.TEMPLATE if page == "README.md" else ROOT / page
    assert NUMBERS.unmarked_numbers(path.read_text()) == []


def bench_commands() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    recipe = "".join(makefile.partition(f"\n{target}:")[2].partition("\n\n")[0] for target in ("papers", "bench"))
    lines = re.findall(r"\$\(BIN\)/(python benchmarks/[^&|;\n]+)", recipe)
    return {" ".join(line.replace("$(DATA)", "DIR").split()) for line in lines}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_kept_results_are_small_and_made_by_make_bench(path: Path) -> None:
    text = path.read_text()
    assert len(text) <= LARGEST
    assert "about" in json.loads(text)  # as benchmarks/common.py writes them
    assert json.loads(text)["command"] in bench_commands()
    assert "/tmp/" not in text and "/work/" not in text and "/home/" not in text


STORED = {
    "share": 0.12345,
    "sets": {"a set": [{"method": "A-b", "size": 5, "cost": 2e-7}, {"method": "A-b", "size": 9, "cost": 1234567}]},
    "runs": {"first": {"x": 1.0}, "second": {"x": 4.0}, "third": {"x": 2.0}},
}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "stored.json").write_text(json.dumps(STORED))
    monkeypatch.setattr(NUMBERS, "RESULTS", tmp_path)
    NUMBERS.load.cache_clear()
    yield
    NUMBERS.load.cache_clear()


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{stored.share:.2f}", "0.12"),
        ("{stored.share:.1%}", "12.3%"),
        ("{stored.sets[a set][method=A-b & size=5].cost:.0e}", "2e-7"),
        ("{stored.sets[a set][1].cost:,}", "1,234,567"),
        ("{min(stored.runs[*].x):.0f} to {max(stored.runs[*].x):.0f}", "1 to 4"),
        ("{median(stored.runs[*].x):.1f}, {count(stored.runs[*].x):d}", "2.0, 3"),
        ("{stored.runs.second.x / max(stored.runs[*].x):.2f}", "1.00"),
        ("{100 * stored.share:.3g}", "12.3"),
        ("{stored.runs.first.x - stored.runs.second.x:.1f}", "-3.0"),
        ("{stored.share - 1:.2f}", "-0.88"),
        ("{stored.sets[a set][0].method:}", "A-b"),
        ("runs = stored.runs\nsecond = stored.runs.second\n{second.x / runs.third.x:.0f}", "2"),
    ],
)
def test_a_stored_place_is_written(template: str, text: str) -> None:
    assert NUMBERS.filled(template) == text


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{stored.shares:.2f}", "nothing at 'shares'"),
        ("{stored.sets[a set][method=B].cost:.2f}", "nothing at 'method=B'"),
        ("{stored.runs[*].x:.2f}", "stands for 3 values"),
        ("{other.x:.2f}", "no benchmarks/results/other.json"),
        ("{stored.share - stored.share - 1:.2f}", "more than one sign"),
    ],
)
def test_a_place_that_is_not_stored_is_an_error(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NUMBERS.filled(template)


@pytest.mark.usefixtures("stored")
def test_only_what_stands_below_a_template_is_written_anew() -> None:
    page = "It was 7.77.\n\n<!-- numbers\nIt is {stored.share:.2f}.\n-->\nIt is 0.13.\n<!-- end of numbers -->\n"
    assert NUMBERS.made(page) == page.replace("0.13", "0.12")
    assert NUMBERS.unmarked_numbers(page) == ["7.77 in 'It was 7.77.'"]


def test_code_formulas_and_versions_are_no_measurements() -> None:
    page = "Python 3.11 to 3.14, `x=7.77`, $p = 0.4$, [a](b.1.md), 20 rows.\n\n```python\nx = 7.77\n```\n"
    assert NUMBERS.unmarked_numbers(page) == []
    assert NUMBERS.unmarked_numbers("It took 7 times as long, 3 to 4 times, 1e-7.") != []
