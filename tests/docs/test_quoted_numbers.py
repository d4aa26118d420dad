"""Measurements that README and documentation quote are those of the kept results, and the check of that works."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from quoted_numbers import is_stored, missing_numbers, quotations, stored_values

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
LARGEST = 50_000  # bytes of a kept file


@pytest.mark.parametrize("page", PAGES)
def test_quoted_numbers_are_in_the_kept_results(page: str) -> None:
    assert missing_numbers(ROOT / page, RESULTS) == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_kept_results_are_small_and_name_no_place(path: Path) -> None:
    text = path.read_text()
    assert len(text) <= LARGEST
    assert "about" in json.loads(text)  # as benchmarks/common.py writes them
    assert "/tmp/" not in text and "/work/" not in text and "/home/" not in text


STORED = {
    "a": [0.12345, {"b": "1.20 (largest 0.9), 2,302 rows"}],
    "0.05": 1234567,
    "flag": True,
    "about": {"v": "3.11"},
}


def quoted(tmp_path: Path, text: str) -> list[str]:
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "results.json").write_text(json.dumps(STORED))
    return missing_numbers(page, tmp_path)


def test_stored_values_are_found_in_values_texts_and_keys() -> None:
    found = set(stored_values(STORED))
    assert {Decimal("0.12345"), Decimal("1.20"), Decimal("0.9"), Decimal(2302), Decimal("0.05")} <= found
    assert Decimal("3.11") not in found and Decimal(1) not in found


@pytest.mark.parametrize("number", ["0.12", ".12", "0.123", ".1235", "1.2", "1,234,567", "2,302", "12.3 %", "1.2e-1"])
def test_a_rounded_value_is_accepted(tmp_path: Path, number: str) -> None:
    assert quoted(tmp_path, f"<!-- numbers: results.json -->\nThe share is {number}, as measured.\n") == []


@pytest.mark.parametrize("number", ["0.13", "0.124", "1,234,000", "1.3", "13.3 %", "2,303", "3.11"])
def test_another_number_is_reported(tmp_path: Path, number: str) -> None:
    (message,) = quoted(tmp_path, f"<!-- numbers: results.json -->\nThe share is {number}.\n")
    assert message == f"page.md, line 1: {number.removesuffix(' %')} is not in results.json"


def test_a_ratio_of_stored_values_does_not_count() -> None:
    assert not is_stored("2.47", False, {Decimal("0.2"), Decimal("0.081")})


def test_only_the_block_below_a_marker_is_checked(tmp_path: Path) -> None:
    text = "It was 7.77.\n\n<!-- numbers: results.json -->\n\nIt is 0.12\nand `x=7.77`, with 5 seeds.\n\nIt was 7.77.\n"
    assert quoted(tmp_path, text) == []
    assert len(quotations(text)) == 1


def test_named_columns_of_a_table_are_checked_and_no_others(tmp_path: Path) -> None:
    table = "| claim | published | ours, here |\n|---|---|---|\n| a \\| 0.12 | 7.7 | 0.12 |\n| b | 7.7 | {} |\n"
    marker = "<!-- numbers: results.json; columns: claim | ours, here -->\n"
    assert quoted(tmp_path, marker + table.format("0.9")) == []
    assert len(quoted(tmp_path, marker + table.format("7.7"))) == 1
    with pytest.raises(ValueError, match="no column 'theirs'"):
        quoted(tmp_path, marker.replace("ours, here", "theirs") + table)


def test_a_marker_with_a_mistake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        quoted(tmp_path, "<!-- numbers: results.json, columns = ours\n0.12\n")
    with pytest.raises(FileNotFoundError):
        quoted(tmp_path, "<!-- numbers: none.json -->\n0.12\n")
